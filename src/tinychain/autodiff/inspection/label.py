"""Text that can be shown anywhere: ids, names and params may be any str, and a drawing or a table has one line."""

from __future__ import annotations

from typing import Any, Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.text.notation import PACKAGE_OPERATORS, format_string
from tinychain.autodiff.text.write import NoText, format_value
from tinychain.autodiff.types import is_sequence, parse_type

_ITEMS_SHOWN: Final = 4
_ITEMS_LIMIT: Final = 16


def printable(text: str, limit: int | None = None) -> str:
    """`text` with escapes for what cannot be seen, cut to `limit` characters."""
    shown = text if text.isprintable() else format_string(text)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def operator_label(operator: TensorOperator) -> str:
    """The route name of an operator of the package, the class name of any other."""
    is_ours = PACKAGE_OPERATORS.get(operator.route_name) is type(operator)
    return operator.route_name if is_ours else printable(operator.name)


def id_label(id_: str, limit: int | None = None) -> str:
    """An id as the notation has it."""
    return printable(format_string(id_), limit)


def type_label(spec: Any, limit: int | None = None) -> str:
    """A typespec, whatever it is."""
    try:
        return printable(str(parse_type(spec, label="value")), limit)
    except AutodiffError:
        return "untyped" if spec is None else printable(quote(spec), limit)


def value_label(value: object) -> str:
    """A param as the notation has it, but of a long list only the first few items and how many there are."""
    try:
        if is_sequence(value) and len(value) > _ITEMS_LIMIT:
            return f"{format_value(list(value[:_ITEMS_SHOWN]))[:-1]}, … {len(value):,} in all]"
        return format_value(value)
    except NoText:
        return quote(value)
