"""The encrypted runs: their circuits compute what NumPy does, and two processes train three models to its weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.ckks.simulating import simulate
from ckks_steps import evaluated
from examples.encrypted.models import MODELS, Model
from examples.encrypted.training import difference, plain_trainer, plan_of, run
from tinychain.autodiff.backends.ckks import EncryptedTrainer, Server, TrainingPlan

ROOT = Path(__file__).parents[2]

#: What the server's process may take of memory.
BYTES = 2 * 2**30


def drawn(plan: TrainingPlan) -> Mapping[str, NDArray[Any]]:
    """Arrays for all inputs, within a third of their ranges."""
    random = np.random.default_rng(0)
    operations = plan.program.operations
    shapes = {name: operations[position].shape for name, position in plan.program.inputs.items()}
    return {name: random.uniform(*plan.ranges[name], size=shape) / 3 for name, shape in shapes.items()}


def plain_weights(model: Model, steps: int) -> Mapping[str, NDArray[Any]]:
    trainer = plain_trainer(model, model.start())
    trainer.fit(model.load()[0], epochs=steps)
    return trainer.parameters


def test_a_few_encrypted_steps_train_as_numpy_does() -> None:
    model = MODELS["linear"]
    plan = plan_of(model, steps_per_refresh=1)
    assert plan.parameters.ring_size == 8192
    trainer = EncryptedTrainer(plan, Server(plan).handle, parameters=model.start())
    report = trainer.fit(model.load()[0], steps=3)
    assert report.steps == 3
    assert difference(trainer.parameters, plain_weights(model, 3)) < 1e-6


@pytest.mark.parametrize(("name", "steps"), [("linear", 1), ("linear", 2), ("logistic", 1), ("network", 1)])
def test_the_circuits_compute_what_the_steps_mean(name: str, steps: int) -> None:
    plan = plan_of(MODELS[name], steps)
    arrays = drawn(plan)
    expected = evaluated(plan.program, arrays)
    for result, found in simulate(plan.circuit, plan.program, plan.indices, plan.layout, arrays).items():
        np.testing.assert_allclose(found, expected[plan.program.outputs[result]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_to_the_word_of_the_caller(name: str) -> None:
    assert plan_of(MODELS[name], 1).unproven == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "steps_per_refresh"),
    [("linear", 20, 1), ("linear", 6, 2), ("logistic", 20, 1), ("network", 20, 1)],
)
def test_two_processes_train_to_the_weights_and_the_accuracy_of_numpy(
    name: str, steps: int, steps_per_refresh: int
) -> None:
    outcome = run(name, steps, steps_per_refresh)
    assert outcome.report.steps == steps
    assert outcome.agrees
    assert outcome.difference < 1e-3
    assert outcome.accuracy == outcome.plain_accuracy > 0.9
    assert outcome.peak_bytes is None or outcome.peak_bytes < BYTES


@pytest.mark.slow
def test_the_command_prints_the_predictions_beside_what_it_measured() -> None:
    command = [sys.executable, "-m", "examples.encrypted", "--model", "linear", "--steps", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "455 x 30, 2 steps" in done.stdout
    assert "below 1e-03" in done.stdout
    assert "NOT below" not in done.stdout
    assert done.stderr == ""
