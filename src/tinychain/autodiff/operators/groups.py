"""Which groups of axes a sum adds up, or a broadcast repeats, and in which order that costs least.

Neighbouring axes are one group: a row-major tensor of shape [2, 3, 4] is one of [6, 4] or [2, 12] as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import NamedTuple


class Step(NamedTuple):
    """A group of `size` elements; `outer` is the element count of all that comes before it, `inner` after it."""

    outer: int
    size: int
    inner: int

    @property
    def is_at_end(self) -> bool:
        """Whether the tensor is a matrix of the group and of the rest."""
        return self.outer == 1 or self.inner == 1

    @property
    def constant(self) -> int:
        """How many numbers the smaller matrix of zeros and ones has that handles the group between others."""
        return self.size * min(self.outer, self.inner) ** 2


def largest_first(step: Step) -> tuple[int, ...]:
    """The order of least FLOPs where taking a group away costs as much as the tensor has elements."""
    return (-step.size,)


def ends_first(step: Step) -> tuple[int, ...]:
    """The order where it costs as many times that as the smaller side of the group has elements."""
    return min(step.outer, step.inner), -step.size


def plan_groups(shape: Sequence[int], axes: Collection[int], order: Callable[[Step], tuple[int, ...]]) -> list[Step]:
    """The steps that take the groups of `axes` away from a tensor, least `order` first.

    Axes of length 1 take no step, nor does a tensor without elements.
    """
    steps: list[Step] = []
    parts = [] if 0 in shape else _merged([(dim, axis in axes) for axis, dim in enumerate(shape)])
    while any(taken for _, taken in parts):
        sizes = [size for size, _ in parts]
        candidates = [
            (i, Step(prod(sizes[:i]), size, prod(sizes[i + 1 :]))) for i, (size, taken) in enumerate(parts) if taken
        ]
        place, step = min(candidates, key=lambda candidate: order(candidate[1]))
        steps.append(step)
        parts = _merged(parts[:place] + parts[place + 1 :])
    return steps


def _merged(parts: Sequence[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """(size, whether it is to be taken away) for runs of neighbours that are alike."""
    merged: list[tuple[int, bool]] = []
    for size, taken in parts:
        if merged and merged[-1][1] is taken:
            merged[-1] = merged[-1][0] * size, taken
        elif size != 1:
            merged.append((size, taken))
    return merged
