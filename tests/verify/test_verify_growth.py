"""Bounds of degree and coefficients against polynomials that are written out."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from flint import fmpz_poly
from hypothesis import given
from hypothesis import strategies as st

from tinychain.autodiff.verify.growth import VARIABLE, Algebra, Growth

UNIT = 3 * 10  # B, the product of the denominators of the literals below
ALGEBRA = Algebra(UNIT.bit_length())


class Quotient(NamedTuple):
    """(high / (UNIT**power * low), what is claimed of it)."""

    high: fmpz_poly
    low: fmpz_poly
    power: int
    growth: Growth


def literal(number: Fraction) -> Quotient:
    power = int(number.denominator != 1)
    high = number * UNIT**power
    return Quotient(fmpz_poly([high.numerator]), fmpz_poly([1]), power, ALGEBRA.literal(number))


def add(x: Quotient, y: Quotient) -> Quotient:
    power = max(x.power, y.power)
    high = x.high * y.low * UNIT ** (power - x.power) + y.high * x.low * UNIT ** (power - y.power)
    return Quotient(high, x.low * y.low, power, ALGEBRA.add(x.growth, y.growth))


def mul(x: Quotient, y: Quotient) -> Quotient:
    return Quotient(x.high * y.high, x.low * y.low, x.power + y.power, ALGEBRA.mul(x.growth, y.growth))


def div(x: Quotient, y: Quotient) -> Quotient:
    return Quotient(x.high * y.low * UNIT**y.power, x.low * y.high, x.power, ALGEBRA.div(x.growth, y.growth))


def triple(x: Quotient) -> Quotient:
    """The sum of x three times, as if the three were different."""
    once = add(add(x, x), x)
    return once._replace(growth=ALGEBRA.sum(x.growth, 3))


def mean(x: Quotient) -> Quotient:
    third = triple(x)
    return Quotient(third.high * (UNIT // 3), third.low, third.power + 1, ALGEBRA.mean(x.growth, 3))


def cube(x: Quotient) -> Quotient:
    return mul(mul(x, x), x)._replace(growth=ALGEBRA.product(x.growth, 3))


leaves = st.just(Quotient(fmpz_poly([0, 1]), fmpz_poly([1]), 0, VARIABLE)) | st.builds(
    literal, st.sampled_from([Fraction(n, d) for n in (-7, -1, 1, 2, 100) for d in (1, 3, 10)])
)
quotients = st.recursive(
    leaves,
    lambda terms: (
        st.builds(add, terms, terms)
        | st.builds(mul, terms, terms)
        | st.builds(div, terms, terms.filter(lambda term: term.high != 0))
        | st.builds(triple, terms)
        | st.builds(mean, terms)
        | st.builds(cube, terms)
    ),
    max_leaves=8,
)


def weight(polynomial: fmpz_poly) -> int:
    """The sum of the coefficients' absolute values."""
    return sum(abs(int(coefficient)) for coefficient in polynomial.coeffs())


@given(quotients)
def test_the_bounds_hold(quotient: Quotient) -> None:
    growth = quotient.growth
    assert quotient.high.degree() <= growth.degree
    assert quotient.low.degree() <= growth.low_degree
    assert weight(quotient.high) <= 2**growth.bits
    assert weight(quotient.low) <= 2**growth.low_bits
    assert quotient.power == growth.power


def test_a_difference_of_polynomials_has_the_larger_degree() -> None:
    square = ALGEBRA.mul(VARIABLE, VARIABLE)
    assert ALGEBRA.add(square, VARIABLE).degree == 2


def test_adding_a_scaled_value_to_itself_does_not_double_its_bits() -> None:
    value = VARIABLE
    for _ in range(1000):
        value = ALGEBRA.add(value, ALGEBRA.mul(value, ALGEBRA.literal(Fraction(1, 10))))
    assert value.degree == 1
    assert value.bits <= 1000 * (ALGEBRA.unit_bits + 1)


@given(st.lists(st.sampled_from([Fraction(n, d) for n in (-7, 0, 1, 2**100) for d in (1, 3, 10)])))
def test_numbers_of_one_constant_have_one_bound(numbers: list[Fraction]) -> None:
    growth = ALGEBRA.literal(*numbers)
    assert all(abs(number) * UNIT**growth.power <= 2**growth.bits for number in numbers)
    assert growth.power == any(number.denominator > 1 for number in numbers)
