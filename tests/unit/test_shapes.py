"""The shape rules of the operators: broadcasting, matrix products, axes, permutations and reshapes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.types import (
    Shape,
    broadcast_plan,
    broadcast_shapes,
    check_same_count,
    infer_dim,
    matmul_shape,
    normalize_axes,
    parse_permutation,
    reduced_shape,
)


class Axis(IntEnum):
    ROWS = 0
    COLUMNS = 1


shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)

# ------------------------------------------------------------------------------------------------------- broadcasting


@given(shapes, shapes)
def test_broadcasting_of_ints_is_that_of_numpy(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(x, y)
    except ValueError:
        with pytest.raises(AutodiffError) as caught:
            broadcast_shapes(x, y, {})
        assert caught.value.category == "broadcast_shape_mismatch"
        assert str(list(x)) in caught.value.message
        assert str(list(y)) in caught.value.message
    else:
        assert broadcast_shapes(x, y, {}) == expected


@pytest.mark.parametrize(
    ("x", "y", "expected", "bound"),
    [
        (("N",), ("N",), ("N",), {}),
        (("N",), (1,), ("N",), {}),
        ((1,), ("N",), ("N",), {}),
        (("N",), (4,), (4,), {"N": 4}),
        ((4,), ("N",), (4,), {"N": 4}),
        (("N",), (), ("N",), {}),
        (("N", 3), (3,), ("N", 3), {}),
        (("N", "M"), (2, 3), (2, 3), {"N": 2, "M": 3}),
        (("N",), (0,), (0,), {"N": 0}),
    ],
)
def test_broadcasting_of_symbols(x: Shape, y: Shape, expected: Shape, bound: dict[str, int]) -> None:
    symbols: dict[str, int] = {}
    assert broadcast_shapes(x, y, symbols) == expected
    assert symbols == bound


@pytest.mark.parametrize(
    ("x", "y", "category"),
    [
        (("N",), ("M",), "unresolved_symbolic_shape"),
        (("N", "N"), (2, 3), "symbolic_shape_mismatch"),
        ((2,), (3,), "broadcast_shape_mismatch"),
        ((10**30,), (3,), "broadcast_shape_mismatch"),
    ],
)
def test_shapes_that_do_not_broadcast(x: Shape, y: Shape, category: str) -> None:
    with pytest.raises(AutodiffError, match="do not broadcast together") as caught:
        broadcast_shapes(x, y, {})
    assert caught.value.category == category


@given(shapes, shapes)
def test_the_plan_names_the_axes_of_repetition(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    try:
        repeated = np.broadcast_to(np.zeros(source), target)
    except ValueError:
        with pytest.raises(AutodiffError) as caught:
            broadcast_plan(source, target, {})
        assert caught.value.category == "broadcast_shape_mismatch"
        return
    plan = broadcast_plan(source, target, {})
    lead = len(target) - len(source)
    assert plan == tuple(a for a in range(len(target)) if a < lead or (source[a - lead] == 1 and target[a] != 1))
    assert repeated.sum(axis=plan).size == np.zeros(source).size


@pytest.mark.parametrize(
    ("source", "target", "plan", "bound"),
    [
        (("N",), ("N",), (), {}),
        (("N",), (4,), (), {"N": 4}),
        ((4,), ("N",), (), {"N": 4}),
        ((1,), ("N",), (0,), {}),
        (("N",), (1,), (), {}),
        ((), ("N", 2), (0, 1), {}),
        (("N", 1), ("M", "N", 3), (0, 2), {}),
    ],
)
def test_the_plan_with_symbols(source: Shape, target: Shape, plan: tuple[int, ...], bound: dict[str, int]) -> None:
    symbols: dict[str, int] = {}
    assert broadcast_plan(source, target, symbols) == plan
    assert symbols == bound


@pytest.mark.parametrize(
    ("source", "target", "category"),
    [
        ((2, 3), (3,), "broadcast_shape_mismatch"),
        ((2,), (3,), "broadcast_shape_mismatch"),
        ((2,), (1,), "broadcast_shape_mismatch"),
        (("N",), ("M",), "unresolved_symbolic_shape"),
        (("N", "N"), (2, 3), "symbolic_shape_mismatch"),
    ],
)
def test_what_has_no_plan(source: Shape, target: Shape, category: str) -> None:
    with pytest.raises(AutodiffError, match="does not broadcast to") as caught:
        broadcast_plan(source, target, {})
    assert caught.value.category == category


# ------------------------------------------------------------------------------------------------------------- matmul


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ((2, 3), (3, 4), (2, 4)),
        ((0, 3), (3, 0), (0, 0)),
        ((2, 0), (0, 4), (2, 4)),
        ((5, 2, 3), (3, 4), (5, 2, 4)),
        ((2, 3), (5, 3, 4), (5, 2, 4)),
        ((1, 6, 2, 3), (5, 1, 3, 4), (5, 6, 2, 4)),
        (("N", 3), (3, "M"), ("N", "M")),
        (("B", 2, 3), (1, 3, 4), ("B", 2, 4)),
    ],
)
def test_the_shape_of_a_matrix_product(x: Shape, y: Shape, expected: Shape) -> None:
    assert matmul_shape(x, y, {}) == expected


@pytest.mark.parametrize(
    ("x", "y", "category"),
    [
        ((3,), (3, 4), "matmul_shape_mismatch"),
        ((2, 3), (3,), "matmul_shape_mismatch"),
        ((), (), "matmul_shape_mismatch"),
        ((2, 3), (4, 5), "matmul_shape_mismatch"),
        ((2, 2, 3), (4, 3, 5), "matmul_shape_mismatch"),
        ((2, "N"), ("M", 3), "unresolved_symbolic_shape"),
        (("B", 2, 3), ("C", 3, 4), "unresolved_symbolic_shape"),
        (("N", 2, "N"), (4, 3, 5), "symbolic_shape_mismatch"),
        ((2, 10**30), (3, 4), "matmul_shape_mismatch"),
    ],
)
def test_matrices_that_do_not_multiply(x: Shape, y: Shape, category: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        matmul_shape(x, y, {})
    assert caught.value.category == category


def test_inner_and_batch_dims_share_the_symbols() -> None:
    symbols: dict[str, int] = {}
    assert matmul_shape(("N", 2, "N"), (3, 3, 5), symbols) == (3, 2, 5)
    assert symbols == {"N": 3}


# --------------------------------------------------------------------------------------------------------------- axes


@pytest.mark.parametrize(
    ("axes", "rank", "expected"),
    [
        (0, 1, (0,)),
        (-1, 3, (2,)),
        ([], 0, ()),
        ((2, 0), 3, (0, 2)),
        ([-1, 0], 3, (0, 2)),
        (range(2), 2, (0, 1)),
        ([Axis.COLUMNS], 2, (1,)),
        (np.int64(-2), 2, (0,)),
    ],
)
def test_axes_become_non_negative_and_ascending(axes: object, rank: int, expected: tuple[int, ...]) -> None:
    assert normalize_axes(axes, rank) == expected
    assert all(type(axis) is int for axis in normalize_axes(axes, rank))


@pytest.mark.parametrize(
    "axes",
    [None, 2, -3, 0.0, True, [True], "0", "", b"\x00", [None], [0, 0], [0, -2], [[0]], {0}, np.array([0, 1]), 2**70],
)
def test_bad_axes_have_one_category(axes: object) -> None:
    with pytest.raises(AutodiffError, match="rank 2") as caught:
        normalize_axes(axes, 2)
    assert caught.value.category == "reduction_shape_mismatch"


def test_a_scalar_has_no_axis() -> None:
    with pytest.raises(AutodiffError) as caught:
        normalize_axes(0, 0)
    assert caught.value.category == "reduction_shape_mismatch"


def test_the_reduced_shape() -> None:
    assert reduced_shape((2, "N", 4), (0, 2), keepdims=False) == ("N",)
    assert reduced_shape((2, "N", 4), (0, 2), keepdims=True) == (1, "N", 1)
    assert reduced_shape((), (), keepdims=True) == ()


# ------------------------------------------------------------------------------------------------------- permutations


@pytest.mark.parametrize("perm", [(1, 0, 2), [2, 1, 0], range(3), [np.int64(0), Axis.COLUMNS, 2]])
def test_a_permutation_is_each_axis_once(perm: Any) -> None:
    assert parse_permutation(perm, 3) == tuple(perm)


@pytest.mark.parametrize(
    "perm", [None, 0, "01", b"\x00\x01", [0], [0, 1, 2], [0, 0], [-1, 0], [0.0, 1.0], [False, True], {0, 1}, [0, None]]
)
def test_anything_else_is_an_invalid_permutation(perm: object) -> None:
    with pytest.raises(AutodiffError, match="rank 2") as caught:
        parse_permutation(perm, 2)
    assert caught.value.category == "invalid_permutation"


# ----------------------------------------------------------------------------------------------------------- reshapes


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((2, 3), (6,)),
        ((), (1, 1)),
        ((0, 3), (5, 0)),
        (("N", 3), (3, "N")),
        (("N", 2, "M"), ("M", "N", 2)),
        ((0, "N"), ("M", 0)),
        ((2**40, 2**40), (2**80,)),
    ],
)
def test_a_reshape_keeps_the_element_count(source: Shape, target: Shape) -> None:
    check_same_count(source, target, {})


def test_a_bound_symbol_counts_as_its_size() -> None:
    check_same_count(("N", 3), (12,), {"N": 4})
    with pytest.raises(AutodiffError) as caught:
        check_same_count(("N", 3), (12,), {"N": 5})
    assert caught.value.category == "shape_mismatch"


@pytest.mark.parametrize(
    ("source", "target", "category"),
    [
        ((2, 3), (5,), "shape_mismatch"),
        ((2, 3), (), "shape_mismatch"),
        (("N", 3), ("N", 2), "shape_mismatch"),
        ((0,), (1,), "shape_mismatch"),
        (("N",), ("M",), "unresolved_symbolic_shape"),
        (("N", 3), (6,), "unresolved_symbolic_shape"),
        ((10**30,), (10**31,), "shape_mismatch"),
    ],
)
def test_another_element_count(source: Shape, target: Shape, category: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        check_same_count(source, target, {})
    assert caught.value.category == category


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((2, 3), [-1], (6,)),
        ((2, 3), [3, -1], (3, 2)),
        ((), [-1, 1], (1, 1)),
        ((0, 3), [3, -1], (3, 0)),
        (("N", 6), ["N", -1, 2], ("N", 3, 2)),
        ((2, 3), [np.int64(-1), 3], (2, 3)),
        ((2, 3), [6, 1], (6, 1)),
    ],
)
def test_one_dim_is_inferred(source: Shape, target: list[Any], expected: Shape) -> None:
    assert infer_dim(source, target, {}, label="the shape") == expected


@pytest.mark.parametrize(
    ("source", "target", "category"),
    [
        ((2, 3), [-1, -1], "shape_mismatch"),
        ((2, 3), [4, -1], "shape_mismatch"),
        ((0, 3), [0, -1], "shape_mismatch"),
        ((2, 3), [-2, 3], "missing_shape_metadata"),
        ((2, 3), [-1, True], "missing_shape_metadata"),
        ((2, 3), [-1, None], "missing_shape_metadata"),
        (("N", 3), [-1], "unresolved_symbolic_shape"),
        ((2, 3), ["N", -1], "unresolved_symbolic_shape"),
    ],
)
def test_a_dim_that_cannot_be_inferred(source: Shape, target: list[Any], category: str) -> None:
    with pytest.raises(AutodiffError, match="shape") as caught:
        infer_dim(source, target, {}, label="the shape")
    assert caught.value.category == category
