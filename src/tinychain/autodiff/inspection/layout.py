"""Boxes in layers, and lines between them that cross no box, after Sugiyama, Tagawa and Toda (1981).

A line that spans several layers holds a slot of its own in each of them. All arithmetic is on ints, so that a drawing
is the same on every machine.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

Point: TypeAlias = tuple[int, int]

_SLOT_WIDTH: Final = 8
_SLOT_GAP: Final = 22
_LAYER_GAP: Final = 34
_ORDER_SWEEPS: Final = 8
#: From one position to the next, in the order of a layer: more than any offset.
_POSITION: Final = 10_000
_PLACE_SWEEPS: Final = 12


class Link(NamedTuple):
    """A line from the bottom of one box to the top of another, at offsets from the middles of these."""

    tail: int
    head: int
    tail_dx: int = 0
    head_dx: int = 0


class Layout(NamedTuple):
    """The middles of the boxes, a route for each link, and the extent, which begins at (0, 0).

    A route alternates between vertical pieces, the first and the last of them, and pieces that bridge two layers. Where
    an earlier one from the same place goes the same way, it begins where the two part.
    """

    centers: list[Point]
    routes: list[list[Point]]
    width: int
    height: int


def lay_out(
    sizes: Sequence[tuple[int, int]],
    links: Sequence[Link],
    *,
    top: Sequence[int] = (),
    bottom: Collection[int] = (),
    most_slots: int,
) -> Layout | None:
    """The layout of boxes of even widths whose links make no cycle, or None where it takes more than `most_slots`.

    `top` boxes get a layer of their own above all others, in which the first of them is leftmost, `bottom` boxes one
    below.
    """
    layers = _layers(len(sizes), links, frozenset(top), frozenset(bottom))
    slots = _Slots(sizes, links, layers, top)
    if not slots.add_lines(most_slots):
        return None
    slots.order()
    slots.place()
    return slots.layout()


def _layers(count: int, links: Sequence[Link], top: Collection[int], bottom: Collection[int]) -> list[int]:
    """The layer of each box: below all that it reads, and as near to its readers as costs no longer lines."""
    readers: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for tail, head in dict.fromkeys([(link.tail, link.head) for link in links]):
        readers[tail].append(head)
        waiting[head] += 1
    operands = list(waiting)
    layers = [0 if box in top or not top else 1 for box in range(count)]
    order = [box for box in range(count) if not waiting[box]]
    for box in order:
        for reader in readers[box]:
            layers[reader] = max(layers[reader], layers[box] + 1)
            waiting[reader] -= 1
            if not waiting[reader]:
                order.append(reader)
    last = 1 + max([layers[box] for box in range(count) if box not in bottom], default=-1)
    for box in bottom:
        layers[box] = last
    for box in reversed(order):
        if box not in top and readers[box] and operands[box] <= len(readers[box]):
            layers[box] = min([layers[reader] for reader in readers[box]]) - 1
    return layers


class _Slots:
    """Boxes and the places that lines hold in the layers between; the boxes come first, under their own numbers."""

    def __init__(
        self, sizes: Sequence[tuple[int, int]], links: Sequence[Link], layers: list[int], top: Sequence[int]
    ) -> None:
        self._links = links
        self._sizes = list(sizes)
        self._layer = layers
        self._leftmost = top[0] if top else None
        self._boxes = len(sizes)
        self._leaves = {box for box in range(len(sizes)) if box not in top} - {link.head for link in links}
        # Slot -> (slot in the next layer, offset here, offset there, weight), and the same towards the layer before.
        self._below: list[list[tuple[int, int, int, int]]] = [[] for _ in sizes]
        self._above: list[list[tuple[int, int, int, int]]] = [[] for _ in sizes]
        self._trunks: dict[tuple[int, int], list[int]] = {}  # of a tail and its offset: its slots, layer by layer
        self._x = [0] * len(sizes)

    def add_lines(self, most: int) -> bool:
        """Gives each line its slots, which all lines from one place share; False where these are too many."""
        furthest: dict[tuple[int, int], int] = {}
        for link in self._links:
            trunk = link.tail, link.tail_dx
            furthest[trunk] = max(furthest.get(trunk, 0), self._layer[link.head] - self._layer[link.tail] - 1)
        if sum(furthest.values()) > most:
            return False
        for (tail, dx), length in furthest.items():
            before, offset = tail, dx
            slots: list[int] = []
            for step in range(length):
                slot = len(self._sizes)
                self._sizes.append((_SLOT_WIDTH, 0))
                self._layer.append(self._layer[tail] + step + 1)
                self._below.append([])
                self._above.append([])
                self._join(before, slot, offset, 0, weight=(8 if step else 2) * self._weight(tail))
                slots.append(slot)
                before, offset = slot, 0
            self._trunks[tail, dx] = slots
        for link in self._links:
            reach = self._layer[link.head] - self._layer[link.tail] - 1
            last = self._trunks[link.tail, link.tail_dx][reach - 1] if reach else link.tail
            weight = (2 if reach else 1) * self._weight(link.tail)
            self._join(last, link.head, 0 if reach else link.tail_dx, link.head_dx, weight)
        self._x += [0] * (len(self._sizes) - len(self._x))
        return True

    def _weight(self, tail: int) -> int:
        """How straight the lines from a box want to be: what is computed goes before what is only read."""
        return 1 if tail in self._leaves else 4

    def _join(self, upper: int, lower: int, upper_dx: int, lower_dx: int, weight: int) -> None:
        self._below[upper].append((lower, upper_dx, lower_dx, weight))
        self._above[lower].append((upper, lower_dx, upper_dx, weight))

    # -------------------------------------------------------------------------------------------------------- order

    def order(self) -> None:
        """Orders each layer by where its neighbours stand, to and fro, and keeps the order with fewest crossings."""
        layers: list[list[int]] = [[] for _ in range(1 + max(self._layer, default=-1))]
        for slot, layer in enumerate(self._layer):
            layers[layer].append(slot)
        best, fewest = [list(layer) for layer in layers], self._crossings(layers)
        for sweep in range(_ORDER_SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            sides = self._above if down else self._below
            for fixed, moved in _neighbours(layers, down=down):
                position = {slot: _POSITION * index for index, slot in enumerate(fixed)}
                moved.sort(key=self._barycenter(sides, position, moved))
            crossings = self._crossings(layers)
            if crossings < fewest:
                best, fewest = [list(layer) for layer in layers], crossings
        self._layers = best

    def _barycenter(
        self, sides: list[list[tuple[int, int, int, int]]], position: dict[int, int], layer: Sequence[int]
    ) -> Callable[[int], float]:
        own = {slot: _POSITION * index for index, slot in enumerate(layer)}

        def key(slot: int) -> float:
            if slot == self._leftmost:
                return -_POSITION
            neighbours = [position[other] + there for other, _, there, _ in sides[slot]]
            return sum(neighbours) / len(neighbours) if neighbours else own[slot]

        return key

    def _crossings(self, layers: Sequence[Sequence[int]]) -> int:
        crossings = 0
        for upper, lower in pairwise(layers):
            position = {slot: index for index, slot in enumerate(lower)}
            seen: list[tuple[int, int]] = []
            for slot in upper:
                ends = [(dx, (position[below], there)) for below, dx, there, _ in self._below[slot]]
                for _, end in sorted(ends):
                    crossings += len(seen) - bisect_right(seen, end)
                    insort(seen, end)
        return crossings

    # -------------------------------------------------------------------------------------------------------- place

    def place(self) -> None:
        """Moves every slot to where its lines are straight, as far as its neighbours in the layer let it."""
        for layer in self._layers:
            self._spread(layer, [0] * len(layer), [1] * len(layer))
        for sweep in range(_PLACE_SWEEPS + 1):
            down = sweep % 2 == 0
            for _, layer in _neighbours(self._layers, down=down):
                wanted, weights = [], []
                for slot in layer:
                    ends = self._above[slot] if down else self._below[slot]
                    if sweep >= _PLACE_SWEEPS - 2:
                        ends = self._above[slot] + self._below[slot]
                    weight = sum([end[3] for end in ends])
                    pull = sum(
                        [(self._x[other] + there - here) * end_weight for other, here, there, end_weight in ends]
                    )
                    wanted.append(pull // weight if weight else self._x[slot])
                    weights.append(8 * weight or 1)
                self._spread(layer, wanted, weights)

    def _spread(self, layer: Sequence[int], wanted: Sequence[int], weights: Sequence[int]) -> None:
        """The nearest places to the wanted ones, by least squares, in which no two slots are too close.

        Slots that want to be too close form a group, which goes where its members want on average.
        """
        offsets, edge = [], 0
        for slot in layer:
            half = self._sizes[slot][0] // 2
            offsets.append(edge + half)
            edge += 2 * half + _SLOT_GAP
        groups: list[tuple[int, int, int]] = []  # the sum of weight * place, the sum of weights, how many
        for place, offset, weight in zip(wanted, offsets, weights, strict=True):
            pull, total, count = (place - offset) * weight, weight, 1
            while groups and groups[-1][0] * total > pull * groups[-1][1]:
                before = groups.pop()
                pull, total, count = pull + before[0], total + before[1], count + before[2]
            groups.append((pull, total, count))
        shifts = [pull // total for pull, total, count in groups for _ in range(count)]
        for slot, shift, offset in zip(layer, shifts, offsets, strict=True):
            self._x[slot] = shift + offset

    # ------------------------------------------------------------------------------------------------------- layout

    def layout(self) -> Layout:
        left = min([self._x[slot] - self._sizes[slot][0] // 2 for slot in range(len(self._sizes))], default=0)
        right = max([self._x[slot] + self._sizes[slot][0] // 2 for slot in range(len(self._sizes))], default=0)
        x = [place - left for place in self._x]
        bands, y = [], 0
        for layer in self._layers:
            height = max([self._sizes[slot][1] for slot in layer], default=0)
            bands.append((y, y + height))
            y += height + _LAYER_GAP
        centers = [(x[box], sum(bands[self._layer[box]]) // 2) for box in range(self._boxes)]
        routes = []
        shown: dict[tuple[int, int], int] = {}  # of a trunk: how many of its slots a route goes through already
        for link in self._links:
            first, last = self._layer[link.tail], self._layer[link.head]
            start, end = x[link.tail] + link.tail_dx, x[link.head] + link.head_dx
            tail_half, head_half = self._sizes[link.tail][1] // 2, self._sizes[link.head][1] // 2
            trunk, reach = (link.tail, link.tail_dx), last - first - 1
            begun = min(shown.get(trunk, 0), reach)
            shown[trunk] = max(shown.get(trunk, 0), reach)
            route = [] if begun else [(start, centers[link.tail][1] + tail_half), (start, bands[first][1])]
            for step in range(max(begun - 1, 0), reach):
                slot, (above, below) = self._trunks[trunk][step], bands[first + 1 + step]
                route += [(x[slot], above), (x[slot], below)]
            route += [(end, bands[last][0]), (end, centers[link.head][1] - head_half)]
            routes.append(route)
        return Layout(centers, routes, right - left, max(y - _LAYER_GAP, 0))


def _neighbours(layers: list[list[int]], *, down: bool) -> list[tuple[list[int], list[int]]]:
    """The pairs of a layer that stays and the next one, which moves, downwards or upwards."""
    ordered = layers if down else layers[::-1]
    return list(pairwise(ordered))
