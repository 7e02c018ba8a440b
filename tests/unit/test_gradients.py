"""Gradients are right: first and second order against central differences, on chosen and on random graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from by_hand import graph as graph_of
from by_hand import producing
from by_reference import Values, differences, draw, run
from running import trace
from strategies import traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.operators import BroadcastReduceOperator, FillOperator, MulOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.tracing import TensorGraphBuilder

F64 = {"dtype": "f64", "shape": [2]}


def read_inputs(graph: TensorGraph) -> list[str]:
    """The inputs that some output depends on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.output_value_id in needed:
            needed.update(node.input_value_ids)
    return [value_id for value_id, _ in graph.inputs if value_id in needed]


def check(graph: TensorGraph, *, order: int = 1, values: Values | None = None) -> None:
    """All gradients of all outputs, each with a random seed, against central differences; then those of those."""
    wrt, seeds = read_inputs(graph), [f"seed{order}_{index}" for index in range(len(graph.outputs))]
    if not wrt:
        return
    gradients = joint_graph(generate(graph, graph.outputs, wrt, seeds), forward_graph=graph)
    values = draw(gradients) | (values or {})
    computed = run(gradients, values)

    for target, gradient in zip(wrt, gradients.outputs, strict=True):

        def weighted(moved: Any, target: str = target) -> float:
            result = run(graph, {**values, target: moved})
            return float(sum([np.sum(result[v] * values[s]) for v, s in zip(graph.outputs, seeds, strict=True)]))

        expected = differences(weighted, values[target])
        assert computed[gradient].shape == values[target].shape
        np.testing.assert_allclose(computed[gradient], expected, rtol=1e-5, atol=1e-6, err_msg=f"{target}, {order}")
    if order > 1:
        check(gradients, order=order - 1, values=values)


