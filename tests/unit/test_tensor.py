"""The traced tensor: every operation in both spellings, the node that it records, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

Recorded = list[tuple[str, dict[str, Any], Any]]


def trace(function: Callable[..., Any], *shapes: Any, dtype: str = "f32") -> TensorGraph:
    with TensorGraphBuilder() as builder:
        result = function(*[builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)])
    return builder.build(outputs=result)


def recorded(function: Callable[..., Any], *shapes: Any, dtype: str = "f32") -> Recorded:
    """Route name, params and declared shape of every node."""
    nodes = trace(function, *shapes, dtype=dtype).nodes
    return [(n.operator.route_name, n.op_params, (n.output_typespec or {})["shape"]) for n in nodes]


def refused(function: Callable[..., Any], *shapes: Any) -> AutodiffError:
    """The error of an operation, which recorded nothing and bound nothing."""
    with TensorGraphBuilder() as builder:
        tensors = [builder.input(f"x{i}", dtype="f32", shape=shape) for i, shape in enumerate(shapes)]
        with pytest.raises(AutodiffError) as caught:
            function(*tensors)
        assert builder.build().nodes == []
        assert builder.symbols == {}
    return caught.value


# --------------------------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("function", "route"),
    [
        (lambda x, y: x + y, "add"),
        (lambda x, y: x - y, "sub"),
        (lambda x, y: x * y, "mul"),
        (lambda x, y: x / y, "div"),
    ],
)
def test_binary_arithmetic_broadcasts(function: Callable[..., Any], route: str) -> None:
    assert recorded(function, [4, 1], [3]) == [(route, {}, [4, 3])]
    assert recorded(lambda x: function(x, x), [2]) == [(route, {}, [2])]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_result_has_the_dtype_of_the_operands(dtype: str) -> None:
    (node,) = trace(lambda x: x + x, [2], dtype=dtype).nodes
    assert node.output_typespec == {"dtype": dtype, "shape": [2]}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x - 2.5, [("sub", {"right_literal": 2.5})]),
        (lambda x: x * 2, [("mul", {"right_literal": 2})]),
        (lambda x: x / 4, [("div", {"right_literal": 4})]),
        (lambda x: 2 * x, [("mul", {"right_literal": 2})]),
        (lambda x: -x, [("mul", {"right_literal": -1.0})]),
        (lambda x: x + 2, [("sub", {"right_literal": -2})]),
        (lambda x: 2.5 + x, [("sub", {"right_literal": -2.5})]),
        (lambda x: 2 - x, [("mul", {"right_literal": -1.0}), ("sub", {"right_literal": -2})]),
        (
            lambda x: 2 / x,
            [("mul", {"right_literal": 0.0}), ("sub", {"right_literal": -2}), ("div", {})],
        ),
    ],
)
def test_a_literal_is_recorded_as_a_right_literal(
    function: Callable[[Tensor], Tensor], expected: list[tuple[str, dict[str, Any]]]
) -> None:
    assert recorded(function, [2, 3]) == [(*entry, [2, 3]) for entry in expected]


def test_plus_changes_nothing() -> None:
    assert trace(lambda x: +x, [2]).nodes == []


@pytest.mark.parametrize(
    "literal", [2, 2.0, np.float32(2), np.float64(2), np.float16(2), np.int64(2), np.uint8(2), Fraction(2)]
)
@pytest.mark.parametrize("left", [False, True])
def test_every_real_number_is_a_literal_on_either_side(literal: Any, left: bool) -> None:
    ((_, op_params, _),) = recorded(lambda x: literal * x if left else x * literal, [3])
    assert op_params == {"right_literal": 2}
    assert type(op_params["right_literal"]) in (int, float)


@pytest.mark.parametrize("literal", [math.inf, -math.inf, np.float32("inf")])
def test_infinite_literals_are_recorded(literal: Any) -> None:
    assert recorded(lambda x: x * literal, [3]) == [("mul", {"right_literal": float(literal)}, [3])]


def test_nan_is_a_literal() -> None:
    ((_, op_params, _),) = recorded(lambda x: x * math.nan, [3])
    assert math.isnan(op_params["right_literal"])


@pytest.mark.parametrize("literal", [10**400, -(10**400), Fraction(10**400), Fraction(10**400, 3)])
@pytest.mark.parametrize("operation", [lambda x, a: x * a, lambda x, a: a + x, lambda x, a: a / x, lambda x, a: a - x])
def test_a_literal_that_no_float_holds_is_categorized(literal: Any, operation: Callable[..., Any]) -> None:
    error = refused(lambda x: operation(x, literal), [2])
    assert error.category == "malformed_derivative_ir"
    assert "float's range" in error.message


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "@": lambda x, y: x @ y,
}


@pytest.mark.parametrize("sign", OPERATIONS)
@pytest.mark.parametrize(
    "other", [None, "2", True, np.True_, 1j, [1, 2], (1,), {}, Decimal(2), np.ones(2), np.array(2.0), np.ones((2, 2))]
)
def test_an_operand_of_another_kind_is_a_type_error_on_either_side(sign: str, other: Any) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2, 2])
        for arguments in ((x, other), (other, x)):
            with pytest.raises(TypeError, match=r"must be a Tensor|unsupported operand") as caught:
                OPERATIONS[sign](*arguments)
            assert "Tensor" in str(caught.value)
        assert builder.build().nodes == []


def test_an_array_as_operand_is_told_what_to_do() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(TypeError, match="declare an array as an input"):
            np.ones(2) * x


def test_operands_of_two_dtypes_are_a_mismatch() -> None:
    with TensorGraphBuilder() as builder:
        x, y = builder.input("x", dtype="f32", shape=[2]), builder.input("y", dtype="f64", shape=[2])
        with pytest.raises(AutodiffError, match=r"AddOperator\('v0': f32\[2\], 'v1': f64\[2\]\)") as caught:
            x + y
    assert caught.value.category == "dtype_mismatch"


# ------------------------------------------------------------------------------------------------------------- matmul


@pytest.mark.parametrize("product", [lambda x, y: x @ y, lambda x, y: x.matmul(y)])
def test_both_spellings_of_a_matrix_product(product: Callable[..., Any]) -> None:
    assert recorded(product, [5, 4, 3], [3, 2]) == [("matmul", {}, [5, 4, 2])]


@pytest.mark.parametrize(
    ("x", "y", "category"),
    [
        ([3], [3, 2], "matmul_shape_mismatch"),
        ([2, 3], [2, 3], "matmul_shape_mismatch"),
        ([2, 2, 3], [4, 3, 2], "matmul_shape_mismatch"),
        (["N", 2, "N"], [4, 3, 5], "symbolic_shape_mismatch"),
        ([2, "N"], ["M", 2], "unresolved_symbolic_shape"),
    ],
)
def test_matrices_that_do_not_multiply(x: Any, y: Any, category: str) -> None:
    assert refused(lambda a, b: a @ b, x, y).category == category


# --------------------------------------------------------------------------------------------------------- reductions

REDUCTIONS = [(lambda x, *args, **kw: x.sum(*args, **kw), "sum"), (lambda x, *args, **kw: x.mean(*args, **kw), "mean")]


@pytest.mark.parametrize(("reduce", "route"), REDUCTIONS)
@pytest.mark.parametrize(
    ("args", "keywords", "axes", "shape"),
    [
        ((), {}, [0, 1, 2], []),
        ((None,), {}, [0, 1, 2], []),
        ((), {"axes": None}, [0, 1, 2], []),
        ((), {"axis": None}, [0, 1, 2], []),
        ((), {"axes": None, "axis": 1}, [1], [2, 4]),
        ((1,), {}, [1], [2, 4]),
        ((), {"axis": 1}, [1], [2, 4]),
        ((), {"axes": -1}, [2], [2, 3]),
        (((2, 0),), {}, [0, 2], [3]),
        (([-1, 0],), {"keepdims": True}, [0, 2], [1, 3, 1]),
        ((), {"axis": (0, 1), "keepdims": True}, [0, 1], [1, 1, 4]),
        (([], True), {}, [], [2, 3, 4]),
        ((np.int64(0),), {}, [0], [3, 4]),
        ((range(3),), {}, [0, 1, 2], []),
    ],
)
def test_axes_are_stored_normalised(
    reduce: Callable[..., Any], route: str, args: Any, keywords: Any, axes: list[int], shape: list[int]
) -> None:
    keepdims = keywords.get("keepdims", len(args) > 1)
    ((name, op_params, output),) = recorded(lambda x: reduce(x, *args, **keywords), [2, 3, 4])
    assert (name, op_params, output) == (route, {"axes": axes, "keepdims": keepdims}, shape)
    assert all(type(axis) is int for axis in op_params["axes"])


@pytest.mark.parametrize(("reduce", "route"), REDUCTIONS)
@pytest.mark.parametrize("axes", [2, -3, [0, 0], [0, -2], True, 1.0, "0", [None], np.array([0]), 2**70])
def test_bad_axes(reduce: Callable[..., Any], route: str, axes: Any) -> None:
    assert refused(lambda x: reduce(x, axes), [2, 3]).category == "reduction_shape_mismatch"
    assert refused(lambda x: reduce(x, axis=axes), [2, 3]).category == "reduction_shape_mismatch"


@pytest.mark.parametrize(("reduce", "route"), REDUCTIONS)
@pytest.mark.parametrize("keepdims", [1, None, "no", np.True_])
def test_keepdims_is_a_bool(reduce: Callable[..., Any], route: str, keepdims: Any) -> None:
    error = refused(lambda x: reduce(x, 0, keepdims=keepdims), [2, 3])
    assert error.category == "reduction_shape_mismatch"
    assert "expected a bool" in error.message


def test_axes_and_axis_together_are_a_type_error() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2, 3])
        with pytest.raises(TypeError, match="axes and axis"):
            x.sum(0, axis=1)


def test_a_mean_over_a_symbolic_dim_is_unresolved_and_a_sum_is_not() -> None:
    assert refused(lambda x: x.mean(0), ["N", 3]).category == "unresolved_symbolic_shape"
    assert recorded(lambda x: x.sum(0), ["N", 3]) == [("sum", {"axes": [0], "keepdims": False}, [3])]
    assert recorded(lambda x: x.mean(1), ["N", 3]) == [("mean", {"axes": [1], "keepdims": False}, ["N"])]


# ----------------------------------------------------------------------------------------------------------- movement


@pytest.mark.parametrize(
    ("args", "shape"),
    [(([6],), [6]), ((6,), [6]), ((3, 2), [3, 2]), (((1, -1),), [1, 6]), ((-1,), [6]), ((np.int64(3), -1), [3, 2])],
)
def test_reshape_takes_a_sequence_or_ints_and_one_minus_one(args: Any, shape: list[int]) -> None:
    ((_, op_params, output),) = recorded(lambda x: x.reshape(*args), [2, 3])
    assert op_params == {"shape": shape}
    assert output == shape
    assert all(type(dim) is int for dim in op_params["shape"])


@pytest.mark.parametrize(
    ("args", "category"),
    [
        (([5],), "shape_mismatch"),
        (([-1, -1],), "shape_mismatch"),
        (([4, -1],), "shape_mismatch"),
        (([-2],), "missing_shape_metadata"),
        ((None,), "missing_shape_metadata"),
        (("ab c",), "missing_shape_metadata"),
        (([True, 6],), "missing_shape_metadata"),
        ((["N"],), "unresolved_symbolic_shape"),
        ((10**400,), "shape_mismatch"),
    ],
)
def test_a_reshape_that_cannot_be(args: Any, category: str) -> None:
    assert refused(lambda x: x.reshape(*args), [2, 3]).category == category


def test_reshape_with_symbols() -> None:
    assert recorded(lambda x: x.reshape("N", -1), ["N", 2, 3])[0][2] == ["N", 6]
    assert recorded(lambda x: x.reshape([3, "N"]), ["N", 3])[0][2] == [3, "N"]
    assert refused(lambda x: x.reshape(-1), ["N", 2]).category == "unresolved_symbolic_shape"


def test_reshape_of_a_bound_symbol() -> None:
    assert recorded(lambda x, y: (x + y, x.reshape(-1))[1], ["N", 3], [4, 3])[1][2] == [12]


@pytest.mark.parametrize(
    ("args", "perm", "shape"),
    [((), [2, 1, 0], [4, 3, 2]), ((None,), [2, 1, 0], [4, 3, 2]), (([1, 2, 0],), [1, 2, 0], [3, 4, 2])],
)
def test_transpose_stores_its_perm(args: Any, perm: list[int], shape: list[int]) -> None:
    assert recorded(lambda x: x.transpose(*args), [2, 3, 4]) == [("transpose", {"perm": perm}, shape)]


def test_transpose_by_axes_and_by_keyword() -> None:
    assert recorded(lambda x: x.transpose(1, 0), [2, 3]) == [("transpose", {"perm": [1, 0]}, [3, 2])]
    assert recorded(lambda x: x.transpose(permutation=(1, 0)), [2, 3]) == [("transpose", {"perm": [1, 0]}, [3, 2])]
    assert recorded(lambda x: x.transpose(), []) == [("transpose", {"perm": []}, [])]


@pytest.mark.parametrize("perm", [[0], [0, 0], [-1, 0], "10", 5, [0.0, 1.0], [True, False], [0, 2]])
def test_a_bad_permutation(perm: Any) -> None:
    assert refused(lambda x: x.transpose(perm), [2, 3]).category == "invalid_permutation"


def test_the_transposes_of_the_array_api() -> None:
    assert recorded(lambda x: x.T, [2, 3]) == [("transpose", {"perm": [1, 0]}, [3, 2])]
    assert recorded(lambda x: x.mT, [2, 3]) == [("transpose", {"perm": [1, 0]}, [3, 2])]
    assert recorded(lambda x: x.mT, [5, 2, 3]) == [("transpose", {"perm": [0, 2, 1]}, [5, 3, 2])]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.T, []),
        (lambda x: x.T, [2]),
        (lambda x: x.T, [2, 3, 4]),
        (lambda x: x.mT, []),
        (lambda x: x.mT, [2]),
    ],
)
def test_a_transpose_at_another_rank(function: Callable[..., Any], shape: Any) -> None:
    error = refused(function, shape)
    assert error.category == "invalid_permutation"
    assert f"got {len(shape)}" in error.message


@pytest.mark.parametrize(
    ("shape", "target"), [([3], [2, 3]), ([3, 1], (3, 4)), ([], []), ([], ["N", 2]), ([2, 3], [2, 3]), ([1], [0])]
)
def test_broadcast_to(shape: Any, target: Any) -> None:
    expected = [("broadcast", {"shape": list(target)}, list(target))]
    assert recorded(lambda x: x.broadcast_to(target), shape) == expected


@pytest.mark.parametrize(
    ("target", "category"),
    [
        ([3], "broadcast_shape_mismatch"),
        ([3, 3], "broadcast_shape_mismatch"),
        ([-1, 3], "missing_shape_metadata"),
        (3, "missing_shape_metadata"),
        ("ab", "missing_shape_metadata"),
    ],
)
def test_a_broadcast_that_cannot_be(target: Any, category: str) -> None:
    assert refused(lambda x: x.broadcast_to(target), [2, 3]).category == category


# ----------------------------------------------------------------------------------------------------------- symbols


def test_a_symbol_that_meets_an_int_is_bound_for_the_whole_trace() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=["N"])
        y, z = builder.input("y", dtype="f32", shape=[4]), builder.input("z", dtype="f32", shape=[5])
        assert (x + y).shape == (4,)
        assert builder.symbols == {"N": 4}
        with pytest.raises(AutodiffError, match="'N' is bound to 4 and now meets 5") as caught:
            x * z
        assert len(builder.build().nodes) == 1
        assert x.shape == ("N",)
    assert caught.value.category == "symbolic_shape_mismatch"


@pytest.mark.parametrize(
    ("function", "shapes", "category"),
    [
        (lambda x, y: x + y, (["N", 3], [4, 5]), "broadcast_shape_mismatch"),
        (lambda x, y: x @ y, ([3, 2, "K"], [4, 5, 2]), "matmul_shape_mismatch"),
        (lambda x: x.broadcast_to([4, 5]), (["N", 3],), "broadcast_shape_mismatch"),
    ],
)
def test_an_operation_that_fails_after_it_bound_a_symbol_binds_nothing(
    function: Callable[..., Any], shapes: Any, category: str
) -> None:
    assert refused(function, *shapes).category == category


def test_the_symbols_of_a_builder_are_a_copy() -> None:
    builder = TensorGraphBuilder()
    builder.symbols["N"] = 3
    assert builder.symbols == {}
