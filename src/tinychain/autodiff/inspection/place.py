"""Where the boxes, the frames and the lines of one program go.

Each region is laid out alone, and then stands among the other boxes as a block: so its frame holds what belongs to it
and nothing else, and lines that have no business there go round it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tinychain.autodiff.inspection.drawing import OPERATION, REGION, Arrow, Box, Panel, too_large
from tinychain.autodiff.inspection.label import printable
from tinychain.autodiff.inspection.layout import Layout, Link, Point, lay_out

LINE_HEIGHT = 16
TITLE_HEIGHT = 26
_BOX_PADDING = 6
_BORDER = 4
_FRAME_PADDING = 12
_PORT_WIDTH = 8
_TITLE_LIMIT = 60
#: How many slots the lines of a drawing may take, by the limit on its boxes.
_SLOTS_PER_BOX = 25


class Placed(NamedTuple):
    """A rectangle around its middle."""

    x: int
    y: int
    width: int
    height: int

    @property
    def left(self) -> int:
        return self.x - self.width // 2

    @property
    def top(self) -> int:
        return self.y - self.height // 2


class Line(NamedTuple):
    """A route, as in Layout, and whether it ends in an arrow."""

    points: list[Point]
    has_tip: bool


class Frame(NamedTuple):
    """The frame of a region, and where in it the name stands."""

    label: str
    outline: Placed
    title: Placed


@dataclass(frozen=True)
class Picture:
    """One program, placed: `boxes` in the order of the panel's, `frames` in that of its frames."""

    panel: Panel
    boxes: list[Placed]
    frames: list[Frame]
    lines: list[Line]
    width: int
    height: int


def place(panel: Panel, limit: int) -> Picture:
    """The picture of a panel, from (0, 0) on; ValueError where its lines are too long to be followed."""
    sizes = [box_size(box) for box in panel.boxes]
    blocks = [_Block(label) for label in panel.frames]
    for index, box in enumerate(panel.boxes):
        if box.frame is not None:
            blocks[box.frame].add_box(index, sizes[index])
    frame_of = [box.frame for box in panel.boxes]
    outer = _Outer(sizes, frame_of, blocks)
    for arrow in panel.arrows:
        head_dx = _slot_dx(arrow, sizes[arrow.head][0])
        tail_frame, head_frame = frame_of[arrow.tail], frame_of[arrow.head]
        if head_frame is not None:
            blocks[head_frame].read(arrow.tail, arrow.head, head_dx)
        if tail_frame is not None and tail_frame != head_frame:
            blocks[tail_frame].export(arrow.tail)
    for block in blocks:
        block.lay_out(limit)
    for arrow in panel.arrows:
        outer.connect(arrow.tail, arrow.head, _slot_dx(arrow, sizes[arrow.head][0]))
    return outer.picture(panel, limit)


def box_size(box: Box) -> tuple[int, int]:
    """Even, and wide enough for every line of its label; slanting sides and the second border of outputs need more."""
    slant = 0 if box.kind in (OPERATION, REGION) else 14
    border = _BORDER if box.is_output else 0
    width = max([text_width(line) for line in box.lines]) + 2 * (_BOX_PADDING + 2 + slant + border)
    return width + width % 2, LINE_HEIGHT * len(box.lines) + 2 * (_BOX_PADDING + border)


def text_width(text: str) -> int:
    """The width of a line of 12 px monospace text, of which wide characters take two cells."""
    cells = [2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text]
    return 73 * sum(cells) // 10 + 1


def _slot_dx(arrow: Arrow, width: int) -> int:
    """Where on the top of its box an operand arrives: in the middle part, from left to right."""
    span = width * 6 // 10
    return (2 * arrow.slot + 1) * span // (2 * arrow.slots) - span // 2


