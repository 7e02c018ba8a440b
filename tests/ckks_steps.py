"""Three steps compiled for the CKKS backend, and what a linked program computes on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tinychain.autodiff.backends import numpy as on_numpy
from tinychain.autodiff.backends.ckks.handlers import Term, bind_input, ckks_registry
from tinychain.autodiff.backends.ckks.program import Operation, Program, link
from tinychain.autodiff.backends.ckks.target import CKKS
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Legalize
from tinychain.autodiff.lowering import lower_graph
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder
from tinychain.autodiff.training import SGD, CompiledTrainingStep, Momentum, compile_training_step
from tinychain.autodiff.training.execution import StepExecution, trained_names

Array = NDArray[Any]
Arrays = Mapping[str, Array]

NOTHING: Arrays = MappingProxyType({})


def linear(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    residual = x @ w + b - y
    return (residual * residual).mean()


def logistic(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """The integral of a cubic sigmoid, less y z: its gradient is x.T @ (sigmoid(z) - y)."""
    z = x @ w
    square = z * z
    return (z * 0.5 + square * 0.0985 - square * square * 0.001 - y * z).mean()


def network(x: Tensor, y: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> Tensor:
    hidden = x @ w1 + b1
    residual = (hidden * hidden) @ w2 - y
    return (residual * residual).mean()


class Model(NamedTuple):
    loss: Callable[..., Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    parameters: list[str]
    optimizer: Any


MODELS: Mapping[str, Model] = {
    "linear": Model(linear, {"x": (12, 5), "y": (12, 1), "w": (5, 1), "b": (1,)}, ["w", "b"], Momentum(0.9)),
    "logistic": Model(logistic, {"x": (9, 4), "y": (9, 1), "w": (4, 1)}, ["w"], SGD()),
    "network": Model(
        network,
        {"x": (10, 4), "y": (10, 2), "w1": (4, 3), "b1": (3,), "w2": (3, 2)},
        ["w1", "b1", "w2"],
        Momentum(0.5),
    ),
}


def compiled(model: Model, dtype: str = "f64", passes: list[Any] | None = None, **changes: Any) -> CompiledTrainingStep:
    passes = [Legalize(CKKS)] if passes is None else passes
    return compile_training_step(
        model.loss,
        **{
            "inputs": {name: {"dtype": dtype, "shape": list(shape)} for name, shape in model.shapes.items()},
            "parameters": model.parameters,
            "optimizer": model.optimizer,
            "optimizer_inputs": {"learning_rate": {"dtype": dtype, "shape": []}},
            "handlers": ckks_registry(),
            "bind_input": bind_input,
            "forward_expansions": passes,
            "derivative_expansions": passes,
            "update_expansions": passes,
            **changes,
        },
    )


def linked(model: Model, **changes: Any) -> Program:
    declaration = {"secret": [*model.shapes], "known": {"learning_rate": 0.05}, **changes}
    return link(compiled(model), **declaration)


def refusal(model: Model, **changes: Any) -> AutodiffError:
    step = compiled(model)
    with pytest.raises(AutodiffError) as caught:
        link(step, **{"secret": ["x", "y"], "known": {}, **changes})
    return caught.value


def arrays_for(model: Model, seed: int = 0) -> dict[str, Array]:
    """Data, parameters and states; no state is zero."""
    random = np.random.default_rng(seed)
    arrays = {name: random.uniform(-1, 1, shape) for name, shape in model.shapes.items()}
    for record in compiled(model).parameters:
        for name in trained_names(record):
            arrays.setdefault(name, random.uniform(-1, 1, model.shapes[record.name]))
    return arrays


def evaluated(program: Program, arrays: Arrays) -> list[Array]:
    """The tensors of a program on NumPy, by position."""
    found: list[Array] = []
    for operation in program.operations:
        if operation.known is not None:
            found.append(operation.known)
        elif operation.operator is None:
            found.append(np.asarray(arrays[operation.name]))
        else:
            operands = [found[position] for position in operation.operands]
            found.append(operation.operator.reference(np, *operands, **operation.op_params))
    return found


def outputs(program: Program, arrays: Arrays) -> dict[str, Array]:
    found = evaluated(program, arrays)
    return {name: found[position] for name, position in program.outputs.items()}


def trained_on_numpy(model: Model, arrays: Arrays, learning_rate: float, steps: int) -> dict[str, Array]:
    """The same by the reference backend from the step as it was traced."""
    step = compiled(model, passes=[], handlers=on_numpy.reference_registry(), bind_input=on_numpy.bind_input)
    execution = StepExecution(step, on_numpy.NumpyFunction)
    names = [name for record in step.parameters for name in trained_names(record)]
    trained = {name: arrays[name] for name in names}
    data = {name: arrays[name] for name in step.input_value_ids if name not in trained}
    for _ in range(steps):
        loss, trained = execution.train(data, trained, {"learning_rate": np.array(learning_rate)}, np.array(1.0))
    return {**trained, "loss": loss}


def program_of(
    function: Callable[..., Tensor], secret: Mapping[str, tuple[int, ...]], known: Arrays = NOTHING
) -> Program:
    """A program of one traced function of inputs by name; its one result is called "result"."""
    with TensorGraphBuilder() as builder:
        shapes = {**secret, **{name: array.shape for name, array in known.items()}}
        tensors = {name: builder.input(name, dtype="f64", shape=shape) for name, shape in shapes.items()}
        result = function(**tensors)
    names = {builder.value_id(tensor): name for name, tensor in tensors.items()}
    lowered = lower_graph(builder.build(outputs=[result]), handlers=ckks_registry(), bind_input=bind_input)
    operations: list[Operation] = []
    positions: dict[Term, int] = {}
    read = [value_id for value_id in names if value_id in lowered.values]
    for value_id in dict.fromkeys([*read, *lowered.values]):
        term = lowered.values[value_id]
        name = names.get(value_id, "")
        operands = tuple([positions[operand] for operand in term.operands])
        arrays = [operations[operand].known for operand in operands]
        value = known.get(name)
        if term.operator is not None and all(array is not None for array in arrays):
            value, operands = term.operator.reference(np, *arrays, **term.op_params), ()
        positions[term] = len(operations)
        uniform = None if value is None or len({*value.flat}) != 1 else float(value.flat[0])
        label = f"input {name!r}" if name else f"{term.operator.route_name} {value_id!r}"
        operations.append(
            Operation(
                position=len(operations),
                operator=term.operator,
                op_params=term.op_params,
                operands=operands,
                type=term.type,
                secret=name in secret or any(operations[operand].secret for operand in operands),
                known=value,
                uniform=uniform,
                name=name,
                label=label,
            )
        )
    inputs = {name: positions[lowered.values[value_id]] for value_id in read if (name := names[value_id]) in secret}
    return Program(operations, inputs, {"result": positions[lowered.output_values[0]]})
