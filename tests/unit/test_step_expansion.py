"""A compile with the mean expansions: the same step as without, on fewer operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps import Results, compiled, declaration, failure, mse, run, spec
from tinychain.autodiff.backends.numpy import limited_registry
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.operators import (
    AddOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import Momentum

EXPANSIONS: dict[str, Any] = {
    "forward_expansions": [expand_mean_graph],
    "derivative_expansions": [partial(expand_mean_derivative_program, reserved_id_prefix="gx")],
}
RTOL = {"f32": 1e-6, "f64": 1e-12}
NUMPY = {"f32": np.float32, "f64": np.float64}


def keepdims(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    residual = x @ w - y
    return (residual * residual).mean(keepdims=True)


def shared(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Two means, one of them read twice."""
    centre = (x @ w).mean(keepdims=True)
    return (centre * centre).sum() + (y * y).mean()


def both(dtype: str, rows: int, columns: int, **changes: Any) -> tuple[Results, Results]:
    """The results without and with expansion, of positive numbers, so that no term cancels another."""
    inputs = {
        "x": spec(rows, columns, dtype=dtype),
        "y": spec(rows, 1, dtype=dtype),
        "w": spec(columns, 1, dtype=dtype),
    }
    generator = np.random.default_rng(rows * 100 + columns)
    arrays = {
        name: generator.uniform(1.0, 2.0, typespec["shape"]).astype(NUMPY[dtype]) for name, typespec in inputs.items()
    }
    arrays["y"] = -arrays["y"]
    rate = {"learning_rate": np.asarray(0.01, NUMPY[dtype])}
    states = {name: {"velocity": np.zeros_like(array)} for name, array in arrays.items()}
    plain = compiled(dtype, inputs=inputs, optimizer=Momentum(), **changes)
    expanded = compiled(dtype, inputs=inputs, optimizer=Momentum(), **changes, **EXPANSIONS)
    return run(plain, arrays, rate, states), run(expanded, arrays, rate, states)


def assert_same(expanded: Results, plain: Results, dtype: str) -> None:
    pairs = [(expanded.loss, plain.loss)]
    for name in plain.updated:
        pairs.append((expanded.gradients[name], plain.gradients[name]))
        pairs.append((expanded.updated[name], plain.updated[name]))
        pairs.append((expanded.states[name]["velocity"], plain.states[name]["velocity"]))
    for got, wanted in pairs:
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=RTOL[dtype], atol=0)


@pytest.mark.parametrize("loss", [mse, keepdims, shared])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_computes_what_the_step_without_expansion_does(dtype: str, loss: Any) -> None:
    plain, expanded = both(dtype, 8, 3, loss=loss)
    assert_same(expanded, plain, dtype)


@settings(max_examples=20)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), dtype=st.sampled_from(["f32", "f64"]))
def test_computes_the_same_for_any_shape(rows: int, columns: int, dtype: str) -> None:
    plain, expanded = both(dtype, rows, columns, parameters=["w", "x"])
    assert_same(expanded, plain, dtype)


def test_needs_these_operators() -> None:
    step = compiled(**EXPANSIONS)
    programs = [step.forward, step.derivative, step.parameters[0].update]
    needed = {type(operator) for program in programs for op in program.operations for operator in op.source_operators}
    assert needed == {
        AddOperator,
        FillOperator,
        MatmulOperator,
        MulOperator,
        ReshapeOperator,
        SubOperator,
        TransposeOperator,
    }


def test_keeps_the_sources_and_the_interfaces_and_says_what_was_applied() -> None:
    step, plain = compiled(**EXPANSIONS), compiled()
    assert step.source_forward_graph == plain.source_forward_graph
    assert step.source_derivative_program == plain.source_derivative_program
    assert step.lowered_forward_graph == expand_mean_graph(plain.source_forward_graph)
    assert step.lowered_derivative_program == expand_mean_derivative_program(
        plain.source_derivative_program, reserved_id_prefix="gx"
    )
    for program, unexpanded in ((step.forward, plain.forward), (step.derivative, plain.derivative)):
        assert program.selected_outputs == unexpanded.selected_outputs
        assert program.dependencies.required_inputs == unexpanded.dependencies.required_inputs
    assert step.provenance.forward_expansions == ("expand_mean_graph",)
    assert step.provenance.derivative_expansions == ("partial",)


def test_a_limited_backend_says_what_it_still_lacks() -> None:
    error = failure(handlers=limited_registry())
    assert error.category == "unsupported_operator"
    assert "SubOperator" in error.message

    def added(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        residual = x @ w + y * -1.0
        return (residual * residual).mean()

    error = failure(handlers=limited_registry(), loss=added)
    assert "MeanOperator" in error.message
    error = failure(handlers=limited_registry(), loss=added, **EXPANSIONS)
    assert "TransposeOperator" in error.message


def test_runs_whole_on_a_limited_backend() -> None:
    """The gradient of an elementwise model needs no transpose, and the rule no subtraction and no broadcast."""

    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        residual = x * w + y * -1.0
        return (residual * residual).mean()

    def descend(parameter: Tensor, gradient: Tensor) -> Tensor:
        return parameter + gradient * -0.01

    given = declaration(
        loss=loss,
        inputs={name: spec(4, 3) for name in "xyw"},
        optimizer=descend,
        optimizer_inputs={},
    )
    plain = compiled(**given)
    limited = compiled(**{**given, "handlers": limited_registry()}, **EXPANSIONS)
    arrays = {name: np.arange(1.0, 13.0).reshape(4, 3) + shift for name, shift in (("x", 0), ("y", -99), ("w", 2))}
    wanted, got = run(plain, arrays, {}), run(limited, arrays, {})
    np.testing.assert_allclose(got.loss, wanted.loss, rtol=1e-12)
    np.testing.assert_allclose(got.updated["w"], wanted.updated["w"], rtol=1e-12)


def test_an_expansion_that_refuses_says_so_in_its_own_words() -> None:
    error = failure(loss=lambda x, y, w: (x @ w).mean(axis=0).sum(), **EXPANSIONS)
    assert error.category == "unsupported_reduction"
    assert "partial reduction" in error.message
