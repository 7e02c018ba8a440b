"""Imports only go down. Each checker returns what it found, one line a violation, and is shown a planted one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from arch.source import PACKAGE, Module, plant, read_modules, resolve, room_of

#: The house, bottom floor first. A room imports from lower floors and from itself, never from its own floor.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("types", "literals"),
    ("graph", "arrays"),
    ("emitter", "form", "walks"),
    ("operators", "hashing"),
    ("text", "dependencies", "reverse"),
    ("tracing", "lowering", "scheduler"),
    ("expansion",),
    ("training",),
    ("verify", "serialization", "inspection"),
    ("",),  # the package itself, which exports from all below
    ("backends", "frontends", "runner"),
    ("cli",),
    ("testing",),
)

FLOOR = {room: floor for floor, rooms in enumerate(LAYERS) for room in rooms}

#: Imports upwards that only a type checker follows, each with its reason.
TYPE_ONLY = {("graph", "emitter"): "an operator's rules are given the emitter, which makes the node records of graph"}

#: Where a third-party package may be imported: verify computes in prime fields, which python-flint does.
THIRD_PARTY_ROOMS = ("backends", "frontends", "cli", "verify")
NUMPY_ROOMS = (*THIRD_PARTY_ROOMS, "arrays", "runner", "testing")


def layer_violations(modules: dict[str, Module]) -> list[str]:
    found = []
    for module in modules.values():
        if module.room not in FLOOR:
            found.append(f"{module.name}: no layer for {module.room!r}; give it a floor in LAYERS")
            continue
        for item in module.imports():
            target = resolve(item.target, modules)
            if target is None or (target_room := room_of(target)) == module.room:
                continue
            if item.type_only and (module.room, target_room) in TYPE_ONLY:
                continue
            if FLOOR.get(target_room, len(LAYERS)) >= FLOOR[module.room]:
                found.append(f"{module.name}:{item.line} imports {target}, which is not on a lower floor")
    return found


def cycle_violations(modules: dict[str, Module]) -> list[str]:
    """Cycles between modules, so inside a room; a module that imports its own package's __init__ makes one."""
    edges: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for item in module.imports():
            target = resolve(item.target, modules)
            if target is not None and not item.type_only:
                edges[module.name].add(target)
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def form_violations(modules: dict[str, Module]) -> list[str]:
    """Imports of ours inside a function, and relative ones, which a reader has to resolve."""
    found = []
    for module in modules.values():
        for item in module.imports():
            if item.is_relative:
                found.append(f"{module.name}:{item.line} has a relative import; name the module in full")
            elif item.in_function and resolve(item.target, modules) is not None:
                found.append(f"{module.name}:{item.line} imports {item.target} inside a function")
    return found


def third_party_violations(modules: dict[str, Module]) -> list[str]:
    found = []
    for module in modules.values():
        for item in module.imports():
            package = item.target.partition(".")[0]
            if item.is_relative or package in sys.stdlib_module_names or resolve(item.target, modules) is not None:
                continue
            if module.room not in (NUMPY_ROOMS if package == "numpy" else THIRD_PARTY_ROOMS):
                found.append(f"{module.name}:{item.line} imports {package}")
    return found


Checker = Callable[[dict[str, Module]], list[str]]

CHECKERS = (layer_violations, cycle_violations, form_violations, third_party_violations)


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_source_has_no_violation(checker: Checker) -> None:
    modules = read_modules()
    assert len(modules) > 10
    assert checker(modules) == []


def test_every_exemption_is_used() -> None:
    modules = read_modules()
    used = {
        (module.room, room_of(target))
        for module in modules.values()
        for item in module.imports()
        if item.type_only and (target := resolve(item.target, modules)) is not None
    }
    assert set(TYPE_ONLY) <= used


# ---------------------------------------------------------------------------------------- what the checkers can find


