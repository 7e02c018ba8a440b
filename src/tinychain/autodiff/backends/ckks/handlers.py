"""The handlers of this backend: every operation becomes a `Term`, checked, with a shape of known sizes.

Whether a tensor is secret is not known here; that is declared when a step is planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinychain.autodiff.backends.ckks.target import CKKS
from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.lowering import OperationContext, OperationHandlerRegistry
from tinychain.autodiff.types import TensorType, check_floating, parse_type, resolve_shape


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """The target value: what an operation computes, on what. An input has no operator."""

    operator: TensorOperator | None
    op_params: Mapping[str, Any]
    operands: tuple[Term, ...]
    type: TensorType


def bind_input(dependency: ValueDependency) -> Term:
    """The `bind_input` of a lowering for this backend.

    Raises missing_dtype_metadata, missing_shape_metadata, dtype_not_differentiable and unresolved_symbolic_shape for an
    input whose dtype is not known to be f32 or f64 and whose sizes are not known.
    """
    label = f"input {quote(dependency.value_id)}"
    type_ = parse_type({"dtype": dependency.dtype, "shape": dependency.shape}, label=label)
    return Term(None, {}, (), _sized(type_, label))


class Handler:
    """Lowers one operator class by its own type rule."""

    def __init__(self, operator_type: type[TensorOperator]) -> None:
        self.operator_type = operator_type

    def lower(self, context: OperationContext) -> Term:
        """Raises what the type rule does, unresolved_symbolic_shape, and handler_contract_violation."""
        operator, label = context.operator, f"node {quote(context.node_id)} ({context.operator.name})"
        operands = _terms(context.inputs, label)
        try:
            type_ = operator.result_type({}, *[term.type for term in operands], **context.op_params)
        except AutodiffError as error:
            raise AutodiffError(error.category, f"{label}: {error.message}") from None
        return Term(operator, context.op_params, operands, _sized(type_, label))


def ckks_registry() -> OperationHandlerRegistry:
    """A new registry that owns what the target `CKKS` has."""
    registry = OperationHandlerRegistry()
    for operator_type in CKKS.operators:
        registry.register(Handler(operator_type))
    return registry


def _terms(values: Sequence[Any], label: str) -> tuple[Term, ...]:
    for value in values:
        if not isinstance(value, Term):
            raise AutodiffError(
                "handler_contract_violation",
                f"{label} has the operand {quote(value)}; lower with this backend's handlers and its bind_input",
            )
    return tuple(values)


def _sized(type_: TensorType, label: str) -> TensorType:
    try:
        check_floating(type_.dtype)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{label}: {error.message}") from None
    return TensorType(type_.dtype, resolve_shape(type_.shape, {}, label=label))
