"""The DOT text: it parses, and says what the artifact says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from by_hand import F32
from dags import dag, op
from inspected import Cluster, main_job, read_dot
from strategies import graphs, hostile_ids, programs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.inspection import to_dot


def labels(cluster: Cluster) -> dict[str, str]:
    """The first line of each box's label, by the box."""
    return {name: attributes["label"].splitlines()[0] for name, attributes in cluster.nodes.items()}


def test_the_main_job_has_a_cluster_a_program_and_one_a_region() -> None:
    root = read_dot(to_dot(main_job()))
    assert [panel.label for panel in root.clusters] == ["forward", "derivative", "update of w"]
    forward, derivative, update = root.clusters
    assert [frame.label for frame in forward.clusters] == ["expand_mean_graph: mean n3"]
    assert [frame.label for frame in derivative.clusters] == ["partial: broadcast dn1, div dn2"]
    assert update.clusters == []
    assert list(labels(forward.clusters[0]).values()) == ["fill", "matmul", "fill", "matmul", "mul", "reshape"]
    assert list(labels(forward).values()) == ["x", "y", "w", "matmul", "sub", "mul"]


def test_kinds_differ_by_shape_and_outputs_by_their_border() -> None:
    forward, derivative, _ = read_dot(to_dot(main_job())).clusters
    shapes = {name: forward.nodes[box]["shape"] for box, name in labels(forward).items()}
    shapes |= {name: derivative.nodes[box]["shape"] for box, name in labels(derivative).items()}
    found = {name: shapes[name] for name in ("x", "w", "v4", "seed", "matmul")}
    assert found == {"x": "ellipse", "w": "hexagon", "v4": "note", "seed": "octagon", "matmul": "box"}
    outputs = [labels(forward)[box] for box, attributes in forward.nodes.items() if "peripheries" in attributes]
    assert outputs == ["sub"]


def test_an_edge_stands_for_each_operand() -> None:
    (panel,) = read_dot(to_dot(dag(op("z", "x", "y", "x"), outputs=["z"], inputs=("x", "y")))).clusters
    assert panel.edges == [("b0", "b2"), ("b1", "b2"), ("b0", "b2")]


def test_a_collapsed_region_is_one_box() -> None:
    forward, *_ = read_dot(to_dot(main_job(), collapse=True)).clusters
    assert forward.clusters == []
    (box,) = [attributes for attributes in forward.nodes.values() if attributes["shape"] == "box3d"]
    assert box["label"] == "expand_mean_graph\nmean n3\n6 operations\nf32[]\n= loss"
    assert box["tooltip"] == "expand_mean_graph: mean n3 became exn0, exn1, exn2, exn3, exn4, exn5"
    assert box["peripheries"] == "2"


def test_a_box_says_what_the_node_is() -> None:
    (panel,) = read_dot(to_dot(dag(op("z", "x", factor=0.123456789), outputs=["z"]))).clusters
    assert panel.nodes["b1"]["label"] == "AnyOperator\nfactor: 0.123456789\nf32[2]\nz @n_z".replace("f32[2]", _type())
    assert panel.nodes["b1"]["tooltip"] == f"z = AnyOperator(x) {{factor: 0.123456789}} : {_type()} @n_z"


def _type() -> str:
    return f"{F32['dtype']}[{', '.join(map(str, F32['shape']))}]"


@given(st.lists(hostile_ids.filter(bool), min_size=3, max_size=3, unique=True), hostile_ids)
def test_any_id_is_shown_and_breaks_nothing(ids: list[str], node_id: str) -> None:
    x, y, z = ids
    graph = dag(op(y, x, node_id=f"1{node_id}"), op(z, y, x, node_id=f"2{node_id}"), outputs=[z], inputs=[(x, None)])
    (panel,) = read_dot(to_dot(graph)).clusters
    assert list(panel.nodes) == ["b0", "b1", "b2"]
    assert panel.edges == [("b0", "b1"), ("b1", "b2"), ("b0", "b2")]
    assert all(attributes["label"].replace("\n", "").isprintable() for attributes in panel.nodes.values())


def test_a_hostile_id_is_shown_in_the_notation() -> None:
    graph = dag(op('a"]; &lt;\\\n', "x", node_id="n"), outputs=['a"]; &lt;\\\n'])
    (panel,) = read_dot(to_dot(graph)).clusters
    assert panel.nodes["b1"]["label"].splitlines()[-1] == '"a\\"]; &lt;\\\\\\n" @n'


@given(graphs | programs())
def test_anything_is_drawn_or_refused_with_a_category(artifact: TensorGraph | DerivativeProgram) -> None:
    try:
        text = to_dot(artifact)
    except AutodiffError:
        return
    read_dot(text)


# ----------------------------------------------------------------------------------------------------------- refusals


def test_a_graph_beyond_the_limit_is_refused_with_what_to_do() -> None:
    graph = dag(op("a", "x"), op("b", "a"), outputs=["b"])
    assert to_dot(graph, limit=3)
    with pytest.raises(ValueError, match=r"3 boxes, too many for limit=2; .* collapse=True, or raise the limit"):
        to_dot(graph, limit=2)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"limit": "3"}, "limit must be an int, got '3'"),
        ({"limit": True}, "limit must be an int, got True"),
        ({"collapse": 1}, "collapse must be a bool, got 1"),
    ],
)
def test_a_bad_option_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        to_dot(dag(outputs=["x"]), **option)
