"""Rewrites that are right, over random shapes and random graphs: none may be called wrong."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import (
    expand_mean_derivative_program,
    expand_mean_derivative_program_detailed,
    expand_mean_graph,
    expand_mean_graph_detailed,
)
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.tracing import TensorGraphBuilder
from tinychain.autodiff.verify import verify_equivalent

dims = st.integers(1, 40)
dtypes = st.sampled_from(["f32", "f64"])


@settings(max_examples=40)
@given(rows=dims, columns=dims, keepdims=st.booleans(), dtype=dtypes)
def test_a_mean_and_its_gradient(rows: int, columns: int, keepdims: bool, dtype: str) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype=dtype, shape=[rows, columns])
        y = (x * x).mean(keepdims=keepdims)
    graph, program = builder.build(outputs=[y]), builder.vjp(y, wrt=[x])
    expanded = expand_mean_graph_detailed(graph)
    assert verify_equivalent(graph, expanded.graph, regions=expanded.regions).equivalent
    rewritten = expand_mean_derivative_program_detailed(program)
    for forward_graph in (None, graph):
        result = verify_equivalent(
            program, rewritten.program, forward_graph=forward_graph, regions=rewritten.regions, points=()
        )
        assert result.equivalent


@settings(max_examples=60)
@given(traced_graphs())
def test_a_random_graph_and_its_expansion(graph: TensorGraph) -> None:
    assert verify_equivalent(graph, graph, points=()).equivalent
    try:
        expanded = expand_mean_graph(graph)
    except AutodiffError:
        return
    assert verify_equivalent(graph, expanded, points=()).equivalent


@settings(max_examples=60)
@given(traced_graphs())
def test_a_random_gradient_and_its_expansion(graph: TensorGraph) -> None:
    inputs = [value_id for value_id, _ in graph.inputs]
    program = generate(graph, [*graph.outputs, *inputs], inputs, ["seed", *[f"zero {value_id}" for value_id in inputs]])
    rewritten = expand_mean_derivative_program(program)
    for forward_graph in (None, graph):
        result = verify_equivalent(program, rewritten, forward_graph=forward_graph, points=())
        assert result.equivalent


def test_expanding_the_joint_graph() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[5, 3])
        loss = ((x * x).mean() * x).mean()
    graph, program = builder.build(outputs=[loss]), builder.vjp(loss, wrt=[x])
    before = joint_graph(program, forward_graph=graph)
    forward = expand_mean_graph(graph)
    backward = expand_mean_derivative_program(program, reserved_id_prefix="gx")
    assert verify_equivalent(before, joint_graph(backward, forward_graph=forward)).equivalent
