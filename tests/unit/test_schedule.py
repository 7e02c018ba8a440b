"""The order of the local values: the examples of the rule, the rule itself written out naively, and its size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given

from by_hand import F32
from dags import AnyOperator, chain, dag, dags, fan_in, fan_out, gradient, op
from tinychain.autodiff.dependencies import (
    _order_reachable_nodes,
    analyze_derivative_dependencies,
    analyze_graph_dependencies,
)
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord

TESTS = Path(__file__).parents[1]


def order(graph: TensorGraph, outputs: list[str] | None = None) -> list[str]:
    return [value.value_id for value in analyze_graph_dependencies(graph, outputs=outputs).local_values]


# ---------------------------------------------------------------------------------------------------- the definition


def naive_order(graph: TensorGraph, roots: list[str]) -> list[str]:
    """The definition in its own words, with lists searched from end to end."""
    producers = {node.output_value_id: node for node in graph.nodes}
    discovered: list[str] = []

    def discover(value_id: str) -> None:
        if value_id in producers and value_id not in discovered:
            for operand in producers[value_id].input_value_ids:
                discover(operand)
            discovered.append(value_id)

    for root in roots:
        discover(root)

    def distinct_producers(value_id: str) -> list[str]:
        operands = producers[value_id].input_value_ids
        return [v for v in dict.fromkeys(operands) if v in discovered]

    def chain_length(value_id: str) -> int:
        return max([chain_length(producer) + 1 for producer in distinct_producers(value_id)], default=1)

    unplaced = {v: len([w for w in discovered if v in producers[w].input_value_ids]) for v in discovered}
    ready = [value_id for value_id in discovered if unplaced[value_id] == 0]
    result: list[str] = []
    while ready:
        shortest = min(map(chain_length, ready))
        last = max(index for index, value_id in enumerate(ready) if chain_length(value_id) == shortest)
        placed = ready.pop(last)
        result.insert(0, placed)
        for producer in reversed(distinct_producers(placed)):
            unplaced[producer] -= 1
            if unplaced[producer] == 0:
                ready.append(producer)
    return result


@given(dags())
def test_the_schedule_is_the_defined_one(graph: TensorGraph) -> None:
    assert order(graph) == naive_order(graph, graph.outputs)


@given(dags())
def test_every_node_comes_once_and_after_its_producers(graph: TensorGraph) -> None:
    placed = order(graph)
    producers = {node.output_value_id: node for node in graph.nodes}
    assert len(set(placed)) == len(placed)
    for position, value_id in enumerate(placed):
        for operand in producers[value_id].input_value_ids:
            assert operand not in producers or operand in placed[:position]


@given(dags())
def test_the_list_order_of_the_nodes_does_not_matter(graph: TensorGraph) -> None:
    turned = TensorGraph(graph.nodes[::-1], graph.inputs, graph.outputs)
    assert analyze_graph_dependencies(graph) == analyze_graph_dependencies(turned)


@given(dags())
def test_captures_come_in_the_schedule_of_the_whole_forward_graph(forward: TensorGraph) -> None:
    values = [node.output_value_id for node in forward.nodes]
    program = gradient(op("d0", *values), outputs=["d0"])
    captures = analyze_derivative_dependencies(program, forward_graph=forward, seed_value_ids=[]).forward_captures
    assert [value.value_id for value in captures] == naive_order(forward, [*forward.outputs, *values])


# ------------------------------------------------------------------------------------------------------ the examples


def test_a_transposed_operand_comes_directly_before_its_consumer() -> None:
    graph = dag(op("a_t", "a"), op("bb", "b", "b"), op("out", "a_t", "bb"), inputs=["a", "b"], outputs=["out"])
    assert order(graph) == ["bb", "a_t", "out"]


def test_independent_terms_come_in_reverse() -> None:
    assert order(fan_in(4)) == ["t3", "t2", "t1", "t0", "out"]


@pytest.mark.parametrize("operands", [("lone", "c2"), ("c2", "lone")])
def test_a_long_chain_comes_first_and_a_lone_operation_last(operands: tuple[str, str]) -> None:
    nodes = [op("c0", "x"), op("c1", "c0"), op("c2", "c1"), op("lone", "x"), op("out", *operands)]
    assert order(dag(*nodes, outputs=["out"])) == ["c0", "c1", "c2", "lone", "out"]


def test_an_operand_in_two_slots_is_decremented_once() -> None:
    graph = dag(op("a", "x"), op("b", "a", "a"), op("out", "b", "a", "b"), outputs=["out"])
    assert order(graph) == ["a", "b", "out"]


def test_outputs_are_discovered_in_the_selected_order() -> None:
    graph = dag(op("a", "x"), op("b", "x"), outputs=["a", "b"])
    assert order(graph) == ["a", "b"]
    assert order(graph, ["b", "a"]) == ["b", "a"]


def test_an_unreachable_consumer_does_not_hold_a_value_back() -> None:
    graph = dag(op("a", "x"), op("unread", "a"), op("out", "a"), outputs=["out"])
    assert order(graph) == ["a", "out"]


# ------------------------------------------------------------------------------------------------- a mapping of nodes


def by_node_id(*nodes: TensorNodeRecord) -> Mapping[str, TensorNodeRecord]:
    return {node.node_id: node for node in nodes}


def test_a_mapping_of_nodes_is_ordered() -> None:
    nodes = by_node_id(op("a_t", "a"), op("bb", "b", "b"), op("out", "a_t", "bb"))
    assert [node.output_value_id for node in _order_reachable_nodes(nodes)] == ["bb", "a_t", "out"]


def test_an_empty_mapping_has_an_empty_order() -> None:
    assert _order_reachable_nodes({}) == []


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param((op("a", "b"), op("b", "a")), id="cycle"),
        pytest.param((op("a", "a"),), id="itself"),
        pytest.param((op("out", "a"), op("a", "x")), id="not topological"),
    ],
)
def test_a_mapping_without_topological_order_is_refused(nodes: tuple[TensorNodeRecord, ...]) -> None:
    with pytest.raises(AutodiffError, match=r"reads '\w+' before it is produced") as caught:
        _order_reachable_nodes(by_node_id(*nodes))
    assert caught.value.category == "malformed_derivative_ir"


# ------------------------------------------------------------------------------------------------ the same every time

_PRINT_AN_ORDER = """
from dags import dag, op
from tinychain.autodiff import analyze_derivative_dependencies, analyze_graph_dependencies
from dags import gradient
names = [f"name{i * 7919 % 1000}" for i in range(60)]
nodes = [op(v, *[names[i * k % (i + 1) - 1] for k in (3, 5) if i * k % (i + 1)], "x") for i, v in enumerate(names)]
graph = dag(*nodes, outputs=names[::3])
program = gradient(op("d", *names[::2], "seed", "x"), outputs=["d"])
print(analyze_graph_dependencies(graph))
print(analyze_derivative_dependencies(program, forward_graph=graph, seed_value_ids=["seed"]))
"""


def test_no_order_depends_on_the_hash_seed() -> None:
    path = ":".join(entry for entry in [str(TESTS), *sys.path] if entry)
    printed = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_AN_ORDER],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "20")
    ]
    assert printed[0]
    assert len(set(printed)) == 1


# --------------------------------------------------------------------------------------------------------------- size


@pytest.mark.parametrize("length", [1200, 100_000])
def test_a_long_chain(length: int) -> None:
    assert order(chain(length)) == [f"c{i}" for i in range(length)]


def test_a_wide_fan_in() -> None:
    width = 100_000
    assert order(fan_in(width)) == [*[f"t{i}" for i in reversed(range(width))], "out"]


def test_a_value_with_many_consumers() -> None:
    width = 100_000
    assert order(fan_out(width)) == ["shared", *[f"e{i}" for i in range(width)]]


def test_a_node_that_reads_one_value_in_every_slot() -> None:
    graph = dag(op("a", "x"), op("out", *["a"] * 100_000), outputs=["out"])
    assert order(graph) == ["a", "out"]


def test_a_ladder_whose_paths_are_exponentially_many() -> None:
    steps = [op(f"s{i}", f"s{i - 1}", f"s{i - 1}") for i in range(1, 2000)]
    graph = TensorGraph([op("s0", "x", operator=AnyOperator()), *steps], [("x", F32)], ["s1999"])
    assert order(graph) == [f"s{i}" for i in range(2000)]
