"""The runner takes the steps that a loop by hand would take, and says what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from steps import compiled, spec
from tinychain.autodiff.backends.numpy import NumpyFunction
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD
from trainers import RATE, any_rows, by_hand, data, four_rows, refusal, squares, trainer

# ---------------------------------------------------------------------------------------------------------------- steps


def test_a_step_is_what_it_is_by_hand() -> None:
    step, arrays = any_rows(), data()
    losses, parameters, states = by_hand(step, [arrays] * 3)
    training = trainer(step)
    report = training.fit(arrays, epochs=3)
    assert report.losses == tuple(losses)
    np.testing.assert_array_equal(training.parameters["w"], parameters["w"])
    np.testing.assert_array_equal(training.state["w"]["velocity"], states["w"]["velocity"])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_keeps_the_dtype(dtype: str) -> None:
    numpy_dtype = np.dtype(f"float{dtype[1:]}")
    training = trainer(any_rows(dtype), parameters={"w": np.zeros((3, 1), numpy_dtype)})
    report = training.fit(data(dtype=dtype), epochs=40)
    assert report.losses[-1] < 1e-3 * report.losses[0]
    assert training.parameters["w"].dtype == training.state["w"]["velocity"].dtype == numpy_dtype


def test_a_run_goes_on_where_it_was() -> None:
    arrays = data()
    whole, parts = trainer(), trainer()
    whole.fit(arrays, epochs=5, batch_size=3, shuffle_seed=1)
    parts.fit(arrays, epochs=2, batch_size=3, shuffle_seed=1)
    report = parts.fit(arrays, epochs=5, batch_size=3, shuffle_seed=1)
    assert (report.epochs, report.steps) == (3, 9)
    np.testing.assert_array_equal(whole.parameters["w"], parts.parameters["w"])
    assert parts.fit(arrays, epochs=5).steps == 0


def layers(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    hidden = x @ w + b
    return ((hidden * hidden) @ u).mean()


def test_trains_several_parameters_that_share_an_update() -> None:
    inputs = {"x": spec(4, 3), "w": spec(3, 3), "u": spec(3, 3), "b": spec(1, 3)}
    step = compiled(loss=layers, inputs=inputs, parameters=["u", "w", "b"])
    rng = np.random.default_rng(0)
    start = {name: rng.normal(size=inputs[name]["shape"]) for name in ("w", "u", "b")}
    training = Trainer(step, backend=NumpyFunction, parameters=start, optimizer_inputs={"learning_rate": 1e-2})
    x = rng.normal(size=(4, 3))
    report = training.fit({"x": x}, epochs=1)
    hidden = x @ start["w"] + start["b"]
    g = np.full((4, 3), 1 / 12)
    expected = {"u": (hidden * hidden).T @ g, "w": x.T @ (2 * hidden * (g @ start["u"].T))}
    assert report.losses == pytest.approx([np.mean(hidden * hidden @ start["u"])])
    for name, gradient in expected.items():
        np.testing.assert_allclose(training.parameters[name], start[name] - 1e-2 * gradient, rtol=1e-12)


def test_a_gradient_that_parameters_share_reaches_each() -> None:
    step = compiled(
        loss=lambda a, b: (a + b).sum(), inputs={"a": spec(2), "b": spec(2)}, parameters=["b", "a"], optimizer=SGD()
    )
    training = Trainer(
        step,
        backend=NumpyFunction,
        parameters={"a": np.zeros(2), "b": np.ones(2)},
        optimizer_inputs={"learning_rate": 0.5},
    )
    training.fit({}, epochs=2)
    assert training.parameters["a"].tolist() == [-1.0, -1.0]
    assert training.parameters["b"].tolist() == [0.0, 0.0]


# ------------------------------------------------------------------------------------------------ parameters and state


def test_initial_arrays_are_copied_and_arrays_out_are_read_only() -> None:
    start = np.full((3, 1), 0.25)
    training = trainer(parameters={"w": start})
    start[:] = 9.0
    assert training.parameters["w"].ravel().tolist() == [0.25] * 3
    arrays: list[Any] = [training.parameters["w"], training.state["w"]["velocity"]]
    training.fit(data(), epochs=1)
    for array in (*arrays, training.parameters["w"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    mapping: Any = training.parameters
    with pytest.raises(TypeError):
        mapping["w"] = start


def test_parameters_of_before_stay_as_they_were() -> None:
    training = trainer()
    before = training.parameters
    training.fit(data(), epochs=1)
    assert before["w"].ravel().tolist() == [0.25] * 3


def test_a_given_state_is_where_the_optimizer_starts() -> None:
    arrays, velocity = data(), np.ones((3, 1))
    rested, moving = trainer(), trainer(state={"w": {"velocity": velocity}})
    rested.fit(arrays, epochs=1)
    moving.fit(arrays, epochs=1)
    np.testing.assert_allclose(moving.parameters["w"], rested.parameters["w"] - RATE * 0.5 * velocity, rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "parts"),
    [
        ({}, ["missing are ['w']"]),
        ({"w": np.zeros((3, 1)), "z": np.zeros(1)}, ["unknown ['z']"]),
        (None, ["parameters", "mapping", "None"]),
        ({"w": np.zeros((1, 3))}, ["'w' of parameters", "f64[3, 1]", "[1, 3]"]),
        ({"w": np.zeros((3, 1), np.float32)}, ["'w' of parameters", "f64[3, 1]", "float32"]),
        ({"w": np.full((3, 1), np.inf)}, ["'w' of parameters", "finite", "inf at [0, 0]"]),
        ({"w": [[1.0], [2.0, 3.0]]}, ["'w' of parameters", "f64[3, 1]"]),
    ],
)
def test_refuses_other_parameters(parameters: Any, parts: list[str]) -> None:
    error = refusal(trainer, parameters=parameters)
    assert error.category == "invalid_training_data"
    for part in parts:
        assert part in error.message


@pytest.mark.parametrize(
    ("state", "parts"),
    [
        ({"x": {}}, ["unknown ['x']"]),
        ({"w": {}}, ["the state of 'w'", "missing are ['velocity']"]),
        ({"w": {"velocity": np.zeros(3)}}, ["'velocity' of the state of 'w'", "f64[3, 1]", "[3]"]),
        (3, ["state", "mapping"]),
    ],
)
def test_refuses_another_state(state: Any, parts: list[str]) -> None:
    error = refusal(trainer, state=state)
    assert error.category == "invalid_training_data"
    for part in parts:
        assert part in error.message


# ---------------------------------------------------------------------------------------------------------- evaluation


def test_evaluates_the_loss_at_the_parameters() -> None:
    arrays = data()
    residual = arrays["x"] @ np.full((3, 1), 0.25) - arrays["y"]
    assert trainer().evaluate(arrays) == pytest.approx(np.sum(residual**2), rel=1e-12)


def test_evaluation_weighs_batches_by_their_rows() -> None:
    arrays = data(7)
    squared = (arrays["x"] @ np.full((3, 1), 0.25) - arrays["y"]) ** 2
    losses = [np.sum(squared[:4]), np.sum(squared[4:])]
    assert trainer().evaluate(arrays, batch_size=4) == pytest.approx((4 * losses[0] + 3 * losses[1]) / 7)


def test_evaluation_of_a_mean_is_the_mean_over_all_rows() -> None:
    arrays = data(12)
    squared = (arrays["x"] @ np.full((3, 1), 0.25) - arrays["y"]) ** 2
    assert trainer(four_rows()).evaluate(arrays) == pytest.approx(np.mean(squared), rel=1e-12)


def test_evaluation_changes_nothing() -> None:
    training = trainer()
    training.evaluate(data())
    assert training.fit(data(), epochs=1).steps == 1


# ------------------------------------------------------------------------------------------------- what cannot go on


def test_refuses_a_loss_of_several_elements() -> None:
    error = refusal(trainer, four_rows(loss=lambda x, y, w: x @ w - y))
    assert error.category == "invalid_training_declaration"
    assert "f64[4, 1]" in error.message


def test_trains_a_loss_of_one_element_and_rank_two() -> None:
    step = any_rows(loss=lambda x, y, w: squares(x, y, w).reshape([1, 1]))
    training, plain = trainer(step), trainer()
    assert training.fit(data(), epochs=2).losses == plain.fit(data(), epochs=2).losses


def test_refuses_what_is_no_step_or_no_backend() -> None:
    with pytest.raises(TypeError, match="CompiledTrainingStep"):
        trainer("step")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        trainer(backend=3)


def test_a_loss_that_is_not_finite_stops_the_run_before_its_step() -> None:
    training = trainer(optimizer_inputs={"learning_rate": 1e200})
    error = refusal(training.fit, data(), epochs=9)
    assert error.category == "non_finite_value"
    assert "the loss of step 2 (epoch 2) is inf" in error.message
    once = trainer(optimizer_inputs={"learning_rate": 1e200})
    once.fit(data(), epochs=1)
    np.testing.assert_array_equal(training.parameters["w"], once.parameters["w"])


def test_a_parameter_that_is_not_finite_is_not_taken() -> None:
    training = trainer(optimizer_inputs={"learning_rate": lambda number: 1e308 if number == 2 else 0.01})
    error = refusal(training.fit, data(), epochs=9)
    assert error.category == "non_finite_value"
    assert "'w' of step 2 (epoch 2) is " in error.message
    once = trainer(optimizer_inputs={"learning_rate": 0.01})
    once.fit(data(), epochs=1)
    np.testing.assert_array_equal(training.parameters["w"], once.parameters["w"])
    np.testing.assert_array_equal(training.state["w"]["velocity"], once.state["w"]["velocity"])


Function = Callable[[dict[str, Any]], Any]


def spoiled(spoil: Callable[[dict[str, Any]], Any]) -> Trainer:
    """A trainer whose backend spoils what the update returns."""
    step = any_rows()

    def backend(program: LoweredProgram) -> Function:
        function = NumpyFunction(program)
        return (lambda arrays: spoil(function(arrays))) if program is step.parameters[0].update else function

    return trainer(step, backend=backend)


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda results: {}, "by value id"),
        (lambda results: None, "by value id"),
        (lambda results: {key: array.astype(np.float32) for key, array in results.items()}, "float32"),
        (lambda results: {key: array.ravel() for key, array in results.items()}, "float64[3]"),
    ],
)
def test_refuses_what_a_backend_must_not_return(spoil: Callable[[Any], Any], part: str) -> None:
    training = spoiled(spoil)
    error = refusal(training.fit, data(), epochs=1)
    assert error.category == "handler_contract_violation"
    assert part in error.message
    assert training.parameters["w"].ravel().tolist() == [0.25] * 3


def test_what_the_backend_raises_passes_and_nothing_is_updated() -> None:
    def fail(_: Any) -> Any:
        raise OSError("the machine is gone")

    training = spoiled(fail)
    with pytest.raises(OSError, match="the machine is gone"):
        training.fit(data(), epochs=1)
    assert training.parameters["w"].ravel().tolist() == [0.25] * 3


def test_each_program_is_compiled_once_and_called_with_what_it_requires() -> None:
    compiled_programs: list[LoweredProgram] = []

    def backend(program: LoweredProgram) -> Function:
        compiled_programs.append(program)
        function = NumpyFunction(program)
        required = {value.value_id for value in program.dependencies.required_inputs}

        def call(arrays: dict[str, NDArray[Any]]) -> Any:
            assert arrays.keys() == required
            return function(arrays)

        return call

    trainer(backend=backend).fit(data(), epochs=3)
    assert len(compiled_programs) == 3


@pytest.mark.parametrize("epochs", [0, -1, 1.5, True, None])
def test_refuses_another_number_of_epochs(epochs: Any) -> None:
    with pytest.raises(ValueError, match="epochs must be an int of at least 1, got"):
        trainer().fit(data(), epochs=epochs)
