"""The rules of a matmul: batches as rows of one matrix, explicit broadcasts, and batches that are taken apart."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import Applied, reason, region, regions
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
    else:
        assert "by_blocks" in found
        assert ("as_products_and_sums" in found) is (x[:-2] == y[:-2])


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


# -------------------------------------------------------------------------------------------------- batches taken apart


def constants(applied: Applied) -> int:
    """How many numbers are written out."""
    return sum([len(node.op_params.get("values", ())) for node in applied.after.nodes])


@pytest.mark.parametrize(
    ("x", "y"), [([2, 3, 4], [2, 4, 5]), ([3, 4], [3, 4, 5]), ([2, 1, 3, 4], [1, 3, 4, 5]), ([2, 3, 3, 4], [3, 4, 5])]
)
def test_every_product_is_one_of_matrices(x: list[int], y: list[int]) -> None:
    applied = region(MatmulOperator, "by_blocks", x, y)
    shapes = [(node.output_typespec or {})["shape"] for node in applied.after.nodes[:-1]]
    assert {len(shape) for shape in shapes} == {2}
    assert len([shape for shape in shapes if shape == [3, 5]]) == prod(
        (applied.after.nodes[-1].output_typespec or {})["shape"][:-2]
    )


def test_what_blocks_cost() -> None:
    count, m, k, n = 4, 3, 5, 2
    applied = region(MatmulOperator, "by_blocks", [count, m, k], [count, k, n])
    products = 2 * count * m * k * n
    taken = 2 * count * count * (m * k + k * n)
    placed = (2 * count + count - 1) * count * m * n
    assert applied.flops() == products + taken + placed
    assert constants(applied) == count * count


def test_a_matrix_that_all_products_share_is_not_taken_out() -> None:
    shared = region(MatmulOperator, "by_blocks", [3, 4], [2, 4, 5])
    assert constants(shared) == 4
    assert shared.names().count("matmul") == 3 * 2
    assert region(MatmulOperator, "by_blocks", [2, 3, 4], [2, 4, 5]).names().count("matmul") == 4 * 2


def test_products_of_rows_and_columns_take_no_constant() -> None:
    applied = region(MatmulOperator, "as_products_and_sums", [5, 1, 4], [5, 4, 1])
    assert applied.names() == ["reshape", "reshape", "mul", "reshape", "matmul", "reshape"]
    assert applied.flops() == 3 * 5 * 4


@pytest.mark.parametrize(
    ("x", "y", "numbers"),
    [
        ([5, 3, 1], [5, 1, 4], 48),
        ([5, 3, 4], [5, 4, 1], 48),
        ([5, 1, 4], [5, 4, 3], 36),
        ([2, 3, 2], [2, 2, 2], 8 + 12),
    ],
)
def test_what_products_and_sums_take(x: list[int], y: list[int], numbers: int) -> None:
    assert constants(region(MatmulOperator, "as_products_and_sums", x, y)) == numbers


def test_products_and_sums_grow_with_the_batch_as_the_matmul_does() -> None:
    small, large = [region(MatmulOperator, "as_products_and_sums", [b, 2, 3], [b, 3, 2]) for b in (20, 200)]
    assert large.flops() == 10 * small.flops()
    assert constants(large) == constants(small)


def test_a_product_without_inner_elements_is_zeros() -> None:
    for rule in ("by_blocks", "as_products_and_sums"):
        (node,) = region(MatmulOperator, rule, [2, 3, 0], [2, 0, 5]).after.nodes
        assert node.op_params["fill"] == 0.0


def test_what_would_take_too_many_numbers() -> None:
    assert reason(MatmulOperator, "by_blocks", [1025, 3, 4], [1025, 4, 5]) == (
        "it takes 1050625 elements of constants; at most 1048576 are written out"
    )
    assert reason(MatmulOperator, "as_products_and_sums", [2000, 64, 64], [2000, 64, 64]) == (
        "it takes 256000000 elements of constants; at most 1048576 are written out"
    )
    with_one = reason(MatmulOperator, "by_blocks", [2, 3, 4], [4, 5])
    assert with_one == "the right operand is one matrix, which as_matrix_product takes"
    stretched = reason(MatmulOperator, "as_products_and_sums", [3, 4], [2, 4, 5])
    assert stretched == "the operands have other batch dims; with_equal_batches repeats them"
