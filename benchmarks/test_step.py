"""A lowered training step against the same step written by hand in NumPy, interleaved in one run."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tables import markdown
from tinychain.autodiff import (
    TensorGraphBuilder,
    generate,
    lower_derivative_program,
    lower_graph,
    sgd_update,
    trace_parameter_update,
)
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, reference_registry

BATCH, FEATURES = 4096, 64
RATE = 0.01
DTYPES = {"f32": np.float32, "f64": np.float64}

Step = Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]


def lowered_step(x: NDArray[Any], y: NDArray[Any], dtype: str) -> Step:
    """Linear regression with squared error and SGD: w -> (loss, next w), through trace, generate and lower."""
    with TensorGraphBuilder() as builder:
        tensors = [
            builder.input(name, dtype=dtype, shape=shape)
            for name, shape in {"x": x.shape, "y": y.shape, "w": (x.shape[1], 1)}.items()
        ]
        residual = tensors[0] @ tensors[2] - tensors[1]
        loss = (residual * residual).mean()
    graph = builder.build(outputs=loss)
    x_id, y_id, w_id, loss_id = [builder.value_id(tensor) for tensor in (*tensors, loss)]
    handlers = {"handlers": reference_registry(), "bind_input": bind_input}
    program = generate(graph, loss_id, [w_id], "seed")
    derivative = lower_derivative_program(program, forward_graph=graph, seed_value_ids=["seed"], **handlers)
    captures = [capture.value_id for capture in derivative.dependencies.forward_captures]
    spec = {"dtype": dtype, "shape": [x.shape[1], 1]}
    traced = trace_parameter_update(
        sgd_update, parameter=spec, gradient=spec, optimizer_inputs={"learning_rate": {"dtype": dtype, "shape": []}}
    )
    forward_run = NumpyFunction(lower_graph(graph, outputs=[loss_id, *captures], **handlers))
    derivative_run = NumpyFunction(derivative)
    update_run = NumpyFunction(lower_graph(traced.graph, **handlers))
    ids = traced.input_value_ids
    seed, rate = np.ones((), x.dtype), np.full((), RATE, x.dtype)

    def step(w: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        inputs = {x_id: x, y_id: y, w_id: w}
        values = forward_run(inputs)
        gradient = derivative_run({**inputs, **values, "seed": seed})[program.gradients[w_id]]
        updated = update_run({ids["parameter"]: w, ids["gradient"]: gradient, ids["learning_rate"]: rate})
        return values[loss_id], updated[traced.updated_parameter_id]

    return step


def handwritten_step(x: NDArray[Any], y: NDArray[Any]) -> Step:
    scale, rate = x.dtype.type(2 / len(x)), x.dtype.type(RATE)

    def step(w: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        residual = x @ w - y
        return (residual * residual).mean(), w - rate * (x.T @ (scale * residual))

    return step


def interleaved(first: Step, second: Step, w: NDArray[Any], rounds: int) -> tuple[float, float]:
    """The median seconds of each of two steps, run by turns so that both see the same machine."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for step, found in zip((first, second), seconds, strict=True):
            start = perf_counter()
            step(w)
            found.append(perf_counter() - start)
    return median(seconds[0]), median(seconds[1])


@pytest.fixture(scope="module")
def rows(add_table: Callable[[str, str], None]) -> Any:
    found: list[list[str]] = []
    yield found
    add_table("step", markdown(["dtype", "lowered, us", "by hand, us", "ratio"], found))


@pytest.mark.parametrize("dtype", DTYPES)
def test_step(benchmark: Any, dtype: str, rows: list[list[str]], smoke: bool) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH, FEATURES)).astype(DTYPES[dtype])
    y, w = random.standard_normal((BATCH, 1)).astype(x.dtype), np.zeros((FEATURES, 1), x.dtype)
    lowered, by_hand = lowered_step(x, y, dtype), handwritten_step(x, y)
    for ours, theirs in zip(lowered(w), by_hand(w), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4 if dtype == "f32" else 1e-11)

    interleaved(lowered, by_hand, w, rounds=5)
    medians = benchmark.pedantic(interleaved, args=(lowered, by_hand, w, 5 if smoke else 2000), rounds=1)
    ratio = medians[0] / medians[1]
    benchmark.extra_info.update(lowered_s=medians[0], by_hand_s=medians[1], ratio=ratio)
    rows.append([dtype, *[f"{seconds * 1e6:.0f}" for seconds in medians], f"{ratio:.2f}"])
