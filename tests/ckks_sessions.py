"""Plans in small rings, which are fast and not secure, with data that suit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ckks_steps import MODELS, Arrays, Model, arrays_for, compiled
from tinychain.autodiff.backends.ckks.axes import share_indices
from tinychain.autodiff.backends.ckks.client import Client
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.planner import plan_circuit
from tinychain.autodiff.backends.ckks.program import link
from tinychain.autodiff.backends.ckks.ranges import Interval, bounds
from tinychain.autodiff.backends.ckks.search import cheapest, layouts
from tinychain.autodiff.backends.ckks.server import Server
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.training.execution import trained_names

RING_SIZE = 1024
SCALE_BITS = 40
RATE = 0.125

LINEAR = MODELS["linear"]


@cache
def small_plan(name: str = "linear", steps: int = 1, loss: bool = True, dtype: str = "f64") -> TrainingPlan:
    """The plan of a model of `MODELS` in a small ring; everything but the learning rate is secret."""
    return plan_of(MODELS[name], steps, loss, dtype)


def plan_of(model: Model, steps: int = 1, loss: bool = True, dtype: str = "f64") -> TrainingPlan:
    step = compiled(model, dtype)
    program = link(step, secret=[*model.shapes], known={}, steps=steps, loss=loss)
    indices = share_indices(program)
    states = [state for record in step.parameters for state in trained_names(record) if state != record.name]
    declared = dict.fromkeys([*model.shapes, *states], (-16.0, 16.0)) | {"learning_rate": (0.0, 1.0)}
    intervals = bounds(program, declared)
    layout, circuit = cheapest(
        lambda layout: plan_circuit(program, indices, intervals, layout),
        layouts(indices.sizes, RING_SIZE.bit_length() - 2),
        RING_SIZE,
    )
    return TrainingPlan(
        program=program,
        indices=indices,
        layout=layout,
        circuit=circuit,
        parameters=Parameters(RING_SIZE, SCALE_BITS, (60,), circuit.depth, 60, secure=False),
        intervals=intervals,
        parameter_names=tuple([record.name for record in step.parameters]),
        state_names=tuple(states),
        steps_per_refresh=steps,
        precision=1e-3,
        loss=loss,
        fixed=(),
        unread=(),
        unproven=(),
    )


def with_range(plan: TrainingPlan, name: str, low: float, high: float) -> TrainingPlan:
    """The plan as it would be if this range had been declared, but for the circuit."""
    intervals = [*plan.intervals]
    intervals[plan.program.inputs[name]] = Interval(low, high)
    return replace(plan, intervals=intervals)


def split(plan: TrainingPlan, arrays: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data, and what is trained."""
    trained = {*plan.parameter_names, *plan.state_names}
    return (
        {name: array for name, array in arrays.items() if name not in trained},
        {name: array for name, array in arrays.items() if name in trained},
    )


class Both:
    """A client and a server of one plan, in one process, and good data."""

    def __init__(self, plan: TrainingPlan | None = None, model: Model = LINEAR) -> None:
        self.plan = small_plan() if plan is None else plan
        self.client, self.server = Client(self.plan), Server(self.plan)
        self.data, self.trained = split(self.plan, arrays_for(model))

    def start(self) -> Both:
        """Sends keys and data."""
        self.client.accept(self.server.handle(self.client.keys()))
        self.client.accept(self.server.handle(self.client.data(self.data)))
        return self

    def request(self, **changes: Any) -> bytes:
        return self.client.request({**self.trained, **changes}, {"learning_rate": RATE})

    def works(self) -> bool:
        """Whether a request is answered."""
        result = self.client.result(self.server.handle(self.request()))
        return {*result.trained} == {*self.trained}


def refusal(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        function(*arguments, **keywords)
    return caught.value


def close(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(np.allclose(found[name], expected[name], rtol=0, atol=1e-4) for name in found)
