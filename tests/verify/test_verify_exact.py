"""Which functions are claimed to be equal, and which are not."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import FillOperator, MaxOperator, MinOperator, ProductOperator
from tinychain.autodiff.types import Symbols, TensorType
from verifying import Function, applied, verified

MATRIX: list[int | str] = [3, 4]


def fill(number: float, shape: list[int]) -> Any:
    return applied(FillOperator, fill=number, dtype="f64", shape=shape)


@pytest.fixture(params=["f32", "f64"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x, y: x * (y + x), lambda x, y: x * y + x * x),
        (lambda x, y: x - y, lambda x, y: x + y * -1.0),
        (lambda x, y: (x + y) * (x - y), lambda x, y: x * x - y * y),
        (lambda x, y: x / 15.0 + y, lambda x, y: y + x * (1 / 15)),
        (lambda x, y: (x @ y.T).T, lambda x, y: y @ x.T),
        (lambda x, y: (x * y).mean(), lambda x, y: (x * y).sum() * (1 / 12)),
        (lambda x, y: (x + y).sum([0]), lambda x, y: x.sum([0]) + y.sum([0])),
        (lambda x, y: x / (y / x), lambda x, y: x * x / y),
        (lambda x, y: 1.0 / x + 1.0 / y, lambda x, y: (x + y) / (x * y)),
        (lambda x, y: x.reshape([12]).reshape([4, 3]) + y.T, lambda x, y: x.reshape([4, 3]) + y.T),
        (lambda x, y: x.sum([1], True).broadcast_to([3, 4]) + y, lambda x, y: y + x.sum([1], True)),
    ],
)
def test_identities_of_algebra(before: Function, after: Function, dtype: str) -> None:
    assert verified(before, after, MATRIX, MATRIX, dtype=dtype).equivalent


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x, y: x * y, lambda x, y: x + y),
        (lambda x, y: x - y, lambda x, y: y - x),
        (lambda x, y: x / y, lambda x, y: y / x),
        (lambda x, y: x + y, lambda x, y: x),
        (lambda x, y: x * (1 / 15), lambda x, y: x * (1 / 16)),
        (lambda x, y: x.sum([0]).sum(), lambda x, y: y.sum()),
        (lambda x, y: x * x, lambda x, y: x * x.reshape([4, 3]).T),
        (lambda x, y: x.mean([0]), lambda x, y: x.sum([0]) * 0.25),
        (lambda x, y: x * y * 0.5, lambda x, y: x * y * 0.5000000000000001),
    ],
)
def test_functions_that_differ(before: Function, after: Function) -> None:
    assert not verified(before, after, MATRIX, MATRIX).equivalent


def test_a_quotient_by_itself_is_one_where_it_is_defined() -> None:
    assert verified(lambda x: x / x, lambda x: fill(1.0, [3]), [3]).equivalent


def test_a_product_over_axes_is_a_polynomial() -> None:
    result = verified(
        lambda x: applied(ProductOperator, x, axes=[0], keepdims=False), lambda x: x.sum([0]) * x.sum([0]), [2]
    )
    assert not result.equivalent
    assert result.exact.degree == 2
    assert result.exact.random_functions == ()


# ------------------------------------------------------------------------------------------------- random functions


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x, y: (x + y).sqrt(), lambda x, y: (y + x).sqrt()),
        (lambda x, y: (x * y).exp().T, lambda x, y: (y.T * x.T).exp()),
        (lambda x, y: x.log().reshape([12]), lambda x, y: x.reshape([12]).log()),
        (lambda x, y: x.maximum(y), lambda x, y: y.maximum(x)),
        (lambda x, y: x.minimum(0.5), lambda x, y: x.minimum(fill(0.5, [1]))),
        (lambda x, y: x.sign() * y, lambda x, y: y * x.sign()),
        (lambda x, y: x.maximum(y.sum([0], True)), lambda x, y: x.maximum(y.sum([0]).broadcast_to([3, 4]))),
        (
            lambda x, y: applied(MaxOperator, x, axes=[0], keepdims=False),
            lambda x, y: applied(MaxOperator, x.T, axes=[1], keepdims=False),
        ),
        (
            lambda x, y: applied(MaxOperator, x, axes=[0, 1], keepdims=False),
            lambda x, y: applied(MaxOperator, x.T, axes=[-1, -2], keepdims=True).reshape([]),
        ),
    ],
)
def test_equal_operands_give_equal_results(before: Function, after: Function) -> None:
    result = verified(before, after, MATRIX, MATRIX)
    assert result.equivalent
    assert result.exact.random_functions


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x: x.sqrt() * x.sqrt(), lambda x: x),
        (lambda x: x.exp().log(), lambda x: x),
        (lambda x: x.exp(), lambda x: x.log()),
        (lambda x: x.maximum(0.0), lambda x: x.maximum(1.0)),
        (lambda x: x.maximum(0.0), lambda x: x.minimum(0.0)),
        (lambda x: x.sqrt().sum([0]), lambda x: x.sum([0]).sqrt()),
        (
            lambda x: applied(MaxOperator, x, axes=[0], keepdims=False),
            lambda x: applied(MinOperator, x, axes=[0], keepdims=False),
        ),
    ],
)
def test_nothing_else_is_claimed_of_them(before: Function, after: Function) -> None:
    assert not verified(before, after, MATRIX).equivalent


class Mystery(TensorOperator):
    """An operator of a user's own, of which nothing but its type is known."""

    route_name = "mystery"
    params = ("depth", "width")

    def result_type(self, symbols: Symbols, x: TensorType, **op_params: Any) -> TensorType:
        return x


