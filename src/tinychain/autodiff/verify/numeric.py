"""Both artifacts on NumPy, at points where rounding, overflow and cancellation show."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod, sqrt
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tinychain.autodiff.arrays import DTYPES
from tinychain.autodiff.types import check_floating
from tinychain.autodiff.verify.plan import Plan, Step
from tinychain.autodiff.verify.records import NumericCheck

_Draw = Callable[[Generator, int, Any], Any]  # (generator, how many, finfo of the dtype) -> numbers


def _mixed(random: Generator, count: int, limits: Any) -> Any:
    low, high = np.log(_tiny(limits)), np.log(_huge(limits))
    return random.choice([-1.0, 1.0], count) * np.exp(random.uniform(low, high, count))


def _cancelling(random: Generator, count: int, limits: Any) -> Any:
    signs = np.where(np.arange(count) % 2, -1.0, 1.0)
    return signs * (1.0 + 4 * float(limits.eps) * random.integers(-4, 5, count))


def _huge(limits: Any) -> float:
    """So large that the product of three is still a number."""
    return sqrt(sqrt(limits.max))


def _tiny(limits: Any) -> float:
    return sqrt(sqrt(limits.tiny))


_DRAWS: Final[Mapping[str, _Draw]] = {
    "zeros": lambda random, count, limits: np.zeros(count),
    "ones": lambda random, count, limits: np.ones(count),
    "normal": lambda random, count, limits: random.standard_normal(count),
    "tiny": lambda random, count, limits: random.standard_normal(count) * _tiny(limits),
    "huge": lambda random, count, limits: random.standard_normal(count) * _huge(limits),
    "mixed": _mixed,
    "cancelling": _cancelling,
}

#: The kinds of points, in the order in which they are tried: signs and magnitudes at random are "mixed", numbers of
#: about 1 with alternating signs, which differ in their last bits, are "cancelling".
POINTS: Final[tuple[str, ...]] = tuple(_DRAWS)


def compare(before: Plan, after: Plan, points: Sequence[str], seed: int) -> NumericCheck:
    """The worst errors at points of these kinds, by the operators' own `reference`.

    Raises what a `reference` raises (unsupported_operator where there is none), and dtype_not_differentiable for an
    input of another dtype than f32 and f64.
    """
    ulps: dict[str, dict[str, float]] = {output: {} for output in before.outputs}
    for point in points:
        random = np.random.default_rng([seed, POINTS.index(point)])
        inputs = {
            value_id: _array(point, random, plan.shapes[value_id], plan.types[value_id].dtype)
            for plan in (before, after)
            for value_id in sorted(plan.inputs)
            if plan is before or value_id not in before.inputs
        }
        with _quiet():
            results = zip(before.outputs, before.run(inputs, _compute), after.run(inputs, _compute), strict=True)
            for output, expected, got in results:
                ulps[output][point] = max(ulps[output].get(point, 0.0), _worst(np.asarray(expected), np.asarray(got)))
    return NumericCheck(points=tuple(points), ulps=ulps)


def _array(point: str, random: Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    kind = DTYPES[check_floating(dtype)]
    return np.asarray(_DRAWS[point](random, prod(shape), np.finfo(kind))).astype(kind).reshape(shape)


def _compute(step: Step, operands: list[Any]) -> Any:
    return step.node.operator.reference(np, *operands, **step.op_params)


def _worst(expected: NDArray[Any], got: NDArray[Any]) -> float:
    """The largest distance in units in the last place of the larger of the two; infinite where one is no number."""
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return float("inf")
    same = (expected == got) | (np.isnan(expected) & np.isnan(got))
    x, y = expected[~same], got[~same]
    if not x.size:
        return 0.0
    distances = np.abs(x - y) / np.spacing(np.maximum(np.abs(x), np.abs(y)))
    return float(np.max(np.where(np.isfinite(x) & np.isfinite(y), distances, np.inf)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Overflow, division by zero and the mean of nothing are part of the comparison."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
