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

from tinychain.autodiff.backends.numpy import rank2_registry
from tinychain.autodiff.expansion import dual_id
from tinychain.autodiff.types import parse_type

SCRIPT = Path(__file__).parents[2] / "examples" / "breast_cancer.py"


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
    assert "forward program: unsupported_operator: node 'n2' (SubOperator)" in done.stdout
    assert "derivative program: unsupported_operator: node 'dn1' (BroadcastOperator)" in done.stdout
    assert "update program: unsupported_operator: node 'n1' (SubOperator)" in done.stdout
    for accuracy in re.findall(r"accuracy, test\s+│\s+([\d.]+)%", done.stdout):
        assert float(accuracy) > 90.0
    assert done.stdout.count("below 1e-") == 2
    assert "NOT below" not in done.stdout


@pytest.mark.parametrize(("dtype", "rtol"), [("f64", 1e-12), ("f32", 1e-5)])
def test_the_machine_trains_as_plain_numpy_does(job: ModuleType, dtype: str, rtol: float) -> None:
    (data, _), steps, rate = job.load(dtype), 50, 0.05
    trained, report = job.train(job.compile_step(data, dtype, rank2_registry(), **job.LEGAL), data, steps, rate)

    x, y = data["x"], data["y"]
    w, b = np.zeros((x.shape[1], 1), x.dtype), np.zeros(1, x.dtype)
    expected_losses = []
    for _ in range(steps):
        residual = x @ w + b - y
        expected_losses.append(np.mean(residual * residual))
        gradient = 2 * residual / len(x)
        w = w - np.asarray(rate, x.dtype) * (x.T @ gradient)
        b = b - np.asarray(rate, x.dtype) * gradient.sum(axis=0)

    for name, expected in {"w": w, "b": b}.items():
        assert trained[name].dtype == x.dtype
        assert np.max(np.abs(trained[name] - expected)) <= rtol * np.max(np.abs(expected))
    np.testing.assert_allclose(report.losses, expected_losses, rtol=rtol)


def test_the_legal_step_computes_on_matrices_with_what_the_machine_owns(job: ModuleType) -> None:
    data, _ = job.load("f64")
    step = job.compile_step(data, "f64", rank2_registry(), **job.LEGAL)
    updates = [record.lowered_update_graph for record in step.parameters]
    artifacts = [step.lowered_forward_graph, step.lowered_derivative_program, *updates]
    nodes = [node for artifact in artifacts for node in artifact.nodes]
    assert {node.operator.route_name for node in nodes} == {"add", "mul", "matmul", "fill", "reshape"}
    for node in nodes:
        if node.operator.route_name in ("add", "mul", "matmul"):
            assert len(parse_type(node.output_typespec, label=node.node_id).shape) == 2


def test_only_the_data_is_bound_transposed(job: ModuleType) -> None:
    data, _ = job.load("f64")
    step = job.compile_step(data, "f64", rank2_registry(), **job.LEGAL)
    named = {*step.input_value_ids.values()}
    read = {value.value_id for value in step.derivative.dependencies.declared_inputs}
    assert read - named == {dual_id(step.input_value_ids["x"])}
