"""Steps with twins: two small losses, and the passes of machines that cannot transpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steps import spec
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, rank2_registry, reference_registry
from tinychain.autodiff.expansion import Legalize, Limits, Target, ready_target
from tinychain.autodiff.operators import DivOperator, MaximumOperator, SqrtOperator
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.training import SGD, CompiledTrainingStep, compile_training_step

Array = NDArray[Any]

RANK2 = ready_target("add-mul-matmul-rank2")
#: What optimizers need beside, and no transpose.
WIDER = Target("wider", {**RANK2.operators, **dict.fromkeys((DivOperator, MaximumOperator, SqrtOperator), Limits())})


def network(x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    hidden = x @ w1 + b1
    residual = (hidden * hidden) @ w2 + b2 - y
    return (residual * residual).mean()


SHAPES: dict[str, tuple[int, ...]] = {
    "x": (8, 5),
    "y": (8, 2),
    "w1": (5, 4),
    "b1": (4,),
    "w2": (4, 2),
    "b2": (2,),
}
DATA = ("x", "y")


def compiled(
    loss: Any = network,
    shapes: Mapping[str, tuple[int, ...]] = SHAPES,
    *,
    target: Target | None = RANK2,
    optimizer: Any = None,
    given: Mapping[str, tuple[int, ...]] | None = None,
    twins: bool = True,
    **changes: Any,
) -> CompiledTrainingStep:
    """A step for a target, or for the reference where there is none; `given` has the shapes of optimizer inputs."""
    rule = optimizer or SGD()
    names = given or dict.fromkeys(getattr(rule, "required_optimizer_inputs", ["learning_rate"]), ())
    passes = [] if target is None else [Legalize(target)]
    sequences = dict.fromkeys(("forward_expansions", "derivative_expansions", "update_expansions"), passes)
    return compile_training_step(
        loss,
        inputs={name: spec(*shape) for name, shape in shapes.items()},
        parameters=[name for name in shapes if name not in DATA],
        optimizer=rule,
        optimizer_inputs={name: spec(*shape) for name, shape in names.items()},
        handlers=rank2_registry() if target is RANK2 else reference_registry(),
        bind_input=bind_input,
        twins=twins,
        **{**sequences, **changes},
    )


def names(step: CompiledTrainingStep) -> list[str]:
    return [] if step.twins is None else [twin.name for twin in step.twins.parameters]


#: The inputs of `line`.
SQUARE = {"x": (8, 5), "y": (8, 2), "w1": (5, 2)}


def line(x: Any, y: Any, w1: Any) -> Any:
    residual = x @ w1 - y
    return (residual * residual).mean()


def arrays_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape) / 2 for name, shape in shapes.items()}


def trainer(step: CompiledTrainingStep) -> Trainer:
    arrays = arrays_of({name: SHAPES[name] for name in step.input_value_ids})
    return Trainer(
        step,
        backend=NumpyFunction,
        parameters={record.name: arrays[record.name] for record in step.parameters},
        fixed={name: arrays[name] for name in DATA if name in arrays},
        optimizer_inputs={"learning_rate": 0.01},
    )
