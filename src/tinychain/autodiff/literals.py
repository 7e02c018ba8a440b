"""The number that a float literal stands for: 0.06666666666666667 is 1/15.

A literal is rounded on its way into a record, so an exact check of what the float happens to be would tell x / 15 from
x * (1 / 15).
"""

from __future__ import annotations

import struct
from fractions import Fraction
from functools import lru_cache
from math import frexp, inf, isfinite, nextafter
from sys import float_info
from typing import Final

#: The smallest and the largest normal number of a dtype; between them rounding is relative.
_NORMAL: Final = {
    "f32": (2.0**-126, (2 - 2.0**-23) * 2.0**127),
    "f64": (float_info.min, float_info.max),
}


@lru_cache(maxsize=4096)
def rational(literal: float, dtype: str) -> Fraction | None:
    """The fraction of least denominator that rounds to `literal` in `dtype`; None for an infinity or a NaN.

    In f32 the literal is rounded to f32 first; any other dtype is read as f64. Integers and powers of two stand for
    themselves. Of the inverses of integers that are too large for the dtype to tell apart, it is that of the integer
    which the dtype has, so that 1e-8 in f32 is 1 / 1e8.
    """
    value = _rounded(literal) if dtype == "f32" else literal
    if not isfinite(value):
        return None
    if value.is_integer() or abs(frexp(value)[0]) == 0.5:
        return Fraction(value)
    below, exact, above = map(Fraction, _with_neighbours(abs(value), dtype))
    low, high = (below + exact) / 2, (exact + above) / 2
    nearest = _simplest(low, high)
    inverse = 1 / abs(value)
    inverse = _rounded(inverse) if dtype == "f32" else inverse
    if nearest.numerator == 1 and isfinite(inverse) and inverse.is_integer() and low < 1 / Fraction(inverse) < high:
        nearest = 1 / Fraction(inverse)
    return nearest if value > 0 else -nearest


def reciprocals(number: float, dtype: str) -> tuple[float, ...]:
    """The literals whose product stands for 1 / `number`: one where there is such a literal, else two.

    1 / 3.102795988181382 is read as another fraction than the inverse of what 3.102795988181382 is read as; that one's
    denominator and the inverse of its numerator are not. Only where these are too long for the dtype, as in 1 / 1e22,
    it is the one literal next to it. None at all where the number or 1 / number is no normal number of the dtype.
    """
    low, high = _NORMAL[dtype]
    read = rational(number, dtype)
    if read is None or not low <= abs(number) <= high or not low <= abs(1 / number) <= high:
        return ()
    inverse = 1 / read
    for factors in ((inverse,), (Fraction(1, inverse.denominator), Fraction(inverse.numerator))):
        literals = tuple(map(float, factors))
        if tuple([rational(literal, dtype) for literal in literals]) == factors:
            return literals
    return (float(inverse),)


def _rounded(literal: float) -> float:
    """A float rounded to f32."""
    try:
        (value,) = struct.unpack("<f", struct.pack("<f", literal))
    except OverflowError:
        return inf if literal > 0 else -inf
    return float(value)


def _with_neighbours(size: float, dtype: str) -> tuple[float, float, float]:
    """A positive float that is not the largest, between the one below and the one above it."""
    if dtype != "f32":
        return nextafter(size, 0.0), size, nextafter(size, inf)
    (bits,) = struct.unpack("<I", struct.pack("<f", size))
    below, above = struct.unpack("<2f", struct.pack("<2I", bits - 1, bits + 1))
    return below, size, above


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of least denominator strictly between two that are not negative, by their continued fractions."""
    common: list[int] = []
    end: Fraction | None = high  # None is infinity
    while True:
        floor = low.numerator // low.denominator
        if end is None or floor + 1 < end:
            break
        common.append(floor)
        low, end = 1 / (end - floor), None if low == floor else 1 / (low - floor)
    result = Fraction(floor + 1)
    for term in reversed(common):
        result = term + 1 / result
    return result
