"""What lowering hands to handlers, binders and hooks, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from tinychain.autodiff.dependencies import DependencyAnalysis, ValueDependency
from tinychain.autodiff.errors import AutodiffError, describe
from tinychain.autodiff.graph import Record, TensorNodeRecord, TensorOperator, copied, slot_setters

LOWERING_CLAIM_HANDLER: Final = "handler"
LOWERING_CLAIM_FUSION: Final = "fusion"

#: Whatever a backend calls a value. It is passed on and never looked into; only None is refused.
TargetValue: TypeAlias = Any

BindInput: TypeAlias = Callable[[ValueDependency], TargetValue]


@dataclass(frozen=True, slots=True, init=False)
class OperationContext(Record):
    """One operation as its handler sees it; the mappings are read-only copies.

    `inputs` are the target values of the operands, in order, an operand that fills two slots twice.
    """

    node_id: str
    operator: TensorOperator
    op_params: Mapping[str, Any]
    input_value_ids: tuple[str, ...]
    inputs: tuple[TargetValue, ...]
    input_provenance: tuple[str, ...]
    output_value_id: str
    output_typespec: Mapping[str, Any] | None

    def __init__(
        self,
        node_id: str,
        operator: TensorOperator,
        op_params: Mapping[str, Any],
        input_value_ids: Sequence[str],
        inputs: Sequence[TargetValue],
        input_provenance: Sequence[str],
        output_value_id: str,
        output_typespec: Mapping[str, Any] | None,
    ) -> None:
        _context_node_id(self, node_id)
        _context_operator(self, operator)
        _context_op_params(self, MappingProxyType(copied(op_params)))
        _context_input_value_ids(self, tuple(input_value_ids))
        _context_inputs(self, tuple(inputs))
        _context_input_provenance(self, tuple(input_provenance))
        _context_output_value_id(self, output_value_id)
        spec = MappingProxyType(copied(output_typespec)) if isinstance(output_typespec, Mapping) else None
        _context_output_typespec(self, spec)


(
    _context_node_id,
    _context_operator,
    _context_op_params,
    _context_input_value_ids,
    _context_inputs,
    _context_input_provenance,
    _context_output_value_id,
    _context_output_typespec,
) = slot_setters(OperationContext)


@runtime_checkable
class OperationHandler(Protocol):
    """Lowers the operations of one operator class to target values."""

    operator_type: type[TensorOperator]

    def lower(self, context: OperationContext) -> TargetValue:
        """The target value of the operation's result; never None."""


@dataclass(frozen=True)
class FusionContext(Record):
    """An offer to a fusion hook: the next unclaimed operations, the offered one first, and their bound operands."""

    candidates: tuple[TensorNodeRecord, ...]
    value_of: Callable[[str], TargetValue]


@dataclass(frozen=True)
class FusionResult(Record):
    """What a hook answers: one target value for all the candidates that it names, the offered one among them."""

    value: TargetValue
    consumed_node_ids: Sequence[str]


@runtime_checkable
class FusionHook(Protocol):
    """May claim several operations at once. `lookahead` is how many it wants to see."""

    lookahead: int

    def fuse(self, context: FusionContext) -> FusionResult | None:
        """A result, or None to leave the offered operation to its handler."""


@dataclass(frozen=True, slots=True, init=False)
class LoweredOperation(Record):
    """One claimed operation, or several fused ones, and the target value that came of it."""

    output_value_id: str
    value: TargetValue
    source_node_ids: tuple[str, ...]
    source_operators: tuple[TensorOperator, ...]
    is_fused: bool

    def __init__(
        self,
        output_value_id: str,
        value: TargetValue,
        source_node_ids: tuple[str, ...],
        source_operators: tuple[TensorOperator, ...],
        is_fused: bool,
    ) -> None:
        _operation_output(self, output_value_id)
        _operation_value(self, value)
        _operation_node_ids(self, source_node_ids)
        _operation_operators(self, source_operators)
        _operation_is_fused(self, is_fused)


(
    _operation_output,
    _operation_value,
    _operation_node_ids,
    _operation_operators,
    _operation_is_fused,
) = slot_setters(LoweredOperation)


@dataclass(frozen=True)
class LoweredProgram(Record):
    """A completely lowered artifact. `values` holds the bound inputs and every emitted value, read-only."""

    selected_outputs: tuple[str, ...]
    operations: tuple[LoweredOperation, ...]
    values: Mapping[str, TargetValue]
    dependencies: DependencyAnalysis

    @property
    def output_values(self) -> tuple[TargetValue, ...]:
        """The target values of the selected outputs, in their order."""
        return tuple([self.values[value_id] for value_id in self.selected_outputs])


def violation(message: str) -> AutodiffError:
    """A breach of the rules by a handler, a binder or a hook."""
    return AutodiffError("handler_contract_violation", message)


def raised(who: str, error: Exception) -> AutodiffError:
    """The categorized form of an exception that a consumer's code raised; chain the original to it."""
    return violation(f"{who} raised {describe(error)}")