def test_an_operator_of_a_users_own_is_a_function_of_all_its_operands() -> None:
    def depth(number: int) -> Function:
        return lambda x: applied(Mystery, x * 2.0, depth=number)

    assert verified(depth(1), lambda x: applied(Mystery, x + x, depth=1), [3]).equivalent
    assert not verified(depth(1), depth(2), [3]).equivalent
    assert verified(
        lambda x: applied(Mystery, x, depth=1, width=2), lambda x: applied(Mystery, x, width=2, depth=1), [3]
    ).equivalent
    assert not verified(
        lambda x: applied(Mystery, x).sum(), lambda x: applied(Mystery, x.reshape([3, 1])).sum(), [3]
    ).equivalent


@pytest.mark.parametrize("literal", [inf, -inf, nan])
def test_a_literal_that_is_no_number_is_a_random_function(literal: float) -> None:
    assert verified(lambda x: (x + x) * literal, lambda x: (x * 2.0) * literal, [3]).equivalent
    assert not verified(lambda x: x * literal, lambda x: x * 2.0, [3]).equivalent
    assert verified(lambda x: x * fill(literal, [3]), lambda x: fill(literal, [1]) * x, [3]).equivalent


def test_a_division_by_the_literal_zero_is_a_random_function() -> None:
    assert verified(lambda x: (x + x) / 0.0, lambda x: (x * 2.0) / 0.0, [3]).equivalent
    assert not verified(lambda x: x / 0.0, lambda x: x * 0.0, [3]).equivalent


# ---------------------------------------------------------------------------------------------------------- no elements


def test_a_sum_of_nothing_is_zero() -> None:
    assert verified(lambda x: x.sum([0]), lambda x: fill(0.0, [3]), [0, 3]).equivalent
    assert verified(lambda x: x.T @ x, lambda x: fill(0.0, [3, 3]), [0, 3]).equivalent


def test_a_mean_of_nothing_is_not_zero() -> None:
    assert verified(lambda x: x.mean([0]), lambda x: (x * 2.0).mean([0]), [0, 3]).equivalent
    assert not verified(lambda x: x.mean([0]), lambda x: fill(0.0, [3]), [0, 3]).equivalent


def test_a_result_without_elements_is_equal() -> None:
    assert verified(lambda x: x.exp() * 2.0, lambda x: x - 1.0, [0, 3]).equivalent


def test_the_maximum_of_nothing() -> None:
    def largest(x: Any) -> Any:
        return applied(MaxOperator, x, axes=[0], keepdims=False)

    assert verified(largest, lambda x: largest(x * 2.0), [0, 3]).equivalent


# --------------------------------------------------------------------------------------------------------- the claim


def test_the_error_probability_is_below_two_to_minus_forty() -> None:
    def power(x: Any) -> Any:
        for _ in range(200):
            x = x * x
        return x

    result = verified(power, power, [])
    assert result.exact.degree == 2**200
    assert result.exact.error_probability < 2.0**-40
    assert result.exact.primes[0] > 2**240


def test_trials_multiply() -> None:
    result = verified(lambda x: x * x, lambda x: x * x, [3], trials=3)
    once = verified(lambda x: x * x, lambda x: x * x, [3])
    assert len(set(result.exact.primes)) == result.exact.trials == 3
    assert result.exact.error_probability == pytest.approx(once.exact.error_probability**3)


def test_powers_of_two_are_told_from_one() -> None:
    """Modulo the well-known prime 2**61 - 1 they would not be."""
    assert not verified(lambda x: x * 2.0**61, lambda x: x * 1.0, []).equivalent


def test_a_matrix_of_real_size() -> None:
    assert verified(
        lambda x, w: (x @ w).sum(), lambda x, w: (x.sum([0], True) @ w).sum(), [455, 31], [31, 1]
    ).equivalent


@pytest.mark.slow
def test_a_long_chain_needs_no_recursion() -> None:
    def chain(x: Any, y: Any) -> Any:
        for _ in range(50_000):
            x = x * y + y
        return x

    result = verified(chain, chain, [2, 2], [2, 2])
    assert result.equivalent
    assert result.exact.degree == 50_001
