"""Prime fields, their tensors and their random functions."""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from random import Random

import numpy as np
import pytest

from tinychain.autodiff.verify.field import Elements, Field, integers


@pytest.fixture(params=[61, 64, 200])
def field(request: pytest.FixtureRequest) -> Field:
    return Field(request.param, Random(0))


def expected_product(field: Field, x: Elements, y: Elements) -> list[int]:
    plain = [np.array(integers(array), dtype=object).reshape(array.shape) for array in (x, y)]
    return [int(number % field.prime) for number in np.matmul(*plain).ravel()]


@pytest.mark.parametrize("bits", [61, 64, 200, 1024])
def test_the_prime_has_just_so_many_bits(bits: int) -> None:
    prime = Field(bits, Random(1)).prime
    assert prime.bit_length() == bits
    assert gcd(prime, 2 * 3 * 5 * 7 * 11 * 13) == 1
    assert pow(3, prime - 1, prime) == 1


def test_another_seed_is_another_prime() -> None:
    assert len({Field(61, Random(seed)).prime for seed in range(20)}) == 20


def test_a_fraction_is_a_quotient(field: Field) -> None:
    assert field.constant(Fraction(-2, 15)) * 15 == -2


def test_a_draw_is_reproducible_and_not_constant(field: Field) -> None:
    numbers = integers(field.draw((3, 4)))
    assert len(set(numbers)) == 12
    again = Field(field.prime.bit_length(), Random(0))
    assert integers(again.draw((3, 4))) == numbers


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 1)),
        ((2, 1, 2, 3), (4, 3, 2)),
        ((2, 0), (0, 3)),
        ((0, 2), (2, 3)),
        ((0, 2, 2), (2, 2)),
    ],
)
def test_a_matmul(field: Field, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = field.draw(left), field.draw(right)
    product = field.matmul(x, y)
    assert product.shape == np.matmul(np.zeros(left), np.zeros(right)).shape
    assert integers(product) == expected_product(field, x, y)


def test_a_random_function_is_a_function(field: Field) -> None:
    value = field.random_function("f", [1, 2])
    assert field.random_function("f", [1, 2]) == value
    others = [field.random_function(*call) for call in (("f", [2, 1]), ("g", [1, 2]), ("f", [1]), ("f", [18]))]
    assert value not in others


def test_another_draw_has_other_random_functions() -> None:
    assert int(Field(61, Random(0)).random_function("f", [])) != int(Field(61, Random(1)).random_function("f", []))
