"""The rules of elementwise operators: explicit broadcasts, literals as fills, subtraction, division by a number."""

from __future__ import annotations

from itertools import zip_longest
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import reason, region, regions
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    DivOperator,
    MaximumOperator,
    MinimumOperator,
    MulOperator,
    SubOperator,
)

ALL = [AddOperator, SubOperator, MulOperator, DivOperator, MaximumOperator, MinimumOperator]
WITH_LITERAL = [operator for operator in ALL if operator is not AddOperator]

EXTRA: dict[type[TensorOperator], list[str]] = {SubOperator: ["as_sum_with_fill"], DivOperator: ["as_product"]}

shapes = st.lists(st.integers(0, 3), max_size=4)
literals = st.sampled_from([-1.5, 3, 0.1, 1e-3, -7.0])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes that broadcast together."""
    result = draw(shapes)
    operands = []
    for _ in range(2):
        tail = result[draw(st.integers(0, len(result))) :]
        operands.append([1 if draw(st.booleans()) else dim for dim in tail])
    return operands[0], operands[1]


@given(st.sampled_from(ALL), pairs())
def test_two_operands(operator: type[TensorOperator], pair: tuple[list[int], list[int]]) -> None:
    x, y = pair
    result = [a if b == 1 else b for a, b in zip_longest(reversed(x), reversed(y), fillvalue=1)][::-1]
    found = regions(operator, x, y)
    assert ("with_equal_shapes" in found) is (not x == y == result)
    assert ("as_matrices" in found) is (x == y == result and len(result) != 2)
    assert ("as_sum" in found) is (operator is SubOperator)
    assert found.keys() <= {"with_equal_shapes", "as_matrices", "as_sum"}


@given(st.sampled_from(WITH_LITERAL), shapes, literals, st.sampled_from(["f32", "f64"]))
def test_a_literal(operator: type[TensorOperator], shape: list[int], literal: float, dtype: str) -> None:
    found = regions(operator, shape, right_literal=literal, dtype=dtype)
    assert found.pop("with_fill").names() == [operator().route_name]
    assert (found.pop("as_matrices", None) is None) is (len(shape) == 2)
    assert list(found) == EXTRA.get(operator, [])


def test_only_the_operand_that_is_stretched_is_broadcast() -> None:
    assert region(MulOperator, "with_equal_shapes", [4, 3], [3]).names() == ["broadcast", "mul"]
    assert region(MulOperator, "with_equal_shapes", [4, 1], [1, 3]).names() == ["broadcast", "broadcast", "mul"]


def test_a_tensor_of_another_rank_is_a_matrix_between_reshapes() -> None:
    for operands, params in (([[2, 3, 4]] * 2, {}), ([[2, 3, 4]], {"right_literal": 2.0})):
        applied = region(MulOperator, "as_matrices", *operands, **params)
        assert applied.names() == [*["reshape"] * len(operands), "mul", "reshape"]
        assert (applied.after.nodes[0].output_typespec or {})["shape"] == [6, 4]
    assert reason(MulOperator, "as_matrices", [3], [2, 3]) == "its operands have different shapes"
    assert reason(MulOperator, "as_matrices", [2, 3], [2, 3]) == "its operands are matrices already"


def test_a_subtraction_adds_the_negated_operand() -> None:
    applied = region(SubOperator, "as_sum", [4, 3], [3])
    negation, addition = applied.after.nodes
    assert negation.op_params == {"right_literal": -1.0}
    assert negation.output_typespec == {"dtype": "f64", "shape": [3]}
    assert type(addition.operator) is AddOperator


def test_subtracting_a_literal_adds_a_fill() -> None:
    fill, addition = region(SubOperator, "as_sum_with_fill", [4, 3], right_literal=2).after.nodes
    assert fill.op_params == {"fill": -2.0, "dtype": "f64", "shape": [4, 3]}
    assert type(addition.operator) is AddOperator


def test_dividing_by_a_literal_multiplies_by_its_reciprocal() -> None:
    (product,) = region(DivOperator, "as_product", [4, 3], right_literal=15).after.nodes
    assert type(product.operator) is MulOperator
    assert product.op_params == {"right_literal": 1 / 15}


@pytest.mark.parametrize(
    ("literal", "dtype"),
    [(0.0, "f64"), (1e-310, "f64"), (1.7e308, "f64"), (inf, "f64"), (nan, "f64"), (1e-39, "f32"), (1e39, "f32")],
)
def test_a_reciprocal_that_is_no_normal_number_is_declined(literal: float, dtype: str) -> None:
    text = reason(DivOperator, "as_product", [3], right_literal=literal, dtype=dtype)
    assert text == f"1 / {literal!r} is no normal number in {dtype}"


@pytest.mark.parametrize(("literal", "dtype"), [(101**0.5, "f64"), (-5.6773, "f32")])
def test_a_reciprocal_that_no_literal_stands_for_takes_two(literal: float, dtype: str) -> None:
    applied = region(DivOperator, "as_product", [3], right_literal=literal, dtype=dtype)
    assert applied.names() == ["mul", "mul"]


def test_what_does_not_apply_says_so() -> None:
    assert reason(DivOperator, "as_product", [3], [3]) == DivOperator.inexact
    assert reason(AddOperator, "with_equal_shapes", [3], [3]) == "every operand has the shape of the result already"
    assert reason(MulOperator, "with_fill", [3], [3]) == "it has no literal"
    assert reason(SubOperator, "as_sum_with_fill", [3], [3]) == "it has no literal"
    assert "it subtracts a literal" in reason(SubOperator, "as_sum", [3], right_literal=1.0)
