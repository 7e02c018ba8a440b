"""What a step holds: captures and gradients go in time, and the planned peak is what NumPy really takes."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fusing import Hook
from steps import compiled, plain, spec
from tinychain.autodiff.backends.numpy import NumpyFunction
from tinychain.autodiff.inspection.footprint import step_bytes
from tinychain.autodiff.lowering import FusionContext, FusionResult, LoweredProgram
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import CompiledTrainingStep, Momentum
from trainers import any_rows, data, trainer


def network(x: Tensor, y: Tensor, **weights: Tensor) -> Tensor:
    for name in sorted(weights):
        x = (x @ weights[name]) * (x @ weights[name])
    residual = x - y
    return (residual * residual).mean()


def deep(rows: int, width: int, layers: int) -> CompiledTrainingStep:
    names = [f"w{layer}" for layer in range(layers)]
    shapes = {"x": spec(rows, width), "y": spec(rows, width), **{name: spec(width, width) for name in names}}

    def loss(**tensors: Tensor) -> Tensor:
        return network(**tensors)

    return compiled(loss=loss, inputs=shapes, parameters=names, optimizer=Momentum())


@pytest.mark.parametrize(("rows", "width", "layers"), [(4000, 16, 6), (64, 128, 6)], ids=["batch", "parameters"])
def test_the_peak_is_what_numpy_takes(rows: int, width: int, layers: int) -> None:
    step = deep(rows, width, layers)
    rng = np.random.default_rng(0)
    start = {p.name: rng.normal(size=(width, width)) / width for p in step.parameters}
    gc.collect()
    tracemalloc.start()
    try:
        arrays = {name: np.ones((rows, width)) for name in ("x", "y")}
        training = Trainer(step, backend=NumpyFunction, parameters=start, optimizer_inputs={"learning_rate": 1e-3})
        tracemalloc.reset_peak()
        report = training.fit(arrays, epochs=3)
        measured = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.peak_live_bytes is not None
    assert 0.75 * report.peak_live_bytes < measured < 1.1 * report.peak_live_bytes + 200_000


def watching(
    step: CompiledTrainingStep, alive_at: dict[str, list[int]]
) -> Callable[[LoweredProgram], Callable[[Any], Any]]:
    """A backend that says how many results of forward and derivative are alive when each program begins."""
    results: list[weakref.ref[NDArray[Any]]] = []
    names = {id(step.forward): "forward", id(step.derivative): "derivative"}

    def backend(program: LoweredProgram) -> Callable[[Any], Any]:
        function, name = NumpyFunction(program), names.get(id(program), "update")

        def call(arrays: Any) -> Any:
            alive_at.setdefault(name, []).append(sum(result() is not None for result in results))
            made = function(arrays)
            if name != "update":
                results.extend([weakref.ref(array) for array in made.values()])
            return made

        return call

    return backend


def test_captures_go_before_the_updates_and_each_gradient_after_its_own() -> None:
    step = deep(8, 4, 3)
    assert len(step.forward_capture_value_ids) > 3
    alive: dict[str, list[int]] = {}
    start = {p.name: np.ones((4, 4)) / 8 for p in step.parameters}
    training = Trainer(step, backend=watching(step, alive), parameters=start, optimizer_inputs={"learning_rate": 1e-3})
    arrays = {"x": np.ones((8, 4)), "y": np.ones((8, 4))}
    training.fit(arrays, epochs=2)
    assert alive["forward"] == [0, 0]
    assert alive["derivative"] == [len(step.forward.selected_outputs)] * 2
    # The loss is still there; of the three gradients, one less at each update.
    assert alive["update"] == [4, 3, 2] * 2


def test_the_largest_batch_counts() -> None:
    peaks = [trainer().fit(data(rows), epochs=1).peak_live_bytes for rows in (4, 8)]
    assert trainer().fit([data(4), data(8), data(4)], epochs=1).peak_live_bytes == peaks[1]
    assert trainer().fit(data(12), epochs=1, batch_size=8).peak_live_bytes == peaks[1]
    assert peaks[0] != peaks[1]


def test_the_plan_of_a_small_step_by_hand() -> None:
    """At the peak: w, its velocity, the gradient and three values of the update, 100 numbers each, and the rate."""
    step = compiled(loss=lambda w: w.sum(), inputs={"w": spec(100)}, optimizer=Momentum())
    assert step_bytes(step, {}) == 6 * 800 + 8


def test_what_is_not_known_is_said_to_be_so() -> None:
    assert step_bytes(any_rows(), {}) is None
    assert step_bytes(any_rows(), {"N": 4}) is not None


def test_a_fused_operation_holds_nothing_inside() -> None:
    """The update of momentum is mul, add, mul, sub; the last two become one, without the product between them."""

    def last_two(context: FusionContext) -> FusionResult | None:
        ids = [node.node_id for node in context.candidates[:2]]
        return FusionResult("fused", ids) if ids == ["n2", "n3"] else None

    step = plain(loss=lambda w: w.sum(), inputs={"w": spec(100)}, optimizer=Momentum(), fusion=Hook(last_two))
    assert step_bytes(step, {}) == 5 * 800 + 8
