"""The geometry of drawings: nothing overlaps, no line runs through a box, and frames hold what is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags import chain, dag, fan_in, op
from inspected import main_job, three_layer_step
from strategies import traced_graphs
from tinychain.autodiff.expansion import MeanExpansionRegion
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.inspection.drawing import panels
from tinychain.autodiff.inspection.layout import Point
from tinychain.autodiff.inspection.place import Line, Picture, Placed, place


def region(*node_ids: str, name: str = "a_pass") -> MeanExpansionRegion:
    return MeanExpansionRegion(name, ("gone",), node_ids, "terminal", "tier")


def picture(graph: TensorGraph, *regions: MeanExpansionRegion, collapse: bool = False) -> Picture:
    (panel,) = panels(graph, regions, collapse=collapse, limit=1000)
    return place(panel, 1000)


def overlap(a: Placed, b: Placed) -> bool:
    return 2 * abs(a.x - b.x) < a.width + b.width and 2 * abs(a.y - b.y) < a.height + b.height


def inside(inner: Placed, outer: Placed) -> bool:
    return (
        outer.left <= inner.left
        and inner.left + inner.width <= outer.left + outer.width
        and outer.top <= inner.top
        and inner.top + inner.height <= outer.top + outer.height
    )


def has(placed: Placed, point: tuple[float, float]) -> bool:
    """Whether a point is within, the border not included."""
    return 2 * abs(point[0] - placed.x) < placed.width and 2 * abs(point[1] - placed.y) < placed.height


def points_on(line: Line) -> Iterator[tuple[float, float]]:
    """Points along a line, on whose bridging pieces the tangents at both ends are vertical."""
    for (x, y), (to_x, to_y) in pairwise(line.points):
        for step in range(9):
            t = step / 8
            yield x + (to_x - x) * (3 * t**2 - 2 * t**3), y + (to_y - y) * (1.5 * t - 1.5 * t**2 + t**3)


def check(drawn: Picture) -> None:
    for a, b in combinations(drawn.boxes, 2):
        assert not overlap(a, b)
    for a, b in combinations([frame.outline for frame in drawn.frames], 2):
        assert not overlap(a, b)
    for box, placed in zip(drawn.panel.boxes, drawn.boxes, strict=True):
        for index, frame in enumerate(drawn.frames):
            assert inside(placed, frame.outline) == (box.frame == index)
            assert overlap(placed, frame.outline) == (box.frame == index)
            assert not overlap(placed, frame.title)
    for frame in drawn.frames:
        assert inside(frame.title, frame.outline)
        assert frame.title.left - frame.outline.left == 12
    page = Placed(drawn.width // 2, drawn.height // 2, drawn.width + 1, drawn.height + 1)
    for line in drawn.lines:
        ends = [line.points[0], line.points[-1]]
        for point in points_on(line):
            assert has(page, point)
            assert not any(has(box, point) for box in drawn.boxes)
            for frame in drawn.frames:
                assert not has(frame.title, point)
                if has(frame.outline, point):
                    assert any(touches(frame.outline, end) for end in ends)


def touches(placed: Placed, point: Point) -> bool:
    return 2 * abs(point[0] - placed.x) <= placed.width and 2 * abs(point[1] - placed.y) <= placed.height


@given(traced_graphs(max_operations=14))
def test_a_traced_graph_is_drawn_without_a_collision(graph: TensorGraph) -> None:
    check(picture(graph))


@given(traced_graphs(max_operations=14), st.data())
def test_so_it_is_with_any_nodes_in_regions(graph: TensorGraph, data: st.DataObject) -> None:
    groups: dict[int, list[str]] = {}
    for node in graph.nodes:
        group = data.draw(st.sampled_from([0, 0, 1, 2]))
        if group:
            groups.setdefault(group, []).append(node.node_id)
    regions = [region(*node_ids, name=f"pass {group}") for group, node_ids in groups.items()]
    check(picture(graph, *regions))
    check(picture(graph, *regions, collapse=True))


@pytest.mark.parametrize("graph", [chain(40), fan_in(40), dag(outputs=["x"]), TensorGraph([], [], [])])
def test_long_wide_and_empty_graphs(graph: TensorGraph) -> None:
    check(picture(graph))


def test_the_steps_that_people_look_at() -> None:
    for step in (main_job(), three_layer_step()):
        for panel in panels(step, (), collapse=False, limit=1000):
            check(place(panel, 1000))


def test_a_region_that_others_lie_between_gets_a_frame_for_each_node() -> None:
    graph = dag(op("a", "x"), op("between", "a"), op("b", "between"), outputs=["b"])
    drawn = picture(graph, region("n_a", "n_b"))
    assert [frame.label for frame in drawn.frames] == ["a_pass: gone", "a_pass: gone"]
    check(drawn)


def test_regions_that_read_each_other_get_one_too() -> None:
    graph = dag(op("a", "x"), op("b", "x"), op("c", "b"), op("d", "a"), outputs=["c", "d"])
    drawn = picture(graph, region("n_a", "n_c"), region("n_b", "n_d", name="other"))
    assert [frame.label for frame in drawn.frames] == ["a_pass: gone"] * 2 + ["other: gone"] * 2
    check(drawn)


def test_an_input_stands_right_above_its_reader() -> None:
    graph = dag(op("a", "x"), op("b", "a"), op("c", "b", "y"), outputs=["c"], inputs=("x", "y"))
    drawn = picture(graph)
    x, y, a, b, c = [placed.y for placed in drawn.boxes]
    assert x < a < b == y < c


def test_a_line_begins_at_a_box_or_where_it_leaves_another() -> None:
    nodes = [op(f"c{i}", f"c{i - 1}" if i else "x", "y") for i in range(9)]
    graph = dag(*nodes, outputs=["c8"], inputs=("x", "y"))
    for drawn in (picture(graph), picture(graph, region(*[f"n_c{i}" for i in range(2, 7)]))):
        seen: set[Point] = set()
        for line in sorted(drawn.lines, key=lambda line: line.points[0][1]):
            start = line.points[0]
            borders = [*drawn.boxes, *[frame.outline for frame in drawn.frames]]
            assert start in seen or any(touches(placed, start) for placed in borders)
            seen |= {*line.points}
        tips = [line.points[-1] for line in drawn.lines if line.has_tip]
        assert len(tips) == len(set(tips)) == 18


def test_operands_arrive_from_left_to_right() -> None:
    graph = dag(op("z", "x", "y"), outputs=["z"], inputs=("x", "y"))
    first, second = picture(graph).lines
    assert first.points[-1][0] < second.points[-1][0]


def test_the_longest_chain_is_straight() -> None:
    graph = dag(op("a", "x"), op("b", "a", "y"), op("c", "b"), op("d", "c"), outputs=["d"], inputs=("x", "y"))
    places = dict(zip("x y a b c d".split(), picture(graph).boxes, strict=True))
    assert abs(places["b"].x - places["d"].x) <= 2
