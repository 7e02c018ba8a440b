"""The one exception type of the package and the closed list of its categories.

Every failure that a caller can cause carries a category, so that tools can react to the kind of a failure and
people to its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, Final

AUTODIFF_ERROR_CATEGORIES: Final[tuple[str, ...]] = (
    "unsupported_operator",
    "missing_derivative_behavior",
    "missing_derivative_ir",
    "non_differentiable_route",
    "missing_shape_metadata",
    "missing_dtype_metadata",
    "dtype_not_differentiable",
    "shape_mismatch",
    "unresolved_symbolic_shape",
    "symbolic_shape_mismatch",
    "broadcast_shape_mismatch",
    "matmul_shape_mismatch",
    "invalid_permutation",
    "reduction_shape_mismatch",
    "unsupported_reduction",
    "seed_shape_mismatch",
    "malformed_derivative_ir",
    "side_effecting_route_unsupported",
    "autodiff_not_implemented",
    "dtype_mismatch",
    "missing_dependency",
    "ambiguous_producer",
    "invalid_selected_output",
    "handler_contract_violation",
    "invalid_update_signature",
    "invalid_update_output",
    "invalid_training_declaration",
    "invalid_loss_signature",
    "invalid_loss_output",
    "expansion_contract_violation",
    "invalid_artifact_file",
    "invalid_training_data",
    "non_finite_value",
    "invalid_checkpoint",
    "unwritable_checkpoint",
    "invalid_verification",
    "not_equivalent",
    "invalid_target",
    "not_legalizable",
    "invalid_encryption_plan",
    "unsupported_layout",
    "value_out_of_range",
    "invalid_message",
    "invalid_encryption_key",
)

_KNOWN: Final = frozenset(AUTODIFF_ERROR_CATEGORIES)

# `raise ... from`, contextlib and `add_note` assign these on a live exception.
_INTERPRETER_OWNED: Final = frozenset(
    {"__traceback__", "__cause__", "__context__", "__suppress_context__", "__notes__"}
)

_QUOTE_LIMIT: Final = 120


@dataclass(frozen=True)
class _ErrorFields:
    category: str
    message: str


class AutodiffError(_ErrorFields, Exception):
    """A categorized failure; a frozen record that can be raised.

    `category` is one of AUTODIFF_ERROR_CATEGORIES (otherwise ValueError). `str(error)` is "category: message". Two
    errors are equal when both fields are.
    """

    def __init__(self, category: str, message: str) -> None:
        if not isinstance(category, str) or category not in _KNOWN:
            raise ValueError(
                f"unknown autodiff error category {quote(category)}; AUTODIFF_ERROR_CATEGORIES lists the known ones"
            )
        super().__init__(category, message)
        Exception.__init__(self, category, message)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _INTERPRETER_OWNED:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        Exception.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name not in _INTERPRETER_OWNED:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        Exception.__delattr__(self, name)

    def __str__(self) -> str:
        return f"{self.category}: {self.message}"

    def __reduce__(self) -> tuple[type[AutodiffError], tuple[str, str]]:
        # BaseException would restore the fields through the frozen __setattr__.
        return type(self), (self.category, self.message)

    def to_dict(self) -> dict[str, str]:
        """Plain JSON values, field by field."""
        return {"category": self.category, "message": self.message}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AutodiffError:
        """The inverse of `to_dict`. Raises TypeError or ValueError for other data and for an unknown category."""
        if not isinstance(data, Mapping):
            raise TypeError(f"AutodiffError.from_dict takes a mapping, got {quote(data)}")
        if set(data) != {"category", "message"}:
            raise ValueError(f"AutodiffError.from_dict takes the keys category and message, got {quote(list(data))}")
        return cls(category=data["category"], message=data["message"])


def quote(value: object) -> str:
    """`repr(value)` cut to a length that a message can carry; never raises."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__} whose repr raises>"
    return text if len(text) <= _QUOTE_LIMIT else f"{text[:_QUOTE_LIMIT]}... ({len(text)} characters)"


def describe(error: BaseException) -> str:
    """The type and the text of an exception of somebody else's; never raises."""
    try:
        text = str(error)
    except Exception:
        text = "<its str raises>"
    return f"{type(error).__name__}: {text}"


def qualified_name(function: object) -> str:
    """The qualified name of a function or a class; that of its type for another callable, such as a partial."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) and name else type(function).__qualname__
