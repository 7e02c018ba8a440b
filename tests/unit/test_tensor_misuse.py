"""The traced tensor where it cannot serve: as a value, outside of its trace, and in operations that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    DivOperator,
    ExpOperator,
    LogOperator,
    MatmulOperator,
    MaximumOperator,
    MeanOperator,
    MinimumOperator,
    MulOperator,
    ReshapeOperator,
    SignOperator,
    SqrtOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder, captured_operator_types

# ----------------------------------------------------------------------------------------------------- what it is not


@pytest.mark.parametrize(
    "use",
    [
        bool,
        float,
        int,
        complex,
        len,
        list,
        np.asarray,
        np.array,
        np.float32,
        range,
        lambda x: 1 in x,
        lambda x: x == 0,
        lambda x: x != x,
        lambda x: x < 1,
        lambda x: x >= x,
        lambda x: not x,
        lambda x: 1 if x else 2,
        lambda x: [*x],
        lambda x: np.ones(2)[x],
        lambda x: np.asarray(x, dtype=np.float32),
    ],
)
def test_a_traced_tensor_has_no_value_yet(use: Callable[[Any], Any]) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(TypeError, match="has no value yet"):
            use(x)
        assert builder.build().nodes == []


@pytest.mark.parametrize(
    "use",
    [lambda x: x**2, lambda x: 2**x, lambda x: x // 2, lambda x: 2 % x, abs, lambda x: x[0], lambda x: x[:, None]],
)
def test_what_has_no_operator_says_what_to_write_instead(use: Callable[[Any], Any]) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=(2, 2))
        with pytest.raises(TypeError, match=r"no operator here: write x \* x for a square"):
            use(x)


@pytest.mark.parametrize("function", [np.mean, np.sum, np.transpose, np.dot, np.where])
def test_numpy_functions_say_that_they_do_not_trace(function: Callable[..., Any]) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=(2, 2))
        with pytest.raises(TypeError, match=f"numpy.{function.__name__} does not trace"):
            function(x, x) if function is np.dot else function(x)


@pytest.mark.parametrize(
    "use", [lambda x: x**2, lambda x: x // 2, lambda x: x % 2, abs, np.exp, lambda x: np.add(x, 1), lambda x: x & x]
)
def test_an_operation_that_does_not_exist_is_a_type_error(use: Callable[[Any], Any]) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(TypeError):
            use(x)
        assert builder.build().nodes == []


@pytest.mark.parametrize("name", ["shape", "dtype", "ndim"])
def test_the_type_is_read_only(name: str) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(AttributeError):
            setattr(x, name, None)


def test_a_tensor_prints_its_name_and_type() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("weights", dtype="f32", shape=["N", 3])
        assert repr(x) == "<Tensor weights f32[N, 3]>"
        assert repr(x + x) == "<Tensor f32[N, 3]>"
    assert repr(Tensor()) == "<Tensor untyped>"


# ------------------------------------------------------------------------------------------------------ out of a trace


@pytest.mark.parametrize(
    "use", [lambda x: x + x, lambda x: 2 - x, lambda x: -x, lambda x: x @ x, lambda x: x.sum(), lambda x: x.T]
)
def test_an_operation_outside_of_a_trace_is_a_runtime_error(use: Callable[[Tensor], Any]) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2, 2])
    with pytest.raises(RuntimeError, match="active trace"):
        use(x)
    assert builder.build().nodes == []


def test_a_tensor_of_another_trace_is_a_value_error_that_names_it() -> None:
    with TensorGraphBuilder() as first:
        x = first.input("old", dtype="f32", shape=[2])
    with TensorGraphBuilder() as builder:
        y = builder.input("y", dtype="f32", shape=[2])
        operations: list[Callable[[], Tensor]] = [lambda: x + y, lambda: y + x, lambda: -x]
        for operation in operations:
            with pytest.raises(ValueError, match="old"):
                operation()
        assert builder.build().nodes == []


def test_the_captured_operators_are_those_of_the_tensor() -> None:
    expected = {AddOperator, SubOperator, MulOperator, DivOperator, MatmulOperator, SumOperator, MeanOperator}
    expected |= {ReshapeOperator, TransposeOperator, BroadcastOperator}
    expected |= {SqrtOperator, ExpOperator, LogOperator, SignOperator, MaximumOperator, MinimumOperator}
    assert captured_operator_types() == expected
    captured_operator_types().clear()
    assert captured_operator_types() == expected
