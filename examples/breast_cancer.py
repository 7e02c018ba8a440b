"""Trains a classifier of tumours on a machine that can only add, multiply and matmul.

The data is the Wisconsin breast-cancer set that scikit-learn ships. The model is linear, its loss the mean squared
error against labels of +1 and -1. Run it with `make run`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.panel import Panel
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from tinychain.autodiff import (
    AutodiffError,
    DerivativeProgram,
    OperationHandlerRegistry,
    Tensor,
    TensorGraph,
    TensorGraphBuilder,
    TransposeOperator,
    expand_mean_derivative_program,
    expand_mean_graph,
    lower_derivative_program,
    lower_graph,
    trace_parameter_update,
)
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, limited_registry, reference_registry

Matrix = NDArray[Any]

NUMPY_DTYPES = {"f32": np.float32, "f64": np.float64}
TOLERANCES = {"f32": 1e-5, "f64": 1e-12}
SEED = "seed"


def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean squared error. The machine cannot subtract, so the residual adds the label times -1."""
    residual = x @ w + y * -1.0
    return (residual * residual).mean()


def descend(*, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
    """One step of gradient descent, without a subtraction and without broadcasting the rate over the weights."""
    return parameter + (gradient @ learning_rate) * -1.0


@dataclass(frozen=True)
class Data:
    """Standardised features with a column of ones, and labels of +1 and -1 as a column."""

    x_train: Matrix
    y_train: Matrix
    x_test: Matrix
    y_test: Matrix


def load(dtype: str) -> Data:
    features, target = load_breast_cancer(return_X_y=True)
    labels = np.where(target == 1, 1.0, -1.0)[:, None]
    x_train, x_test, y_train, y_test = train_test_split(
        features, labels, test_size=0.2, random_state=0, stratify=target
    )
    centre, scale = x_train.mean(axis=0), x_train.std(axis=0)

    def prepare(x: Matrix) -> Matrix:
        return np.hstack([(x - centre) / scale, np.ones((len(x), 1))]).astype(NUMPY_DTYPES[dtype])

    to_dtype = NUMPY_DTYPES[dtype]
    return Data(prepare(x_train), y_train.astype(to_dtype), prepare(x_test), y_test.astype(to_dtype))


@dataclass(frozen=True)
class Step:
    """The artifacts of one training step, before or after expansion. Ids name values in both."""

    forward: TensorGraph
    derivative: DerivativeProgram
    update: TensorGraph
    ids: dict[str, str]  # x, y, w, loss, gradient and, where it is bound, x_transposed
    update_ids: dict[str, str]  # parameter, gradient, learning_rate and updated


def trace(data: Data, dtype: str) -> Step:
    """Traces the loss and the update, and generates the derivative program."""
    rows, columns = data.x_train.shape
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype=dtype, shape=(rows, columns))
        y = builder.input("y", dtype=dtype, shape=(rows, 1))
        w = builder.input("w", dtype=dtype, shape=(columns, 1))
        value = loss(x, y, w)
    derivative = builder.vjp(value, wrt=[w], seed=SEED)
    ids = {**builder.input_ids, "loss": builder.value_id(value)}
    weights = {"dtype": dtype, "shape": [columns, 1]}
    update = trace_parameter_update(
        descend,
        parameter=weights,
        gradient=weights,
        optimizer_inputs={"learning_rate": {"dtype": dtype, "shape": [1, 1]}},
    )
    return Step(
        builder.build(outputs=value),
        derivative,
        update.graph,
        ids | {"gradient": derivative.gradients[ids["w"]]},
        dict(update.input_value_ids, updated=update.updated_parameter_id),
    )


def bind_transpose(step: Step) -> Step:
    """Lets the caller bind the transposed data matrix as one more input.

    The gradient of a matmul transposes its operand, and the machine has no transpose. The node goes, and its value
    becomes a declared input of the step: whoever holds the data holds its transpose.
    """
    (node,) = [
        node
        for node in step.derivative.nodes
        if isinstance(node.operator, TransposeOperator) and node.input_value_ids == [step.ids["x"]]
    ]
    declared = (node.output_value_id, node.output_typespec)
    return replace(
        step,
        forward=replace(step.forward, inputs=[*step.forward.inputs, declared]),
        derivative=replace(step.derivative, nodes=[kept for kept in step.derivative.nodes if kept is not node]),
        ids=step.ids | {"x_transposed": node.output_value_id},
    )


def expand(step: Step) -> Step:
    """Rewrites the mean, and the broadcast and division of its gradient, into matmuls against ones."""
    return replace(
        step,
        forward=expand_mean_graph(step.forward),
        derivative=expand_mean_derivative_program(step.derivative, reserved_id_prefix="gx"),
    )


