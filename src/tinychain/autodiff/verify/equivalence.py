"""Is a rewritten artifact the same function? Exactly, by polynomial identity testing, and in floating point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.provenance import Region
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.types import as_int, is_sequence, parse_bindings
from tinychain.autodiff.verify.exact import Readings, Trial, bound, read, run_trial
from tinychain.autodiff.verify.field import Elements, integers
from tinychain.autodiff.verify.meaning import Kind
from tinychain.autodiff.verify.numeric import POINTS, compare
from tinychain.autodiff.verify.plan import Typed
from tinychain.autodiff.verify.records import Difference, EquivalenceResult, ExactCheck
from tinychain.autodiff.verify.signature import Artifact, common_sizes, typed_pair


def verify_equivalent(
    before: Artifact,
    after: Artifact,
    *,
    forward_graph: TensorGraph | None = None,
    regions: Sequence[Region] = (),
    shape_bindings: Mapping[str, int] | None = None,
    trials: int = 1,
    seed: int = 0,
    points: Sequence[str] = POINTS,
    max_ulps: float | None = None,
    raise_on_difference: bool = False,
) -> EquivalenceResult:
    """Whether two graphs, or two derivative programs, compute the same outputs from the same inputs.

    Inputs are matched by id, outputs by position; their types must be equal. A dual that `after` reads and `before`
    does not know is computed from its input. A program is judged together with `forward_graph`; without one its
    captures are inputs that may be anything. Equal means equal as rational functions of the inputs, so wherever neither
    divides by zero; see ExactCheck for what that is worth. The numeric errors at `points`, for which () means none, are
    only reported, unless `max_ulps` limits them. `regions` of a detailed pass name what a difference comes from.

    Raises TypeError or ValueError for bad arguments, invalid_verification for artifacts that do not match or cannot be
    evaluated, the category of the fault for malformed ones, and not_equivalent if `raise_on_difference`.
    """
    _check_arguments(regions, trials, seed, points, max_ulps)
    pair = _Pair(*typed_pair(before, after, forward_graph))
    sizes, free = common_sizes(*pair, parse_bindings(shape_bindings))
    readings = pair.at(sizes)
    bounded = bound(*readings)
    primes: list[int] = []
    difference = None
    for number in range(trials):
        trial = run_trial(*readings, bounded.field_bits, seed + number)
        primes.append(trial.field.prime)
        if _first_difference(trial) is not None:
            difference = _smallest(pair, sizes, free, seed + number, regions)
            break
    exact = ExactCheck(
        trials=len(primes),
        seed=seed,
        primes=tuple(primes),
        degree=bounded.degree,
        error_probability=bounded.error(len(primes)),
        sizes=sizes,
        random_functions=_random_functions(readings),
    )
    numeric = compare(readings[0].plan, readings[1].plan, points, seed) if points else None
    close = numeric is None or max_ulps is None or max(numeric.worst_ulps.values(), default=0.0) <= max_ulps
    result = EquivalenceResult(
        equivalent=difference is None and close,
        outputs=tuple(readings[0].plan.outputs),
        exact=exact,
        numeric=numeric,
        difference=difference,
        max_ulps=max_ulps,
    )
    return result.check() if raise_on_difference else result


class _Pair(NamedTuple):
    before: Typed
    after: Typed

    def at(self, sizes: Mapping[str, int]) -> tuple[Readings, Readings]:
        return read(self.before.plan(sizes)), read(self.after.plan(sizes))


def _first_difference(trial: Trial) -> tuple[int, tuple[int, ...]] | None:
    """The position and the index of the first element that differs."""
    for position, (x, y) in enumerate(zip(trial.before, trial.after, strict=True)):
        for index in np.argwhere(x != y):
            return position, tuple(index.tolist())
    return None


def _smallest(
    pair: _Pair, sizes: dict[str, int], free: Sequence[str], seed: int, regions: Sequence[Region]
) -> Difference:
    """The difference at the smallest sizes of the free symbols that still show it.

    Ints stay: a literal may have been computed from them, as 1 / 15 from 3 and 5.
    """
    for symbol in free:
        for size in range(1, sizes[symbol]):
            smaller = {**sizes, symbol: size}
            if _differs(pair, smaller, seed):
                sizes = smaller
                break
    readings = pair.at(sizes)
    trial = run_trial(*readings, bound(*readings).field_bits, seed)
    found = _first_difference(trial)
    assert found is not None  # at these sizes they differ
    position, element = found
    first = _first_value(pair, sizes, trial)
    return Difference(
        position=position,
        output=readings[0].plan.outputs[position],
        element=element,
        seed=seed,
        prime=trial.field.prime,
        before=int(trial.before[position][element]),
        after=int(trial.after[position][element]),
        sizes=sizes,
        first_value_id=first,
        region=next((region for region in regions if region.terminal_value_id == first), None),
    )


def _differs(pair: _Pair, sizes: Mapping[str, int], seed: int) -> bool:
    with suppress(AutodiffError):  # an artifact that does not fit these sizes
        readings = pair.at(sizes)
        return _first_difference(run_trial(*readings, bound(*readings).field_bits, seed)) is not None
    return False


def _first_value(pair: _Pair, sizes: Mapping[str, int], trial: Trial) -> str | None:
    """The first value, in the schedule of the original, that both compute and that differs."""
    before, after = _Pair(pair.before, pair.after.showing(pair.before.types)).at(sizes)
    seen: dict[str, int] = {}

    def remember(value_id: str, value: Elements) -> None:
        seen[value_id] = hash((value.shape, tuple(integers(value))))

    after.values(trial.field, trial.inputs, remember)
    rewritten, seen = seen, {}
    before.values(trial.field, trial.inputs, remember)
    return next((value_id for value_id, value in seen.items() if rewritten.get(value_id, value) != value), None)


def _random_functions(readings: tuple[Readings, Readings]) -> tuple[str, ...]:
    names = {
        step.node.operator.name
        for plan, meanings in readings
        for step, what in zip(plan.steps, meanings, strict=True)
        if what.kind not in (Kind.FIELD, Kind.CONSTANT)
    }
    return tuple(sorted(names))


def _check_arguments(regions: object, trials: object, seed: object, points: object, max_ulps: object) -> None:
    if not is_sequence(regions) or not all(isinstance(region, Region) for region in regions):
        raise TypeError(f"regions must be a list of the regions that a pass reports, got {quote(regions)}")
    if (count := as_int(trials)) is None or count < 1:
        raise ValueError(f"trials must be a positive int, got {quote(trials)}")
    if (number := as_int(seed)) is None or number < 0:
        raise ValueError(f"seed must be a non-negative int, got {quote(seed)}")
    if not is_sequence(points) or not all(isinstance(point, str) and point in POINTS for point in points):
        raise ValueError(f"points must be a list of some of {', '.join(POINTS)}, got {quote(points)}")
    if max_ulps is not None and (
        isinstance(max_ulps, bool) or not isinstance(max_ulps, (int, float)) or not max_ulps >= 0
    ):
        raise ValueError(f"max_ulps must be a non-negative number or None, got {quote(max_ulps)}")
    if max_ulps is not None and not points:
        raise ValueError("max_ulps limits the errors at points, of which there are none")
