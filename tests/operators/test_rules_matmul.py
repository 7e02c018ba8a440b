"""The rules of a matmul: batches as rows of one matrix, vectors, explicit broadcasts of batch dims."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import reason, region, regions
from tinychain.autodiff.operators import MatmulOperator

dims = st.integers(0, 3)


@st.composite
def operands(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    batch = draw(st.lists(dims, max_size=2))
    batches = []
    for _ in range(2):
        tail = batch[draw(st.integers(0, len(batch))) :]
        batches.append([1 if draw(st.booleans()) else dim for dim in tail])
    m, k, n = draw(dims), draw(dims), draw(dims)
    return [*batches[0], m, k], [*batches[1], k, n]


@given(operands())
def test_a_matmul(shapes: tuple[list[int], list[int]]) -> None:
    x, y = shapes
    found = regions(MatmulOperator, x, y)
    assert ("with_equal_batches" in found) is (x[:-2] != y[:-2])
    if x[:-2] == y[:-2] == []:
        assert not found
    elif set(y[:-2]) <= {1}:
        assert found["as_matrix_product"].names()[-2:] in (["matmul", "reshape"], ["reshape", "matmul"], ["matmul"])


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([5, 4, 3], [3, 2]),
        ([5, 6, 4, 3], [1, 1, 3, 2]),
        ([1, 4, 3], [1, 3, 2]),
        ([4, 3], [1, 3, 2]),
        ([1, 1, 4, 3], [3, 2]),
    ],
)
def test_a_batch_on_the_left_is_rows(x: list[int], y: list[int]) -> None:
    applied = region(MatmulOperator, "as_matrix_product", x, y)
    before = region(MatmulOperator, "as_matrix_product", x, y).before
    (product,) = [node for node in applied.after.nodes if type(node.operator) is MatmulOperator]
    assert len((product.output_typespec or {})["shape"]) == 2
    assert applied.flops() == applied._replace(after=before).flops()


@pytest.mark.parametrize(
    ("x", "y"), [([1, 3], [5, 3, 1]), ([4, 1], [5, 1, 1]), ([1, 1], [5, 1, 4]), ([1, 1, 3], [2, 5, 3, 1])]
)
def test_a_batch_on_the_right_of_a_vector_is_rows_too(x: list[int], y: list[int]) -> None:
    applied = region(MatmulOperator, "as_matrix_product", x, y)
    assert applied.names().count("matmul") == 1
    assert applied.flops() == applied._replace(after=applied.before).flops()


def test_batch_dims_that_are_stretched_are_broadcast() -> None:
    assert region(MatmulOperator, "with_equal_batches", [3, 3], [2, 3, 3]).names() == ["broadcast", "matmul"]
    applied = region(MatmulOperator, "with_equal_batches", [2, 1, 4, 3], [6, 3, 1])
    assert applied.names() == ["broadcast", "broadcast", "matmul"]
    assert [node.op_params.get("shape") for node in applied.after.nodes] == [[2, 6, 4, 3], [2, 6, 3, 1], None]


def test_what_does_not_apply_says_so() -> None:
    rule = "as_matrix_product"
    assert reason(MatmulOperator, rule, [4, 3], [3, 2]) == "it is a product of two matrices already"
    assert reason(MatmulOperator, rule, [2, 4, 3], [2, 3, 2]) == (
        "both operands have batch dims, [2] and [2]; one matrix has no place for them"
    )
    assert reason(MatmulOperator, rule, [4, 3], [2, 3, 2]) == (
        "the right operand has the batch dims [2]; a reshape puts only those of the left in rows"
    )
    assert "are those of the result already" in reason(MatmulOperator, "with_equal_batches", [2, 4, 3], [2, 3, 2])
