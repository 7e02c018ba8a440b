"""The FLOPs of one operation, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from strategies import OwnOperator
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    BroadcastOperator,
    BroadcastReduceOperator,
    FillOperator,
    MatmulOperator,
    MaxOperator,
    MeanOperator,
    MulOperator,
    ReshapeOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.types import TensorType


def flops(operator: type[TensorOperator], *shapes: tuple[int, ...], **op_params: Any) -> int | None:
    operands = [TensorType("f32", shape) for shape in shapes]
    result = operator().result_type({}, *operands, **op_params)
    return operator().flops(result, *operands, **op_params)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ((4, 3), (3, 2), 2 * 4 * 3 * 2),
        ((5, 4, 3), (3, 2), 5 * 2 * 4 * 3 * 2),
        ((5, 1, 4, 3), (7, 3, 2), 5 * 7 * 2 * 4 * 3 * 2),
        ((4, 0), (0, 2), 0),
    ],
)
def test_a_matmul_multiplies_and_adds_along_the_inner_dim(
    x: tuple[int, ...], y: tuple[int, ...], expected: int
) -> None:
    assert flops(MatmulOperator, x, y) == expected


def test_an_elementwise_operation_counts_the_elements_of_its_result() -> None:
    assert flops(AddOperator, (4, 1), (3,)) == 12
    assert flops(MulOperator, (4, 3), right_literal=2.0) == 12
    assert flops(AddOperator, (), ()) == 1


@pytest.mark.parametrize("operator", [SumOperator, MeanOperator, MaxOperator])
def test_a_reduction_counts_the_elements_of_its_operand(operator: type[TensorOperator]) -> None:
    assert flops(operator, (4, 3), axes=[0], keepdims=False) == 12


def test_undoing_a_broadcast_is_a_reduction() -> None:
    assert flops(BroadcastReduceOperator, (4, 3), target_shape=[1, 3]) == 12


def test_what_only_moves_or_makes_elements_counts_nothing() -> None:
    assert flops(ReshapeOperator, (4, 3), shape=[12]) == 0
    assert flops(TransposeOperator, (4, 3), perm=[1, 0]) == 0
    assert flops(BroadcastOperator, (3,), shape=[4, 3]) == 0
    assert flops(FillOperator, fill=1.0, dtype="f32", shape=[4, 3]) == 0


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_every_operator_of_the_package_has_a_count_for_its_samples(operator: type[TensorOperator]) -> None:
    for sample in operator.samples:
        params = {**sample.op_params, "dtype": "f32"} if operator is FillOperator else sample.op_params
        count = flops(operator, *sample.shapes, **params)
        assert isinstance(count, int)
        assert count >= 0


def test_nothing_is_known_of_an_operator_that_does_not_say() -> None:
    assert OwnOperator().flops(TensorType("f32", (4,)), TensorType("f32", (4,))) is None
