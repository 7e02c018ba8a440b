"""The bytes of a step that is run program by program, beside those of the step as one program."""

from __future__ import annotations

from typing import Any

import pytest

from inspected import main_job, three_layer_step
from steps import compiled, spec
from tinychain.autodiff.backends.numpy import rank2_registry
from tinychain.autodiff.expansion.legalize import Legalize
from tinychain.autodiff.expansion.targets import ready_target
from tinychain.autodiff.inspection import summarize
from tinychain.autodiff.inspection.footprint import step_bytes
from tinychain.autodiff.training import CompiledTrainingStep, Momentum, Optimizer


def planned(step: CompiledTrainingStep) -> int:
    total = step_bytes(step, {})
    assert total is not None
    return total


@pytest.mark.parametrize("step", [main_job(), three_layer_step(), three_layer_step(optimizer=Momentum())])
def test_programs_one_by_one_take_more_than_the_step_as_one_program(step: CompiledTrainingStep) -> None:
    figures = summarize(step).total.lowered
    assert figures is not None
    assert figures.peak_live_bytes is not None
    assert planned(step) >= figures.peak_live_bytes


def test_the_main_job_by_hand() -> None:
    """At the last matmul: x, y, w and the learning rate; the residual, the loss, the seed; two operands, the result."""
    assert planned(main_job()) == 4 * ((455 * 31 + 455 + 31 + 1) + (455 + 1 + 1) + (31 * 455 + 455 + 31))


def test_an_array_that_is_bound_transposed_counts_too() -> None:
    passes: Any = [Legalize(ready_target("add-mul-matmul-rank2"))]
    inputs = {"x": spec(40, 30), "y": spec(40, 1), "w": spec(30, 1)}
    legal = compiled(
        inputs=inputs, handlers=rank2_registry(), forward_expansions=passes, derivative_expansions=passes,
        update_expansions=passes,
    )  # fmt: skip
    assert planned(legal) >= 8 * 2 * 40 * 30


class Forgetful(Optimizer):
    """Has a state that it never reads."""

    state = ("last",)
    required_optimizer_inputs = ("learning_rate",)

    def update(self, *, parameter: Any, gradient: Any, learning_rate: Any, last: Any) -> Any:  # type: ignore[override]
        return parameter - gradient * learning_rate, {"last": gradient}


def test_a_state_that_nobody_reads_is_there_too() -> None:
    """w, its state, the gradient, the scaled gradient and the new w, and the learning rate."""
    step = compiled(loss=lambda w: w.sum(), inputs={"w": spec(100)}, optimizer=Forgetful())
    assert planned(step) == 5 * 800 + 8
