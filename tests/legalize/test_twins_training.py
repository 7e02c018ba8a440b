"""Training with twins on a device whose arrays nobody outside the programs can transpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, rank2_registry
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Target
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.serialization import dumps, loads_training_step
from tinychain.autodiff.training import SGD, Adam, ClipByGlobalNorm, CompiledTrainingStep, Momentum, Optimizer
from tinychain.autodiff.training.execution import StepExecution
from tinychain.autodiff.verify import verify_step
from twinning import DATA, RANK2, SHAPES, SQUARE, WIDER, Array, arrays_of, compiled, line, names, trainer

RATE = {"learning_rate": np.array(0.01)}


@dataclass(frozen=True)
class Device:
    """An array that can be handed on, and neither looked at nor transposed."""

    hidden: Array


@dataclass(frozen=True)
class Case:
    """A rule, the shapes of the loss's inputs, and what the rule is given."""

    optimizer: Any
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: SHAPES)
    given: Mapping[str, Array] = field(default_factory=lambda: RATE)


def on_device(program: LoweredProgram) -> Callable[[dict[str, Any]], dict[str, Any]]:
    function = NumpyFunction(program)

    def run(values: dict[str, Any]) -> dict[str, Any]:
        results = function({value_id: value.hidden for value_id, value in values.items()})
        return {value_id: Device(np.array(array)) for value_id, array in results.items()}

    return run


def with_transposes(arrays: Mapping[str, Array]) -> dict[str, Device]:
    """What a client sends once: each array, and each matrix transposed as well."""
    matrices = {f"{name} transposed": array.mT for name, array in arrays.items() if array.ndim > 1}
    return {name: Device(array) for name, array in {**arrays, **matrices}.items()}


def train(step: CompiledTrainingStep, case: Case, steps: int = 12) -> dict[str, Array]:
    """What becomes of parameters and states, and of their transposes, on a device."""
    arrays = arrays_of(case.shapes)
    trained = {name: array for name, array in arrays.items() if name not in DATA}
    values = with_transposes(trained)
    for record in step.parameters:
        for state in record.updated_state_value_ids:
            zeros = np.zeros_like(arrays[record.name])
            values[f"{record.name}.{state}"] = Device(zeros)
            if zeros.ndim > 1:
                values[f"{record.name} transposed.{state}"] = Device(zeros.mT)
    data = with_transposes({name: arrays[name] for name in DATA})
    followers = getattr(case.optimizer, "step_inputs", {})
    execution = StepExecution(step, on_device)
    for number in range(1, steps + 1):
        given = {**case.given, **{name: np.array(follow(number)) for name, follow in followers.items()}}
        values = execution.train(data, values, with_transposes(given), Device(np.ones(())))[1]
    return {name: value.hidden for name, value in values.items()}


def check(step: CompiledTrainingStep, reference: CompiledTrainingStep, case: Case) -> None:
    """Whether both come to the same parameters and states, and the twins to their transposes."""
    found, expected = train(step, case), train(reference, case)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-10, atol=1e-14)
    for name in found.keys() - expected.keys():
        np.testing.assert_allclose(found[name], expected[name.replace(" transposed", "")].mT, rtol=1e-10, atol=1e-14)


CASES = {
    "SGD": (SGD(weight_decay=0.1), RANK2),
    "momentum": (Momentum(0.9), RANK2),
    "Adam": (Adam(), WIDER),
    "clipped by the norm of all gradients": (ClipByGlobalNorm(Momentum(0.5), max_norm=0.1), WIDER),
}


@pytest.mark.parametrize(("optimizer", "target"), CASES.values(), ids=CASES)
def test_a_device_that_nobody_can_transpose_for_trains_to_the_weights_of_the_reference(
    optimizer: Any, target: Target
) -> None:
    step = compiled(target=target, optimizer=optimizer)
    assert names(step) == ["w1 transposed", "w2 transposed"]
    check(step, compiled(target=None, optimizer=optimizer), Case(optimizer))


def test_without_twins_the_runner_transposes_and_a_device_fails() -> None:
    with pytest.raises(AttributeError, match="mT"):
        train(compiled(twins=False), Case(SGD()))


def whitened(*, parameter: Any, gradient: Any, learning_rate: Any, mixing: Any) -> Any:
    """No function of the transposes alone: it centres the rows, and mixes them by a matrix and the gradient's own."""
    direction = mixing @ gradient + gradient @ gradient.mT @ parameter - parameter.mean(axes=[0])
    return parameter - direction * learning_rate


