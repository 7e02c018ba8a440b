"""What a drawing shows, before anybody decides where: boxes, arrows between them and framed regions.

DOT and SVG are both written from here, so that they show the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.inspection.label import id_label, operator_label, printable, type_label, value_label
from tinychain.autodiff.inspection.parts import SHAPE_PARAMS, Artifact, Part, alike, parts
from tinychain.autodiff.inspection.regions import Region
from tinychain.autodiff.inspection.view import ROLES

OPERATION: Final = "operation"
REGION: Final = "region"
KINDS: Final = (*ROLES, OPERATION, REGION)

_LINE_LIMIT: Final = 40
_OTHERS_SHOWN: Final = 4


@dataclass(frozen=True)
class Box:
    """One value with the operation that makes it, if any. `lines` are its label, `details` all that is known of it.

    `kind` is one of KINDS, REGION for one that is drawn as a single box; `frame` is the index of the frame around it.
    The last of the lines is the name of an output if `has_result`.
    """

    kind: str
    lines: tuple[str, ...]
    details: str
    is_output: bool = False
    frame: int | None = None
    has_result: bool = False


@dataclass(frozen=True)
class Arrow:
    """One box reads another, in which of how many operand slots."""

    tail: int
    head: int
    slot: int
    slots: int


@dataclass(frozen=True)
class Panel:
    """The drawing of one program; `frames` are the names of its regions, `notes` name the programs that are alike."""

    title: str
    notes: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    frames: tuple[str, ...]


def panels(artifact: Artifact, regions: object, *, collapse: bool, limit: int) -> list[Panel]:
    """One panel a program, or for those that differ in nothing but shapes.

    Raises as `parts` does, TypeError for bad options, ValueError beyond the limit.
    """
    if not isinstance(collapse, bool):
        raise TypeError(f"collapse must be a bool, got {quote(collapse)}")
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit must be an int, got {quote(limit)}")
    found = [_panel(first, others, collapse=collapse) for first, *others in alike(parts(artifact, regions))]
    count = sum([len(panel.boxes) for panel in found])
    if count > limit:
        raise too_large(f"{count:,} boxes", limit)
    return found


def too_large(what: str, limit: int) -> ValueError:
    """The refusal of a drawing that nobody could read."""
    return ValueError(
        f"the drawing has {what}, too many for limit={limit}; draw the programs of a step one by one, draw each region"
        " as one box with collapse=True, or raise the limit"
    )


def _panel(part: Part, others: Sequence[Part], *, collapse: bool) -> Panel:
    graph = part.drawn.graph
    results = _Results(graph.outputs, part.drawn.output_names)
    frames = _frames(part.regions, graph.nodes)
    frame_of = {node_id: index for index, (_, node_ids) in enumerate(frames) for node_id in node_ids}
    boxes: list[Box] = []
    box_of: dict[str, int] = {}
    for value_id, spec in graph.inputs:
        box_of[value_id] = len(boxes)
        boxes.append(results.marked(_input_box(part, value_id, spec), [value_id]))

    collapsed: dict[int, int] = {}  # of a frame: its one box
    members: dict[int, list[TensorNodeRecord]] = defaultdict(list)  # of a box: its nodes
    for node in graph.nodes:
        frame = frame_of.get(node.node_id)
        index = len(boxes)
        if collapse and frame is not None:
            index = collapsed.setdefault(frame, index)
        members[index].append(node)
        box_of[node.output_value_id] = index
        if index == len(boxes):
            boxes.append(results.marked(_node_box(node, frame), [node.output_value_id]))
    for frame, index in collapsed.items():
        values = [node.output_value_id for node in members[index]]
        boxes[index] = results.marked(_region_box(frames[frame][0], members[index]), values)
    return Panel(
        title=printable(part.name),
        notes=tuple(_notes(others)),
        boxes=tuple(boxes),
        arrows=tuple(_arrows(members, box_of)),
        frames=() if collapse else tuple([label for label, _ in frames]),
    )


class _Results:
    """The outputs of a program, and what a step calls them."""

    def __init__(self, outputs: Sequence[str], names: Mapping[str, str]) -> None:
        self._outputs = frozenset(outputs)
        self._names = names

    def marked(self, box: Box, values: Iterable[str]) -> Box:
        """The box of these values, as an output if one of them is."""
        outputs = [value_id for value_id in values if value_id in self._outputs]
        if not outputs:
            return box
        names = ", ".join([self._names[value_id] for value_id in outputs if value_id in self._names])
        lines = (*box.lines, printable(f"= {names}", _LINE_LIMIT)) if names else box.lines
        return replace(box, lines=lines, is_output=True, has_result=bool(names))


def _notes(others: Sequence[Part]) -> Iterator[str]:
    if others:
        yield "and, alike but for shapes:"
    for other in others[:_OTHERS_SHOWN]:
        yield printable(f"{other.name} : {other.type}")
    if len(others) > _OTHERS_SHOWN:
        yield f"{len(others) - _OTHERS_SHOWN:,} more"


def _arrows(members: Mapping[int, Sequence[TensorNodeRecord]], box_of: Mapping[str, int]) -> Iterable[Arrow]:
    for index, nodes in members.items():
        operands = [operand for node in nodes for operand in node.input_value_ids]
        if len(nodes) > 1:
            operands = [operand for operand in dict.fromkeys(operands) if box_of[operand] != index]
        for slot, operand in enumerate(operands):
            yield Arrow(box_of[operand], index, slot, len(operands))


def _input_box(part: Part, value_id: str, spec: Any) -> Box:
    role, name = part.drawn.roles[value_id], part.drawn.names.get(value_id)
    lines = [_type(spec), _id(value_id)] if name else [_type(spec)]
    title = printable(name, _LINE_LIMIT) if name else _id(value_id)
    details = f"{role}{f' {name}' if name else ''}: {_id(value_id)} : {_type(spec)}"
    return Box(role, (title, *lines), printable(details))


def _node_box(node: TensorNodeRecord, frame: int | None) -> Box:
    name = operator_label(node.operator)
    params = [f"{key}: {value_label(value)}" for key, value in node.op_params.items()]
    shown = [text for key, text in zip(node.op_params, params, strict=True) if key not in SHAPE_PARAMS]
    ids = f"{_id(node.output_value_id)} @{_id(node.node_id)}"
    type_ = _type(node.output_typespec)
    operands = ", ".join(map(_id, node.input_value_ids))
    details = f"{_id(node.output_value_id)} = {name}({operands}) {{{', '.join(params)}}} : {type_} @{_id(node.node_id)}"
    lines = [name, *([", ".join(shown)] if shown else []), type_, ids]
    return Box(OPERATION, tuple([printable(line, _LINE_LIMIT) for line in lines]), printable(details), frame=frame)


def _region_box(label: str, nodes: Sequence[TensorNodeRecord]) -> Box:
    ids = ", ".join([_id(node.node_id) for node in nodes])
    passes, _, sources = label.partition(": ")
    lines = [passes, *([sources] if sources else []), f"{len(nodes):,} operations", _type(nodes[-1].output_typespec)]
    return Box(REGION, tuple([printable(line, _LINE_LIMIT) for line in lines]), printable(f"{label} became {ids}"))


def _type(spec: Any) -> str:
    return type_label(spec, _LINE_LIMIT)


def _id(id_: str) -> str:
    return id_label(id_, _LINE_LIMIT)


# ----------------------------------------------------------------------------------------------------------- regions


def _frames(regions: Sequence[Region], nodes: Sequence[TensorNodeRecord]) -> list[tuple[str, tuple[str, ...]]]:
    """The name and the node ids of each frame.

    A region that something else lies between (its values lead out of it and back) has no shape of its own among the
    others, so each of its nodes gets a frame, all of one name.
    """
    groups = {node_id: index for index, region in enumerate(regions) for node_id in region.emitted_node_ids}
    group_of = {}
    for position, node in enumerate(nodes, start=len(regions)):
        group_of[node.output_value_id] = groups.get(node.node_id, position)
    edges = {
        (group_of[operand], group_of[node.output_value_id])
        for node in nodes
        for operand in node.input_value_ids
        if operand in group_of and group_of[operand] != group_of[node.output_value_id]
    }
    tangled = _on_cycles(len(regions) + len(nodes), edges)
    frames: list[tuple[str, tuple[str, ...]]] = []
    for index, region in enumerate(regions):
        if index in tangled:
            frames += [(region.label, (node_id,)) for node_id in region.emitted_node_ids]
        elif region.emitted_node_ids:
            frames.append((region.label, region.emitted_node_ids))
    return frames


def _on_cycles(count: int, edges: Collection[tuple[int, int]]) -> set[int]:
    """Who is left when all to whom nobody leads, and then all who lead to nobody, are taken away one by one."""
    left = set(range(count))
    for start, end in ((0, 1), (1, 0)):
        followers: dict[int, list[int]] = defaultdict(list)
        waiting: Counter[int] = Counter()
        for edge in edges:
            if left.issuperset(edge):
                followers[edge[start]].append(edge[end])
                waiting[edge[end]] += 1
        free = [group for group in left if not waiting[group]]
        while free:
            group = free.pop()
            left.discard(group)
            for follower in followers[group]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    free.append(follower)
    return left
