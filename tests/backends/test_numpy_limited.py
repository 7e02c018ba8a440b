"""The limited backend: what it owns, and that everything else is refused before a single number is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from by_hand import program
from running import trace
from tinychain.autodiff.backends.numpy import (
    NumpyFunction,
    bind_input,
    limited_registry,
    reference_registry,
)
from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.lowering import lower_derivative_program, lower_graph
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
)
from tinychain.autodiff.reverse import joint_graph
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

OWNED = (AddOperator, MulOperator, MatmulOperator, FillOperator, ReshapeOperator)


def run(graph: TensorGraph, *, limited: bool) -> list[np.ndarray[Any, Any]]:
    handlers = limited_registry() if limited else reference_registry()
    function = NumpyFunction(lower_graph(graph, handlers=handlers, bind_input=bind_input))
    arrays = {}
    for number, (value_id, spec) in enumerate(graph.inputs):
        assert spec is not None
        arrays[value_id] = np.random.default_rng(number).uniform(0.5, 2.0, spec["shape"])
    results = function(arrays)
    return [results[output] for output in graph.outputs]


def refusal(graph: TensorGraph) -> tuple[AutodiffError, list[str]]:
    """The error of lowering a graph, and the inputs that had been bound by then."""
    bound = []

    def recording(dependency: ValueDependency) -> Any:
        bound.append(dependency.value_id)
        return bind_input(dependency)

    with pytest.raises(AutodiffError) as caught:
        lower_graph(graph, handlers=limited_registry(), bind_input=recording)
    return caught.value, bound


def test_owns_exactly_its_five_operators() -> None:
    assert set(limited_registry().supported_types()) == set(OWNED)


def test_a_registry_is_new_each_time() -> None:
    limited_registry().register(reference_registry().lookup(OPERATORS[1]))
    assert set(limited_registry().supported_types()) == set(OWNED)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, y: x + y, [[2, 3], [2, 3]]),
        (lambda x, y: x * y, [[2, 3], [2, 3]]),
        (lambda x: x * -1.5, [[2, 3]]),
        (lambda x: x * 3, [[]]),
        (lambda x, y: x @ y, [[2, 3], [3, 4]]),
        (lambda x, y: x @ y, [[5, 2, 3], [5, 3, 4]]),
        (lambda x: x.reshape(3, 2), [[2, 3]]),
        (lambda x: x.reshape([]), [[1, 1]]),
        (lambda x: x * x + x, [[4]]),
    ],
)
def test_computes_what_the_reference_computes(function: Callable[..., Tensor], shapes: list[list[int | str]]) -> None:
    graph = trace(function, *shapes)
    for got, wanted in zip(run(graph, limited=True), run(graph, limited=False), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_fills() -> None:
    fill = TensorNodeRecord(
        node_id="n0",
        output_value_id="v0",
        operator=FillOperator(),
        op_params={"fill": 1.5, "dtype": "f32", "shape": [2]},
        input_value_ids=(),
        output_typespec={"dtype": "f32", "shape": [2]},
    )
    (got,) = run(TensorGraph([fill], [], ["v0"]), limited=True)
    assert (got.dtype, got.tolist()) == (np.float32, [1.5, 1.5])


def test_symbols_of_one_name_are_the_same_shape() -> None:
    lowered = lower_graph(trace(lambda x, y: x + y, ["N"], ["N"]), handlers=limited_registry(), bind_input=bind_input)
    assert NumpyFunction(lowered)({"v0": np.ones(3), "v1": np.ones(3)})["v2"].tolist() == [2.0] * 3


# ---------------------------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x - x, "SubOperator"),
        (lambda x: x + 1.0, "SubOperator"),
        (lambda x: x / x, "DivOperator"),
        (lambda x: x.sum(), "SumOperator"),
        (lambda x: x.mean(), "MeanOperator"),
        (lambda x: x.T, "TransposeOperator"),
        (lambda x: x.broadcast_to([2, 3, 3]), "BroadcastOperator"),
    ],
)
def test_refuses_another_operator_before_anything_is_bound(function: Callable[[Any], Tensor], operator: str) -> None:
    error, bound = refusal(trace(lambda x: function(x * x) * 2.0, [3, 3]))
    assert error.category == "unsupported_operator"
    assert operator in error.message
    assert "'n1'" in error.message
    assert bound == []


@pytest.mark.parametrize(
    ("function", "shapes", "part"),
    [
        (lambda x, y: x + y, [[2, 3], [3]], "f64[2, 3] and f64[3]"),
        (lambda x, y: x + y, [[2, 3], [2, 1]], "f64[2, 3] and f64[2, 1]"),
        (lambda x, y: x * y, [[2, 3], []], "f64[2, 3] and f64[]"),
        (lambda x, y: x + y, [["N"], [3]], "f64[N] and f64[3]"),
        (lambda x, y: x @ y, [[5, 2, 3], [3, 4]], "f64[5, 2, 3] and f64[3, 4]"),
        (lambda x, y: x @ y, [[5, 2, 3], [1, 3, 4]], "f64[5, 2, 3] and f64[1, 3, 4]"),
    ],
)
def test_refuses_to_broadcast(function: Callable[..., Tensor], shapes: list[list[int | str]], part: str) -> None:
    error, _ = refusal(trace(function, *shapes))
    assert error.category == "broadcast_shape_mismatch"
    assert "'n0'" in error.message
    assert part in error.message
    assert "does not broadcast" in error.message


def reshape(source: Any, target: list[int | str]) -> TensorGraph:
    """A reshape built by hand, which no type rule has seen."""
    node = TensorNodeRecord(
        node_id="n0",
        output_value_id="v1",
        operator=ReshapeOperator(),
        op_params={"shape": target},
        input_value_ids=["v0"],
        output_typespec={"dtype": "f64", "shape": target},
    )
    return TensorGraph([node], [("v0", {"dtype": "f64", "shape": source})], ["v1"])


@pytest.mark.parametrize(
    ("source", "target"), [([2, 3], [2, 4]), ([], [0]), (["N"], [3]), (["N"], ["N", 1]), ([3], ["N"])]
)
def test_refuses_a_reshape_to_another_or_an_unknown_count(source: list[int | str], target: list[int | str]) -> None:
    error, _ = refusal(reshape(source, target))
    assert error.category == "shape_mismatch"
    assert "'n0'" in error.message
    assert f"to {target}" in error.message


def test_refuses_operands_of_unknown_type() -> None:
    node = TensorNodeRecord(
        node_id="dn0", output_value_id="d0", operator=AddOperator(), op_params={}, input_value_ids=["seed", "seed"]
    )
    with pytest.raises(AutodiffError, match="None and None") as caught:
        lower_derivative_program(
            program(nodes=[node], output_gradients=["d0"]),
            forward_graph=TensorGraph([], [], []),
            seed_value_ids=["seed"],
            handlers=limited_registry(),
            bind_input=bind_input,
        )
    assert caught.value.category == "broadcast_shape_mismatch"


# -------------------------------------------------------------------------------------------------- a whole gradient


def test_an_expanded_mean_and_its_gradient_run_on_it() -> None:
    """A sum of squares over a matrix, whose gradient needs no transpose."""
    with TensorGraphBuilder() as builder:
        x, y = [builder.input(name, dtype="f64", shape=[4, 3]) for name in "xy"]
        residual = x * -1.0 + y
        loss = (residual * residual).mean(keepdims=True)
    graph = builder.build(outputs=[loss])
    gradient = builder.vjp(loss, wrt=[x])
    joint = joint_graph(
        expand_mean_derivative_program(gradient, reserved_id_prefix="gx"), forward_graph=expand_mean_graph(graph)
    )
    wanted = run(joint_graph(gradient, forward_graph=graph), limited=False)
    for got, expected in zip(run(joint, limited=True), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    error, _ = refusal(graph)
    assert "MeanOperator" in error.message
