"""The tester is tested: check_gradients on whole graphs, and bugs planted into the engine rather than an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meta.planted import OffInRight
from tinychain.autodiff import testing
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.testing import check_gradients
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder


def graph_of(function: Callable[..., Tensor], *shapes: list[int | str], dtype: str = "f64") -> TensorGraph:
    with TensorGraphBuilder() as builder:
        result = function(*[builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)])
    return builder.build(outputs=[result])


def mse(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    residual = x @ w - y
    return (residual * residual).mean()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_passes_what_is_right(dtype: str) -> None:
    check_gradients(graph_of(mse, [4, 3], [4, 1], [3, 1], dtype=dtype), order=2)


def test_passes_third_order() -> None:
    check_gradients(graph_of(lambda x: x * x / (x * x + 1.0), [2]), order=3)


def test_an_input_that_no_output_reads_has_the_gradient_zero() -> None:
    used = graph_of(lambda x: x * x, [2])
    check_gradients(TensorGraph(used.nodes, [*used.inputs, ("idle", {"dtype": "f64", "shape": [2]})], used.outputs))


def test_checks_every_output_at_once() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[2])
        y = builder.apply(OffInRight, [x, x], {})
    check_gradients(builder.build(outputs=[x]))
    with pytest.raises(AssertionError, match="the gradient of 'v0'"):
        check_gradients(builder.build(outputs=[x, y]))


def test_a_symbolic_dim_has_the_size_that_a_given_array_shows() -> None:
    graph = graph_of(lambda x, y: (x * y).sum(), ["N"], [4])
    with pytest.raises(AssertionError, match="gradients of order 1"):
        check_gradients(graph)
    check_gradients(graph, at={"v0": np.ones(4)})


def test_the_point_decides() -> None:
    graph = graph_of(lambda x: x / x, [2])
    check_gradients(graph, at={"v0": [1.0, 2.0]})
    with pytest.raises(AssertionError, match="divide"):
        check_gradients(graph, at={"v0": [0.0, 2.0]})


def test_only_the_named_inputs_are_checked() -> None:
    with TensorGraphBuilder() as builder:
        x, y = [builder.input(name, dtype="f64", shape=[2]) for name in "xy"]
        graph_output = builder.apply(OffInRight, [x, y], {})
    graph = builder.build(outputs=[graph_output])
    check_gradients(graph, wrt=["v0"])
    with pytest.raises(AssertionError, match="the gradient of 'v1'"):
        check_gradients(graph, wrt=["v1"])


def test_wrt_must_be_an_input() -> None:
    with pytest.raises(ValueError, match=r"'v1', which is no input of the graph; expected one of \['v0'\]"):
        check_gradients(graph_of(lambda x: x * x, [2]), wrt=["v1"])


# ------------------------------------------------------------------------------------------- bugs inside the engine


def plant(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[DerivativeProgram], DerivativeProgram]) -> None:
    def spoiled(*args: Any, **kwargs: Any) -> DerivativeProgram:
        return spoil(generate(*args, **kwargs))

    monkeypatch.setattr(testing, "generate", spoiled)


@pytest.mark.parametrize("kept", [0, 1])
def test_catches_an_accumulation_that_loses_a_contribution(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    def spoil(program: DerivativeProgram) -> DerivativeProgram:
        """Every sum becomes one of its terms, scaled by nothing: the other contribution is lost."""
        sums = {
            n.output_value_id: n.input_value_ids[kept] for n in program.nodes if isinstance(n.operator, AddOperator)
        }

        def term(value_id: str) -> str:
            while value_id in sums:
                value_id = sums[value_id]
            return value_id

        gradients = {target: term(gradient) for target, gradient in program.gradients.items()}
        return replace(program, gradients=gradients, output_gradients=list(gradients.values()))

    graph = graph_of(lambda x, y: x * y + x * x * y, [2], [2])
    check_gradients(graph)
    plant(monkeypatch, spoil)
    with pytest.raises(AssertionError, match=r"gradients of order 1: the gradient of 'v0' at \[\d\] is"):
        check_gradients(graph)


def test_catches_gradients_that_are_handed_out_in_the_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(program: DerivativeProgram) -> DerivativeProgram:
        gradients = dict(zip(program.gradients, reversed(program.gradients.values()), strict=True))
        return replace(program, gradients=gradients, output_gradients=list(gradients.values()))

    plant(monkeypatch, spoil)
    with pytest.raises(AssertionError, match="the gradient of 'v0'"):
        check_gradients(graph_of(lambda x, y: x * y, [2], [2]))
