"""Matrix products, and what is a matrix product with ones: adding up along axes, and repeating along them.

They are one file because they need each other: as derivatives, and in the exact forms that their rules emit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Decline, Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators.constant import FillOperator
from tinychain.autodiff.operators.groups import Step, ends_first, largest_first, plan_groups
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.operators.movement import TransposeOperator
from tinychain.autodiff.operators.reduction import Reduction, explicit_axes
from tinychain.autodiff.operators.region import MAX_CONSTANT, Region, SizedRegion, sized_rule, too_large, typed_rule
from tinychain.autodiff.operators.reshape import Movement, ReshapeOperator
from tinychain.autodiff.types import (
    Symbols,
    TensorType,
    broadcast_plan,
    check_floating,
    common_dtype,
    element_count,
    matmul_shape,
    parse_shape,
    reduced_shape,
    swapped,
)


class MatmulOperator(TensorOperator):
    """x @ y over the last two axes, batch axes broadcast. f[..., m, k], f[..., k, n] -> f[..., m, n]."""

    route_name = "matmul"
    ufunc = "matmul"
    multiplies = "product"
    shape_category = "matmul_shape_mismatch"
    samples = (
        Sample(((4, 3), (3, 2))),
        Sample(((2, 4, 3), (2, 3, 5))),
        Sample(((2, 1, 4, 3), (6, 3, 1))),
        Sample(((3, 3), (2, 3, 3))),
        Sample(((2, 4, 3), (3, 2))),
    )

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 2

    def result_type(self, symbols: Symbols, x: TensorType, y: TensorType) -> TensorType:
        return TensorType(common_dtype(x.dtype, y.dtype), matmul_shape(x.shape, y.shape, symbols))

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        x, y = node.input_value_ids

        def transposed(operand: str) -> str:
            *batch, row, column = range(len(emit.shape(operand)))
            return emit(TransposeOperator, operand, perm=[*batch, column, row])

        return lambda: emit(MatmulOperator, g, transposed(y)), lambda: emit(MatmulOperator, transposed(x), g)

    def flops(self, result: TensorType, x: TensorType, y: TensorType) -> int:
        return 2 * element_count(result.shape) * element_count(x.shape[-1:])

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        x, y = operands
        if x.shape[:-2] != y.shape[:-2]:
            return Level.BROADCASTING
        return Level.MATRICES if len(result.shape) == 2 else Level.BATCHES

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        x, y = node.input_value_ids
        return emit(MatmulOperator, of(y), of(x))

    @sized_rule
    def as_matrix_product(self, region: SizedRegion) -> Decline | None:
        """The batch of the left operand as rows of one matrix; where one of the two is a vector, of the right one."""
        (*x_batch, m, k), (*y_batch, _, n) = region.shapes
        x, y = region.node.input_value_ids
        if len(region.shape) == 2:
            return Decline("it is a product of two matrices already", concerns=False)
        if prod(y_batch) == 1:
            rows = prod(x_batch) * m
            region.finish(MatmulOperator, region.reshaped(x, rows, k), region.reshaped(y, k, n))
        elif prod(x_batch) != 1:
            return Decline(f"both operands have batch dims, {x_batch} and {y_batch}; one matrix has no place for them")
        elif n == 1 and 1 in (m, k):  # x has one row or one column, so that transposing it is a reshape
            region.finish(MatmulOperator, region.reshaped(y, prod(y_batch), k), region.reshaped(x, k, m))
        elif m == k == 1:
            region.finish(MatmulOperator, region.reshaped(x, 1, 1), region.reshaped(y, 1, prod(y_batch) * n))
        else:
            return Decline(
                f"the right operand has the batch dims {y_batch}; a reshape puts only those of the left in rows"
            )
        return None

    @typed_rule
    def with_equal_batches(self, region: Region) -> Decline | None:
        """The batch dims of both operands repeated to those of the result, by explicit broadcasts."""
        batch = region.result.shape[:-2]
        operands = [(id_, type_.shape) for id_, type_ in zip(region.node.input_value_ids, region.operands, strict=True)]
        if all(shape[:-2] == batch for _, shape in operands):
            return Decline("the batch dims of both operands are those of the result already", concerns=False)
        region.finish(
            MatmulOperator,
            *[
                id_ if shape[:-2] == batch else region.emit(BroadcastOperator, id_, shape=[*batch, *shape[-2:]])
                for id_, shape in operands
            ],
        )
        return None


class Grouped(NamedTuple):
    """The longer and the shorter shape of a sum or a broadcast, and the axes of the longer one that make it longer."""

    longer: tuple[int, ...]
    shorter: tuple[int, ...]
    axes: tuple[int, ...]


class ProductsWithOnes(TensorOperator, ABC):
    """The rules that a sum and a broadcast share: one matmul for each group of neighbouring axes."""

    @abstractmethod
    def grouped(self, region: SizedRegion) -> Grouped:
        """What it adds up or repeats."""

    def ordered(self, steps: list[Step]) -> list[Step]:
        """The steps that take groups away, in the order of the operator."""
        return steps

    @abstractmethod
    def at_end(self, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
        """The two matrices whose product handles a group at one end of the shape."""

    @abstractmethod
    def in_batches(self, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
        """The two tensors of rank 3 whose product handles a group anywhere."""

    @abstractmethod
    def by_constant(self, region: SizedRegion, x: str, step: Step, one: float = 1.0) -> tuple[str, str]:
        """The two matrices whose product handles a group anywhere; one of them is written out, of zeros and `one`."""

    @sized_rule
    def as_matmuls(self, region: SizedRegion) -> Decline | None:
        """Products of two matrices, where every group is at one end of the shape. Without a group, a reshape."""
        longer, _, axes = self.grouped(region)
        steps = plan_groups(longer, axes, largest_first)
        if not all(step.is_at_end for step in steps):
            return _between(longer, axes)
        if 0 in longer:  # a sum of nothing, or a result without elements
            region.finish(FillOperator, fill=0.0, dtype=region.result.dtype, shape=list(region.shape))
        elif steps:
            self._multiply(region, steps, self.at_end)
        else:
            region.finish(ReshapeOperator, region.x, shape=list(region.shape))
        return None

    @sized_rule
    def as_matmuls_on_both_sides(self, region: SizedRegion) -> Decline | None:
        """Between a matrix [r, c] and [1, 1]: one matmul an axis, and no reshape."""
        longer, shorter, _ = self.grouped(region)
        if len(longer) != 2 or shorter != (1, 1) or min(longer) < 2:
            return Decline(
                f"it is not between [1, 1] and a matrix, but between {list(shorter)} and {list(longer)}", concerns=False
            )
        rows, columns = longer
        if rows >= columns:
            steps = [Step(1, rows, columns), Step(1, columns, 1)]
        else:
            steps = [Step(rows, columns, 1), Step(1, rows, 1)]
        self._multiply(region, steps, self.at_end)
        return None

    @sized_rule
    def as_batched_matmuls(self, region: SizedRegion) -> Decline | None:
        """Products of tensors of rank 3 for the groups that lie between other axes."""
        longer, _, axes = self.grouped(region)
        steps = plan_groups(longer, axes, largest_first)
        if all(step.is_at_end for step in steps):
            return _not_between(longer, axes)
        self._multiply(region, steps, self.in_batches)
        return None

    @sized_rule
    def as_matmuls_by_constants(self, region: SizedRegion) -> Decline | None:
        """Products with matrices of zeros and ones, written out, for the groups that lie between other axes."""
        return self.scaled_by_constants(region, 1.0)

    def scaled_by_constants(self, region: SizedRegion, scale: float) -> Decline | None:
        """The same times a number, which stands in one of the constants for the ones."""
        longer, _, axes = self.grouped(region)
        steps = plan_groups(longer, axes, ends_first)
        if all(step.is_at_end for step in steps):
            return _not_between(longer, axes)
        largest = max([step.constant for step in steps if not step.is_at_end])
        if largest > MAX_CONSTANT:
            return too_large(largest)
        scales = iter([scale])

        def between(region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
            return self.by_constant(region, x, step, next(scales, 1.0))

        self._multiply(region, steps, between)
        return None

    def _multiply(
        self,
        region: SizedRegion,
        steps: list[Step],
        between: Callable[[SizedRegion, str, Step], tuple[str, str]],
    ) -> None:
        x = region.x
        *earlier, last = self.ordered(steps)
        for step in earlier:
            x = region.emit(MatmulOperator, *(self.at_end if step.is_at_end else between)(region, x, step))
        region.finish(MatmulOperator, *(self.at_end if last.is_at_end else between)(region, x, last))


class SumOperator(Reduction, ProductsWithOnes):
    """The sum over `axes`, which may be symbolic. x: f[..., n, ...] -> f[...]."""

    route_name = "sum"
    multiplies = "never"

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        return (lambda: spread(emit, node, g),)

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.SUM

    def grouped(self, region: SizedRegion) -> Grouped:
        (longer,) = region.shapes
        return Grouped(longer, region.shape, explicit_axes(region.node.op_params["axes"], longer))

    def at_end(self, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
        outer, size, inner = step
        if inner == 1 and (outer > 1 or region.emit.shape(x) == (1, size)):
            return region.reshaped(x, outer, size), region.ones(size, 1)
        return region.ones(1, size), region.reshaped(x, size, inner)

    def in_batches(self, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
        return region.ones(step.outer, 1, step.size), region.reshaped(x, *step)

    def by_constant(self, region: SizedRegion, x: str, step: Step, one: float = 1.0) -> tuple[str, str]:
        outer, size, inner = step
        if inner <= outer:
            stacked = [one if i % inner == j else 0.0 for i in range(size * inner) for j in range(inner)]
            return region.reshaped(x, outer, size * inner), region.constant(stacked, size * inner, inner)
        blocks = [one if j // size == i else 0.0 for i in range(outer) for j in range(outer * size)]
        return region.constant(blocks, outer, outer * size), region.reshaped(x, outer * size, inner)


class BroadcastOperator(Movement, ProductsWithOnes):
    """x repeated to `shape` by the rules of NumPy broadcasting."""

    route_name = "broadcast"
    params = ("shape",)
    shape_category = "broadcast_shape_mismatch"
    samples = (
        Sample(((3, 1),), {"shape": [3, 4]}),
        Sample(((3,),), {"shape": [2, 4, 3]}),
        Sample(((),), {"shape": [2, 2]}),
        Sample(((2, 3),), {"shape": [2, 3]}),
        Sample(((1, 1),), {"shape": [2, 3]}),
        Sample(((2, 1, 3),), {"shape": [2, 4, 3]}),
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

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        return emit(BroadcastOperator, *map(of, node.input_value_ids), shape=list(swapped(node.op_params["shape"])))

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.BROADCAST

    def grouped(self, region: SizedRegion) -> Grouped:
        (shorter,) = region.shapes
        return Grouped(region.shape, shorter, broadcast_plan(shorter, region.shape, {}))

    def ordered(self, steps: list[Step]) -> list[Step]:
        return steps[::-1]

    def at_end(self, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
        outer, size, inner = step
        if inner == 1 and (outer > 1 or region.shape[-1] == size):
            return region.reshaped(x, outer, 1), region.ones(1, size)
        return region.ones(size, 1), region.reshaped(x, 1, inner)

    def in_batches(self, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
        return region.ones(step.outer, step.size, 1), region.reshaped(x, step.outer, 1, step.inner)

    def by_constant(self, region: SizedRegion, x: str, step: Step, one: float = 1.0) -> tuple[str, str]:
        outer, size, inner = step
        flat = region.reshaped(x, outer, inner)
        if inner <= outer:
            tiled = [one if j % inner == i else 0.0 for i in range(inner) for j in range(size * inner)]
            return flat, region.constant(tiled, inner, size * inner)
        blocks = [one if i // size == j else 0.0 for i in range(outer * size) for j in range(outer)]
        return region.constant(blocks, outer * size, outer), flat


class BroadcastReduceOperator(Movement):
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

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        target = list(swapped(node.op_params["target_shape"]))
        return emit(BroadcastReduceOperator, *map(of, node.input_value_ids), target_shape=target)

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.BROADCAST_REDUCE

    @typed_rule
    def as_sum(self, region: Region) -> Decline | None:
        """The sum over the axes along which the target would be repeated."""
        shape, target = region.operands[0].shape, region.result.shape
        lead = len(shape) - len(target)
        axes = broadcast_plan(target, shape, {})
        if axes:
            region.finish(SumOperator, region.x, axes=list(axes), keepdims=axes[-1] >= lead)
        else:
            region.finish(ReshapeOperator, region.x, shape=list(target))
        return None


def spread(emit: Emitter, node: TensorNodeRecord, g: str) -> str:
    """The cotangent of a sum: g repeated along the reduced axes."""
    (x,) = node.input_value_ids
    shape = emit.shape(x)
    if not node.op_params["keepdims"]:
        axes = explicit_axes(node.op_params.get("axes"), shape)
        g = emit(ReshapeOperator, g, shape=list(reduced_shape(shape, axes, keepdims=True)))
    return emit(BroadcastOperator, g, shape=list(shape))


def _between(shape: Sequence[int], axes: Sequence[int]) -> Decline:
    return Decline(
        f"of the axes {list(axes)} of {list(shape)}, some lie between others, and a matrix has no third place"
    )


def _not_between(shape: Sequence[int], axes: Sequence[int]) -> Decline:
    return Decline(f"the axes {list(axes)} of {list(shape)} need no more than as_matmuls emits", concerns=False)