def test_an_update_that_is_not_elementwise_is_transposed_and_not_traced_again() -> None:
    shapes = {"learning_rate": (), "mixing": (5, 5)}
    step = compiled(line, SQUARE, optimizer=whitened, given=shapes)
    assert names(step) == ["w1 transposed"]
    assert all(verify_step(step, points=()).values())
    mixing = np.random.default_rng(1).standard_normal((5, 5))
    case = Case(whitened, SQUARE, {**RATE, "mixing": mixing})
    check(step, compiled(line, SQUARE, target=None, optimizer=whitened, given=shapes), case)


class Spread(Optimizer):
    """Scales by a number that is made of a gradient and its transpose."""

    required_optimizer_inputs = ("learning_rate", "spread")
    gradient_inputs = ("spread",)

    def from_gradients(self, gradients: Mapping[str, Any]) -> Any:
        return {"spread": (gradients["w1"].mT @ gradients["w1"]).sum()}

    def update(self, *, parameter: Any, gradient: Any, **tensors: Any) -> Any:
        return parameter - gradient * tensors["learning_rate"] * tensors["spread"]


def test_what_follows_from_all_gradients_may_read_one_transposed() -> None:
    step = compiled(line, SQUARE, optimizer=Spread())
    assert names(step) == ["w1 transposed"]
    check(step, compiled(line, SQUARE, target=None, optimizer=Spread()), Case(Spread(), SQUARE))


def test_a_trainer_carries_the_twins_and_goes_on_from_a_checkpoint_to_the_last_bit(tmp_path: Path) -> None:
    step = compiled(optimizer=Momentum(0.9))
    whole, half, rest = trainer(step), trainer(step), trainer(step)
    whole.fit([{}] * 6, epochs=1)
    half.fit([{}] * 3, epochs=1)
    half.save(tmp_path / "half.npz")
    rest.restore(tmp_path / "half.npz")
    rest.fit([{}] * 3, epochs=2)
    assert list(whole.parameters) == ["w1", "b1", "w2", "b2"]
    for name, array in whole.parameters.items():
        assert rest.parameters[name].tobytes() == array.tobytes()
    with pytest.raises(AutodiffError, match="it is of another training step"):
        trainer(compiled(optimizer=Momentum(0.9), twins=False)).restore(tmp_path / "half.npz")


def test_a_loss_that_reads_a_parameter_transposed_is_evaluated_with_its_twin() -> None:
    def turned(x: Any, y: Any, w2: Any) -> Any:
        return ((y @ w2.mT - x) * (y @ w2.mT - x)).mean()

    shapes = {"x": (8, 4), "y": (8, 2), "w2": (4, 2)}
    arrays = arrays_of(shapes)
    losses = []
    for step in (compiled(turned, shapes), compiled(turned, shapes, target=None)):
        run = Trainer(
            step,
            backend=NumpyFunction,
            parameters={"w2": arrays["w2"]},
            fixed={name: arrays[name] for name in DATA},
            optimizer_inputs={"learning_rate": 0.01},
        )
        run.fit([{}] * 5, epochs=1)
        losses.append(run.evaluate([{}]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_a_saved_step_keeps_its_twins_and_trains_to_the_last_bit() -> None:
    step = compiled(optimizer=Momentum(0.9))
    data = dumps(step)
    loaded = loads_training_step(data, handlers=rank2_registry(), bind_input=bind_input)
    assert dumps(loaded) == data
    assert loaded.twins is not None
    assert step.twins is not None
    assert loaded.twins.source_derivative_program == step.twins.source_derivative_program
    for found, expected in zip(loaded.twins.parameters, step.twins.parameters, strict=True):
        assert replace(found, update=expected.update) == expected
    assert all(verify_step(loaded, points=()).values())
    results = [train(one, Case(Momentum(0.9)), steps=3) for one in (step, loaded)]
    assert {name: array.tobytes() for name, array in results[0].items()} == {
        name: array.tobytes() for name, array in results[1].items()
    }


def test_the_planned_peak_counts_the_twins() -> None:
    peaks = [trainer(compiled(twins=twins)).fit([{}], epochs=1).peak_live_bytes for twins in (True, False)]
    assert peaks[0] is not None
    assert peaks[1] is not None
    assert peaks[0] - peaks[1] >= 8 * (5 * 4 + 4 * 2)
