"""The tester is tested: check_operator passes what is right and catches each planted bug, saying where it is."""

from __future__ import annotations

from typing import Any

import pytest

from meta.planted import OTHER_MISTAKES, RIGHT, WRONG_GRADIENTS, WRONG_SECOND_ORDERS, WRONG_TYPES, Times, WithoutVjp
from tinychain.autodiff.graph import TensorGraph, TensorOperator
from tinychain.autodiff.testing import check_gradients, check_operator
from tinychain.autodiff.tracing import TensorGraphBuilder


def failure(operator: type[TensorOperator], dtype: str = "f64") -> str:
    with pytest.raises(AssertionError) as caught:
        check_operator(operator, dtypes=(dtype,))
    return str(caught.value)


def graph_of(operator: type[TensorOperator]) -> TensorGraph:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[2, 3])
        result = builder.apply(operator, [x], {})
    return builder.build(outputs=[result])


@pytest.mark.parametrize("operator", RIGHT)
def test_passes_what_is_right(operator: type[TensorOperator]) -> None:
    check_operator(operator)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("operator", WRONG_GRADIENTS)
def test_catches_a_wrong_gradient(operator: type[TensorOperator], dtype: str) -> None:
    message = failure(operator, dtype)
    assert message.startswith(f"{operator.__name__}, sample 0 in {dtype}: gradients of order 1: ")
    assert f"the gradient of '{WRONG_GRADIENTS[operator]}' at [" in message
    assert "expected" in message
    assert "the worst error is" in message
    assert "the tolerance 0.0001 relative" in message or dtype == "f64"
    assert "the tolerance 1e-06 relative" in message or dtype == "f32"


@pytest.mark.parametrize("operator", WRONG_SECOND_ORDERS)
def test_catches_what_is_wrong_at_second_order_only(operator: type[TensorOperator]) -> None:
    check_gradients(graph_of(operator), order=1)
    assert f"{operator.__name__}, sample 0 in f64: gradients of order 2: " in failure(operator)


@pytest.mark.parametrize("operator", WRONG_TYPES)
def test_catches_a_declared_type_that_the_reference_contradicts(operator: type[TensorOperator]) -> None:
    declared, returned = WRONG_TYPES[operator]
    message = failure(operator, "f32")
    assert message.startswith(f"{operator.__name__}, sample 0 in f32: ")
    assert f"'{declared}'; expected '{returned}'" in message


@pytest.mark.parametrize("operator", OTHER_MISTAKES)
def test_catches_other_mistakes(operator: type[TensorOperator]) -> None:
    message = failure(operator)
    assert operator.__name__ in message
    assert OTHER_MISTAKES[operator] in message


def test_names_the_sample() -> None:
    class OffInItsSecondSample(Times):
        def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
            return x * y if x.shape == y.shape else x * y * y

    assert failure(OffInItsSecondSample).startswith("OffInItsSecondSample, sample 1 in f64: ")


def test_an_operator_that_says_so_may_have_no_vjp() -> None:
    check_operator(WithoutVjp, differentiable=False)


def test_catches_a_vjp_where_none_should_be() -> None:
    with pytest.raises(AssertionError, match="Times, sample 0 in f32: the VJP must refuse"):
        check_operator(Times, differentiable=False)
