"""The lower bounds of pyproject.toml are the versions that continuous integration installs and tests."""

from __future__ import annotations

import re
import tomllib

from arch.source import ROOT


def declared_lowest(pyproject: str) -> dict[str, set[str]]:
    """The lower bounds by distribution. Fails for a requirement that is not of the form name>=version or ==."""
    content = tomllib.loads(pyproject)
    requirements = [*content["build-system"]["requires"], *content["project"]["dependencies"]]
    for extra in content["project"].get("optional-dependencies", {}).values():
        requirements += extra
    lowest: dict[str, set[str]] = {}
    for requirement in requirements:
        match = re.fullmatch(r"([a-z0-9-]+)(?:>=|==)([0-9.]+)", requirement)
        assert match, f"{requirement!r} declares no single lower bound"
        lowest.setdefault(match[1], set()).add(match[2])
    return lowest


def installed_lowest(constraints: str) -> dict[str, set[str]]:
    pins = [line.split("==") for line in constraints.splitlines() if line and not line.startswith("#")]
    return {name: {version} for name, version in pins}


def test_the_lowest_versions_are_those_that_pyproject_declares() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert installed_lowest((ROOT / ".ci/lowest.txt").read_text(encoding="utf-8")) == declared_lowest(pyproject)


def test_numpy_is_the_only_dependency_of_the_core() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [re.split("[>=]", dependency)[0] for dependency in content["project"]["dependencies"]] == ["numpy"]


def test_sees_a_bound_that_was_raised() -> None:
    pyproject = '[build-system]\nrequires = []\n[project]\ndependencies = ["numpy>=2.1.0"]\n'
    assert declared_lowest(pyproject) != installed_lowest("# lowest\nnumpy==2.0.0\n")
