"""A transpose without a transpose operator or transposed inputs: exact, from constants, and dear.

Nothing applies it by itself; whoever wants it passes it to a legalization as a rule for TransposeOperator.
"""

from __future__ import annotations

from math import prod

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Decline, TensorNodeRecord
from tinychain.autodiff.operators import AddOperator, MatmulOperator, ReshapeOperator
from tinychain.autodiff.operators.movement import moved_blocks
from tinychain.autodiff.operators.region import MAX_CONSTANT, SizedRegion, sized_region_of, too_large


def transpose_by_constants(emit: Emitter, node: TensorNodeRecord) -> Decline | None:
    """Rewrites a transpose into matmuls with constants of zeros and ones, adds and reshapes, all of rank 2.

    A matrix [m, n], or two blocks of axes that change places, takes min(m, n) pairs of matmuls and about
    5 * m * n * min(m, n) FLOPs; any other permutation one matmul with a matrix of (size of the moved axes)**2 numbers.
    Declines where a dim is a symbol, and where a constant had more than 2**20 elements.
    """
    region = sized_region_of(emit, node)
    if isinstance(region, Decline):
        return region
    sizes, order = moved_blocks(region.shapes[0], node.op_params["perm"])
    if 0 in sizes or order == sorted(order):
        region.finish(ReshapeOperator, region.x, shape=list(region.shape))
        return None
    if order == [1, 0]:
        rows, columns = sizes
        return _line_by_line(region, rows, columns)
    return _at_once(region, sizes, order)


def _line_by_line(region: SizedRegion, rows: int, columns: int) -> Decline | None:
    """The sum of all lines, each taken out by a unit vector, reshaped, and put in its place by that vector.

    The lines are the rows, or the columns where those are fewer.
    """
    lines = min(rows, columns)
    if lines**2 > MAX_CONSTANT:
        return too_large(lines**2)
    emit, by_rows = region.emit, rows <= columns
    x = region.reshaped(region.x, rows, columns)
    total = ""
    for line in range(lines):
        numbers = [1.0 if i == line else 0.0 for i in range(lines)]
        if by_rows:
            unit = region.constant(numbers, 1, lines)
            pair = emit(ReshapeOperator, emit(MatmulOperator, unit, x), shape=[columns, 1]), unit
        else:
            unit = region.constant(numbers, lines, 1)
            pair = unit, emit(ReshapeOperator, emit(MatmulOperator, x, unit), shape=[1, rows])
        placed = emit(MatmulOperator, *pair)
        if line == lines - 1:
            region.finish(AddOperator, total, placed)
        else:
            total = emit(AddOperator, total, placed) if line else placed
    return None


def _at_once(region: SizedRegion, sizes: list[int], order: list[int]) -> Decline | None:
    """The elements of all axes that move, as one row each, times the matrix of their permutation."""
    fixed = 1 if order[0] == 0 else 0
    outer, moved = prod(sizes[:fixed]), prod(sizes[fixed:])
    if moved**2 > MAX_CONSTANT:
        return too_large(moved**2)
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    sources = [0]
    for axis in order[fixed:]:
        sources = [source + index * strides[axis] for source in sources for index in range(sizes[axis])]
    matrix = [0.0] * moved**2
    for target, source in enumerate(sources):
        matrix[source * moved + target] = 1.0
    region.finish(MatmulOperator, region.reshaped(region.x, outer, moved), region.constant(matrix, moved, moved))
    return None
