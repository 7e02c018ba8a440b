"""A drawing as a self-contained SVG: no script, no font and no picture from elsewhere, readable in light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate, islice, pairwise
from typing import Final

from tinychain.autodiff.inspection.drawing import OPERATION, REGION, Box, panels
from tinychain.autodiff.inspection.layout import Point
from tinychain.autodiff.inspection.parts import Artifact
from tinychain.autodiff.inspection.place import LINE_HEIGHT, TITLE_HEIGHT, Line, Picture, Placed, place, text_width
from tinychain.autodiff.inspection.view import CAPTURE, INPUT, PARAMETER, SEED

_MARGIN: Final = 24
_PADDING: Final = 14
_SAMPLE: Final = (30, 18)
#: The least that a legend is broken at, and how many widths of the rows are tried.
_NARROWEST: Final = 600
_SHELVES_TRIED: Final = 100
#: How far slanting corners are cut, at most.
_CUT: Final = 12

_LIGHT: Final = """
.tc-page{fill:#ffffff}
.tc-panel{fill:none;stroke:#d0d7de}
.tc-text{fill:#1f2328;font-size:12px;font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.tc-name{font-weight:bold}
.tc-note{fill:#59636e}
.tc-box{stroke:#59636e;fill:#ffffff}
.tc-inner{fill:none}
.tc-input{fill:#ddf4ff;stroke:#0969da}
.tc-parameter{fill:#dafbe1;stroke:#1a7f37}
.tc-capture{fill:#fbefff;stroke:#8250df}
.tc-seed{fill:#ffebe9;stroke:#cf222e}
.tc-line{fill:none;stroke:#59636e;stroke-width:1.3}
.tc-tip{fill:#59636e}
.tc-frame{fill:#fff8c5;stroke:#9a6700;stroke-width:1.5;stroke-dasharray:6 4}
.tc-title{fill:#7d4e00}
"""
_DARK: Final = """
.tc-page{fill:#0d1117}
.tc-panel{stroke:#3d444d}
.tc-text{fill:#f0f6fc}
.tc-note{fill:#c5ccd3}
.tc-box{stroke:#9198a1;fill:#212830}
.tc-inner{fill:none}
.tc-input{fill:#0c2d6b;stroke:#58a6ff}
.tc-parameter{fill:#0f5323;stroke:#3fb950}
.tc-capture{fill:#3c1e70;stroke:#bc8cff}
.tc-seed{fill:#67060c;stroke:#ff7b72}
.tc-line{stroke:#9198a1}
.tc-tip{fill:#9198a1}
.tc-frame{fill:#272115;stroke:#d29922}
.tc-title{fill:#e3b341}
"""
STYLE: Final = f"{_LIGHT}@media (prefers-color-scheme: dark){{{_DARK}}}"

_OUTPUT: Final = "output"
_FRAME: Final = "frame"

_LEGEND: Final = {
    INPUT: "input",
    PARAMETER: "parameter or state",
    CAPTURE: "captured forward value",
    SEED: "seed",
    OPERATION: "operation",
    REGION: "expanded region, as one box",
    _OUTPUT: "output",
    _FRAME: "expanded region: passes, and what it replaced",
}


def to_svg(artifact: Artifact, *, regions: Sequence[object] = (), collapse: bool = False, limit: int = 2000) -> str:
    """A graph, a derivative program or a compiled step, as lowered, as an SVG document.

    One panel a program, in which data flows downwards; of updates that differ in nothing but shapes, the first is drawn
    and the others are named. Regions (those that a detailed pass reported, or those by which a step's lowered programs
    differ from its sources) are framed and named; `collapse` draws each as one box. Outputs have a double border.
    Raises ValueError for more than `limit` boxes or lines beyond following, and as `summarize` does for what is no
    valid artifact.
    """
    pictures = [place(panel, limit) for panel in panels(artifact, regions, collapse=collapse, limit=limit)]
    body, width, height = _page(pictures)
    title = escape(f"{type(artifact).__name__}: {', '.join([picture.panel.title for picture in pictures])}")
    extent = f'width="{width}" height="{height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {extent} viewBox="0 0 {width} {height}" role="img">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="tc-page" {extent}/>',
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def _page(pictures: Sequence[Picture]) -> tuple[list[str], int, int]:
    """The legend, below it the panels from left to right and top to bottom, and the extent of it all."""
    body: list[str] = []
    sizes = [_panel_size(picture) for picture in pictures]
    shelf = _shelf(sizes)
    places, right, _ = _shelved(sizes, shelf)
    legend, legend_width, top = _legend(pictures, max(shelf, _NARROWEST))
    body += legend
    bottom = top
    for picture, (width, height), (x, y) in zip(pictures, sizes, places, strict=True):
        body.append(f'<g transform="translate({_MARGIN + x} {_MARGIN + top + y})">')
        body += _panel(picture, width, height)
        body.append("</g>")
        bottom = max(bottom, top + y + height)
    return body, max(legend_width, right) + 2 * _MARGIN, bottom + 2 * _MARGIN


def _panel_size(picture: Picture) -> tuple[int, int]:
    head = max([text_width(line) for line in (picture.panel.title, *picture.panel.notes)])
    return max(picture.width, head) + 2 * _PADDING, picture.height + 2 * _PADDING + _head_height(picture)


def _head_height(picture: Picture) -> int:
    """The height of the title and the notes."""
    return TITLE_HEIGHT + LINE_HEIGHT * len(picture.panel.notes)


def _shelf(sizes: Sequence[tuple[int, int]]) -> int:
    """The width of the rows, that of the first few panels or of the widest, at which all fits a 4:3 screen best."""
    widest = max([width for width, _ in sizes], default=0)
    widths = accumulate([width + _MARGIN for width, _ in sizes])
    candidates = [max(widest, width - _MARGIN) for width in islice(widths, _SHELVES_TRIED)]

    def screen(shelf: int) -> int:
        _, width, height = _shelved(sizes, shelf)
        return max(3 * width, 4 * height)

    return min(candidates, key=screen, default=0)


def _shelved(sizes: Sequence[tuple[int, int]], shelf: int) -> tuple[list[Point], int, int]:
    """Where each stands, in rows no wider than `shelf`, and the extent of all."""
    places = []
    x = y = row = right = 0
    for width, height in sizes:
        if x and x + width > shelf:
            x, y, row = 0, y + row + _MARGIN, 0
        places.append((x, y))
        right = max(right, x + width)
        x, row = x + width + _MARGIN, max(row, height)
    return places, right, y + row


def _legend(pictures: Sequence[Picture], shelf: int) -> tuple[list[str], int, int]:
    """A sample of each kind of box that occurs, of an output and of a frame; how wide it is, and how high."""
    boxes = [box for picture in pictures for box in picture.panel.boxes]
    occurring = {box.kind for box in boxes} | {_OUTPUT for box in boxes if box.is_output}
    occurring |= {_FRAME for picture in pictures if picture.frames}
    body: list[str] = []
    x, y, right = 0, 0, 0
    width, height = _SAMPLE
    for kind, text in _LEGEND.items():
        if kind not in occurring:
            continue
        extent = width + 8 + text_width(text)
        if x and x + extent > shelf:
            x, y = 0, y + height + 10
        placed = Placed(_MARGIN + x + width // 2, _MARGIN + y + height // 2, width, height)
        body.append(_outline(placed) if kind == _FRAME else _shape(OPERATION if kind == _OUTPUT else kind, placed))
        if kind == _OUTPUT:
            body.append(_border(OPERATION, placed))
        body.append(_text(placed.left + width + 8, placed.y + 4, text, "tc-note"))
        right = max(right, x + extent)
        x += extent + _MARGIN
    return body, right, y + height + _MARGIN


def _panel(picture: Picture, width: int, height: int) -> Iterator[str]:
    yield f'<rect class="tc-panel" width="{width}" height="{height}" rx="8"/>'
    yield _text(_PADDING, 20, picture.panel.title, "tc-name")
    for line, note in enumerate(picture.panel.notes, start=1):
        yield _text(_PADDING, 20 + LINE_HEIGHT * line, note, "tc-note")
    yield f'<g transform="translate({(width - picture.width) // 2} {_head_height(picture) + _PADDING})">'
    for frame in picture.frames:
        yield _outline(frame.outline)
        yield _text(frame.title.left, frame.title.y + 4, frame.label, "tc-title")
    drawn: set[tuple[Point, Point]] = set()
    yield from [_line(line, drawn) for line in picture.lines]
    for box, placed in zip(picture.panel.boxes, picture.boxes, strict=True):
        yield _box(box, placed)
    yield "</g>"


def _box(box: Box, placed: Placed) -> str:
    parts = ["<g>", f"<title>{escape(box.details)}</title>", _shape(box.kind, placed)]
    if box.is_output:
        parts.append(_border(box.kind, placed))
    first = placed.y - LINE_HEIGHT * len(box.lines) // 2 + 12
    described = len(box.lines) - box.has_result
    for index, line in enumerate(box.lines):
        style = "tc-name" if index in (0, described) else "tc-note" if index > 1 and index == described - 1 else ""
        parts.append(_text(placed.x, first + LINE_HEIGHT * index, line, style, anchor=' text-anchor="middle"'))
    return "".join([*parts, "</g>"])


def _shape(kind: str, placed: Placed, style: str | None = None) -> str:
    """The outline of a kind of box, filled unless a `style` says otherwise."""
    x, y, width, height = placed.left, placed.top, placed.width, placed.height
    right, bottom = x + width, y + height
    css = f'class="{style or f"tc-box tc-{kind}"}"'
    cut = min(_CUT, height // 3)
    match kind:
        case "parameter":
            corners = [(x, placed.y), (x + cut, y), (right - cut, y), (right, placed.y), (right - cut, bottom)]
            return _polygon([*corners, (x + cut, bottom)], css)
        case "seed":
            corners = [(x, y + cut), (x + cut, y), (right - cut, y), (right, y + cut), (right, bottom - cut)]
            return _polygon([*corners, (right - cut, bottom), (x + cut, bottom), (x, bottom - cut)], css)
        case "capture":
            note = _polygon([(x, y), (right - cut, y), (right, y + cut), (right, bottom), (x, bottom)], css)
            return f'{note}<path {css} d="M{right - cut} {y}V{y + cut}H{right}"/>'
        case "region":
            bars = f'<path {css} d="M{x + 5} {y}V{bottom}M{right - 5} {y}V{bottom}"/>'
            return f'<rect {css} x="{x}" y="{y}" width="{width}" height="{height}"/>{bars}'
    radius = height // 2 if kind == INPUT else 4
    return f'<rect {css} x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'


def _border(kind: str, placed: Placed) -> str:
    """The second border of an output."""
    inside = placed._replace(width=placed.width - 6, height=placed.height - 6)
    return _shape(kind, inside, f"tc-box tc-{kind} tc-inner")


def _polygon(corners: Sequence[Point], css: str) -> str:
    return f'<polygon {css} points="{" ".join([f"{x},{y}" for x, y in corners])}"/>'


def _outline(placed: Placed) -> str:
    """The frame of a region."""
    return (
        f'<rect class="tc-frame" x="{placed.left}" y="{placed.top}" width="{placed.width}" height="{placed.height}"'
        ' rx="8"/>'
    )


def _line(line: Line, drawn: set[tuple[Point, Point]]) -> str:
    """The pieces of a line that are not `drawn` yet, as another line from the same place may share some."""
    path, pen = "", None
    for index, piece in enumerate(pairwise(line.points)):
        if piece in drawn:
            continue
        drawn.add(piece)
        start, end = piece
        if pen != start:
            path += f"M{start[0]} {start[1]}"
        if index % 2 and start[0] != end[0]:
            middle = (start[1] + end[1]) // 2
            path += f"C{start[0]} {middle} {end[0]} {middle} {end[0]} {end[1]}"
        else:
            path += f"V{end[1]}"
        pen = end
    x, y = line.points[-1]
    tip = f'<path class="tc-tip" d="M{x} {y}l-4 -8h8z"/>' if line.has_tip else ""
    return f'<path class="tc-line" d="{path}"/>{tip}'


def _text(x: int, y: int, text: str, style: str, anchor: str = "") -> str:
    css = f"tc-text {style}".rstrip()
    return f'<text class="{css}" x="{x}" y="{y}"{anchor}>{escape(text)}</text>'
