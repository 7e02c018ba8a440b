"""Training through the runner against the same steps written by hand in NumPy, interleaved in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.networks import spec
from benchmarks.tables import markdown
from benchmarks.turns import interleaved
from tinychain.autodiff import SGD, compile_training_step
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, reference_registry
from tinychain.autodiff.runner import Trainer

BATCH, FEATURES, HIDDEN = 4096, 64, 64
RATE = 1e-3
STEPS = 50  # per turn
DTYPES = {"f32": np.float32, "f64": np.float64}

Array = NDArray[Any]
Weights = dict[str, Array]
Step = Callable[[Array, Array, Weights], tuple[Array, Weights]]


class Model(NamedTuple):
    """A loss, the shapes of its weights, and its step in NumPy: as a person writes it, and operation by operation."""

    loss: Callable[..., Any]
    shapes: Mapping[str, tuple[int, ...]]
    by_hand: Step
    same_operations: Step


def linear_loss(x: Any, y: Any, w: Any) -> Any:
    residual = x @ w - y
    return (residual * residual).mean()


def linear_by_hand(x: Array, y: Array, weights: Weights) -> tuple[Array, Weights]:
    """The gradient is simplified on paper."""
    w, kind = weights["w"], x.dtype.type
    residual = x @ w - y
    return (residual * residual).mean(), {"w": w - kind(RATE) * (x.T @ (kind(2 / len(x)) * residual))}


def linear_same_operations(x: Array, y: Array, weights: Weights) -> tuple[Array, Weights]:
    w, kind = weights["w"], x.dtype.type
    residual = x @ w - y
    loss = (residual * residual).mean()
    upstream = np.broadcast_to(np.ones((1, 1), x.dtype), residual.shape) / float(len(x))
    return loss, {"w": w - kind(RATE) * (x.T @ (upstream * residual + upstream * residual))}


def network_loss(x: Any, y: Any, a: Any, b: Any, w: Any) -> Any:
    hidden = x @ a + b
    residual = (hidden * hidden) @ w - y
    return (residual * residual).mean()


def network_by_hand(x: Array, y: Array, weights: Weights) -> tuple[Array, Weights]:
    a, b, w, kind = weights["a"], weights["b"], weights["w"], x.dtype.type
    hidden = x @ a + b
    squared = hidden * hidden
    residual = squared @ w - y
    upstream = kind(2 / len(x)) * residual
    in_hidden = (upstream @ w.T) * (2 * hidden)
    rate = kind(RATE)
    return (residual * residual).mean(), {
        "a": a - rate * (x.T @ in_hidden),
        "b": b - rate * in_hidden.sum(axis=0),
        "w": w - rate * (squared.T @ upstream),
    }


def network_same_operations(x: Array, y: Array, weights: Weights) -> tuple[Array, Weights]:
    a, b, w, kind = weights["a"], weights["b"], weights["w"], x.dtype.type
    hidden = x @ a + b
    squared = hidden * hidden
    residual = squared @ w - y
    loss = (residual * residual).mean()
    mean = np.broadcast_to(np.ones((1, 1), x.dtype), residual.shape) / float(len(x))
    upstream = mean * residual + mean * residual
    in_squared = upstream @ w.T
    in_hidden = in_squared * hidden + in_squared * hidden
    rate = kind(RATE)
    return loss, {
        "a": a - rate * (x.T @ in_hidden),
        "b": b - rate * in_hidden.sum(axis=0),
        "w": w - rate * (squared.T @ upstream),
    }


MODELS = {
    "linear": Model(linear_loss, {"w": (FEATURES, 1)}, linear_by_hand, linear_same_operations),
    "network": Model(
        network_loss,
        {"a": (FEATURES, HIDDEN), "b": (HIDDEN,), "w": (HIDDEN, 1)},
        network_by_hand,
        network_same_operations,
    ),
}


def by_runner(model: Model, x: Array, y: Array, weights: Weights, dtype: str) -> Callable[[], float]:
    """Some steps of full-batch SGD; each call starts from the same weights and returns the last loss."""
    step = compile_training_step(
        model.loss,
        inputs={name: spec(array.shape, dtype) for name, array in {"x": x, "y": y, **weights}.items()},
        parameters=list(weights),
        optimizer=SGD(),
        optimizer_inputs={"learning_rate": spec((), dtype)},
        handlers=reference_registry(),
        bind_input=bind_input,
    )

    def run() -> float:
        trainer = Trainer(step, backend=NumpyFunction, parameters=weights, optimizer_inputs={"learning_rate": RATE})
        return trainer.fit({"x": x, "y": y}, epochs=STEPS).losses[-1]

    return run


def by_loop(step: Step, x: Array, y: Array, weights: Weights) -> Callable[[], float]:
    def run() -> float:
        now = weights
        for _ in range(STEPS):
            loss, now = step(x, y, now)
        return float(loss)

    return run


@pytest.fixture(scope="module")
def rows(add_table: Callable[[str, str], None]) -> Iterator[list[list[str]]]:
    found: list[list[str]] = []
    yield found
    add_table("step", markdown(["model, us a step", "runner", "by hand", "ratio", "same operations", "ratio"], found))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_step(benchmark: Any, name: str, dtype: str, rows: list[list[str]], smoke: bool) -> None:
    model, random = MODELS[name], np.random.default_rng(0)
    x = random.standard_normal((BATCH, FEATURES)).astype(DTYPES[dtype])
    y = random.standard_normal((BATCH, 1)).astype(x.dtype)
    weights = {weight: (random.standard_normal(shape) / 8).astype(x.dtype) for weight, shape in model.shapes.items()}
    runs = [
        by_runner(model, x, y, weights, dtype),
        by_loop(model.by_hand, x, y, weights),
        by_loop(model.same_operations, x, y, weights),
    ]
    losses = [run() for run in runs]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-4 if dtype == "f32" else 1e-11)

    seconds = benchmark.pedantic(interleaved, args=(runs, 2 if smoke else 30), rounds=1)
    runner, *others = [each / STEPS for each in seconds]
    benchmark.extra_info.update(runner_s=runner, by_hand_s=others[0], same_operations_s=others[1])
    cells = [cell for other in others for cell in (f"{other * 1e6:.0f}", f"{runner / other:.2f}")]
    rows.append([f"{name}, {dtype}", f"{runner * 1e6:.0f}", *cells])
