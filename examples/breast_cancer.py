"""Trains a classifier of tumours on a machine that can only add, multiply and matmul matrices.

The data is the Wisconsin breast-cancer set that scikit-learn ships. The model is linear, its loss the mean squared
error against labels of +1 and -1. Run it with `make run`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from tinychain.autodiff import (
    SGD,
    AutodiffError,
    CompiledTrainingStep,
    DerivativeProgram,
    OperationHandlerRegistry,
    Tensor,
    TensorGraph,
    compile_training_step,
)
from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, rank2_registry, reference_registry
from tinychain.autodiff.expansion import Legalize, ready_target
from tinychain.autodiff.runner import Progress, Report, Trainer

Arrays = dict[str, NDArray[Any]]

NUMPY_DTYPES = {"f32": np.float32, "f64": np.float64}
TOLERANCES = {"f32": 1e-5, "f64": 1e-12}

#: Rewrites whatever the machine lacks, in each of the three programs of a step.
LEGALIZE = [Legalize(ready_target("add-mul-matmul-rank2"))]
LEGAL = {f"{program}_expansions": LEGALIZE for program in ("forward", "derivative", "update")}


def loss(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The mean squared error of a linear model."""
    residual = x @ w + b - y
    return (residual * residual).mean()


def load(dtype: str) -> tuple[Arrays, Arrays]:
    """Rows to train and to test with: standardised features, and labels of +1 and -1."""
    features, target = load_breast_cancer(return_X_y=True)
    labels = np.where(target == 1, 1.0, -1.0)[:, None]
    x, x_test, y, y_test = train_test_split(features, labels, test_size=0.2, random_state=0, stratify=target)
    centre, scale = x.mean(axis=0), x.std(axis=0)

    def prepare(rows: Any, answers: Any) -> Arrays:
        return {"x": ((rows - centre) / scale).astype(NUMPY_DTYPES[dtype]), "y": answers.astype(NUMPY_DTYPES[dtype])}

    return prepare(x, y), prepare(x_test, y_test)


def compile_step(data: Arrays, dtype: str, handlers: OperationHandlerRegistry, **passes: Any) -> CompiledTrainingStep:
    """One full-batch step, lowered for the backend of these handlers."""
    rows, columns = data["x"].shape
    shapes = {"x": [rows, columns], "y": [rows, 1], "w": [columns, 1], "b": [1]}
    return compile_training_step(
        loss,
        inputs={name: {"dtype": dtype, "shape": shape} for name, shape in shapes.items()},
        parameters=["w", "b"],
        optimizer=SGD(),
        optimizer_inputs={"learning_rate": {"dtype": dtype, "shape": []}},
        handlers=handlers,
        bind_input=bind_input,
        **passes,
    )


def train(
    step: CompiledTrainingStep, data: Arrays, steps: int, learning_rate: float, *callbacks: Any
) -> tuple[Arrays, Report]:
    """The weights after so many full-batch steps from zero, and the runner's report."""
    x = data["x"]
    trainer = Trainer(
        step,
        backend=NumpyFunction,
        parameters={"w": np.zeros((x.shape[1], 1), x.dtype), "b": np.zeros(1, x.dtype)},
        optimizer_inputs={"learning_rate": learning_rate},
    )
    report = trainer.fit(data, epochs=steps, callbacks=callbacks)
    return dict(trainer.parameters), report


def accuracy(data: Arrays, weights: Arrays) -> float:
    return float(np.mean((data["x"] @ weights["w"] + weights["b"] > 0) == (data["y"] > 0)))


def refusals(data: Arrays) -> list[str]:
    """What the machine says to the step as traced: to each program, those before it made to fit."""
    said = []
    passes: dict[str, Any] = {}
    for key in LEGAL:
        try:
            compile_step(data, "f64", rank2_registry(), **passes)
        except AutodiffError as error:
            said.append(f"[bold]{key.removesuffix('_expansions')} program:[/bold] {error}")
        passes[key] = LEGALIZE
    return said


def operators_table(step: CompiledTrainingStep) -> Table:
    def listing(artifact: TensorGraph | DerivativeProgram) -> str:
        counts = Counter(node.operator.route_name for node in artifact.nodes)
        return "\n".join(f"{count} {name}" for name, count in sorted(counts.items()))

    table = Table("artifact", "as traced and generated", "legalized", title="Operators of the step", show_lines=True)
    table.add_row("forward", listing(step.source_forward_graph), listing(step.lowered_forward_graph))
    table.add_row("derivative", listing(step.source_derivative_program), listing(step.lowered_derivative_program))
    for record in step.parameters:
        table.add_row(
            f"update of {record.name}", listing(record.source_update_graph), listing(record.lowered_update_graph)
        )
    return table


def relative(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.max(np.abs(np.subtract(found, expected))) / np.max(np.abs(expected)))


def run(console: Console, dtype: str, steps: int, learning_rate: float) -> bool:
    """Trains on both backends, prints what happened, and says whether they agree."""
    data, test = load(dtype)
    legal = compile_step(data, dtype, rank2_registry(), **LEGAL)
    if dtype == "f64":
        console.print(operators_table(legal))
        console.print(Panel("\n".join(refusals(data)), title="The machine, without legalization"))
    console.print(f"{dtype}, on the machine:")
    weights, report = train(legal, data, steps, learning_rate, Progress(100, console.file))
    expected, reference = train(compile_step(data, dtype, reference_registry()), data, steps, learning_rate)

    difference = max(
        *[relative(weights[name], expected[name]) for name in expected],
        float(np.max(np.abs(np.divide(report.losses, reference.losses) - 1.0))),
    )
    agreed = difference < TOLERANCES[dtype]
    table = Table("what", title=f"{dtype}: {' x '.join(map(str, data['x'].shape))} full batch, {steps} steps")
    table.add_column("value", justify="right")
    for index in sorted({0, 1, 3, 10, 30, 100, steps - 1} & set(range(steps))):
        table.add_row(f"loss before step {index + 1}", f"{report.losses[index]:.6f}")
    table.add_row("accuracy, train", f"{accuracy(data, weights):.2%}")
    table.add_row("accuracy, test", f"{accuracy(test, weights):.2%}")
    table.add_row(
        "largest difference from the reference, relative",
        f"{difference:.1e} ({'below' if agreed else 'NOT below'} {TOLERANCES[dtype]:.0e})",
    )
    table.add_row("seconds of training", f"{report.seconds:.2f}")
    table.add_row("bytes alive at most", f"{report.peak_live_bytes:,}")
    console.print(table)
    return agreed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300, help="full-batch steps (default %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="of gradient descent (default %(default)s)")
    arguments = parser.parse_args()
    console = Console()
    console.print(
        "Training on a machine that can only add, multiply and matmul matrices.",
        "Means, subtractions and broadcasts are rewritten into these, exactly.",
        "It cannot transpose either: the data is bound a second time, transposed.",
        sep="\n",
    )
    agreed = [run(console, dtype, arguments.steps, arguments.learning_rate) for dtype in ("f64", "f32")]
    if not all(agreed):
        raise SystemExit("The machine and the reference disagree.")
    console.print("Both backends have trained the same model, in f64 and in f32.")


if __name__ == "__main__":
    main()
