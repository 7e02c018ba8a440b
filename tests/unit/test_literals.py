"""The fraction that a float literal stands for, and the literals that stand for its inverse."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan, nextafter, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinychain.autodiff.literals import rational, reciprocals


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


def test_inverses_of_large_integers_are_those_of_integers_that_the_dtype_has() -> None:
    assert rational(1e-8, "f32") == Fraction(1, 10**8)
    assert rational(-1e-22, "f64") == Fraction(-1, 10**22)


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


# ---------------------------------------------------------------------------------------------------------- reciprocals


def stands_for_inverse(literal: float, dtype: str) -> bool:
    read = [rational(factor, dtype) for factor in reciprocals(literal, dtype)]
    return None not in read and prod([factor for factor in read if factor]) * (rational(literal, dtype) or 0) == 1


@pytest.mark.parametrize(
    ("literal", "dtype", "factors"),
    [
        (15.0, "f64", (1 / 15,)),
        (-15.0, "f32", (-1 / 15,)),
        (0.1, "f64", (10.0,)),
        (3.57, "f64", (100 / 357,)),
        (1 / 3, "f64", (3.0,)),
        (2.0**-127, "f64", (2.0**127,)),
        (2.0**60, "f32", (2.0**-60,)),
        (1e22, "f64", (1e-22,)),
        (20_000_001.0, "f32", (1 / 20_000_000,)),
    ],
)
def test_one_literal_stands_for_most_reciprocals(literal: float, dtype: str, factors: tuple[float, ...]) -> None:
    assert reciprocals(literal, dtype) == factors


@pytest.mark.parametrize(("literal", "dtype"), [(101**0.5, "f64"), (2.8901946595570682, "f64"), (-5.6773, "f32")])
def test_two_literals_stand_for_others(literal: float, dtype: str) -> None:
    fraction = rational(literal, dtype)
    assert fraction is not None
    assert reciprocals(literal, dtype) == (1 / abs(fraction.numerator), fraction.denominator * (-1, 1)[literal > 0])


@given(st.floats(1e-6, 1e6), st.sampled_from(["f32", "f64"]))
def test_they_stand_for_the_inverse_of_what_the_literal_stands_for(literal: float, dtype: str) -> None:
    fraction = rational(literal, dtype)
    assert fraction is not None
    if fraction.numerator < 2 ** (22 if dtype == "f32" else 51):
        assert stands_for_inverse(literal, dtype)
        assert stands_for_inverse(-literal, dtype)


@pytest.mark.parametrize(
    ("literal", "dtype"),
    [(0.0, "f64"), (-0.0, "f64"), (1e-310, "f64"), (1.7e308, "f64"), (inf, "f64"), (nan, "f64")]
    + [(1e-39, "f32"), (1e39, "f32"), (3e38, "f32")],
)
def test_nothing_stands_for_the_reciprocal_of_a_number_beyond_the_dtype(literal: float, dtype: str) -> None:
    assert reciprocals(literal, dtype) == ()
