"""The fraction that a float literal stands for."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan, nextafter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinychain.autodiff.verify.rational import rational


@pytest.mark.parametrize(
    ("literal", "fraction"),
    [
        (1 / 15, Fraction(1, 15)),
        (-2 / 3, Fraction(-2, 3)),
        (0.1, Fraction(1, 10)),
        (1e-12, Fraction(1, 10**12)),
        (12345.678, Fraction(12345678, 1000)),
        (0.0, Fraction(0)),
        (-0.0, Fraction(0)),
        (1e20, Fraction(10**20)),
        (2.0**-60, Fraction(1, 2**60)),
        (2.5, Fraction(5, 2)),
    ],
)
def test_a_literal_in_f64(literal: float, fraction: Fraction) -> None:
    assert rational(literal, "f64") == fraction


def test_in_f32_a_literal_is_rounded_first() -> None:
    assert rational(1 / 15 + 1e-12, "f32") == rational(float(np.float32(1 / 15)), "f32") == Fraction(1, 15)


@pytest.mark.parametrize("literal", [inf, -inf, nan])
def test_what_is_no_number_is_no_fraction(literal: float) -> None:
    assert rational(literal, "f64") is None


def test_an_overflow_in_f32_is_no_fraction() -> None:
    assert rational(1e39, "f32") is None


@given(st.integers(-(2**26), 2**26), st.integers(1, 2**26))
def test_a_quotient_of_small_integers_is_read_back(numerator: int, denominator: int) -> None:
    assert rational(numerator / denominator, "f64") == Fraction(numerator, denominator)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_fraction_rounds_to_the_literal(literal: float) -> None:
    fraction = rational(literal, "f64")
    assert fraction is not None
    assert float(fraction) == literal


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_fraction_rounds_to_the_literal_in_f32(literal: float) -> None:
    fraction = rational(literal, "f32")
    assert fraction is not None
    with np.errstate(over="ignore"):
        neighbours = [np.nextafter(np.float32(literal), np.float32(end)) for end in (-inf, inf)]
    distances = [abs(fraction - Fraction(float(end))) for end in neighbours if np.isfinite(end)]
    assert all(abs(fraction - Fraction(literal)) < distance for distance in distances)


@given(st.floats(1e-3, 1e3))
def test_the_next_float_is_another_fraction(literal: float) -> None:
    assert rational(literal, "f64") != rational(nextafter(literal, inf), "f64")


@given(st.floats(0.125, 128, width=16))
def test_no_fraction_of_a_smaller_denominator_rounds_to_the_literal(literal: float) -> None:
    third = literal / 3
    fraction = rational(third, "f64")
    assert fraction is not None
    assert all(float(Fraction(round(third * d), d)) != third for d in range(1, min(fraction.denominator, 2000)))
