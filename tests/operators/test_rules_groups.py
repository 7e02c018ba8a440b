"""Sums, means and broadcasts as matmuls: over random shapes and axes, and what is emitted for some of them."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import Applied, reason, region, regions
from tinychain.autodiff.operators import (
    BroadcastOperator,
    BroadcastReduceOperator,
    FillOperator,
    MatmulOperator,
    MeanOperator,
    ReshapeOperator,
    SumOperator,
)

shapes = st.lists(st.integers(0, 3) | st.just(1), max_size=4)
dtypes = st.sampled_from(["f32", "f64"])


@st.composite
def reductions(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    shape = draw(shapes)
    axes = draw(st.sets(st.integers(0, len(shape) - 1))) if shape else set()
    return shape, {"axes": sorted(axes), "keepdims": draw(st.booleans())}


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """The shorter and the longer shape."""
    longer = draw(shapes)
    shorter = longer[draw(st.integers(0, len(longer))) :]
    return [1 if draw(st.booleans()) else dim for dim in shorter], longer


def matmul_shapes(applied: Applied) -> list[tuple[int, ...]]:
    """The results of the matmuls."""
    nodes = [node for node in applied.after.nodes if type(node.operator) is MatmulOperator]
    return [tuple((node.output_typespec or {})["shape"]) for node in nodes]


def groups(shape: list[int], axes: list[int]) -> list[tuple[int, bool]]:
    """(size, is reduced) for each run of axes longer than 1 that are alike."""
    runs: list[tuple[int, bool]] = []
    for axis, dim in enumerate(shape):
        if dim == 1:
            continue
        if runs and runs[-1][1] == (axis in axes):
            runs[-1] = (runs[-1][0] * dim, runs[-1][1])
        else:
            runs.append((dim, axis in axes))
    return runs


# ------------------------------------------------------------------------------------------------------- random shapes


@given(reductions(), dtypes)
def test_a_sum(reduction: tuple[list[int], dict[str, Any]], dtype: str) -> None:
    shape, op_params = reduction
    found = regions(SumOperator, shape, dtype=dtype, **op_params)
    between = 0 not in shape and any(reduced for _, reduced in groups(shape, op_params["axes"])[1:-1])
    assert ("as_matmuls" in found) is not between
    assert ("as_batched_matmuls" in found) is ("as_matmuls_by_constants" in found) is between


@given(broadcasts(), dtypes)
def test_a_broadcast(case: tuple[list[int], list[int]], dtype: str) -> None:
    shorter, longer = case
    found = regions(BroadcastOperator, shorter, dtype=dtype, shape=longer)
    assert ("as_matmuls" in found) is ("as_batched_matmuls" not in found)
    assert ("as_batched_matmuls" in found) is ("as_matmuls_by_constants" in found)


@given(broadcasts(), dtypes)
def test_the_adjoint_of_a_broadcast(case: tuple[list[int], list[int]], dtype: str) -> None:
    shorter, longer = case
    assert list(regions(BroadcastReduceOperator, longer, dtype=dtype, target_shape=shorter)) == ["as_sum"]


@given(reductions(), dtypes)
def test_a_mean(reduction: tuple[list[int], dict[str, Any]], dtype: str) -> None:
    shape, op_params = reduction
    count = prod([shape[axis] for axis in op_params["axes"]])
    found = regions(MeanOperator, shape, dtype=dtype, **op_params)
    if count == 0:
        assert "the mean of no elements" in reason(MeanOperator, "as_sum", shape, **op_params)
    else:
        assert found["as_sum"].names() == (["sum", "mul"] if count > 1 else ["sum"])


@given(reductions())
def test_the_order_of_the_groups_costs_least(
    reduction: tuple[list[int], dict[str, Any]],
) -> None:
    shape, op_params = reduction
    found = regions(SumOperator, shape, **op_params)
    reduced = [size for size, is_reduced in groups(shape, op_params["axes"]) if is_reduced]
    for name in {"as_matmuls", "as_batched_matmuls"} & found.keys():
        assert found[name].flops() == min([cost(prod(shape), order) for order in permutations(reduced)], default=0)


def cost(elements: int, order: tuple[int, ...]) -> int:
    """The FLOPs of matmuls that take away these groups one by one."""
    total = 0
    for size in order:
        total += 2 * elements
        elements //= max(size, 1)
    return total


# ------------------------------------------------------------------------------------------------------ what is emitted


def test_a_full_sum_is_one_matmul() -> None:
    applied = region(SumOperator, "as_matmuls", [4, 3], axes=[0, 1], keepdims=False)
    assert applied.names() == ["reshape", "matmul", "reshape"]
    assert applied.flops() == 24


@pytest.mark.parametrize(("shape", "axis"), [([4, 3], 0), ([4, 3], 1), ([4, 1], 0), ([1, 4], 1)])
def test_a_sum_of_a_matrix_with_keepdims_needs_no_reshape(shape: list[int], axis: int) -> None:
    assert region(SumOperator, "as_matmuls", shape, axes=[axis], keepdims=True).names() == ["matmul"]


@pytest.mark.parametrize(("rows", "columns"), [(2, 5), (5, 2), (3, 3)])
def test_between_a_matrix_and_one_number_matmuls_alone_do(rows: int, columns: int) -> None:
    total = region(SumOperator, "as_matmuls_on_both_sides", [rows, columns], axes=[0, 1], keepdims=True)
    spread = region(BroadcastOperator, "as_matmuls_on_both_sides", [1, 1], shape=[rows, columns])
    for applied in (total, spread):
        assert applied.names() == ["matmul", "matmul"]
        assert applied.flops() == 2 * rows * columns + 2 * min(rows, columns)


def test_a_sum_without_keepdims_is_none_of_those() -> None:
    text = reason(SumOperator, "as_matmuls_on_both_sides", [4, 3], axes=[0, 1], keepdims=False)
    assert text == "it is not between [1, 1] and a matrix, but between [] and [4, 3]"


@pytest.mark.parametrize(("shape", "wanted"), [([1, 4], [1, 4]), ([4, 1], [4, 1])])
def test_a_number_that_becomes_a_row_or_a_column_needs_no_reshape(shape: list[int], wanted: list[int]) -> None:
    assert region(BroadcastOperator, "as_matmuls", [1, 1], shape=shape).names() == ["matmul"]


def test_a_sum_over_the_middle_takes_a_batch_or_a_constant() -> None:
    params = {"axes": [1], "keepdims": False}
    text = reason(SumOperator, "as_matmuls", [2, 3, 4], **params)
    assert text == "of the axes [1] of [2, 3, 4], some lie between others, and a matrix has no third place"
    batched = region(SumOperator, "as_batched_matmuls", [2, 3, 4], **params)
    assert batched.names() == ["matmul", "reshape"]
    assert batched.flops() == 2 * 24
    constant = region(SumOperator, "as_matmuls_by_constants", [2, 3, 4], **params)
    assert constant.names() == ["constant", "reshape", "matmul"]
    assert constant.flops() == 2 * 24 * 2


def test_a_constant_is_as_wide_as_the_smaller_side() -> None:
    for shape, sizes in (([2, 3, 4], [2, 6]), ([4, 3, 2], [6, 2])):
        applied = region(SumOperator, "as_matmuls_by_constants", shape, axes=[1], keepdims=True)
        (constant,) = [node for node in applied.after.nodes if node.operator.route_name == "constant"]
        assert constant.op_params["shape"] == sizes
        assert sorted(set(constant.op_params["values"])) == [0.0, 1.0]


def test_the_groups_at_the_ends_need_no_constant() -> None:
    applied = region(SumOperator, "as_matmuls_by_constants", [5, 2, 3, 4], axes=[0, 2], keepdims=False)
    assert matmul_shapes(applied) == [(1, 24), (2, 4)]
    assert applied.names().count("constant") == 1


def test_a_constant_that_is_too_large_is_not_written_out() -> None:
    shape = [200, 30, 200]
    text = reason(SumOperator, "as_matmuls_by_constants", shape, axes=[1], keepdims=False)
    assert text == "it takes 1200000 elements of constants; at most 1048576 are written out"
    text = reason(BroadcastOperator, "as_matmuls_by_constants", [200, 1, 200], shape=shape)
    assert "1200000 elements" in text


def test_rank_2_is_enough_where_no_group_lies_between_others() -> None:
    for name in ("as_batched_matmuls", "as_matmuls_by_constants"):
        text = reason(SumOperator, name, [2, 1, 3], axes=[1, 2], keepdims=False)
        assert text == "the axes [1, 2] of [2, 1, 3] need no more than as_matmuls emits"


def test_the_larger_group_goes_first() -> None:
    applied = region(SumOperator, "as_matmuls", [2, 3, 5], axes=[0, 2], keepdims=False)
    assert matmul_shapes(applied) == [(6, 1), (1, 3)]
    spread = region(BroadcastOperator, "as_matmuls", [1, 3, 1], shape=[2, 3, 5])
    assert matmul_shapes(spread) == [(2, 3), (6, 5)]


@pytest.mark.parametrize(
    ("shape", "axes"), [([4, 3], []), ([], []), ([1, 3], [0]), ([2, 1, 1, 3], [1, 2]), ([1, 1], [0, 1])]
)
def test_a_sum_of_single_elements_is_a_reshape(shape: list[int], axes: list[int]) -> None:
    for keepdims in (False, True):
        assert region(SumOperator, "as_matmuls", shape, axes=axes, keepdims=keepdims).names() == ["reshape"]


@pytest.mark.parametrize("shape", [[3], [1, 3], [1, 1, 3]])
def test_a_broadcast_that_repeats_nothing_is_a_reshape(shape: list[int]) -> None:
    assert region(BroadcastOperator, "as_matmuls", [3], shape=shape).names() == ["reshape"]


@pytest.mark.parametrize(
    ("shape", "axes", "wanted"), [([0, 3], [0], [3]), ([2, 0, 3], [1], [2, 3]), ([3, 0], [0], [0])]
)
def test_a_sum_of_a_tensor_without_elements_is_a_fill_of_zeros(
    shape: list[int], axes: list[int], wanted: list[int]
) -> None:
    (fill,) = region(SumOperator, "as_matmuls", shape, axes=axes, keepdims=False).after.nodes
    assert type(fill.operator) is FillOperator
    assert fill.op_params == {"fill": 0.0, "dtype": "f64", "shape": wanted}


def test_undoing_a_broadcast_of_new_axes_alone_needs_no_reshape() -> None:
    applied = region(BroadcastReduceOperator, "as_sum", [2, 4, 3], target_shape=[3])
    assert applied.names() == ["sum"]
    assert applied.after.nodes[0].op_params == {"axes": [0, 1], "keepdims": False}


def test_undoing_a_broadcast_of_new_and_old_axes_ends_in_a_reshape() -> None:
    applied = region(BroadcastReduceOperator, "as_sum", [2, 4, 3], target_shape=[1, 3])
    assert applied.names() == ["sum", "reshape"]
    assert applied.after.nodes[0].op_params == {"axes": [0, 1], "keepdims": True}


def test_undoing_no_broadcast_is_a_reshape() -> None:
    (reshape,) = region(BroadcastReduceOperator, "as_sum", [2, 3], target_shape=[2, 3]).after.nodes
    assert type(reshape.operator) is ReshapeOperator


# ------------------------------------------------------------------------------------------------------------- the mean


def test_a_mean_is_scaled_once_by_the_literal() -> None:
    applied = region(MeanOperator, "as_sum", [5, 3], axes=[0, 1], keepdims=False)
    assert applied.after.nodes[-1].op_params == {"right_literal": 1 / 15}


def test_a_mean_of_more_numbers_than_a_float_can_hold_is_declined() -> None:
    params = {"axes": [0], "keepdims": False}
    assert "is beyond the range of a float" in reason(MeanOperator, "as_sum", [10**400], **params)


def test_a_mean_between_others_has_its_scale_in_a_constant() -> None:
    applied = region(MeanOperator, "as_matmuls_by_constants", [2, 3, 4, 3, 2], axes=[1, 3], keepdims=False)
    assert "mul" not in applied.names()
    numbers = [set(node.op_params["values"]) for node in applied.after.nodes if "values" in node.op_params]
    assert numbers == [{0.0, 1 / 9}, {0.0, 1.0}]


def test_a_mean_that_needs_no_constant() -> None:
    text = reason(MeanOperator, "as_matmuls_by_constants", [2, 3], axes=[1], keepdims=False)
    assert text == "the axes [1] of [2, 3] need no more than as_matmuls emits"
    assert reason(MeanOperator, "as_matmuls_by_constants", [2, 0, 4], axes=[1], keepdims=True) == (
        "the mean of no elements is no number"
    )
