"""The main job: what it prints, and that the machine that only adds and multiplies trains like plain NumPy."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tinychain.autodiff import AddOperator, FillOperator, MatmulOperator, MulOperator, ReshapeOperator
from tinychain.autodiff.backends.numpy import limited_registry

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
    data, steps, rate = job.load(dtype), 50, 0.05
    trainer = job.Trainer(job.expand(job.bind_transpose(job.trace(data, dtype))), limited_registry())
    trained, losses = job.train(trainer, data, steps, rate, dtype)

    x, y = data.x_train, data.y_train
    w = np.zeros_like(trained)
    expected_losses = []
    for _ in range(steps):
        residual = x @ w - y
        expected_losses.append(np.mean(residual * residual))
        w = w - np.asarray(rate, w.dtype) * (x.T @ (2 * residual / len(x)))

    assert trained.dtype == w.dtype
    assert np.max(np.abs(trained - w)) <= rtol * np.max(np.abs(w))
    np.testing.assert_allclose(losses, expected_losses, rtol=rtol)


def test_the_expanded_step_is_made_of_owned_operators_only(job: ModuleType) -> None:
    step = job.expand(job.bind_transpose(job.trace(job.load("f64"), "f64")))
    for artifact in (step.forward, step.derivative, step.update):
        assert {type(node.operator) for node in artifact.nodes} <= OWNED
    assert set(limited_registry().supported_types()) == OWNED
