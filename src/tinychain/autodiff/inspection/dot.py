"""A drawing for Graphviz."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tinychain.autodiff.inspection.drawing import OPERATION, REGION, Box, Panel, panels
from tinychain.autodiff.inspection.parts import Artifact
from tinychain.autodiff.inspection.view import CAPTURE, INPUT, PARAMETER, SEED

_SHAPES: Final = {
    INPUT: "ellipse",
    PARAMETER: "hexagon",
    CAPTURE: "note",
    SEED: "octagon",
    OPERATION: "box",
    REGION: "box3d",
}


def to_dot(artifact: Artifact, *, regions: Sequence[object] = (), collapse: bool = False, limit: int = 2000) -> str:
    """A graph, a derivative program or a compiled step, as lowered, in the DOT language.

    One cluster a program, as `to_svg` has them, and in it one for each region: those that a detailed pass reported, or
    those by which a step's lowered programs differ from its sources. `collapse` draws each region as one box. Outputs
    have a double border. Raises ValueError for more than `limit` boxes, and as `summarize` does for what is no valid
    artifact.
    """
    lines = ["digraph {", '  node [fontname="monospace", fontsize=11]', "  edge [arrowsize=0.7]"]
    first = 0
    for index, panel in enumerate(panels(artifact, regions, collapse=collapse, limit=limit)):
        lines += _panel(panel, index, first)
        first += len(panel.boxes)
    return "\n".join([*lines, "}", ""])


def _panel(panel: Panel, index: int, first: int) -> Iterator[str]:
    framed: dict[int | None, list[str]] = defaultdict(list)
    for box_index, box in enumerate(panel.boxes, start=first):
        framed[box.frame].append(_box(box, box_index))
    yield f"  subgraph cluster_{index} {{"
    title = "\n".join([panel.title, *panel.notes])
    yield f"    label={_quoted(title)}"
    yield from [f"    {line}" for line in framed[None]]
    for frame, label in enumerate(panel.frames):
        yield f"    subgraph cluster_{index}_{frame} {{"
        yield f"      label={_quoted(label)} style=dashed"
        yield from [f"      {line}" for line in framed[frame]]
        yield "    }"
    for arrow in panel.arrows:
        yield f"    b{first + arrow.tail} -> b{first + arrow.head}"
    yield "  }"


def _box(box: Box, index: int) -> str:
    border = ", peripheries=2" if box.is_output else ""
    label, details = _quoted("\n".join(box.lines)), _quoted(box.details)
    return f"b{index} [shape={_SHAPES[box.kind]}, label={label}, tooltip={details}{border}]"


def _quoted(text: str) -> str:
    """A DOT string that is shown as `text`: escapes and HTML entities, which labels know, are undone."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + escaped.replace("\n", "\\n") + '"'
