"""The number that a float literal stands for: 0.06666666666666667 is 1/15.

A literal is rounded on its way into a record, so an exact check of what the float happens to be would tell x / 15 from
x * (1 / 15).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import frexp, isfinite
from typing import Any

import numpy as np


@lru_cache(maxsize=4096)
def rational(literal: float, dtype: str) -> Fraction | None:
    """The fraction of least denominator that rounds to `literal` in `dtype`; None for an infinity or a NaN.

    In f32 the literal is rounded to f32 first; any other dtype is read as f64. Integers and powers of two stand for
    themselves.
    """
    kind: Any = np.float32 if dtype == "f32" else np.float64
    with np.errstate(over="ignore", under="ignore"):
        rounded = kind(literal)
    value = float(rounded)
    if not isfinite(value):
        return None
    if value.is_integer() or abs(frexp(value)[0]) == 0.5:
        return Fraction(value)
    size = abs(rounded)
    neighbours = np.nextafter(size, kind(0)), size, np.nextafter(size, kind("inf"))
    below, exact, above = [Fraction(float(neighbour)) for neighbour in neighbours]
    nearest = _simplest((below + exact) / 2, (exact + above) / 2)
    return nearest if value > 0 else -nearest


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
