"""Constants whose numbers are written out, as the exact check sees them."""

from __future__ import annotations

from math import inf
from typing import Any

from tinychain.autodiff.operators import ConstantOperator, FillOperator
from verifying import applied, verified


def constant(values: list[float], shape: list[int]) -> Any:
    return applied(ConstantOperator, values=values, dtype="f64", shape=shape)


def test_numbers_stand_in_row_major_order() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert verified(
        lambda x: x * constant(values, [2, 3]), lambda x: x * constant(values, [6]).reshape([2, 3]), [2, 3]
    ).equivalent
    assert not verified(
        lambda x: x * constant(values, [2, 3]), lambda x: x * constant(values, [3, 2]).T, [2, 3]
    ).equivalent


def test_a_constant_of_equal_numbers_is_a_fill() -> None:
    for shape in ([2, 3], [], [1, 1], [0, 3]):
        size = 6 if shape == [2, 3] else 0 if 0 in shape else 1
        fill = {"fill": 0.1, "dtype": "f64", "shape": shape}
        assert verified(
            lambda x, shape=shape, size=size: x + constant([0.1] * size, shape),
            lambda x, fill=fill: x + applied(FillOperator, **fill),
            [*shape],
        ).equivalent


def test_a_number_stands_for_the_simplest_fraction() -> None:
    assert verified(
        lambda x: x * constant([1 / 15, 0.5], [2]), lambda x: x * constant([1.0, 7.5], [2]) / 15.0, [2]
    ).equivalent
    assert not verified(lambda x: x * constant([1 / 15], [1]), lambda x: x * constant([0.0667], [1]), [1]).equivalent


def test_one_number_that_is_another_is_found() -> None:
    identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    assert verified(lambda x: x @ constant(identity, [3, 3]), lambda x: x * 1.0, [2, 3]).equivalent
    spoiled = [*identity[:-1], 1.0005]
    result = verified(lambda x: x @ constant(identity, [3, 3]), lambda x: x @ constant(spoiled, [3, 3]), [2, 3])
    assert not result.equivalent
    assert result.difference is not None
    assert result.difference.element == (0, 2)


def test_a_constant_with_an_infinity_is_a_random_function() -> None:
    assert verified(
        lambda x: (x + x) * constant([inf, 1.0], [2]), lambda x: x * 2.0 * constant([inf, 1.0], [2]), [2]
    ).equivalent
    result = verified(lambda x: x * constant([inf, 1.0], [2]), lambda x: x * constant([inf, 2.0], [2]), [2])
    assert not result.equivalent
    assert result.exact.random_functions == ("ConstantOperator",)
