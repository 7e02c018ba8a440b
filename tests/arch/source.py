"""The source tree as the architecture tests see it: files, their names, and the imports in them.

The checkers take a folder, so that each can also be shown a planted violation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SRC: Final = ROOT / "src"
PACKAGE: Final = "tinychain.autodiff"


@dataclass(frozen=True)
class Import:
    """One import statement's target, a module or a name in one, and where it stands."""

    target: str
    line: int
    in_function: bool
    type_only: bool
    is_relative: bool


@dataclass(frozen=True)
class Module:
    """One file below the package's folder."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        """The part of the name that the layers are about: the module or folder right below the package."""
        return room_of(self.name)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imports(self) -> Iterator[Import]:
        stack: list[tuple[ast.AST, bool, bool]] = [(self.tree, False, False)]
        while stack:
            node, in_function, type_only = stack.pop()
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, in_function, type_only, False)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    target = f"{node.module or ''}.{alias.name}"
                    yield Import(target, node.lineno, in_function, type_only, node.level > 0)
            in_function = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                stack.extend((child, in_function, True) for child in node.body)
                stack.extend((child, in_function, type_only) for child in node.orelse)
            else:
                stack.extend((child, in_function, type_only) for child in ast.iter_child_nodes(node))


def room_of(name: str) -> str:
    """`tinychain.autodiff.text.line` is in the room `text`; the package itself is in the room ``."""
    return name.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def read_modules(src: Path = SRC) -> dict[str, Module]:
    """Every module of the package under `src`, by dotted name."""
    modules = {}
    for path in sorted((src / PACKAGE.replace(".", "/")).rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return modules


def resolve(target: str, modules: dict[str, Module]) -> str | None:
    """The module of ours that importing `target` loads; None for a target that is not ours."""
    while target == PACKAGE or target.startswith(PACKAGE + "."):
        if target in modules:
            return target
        target = target.rpartition(".")[0]
    return None


def plant(src: Path, files: Mapping[str, str]) -> Path:
    """Writes the modules of a pretended package, such as {"text/line": "..."}, and returns `src`."""
    folder = src / PACKAGE.replace(".", "/")
    for name, code in {"__init__": "", **files}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    return src
