"""A million nodes pass every stage: as one long chain, and as half a million terms of one value."""

from __future__ import annotations

import pytest

from benchmarks.workloads import HANDLERS, WORKLOADS, differentiate, trace
from tinychain.autodiff import (
    analyze_derivative_dependencies,
    expand_mean_derivative_program,
    expand_mean_graph,
    lower_derivative_program,
    lower_graph,
)

NODES = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain", "fan-in"])
def test_a_million_nodes_pass_every_stage(name: str) -> None:
    graph = trace(WORKLOADS[name], NODES)
    assert len(graph.nodes) == NODES

    expanded = expand_mean_graph(graph)
    lowered = lower_graph(expanded, handlers=HANDLERS)
    assert len(lowered.operations) == len(expanded.nodes) > NODES

    program = expand_mean_derivative_program(differentiate(graph), reserved_id_prefix="gx")
    analysis = analyze_derivative_dependencies(program, forward_graph=graph, seed_value_ids=["seed"])
    assert len(analysis.local_values) == len(program.nodes) > NODES / 2
    derivative = lower_derivative_program(program, forward_graph=graph, seed_value_ids=["seed"], handlers=HANDLERS)
    assert {node for operation in derivative.operations for node in operation.source_node_ids} == {
        node.node_id for node in program.nodes
    }
