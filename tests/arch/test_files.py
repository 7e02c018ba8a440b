"""What holds for every file: small, introduced by a docstring, and no `__init__.py` where the namespace is shared."""

from __future__ import annotations

import ast
from pathlib import Path

from arch.source import ROOT

MOST_LINES = 400
FOLDERS = ("src", "tests", "benchmarks", "examples")


def file_violations(root: Path) -> list[str]:
    found = []
    if (root / "src/tinychain/__init__.py").exists():
        found.append("src/tinychain/__init__.py: tinychain is a namespace that other distributions share; remove it")
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        if not ast.get_docstring(ast.parse(text)):
            found.append(f"{name}: no module docstring")
        if (lines := len(text.splitlines())) > MOST_LINES:
            found.append(f"{name}: {lines} lines; split it by what its parts are about")
    return found


def test_files_have_no_violation() -> None:
    assert file_violations(ROOT) == []


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "src/tinychain/autodiff/py.typed").read_bytes() == b""


def test_finds_every_violation(tmp_path: Path) -> None:
    (tmp_path / "src/tinychain").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "src/tinychain/__init__.py").write_text('"""A docstring does not excuse it."""\n')
    (tmp_path / "src/tinychain/bare.py").write_text("x = 1\n")
    (tmp_path / "tests/test_long.py").write_text('"""Long."""\n' + "\n" * MOST_LINES)
    assert [violation.partition(";")[0] for violation in file_violations(tmp_path)] == [
        "src/tinychain/__init__.py: tinychain is a namespace that other distributions share",
        "src/tinychain/bare.py: no module docstring",
        "tests/test_long.py: 401 lines",
    ]
