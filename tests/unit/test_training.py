"""Optimizers and traced updates: what is traced, with and without state, and every refusal in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from running import compiled
from tinychain.autodiff.operators import MulOperator, SubOperator
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, Momentum, Optimizer, TracedUpdate, sgd_update
from updates import MATRIX, SCALAR, Stateful, exchange, trace


def run(traced: TracedUpdate, arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The results by name, of arrays by name."""
    results = compiled(traced.graph)(
        {traced.input_value_ids[name]: np.asarray(array, np.float32) for name, array in arrays.items()}
    )
    names = {"parameter": traced.updated_parameter_id, **traced.updated_state_ids}
    return {name: results[value_id] for name, value_id in names.items()}


# ------------------------------------------------------------------------------------------------------- optimizers


def test_an_optimizer_has_two_abstract_members() -> None:
    assert Optimizer.__abstractmethods__ == {"required_optimizer_inputs", "update"}
    with pytest.raises(TypeError, match="abstract"):
        Optimizer()  # type: ignore[abstract]


def test_an_optimizer_has_no_state_by_default() -> None:
    assert Optimizer.state == ()
    assert SGD().state == ()


def test_calling_an_optimizer_is_updating() -> None:
    class Recorder(SGD):
        def update(self, **tensors: Any) -> Any:
            return tensors

    tensors: dict[str, Any] = {"parameter": 1, "gradient": 2, "learning_rate": 3}
    result: Any = Recorder()(**tensors)
    assert result == tensors


@pytest.mark.parametrize("update", [SGD(), sgd_update])
def test_sgd(update: Any) -> None:
    traced = trace(update)
    assert [(type(node.operator), node.input_value_ids) for node in traced.graph.nodes] == [
        (MulOperator, ["v2", "v1"]),
        (SubOperator, ["v0", "v3"]),
    ]
    assert traced.graph.outputs == [traced.updated_parameter_id] == ["v4"]
    assert traced.input_value_ids == {"parameter": "v0", "gradient": "v1", "learning_rate": "v2"}
    assert traced.updated_state_ids == {}
    assert SGD().required_optimizer_inputs == ("learning_rate",)


def test_sgd_steps_down_the_gradient() -> None:
    arrays = {"parameter": [[1.0], [2.0], [3.0]], "gradient": [[10.0], [0.0], [-10.0]], "learning_rate": 0.5}
    assert run(trace(SGD()), arrays)["parameter"].tolist() == [[-4.0], [2.0], [8.0]]


def test_momentum_against_numpy_over_several_steps() -> None:
    traced = trace(Momentum(0.75))
    assert traced.input_value_ids == {"parameter": "v0", "gradient": "v1", "learning_rate": "v2", "velocity": "v3"}
    assert traced.graph.outputs == [traced.updated_parameter_id, traced.updated_state_ids["velocity"]]
    numbers = np.random.default_rng(0)
    parameter = wanted = numbers.normal(size=(3, 1)).astype(np.float32)
    velocity = wanted_velocity = np.zeros((3, 1), np.float32)
    for _ in range(4):
        gradient = numbers.normal(size=(3, 1)).astype(np.float32)
        results = run(
            traced, {"parameter": parameter, "gradient": gradient, "learning_rate": 0.1, "velocity": velocity}
        )
        parameter, velocity = results["parameter"], results["velocity"]
        wanted_velocity = np.float32(0.75) * wanted_velocity + gradient
        wanted = wanted - np.float32(0.1) * wanted_velocity
        np.testing.assert_allclose(parameter, wanted, rtol=1e-6)
        np.testing.assert_allclose(velocity, wanted_velocity, rtol=1e-6)


def test_momentum_has_a_velocity() -> None:
    assert Momentum().state == ("velocity",)


# ------------------------------------------------------------------------------------------------------- what is traced


def test_a_plain_callable_is_an_update() -> None:
    def decayed(*, parameter: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor) -> Tensor:
        return parameter - rate * (gradient + decay * parameter)

    traced = trace(decayed, optimizer_inputs={"decay": SCALAR, "rate": SCALAR})
    assert list(traced.input_value_ids) == ["parameter", "gradient", "decay", "rate"]
    results = run(traced, {"parameter": np.ones((3, 1)), "gradient": np.ones((3, 1)), "rate": 0.5, "decay": 1.0})
    assert results["parameter"].tolist() == [[0.0]] * 3