@dataclass
class _Block:
    """One region. In its layout, the title comes first, then the boxes and ports, in the order of their arrival."""

    label: str
    sizes: list[tuple[int, int]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    item_of: dict[int, int] = field(default_factory=dict)  # of a box of the region
    entry_of: dict[int, int] = field(default_factory=dict)  # of a box outside that the region reads
    exit_of: dict[int, int] = field(default_factory=dict)  # of a box of the region that is read outside
    layout: Layout = field(default_factory=lambda: Layout([], [], 0, 0))

    def __post_init__(self) -> None:
        self.label = printable(self.label, _TITLE_LIMIT)
        width = text_width(self.label)
        self.sizes.append((width + width % 2, LINE_HEIGHT))

    def _item(self, size: tuple[int, int]) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def add_box(self, box: int, size: tuple[int, int]) -> None:
        self.item_of[box] = self._item(size)

    def read(self, tail: int, head: int, head_dx: int) -> None:
        if tail not in self.item_of and tail not in self.entry_of:
            self.entry_of[tail] = self._item((_PORT_WIDTH, LINE_HEIGHT))
        start = self.item_of[tail] if tail in self.item_of else self.entry_of[tail]
        self.links.append(Link(start, self.item_of[head], 0, head_dx))

    def export(self, box: int) -> None:
        if box not in self.exit_of:
            self.exit_of[box] = self._item((_PORT_WIDTH, 0))
            self.links.append(Link(self.item_of[box], self.exit_of[box]))

    def lay_out(self, limit: int) -> None:
        top, bottom = [0, *self.entry_of.values()], list(self.exit_of.values())
        self.layout = _checked(
            lay_out(self.sizes, self.links, top=top, bottom=bottom, most_slots=_SLOTS_PER_BOX * limit), limit
        )

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.layout.width, self.layout.height
        return width + width % 2 + 2 * _FRAME_PADDING, height + height % 2 + 2 * _FRAME_PADDING

    def place(self, frame: Placed, item: int) -> Placed:
        """Where an item is, once the block has its frame."""
        x, y = self.layout.centers[item]
        return Placed(frame.left + _FRAME_PADDING + x, frame.top + _FRAME_PADDING + y, *self.sizes[item])

    def title(self, frame: Placed) -> Placed:
        """Where the name is: at the left of the frame, as it is leftmost in its layer."""
        place = self.place(frame, 0)
        return place._replace(x=frame.left + _FRAME_PADDING + place.width // 2)

    def port_dx(self, item: int) -> int:
        """Where a port is, from the middle of the block."""
        return self.layout.centers[item][0] + _FRAME_PADDING - self.size[0] // 2

    def lines(self, frame: Placed) -> list[Line]:
        """The lines inside, drawn from and to the border of the frame where they cross it."""
        left, top = frame.left + _FRAME_PADDING, frame.top + _FRAME_PADDING
        lines = []
        for port in [self.place(frame, item) for item in self.entry_of.values()]:
            lines.append(Line([(port.x, frame.top), (port.x, port.top + port.height)], has_tip=False))
        exits = set(self.exit_of.values())
        for link, route in zip(self.links, self.layout.routes, strict=True):
            points = [(x + left, y + top) for x, y in route]
            if link.head in exits:
                points[-1] = points[-1][0], frame.top + frame.height
            lines.append(Line(points, link.head not in exits))
        return lines


class _Outer:
    """The boxes outside of regions and the regions as blocks; the blocks are the first items."""

    def __init__(
        self, sizes: Sequence[tuple[int, int]], frame_of: Sequence[int | None], blocks: Sequence[_Block]
    ) -> None:
        self._sizes = sizes
        self._frame_of = frame_of
        self._blocks = blocks
        self._free = [box for box, frame in enumerate(frame_of) if frame is None]
        self._item_of = {box: item for item, box in enumerate(self._free, start=len(blocks))}
        self._links: dict[Link, bool] = {}

    def connect(self, tail: int, head: int, head_dx: int) -> None:
        tail_frame, head_frame = self._frame_of[tail], self._frame_of[head]
        if tail_frame == head_frame and tail_frame is not None:
            return
        start, start_dx = self._item_of.get(tail, -1), 0
        if tail_frame is not None:
            block = self._blocks[tail_frame]
            start, start_dx = tail_frame, block.port_dx(block.exit_of[tail])
        end, end_dx = self._item_of.get(head, -1), head_dx
        if head_frame is not None:
            block = self._blocks[head_frame]
            end, end_dx = head_frame, block.port_dx(block.entry_of[tail])
        self._links[Link(start, end, start_dx, end_dx)] = head_frame is None

    def picture(self, panel: Panel, limit: int) -> Picture:
        sizes = [*[block.size for block in self._blocks], *[self._sizes[box] for box in self._free]]
        layout = _checked(lay_out(sizes, list(self._links), most_slots=_SLOTS_PER_BOX * limit), limit)
        outlines = [Placed(*layout.centers[item], *block.size) for item, block in enumerate(self._blocks)]
        frames = []
        lines = [Line(route, has_tip) for route, has_tip in zip(layout.routes, self._links.values(), strict=True)]
        boxes: dict[int, Placed] = {
            box: Placed(*layout.centers[item], *self._sizes[box]) for box, item in self._item_of.items()
        }
        for outline, block in zip(outlines, self._blocks, strict=True):
            lines += block.lines(outline)
            frames.append(Frame(block.label, outline, block.title(outline)))
            boxes |= {box: block.place(outline, item) for box, item in block.item_of.items()}
        in_order = [boxes[box] for box in range(len(panel.boxes))]
        return Picture(panel, in_order, frames, lines, layout.width, layout.height)


def _checked(layout: Layout | None, limit: int) -> Layout:
    if layout is None:
        raise too_large("lines that span too many layers", limit)
    return layout
