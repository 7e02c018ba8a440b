"""A training step compiled from a good declaration with changes, and run on NumPy by the names of the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dags import counting
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, reference_registry
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.operators import OPERATORS
from tinychain.autodiff.tracing import Tensor, get_active_builder
from tinychain.autodiff.training import SGD, CompiledTrainingStep, compile_training_step


def spec(*shape: int | str, dtype: str = "f64") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def mse(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """v3 = x @ w, v4 = v3 - y, v5 = v4 * v4, v6 = mean(v5); the gradient captures v4."""
    residual = x @ w - y
    return (residual * residual).mean()


def layers(x: Tensor, w: Tensor, b: Tensor, u: Tensor) -> Tensor:
    return ((x @ w + b) * (x @ u)).mean()


#: The inputs of `layers`.
LAYERS = {"x": spec(4, 3), "w": spec(3, 3), "b": spec(1, 3), "u": spec(3, 3)}

#: Handlers whose target values can be compared.
HANDLERS = counting(*OPERATORS)


def declaration(dtype: str = "f64", **changes: Any) -> dict[str, Any]:
    return {
        "loss": mse,
        "inputs": {
            "x": spec(4, 3, dtype=dtype),
            "y": spec(4, 1, dtype=dtype),
            "w": spec(3, 1, dtype=dtype),
        },
        "parameters": ["w"],
        "optimizer": SGD(),
        "optimizer_inputs": {"learning_rate": spec(dtype=dtype)},
        "handlers": reference_registry(),
        "bind_input": bind_input,
        **changes,
    }


def compiled(dtype: str = "f64", **changes: Any) -> CompiledTrainingStep:
    return compile_training_step(**declaration(dtype, **changes))


def plain(**changes: Any) -> CompiledTrainingStep:
    """A step whose target values are dependencies and ints, so that two can be compared."""
    return compiled(**{"handlers": HANDLERS, "bind_input": None, **changes})


def several(**changes: Any) -> CompiledTrainingStep:
    """The same of a loss with three parameters, two of them of one type."""
    return plain(**{"loss": layers, "inputs": LAYERS, "parameters": ["u", "b", "w"], **changes})


def failure(**changes: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        compiled(**changes)
    assert get_active_builder() is None
    return caught.value


class Results(NamedTuple):
    """The loss, and by parameter the gradient, the new value and the new states."""

    loss: NDArray[Any]
    gradients: dict[str, NDArray[Any]]
    updated: dict[str, NDArray[Any]]
    states: dict[str, dict[str, NDArray[Any]]]


def run(
    step: CompiledTrainingStep,
    arrays: Mapping[str, Any],
    optimizer_arrays: Mapping[str, Any],
    states: Mapping[str, Mapping[str, Any]] | None = None,
) -> Results:
    """One step: forward, derivative with a seed of ones, what follows from the gradients, updates."""
    values = {step.input_value_ids[name]: array for name, array in arrays.items()}
    values |= NumpyFunction(step.forward)(values)
    loss = values[step.loss_value_id]
    (seed,) = step.seed_value_ids
    gradients = NumpyFunction(step.derivative)({**values, seed: np.ones_like(loss)})
    results = Results(loss, {}, {}, {})
    given_to_all = {**optimizer_arrays, **gradient_inputs(step, gradients)}
    for record in step.parameters:
        gradient = gradients[record.gradient_value_id]
        given = {"parameter": arrays[record.name], "gradient": gradient, **given_to_all}
        given |= dict((states or {}).get(record.name, {}))
        updated = NumpyFunction(record.update)(
            {value_id: given[name] for name, value_id in record.update_input_value_ids.items()}
        )
        results.gradients[record.name] = gradient
        results.updated[record.name] = updated[record.updated_parameter_value_id]
        results.states[record.name] = {
            name: updated[value_id] for name, value_id in record.updated_state_value_ids.items()
        }
    return results


def gradient_inputs(step: CompiledTrainingStep, gradients: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The optimizer inputs that follow from the gradients, which are given by the ids that the derivative has."""
    compiled = step.gradient_inputs
    if compiled is None:
        return {}
    given = {compiled.input_value_ids[record.name]: gradients[record.gradient_value_id] for record in step.parameters}
    results = NumpyFunction(compiled.program)(given)
    return {name: results[value_id] for name, value_id in compiled.output_value_ids.items()}
