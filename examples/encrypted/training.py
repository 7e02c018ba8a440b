"""One run of training on encrypted data in two processes, beside the same run on plain NumPy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.encrypted.models import MODELS, Arrays, Model
from tinychain.autodiff import CompiledTrainingStep, compile_training_step
from tinychain.autodiff.backends import ckks
from tinychain.autodiff.backends import numpy as plain
from tinychain.autodiff.expansion import Legalize
from tinychain.autodiff.runner import Trainer

ROOT = Path(__file__).parents[2]

#: What encryption may add to a weight in a refresh, and how far all of them may have moved one at the end.
PRECISION = 1e-5
TOLERANCE = 1e-3

#: Rewrites what the encryption lacks, in each of the three programs of a step.
LEGAL = {f"{program}_expansions": [Legalize(ckks.CKKS)] for program in ("forward", "derivative", "update")}


@dataclass(frozen=True)
class Outcome:
    """What a run came to, beside what was predicted of it.

    `start_bytes` is the memory of the server's process before the keys came, `peak_bytes` the most that it had, None
    where the system does not tell. `errors` are the most that encryption added to an element of each parameter in one
    request, `difference` is the largest to the weights of the plain run, over all steps.
    """

    plan: ckks.TrainingPlan
    cost: ckks.Cost
    report: ckks.EncryptedReport
    start_bytes: int | None
    peak_bytes: int | None
    errors: Mapping[str, float]
    difference: float
    accuracy: float
    plain_accuracy: float

    @property
    def agrees(self) -> bool:
        return self.difference < TOLERANCE and self.accuracy == self.plain_accuracy


# ----------------------------------------------------------------------------------------------------------- one model


def plan_of(model: Model, steps_per_refresh: int) -> ckks.TrainingPlan:
    """What the client and the server both make of a model. All but the learning rate is secret.

    In one step the errors on the worst data are precise enough; in several, they are far from what happens.
    """
    step = _compile(model, handlers=ckks.ckks_registry(), bind_input=ckks.bind_input, **LEGAL)
    ranges = {**model.ranges, "learning_rate": model.learning_rate}
    return ckks.plan_training(
        step,
        secret=[*model.shapes],
        ranges=ranges,
        steps_per_refresh=steps_per_refresh,
        precision=PRECISION,
        sample=None if steps_per_refresh == 1 else model.sample(),
    )


def plain_trainer(model: Model, parameters: Arrays, state: Mapping[str, Arrays] | None = None) -> Trainer:
    """The same training on NumPy, from the step as it is traced."""
    return Trainer(
        _compile(model, handlers=plain.reference_registry(), bind_input=plain.bind_input),
        backend=plain.NumpyFunction,
        parameters=parameters,
        optimizer_inputs={"learning_rate": model.learning_rate},
        state=state,
    )


def _compile(model: Model, **target: Any) -> CompiledTrainingStep:
    return compile_training_step(
        model.loss,
        inputs={name: {"dtype": "f64", "shape": list(shape)} for name, shape in model.shapes.items()},
        parameters=model.parameters,
        optimizer=model.optimizer,
        optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": []}},
        **target,
    )


def difference(found: Arrays, expected: Arrays) -> float:
    return max([float(np.max(np.abs(found[name] - expected[name]))) for name in expected])


def errors_of_request(
    model: Model, trainer: ckks.EncryptedTrainer, data: Arrays, steps_per_refresh: int
) -> dict[str, float]:
    """The most, by parameter, that an element is off after one more request from the same steps on NumPy."""
    expected = plain_trainer(model, trainer.parameters, trainer.state)
    expected.fit(data, epochs=steps_per_refresh)
    trainer.fit(data, steps=steps_per_refresh)
    return {
        name: float(np.max(np.abs(trainer.parameters[name] - array))) for name, array in expected.parameters.items()
    }


# ------------------------------------------------------------------------------------------------------- two processes


def run(name: str, steps: int, steps_per_refresh: int) -> Outcome:
    """Trains here, as the client, with a server in another process; then on NumPy, and compares."""
    model = MODELS[name]
    plan = plan_of(model, steps_per_refresh)
    cost = plan.cost(ckks.measure(plan.parameters))
    data, test = model.load()
    with start_server(name, steps_per_refresh) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        exchange = ckks.connect(plan, server.stdout, server.stdin)
        exchange(b"")  # which it refuses, as soon as it has its plan
        start_bytes = most_memory(server.pid)
        trainer = ckks.EncryptedTrainer(plan, exchange, parameters=model.start())
        report = trainer.fit(data, steps=steps)
        weights = trainer.parameters
        errors = errors_of_request(model, trainer, data, steps_per_refresh)
        peak_bytes = most_memory(server.pid)
    expected = plain_trainer(model, model.start())
    expected.fit(data, epochs=steps)
    return Outcome(
        plan=plan,
        cost=cost,
        report=report,
        start_bytes=start_bytes,
        peak_bytes=peak_bytes,
        errors=errors,
        difference=difference(weights, expected.parameters),
        accuracy=model.accuracy(test, weights),
        plain_accuracy=model.accuracy(test, expected.parameters),
    )


def start_server(name: str, steps_per_refresh: int) -> subprocess.Popen[bytes]:
    """The process that computes. It is told the name of the model, and ends when its input does."""
    options = ["--server", name, "--steps-per-refresh", str(steps_per_refresh)]
    command = [sys.executable, "-m", "examples.encrypted", *options]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve(name: str, steps_per_refresh: int) -> None:
    """What that process does."""
    ckks.serve(plan_of(MODELS[name], steps_per_refresh), sys.stdin.buffer, sys.stdout.buffer)


def most_memory(pid: int) -> int | None:
    """The most bytes that a running process has had, where the system tells, as Linux does."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE) if status.exists() else None
    return int(found[1]) * 1024 if found else None
