"""A lowered training step against the same step written by hand in NumPy, interleaved in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.tables import markdown
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
    target: dict[str, Any] = {"handlers": reference_registry(), "bind_input": bind_input}
    program = generate(graph, loss_id, [w_id], "seed")
    derivative = lower_derivative_program(program, forward_graph=graph, seed_value_ids=["seed"], **target)
    captures = [capture.value_id for capture in derivative.dependencies.forward_captures]
    spec = {"dtype": dtype, "shape": [x.shape[1], 1]}
    traced = trace_parameter_update(
        sgd_update, parameter=spec, gradient=spec, optimizer_inputs={"learning_rate": {"dtype": dtype, "shape": []}}
    )
    forward_run = NumpyFunction(lower_graph(graph, outputs=[loss_id, *captures], **target))
    derivative_run = NumpyFunction(derivative)
    update_run = NumpyFunction(lower_graph(traced.graph, **target))
    ids = traced.input_value_ids
    seed, rate = np.ones((), x.dtype), np.full((), RATE, x.dtype)

    def step(w: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        inputs = {x_id: x, y_id: y, w_id: w}
        values = forward_run(inputs)
        gradient = derivative_run({**inputs, **values, "seed": seed})[program.gradients[w_id]]
        updated = update_run({ids["parameter"]: w, ids["gradient"]: gradient, ids["learning_rate"]: rate})
        return values[loss_id], updated[traced.updated_parameter_id]

    return step


def by_hand_step(x: NDArray[Any], y: NDArray[Any]) -> Step:
    """As a person writes it, with the gradient simplified on paper."""
    scale, rate = x.dtype.type(2 / len(x)), x.dtype.type(RATE)

    def step(w: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        residual = x @ w - y
        return (residual * residual).mean(), w - rate * (x.T @ (scale * residual))

    return step


def same_operations_step(x: NDArray[Any], y: NDArray[Any]) -> Step:
    """The operations of the lowered programs, one NumPy call each, so that only the running of them differs."""
    count, rate, seed = float(len(x)), x.dtype.type(RATE), np.ones((), x.dtype)

    def step(w: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        residual = x @ w - y
        loss = (residual * residual).mean()
        upstream = np.broadcast_to(seed.reshape(1, 1), residual.shape) / count
        return loss, w - rate * (x.T @ (upstream * residual + upstream * residual))

    return step


def interleaved(steps: Sequence[Step], w: NDArray[Any], rounds: int) -> list[float]:
    """The median seconds of each step, run by turns so that all see the same machine."""
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, found in zip(steps, seconds, strict=True):
            start = perf_counter()
            step(w)
            found.append(perf_counter() - start)
    return [median(found) for found in seconds]


@pytest.fixture(scope="module")
def rows(add_table: Callable[[str, str], None]) -> Iterator[list[list[str]]]:
    found: list[list[str]] = []
    yield found
    add_table("step", markdown(["dtype, us", "lowered", "by hand", "ratio", "same operations", "ratio"], found))


@pytest.mark.parametrize("dtype", DTYPES)
def test_step(benchmark: Any, dtype: str, rows: list[list[str]], smoke: bool) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH, FEATURES)).astype(DTYPES[dtype])
    y, w = random.standard_normal((BATCH, 1)).astype(x.dtype), np.zeros((FEATURES, 1), x.dtype)
    steps = [lowered_step(x, y, dtype), by_hand_step(x, y), same_operations_step(x, y)]
    for result in zip(*[step(w) for step in steps], strict=True):
        for other in result[1:]:
            np.testing.assert_allclose(result[0], other, rtol=1e-4 if dtype == "f32" else 1e-11)

    interleaved(steps, w, rounds=5)
    lowered, *others = benchmark.pedantic(interleaved, args=(steps, w, 5 if smoke else 2000), rounds=1)
    benchmark.extra_info.update(lowered_s=lowered, by_hand_s=others[0], same_operations_s=others[1])
    cells = [cell for other in others for cell in (f"{other * 1e6:.0f}", f"{lowered / other:.2f}")]
    rows.append([dtype, f"{lowered * 1e6:.0f}", *cells])
