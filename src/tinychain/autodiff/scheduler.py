"""The side exit: runs a derivative program node by node, without lowering it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import AutodiffResult, DerivativeProgram, TensorNodeRecord
from tinychain.autodiff.types import as_int, bind_shape, is_sequence, parse_shape, resolve_shape, spec_field

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
        if not isinstance(program, DerivativeProgram):
            raise TypeError(f"program must be a DerivativeProgram, got {quote(program)}")
        if not isinstance(values, Mapping):
            raise TypeError(f"values must be a mapping from value id to value, got {quote(values)}")
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
            raise AutodiffError(
                "missing_derivative_ir", f"dispatch failed on {where}: {type(error).__name__}: {error}"
            ) from error


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
    symbols: dict[str, int] = {}
    for symbol, size in ({} if shape_bindings is None else shape_bindings).items():
        number = as_int(size)
        if number is None or number < 0:
            raise ValueError(f"shape_bindings binds {quote(symbol)} to {quote(size)}; expected a non-negative int")
        symbols[symbol] = number
    for value_id, value in values.items():
        declared = spec_field(program.value_typespecs.get(value_id), "shape")
        actual = getattr(value, "shape", None)
        if not is_sequence(declared) or not is_sequence(actual):
            continue
        label = f"value {quote(value_id)}"
        if not bind_shape(parse_shape(declared, label=label), actual, symbols):
            raise AutodiffError(
                "symbolic_shape_mismatch", f"{label} has shape {list(actual)}; the program declares {list(declared)}"
            )
    return symbols


def _resolved(node: TensorNodeRecord, symbols: Mapping[str, int]) -> TensorNodeRecord:
    """The node with ints for the symbols in its shape params."""
    resolved = {}
    for key in _SHAPE_PARAMS:
        shape = node.op_params.get(key)
        if is_sequence(shape) and any(isinstance(dim, str) for dim in shape):
            label = f"{key} of node {quote(node.node_id)}"
            resolved[key] = list(resolve_shape(parse_shape(shape, label=label), symbols, label=label))
    return replace(node, op_params={**node.op_params, **resolved}) if resolved else node
