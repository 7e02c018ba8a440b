"""Gradients are right: first and second order against central differences, on chosen and on random graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from by_reference import Values, differences, draw, run
from running import trace
from strategies import traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.operators import BroadcastReduceOperator, FillOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.tracing import TensorGraphBuilder


def gradient_graph(graph: TensorGraph, wrt: list[str], seeds: list[str] | None = None) -> TensorGraph:
    seeds = seeds or [f"s{i}" for i in range(len(graph.outputs))]
    return joint_graph(generate(graph, graph.outputs, wrt, seeds), forward_graph=graph)


def with_seeds(graph: TensorGraph, values: Values) -> Values:
    """The values, and random ones for the inputs that have none yet: the seeds."""
    return {**draw(graph, low=-1.0, high=1.0, N=2), **values}


def check(graph: TensorGraph, values: Values, *, rtol: float = 1e-6, atol: float = 1e-6) -> TensorGraph:
    """Compares all gradients of all outputs; returns the graph of the gradients."""
    wrt = [value_id for value_id, _ in graph.inputs]
    gradients = gradient_graph(graph, wrt)
    values = with_seeds(gradients, values)
    computed = run(gradients, values)

    def weighted(changed: Values) -> float:
        result = run(graph, {**values, **changed})
        return float(sum(np.sum(result[v] * values[f"s{i}"]) for i, v in enumerate(graph.outputs)))

    for target, gradient in zip(wrt, gradients.outputs, strict=True):
        expected = differences(lambda moved, target=target: weighted({target: moved}), values[target])  # type: ignore[misc]
        assert computed[gradient].shape == values[target].shape
        np.testing.assert_allclose(computed[gradient], expected, rtol=rtol, atol=atol, err_msg=target)
    return gradients


SQUARE = [3, 3]
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "add": (lambda x, y: x + y, [[4, 1], [3]]),
    "sub": (lambda x, y: x - y, [[3], [2, 3]]),
    "mul": (lambda x, y: x * y, [[2, 3], [1, 3]]),
    "div": (lambda x, y: x / y, [[2, 1], [2, 3]]),
    "literals": (lambda x: ((x - 2) * 3.5 / 1.25 + 4), [[2, 3]]),
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
def test_first_and_second_order_against_central_differences(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    graph = trace(function, *shapes)
    values = draw(graph, N=2)
    check_again = check(graph, values)
    weights = with_seeds(check_again, values)
    reached = [v for v, _ in check_again.inputs if _depends(check_again, v)]
    second = generate(check_again, check_again.outputs, reached, [f"t{i}" for i in range(len(check_again.outputs))])
    joint = joint_graph(second, forward_graph=check_again)
    weights = {**with_seeds(joint, weights)}
    computed = run(joint, weights)

    def weighted(changed: Values) -> float:
        result = run(check_again, {**weights, **changed})
        return float(sum(np.sum(result[v] * weights[f"t{i}"]) for i, v in enumerate(check_again.outputs)))

    for target in reached:
        expected = differences(lambda moved, target=target: weighted({target: moved}), weights[target])  # type: ignore[misc]
        np.testing.assert_allclose(computed[second.gradients[target]], expected, rtol=1e-5, atol=1e-6, err_msg=target)


def _depends(graph: TensorGraph, target: str) -> bool:
    """Whether an output reads the input; without a seed for it `generate` refuses."""
    try:
        generate(graph, graph.outputs, [target], [f"t{i}" for i in range(len(graph.outputs))])
    except AutodiffError as error:
        assert error.category == "missing_derivative_behavior"
        return False
    return True
