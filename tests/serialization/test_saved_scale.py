"""A million nodes through a file, one long chain and its derivative; what comes back is compared, not timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinychain.autodiff.reverse import generate
from tinychain.autodiff.serialization import load, save
from tinychain.autodiff.tracing import TensorGraphBuilder

NODES = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["graph", "program"])
def test_a_million_nodes_round_trip(tmp_path: Path, kind: str) -> None:
    with TensorGraphBuilder() as builder:
        x, y = (builder.input(name, dtype="f32", shape=[2, 2]) for name in "xy")
        for _ in range(NODES - 1):
            x = x * y
        loss = x.mean()
    graph = builder.build(outputs=loss)
    assert len(graph.nodes) == NODES
    artifact = graph if kind == "graph" else generate(graph, graph.outputs, [graph.inputs[0][0]], ["seed"])
    path = tmp_path / "artifact.json"
    save(artifact, path)
    assert load(path, max_bytes=path.stat().st_size) == artifact
