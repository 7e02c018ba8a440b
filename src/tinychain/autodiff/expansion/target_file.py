"""Targets as TOML, read without trusting it: every fault is named by its place in the file.

name = "my machine"

[operators.matmul]
min_rank = 2
max_rank = 2
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.target import Limits, Target, below
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.text.classes import operator_classes

PathLike: TypeAlias = str | os.PathLike[str]

#: The longest text that is read. The parser of the standard library is quadratic in the parts of a dotted key.
MAX_LENGTH: Final = 1 << 14

_FIELDS: Final = tuple([field.name for field in fields(Limits)])

_is_bare_key = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


def parse_target(text: str, *, operators: Iterable[type[TensorOperator]] = ()) -> Target:
    """The target that a TOML text describes: `name`, and below `operators` one table of `Limits` for each operator.

    A table has the class name or the route name of its operator, and the fields of `Limits` as keys, lists standing
    for tuples. `operators` are classes of your own; of those that share a name, the last one is meant.

    Raises invalid_target with the path of the fault, such as operators.matmul.max_rank, for anything else and for a
    text of more than MAX_LENGTH; TypeError for another argument.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {quote(text)}; read a file with load_target")
    by_class = operator_classes(operators)
    by_route = _by_route(by_class.values())
    data = _parsed(text)
    _check_keys(data, "", ("name", "operators"), required=True)
    limits: dict[type[TensorOperator], Limits] = {}
    for name, table in _table(data["operators"], "operators").items():
        path = f"operators.{_step(name)}"
        operator = by_class.get(name) or by_route.get(name)
        if operator is None:
            raise _fault(path, f"the name of an operator: {', '.join(by_route)}", quote(name))
        if operator in limits:
            raise _fault(path, f"one table for {operator.__name__}", "a second one")
        limits[operator] = _limits(operator, _table(table, path), path)
    return Target(data["name"], limits)


def load_target(path: PathLike, *, operators: Iterable[type[TensorOperator]] = ()) -> Target:
    """`parse_target` for a file. Also raises invalid_target for what is no file of UTF-8 that can be read."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a str or an os.PathLike, got {quote(path)}")
    with below(f"{quote(os.fspath(path))}: "):
        return parse_target(_read(path), operators=operators)


def _by_route(classes: Iterable[type[TensorOperator]]) -> dict[str, type[TensorOperator]]:
    routes = [(getattr(operator, "route_name", None), operator) for operator in classes]
    return {route: operator for route, operator in routes if isinstance(route, str)}


def _read(path: PathLike) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait
            raise _fault("", "a regular file", "a folder or a device")
        with open(path, "rb") as file:
            data = file.read(MAX_LENGTH + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise _fault("", "a file that can be read", f"the error {why}") from None
    _check_length(data)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _fault("", "UTF-8", f"the byte 0x{data[error.start]:02x} at offset {error.start}") from None


def _parsed(text: str) -> dict[str, Any]:
    _check_length(text)
    try:
        return tomllib.loads(text)
    except ValueError as error:  # of the parser, or of an int of too many digits
        raise _fault("", "TOML", f"a text of which the parser says {quote(str(error))}") from None
    except RecursionError:
        raise _fault("", "TOML", "a text that nests too deeply") from None


def _check_length(text: str | bytes) -> None:
    if len(text) > MAX_LENGTH:
        raise _fault("", f"a length of at most {MAX_LENGTH}", "a longer one")


def _limits(operator: type[TensorOperator], table: Mapping[str, Any], path: str) -> Limits:
    _check_keys(table, path, _FIELDS, required=False)
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    with below(f"{path}."):
        limits = Limits(**given)
        limits.check_for(operator)
    return limits


def _table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _fault(path, "a table", quote(value))
    return value


def _check_keys(table: Mapping[str, Any], path: str, known: Collection[str], *, required: bool) -> None:
    for key in table:
        if key not in known:
            raise _fault(f"{path}.{_step(key)}".removeprefix("."), f"no other keys than {', '.join(known)}", "it")
    missing = [key for key in known if required and key not in table]
    if missing:
        raise _fault(f"{path}.{missing[0]}".removeprefix("."), "a value", "none")


def _step(key: str) -> str:
    return key if _is_bare_key(key) else quote(key)


def _fault(path: str, expected: str, got: str) -> AutodiffError:
    return AutodiffError("invalid_target", f"{path}{': ' if path else ''}expected {expected}, got {got}")
