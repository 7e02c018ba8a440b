"""Rules for legalization that are wrong, each in one way; the types are right, so that only the values can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Decline, TensorNodeRecord
from tinychain.autodiff.operators import (
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SumOperator,
)


def _ones(emit: Emitter, *shape: int) -> str:
    return emit(FillOperator, fill=1.0, dtype="f64", shape=list(shape))


def _shape(node: TensorNodeRecord) -> list[Any]:
    assert node.output_typespec is not None
    return list(node.output_typespec["shape"])


def off_by_a_factor(emit: Emitter, node: TensorNodeRecord) -> None:
    """The mean of 16 numbers, 0.05 % off."""
    total = emit(SumOperator, *node.input_value_ids, **node.op_params)
    emit(MulOperator, total, right_literal=1.0005 / 16, into=node.output_value_id)


def off_by_one_row(emit: Emitter, node: TensorNodeRecord) -> None:
    """The mean of 16 numbers, divided by 15."""
    total = emit(SumOperator, *node.input_value_ids, **node.op_params)
    emit(MulOperator, total, right_literal=1 / 15, into=node.output_value_id)


def over_the_other_axis(emit: Emitter, node: TensorNodeRecord) -> None:
    """The sums of the rows of [4, 4] for those of the columns."""
    total = emit(MatmulOperator, *node.input_value_ids, _ones(emit, 4, 1))
    emit(ReshapeOperator, total, shape=[4], into=node.output_value_id)


def over_the_wrong_group(emit: Emitter, node: TensorNodeRecord) -> None:
    """The sum over the first axis of [4, 4, 4] for that over the second."""
    rows = emit(ReshapeOperator, *node.input_value_ids, shape=[4, 16])
    total = emit(MatmulOperator, _ones(emit, 1, 4), rows)
    emit(ReshapeOperator, total, shape=[4, 4], into=node.output_value_id)


def along_the_other_axis(emit: Emitter, node: TensorNodeRecord) -> None:
    """A vector as a column of [4, 4] for one as a row."""
    column = emit(ReshapeOperator, *node.input_value_ids, shape=[4, 1])
    emit(MatmulOperator, column, _ones(emit, 1, 4), into=node.output_value_id)


def without_the_second_term(emit: Emitter, node: TensorNodeRecord) -> None:
    emit(ReshapeOperator, node.input_value_ids[0], shape=_shape(node), into=node.output_value_id)


def with_the_wrong_sign(emit: Emitter, node: TensorNodeRecord) -> None:
    emit(AddOperator, *node.input_value_ids, into=node.output_value_id)


def not_transposed(emit: Emitter, node: TensorNodeRecord) -> None:
    """The same elements in the same order, in the shape of the transpose."""
    emit(ReshapeOperator, *node.input_value_ids, shape=_shape(node), into=node.output_value_id)


def by_a_rounded_reciprocal(emit: Emitter, node: TensorNodeRecord) -> Decline | None:
    """1 / 3 with four digits."""
    if len(node.input_value_ids) == 2:
        return Decline("it divides by a tensor")
    emit(MulOperator, *node.input_value_ids, right_literal=0.3333, into=node.output_value_id)
    return None


def by_the_numbers_in_reverse(emit: Emitter, node: TensorNodeRecord) -> None:
    """A division by the row 1, 2, 4, 8."""
    row = emit(ConstantOperator, values=[1 / 8, 1 / 4, 1 / 2, 1.0], dtype="f64", shape=[1, 4])
    emit(MulOperator, node.input_value_ids[0], row, into=node.output_value_id)


def all_by_the_first_matrix(emit: Emitter, node: TensorNodeRecord) -> None:
    """A product of two matrices [4, 4] by two others, each by the first of them."""
    x, y = node.input_value_ids
    unit = emit(ConstantOperator, values=[1.0, 0.0], dtype="f64", shape=[1, 2])
    first = emit(MatmulOperator, unit, emit(ReshapeOperator, y, shape=[2, 16]))
    rows = emit(ReshapeOperator, x, shape=[8, 4])
    product = emit(MatmulOperator, rows, emit(ReshapeOperator, first, shape=[4, 4]))
    emit(ReshapeOperator, product, shape=[2, 4, 4], into=node.output_value_id)


class NotReversed(MatmulOperator):
    """A matmul whose transpose is A^T B^T."""

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        return emit(MatmulOperator, *map(of, node.input_value_ids))


class OfTheWrongOperand(MatmulOperator):
    """A matmul whose transpose is B^T B^T."""

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        _, y = node.input_value_ids
        return emit(MatmulOperator, of(y), of(y))


class UntransposedOperand(MatmulOperator):
    """A matmul whose transpose is B^T A."""

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        x, y = node.input_value_ids
        return emit(MatmulOperator, of(y), x)
