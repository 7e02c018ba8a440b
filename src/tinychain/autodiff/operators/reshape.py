"""The operator that only says how the same elements are counted, and the base of all that move or repeat them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Decline, Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import Symbols, TensorType, check_floating, check_same_count, parse_shape, swapped


class Movement(TensorOperator):
    """One operand, whose elements go elsewhere."""

    multiplies = "never"

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 1

    def flops(self, result: TensorType, x: TensorType, **op_params: Any) -> int:
        return 0


class ReshapeOperator(Movement):
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

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str | Decline:
        (x,) = node.input_value_ids
        before, after = emit.shape(x), tuple(node.op_params["shape"])
        if len(before) < 2 and 1 in after[-2:]:  # a vector has the same elements as a row and as a column
            return emit(ReshapeOperator, of(x), shape=list(swapped(after)))
        return of(x) if before == after else Decline(f"a reshape of {list(before)} to {list(after)} mixes the axes")
