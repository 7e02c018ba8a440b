"""The main job: what it prints, and that the machine that only adds and multiplies trains like plain NumPy."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tinychain.autodiff import (
    AddOperator,
    AutodiffError,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    Tensor,
    TensorGraphBuilder,
    TransposeOperator,
    lower_graph,
)
from tinychain.autodiff.backends.numpy import bind_input, limited_registry

SCRIPT = Path(__file__).parents[2] / "examples" / "breast_cancer.py"
OWNED = {AddOperator, MulOperator, MatmulOperator, FillOperator, ReshapeOperator}


@pytest.fixture(scope="module")
def job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("breast_cancer_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_command_prints_the_refusal_the_accuracy_and_the_difference() -> None:
    command = [sys.executable, str(SCRIPT), "--steps", "120"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={"COLUMNS": "200", "PATH": ""}
    )
    assert done.returncode == 0, done.stderr
    assert "unsupported_operator: node 'n4' (MeanOperator)" in done.stdout
    assert "unsupported_operator: node 'dn1' (BroadcastOperator)" in done.stdout
    for accuracy in re.findall(r"accuracy, test\s+│\s+([\d.]+)%", done.stdout):
        assert float(accuracy) > 90.0
    assert done.stdout.count("below 1e-") == 2
    assert "NOT below" not in done.stdout


@pytest.mark.parametrize(("dtype", "rtol"), [("f64", 1e-12), ("f32", 1e-5)])
def test_the_limited_backend_trains_as_plain_numpy_does(job: ModuleType, dtype: str, rtol: float) -> None:
    (data, _), steps, rate = job.load(dtype), 50, 0.05
    trained, report = job.train(job.compile_step(data, dtype, job.machine(), **job.EXPANSIONS), data, steps, rate)

    x, y = data["x"], data["y"]
    w = np.zeros_like(trained)
    expected_losses = []
    for _ in range(steps):
        residual = x @ w - y
        expected_losses.append(np.mean(residual * residual))
        w = w - np.asarray(rate, w.dtype) * (x.T @ (2 * residual / len(x)))

    assert trained.dtype == w.dtype
    assert np.max(np.abs(trained - w)) <= rtol * np.max(np.abs(w))
    np.testing.assert_allclose(report.losses, expected_losses, rtol=rtol)


def test_the_expanded_step_is_made_of_owned_operators_and_one_transpose_of_the_data(job: ModuleType) -> None:
    data, _ = job.load("f64")
    step = job.compile_step(data, "f64", job.machine(), **job.EXPANSIONS)
    (w,) = step.parameters
    nodes = [
        *step.lowered_forward_graph.nodes,
        *step.lowered_derivative_program.nodes,
        *w.lowered_update_graph.nodes,
    ]
    (transpose,) = [node for node in nodes if type(node.operator) not in OWNED]
    assert type(transpose.operator) is TransposeOperator
    assert transpose.input_value_ids == [step.input_value_ids["x"]]
    assert set(limited_registry().supported_types()) == OWNED


@pytest.mark.parametrize("computed", [lambda x: (x + x).T, lambda x: x.T.T])
def test_the_host_transposes_nothing_that_the_machine_computes(
    job: ModuleType, computed: Callable[[Tensor], Tensor]
) -> None:
    with TensorGraphBuilder() as builder:
        result = computed(builder.input("x", dtype="f64", shape=(2, 3)))
    with pytest.raises(AutodiffError, match="transposes a value that the machine computes") as caught:
        lower_graph(builder.build(outputs=result), handlers=job.machine(), bind_input=bind_input)
    assert caught.value.category == "unsupported_operator"
