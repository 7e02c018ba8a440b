"""Whole steps made to fit a machine that adds, multiplies and matmuls matrices, trained to the reference's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tinychain.autodiff import SGD, AutodiffError, CompiledTrainingStep, Momentum, compile_training_step
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, rank2_registry, reference_registry
from tinychain.autodiff.expansion.legalize import Legalize, legalize
from tinychain.autodiff.expansion.targets import ready_target
from tinychain.autodiff.inspection import step_depth
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.serialization import dumps, loads, loads_training_step

Array = NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]


def linear(x: Any, y: Any, w: Any, b: Any) -> Any:
    residual = x @ w + b - y
    return (residual * residual).mean()


def network(x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
    h = x @ w1 + b1
    h = h * h
    h = h @ w2 + b2
    h = h * h
    residual = h @ w3 + b3 - y
    return (residual * residual).mean() / 2.0


def scalar_bias(x: Any, y: Any, w: Any, b: Any, u: Any) -> Any:
    """Repeated over a matrix, the bias becomes a reshape of a column; no transpose is pushed through that."""
    hidden = x @ w + b
    residual = (hidden + hidden.mean(axes=[0, 1], keepdims=True)) @ u - y
    return (residual * residual).mean()


def factorisation(ratings: Any, u: Any, v: Any) -> Any:
    residual = u @ v - ratings
    return (residual * residual).sum() + ((u * u).sum() + (v * v).sum()) * 0.1


def mixed_means(x: Any, y: Any, w: Any, c: Any) -> Any:
    """Means over different axes of a tensor of rank 3, the middle one among them."""
    scaled = x * w - c
    over_rows = (scaled * scaled).mean(axes=[0])
    over_middle = (scaled - y).mean(axes=[1], keepdims=True)
    over_last = scaled.mean(axes=[-1])
    return over_rows.mean() + (over_middle * over_middle).mean() + (over_last * over_last).sum(axes=[0]).mean()


def computed_bias(x: Any, y: Any, w: Any, c: Any, u: Any) -> Any:
    """A vector that the forward pass computes, and that the transposed activations need once more."""
    hidden = x @ w + (c * c).sum(axes=[0])
    residual = hidden @ u - y
    return (residual * residual).mean()


def ensemble(x: Any, y: Any, w: Any, u: Any) -> Any:
    """A network for each of several tasks, all in one; no operand of its matmuls is one matrix."""
    hidden = x @ w
    residual = (hidden * hidden) @ u - y
    return (residual * residual).mean()


CASES: dict[str, tuple[Callable[..., Any], Shapes, list[str]]] = {
    "linear": (linear, {"x": (12, 5), "y": (12, 1), "w": (5, 1), "b": (1,)}, ["w", "b"]),
    "network": (
        network,
        {
            "x": (12, 5),
            "y": (12, 2),
            "w1": (5, 4),
            "b1": (4,),
            "w2": (4, 3),
            "b2": (3,),
            "w3": (3, 2),
            "b3": (2,),
        },
        ["w1", "b1", "w2", "b2", "w3", "b3"],
    ),
    "scalar bias": (
        scalar_bias,
        {"x": (6, 5), "y": (6, 2), "w": (5, 3), "b": (), "u": (3, 2)},
        ["w", "b", "u"],
    ),
    "factorisation": (factorisation, {"ratings": (7, 5), "u": (7, 2), "v": (2, 5)}, ["u", "v"]),
    "computed bias": (
        computed_bias,
        {"x": (6, 5), "y": (6, 2), "w": (5, 3), "c": (4, 3), "u": (3, 2)},
        ["w", "c", "u"],
    ),
    "ensemble": (ensemble, {"x": (3, 6, 4), "y": (3, 6, 1), "w": (3, 4, 2), "u": (3, 2, 1)}, ["w", "u"]),
    "mixed means": (mixed_means, {"x": (4, 3, 2), "y": (4, 3, 2), "w": (2,), "c": (3, 1)}, ["w", "c"]),
}


def compiled(name: str, *, legal: bool, optimizer: Any = None) -> CompiledTrainingStep:
    loss, shapes, parameters = CASES[name]
    passes = [Legalize(ready_target("add-mul-matmul-rank2"))] if legal else []
    return compile_training_step(
        loss,
        inputs={key: {"dtype": "f64", "shape": list(shape)} for key, shape in shapes.items()},
        parameters=parameters,
        optimizer=optimizer or SGD(),
        optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": []}},
        handlers=rank2_registry() if legal else reference_registry(),
        bind_input=bind_input,
        forward_expansions=passes,
        derivative_expansions=passes,
        update_expansions=passes,
    )


def trained(step: CompiledTrainingStep, arrays: Mapping[str, Array], epochs: int) -> tuple[Mapping[str, Array], float]:
    parameters = {record.name: arrays[record.name] for record in step.parameters}
    data = {name: array for name, array in arrays.items() if name not in parameters}
    trainer = Trainer(
        step, backend=NumpyFunction, parameters=parameters, fixed=data, optimizer_inputs={"learning_rate": 0.01}
    )
    report = trainer.fit([{}] * epochs, epochs=1)
    return trainer.parameters, report.losses[-1]


@pytest.mark.parametrize("optimizer", [SGD(), Momentum(0.9)], ids=["SGD", "Momentum"])
@pytest.mark.parametrize("name", CASES)
def test_a_legalized_step_trains_to_the_weights_of_the_reference(name: str, optimizer: Any) -> None:
    random = np.random.default_rng(0)
    arrays = {key: random.standard_normal(shape) / 2 for key, shape in CASES[name][1].items()}
    found, loss = trained(compiled(name, legal=True, optimizer=optimizer), arrays, 20)
    expected, expected_loss = trained(compiled(name, legal=False, optimizer=optimizer), arrays, 20)
    assert loss == pytest.approx(expected_loss, rel=1e-10)
    for key, array in expected.items():
        assert not np.array_equal(array, arrays[key])
        np.testing.assert_allclose(found[key], array, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_a_legalized_step_is_deeper_only_by_its_constants(name: str) -> None:
    """A mean and a broadcast between other axes; products in batches, forward and back."""
    before, after = [step_depth(compiled(name, legal=legal)) for legal in (False, True)]
    added = {key: (after.parameters[key] or 0) - (levels or 0) for key, levels in before.parameters.items()}
    expected = {"mixed means": {"w": 1, "c": 1}, "ensemble": {"w": 4, "u": 3}}
    assert added == expected.get(name, dict.fromkeys(added, 0))


@pytest.mark.parametrize("name", CASES)
def test_a_saved_step_trains_on(name: str) -> None:
    random = np.random.default_rng(0)
    arrays = {key: random.standard_normal(shape) / 2 for key, shape in CASES[name][1].items()}
    step = compiled(name, legal=True)
    saved = dumps(step)
    loaded = loads_training_step(saved, handlers=rank2_registry(), bind_input=bind_input)
    assert dumps(loaded) == saved
    found, loss = trained(loaded, arrays, 3)
    expected, expected_loss = trained(step, arrays, 3)
    assert loss == expected_loss
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)


def test_a_legal_derivative_program_stands_alone() -> None:
    program = compiled("network", legal=True).lowered_derivative_program
    assert loads(dumps(program)) == program
    assert legalize(program, ready_target("add-mul-matmul-rank2")) is program


@pytest.mark.parametrize("name", CASES)
def test_the_machine_refuses_the_step_as_it_was(name: str) -> None:
    loss, shapes, parameters = CASES[name]
    with pytest.raises(AutodiffError, match=r"unsupported_operator|broadcast_shape_mismatch"):
        compile_training_step(
            loss,
            inputs={key: {"dtype": "f64", "shape": list(shape)} for key, shape in shapes.items()},
            parameters=parameters,
            optimizer=SGD(),
            optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": []}},
            handlers=rank2_registry(),
            bind_input=bind_input,
        )
