"""The content hash: the same for the same graph in any order, process and hash seed, another for another graph."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from by_hand import graph, node
from strategies import graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.operators import AddOperator, MeanOperator, MulOperator, SubOperator
from tinychain.autodiff.text import parse_text
from tinychain.autodiff.tracing import TensorGraphBuilder

F32 = {"dtype": "f32", "shape": [2]}

NODE = dataclasses.replace(node(MulOperator(), typespec=F32), input_value_ids=["v0", "x"])
GRAPH = graph(
    NODE,
    dataclasses.replace(node(MeanOperator(), axes=[0], keepdims=False), node_id="n1", output_value_id="v2"),
    inputs=[("v0", F32), ("x", F32)],
    outputs=["v1", "v2"],
)

_IN_ANOTHER_PROCESS = """
import sys
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.text import parse_text
print(content_hash(parse_text(sys.stdin.read())))
"""

_TEXT = """graph {
  input v0 : f32[4, 3]
  v1 = mean(v0) {axes: [0], keepdims: true} : f32[1, 3] @n0
  v2 = add(v1, v0) : f32[4, 3] @n1
  output v2
}
"""


def _with(change: dict[str, Any], **graph_change: Any) -> TensorGraph:
    return dataclasses.replace(GRAPH, nodes=[dataclasses.replace(NODE, **change), GRAPH.nodes[1]], **graph_change)


def test_it_is_the_hex_of_a_sha_256() -> None:
    assert len(content_hash(GRAPH)) == 64
    assert int(content_hash(GRAPH), 16) >= 0


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda artifact: pickle.loads(pickle.dumps(artifact))])
def test_a_copy_has_the_same_hash(clone: Callable[[TensorGraph], TensorGraph]) -> None:
    assert content_hash(clone(GRAPH)) == content_hash(GRAPH)


@given(graphs, st.randoms(use_true_random=False))
def test_the_order_of_the_node_list_does_not_count(artifact: TensorGraph, generator: random.Random) -> None:
    shuffled = list(artifact.nodes)
    generator.shuffle(shuffled)
    assert content_hash(dataclasses.replace(artifact, nodes=shuffled)) == content_hash(artifact)


@given(graphs)
def test_the_order_of_dicts_does_not_count(artifact: TensorGraph) -> None:
    turned = [dataclasses.replace(n, op_params=dict(reversed(n.op_params.items()))) for n in artifact.nodes]
    assert content_hash(dataclasses.replace(artifact, nodes=turned)) == content_hash(artifact)


def test_the_order_inside_typespecs_and_nested_params_does_not_count() -> None:
    one = _with({"op_params": {"key": {"a": 1, "b": 2}}, "output_typespec": {"dtype": "f32", "shape": [2]}})
    other = _with({"op_params": {"key": {"b": 2, "a": 1}}, "output_typespec": {"shape": [2], "dtype": "f32"}})
    assert content_hash(one) == content_hash(other)


def test_shared_and_separate_typespecs_are_alike() -> None:
    separate = dataclasses.replace(GRAPH, inputs=[("v0", dict(F32)), ("x", {"dtype": "f32", "shape": (2,)})])
    assert content_hash(separate) == content_hash(GRAPH)


@pytest.mark.parametrize(
    "changed",
    [
        _with({"node_id": "n7"}),
        _with({"operator": AddOperator()}),
        _with({"operator": MulOperator("times")}),
        _with({"input_value_ids": ["x", "v0"]}),
        _with({"input_value_ids": ["v0", "v0"]}),
        _with({"input_value_ids": ["v0"]}),
        _with({"output_value_id": "v7"}),
        _with({"output_typespec": None}),
        _with({"output_typespec": {"dtype": "f64", "shape": [2]}}),
        _with({"output_typespec": {"dtype": "f32", "shape": ["N"]}}),
        _with({"op_params": {"right_literal": 1}}),
        _with({}, inputs=GRAPH.inputs[:1]),
        _with({}, inputs=[("v0", F32), ("x", None)]),
        _with({}, inputs=GRAPH.inputs[::-1]),
        _with({}, outputs=["v1"]),
        _with({}, outputs=["v2", "v1"]),
    ],
)
def test_every_fact_counts(changed: TensorGraph) -> None:
    assert content_hash(changed) != content_hash(GRAPH)


def test_literals_that_compute_another_thing_differ() -> None:
    literals: list[Any] = [1, 2, 0.5, -0.5, 0.0, -0.0, float("inf"), float("nan"), 2**80, 2**81, "1", None, [1]]
    hashes = [content_hash(_with({"op_params": {"right_literal": literal}})) for literal in literals]
    assert len(set(hashes)) == len(literals)


def test_a_difference_and_its_reverse_differ() -> None:
    def difference(swapped: bool) -> str:
        with TensorGraphBuilder() as builder:
            a, b = [builder.input(name, dtype="f32", shape=[2]) for name in "ab"]
            result = b - a if swapped else a - b
        return content_hash(builder.build(outputs=result))

    assert difference(False) != difference(True)
    assert difference(False) == difference(False)


def test_means_over_other_axes_differ() -> None:
    def mean(axis: int) -> str:
        return content_hash(graph(node(MeanOperator(), axes=[axis], keepdims=False)))

    assert mean(0) != mean(1)


def test_nodes_do_not_run_into_each_other() -> None:
    one = graph(node(SubOperator(), node_id="a"), node(SubOperator(), node_id="b"))
    other = graph(node(SubOperator(), node_id="a', 'b"))
    assert content_hash(one) != content_hash(other)


@given(graphs)
def test_hostile_ids_and_params_have_a_hash(artifact: TensorGraph) -> None:
    assert content_hash(artifact) == content_hash(copy.deepcopy(artifact))


@pytest.mark.parametrize("seed", ["0", "1"])
def test_neither_process_nor_hash_seed_count(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_PROCESS],
        input=_TEXT,
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    artifact = parse_text(_TEXT)
    assert isinstance(artifact, TensorGraph)
    assert ran.stdout.strip() == content_hash(artifact)


def _circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("build", [_circular, lambda: {1: 2, "a": 3}, lambda: 10**5000])
def test_params_that_are_no_plain_data_are_malformed(build: Callable[[], Any]) -> None:
    with pytest.raises(AutodiffError, match="plain data") as caught:
        content_hash(graph(node(key=build())))
    assert caught.value.category == "malformed_derivative_ir"


@pytest.mark.parametrize("value", [None, "graph", NODE])
def test_anything_but_a_graph_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="graph must be a TensorGraph"):
        content_hash(value)
