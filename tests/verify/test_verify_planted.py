"""Wrong rewrites, planted, each of which both checks must find."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nextafter
from typing import Any

import pytest

from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.operators import MatmulOperator
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder
from tinychain.autodiff.verify import EquivalenceResult, verify_equivalent
from verifying import Function, edited, rescaled, traced, verified

WELL_CONDITIONED = ["normal", "tiny", "huge"]
FAR_OFF = 100.0


def squares(x: Tensor, y: Tensor) -> Tensor:
    return (x * x + y).mean()


GRAPH = traced(squares, [5, 3], [5, 3])
EXPANDED = expand_mean_graph(GRAPH)


def worst(result: EquivalenceResult) -> float:
    assert result.numeric is not None
    return max(result.numeric.worst_ulps.values())


def test_the_right_expansion_passes_both() -> None:
    result = verify_equivalent(GRAPH, EXPANDED, points=WELL_CONDITIONED)
    assert result.equivalent
    assert worst(result) < FAR_OFF


@pytest.mark.parametrize(
    "scale",
    [lambda s: 1 / 16, lambda s: s * 1.0005, lambda s: -s, lambda s: 1.0, lambda s: 0.0, lambda s: s * (1 + 1e-13)],
)
def test_a_wrong_scale(scale: Any) -> None:
    result = verify_equivalent(GRAPH, rescaled(EXPANDED, scale), points=WELL_CONDITIONED)
    assert result.difference is not None
    assert worst(result) > FAR_OFF


@pytest.mark.parametrize("towards", [-inf, inf])
def test_a_scale_that_is_off_by_its_last_bit_is_found_exactly(towards: float) -> None:
    assert not verify_equivalent(
        GRAPH, rescaled(EXPANDED, lambda scale: nextafter(scale, towards)), points=()
    ).equivalent


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param(lambda x, y: x @ y, lambda x, y: y @ x, id="swapped factors"),
        pytest.param(lambda x, y: x @ y, lambda x, y: x.T @ y, id="a transposed factor"),
        pytest.param(lambda x, y: x @ y, lambda x, y: (x @ y).T, id="a transposed product"),
        pytest.param(lambda x, y: (x @ y).T, lambda x, y: x.T @ y.T, id="a transposed product, not reversed"),
        pytest.param(lambda x, y: x * x + y, lambda x, y: x * x, id="a lost term"),
        pytest.param(lambda x, y: x * x + y, lambda x, y: x * x + y + y, id="a term twice"),
        pytest.param(lambda x, y: x - y, lambda x, y: y - x, id="swapped terms"),
        pytest.param(lambda x, y: x.mean([0]), lambda x, y: x.mean([1]), id="a wrong axis"),
        pytest.param(lambda x, y: x + y.sum([0], True), lambda x, y: x + y.sum([1], True), id="a wrong axis, kept"),
        pytest.param(lambda x, y: x / y, lambda x, y: x * y, id="an inverse"),
        pytest.param(lambda x, y: x.sqrt() + y, lambda x, y: x.exp() + y, id="another function"),
        pytest.param(lambda x, y: x.maximum(y), lambda x, y: x.minimum(y), id="the other extremum"),
        pytest.param(lambda x, y: x.sum([0]), lambda x, y: x.sum([0]) * 0.25 * 4.002, id="a factor of 1.0005"),
    ],
)
def test_a_wrong_rewrite(right: Function, wrong: Function) -> None:
    result = verified(right, wrong, [4, 4], [4, 4], points=WELL_CONDITIONED)
    assert result.difference is not None
    assert worst(result) > FAR_OFF


def test_swapped_operands_in_the_records() -> None:
    graph = traced(lambda x, y: x @ y, [3, 3], [3, 3])
    assert not verify_equivalent(graph, edited(graph, MatmulOperator, input_value_ids=["v1", "v0"])).equivalent


def test_a_wrong_gradient() -> None:
    with TensorGraphBuilder() as builder:
        x, y = [builder.input(name, dtype="f64", shape=[5, 3]) for name in "xy"]
        loss = ((x * x + y).mean(keepdims=True) * 2.0).sum()
    program = builder.vjp(loss, wrt=[x, y])
    rewritten = expand_mean_derivative_program(program)
    assert verify_equivalent(program, rewritten).equivalent
    nodes = [
        replace(node, op_params={"right_literal": 1 / 16}) if node.op_params.get("right_literal") == 1 / 15 else node
        for node in rewritten.nodes
    ]
    result = verify_equivalent(program, replace(rewritten, nodes=nodes), points=WELL_CONDITIONED)
    assert result.difference is not None
    assert worst(result) > FAR_OFF
