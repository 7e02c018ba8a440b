"""The typespec algebra: what parses, which symbols get bound, which shapes fit, and the category of each refusal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.types import (
    FLOATING_DTYPES,
    Dim,
    Shape,
    TensorType,
    as_int,
    bind,
    bind_shape,
    check_floating,
    check_literal,
    common_dtype,
    element_count,
    parse_dim,
    parse_dtype,
    parse_shape,
    parse_type,
    resolve_shape,
    spec_field,
    typespec,
    unify_dims,
    unify_shapes,
)

HUGE = 2**64
UNPRINTABLE = pytest.param(10**5000, id="more digits than an int may print")


class Size(IntEnum):
    THREE = 3


class _Raising(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Any:
        raise RuntimeError

    def __len__(self) -> int:
        return 1


class _BadIndex:
    def __index__(self) -> int:
        raise KeyError("index")


# ------------------------------------------------------------------------------------------------------------ parsing


@pytest.mark.parametrize(
    ("value", "expected"), [(3, 3), (-1, -1), (HUGE, HUGE), (Size.THREE, 3), (np.int64(3), 3), (np.uint8(3), 3)]
)
def test_as_int_takes_every_integer_as_a_plain_int(value: object, expected: int) -> None:
    assert as_int(value) == expected
    assert type(as_int(value)) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), "3", None, [3], _BadIndex(), np.array([3])])
def test_as_int_takes_nothing_else(value: object) -> None:
    assert as_int(value) is None


@pytest.mark.parametrize(
    ("dim", "expected"), [(0, 0), (3, 3), (HUGE, HUGE), (Size.THREE, 3), (np.int32(3), 3), ("N", "N"), ("é", "é")]
)
def test_a_dim_is_a_non_negative_int_or_an_identifier(dim: object, expected: Dim) -> None:
    parsed = parse_dim(dim, label="x")
    assert parsed == expected
    assert type(parsed) in (int, str)


@pytest.mark.parametrize("dim", [-1, True, False, np.True_, 2.0, None, "", "1x", "a b", "a.b", b"N", [2], _BadIndex()])
def test_any_other_dim_is_missing_shape_metadata(dim: object) -> None:
    with pytest.raises(AutodiffError, match="value 'q'") as caught:
        parse_shape([2, dim], label="value 'q'")
    assert caught.value.category == "missing_shape_metadata"
    assert repr(dim) in caught.value.message
    assert "non-negative int or an identifier" in caught.value.message


@pytest.mark.parametrize("shape", [[], (), [2, "N"], (0, 3), range(2), deque([2]), [Size.THREE]])
def test_a_shape_is_any_sequence_of_dims(shape: Any) -> None:
    assert parse_shape(shape, label="x") == tuple(shape)


@pytest.mark.parametrize("shape", [None, 3, True, "ab", b"ab", bytearray(b"a"), {2}, {2: 3}, iter([2]), np.array([2])])
def test_no_sequence_is_missing_shape_metadata(shape: Any) -> None:
    with pytest.raises(AutodiffError, match="declares no ranked shape") as caught:
        parse_shape(shape, label="x")
    assert caught.value.category == "missing_shape_metadata"


@pytest.mark.parametrize("spec", [None, {}, {"shape": [2]}, {"dtype": None}, {"dtype": 32}, {"dtype": ""}, "f32", 5])
def test_an_absent_dtype_is_missing_dtype_metadata(spec: Any) -> None:
    with pytest.raises(AutodiffError, match="value 'q' declares no dtype") as caught:
        parse_type(spec, label="value 'q'")
    assert caught.value.category == "missing_dtype_metadata"
    assert f'expected {{"dtype": "f32" or "f64", "shape": [...]}}, got {spec!r}' in caught.value.message


@pytest.mark.parametrize("spec", [{"dtype": "f32"}, {"dtype": "f32", "shape": None}, {"dtype": "f32", "shape": [-1]}])
def test_the_dtype_is_judged_before_the_shape(spec: Any) -> None:
    assert parse_dtype(spec, label="x") == "f32"
    with pytest.raises(AutodiffError) as caught:
        parse_type(spec, label="x")
    assert caught.value.category == "missing_shape_metadata"


def test_extra_keys_of_a_typespec_are_ignored() -> None:
    assert parse_type({"dtype": "f32", "shape": [2], "layout": "row"}, label="x") == TensorType("f32", (2,))


def test_a_typespec_that_raises_declares_nothing() -> None:
    assert spec_field(_Raising(), "dtype") is None


def test_the_boundary_form_is_new_and_plain() -> None:
    type_ = TensorType("f32", (2, "N"))
    assert typespec(type_) == {"dtype": "f32", "shape": [2, "N"]}
    assert typespec(type_)["shape"] is not typespec(type_)["shape"]
    assert parse_type(typespec(type_), label="x") == type_


@pytest.mark.parametrize("size", [HUGE, UNPRINTABLE])
def test_a_type_prints_whatever_its_dims_are(size: int) -> None:
    assert str(TensorType("f32", (size, "N"))).endswith(", N]")


# ------------------------------------------------------------------------------------------------------------- dtypes


def test_two_dtypes_are_differentiable() -> None:
    assert FLOATING_DTYPES == ("f32", "f64")
    assert [check_floating(dtype) for dtype in FLOATING_DTYPES] == list(FLOATING_DTYPES)


@pytest.mark.parametrize("dtype", ["i32", "bool", "f16", "F32", ""])
def test_any_other_dtype_is_not(dtype: str) -> None:
    with pytest.raises(AutodiffError, match="expected one of f32, f64") as caught:
        check_floating(dtype)
    assert caught.value.category == "dtype_not_differentiable"


@pytest.mark.parametrize(("x", "y"), [("f32", "f64"), ("f32", "i32"), ("i32", "i64")])
def test_there_is_no_promotion(x: str, y: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        common_dtype(x, y)
    assert caught.value.category == "dtype_mismatch"
    assert repr(x) in caught.value.message
    assert repr(y) in caught.value.message


def test_equal_dtypes_must_be_floating() -> None:
    assert common_dtype("f64", "f64") == "f64"
    with pytest.raises(AutodiffError) as caught:
        common_dtype("i32", "i32")
    assert caught.value.category == "dtype_not_differentiable"


# ------------------------------------------------------------------------------------------------------------ symbols


@pytest.mark.parametrize(("x", "y", "result"), [(3, 3, 3), ("N", "N", "N"), (0, 0, 0)])
def test_equal_dims_unify_and_bind_nothing(x: Dim, y: Dim, result: Dim) -> None:
    symbols: dict[str, int] = {}
    assert unify_dims(x, y, symbols) == result
    assert symbols == {}


@pytest.mark.parametrize(("x", "y"), [("N", 4), (4, "N")])
def test_a_symbol_binds_the_int_that_it_meets(x: Dim, y: Dim) -> None:
    symbols: dict[str, int] = {}
    assert unify_dims(x, y, symbols) == 4
    assert symbols == {"N": 4}
    assert unify_dims(x, y, symbols) == 4


@pytest.mark.parametrize(
    ("x", "y", "category"),
    [
        (3, 4, "symbolic_shape_mismatch"),
        ("N", 5, "symbolic_shape_mismatch"),
        (5, "N", "symbolic_shape_mismatch"),
        ("N", "M", "unresolved_symbolic_shape"),
    ],
)
def test_dims_that_do_not_unify(x: Dim, y: Dim, category: str) -> None:
    symbols = {"N": 4}
    with pytest.raises(AutodiffError) as caught:
        unify_dims(x, y, symbols)
    assert caught.value.category == category
    assert symbols == {"N": 4}


def test_a_conflict_names_the_symbol_and_both_sizes() -> None:
    with pytest.raises(AutodiffError, match="symbol 'N' is bound to 4 and now meets 5"):
        bind({"N": 4}, "N", 5)


@pytest.mark.parametrize("size", [HUGE, UNPRINTABLE])
def test_a_conflict_of_huge_sizes_is_still_categorized(size: int) -> None:
    for x, y in ((size, size + 1), ("N", size)):
        with pytest.raises(AutodiffError) as caught:
            unify_dims(x, y, {"N": 4})
        assert caught.value.category == "symbolic_shape_mismatch"


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        ((2,), (2, 3), "ranks 1 and 2 differ"),
        ((2, 3), (2, 4), "dims 3 and 4 differ"),
        (("N", "N"), (2, 3), "symbol 'N' is bound to 2 and now meets 3"),
    ],
)
def test_shapes_that_are_not_the_same_fail_under_the_category_of_the_caller(x: Shape, y: Shape, why: str) -> None:
    with pytest.raises(AutodiffError, match=why) as caught:
        unify_shapes(x, y, {}, category="seed_shape_mismatch")
    assert caught.value.category == "seed_shape_mismatch"


def test_shapes_unify_dim_by_dim() -> None:
    symbols: dict[str, int] = {}
    assert unify_shapes(("N", 3), (2, 3), symbols, category="seed_shape_mismatch") == (2, 3)
    assert symbols == {"N": 2}


def test_resolve_shape_replaces_symbols() -> None:
    assert resolve_shape(("N", 3), {"N": 2}, label="x") == (2, 3)
    with pytest.raises(AutodiffError, match="value 'q' has the symbol 'M'") as caught:
        resolve_shape(("N", "M"), {"N": 2}, label="value 'q'")
    assert caught.value.category == "unresolved_symbolic_shape"


def test_element_count() -> None:
    assert element_count(()) == 1
    assert element_count((2, 0, 3)) == 0
    assert element_count((HUGE, HUGE)) == HUGE**2
    with pytest.raises(AutodiffError) as caught:
        element_count((2, "N"))
    assert caught.value.category == "unresolved_symbolic_shape"


def test_a_real_shape_binds_the_declared_symbols() -> None:
    symbols: dict[str, int] = {}
    assert bind_shape(("N", 3, "N"), (2, 3, 2), symbols)
    assert symbols == {"N": 2}


@pytest.mark.parametrize("actual", [(2,), (2, 4), (2, 3, 4)])
def test_a_real_shape_of_another_form_binds_nothing(actual: tuple[int, ...]) -> None:
    symbols: dict[str, int] = {}
    assert not bind_shape(("N", 3), actual, symbols)
    assert symbols == {}


def test_a_real_shape_that_contradicts_a_symbol() -> None:
    with pytest.raises(AutodiffError) as caught:
        bind_shape(("N", "N"), (2, 3), {})
    assert caught.value.category == "symbolic_shape_mismatch"


# ----------------------------------------------------------------------------------------------------------- literals


@pytest.mark.parametrize("literal", [0, -3, 2.5, float("inf"), -0.0, np.float64(1.5), Size.THREE])
def test_a_literal_is_a_number_that_a_float_holds(literal: Any) -> None:
    assert check_literal(literal) == float(literal)
    assert type(check_literal(literal)) is float


def test_nan_is_a_literal() -> None:
    assert np.isnan(check_literal(float("nan")))


@pytest.mark.parametrize("literal", [None, True, "2", 1j, 10**400, -(10**400), [1], np.float32(1)])
def test_anything_else_is_malformed(literal: Any) -> None:
    with pytest.raises(AutodiffError, match="expected an int or a float") as caught:
        check_literal(literal)
    assert caught.value.category == "malformed_derivative_ir"
