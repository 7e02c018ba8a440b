"""Comparing: alternatives take turns, so that all of them see the same machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter


def interleaved(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median seconds of a call of each."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, seconds, strict=True):
            start = perf_counter()
            run()
            found.append(perf_counter() - start)
    return [median(found) for found in seconds]
