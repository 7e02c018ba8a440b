"""The side exit: runs a derivative program node by node, without lowering it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.form import check_program
from tinychain.autodiff.graph import AutodiffResult, DerivativeProgram, TensorNodeRecord, copy_node
from tinychain.autodiff.types import (
    as_int,
    bind_shape,
    is_sequence,
    parse_bindings,
    parse_shape,
    resolve_shape,
    spec_field,
)

Dispatch: TypeAlias = Callable[[TensorNodeRecord, list[Any]], Any]

_SHAPE_PARAMS = ("shape", "target_shape")


class ExecutionScheduler:
    """Executes programs through `dispatch(node, args)`, which computes one node on real values."""

    def __init__(self, dispatch: Dispatch) -> None:
        if not callable(dispatch):
            raise TypeError(f"dispatch must be callable as dispatch(node, args), got {quote(dispatch)}")
        self._dispatch = dispatch

    def execute(
        self,
        program: DerivativeProgram,
        *,
        values: Mapping[str, Any],
        shape_bindings: Mapping[str, int] | None = None,
    ) -> AutodiffResult:
        """Runs the nodes in list order on `values` by id and returns the gradients in `output_gradients` order.

        Symbols are bound by `shape_bindings`, then by the `.shape` of the given values. Raises symbolic_shape_mismatch
        for a conflict before anything runs, unresolved_symbolic_shape for a shape that stays symbolic,
        missing_derivative_ir for an absent operand or gradient and for another exception of dispatch. A None among the
        output gradients gives None.
        """
        check_program(program, "program")
        if not isinstance(values, Mapping):
            raise TypeError(f"values must be a mapping from value id to value, got {quote(values)}")
        if not is_sequence(program.output_gradients):
            raise TypeError(f"output_gradients of program must be a list, got {quote(program.output_gradients)}")
        symbols = _bind_symbols(program, values, shape_bindings)
        computed = dict(values)
        for node in program.nodes:
            args = [
                _value(computed, operand, f"operand of node {quote(node.node_id)}") for operand in node.input_value_ids
            ]
            computed[node.output_value_id] = self._run(_resolved(node, symbols), args)
        gradients = [
            None if gradient is None else _value(computed, gradient, "an output gradient")
            for gradient in program.output_gradients
        ]
        return AutodiffResult(gradients=gradients, metadata=program.metadata)

    def _run(self, node: TensorNodeRecord, args: list[Any]) -> Any:
        try:
            return self._dispatch(node, args)
        except AutodiffError:
            raise
        except Exception as error:
            where = f"node {quote(node.node_id)} ({node.operator.name})"
            raise AutodiffError("missing_derivative_ir", f"dispatch failed on {where}: {describe(error)}") from error


def _value(computed: Mapping[str, Any], value_id: str, role: str) -> Any:
    if value_id not in computed:
        raise AutodiffError(
            "missing_derivative_ir",
            f"{quote(value_id)}, {role}, is neither given nor computed before; pass it in values",
        )
    return computed[value_id]


def _bind_symbols(
    program: DerivativeProgram, values: Mapping[str, Any], shape_bindings: Mapping[str, int] | None
) -> dict[str, int]:
    symbols = parse_bindings(shape_bindings)
    for value_id, value in values.items():
        declared = spec_field(program.value_typespecs.get(value_id), "shape")
        if is_sequence(declared) and (actual := _shape_of(value)) is not None:
            _bind_shape(f"value {quote(value_id)}", declared, actual, symbols)
    return symbols


def _shape_of(value: Any) -> list[int] | None:
    """The `.shape` of a given value as plain ints, or None where it has no such thing."""
    try:
        shape = getattr(value, "shape", None)
        sizes = [as_int(size) for size in shape] if is_sequence(shape) else [None]
    except Exception:
        return None
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else None


def _bind_shape(label: str, declared: Sequence[object], actual: list[int], symbols: dict[str, int]) -> None:
    expected = f"{label} has shape {quote(actual)}; the program declares {quote(list(declared))}"
    try:
        fits = bind_shape(parse_shape(declared, label=label), actual, symbols)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{expected}: {error.message}") from None
    if not fits:
        raise AutodiffError("symbolic_shape_mismatch", expected)


def _resolved(node: TensorNodeRecord, symbols: Mapping[str, int]) -> TensorNodeRecord:
    """The node as dispatch gets it: a copy, with ints for the symbols in its shape params."""
    node = copy_node(node)
    for key in _SHAPE_PARAMS:
        shape = node.op_params.get(key)
        if is_sequence(shape) and any(isinstance(dim, str) for dim in shape):
            label = f"{key} of node {quote(node.node_id)}"
            sizes = resolve_shape(
                parse_shape(shape, label=label), symbols, label=label, remedy="pass it in shape_bindings"
            )
            node.op_params[key] = list(sizes)
    return node
