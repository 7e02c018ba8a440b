"""Trains a classifier of tumours on a machine that can only add, multiply and matmul.

The data is the Wisconsin breast-cancer set that scikit-learn ships. The model is linear, its loss the mean squared
error against labels of +1 and -1. Run it with `make run`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from tinychain.autodiff import (
    DEPENDENCY_PROVENANCE_DECLARED_INPUT,
    AutodiffError,
    CompiledTrainingStep,
    DerivativeProgram,
    OperationContext,
    OperationHandlerRegistry,
    Tensor,
    TensorGraph,
    TransposeOperator,
    compile_training_step,
    expand_mean_derivative_program,
    expand_mean_graph,
)
from tinychain.autodiff.backends.numpy import (
    Array,
    NumpyFunction,
    bind_input,
    compute,
    limited_registry,
    reference_registry,
)
from tinychain.autodiff.runner import Progress, Report, Trainer

Data = dict[str, NDArray[Any]]

NUMPY_DTYPES = {"f32": np.float32, "f64": np.float64}
TOLERANCES = {"f32": 1e-5, "f64": 1e-12}

#: Rewrites the mean, and the broadcast and division of its gradient, into matmuls against ones.
EXPANSIONS = {
    "forward_expansions": [expand_mean_graph],
    "derivative_expansions": [partial(expand_mean_derivative_program, reserved_id_prefix="gx")],
}


def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Mean squared error. The machine cannot subtract, so the residual adds the label times -1."""
    residual = x @ w + y * -1.0
    return (residual * residual).mean()


def descend(*, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
    """One step of gradient descent, without a subtraction and without broadcasting the rate over the weights."""
    return parameter + (gradient @ learning_rate) * -1.0


def machine() -> OperationHandlerRegistry:
    """The limited backend, whose host transposes an input that it binds: whoever holds the data holds its transpose."""
    registry = limited_registry()

    @registry.handler(TransposeOperator)
    class HostTranspose:
        def lower(self, context: OperationContext) -> Array:
            if context.input_provenance != (DEPENDENCY_PROVENANCE_DECLARED_INPUT,):
                raise AutodiffError(
                    "unsupported_operator", f"node {context.node_id!r} transposes a value that the machine computes"
                )
            return compute(context, np.transpose, axes=context.op_params["perm"])

    return registry


def load(dtype: str) -> tuple[Data, Data]:
    """Rows to train and to test with: standardised features with a column of ones, and labels of +1 and -1."""
    features, target = load_breast_cancer(return_X_y=True)
    labels = np.where(target == 1, 1.0, -1.0)[:, None]
    x, x_test, y, y_test = train_test_split(features, labels, test_size=0.2, random_state=0, stratify=target)
    centre, scale = x.mean(axis=0), x.std(axis=0)

    def prepare(rows: Any, answers: Any) -> Data:
        columns = np.hstack([(rows - centre) / scale, np.ones((len(rows), 1))])
        return {"x": columns.astype(NUMPY_DTYPES[dtype]), "y": answers.astype(NUMPY_DTYPES[dtype])}

    return prepare(x, y), prepare(x_test, y_test)


def compile_step(data: Data, dtype: str, handlers: OperationHandlerRegistry, **expansions: Any) -> CompiledTrainingStep:
    """One full-batch step, lowered for the backend of these handlers."""
    rows, columns = data["x"].shape
    shapes = {"x": [rows, columns], "y": [rows, 1], "w": [columns, 1]}
    return compile_training_step(
        loss,
        inputs={name: {"dtype": dtype, "shape": shape} for name, shape in shapes.items()},
        parameters=["w"],
        optimizer=descend,
        optimizer_inputs={"learning_rate": {"dtype": dtype, "shape": [1, 1]}},
        handlers=handlers,
        bind_input=bind_input,
        **expansions,
    )


def train(
    step: CompiledTrainingStep, data: Data, steps: int, learning_rate: float, *callbacks: Any
) -> tuple[NDArray[Any], Report]:
    """The weights after so many full-batch steps from zero, and the runner's report."""
    start = np.zeros((data["x"].shape[1], 1), data["x"].dtype)
    trainer = Trainer(
        step, backend=NumpyFunction, parameters={"w": start}, optimizer_inputs={"learning_rate": learning_rate}
    )
    report = trainer.fit(data, epochs=steps, callbacks=callbacks)
    return trainer.parameters["w"], report


def accuracy(data: Data, w: NDArray[Any]) -> float:
    return float(np.mean((data["x"] @ w > 0) == (data["y"] > 0)))


def refusals(data: Data) -> list[str]:
    """What the limited backend says to the step as traced: to its forward program, then to its derivative."""
    said = []
    for name, expansions in {"forward": {}, "derivative": {"forward_expansions": [expand_mean_graph]}}.items():
        try:
            compile_step(data, "f64", machine(), **expansions)
        except AutodiffError as error:
            said.append(f"[bold]{name} program:[/bold] {error}")
    return said


def operators_table(step: CompiledTrainingStep) -> Table:
    def listing(artifact: TensorGraph | DerivativeProgram) -> str:
        counts = Counter(node.operator.route_name for node in artifact.nodes)
        return "\n".join(f"{count} {name}" for name, count in sorted(counts.items()))

    (w,) = step.parameters
    table = Table(
        "artifact", "as traced and generated", "mean expanded", title="Operators of the step", show_lines=True
    )
    table.add_row("forward", listing(step.source_forward_graph), listing(step.lowered_forward_graph))
    table.add_row("derivative", listing(step.source_derivative_program), listing(step.lowered_derivative_program))
    table.add_row("update", listing(w.source_update_graph), listing(w.lowered_update_graph))
    return table


def run(console: Console, dtype: str, steps: int, learning_rate: float) -> bool:
    """Trains on both backends, prints what happened, and says whether they agree."""
    data, test = load(dtype)
    expanded = compile_step(data, dtype, machine(), **EXPANSIONS)
    if dtype == "f64":
        console.print(operators_table(expanded))
        console.print(Panel("\n".join(refusals(data)), title="The limited backend, without expansion"))
    console.print(f"{dtype}, on the machine:")
    w, report = train(expanded, data, steps, learning_rate, Progress(100, console.file))
    expected, reference = train(compile_step(data, dtype, reference_registry()), data, steps, learning_rate)

    difference = max(
        float(np.max(np.abs(w - expected)) / np.max(np.abs(expected))),
        float(np.max(np.abs(np.divide(report.losses, reference.losses) - 1.0))),
    )
    agreed = difference < TOLERANCES[dtype]
    table = Table("what", title=f"{dtype}: {len(data['x'])} x {len(w)} full batch, {steps} steps")
    table.add_column("value", justify="right")
    for index in sorted({0, 1, 3, 10, 30, 100, steps - 1} & set(range(steps))):
        table.add_row(f"loss before step {index + 1}", f"{report.losses[index]:.6f}")
    table.add_row("accuracy, train", f"{accuracy(data, w):.2%}")
    table.add_row("accuracy, test", f"{accuracy(test, w):.2%}")
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
        "Training on a backend that owns add, mul, matmul, fill and a same-count reshape.",
        "It cannot subtract: the loss and the update are written with add and multiply.",
        "It cannot transpose: its host does, but only the data that it holds.",
        sep="\n",
    )
    agreed = [run(console, dtype, arguments.steps, arguments.learning_rate) for dtype in ("f64", "f32")]
    if not all(agreed):
        raise SystemExit("The limited backend and the reference disagree.")
    console.print("Both backends have trained the same model, in f64 and in f32.")


if __name__ == "__main__":
    main()