@pytest.mark.parametrize(
    "update",
    [
        lambda parameter, gradient: parameter - gradient,
        lambda **tensors: tensors["parameter"] - tensors["gradient"],
        lambda parameter, gradient, unused=None: parameter - gradient,
    ],
)
def test_any_signature_that_takes_the_keywords_will_do(update: Callable[..., Tensor]) -> None:
    assert len(trace(update, optimizer_inputs=None).graph.nodes) == 1


def test_the_update_runs_once_with_keywords_and_typed_tensors() -> None:
    calls = []

    def update(**tensors: Tensor) -> Tensor:
        calls.append({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()})
        return tensors["parameter"]

    trace(update, gradient={"dtype": "f32", "shape": ("N", 1), "layout": "row"})
    assert calls == [{"parameter": ("f32", (3, 1)), "gradient": ("f32", ("N", 1)), "learning_rate": ("f32", ())}]


def test_every_declared_name_has_an_id_and_only_reachable_ones_are_inputs() -> None:
    traced = trace(lambda parameter, gradient, learning_rate: parameter * 2.0)
    assert traced.input_value_ids == {"parameter": "v0", "gradient": "v1", "learning_rate": "v2"}
    assert traced.graph.inputs == [("v0", {"dtype": "f32", "shape": [3, 1]})]


def test_an_update_may_return_an_input_as_it_is() -> None:
    traced = trace(lambda parameter, gradient, learning_rate: parameter)
    assert traced.graph.nodes == []
    assert traced.updated_parameter_id == traced.input_value_ids["parameter"]


@pytest.mark.parametrize("mapping", [{}, MappingProxyType({})])
def test_no_optimizer_inputs(mapping: Mapping[str, Any]) -> None:
    traced = trace(lambda parameter, gradient: parameter - gradient, optimizer_inputs=mapping)
    assert traced == trace(lambda parameter, gradient: parameter - gradient, optimizer_inputs=None)


def test_a_symbolic_parameter() -> None:
    symbolic = {"dtype": "f64", "shape": ["N"]}
    traced = trace(
        SGD(), parameter=symbolic, gradient=symbolic, optimizer_inputs={"learning_rate": {**SCALAR, "dtype": "f64"}}
    )
    assert traced.graph.nodes[-1].output_typespec == symbolic


def test_the_declarations_are_not_changed_and_equal_ones_give_equal_traces() -> None:
    parameter, inputs = {"dtype": "f32", "shape": [3, 1]}, {"learning_rate": dict(SCALAR)}
    first = trace(SGD(), parameter=parameter, optimizer_inputs=inputs)
    assert (parameter, inputs) == (MATRIX, {"learning_rate": SCALAR})
    assert first == trace(SGD())
    assert first.to_dict() == trace(SGD()).to_dict()


# --------------------------------------------------------------------------------------------------------------- state


def test_states_follow_the_optimizer_inputs_and_have_the_parameter_s_type() -> None:
    traced = trace(Stateful(exchange), gradient={"dtype": "f32", "shape": ["N", 1]})
    assert list(traced.input_value_ids) == ["parameter", "gradient", "learning_rate", "first", "second"]
    assert dict(traced.graph.inputs)[traced.input_value_ids["second"]] == MATRIX


def test_new_states_are_found_by_name() -> None:
    traced = trace(Stateful(exchange))
    assert traced.updated_state_ids["second"] == traced.input_value_ids["first"]
    assert list(traced.updated_state_ids) == ["first", "second"]
    arrays = {
        name: np.full((3, 1), value) for name, value in {"parameter": 1, "gradient": 2, "first": 3, "second": 4}.items()
    }
    results = run(traced, {**arrays, "learning_rate": 0.5})
    assert {name: float(array[0, 0]) for name, array in results.items()} == {
        "parameter": -0.5,
        "first": 6.0,
        "second": 3.0,
    }


def test_a_state_may_be_the_new_parameter_itself() -> None:
    def update(parameter: Tensor, gradient: Tensor, learning_rate: Tensor, last: Tensor) -> Any:
        new = parameter - learning_rate * gradient + last * 0.0
        return new, {"last": new}

    traced = trace(Stateful(update, state=("last",)))
    assert traced.graph.outputs == [traced.updated_parameter_id]
    assert traced.updated_state_ids == {"last": traced.updated_parameter_id}