class Trainer:
    """A step lowered for one backend, and the loop that drives it."""

    def __init__(self, step: Step, handlers: OperationHandlerRegistry) -> None:
        lower = partial(lower_graph, handlers=handlers, bind_input=bind_input)
        program = lower_derivative_program(
            step.derivative,
            forward_graph=step.forward,
            seed_value_ids=[SEED],
            handlers=handlers,
            bind_input=bind_input,
        )
        self._ids, self._update_ids = step.ids, step.update_ids
        self._captures = [capture.value_id for capture in program.dependencies.forward_captures]
        self._forward = NumpyFunction(lower(step.forward, outputs=[step.ids["loss"], *self._captures]))
        self._derivative = NumpyFunction(program)
        self._update = NumpyFunction(lower(step.update))

    def step(self, data: Data, w: Matrix, learning_rate: float) -> tuple[float, Matrix]:
        """The loss at `w`, and the weights after one full-batch step."""
        ids, dtype = self._ids, w.dtype
        inputs = {ids["x"]: data.x_train, ids["y"]: data.y_train, ids["w"]: w}
        if "x_transposed" in ids:
            inputs[ids["x_transposed"]] = data.x_train.T
        captured = self._forward(inputs)
        gradients = self._derivative({**inputs, **captured, SEED: np.ones((), dtype)})
        updated = self._update(
            {
                self._update_ids["parameter"]: w,
                self._update_ids["gradient"]: gradients[ids["gradient"]],
                self._update_ids["learning_rate"]: np.full((1, 1), learning_rate, dtype),
            }
        )
        return float(captured[ids["loss"]]), updated[self._update_ids["updated"]]


def train(trainer: Trainer, data: Data, steps: int, learning_rate: float, label: str) -> tuple[Matrix, list[float]]:
    w = np.zeros((data.x_train.shape[1], 1), data.x_train.dtype)
    losses = []
    for _ in track(range(steps), description=f"{label:<22}"):
        value, w = trainer.step(data, w, learning_rate)
        losses.append(value)
    return w, losses


def accuracy(x: Matrix, y: Matrix, w: Matrix) -> float:
    return float(np.mean((x @ w > 0) == (y > 0)))


def operators_table(before: Step, after: Step) -> Table:
    def listing(artifact: TensorGraph | DerivativeProgram) -> str:
        counts = Counter(node.operator.route_name for node in artifact.nodes)
        return "\n".join(f"{count} {name}" for name, count in sorted(counts.items()))

    table = Table(title="Operators of each artifact", show_lines=True)
    for heading in ("artifact", "as traced and generated", "transpose bound, mean expanded"):
        table.add_column(heading)
    for name in ("forward", "derivative", "update"):
        table.add_row(name, listing(getattr(before, name)), listing(getattr(after, name)))
    return table


def refusals(step: Step) -> list[str]:
    """What the limited backend says to each artifact."""
    said = []
    lowerings: dict[str, Callable[[], object]] = {
        "forward": lambda: lower_graph(step.forward, handlers=limited_registry()),
        "derivative": lambda: lower_derivative_program(
            step.derivative, forward_graph=step.forward, seed_value_ids=[SEED], handlers=limited_registry()
        ),
    }
    for name, lower in lowerings.items():
        try:
            lower()
        except AutodiffError as error:
            said.append(f"[bold]{name} program:[/bold] {error}")
    return said


def run(console: Console, dtype: str, steps: int, learning_rate: float) -> bool:
    """Trains on both backends, prints what happened, and says whether they agree."""
    data = load(dtype)
    traced = trace(data, dtype)
    expanded = expand(bind_transpose(traced))
    if dtype == "f64":
        console.print(operators_table(traced, expanded))
        console.print(Panel("\n".join(refusals(traced)), title="The limited backend, without expansion"))

    start = time.perf_counter()
    limited = Trainer(expanded, limited_registry())
    w, losses = train(limited, data, steps, learning_rate, f"{dtype}, add/mul/matmul")
    seconds = time.perf_counter() - start
    reference = Trainer(traced, reference_registry())
    expected, expected_losses = train(reference, data, steps, learning_rate, f"{dtype}, reference")

    difference = max(
        float(np.max(np.abs(w - expected)) / np.max(np.abs(expected))),
        float(np.max(np.abs(np.divide(losses, expected_losses) - 1.0))),
    )
    shown = sorted({0, 1, 3, 10, 30, 100, steps - 1} & set(range(steps)))
    table = Table(title=f"{dtype}: {len(data.x_train)} x {data.x_train.shape[1]} full batch, {steps} steps")
    table.add_column("what")
    table.add_column("value", justify="right")
    for index in shown:
        table.add_row(f"loss before step {index + 1}", f"{losses[index]:.6f}")
    table.add_row("accuracy, train", f"{accuracy(data.x_train, data.y_train, w):.2%}")
    table.add_row("accuracy, test", f"{accuracy(data.x_test, data.y_test, w):.2%}")
    agreed = difference < TOLERANCES[dtype]
    table.add_row(
        "largest difference from the reference, relative",
        f"{difference:.1e} ({'below' if agreed else 'NOT below'} {TOLERANCES[dtype]:.0e})",
    )
    table.add_row("seconds, lowering and training", f"{seconds:.2f}")
    console.print(table)
    return agreed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300, help="full-batch steps (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="of gradient descent (default %(default)s)")
    arguments = parser.parse_args()
    console = Console()
    console.print(
        "Training on a backend that owns add, mul, matmul, fill and a same-count reshape.",
        "It cannot subtract: the loss and the update are written with add and multiply.",
        "It cannot transpose: that of the data matrix is bound as one more input.",
        sep="\n",
    )
    agreed = [run(console, dtype, arguments.steps, arguments.learning_rate) for dtype in ("f64", "f32")]
    if not all(agreed):
        raise SystemExit("The limited backend and the reference disagree.")
    console.print("Both backends have trained the same model, in f64 and in f32.")


if __name__ == "__main__":
    main()
