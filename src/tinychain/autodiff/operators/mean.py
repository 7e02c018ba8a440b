"""The mean, which is a sum and a scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Decline, TensorNodeRecord
from tinychain.autodiff.operators.constant import FillOperator
from tinychain.autodiff.operators.contraction import MatmulOperator, SumOperator, spread
from tinychain.autodiff.operators.elementwise import DivOperator, MulOperator
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.operators.reduction import Reduction, float_count, reduced_dims
from tinychain.autodiff.operators.region import Region, SizedRegion, sized_rule, typed_rule
from tinychain.autodiff.operators.reshape import ReshapeOperator
from tinychain.autodiff.types import Symbols, TensorType, element_count


class MeanOperator(Reduction):
    """The arithmetic mean over `axes`; their dims must be ints. The mean of no elements is NaN, as in NumPy."""

    route_name = "mean"
    multiplies = "scale"

    def result_type(
        self, symbols: Symbols, x: TensorType, *, axes: object = None, keepdims: object = None
    ) -> TensorType:
        result = super().result_type(symbols, x, axes=axes, keepdims=keepdims)
        element_count(reduced_dims(x.shape, axes))
        return result

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        count = float_count(reduced_dims(emit.shape(x), node.op_params.get("axes")))
        return (lambda: emit(DivOperator, spread(emit, node, g), right_literal=count),)

    def as_matmuls(self, emit: Emitter, node: TensorNodeRecord) -> None:
        """The mean over both axes of a matrix as two matmuls against ones and a scale, into the node's own value.

        mean(x) = (ones[1, r] @ (x @ ones[c, 1])) * (1 / (r * c)), reshaped to a scalar unless `keepdims`.
        """
        (x,), out = node.input_value_ids, node.output_value_id
        type_ = emit.type(x)
        assert type_ is not None  # the pass refuses an untyped operand before it asks for an expansion
        rows, columns = type_.shape
        scale = 1.0 / float_count(type_.shape)

        def ones(shape: list[Any]) -> str:
            return emit(FillOperator, fill=1.0, dtype=type_.dtype, shape=shape)

        row_sums = emit(MatmulOperator, x, ones([columns, 1]))
        total = emit(MatmulOperator, ones([1, rows]), row_sums)
        if node.op_params["keepdims"]:
            emit(MulOperator, total, right_literal=scale, into=out)
        else:
            emit(ReshapeOperator, emit(MulOperator, total, right_literal=scale), shape=[], into=out)

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.MEAN

    @typed_rule
    def as_sum(self, region: Region) -> Decline | None:
        """The sum, scaled once by the literal 1 / count; the mean of one number is that number."""
        count = _count(region)
        if isinstance(count, Decline):
            return count
        if count == 1:
            region.finish(SumOperator, region.x, **region.node.op_params)
        else:
            total = region.emit(SumOperator, region.x, **region.node.op_params)
            region.finish(MulOperator, total, right_literal=1.0 / count)
        return None

    @sized_rule
    def as_matmuls_by_constants(self, region: SizedRegion) -> Decline | None:
        """The sum by constants, where it takes some, with the scale in the first of them: one level instead of two."""
        count = _count(region)
        return count if isinstance(count, Decline) else SumOperator().scaled_by_constants(region, 1.0 / count)


def _count(region: Region) -> float | Decline:
    """How many numbers each mean is of."""
    try:
        count = float_count(reduced_dims(region.operands[0].shape, region.node.op_params["axes"]))
    except AutodiffError as error:
        return Decline(error.message)
    return count or Decline("the mean of no elements is no number")
