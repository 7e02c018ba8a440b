"""Operators that move or repeat elements, and the one that undoes a repetition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import (
    Symbols,
    TensorType,
    broadcast_plan,
    check_floating,
    check_same_count,
    element_count,
    parse_permutation,
    parse_shape,
)


class _Unary(TensorOperator):
    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 1

    def flops(self, result: TensorType, x: TensorType, **op_params: Any) -> int:
        return 0


class ReshapeOperator(_Unary):
    """The same elements, in row-major order, in another shape. x: f[...] -> f[shape]."""

    route_name = "reshape"
    params = ("shape",)
    shape_category = "shape_mismatch"
    samples = (
        Sample(((4, 3),), {"shape": [2, 6]}),
        Sample(((1, 1),), {"shape": []}),
        Sample(((),), {"shape": [1, 1, 1]}),
    )

    def result_type(self, symbols: Symbols, x: TensorType, *, shape: object = None) -> TensorType:
        target = parse_shape(shape, label="reshape")
        check_same_count(x.shape, target, symbols)
        return TensorType(check_floating(x.dtype), target)

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        return (lambda: emit(ReshapeOperator, g, shape=list(emit.shape(x))),)

    def reference(self, xp: Any, x: Any, *, shape: Sequence[int]) -> Any:
        return xp.reshape(x, tuple(shape))


class TransposeOperator(_Unary):
    """Axis i of the result is axis perm[i] of x."""

    route_name = "transpose"
    params = ("perm",)
    shape_category = "invalid_permutation"
    samples = (
        Sample(((4, 3),), {"perm": [1, 0]}),
        Sample(((2, 3, 4),), {"perm": [2, 0, 1]}),
        Sample(((),), {"perm": []}),
    )

    def result_type(self, symbols: Symbols, x: TensorType, *, perm: object = None) -> TensorType:
        order = parse_permutation(perm, len(x.shape))
        return TensorType(check_floating(x.dtype), tuple([x.shape[axis] for axis in order]))

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        perm = parse_permutation(node.op_params.get("perm"), len(emit.shape(x)))
        inverse = sorted(range(len(perm)), key=perm.__getitem__)
        return (lambda: emit(TransposeOperator, g, perm=inverse),)

    def reference(self, xp: Any, x: Any, *, perm: Sequence[int]) -> Any:
        return xp.transpose(x, tuple(perm))


class BroadcastOperator(_Unary):
    """x repeated to `shape` by the rules of NumPy broadcasting."""

    route_name = "broadcast"
    params = ("shape",)
    shape_category = "broadcast_shape_mismatch"
    samples = (
        Sample(((3, 1),), {"shape": [3, 4]}),
        Sample(((3,),), {"shape": [2, 4, 3]}),
        Sample(((),), {"shape": [2, 2]}),
        Sample(((2, 3),), {"shape": [2, 3]}),
    )

    def result_type(self, symbols: Symbols, x: TensorType, *, shape: object = None) -> TensorType:
        target = parse_shape(shape, label="broadcast")
        broadcast_plan(x.shape, target, symbols)
        return TensorType(check_floating(x.dtype), target)

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        return (lambda: emit(BroadcastReduceOperator, g, target_shape=list(emit.shape(x))),)

    def reference(self, xp: Any, x: Any, *, shape: Sequence[int]) -> Any:
        return xp.broadcast_to(x, tuple(shape))


class BroadcastReduceOperator(_Unary):
    """The adjoint of a broadcast: x summed over the axes along which `target_shape` would be repeated to x's shape."""

    route_name = "broadcast_reduce"
    params = ("target_shape",)
    shape_category = "broadcast_shape_mismatch"
    samples = (
        Sample(((3, 4),), {"target_shape": [3, 1]}),
        Sample(((2, 4, 3),), {"target_shape": [3]}),
        Sample(((2, 2),), {"target_shape": []}),
        Sample(((2, 3),), {"target_shape": [2, 3]}),
    )

    def result_type(self, symbols: Symbols, x: TensorType, *, target_shape: object = None) -> TensorType:
        target = parse_shape(target_shape, label="broadcast_reduce")
        broadcast_plan(target, x.shape, symbols)
        return TensorType(check_floating(x.dtype), target)

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        return (lambda: emit(BroadcastOperator, g, shape=list(emit.shape(x))),)

    def flops(self, result: TensorType, x: TensorType, **op_params: Any) -> int:
        return element_count(x.shape)

    def reference(self, xp: Any, x: Any, *, target_shape: Sequence[int]) -> Any:
        axes = broadcast_plan(tuple(target_shape), x.shape, {})
        return xp.reshape(xp.sum(x, axis=axes), tuple(target_shape))