SQUARE = [3, 3]
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "add": (lambda x, y: x + y, [[4, 1], [3]]),
    "sub": (lambda x, y: x - y, [[3], [2, 3]]),
    "mul": (lambda x, y: x * y, [[2, 3], [1, 3]]),
    "div": (lambda x, y: x / y, [[2, 1], [2, 3]]),
    "literals": (lambda x: (x - 2) * 3.5 / 1.25 + 4, [[2, 3]]),
    "left literals": (lambda x: 2 - 3 / x + 0.5 * x, [[2, 3]]),
    "neg": (lambda x: -x, [[2]]),
    "x + x": (lambda x: x + x, [SQUARE]),
    "x - x": (lambda x: x - x, [SQUARE]),
    "x * x": (lambda x: x * x, [SQUARE]),
    "x / x": (lambda x: x / x, [SQUARE]),
    "x @ x": (lambda x: x @ x, [SQUARE]),
    "x @ x.T": (lambda x: x @ x.T, [[2, 3]]),
    "a repeated operand that is broadcast": (lambda x: x.reshape(3, 1) * x, [[3]]),
    "matmul": (lambda x, y: x @ y, [[2, 1, 4, 3], [5, 3, 2]]),
    "sum": (lambda x: x.sum((0, -1)), [[2, 3, 2]]),
    "mean": (lambda x: x.mean(1, keepdims=True), [[2, 3, 2]]),
    "mean of all": (lambda x: (x * x).mean(), [[2, 3]]),
    "sum over no axis": (lambda x: (x * x).sum([]), [[2]]),
    "reshape": (lambda x: x.reshape(3, -1) * 2, [[2, 3]]),
    "transpose": (lambda x, y: x.transpose([2, 0, 1]) * y, [[2, 3, 4], [4, 2, 1]]),
    "broadcast": (lambda x, y: x.broadcast_to([2, 3]) * y, [[3], [2, 1]]),
    "several outputs": (lambda x, y: (x * y, (x + y).sum(), x), [[2], [2]]),
    "shared": (lambda x: (lambda y: y * y + y.sum() * y)(x * x), [[3]]),
    "empty": (lambda x: (x * x).sum(0), [[0, 3]]),
    "scalar": (lambda x: x * x * x, [[]]),
    "symbolic": (lambda x, y: (x * x).sum(0) * y, [["N", 3], [3]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_to_the_second_order(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    check(trace(function, *shapes), order=2)


@pytest.mark.parametrize("name", ["div", "x / x", "x @ x", "shared", "scalar"])
def test_gradients_of_the_third_order(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    check(trace(function, *shapes), order=3)


def test_the_operators_that_only_programs_have_are_differentiable() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[2, 3])
        filled = builder.apply(FillOperator, [], {"fill": 2.5, "dtype": "f64", "shape": [3]})
        reduced = builder.apply(BroadcastReduceOperator, [x * x], {"target_shape": [1, 3]})
        result = reduced * filled
    check(builder.build(outputs=result), order=2)


def test_a_gradient_with_respect_to_an_intermediate() -> None:
    graph = trace(lambda x: (lambda y: (y * y).sum())(x * 3.0), [2])
    program = generate(graph, "v3", ["v1", "v0"], "s")
    values = run(joint_graph(program, forward_graph=graph), {"v0": np.array([1.0, 2.0]), "s": np.array(1.0)})
    np.testing.assert_allclose(values[program.gradients["v1"]], [6.0, 12.0])
    np.testing.assert_allclose(values[program.gradients["v0"]], [18.0, 36.0])


@given(traced_graphs())
def test_the_gradients_of_random_graphs(graph: TensorGraph) -> None:
    check(graph)


@given(traced_graphs(max_operations=4))
def test_the_second_order_of_random_graphs(graph: TensorGraph) -> None:
    check(graph, order=2)


# -------------------------------------------------------------------------------------------------------- joint graphs

PRODUCT = graph_of(
    producing("z", MulOperator(), "x", "y", typespec=F64),
    producing("aside", MulOperator(), "y", "y", typespec=F64),
    inputs=[("x", F64), ("y", F64), ("unread", F64)],
    outputs=["z"],
)


def test_the_joint_graph_has_the_inputs_then_the_seeds_and_the_gradients_as_outputs() -> None:
    program = generate(PRODUCT, "z", ["y", "x"], "s")
    joint = joint_graph(program, forward_graph=PRODUCT)
    assert joint.inputs == [("x", F64), ("y", F64), ("unread", F64), ("s", F64)]
    assert joint.outputs == program.output_gradients
    assert [n.output_value_id for n in joint.nodes] == ["d1", "d0"]


def test_only_captured_forward_nodes_come_along() -> None:
    graph = trace(lambda x: (lambda y: (y * y).sum() + x.sum())(x * 3.0), [2])
    joint = joint_graph(generate(graph, graph.outputs[0], ["v0"], "s"), forward_graph=graph)
    assert "v1" in [n.output_value_id for n in joint.nodes]
    assert "v2" not in [n.output_value_id for n in joint.nodes]


def test_a_seed_that_is_the_gradient_is_an_input_and_an_output() -> None:
    program = generate(PRODUCT, "z", ["z"], "s")
    joint = joint_graph(program, forward_graph=PRODUCT)
    assert (joint.nodes, joint.inputs[-1], joint.outputs) == ([], ("s", F64), ["s"])


@pytest.mark.parametrize(
    ("changes", "category", "part"),
    [
        ({"output_gradients": ["d0", None]}, "missing_derivative_ir", "None"),
        ({"nodes": [producing("z", MulOperator(), "x", "s")]}, "malformed_derivative_ir", "duplicate node id 'n_z'"),
        ({"nodes": [replace(PRODUCT.nodes[0], node_id="d")]}, "malformed_derivative_ir", "'z' has two producers"),
        ({"nodes": [producing("x", MulOperator(), "y", "s")]}, "malformed_derivative_ir", "'x'"),
        ({"nodes": [producing("d0", MulOperator(), "d0", "s")]}, "malformed_derivative_ir", "cycle"),
    ],
)
def test_a_program_that_does_not_fit_its_graph(changes: dict[str, Any], category: str, part: str) -> None:
    program = generate(PRODUCT, "z", ["x"], "s")
    spoiled = replace(program, **changes)
    with pytest.raises(AutodiffError, match=part) as caught:
        joint_graph(spoiled, forward_graph=PRODUCT)
    assert caught.value.category == category


@pytest.mark.parametrize(
    "changes",
    [{"nodes": 5}, {"nodes": ["n0"]}, {"output_gradients": 5}, {"output_gradients": [[]]}, {"value_typespecs": 5}],
)
def test_a_program_with_wrong_containers_is_a_type_error(changes: dict[str, Any]) -> None:
    program = generate(PRODUCT, "z", ["x"], "s")
    with pytest.raises(TypeError, match=f"{next(iter(changes))} of program"):
        joint_graph(replace(program, **changes), forward_graph=PRODUCT)


@pytest.mark.parametrize("other", [None, "program", PRODUCT])
def test_the_arguments_of_a_joint_graph_are_named(other: Any) -> None:
    program = generate(PRODUCT, "z", ["x"], "s")
    with pytest.raises(TypeError, match="program must be a DerivativeProgram"):
        joint_graph(other, forward_graph=PRODUCT)
    with pytest.raises(TypeError, match="forward_graph must be a TensorGraph"):
        joint_graph(program, forward_graph=program)  # type: ignore[arg-type]
