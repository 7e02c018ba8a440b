"""Dense networks with a square activation, written once for Tensors, JAX arrays and torch tensors alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.workloads import HANDLERS
from tinychain.autodiff import (
    SGD,
    CompiledTrainingStep,
    compile_training_step,
    expand_mean_derivative_program,
    expand_mean_graph,
)

BATCH: Final = 16
WIDTH: Final = 8


def squared_error(x: Any, y: Any, weights: Sequence[Any]) -> Any:
    for weight in weights[:-1]:
        x = x @ weight
        x = x * x
    residual = x @ weights[-1] - y
    return (residual * residual).mean()


def shapes(layers: int) -> dict[str, tuple[int, int]]:
    """The shapes of x, y and of one weight per layer, the last one with a single output."""
    weights = {f"w{i}": (WIDTH, WIDTH) for i in range(layers - 1)}
    return {"x": (BATCH, WIDTH), "y": (BATCH, 1), **weights, f"w{layers - 1}": (WIDTH, 1)}


def spec(shape: Sequence[int], dtype: str = "f32") -> Mapping[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def compile_network(layers: int) -> CompiledTrainingStep:
    """One SGD step with the mean and its gradient expanded, lowered by handlers that do nothing."""

    def loss(x: Any, y: Any, **weights: Any) -> Any:
        return squared_error(x, y, list(weights.values()))

    inputs = {name: spec(shape) for name, shape in shapes(layers).items()}
    return compile_training_step(
        loss,
        inputs=inputs,
        parameters=[name for name in inputs if name.startswith("w")],
        optimizer=SGD(),
        optimizer_inputs={"learning_rate": spec(())},
        handlers=HANDLERS,
        forward_expansions=[expand_mean_graph],
        derivative_expansions=[partial(expand_mean_derivative_program, reserved_id_prefix="gx")],
    )


def operation_count(step: CompiledTrainingStep) -> int:
    """The operations of all lowered programs, a shared update counted once."""
    updates = {id(parameter.update): parameter.update for parameter in step.parameters}
    return sum(len(program.operations) for program in (step.forward, step.derivative, *updates.values()))
