"""What the passes emit computes what it replaces: values, dtypes, shapes, and gradients of the expanded artifacts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from running import compiled
from tinychain.autodiff.expansion import (
    expand_mean_derivative_program,
    expand_mean_derivative_program_detailed,
    expand_mean_graph,
    expand_mean_graph_detailed,
)
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import FillOperator, MatmulOperator, MulOperator, ReshapeOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.testing import check_expansion, check_gradients
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

dims = st.integers(1, 7)
dtypes = st.sampled_from(["f32", "f64"])


def trace(
    function: Callable[..., Tensor], *shapes: list[int | str], dtype: str = "f64"
) -> tuple[TensorGraph, DerivativeProgram]:
    """The graph of a function of tensors v0, v1, ... and its gradient by all of them."""
    with TensorGraphBuilder() as builder:
        tensors = [builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)]
        result = function(*tensors)
    return builder.build(outputs=[result]), builder.vjp(result, wrt=tensors)


def mse(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    residual = x @ w - y
    return (residual * residual).mean()


def several(x: Tensor, y: Tensor) -> Tensor:
    """Means of both tiers, one of them shared, beside reductions that are not means."""
    centre = x.mean(keepdims=True)
    spread = (x * x).mean() + centre.sum()
    return (y * centre).sum() + y.mean() * spread


@given(rows=dims, columns=dims, keepdims=st.booleans(), dtype=dtypes)
def test_a_mean(rows: int, columns: int, keepdims: bool, dtype: str) -> None:
    graph, program = trace(lambda x: x.mean(keepdims=keepdims), [rows, columns], dtype=dtype)
    check_expansion(graph, expand_mean_graph(graph))
    check_expansion(program, expand_mean_derivative_program(program), forward_graph=graph)


@settings(max_examples=25)
@given(rows=dims, inner=dims, columns=dims, dtype=dtypes)
def test_a_squared_error(rows: int, inner: int, columns: int, dtype: str) -> None:
    shapes: list[list[int | str]] = [[rows, inner], [rows, columns], [inner, columns]]
    graph, program = trace(mse, *shapes, dtype=dtype)
    at = {"v1": np.zeros((rows, columns))}  # every residual is positive, so that no term cancels another
    check_expansion(graph, expand_mean_graph(graph), at=at)
    check_expansion(program, expand_mean_derivative_program(program), forward_graph=graph, at=at)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_several_means_at_once(dtype: str) -> None:
    graph, program = trace(several, [4, 3], [2, 5], dtype=dtype)
    expanded = expand_mean_graph_detailed(graph)
    assert sorted(region.tier for region in expanded.regions) == ["rank_preserving", "rank_reducing", "rank_reducing"]
    check_expansion(graph, expanded.graph)
    rewritten = expand_mean_derivative_program_detailed(program)
    assert len(rewritten.regions) == 3
    check_expansion(program, rewritten.program, forward_graph=graph)


def test_the_expanded_gradient_reads_captures_of_the_expanded_graph() -> None:
    graph, program = trace(several, [4, 3], [2, 5])
    check_expansion(
        program,
        expand_mean_derivative_program(program, reserved_id_prefix="gx"),
        forward_graph=expand_mean_graph(graph),
    )


def test_means_with_few_rows_or_columns() -> None:
    for shape in ([1, 1], [1, 9], [9, 1]):
        graph, program = trace(lambda x: x.mean(), list(shape))
        check_expansion(graph, expand_mean_graph(graph))
        check_expansion(program, expand_mean_derivative_program(program), forward_graph=graph)


# ------------------------------------------------------------------------------------------------- differentiated again


@pytest.mark.parametrize("keepdims", [False, True])
def test_an_expanded_graph_has_the_same_gradients_to_second_order(keepdims: bool) -> None:
    graph, _ = trace(lambda x: (x * x * x).mean(keepdims=keepdims), [2, 3])
    check_gradients(expand_mean_graph(graph), order=2)


def test_an_expanded_program_can_be_differentiated_again() -> None:
    graph, program = trace(mse, [3, 2], [3, 1], [2, 1])
    check_gradients(joint_graph(expand_mean_derivative_program(program), forward_graph=graph), order=1)


def test_second_derivatives_of_an_expanded_program_are_those_of_the_program() -> None:
    graph, program = trace(mse, [3, 2], [3, 1], [2, 1])

    def second(gradient: DerivativeProgram) -> TensorGraph:
        joint = joint_graph(gradient, forward_graph=graph)
        outputs = list(gradient.output_gradients)
        seeds = [f"seed{i}" for i in range(len(outputs))]
        again = generate(joint, [str(output) for output in outputs], ["v0", "v1", "v2"], seeds)
        return joint_graph(again, forward_graph=joint)

    for got, wanted in zip(run(second(expand_mean_derivative_program(program))), run(second(program)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def run(graph: TensorGraph) -> list[NDArray[Any]]:
    """The outputs for inputs of small positive integers, which differ from input to input and element to element."""
    arrays = {
        value_id: 1.0 + np.arange(number, number + math.prod(spec["shape"])).reshape(spec["shape"])
        for number, (value_id, spec) in enumerate(graph.inputs)
        if spec is not None
    }
    results = compiled(graph)(arrays)
    return [results[output] for output in graph.outputs]


# ---------------------------------------------------------------------------------------------------- what it is for


def test_what_is_left_is_what_a_limited_backend_owns() -> None:
    graph, program = trace(lambda x: x.mean(keepdims=True), [4, 3])
    owned = {FillOperator, MatmulOperator, MulOperator}
    assert {type(node.operator) for node in expand_mean_graph(graph).nodes} == owned
    assert {type(node.operator) for node in expand_mean_derivative_program(program).nodes} == owned
    graph, program = trace(lambda x: x.mean(), [4, 3])
    assert {type(node.operator) for node in expand_mean_graph(graph).nodes} == {*owned, ReshapeOperator}
