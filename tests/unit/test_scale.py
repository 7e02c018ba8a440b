"""A million nodes through every stage: one long chain, one value with a million consumers, a million separate terms.

What comes out is counted, not timed. `benchmarks/` has the times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from dags import counting
from tinychain.autodiff.dependencies import analyze_derivative_dependencies, analyze_graph_dependencies
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.lowering import (
    FusionContext,
    FusionHook,
    FusionResult,
    lower_derivative_program,
    lower_graph,
)
from tinychain.autodiff.operators import OPERATORS
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.text import format_text, parse_text
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

NODES = 1_000_000


class Declining:
    """A hook that claims nothing."""

    lookahead = 2

    def fuse(self, context: FusionContext) -> FusionResult | None:
        return None


HANDLERS = counting(*OPERATORS)

pytestmark = pytest.mark.slow


def chain(x: Tensor, y: Tensor) -> list[Tensor]:
    """Each product is the operand of the next."""
    for _ in range(NODES - 1):
        x = x * y
    return [x.mean()]


def consumers(x: Tensor, y: Tensor) -> list[Tensor]:
    """Every node reads x."""
    total = y
    for _ in range(NODES - 1):
        total = total + x
    return [total.mean()]


def terms(x: Tensor, y: Tensor) -> list[Tensor]:
    """Every node is an output."""
    return [x * 0.5 for _ in range(NODES)]


@pytest.fixture(scope="module", params=[chain, consumers, terms], ids=lambda workload: workload.__name__)
def graph(request: pytest.FixtureRequest) -> TensorGraph:
    workload: Callable[[Tensor, Tensor], list[Tensor]] = request.param
    with TensorGraphBuilder() as builder:
        x, y = (builder.input(name, dtype="f32", shape=[2, 2]) for name in "xy")
        outputs = workload(x, y)
    return builder.build(outputs=outputs)


@pytest.fixture(scope="module")
def seeds(graph: TensorGraph) -> list[str]:
    return [f"seed{index}" for index in range(len(graph.outputs))]


@pytest.fixture(scope="module")
def program(graph: TensorGraph, seeds: list[str]) -> DerivativeProgram:
    return generate(graph, graph.outputs, [graph.inputs[0][0]], seeds)


def test_trace(graph: TensorGraph) -> None:
    assert len(graph.nodes) == NODES


def test_generate(graph: TensorGraph, program: DerivativeProgram) -> None:
    reads = Counter([operand for node in graph.nodes for operand in node.input_value_ids])
    contributions = reads[graph.inputs[0][0]]
    added = Counter([node.operator.name for node in program.nodes])["AddOperator"]
    assert added == contributions - 1
    assert len(program.nodes) >= NODES - 1


def test_expand(graph: TensorGraph, program: DerivativeProgram) -> None:
    means = [node for node in graph.nodes if node.operator.name == "MeanOperator"]
    assert len(expand_mean_graph(graph).nodes) == NODES + 5 * len(means)
    expanded = expand_mean_derivative_program(program)
    assert len(expanded.nodes) == len(program.nodes) + 3 * len(means)


def test_analyse(graph: TensorGraph, program: DerivativeProgram, seeds: list[str]) -> None:
    assert len(analyze_graph_dependencies(graph).local_values) == NODES
    analysis = analyze_derivative_dependencies(program, forward_graph=graph, seed_value_ids=seeds)
    assert len(analysis.local_values) == len(program.nodes)


@pytest.mark.parametrize("fusion", [None, Declining()], ids=["handlers", "hook"])
def test_lower(graph: TensorGraph, program: DerivativeProgram, seeds: list[str], fusion: FusionHook | None) -> None:
    assert len(lower_graph(graph, handlers=HANDLERS, fusion=fusion).operations) == NODES
    lowered = lower_derivative_program(
        program, forward_graph=graph, seed_value_ids=seeds, handlers=HANDLERS, fusion=fusion
    )
    assert len(lowered.operations) == len(program.nodes)


def test_text(graph: TensorGraph, program: DerivativeProgram) -> None:
    for artifact in (graph, program):
        assert parse_text(format_text(artifact)) == artifact
