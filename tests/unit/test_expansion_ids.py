"""The ids that the passes mint: where they start, which prefixes are allowed, and that none is taken already."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tinychain.autodiff.dependencies import analyze_derivative_dependencies
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import (
    EXPANSION_NODE_ID_PREFIX,
    EXPANSION_VALUE_ID_PREFIX,
    expand_mean_derivative_program,
    expand_mean_derivative_program_detailed,
    expand_mean_graph,
    expand_mean_graph_detailed,
)
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.tracing import TensorGraphBuilder

EMPTY_GRAPH = TensorGraph([], [], [])


def trace() -> tuple[TensorGraph, DerivativeProgram]:
    """A mean that keeps its rank, and its gradient: both passes have something to do."""
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[4, 3])
        loss = x.mean(keepdims=True)
    return builder.build(outputs=[loss]), builder.vjp(loss, wrt=[x])


def expand(artifact: TensorGraph | DerivativeProgram, prefix: Any = None) -> Any:
    if isinstance(artifact, TensorGraph):
        return expand_mean_graph(artifact, reserved_id_prefix=prefix)
    return expand_mean_derivative_program(artifact, reserved_id_prefix=prefix)


def failure(artifact: TensorGraph | DerivativeProgram, prefix: Any = None) -> str:
    before = copy.deepcopy(artifact)
    with pytest.raises(AutodiffError) as caught:
        expand(artifact, prefix)
    assert caught.value.category == "malformed_derivative_ir"
    assert artifact == before
    return caught.value.message


def idle(node_id: str = "n9", output: str = "v9", operands: Any = ("v0", "v0")) -> TensorNodeRecord:
    """A node that no output needs."""
    return TensorNodeRecord(
        node_id=node_id, output_value_id=output, operator=AddOperator(), op_params={}, input_value_ids=operands
    )


# ------------------------------------------------------------------------------------------------------------- prefix


def test_the_namespace_is_exported() -> None:
    assert (EXPANSION_NODE_ID_PREFIX, EXPANSION_VALUE_ID_PREFIX) == ("exn", "exv")


@pytest.mark.parametrize(
    "prefix", [0, 17, True, ("ex",), b"ex", ["ex"], "", " ", "\t\n", "v", "n", "d", "values", "new", "dx"]
)
@pytest.mark.parametrize("artifact", [EMPTY_GRAPH, *trace()], ids=["nothing to do", "graph", "program"])
def test_refuses_a_bad_prefix_even_if_nothing_is_to_do(artifact: Any, prefix: Any) -> None:
    assert repr(prefix) in failure(artifact, prefix)


def test_judges_the_prefix_first() -> None:
    with pytest.raises(AutodiffError, match="reserved_id_prefix is 17"):
        expand_mean_graph(None, reserved_id_prefix=17)  # type: ignore[arg-type]


@pytest.mark.parametrize("artifact", trace(), ids=["graph", "program"])
def test_the_default_prefix_may_be_spelled_out(artifact: Any) -> None:
    assert expand(artifact, "ex") == expand(artifact)


@pytest.mark.parametrize("prefix", ["fw", "gx", "exd", "X", "é", "a b"])
@pytest.mark.parametrize("artifact", trace(), ids=["graph", "program"])
def test_another_prefix_changes_the_minted_ids_alone(artifact: Any, prefix: str) -> None:
    def renamed(id_: str) -> str:
        return f"{prefix}{id_.removeprefix('ex')}" if id_.startswith("ex") else id_

    wanted = [
        replace(
            node,
            node_id=renamed(node.node_id),
            output_value_id=renamed(node.output_value_id),
            input_value_ids=[renamed(operand) for operand in node.input_value_ids],
        )
        for node in expand(artifact).nodes
    ]
    assert expand(artifact, prefix).nodes == wanted
    assert wanted != expand(artifact).nodes


def test_counters_start_anew_in_every_call() -> None:
    graph, program = trace()
    first = expand_mean_graph_detailed(graph).regions[0].emitted_node_ids[0]
    again = expand_mean_graph_detailed(graph).regions[0].emitted_node_ids[0]
    other = expand_mean_derivative_program_detailed(program).regions[0].emitted_node_ids[0]
    assert first == again == other == "exn0"


# --------------------------------------------------------------------------------------------------------- collisions


def graph_with(**fields: Any) -> TensorGraph:
    """The traced graph with something added to its fields."""
    graph, _ = trace()
    return replace(graph, **{name: [*getattr(graph, name), *more] for name, more in fields.items()})


def program_with(**fields: Any) -> DerivativeProgram:
    _, program = trace()
    added: dict[str, Any] = {}
    for name, more in fields.items():
        old = getattr(program, name)
        added[name] = {**old, **more} if isinstance(old, dict) else [*old, *more]
    return replace(program, **added)


COLLISIONS: dict[str, tuple[Any, str]] = {
    "graph: input": (graph_with(inputs=[("exv0", None)]), "exv0"),
    "graph: output": (graph_with(outputs=["exv1"]), "exv1"),
    "graph: node id": (graph_with(nodes=[idle(node_id="exn3")]), "exn3"),
    "graph: produced": (graph_with(nodes=[idle(output="exv3")]), "exv3"),
    "graph: read": (graph_with(nodes=[idle(operands=("v0", "exv2"))]), "exv2"),
    "graph: a value with the id of a minted node": (graph_with(inputs=[("exn4", None)]), "exn4"),
    "graph: a node with the id of a minted value": (graph_with(nodes=[idle(node_id="exv1")]), "exv1"),
    "program: node id": (program_with(nodes=[idle(node_id="exn0")]), "exn0"),
    "program: produced": (program_with(nodes=[idle(output="exv0")]), "exv0"),
    "program: read": (program_with(nodes=[idle(operands=("exv3", "v0"))]), "exv3"),
    "program: wrt": (program_with(gradients={"exv1": "d1"}), "exv1"),
    "program: gradient": (program_with(gradients={"v7": "exv2"}), "exv2"),
    "program: output gradient": (program_with(output_gradients=["exv3"]), "exv3"),
    "program: typespec": (program_with(value_typespecs={"exv0": {"dtype": "f32", "shape": []}}), "exv0"),
}


@pytest.mark.parametrize("place", COLLISIONS)
def test_a_minted_id_that_is_mentioned_anywhere_is_refused(place: str) -> None:
    artifact, taken = COLLISIONS[place]
    assert f"'{taken}' is already used" in failure(artifact)
    expand(artifact, "gx")


@pytest.mark.parametrize(
    "artifact", [graph_with(inputs=[("exv5", None)]), program_with(output_gradients=["exv9", None])]
)
def test_an_id_that_is_not_minted_is_free(artifact: Any) -> None:
    expand(artifact)


def test_nothing_is_minted_where_nothing_is_to_do() -> None:
    graph = TensorGraph([idle(output="exv0", node_id="exn0")], [("v0", None)], ["exv0"])
    assert expand_mean_graph(graph) == graph


def test_a_new_mean_in_an_expanded_graph_collides_at_once() -> None:
    graph, _ = trace()
    fresh = replace(graph.nodes[0], node_id="n1", output_value_id="v2")
    expanded = expand_mean_graph(graph)
    again = replace(expanded, nodes=[*expanded.nodes, fresh])
    assert "0' is already used" in failure(again)
    assert len(expand(again, "gx").nodes) == 10


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        (graph_with(nodes=[idle(node_id="n0")]), "duplicate node id 'n0'"),
        (graph_with(nodes=[idle(output="v1")]), "duplicate value id 'v1'"),
        (graph_with(nodes=[idle(output="v0")]), "duplicate value id 'v0'"),
        (graph_with(inputs=[("v0", None)]), "duplicate value id 'v0'"),
        (program_with(nodes=[idle(node_id="dn0")]), "duplicate node id 'dn0'"),
        (program_with(nodes=[idle(output="d0")]), "duplicate value id 'd0'"),
        (TensorGraph([idle(), idle(output="v8")], [], []), "duplicate node id 'n9'"),
    ],
)
def test_duplicate_ids_are_refused(artifact: Any, message: str) -> None:
    assert message in failure(artifact)


@pytest.mark.parametrize(
    "artifact",
    [
        graph_with(outputs=[None]),
        graph_with(inputs=[(["v0"], None)]),
        graph_with(nodes=[idle(node_id=None)]),  # type: ignore[arg-type]
        graph_with(nodes=[idle(output=7)]),  # type: ignore[arg-type]
        graph_with(nodes=[idle(operands=[["v0"], "v0"])]),
        program_with(output_gradients=[3]),
        program_with(value_typespecs={None: None}),
    ],
)
def test_an_id_that_is_no_str_is_refused(artifact: Any) -> None:
    assert "must be a str, got" in failure(artifact)


@pytest.mark.parametrize("artifact", [graph_with(nodes=[None]), program_with(nodes=["n0"])])
def test_a_node_that_is_no_record_is_refused(artifact: Any) -> None:
    with pytest.raises(TypeError, match="must hold TensorNodeRecords, got"):
        expand(artifact)


def test_both_passes_in_one_namespace_meet_in_the_analysis() -> None:
    graph, program = trace()
    expanded = expand_mean_graph(graph)

    def analyze(gradients: DerivativeProgram) -> Any:
        return analyze_derivative_dependencies(gradients, forward_graph=expanded, seed_value_ids=["seed"])

    with pytest.raises(AutodiffError, match="exv0") as caught:
        analyze(expand_mean_derivative_program(program))
    assert caught.value.category == "ambiguous_producer"
    assert analyze(expand_mean_derivative_program(program, reserved_id_prefix="gx")).selected_outputs
