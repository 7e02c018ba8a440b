"""Transposes that are reshapes, those that are a matrix's, and the exact form by constants that must be asked for."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import Applied, apply, check, reason, region, regions, rules_of
from tinychain.autodiff.expansion import transpose_by_constants
from tinychain.autodiff.graph import Decline
from tinychain.autodiff.operators import TransposeOperator


@st.composite
def transposes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    shape = draw(st.lists(st.integers(0, 3) | st.just(1), max_size=4))
    return shape, list(draw(st.permutations(range(len(shape)))))


def by_constants(shape: list[int], perm: list[int], dtype: str = "f64") -> Applied:
    answer = apply(transpose_by_constants, TransposeOperator, shape, perm=perm, dtype=dtype)
    assert isinstance(answer, Applied), answer
    return check(answer)


@given(transposes())
def test_a_transpose(case: tuple[list[int], list[int]]) -> None:
    shape, perm = case
    found = regions(TransposeOperator, shape, perm=perm)
    longer = [axis for axis in perm if shape[axis] != 1]
    assert ("as_reshape" in found) is (longer == sorted(longer) or 0 in shape)


@given(transposes(), st.sampled_from(["f32", "f64"]))
def test_a_transpose_by_constants(case: tuple[list[int], list[int]], dtype: str) -> None:
    shape, perm = case
    applied = by_constants(shape, perm, dtype)
    assert set(applied.names()) <= {"constant", "matmul", "add", "reshape"}
    for node in applied.after.nodes:
        if node.operator.route_name != "reshape":
            assert len((node.output_typespec or {})["shape"]) == 2 or node.output_value_id == "result"


def test_axes_of_length_1_move_by_a_reshape() -> None:
    assert region(TransposeOperator, "as_reshape", [2, 1, 3], perm=[1, 0, 2]).names() == ["reshape"]
    assert region(TransposeOperator, "as_reshape", [4, 1], perm=[1, 0]).names() == ["reshape"]
    text = reason(TransposeOperator, "as_reshape", [4, 3], perm=[1, 0])
    assert "a transpose moves elements" in text
    assert "keep their order" in text


@pytest.mark.parametrize(("shape", "perm"), [([2, 3, 4], [2, 0, 1]), ([2, 3, 4], [1, 2, 0]), ([2, 1, 3], [2, 1, 0])])
def test_two_blocks_of_axes_that_change_places_are_a_matrix(shape: list[int], perm: list[int]) -> None:
    applied = region(TransposeOperator, "as_matrix_transpose", shape, perm=perm)
    assert applied.names() == ["reshape", "transpose", "reshape"]


@pytest.mark.parametrize(("shape", "perm"), [([4, 3], [1, 0]), ([2, 3, 4], [0, 2, 1]), ([2, 3, 4], [2, 1, 0])])
def test_no_other_transpose_is_a_matrix_of_fewer_axes(shape: list[int], perm: list[int]) -> None:
    assert "two blocks of more axes" in reason(TransposeOperator, "as_matrix_transpose", shape, perm=perm)


# -------------------------------------------------------------------------------------------------------- by constants


def test_the_form_by_constants_must_be_asked_for() -> None:
    assert list(rules_of(TransposeOperator)) == ["as_reshape", "as_matrix_transpose"]


@pytest.mark.parametrize("shape", [[2, 5], [5, 2], [3, 3]])
def test_a_matrix_takes_two_matmuls_a_line_of_its_shorter_side(shape: list[int]) -> None:
    applied = by_constants(shape, [1, 0])
    lines = min(shape)
    names = applied.names()
    assert (names.count("constant"), names.count("matmul"), names.count("add")) == (lines, 2 * lines, lines - 1)
    assert applied.flops() == 4 * prod(shape) * lines + (lines - 1) * prod(shape)
    constants = [node for node in applied.after.nodes if node.operator.route_name == "constant"]
    assert [sum(node.op_params["values"]) for node in constants] == [1.0] * lines


def test_more_blocks_take_one_matmul_with_a_permutation() -> None:
    applied = by_constants([5, 2, 3], [0, 2, 1])
    assert applied.names() == ["reshape", "constant", "matmul", "reshape"]
    assert applied.flops() == 2 * 5 * 6 * 6
    assert by_constants([2, 3, 4], [2, 1, 0]).flops() == 2 * 24 * 24


@pytest.mark.parametrize(("shape", "perm"), [([1025, 1025], [1, 0]), ([2, 33, 32], [0, 2, 1])])
def test_constants_that_are_too_large_are_not_written_out(shape: list[int], perm: list[int]) -> None:
    answer = apply(transpose_by_constants, TransposeOperator, shape, perm=perm)
    assert isinstance(answer, Decline)
    assert "elements of constants; at most 1048576 are written out" in answer.reason


def test_a_symbol_is_declined() -> None:
    answer = apply(transpose_by_constants, TransposeOperator, ["N", 3], perm=[1, 0])
    assert isinstance(answer, Decline)
    assert "the symbol 'N'" in answer.reason
