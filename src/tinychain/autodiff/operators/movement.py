"""The operator that moves elements to other places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Decline, Sample, TensorNodeRecord
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.operators.region import Region, SizedRegion, sized_rule, typed_rule
from tinychain.autodiff.operators.reshape import Movement, ReshapeOperator
from tinychain.autodiff.types import Symbols, TensorType, check_floating, parse_permutation


class TransposeOperator(Movement):
    """Axis i of the result is axis perm[i] of x."""

    route_name = "transpose"
    params = ("perm",)
    shape_category = "invalid_permutation"
    samples = (
        Sample(((4, 3),), {"perm": [1, 0]}),
        Sample(((2, 3, 4),), {"perm": [2, 0, 1]}),
        Sample(((2, 3, 4),), {"perm": [0, 2, 1]}),
        Sample(((2, 1, 3),), {"perm": [1, 0, 2]}),
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

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.TRANSPOSE_MATRIX if len(result.shape) == 2 else Level.TRANSPOSE

    @typed_rule
    def as_reshape(self, region: Region) -> Decline | None:
        """Only axes of length 1 change places, or there are no elements."""
        shape = region.operands[0].shape
        order = [axis for axis in region.node.op_params["perm"] if shape[axis] != 1]
        if order != sorted(order) and 0 not in shape:
            return Decline(
                "a transpose moves elements; a reshape does so only where the axes longer than 1 keep their order"
            )
        region.finish(ReshapeOperator, region.x, shape=list(region.result.shape))
        return None

    @sized_rule
    def as_matrix_transpose(self, region: SizedRegion) -> Decline | None:
        """Two blocks of axes change places: those of a matrix."""
        sizes, order = moved_blocks(region.shapes[0], region.node.op_params["perm"])
        if len(region.shape) == 2 or order != [1, 0]:
            return Decline("a transpose moves elements; a matrix does so only in place of two blocks of more axes")
        region.finish(TransposeOperator, region.reshaped(region.x, *sizes), perm=order)
        return None


def moved_blocks(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same transpose with the fewest axes: a reshaped operand and its permutation.

    Axes of length 1 go, and those that stay side by side are one.
    """
    kept = [axis for axis, dim in enumerate(shape) if dim != 1]
    runs: list[list[int]] = []
    for axis in [kept.index(axis) for axis in perm if shape[axis] != 1]:
        if runs and axis == runs[-1][-1] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    blocks = sorted(runs)
    return [prod([shape[kept[axis]] for axis in block]) for block in blocks], [blocks.index(run) for run in runs]
