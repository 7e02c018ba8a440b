"""What a plan says of itself."""

from __future__ import annotations

import json

import pytest

from backends.ckks.test_chooser import RANGES, planned
from tinychain.autodiff import AutodiffError
from tinychain.autodiff.backends.ckks import explain_plan, measure
from tinychain.autodiff.backends.ckks.parameters import Parameters


def test_the_levels_are_those_of_the_longest_chain() -> None:
    plan = planned("linear", ranges={**RANGES["linear"], "learning_rate": (0.0, 1.0)})
    explanation = explain_plan(plan)
    assert len(explanation.levels) == plan.circuit.depth == 3
    assert [label.split(" ", 1)[0] for label in explanation.levels] == ["matmul", "matmul", "sub"]
    assert "forward program in step 1" in explanation.levels[0]
    assert "update of 'w' in step 1" in explanation.levels[2]


def test_several_steps_spend_levels_one_after_the_other() -> None:
    explanation = explain_plan(planned("linear", steps_per_refresh=2))
    steps = [label.rsplit(" ", 1)[1] for label in explanation.levels]
    assert steps == sorted(steps)
    assert {*steps} == {"1", "2"}


def test_indices_are_named_by_the_axes_of_inputs() -> None:
    explanation = explain_plan(planned("network"))
    axes = {index.size: set(index.axes) for index in explanation.indices}
    assert axes[10] == {("x", 0), ("y", 0)}
    assert {("x", 1), ("w1", 0), ("w1.velocity", 0)} <= axes[4]
    assert all(index.size <= 1 << index.slot_bits + index.ciphertext_bits for index in explanation.indices)


def test_it_is_plain_data() -> None:
    data = json.loads(json.dumps(explain_plan(planned("network")).to_dict()))
    assert data["cost"] is None
    assert data["ring_size"] == 16384


def test_the_text_has_every_part() -> None:
    plan = planned("linear", largest_value=0.5)
    calibration = measure(plan.parameters)
    text = str(explain_plan(plan, calibration))
    for part in ("level  spent by", "axes of inputs", "rotate", "error at most", "peak MiB", "not proven"):
        assert part in text
    assert f"{plan.parameters.total_bits} bits (218 are secure)" in text


def test_another_ring_and_no_plan_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a TrainingPlan, got 3"):
        explain_plan(3)  # type: ignore[arg-type]
    small = measure(Parameters(1024, 30, (40,), 1, 50, secure=False))
    with pytest.raises(AutodiffError, match="the calibration is of a ring of 1024"):
        explain_plan(planned("linear"), small)
