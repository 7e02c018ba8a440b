"""The rules that take a matmul's batches apart, for machines that have products of matrices alone.

They stand here, as what they emit is built on the matmul: additions, and products element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tinychain.autodiff.graph import Decline
from tinychain.autodiff.operators.constant import FillOperator
from tinychain.autodiff.operators.contraction import BroadcastOperator, MatmulOperator, ProductsWithOnes, SumOperator
from tinychain.autodiff.operators.elementwise import AddOperator, MulOperator
from tinychain.autodiff.operators.groups import Step
from tinychain.autodiff.operators.region import MAX_CONSTANT, SizedRegion, rule_of, too_large


@rule_of(MatmulOperator)
def by_blocks(operator: MatmulOperator, region: SizedRegion) -> Decline | None:
    """Each product of two matrices on its own: its factors taken out, itself put in its place, by unit vectors.

    b products take b * b numbers of constants, and beside their own FLOPs about 2 * b for each element of an operand
    with batch dims, and 3 * b for each of the result.
    """
    (*x_batch, m, k), (*y_batch, _, n) = region.shapes
    x, y = region.node.input_value_ids
    emit, batch = region.emit, region.shape[:-2]
    count = prod(batch)
    if prod(y_batch) == 1:
        return _one_matrix()
    if _has_nothing_to_add(region):
        return None
    if count**2 > MAX_CONSTANT:
        return too_large(count**2)
    units = {size: _units(region, size) for size in dict.fromkeys([count, prod(x_batch), prod(y_batch)]) if size > 1}
    x_blocks = _taken(region, x, units.get(prod(x_batch), ()), m, k)
    y_blocks = _taken(region, y, units[prod(y_batch)], k, n)
    placed = [
        emit(
            MatmulOperator,
            region.reshaped(unit, count, 1),
            region.reshaped(emit(MatmulOperator, x_blocks[i], y_blocks[j]), 1, m * n),
        )
        for unit, i, j in zip(units[count], _places(x_batch, batch), _places(y_batch, batch), strict=True)
    ]
    total, *others, last = placed
    for other in others:
        total = emit(AddOperator, total, other)
    region.finish(AddOperator, total, last)
    return None


@rule_of(MatmulOperator)
def as_products_and_sums(operator: MatmulOperator, region: SizedRegion) -> Decline | None:
    """Element by element: both operands repeated to [batch, m, k, n], multiplied, and added up along k."""
    (*x_batch, m, k), (*y_batch, _, n) = region.shapes
    x, y = region.node.input_value_ids
    if prod(y_batch) == 1:
        return _one_matrix()
    if x_batch != y_batch:
        return Decline("the operands have other batch dims; with_equal_batches repeats them", concerns=False)
    if _has_nothing_to_add(region):
        return None
    batch = prod(x_batch)
    columns, rows, sums = Step(batch * m * k, n, 1), Step(batch, m, k * n), Step(batch * m, k, n)
    largest = max([step.constant for step in (rows, sums) if step.size > 1 and not step.is_at_end], default=0)
    if largest > MAX_CONSTANT:
        return too_large(largest)
    shape = batch * m * k, n
    factors = [region.reshaped(_repeated(region, operand, step), *shape) for operand, step in ((x, columns), (y, rows))]
    if k == 1:
        region.finish(MulOperator, *factors)
    else:
        region.finish(MatmulOperator, *_factors(SumOperator(), region, region.emit(MulOperator, *factors), sums))
    return None


def _one_matrix() -> Decline:
    return Decline("the right operand is one matrix, which as_matrix_product takes", concerns=False)


def _has_nothing_to_add(region: SizedRegion) -> bool:
    """Emits the zeros that a product without inner elements is, and what has no elements at all."""
    if 0 not in (*region.shape, *region.shapes[0]):
        return False
    region.finish(FillOperator, fill=0.0, dtype=region.result.dtype, shape=list(region.shape))
    return True


def _units(region: SizedRegion, size: int) -> list[str]:
    """The rows of the identity."""
    return [region.constant([float(i == place) for i in range(size)], 1, size) for place in range(size)]


def _taken(region: SizedRegion, operand: str, units: Sequence[str], rows: int, columns: int) -> list[str]:
    """The matrices of an operand, one for each unit vector; the operand itself where it is one matrix."""
    if not units:
        return [region.reshaped(operand, rows, columns)]
    flat = region.reshaped(operand, len(units), rows * columns)
    return [region.reshaped(region.emit(MatmulOperator, unit, flat), rows, columns) for unit in units]


def _places(own: Sequence[int], batch: Sequence[int]) -> list[int]:
    """Which matrix of an operand each product of the batch takes."""
    places = [0]
    for dim, own_dim in zip(batch, [1] * (len(batch) - len(own)) + [*own], strict=True):
        places = [place * own_dim + (i if own_dim > 1 else 0) for place in places for i in range(dim)]
    return places


def _repeated(region: SizedRegion, operand: str, step: Step) -> str:
    """The operand with a group of axes added, along which it is repeated."""
    if step.size == 1:
        return operand
    return region.emit(MatmulOperator, *_factors(BroadcastOperator(), region, operand, step))


def _factors(operator: ProductsWithOnes, region: SizedRegion, x: str, step: Step) -> tuple[str, str]:
    """The two matrices whose product handles a group."""
    return (operator.at_end if step.is_at_end else operator.by_constant)(region, x, step)
