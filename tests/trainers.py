"""A small training problem, its step and its trainer, each with changes; and a loop by hand to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from steps import compiled, mse, run, spec
from tinychain.autodiff.backends.numpy import NumpyFunction
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import CompiledTrainingStep, Momentum

Arrays = dict[str, NDArray[Any]]

RATE = 0.05


def squares(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """The sum of squares, for any number of rows."""
    residual = x @ w - y
    return (residual * residual).sum()


def any_rows(dtype: str = "f64", **changes: Any) -> CompiledTrainingStep:
    """A step with momentum for batches of any number of rows."""
    inputs = {"x": spec("N", 3, dtype=dtype), "y": spec("N", 1, dtype=dtype), "w": spec(3, 1, dtype=dtype)}
    return compiled(dtype, **{"loss": squares, "inputs": inputs, "optimizer": Momentum(0.5), **changes})


def four_rows(dtype: str = "f64", **changes: Any) -> CompiledTrainingStep:
    """A step with momentum for batches of exactly four rows."""
    return compiled(dtype, **{"loss": mse, "optimizer": Momentum(0.5), **changes})


def data(rows: int = 8, dtype: str = "f64") -> Arrays:
    x = np.random.default_rng(7).normal(size=(rows, 3))
    return {"x": x.astype(dtype.replace("f", "float")), "y": (x @ [[1.0], [-2.0], [0.5]]).astype(f"float{dtype[1:]}")}


def trainer(step: CompiledTrainingStep | None = None, **changes: Any) -> Trainer:
    given: dict[str, Any] = {
        "backend": NumpyFunction,
        "parameters": {"w": np.full((3, 1), 0.25)},
        "optimizer_inputs": {"learning_rate": RATE},
    }
    return Trainer(any_rows() if step is None else step, **{**given, **changes})


def by_hand(
    step: CompiledTrainingStep, batches: Sequence[Mapping[str, Any]], rate: Callable[[int], float] = lambda _: RATE
) -> tuple[list[float], Arrays, dict[str, Arrays]]:
    """The losses, the parameters and the states after one step for each batch, without a runner."""
    parameters = {"w": np.full((3, 1), 0.25)}
    states: dict[str, Arrays] = {"w": {"velocity": np.zeros((3, 1))}}
    losses = []
    for number, batch in enumerate(batches, 1):
        results = run(step, {**batch, **parameters}, {"learning_rate": np.array(rate(number))}, states)
        losses.append(float(results.loss))
        parameters, states = results.updated, results.states
    return losses, parameters, states


def bits(training: Trainer) -> bytes:
    """The parameters and the states, to be compared bit by bit."""
    return training.parameters["w"].tobytes() + training.state["w"]["velocity"].tobytes()


def refusal(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        function(*arguments, **keywords)
    return caught.value