def test_finds_an_import_upwards(tmp_path: Path) -> None:
    src = plant(tmp_path, {"graph": "from tinychain.autodiff.reverse import generate", "reverse": ""})
    assert layer_violations(read_modules(src)) == [
        "tinychain.autodiff.graph:1 imports tinychain.autodiff.reverse, which is not on a lower floor"
    ]


def test_finds_an_import_on_the_same_floor(tmp_path: Path) -> None:
    src = plant(tmp_path, {"text/line": "import tinychain.autodiff.reverse", "reverse": ""})
    assert len(layer_violations(read_modules(src))) == 1


def test_finds_an_import_of_the_root(tmp_path: Path) -> None:
    src = plant(tmp_path, {"lowering": "from tinychain.autodiff import TensorGraph"})
    assert layer_violations(read_modules(src)) == [
        "tinychain.autodiff.lowering:1 imports tinychain.autodiff, which is not on a lower floor"
    ]


def test_finds_a_type_only_import_without_a_reason(tmp_path: Path) -> None:
    code = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tinychain.autodiff.reverse import generate\n"
    assert len(layer_violations(read_modules(plant(tmp_path, {"types": code, "reverse": ""})))) == 1


def test_finds_a_room_without_a_floor(tmp_path: Path) -> None:
    assert layer_violations(read_modules(plant(tmp_path, {"utils": ""}))) == [
        "tinychain.autodiff.utils: no layer for 'utils'; give it a floor in LAYERS"
    ]


def test_finds_a_cycle_inside_a_room(tmp_path: Path) -> None:
    src = plant(tmp_path, {"text/a": "import tinychain.autodiff.text.b", "text/b": "import tinychain.autodiff.text.a"})
    (found,) = cycle_violations(read_modules(src))
    assert "tinychain.autodiff.text.a imports tinychain.autodiff.text.b" in found


def test_finds_a_module_that_imports_its_own_package(tmp_path: Path) -> None:
    src = plant(
        tmp_path,
        {
            "text/__init__": "from tinychain.autodiff.text.a import x",
            "text/a": "from tinychain.autodiff.text import y",
        },
    )
    assert len(cycle_violations(read_modules(src))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    from tinychain.autodiff.errors import quote\n",
        "class A:\n    async def f(self):\n        if self:\n            import tinychain.autodiff.errors\n",
    ],
)
def test_finds_an_import_inside_a_function(tmp_path: Path, code: str) -> None:
    (found,) = form_violations(read_modules(plant(tmp_path, {"types": code, "errors": ""})))
    assert "inside a function" in found


def test_finds_a_relative_import(tmp_path: Path) -> None:
    (found,) = form_violations(read_modules(plant(tmp_path, {"types": "from .errors import quote", "errors": ""})))
    assert "relative import" in found


def test_finds_a_third_party_import(tmp_path: Path) -> None:
    src = plant(
        tmp_path,
        {
            "types": "import numpy",
            "testing": "import numpy",
            "lowering": "def f():\n    import jax.numpy\n",
            "backends/onnx": "import onnx",
        },
    )
    assert third_party_violations(read_modules(src)) == [
        "tinychain.autodiff.lowering:2 imports jax",
        "tinychain.autodiff.types:1 imports numpy",
    ]


# ------------------------------------------------------------------------------------------ what an import really does

_LOADED = """
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}} - sys.stdlib_module_names)))
"""


def loaded_packages(statement: str) -> set[str]:
    """The top-level packages outside the standard library that a statement loads in a fresh interpreter."""
    script = _LOADED.format(statement=statement)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout))


def test_importing_the_package_loads_nothing_but_numpy() -> None:
    assert {"tinychain"} <= loaded_packages(f"import {PACKAGE}") <= {"tinychain", "numpy"}


def test_sees_what_an_import_loads() -> None:
    assert "rich" in loaded_packages("import rich")


@pytest.mark.parametrize("name", [name for name, module in read_modules().items() if module.room not in NUMPY_ROOMS])
def test_each_module_can_be_the_first_import(name: str) -> None:
    assert loaded_packages(f"import {name}") <= {"tinychain", "numpy"}
