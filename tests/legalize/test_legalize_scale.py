"""Legalization of a million nodes: what comes out is counted, not timed."""

from __future__ import annotations

from collections import Counter

import pytest

from legalizing import RANK2, names
from tinychain.autodiff.expansion import chain_regions, declare_duals, legalize, legalize_detailed
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import TensorGraphBuilder

NODES = 1_000_000

pytestmark = pytest.mark.slow


def chain(nodes: int) -> TensorGraph:
    """x * y - y, again and again: every second node has to be rewritten."""
    with TensorGraphBuilder() as builder:
        x, y = (builder.input(name, dtype="f32", shape=[4, 3]) for name in "xy")
        for _ in range(nodes // 2):
            x = x * y - y
    return builder.build(outputs=x)


def test_a_million_nodes_of_which_every_second_is_rewritten() -> None:
    result = legalize_detailed(chain(NODES), RANK2)
    assert Counter(names(result.artifact)) == {"mul": NODES, "add": NODES // 2}
    assert len(result.regions) == NODES // 2
    assert len(chain_regions(result.regions)) == NODES // 2


def test_a_million_separate_terms() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[4, 3])
        outputs = [x.sum([1]) for _ in range(NODES // 10)]
    legal = legalize(builder.build(outputs=outputs), RANK2)
    assert Counter(names(legal)) == {"fill": 1, "matmul": NODES // 10, "reshape": NODES // 10}


def test_the_gradient_of_a_hundred_thousand_layers() -> None:
    """The transpose of every layer is computed again from the inputs', once."""
    layers = 100_000
    with TensorGraphBuilder() as builder:
        x, w = (builder.input(name, dtype="f32", shape=[2, 2]) for name in "xw")
        for _ in range(layers):
            x = x @ w
        loss = x.sum()
    graph = builder.build(outputs=loss)
    program = generate(graph, graph.outputs[0], ["v1"], "seed")
    legal = legalize(program, RANK2, forward_graph=declare_duals(graph))
    assert "transpose" not in names(legal)
    assert names(legal).count("matmul") < 4 * layers
