"""What a loss may do and return in a compiled step, and that the step computes what it says."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pytest

from steps import compiled, declaration, failure, mse, plain, run, spec
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder, get_active_builder
from tinychain.autodiff.training import Momentum, compile_training_step

X = np.arange(1.0, 13.0).reshape(4, 3)
Y = np.array([[1.0], [-1.0], [2.0], [0.5]])
W = np.array([[0.5], [-0.25], [1.0]])
RATE = {"learning_rate": np.array(0.01)}


# -------------------------------------------------------------------------------------------------------- what it gives


@pytest.mark.parametrize("result", [None, 3.5, (), {"loss": 1}, np.zeros(2)])
def test_refuses_a_loss_that_returns_no_tensor(result: Any) -> None:
    def loss(x: Tensor, y: Tensor, w: Tensor) -> Any:
        return result

    error = failure(loss=loss)
    assert error.category == "invalid_loss_output"
    assert "loss must return a Tensor" in error.message
    assert f"a {type(result).__name__}" in error.message


def test_refuses_a_loss_that_returns_a_tuple_of_tensors() -> None:
    error = failure(loss=lambda x, y, w: (mse(x, y, w), w))
    assert error.category == "invalid_loss_output"
    assert "a tuple" in error.message


def test_refuses_a_tensor_of_another_trace() -> None:
    with TensorGraphBuilder() as builder:
        foreign = builder.input("foreign", dtype="f64", shape=[])
    error = failure(loss=lambda x, y, w: foreign)
    assert error.category == "invalid_loss_output"
    assert "another trace" in error.message
    assert "foreign" in error.message


def test_refuses_a_tensor_of_no_trace() -> None:
    assert failure(loss=lambda x, y, w: Tensor()).category == "invalid_loss_output"


def test_refuses_an_untyped_loss_as_a_typed_build_does() -> None:
    assert failure(loss=lambda x, y, w: (x * Tensor()).sum()).category == "missing_dtype_metadata"


def test_the_gradient_of_an_input_is_the_seed() -> None:
    step = plain(loss=lambda x, y, w: w)
    (seed,) = step.seed_value_ids
    assert step.source_derivative_program.nodes == []
    assert step.loss_value_id == "v2"
    assert step.parameters[0].gradient_value_id == seed
    assert step.derivative.selected_outputs == (seed,)
    assert step.forward.operations == ()


def test_a_loss_of_any_shape_is_a_sum_of_seeds() -> None:
    step = compiled(loss=lambda x, y, w: x @ w)
    results = run(step, {"x": X, "y": Y, "w": W}, RATE)
    np.testing.assert_allclose(results.gradients["w"], X.sum(axis=0)[:, None])


# --------------------------------------------------------------------------------------------------------- what it does


def test_is_called_once_with_a_tensor_for_every_input_in_order() -> None:
    calls = []

    def loss(**tensors: Tensor) -> Tensor:
        calls.append({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()})
        return mse(**tensors)

    plain(loss=loss)
    assert calls == [{"x": ("f64", (4, 3)), "y": ("f64", (4, 1)), "w": ("f64", (3, 1))}]
    assert list(calls[0]) == ["x", "y", "w"]


@pytest.mark.parametrize(
    "error", [ValueError("odd"), AutodiffError("shape_mismatch", "odd"), KeyboardInterrupt(), SystemExit(3)]
)
def test_what_it_raises_passes_unchanged(error: BaseException) -> None:
    def loss(x: Tensor, y: Tensor, w: Tensor) -> NoReturn:
        raise error

    with pytest.raises(type(error)) as caught:
        compiled(loss=loss)
    assert caught.value is error
    assert error.__cause__ is None
    assert get_active_builder() is None


def test_what_tracing_raises_passes_unchanged() -> None:
    assert failure(loss=lambda x, y, w: x @ y).category == "matmul_shape_mismatch"
    with pytest.raises(TypeError, match="no value yet"):
        compiled(loss=lambda x, y, w: float(mse(x, y, w)))


def test_cannot_call_the_compiler_again() -> None:
    def loss(x: Tensor, y: Tensor, w: Tensor) -> Any:
        return compiled()

    with pytest.raises(RuntimeError, match="Nested"):
        compiled(loss=loss)
    assert get_active_builder() is None
    compiled()


def test_does_not_compile_inside_a_trace_and_leaves_it_open() -> None:
    with TensorGraphBuilder() as builder:
        with pytest.raises(RuntimeError, match="Nested"):
            compiled()
        assert get_active_builder() is builder


def test_cannot_change_the_declaration() -> None:
    given = declaration(handlers=None)

    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        given["inputs"].clear()
        given["parameters"].append("y")
        given["optimizer_inputs"]["learning_rate"]["dtype"] = "f32"
        return mse(x, y, w)

    usual = plain()
    given.update(loss=loss, handlers=declaration()["handlers"])
    step = compile_training_step(**given)
    assert step.provenance == usual.provenance
    assert step.parameters[0].source_update_graph == usual.parameters[0].source_update_graph


# ------------------------------------------------------------------------------------------------------- what it leaves


def unread(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return (x @ w).mean()


def test_an_input_that_it_never_reads_is_legal() -> None:
    step = plain(loss=unread)
    assert step.input_value_ids == {"x": "v0", "y": "v1", "w": "v2"}
    assert [value_id for value_id, _ in step.source_forward_graph.inputs] == ["v0", "v2"]
    needed = {
        value.value_id for program in (step.forward, step.derivative) for value in program.dependencies.dependencies
    }
    assert "v1" not in needed


def test_an_input_that_it_never_reads_is_legal_under_expansion() -> None:
    step = plain(
        loss=unread,
        forward_expansions=[expand_mean_graph],
        derivative_expansions=[lambda program: expand_mean_derivative_program(program, reserved_id_prefix="gx")],
    )
    assert [value_id for value_id, _ in step.lowered_forward_graph.inputs] == ["v0", "v2"]


def test_refuses_a_parameter_that_it_never_reads() -> None:
    error = failure(loss=unread, parameters=["w", "y"])
    assert error.category == "missing_derivative_behavior"
    assert "'v1'" in error.message


def dead(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    _ = w.mean()
    return (x * x).mean()


def test_refuses_a_parameter_that_only_dead_code_reads() -> None:
    error = failure(loss=dead)
    assert error.category == "missing_derivative_behavior"
    assert "'v2'" in error.message


def test_refuses_a_parameter_behind_an_operator_without_gradient() -> None:
    class Opaque(MulOperator):
        def vjp(self, emit: Any, node: Any, g: str) -> NoReturn:
            raise AutodiffError("non_differentiable_route", "no gradient here")

    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        builder = get_active_builder()
        assert builder is not None
        return builder.apply(Opaque, [w, w], {})

    assert failure(loss=loss).category == "non_differentiable_route"


# ----------------------------------------------------------------------------------------------------- what it computes


def test_a_step_is_what_one_would_write_by_hand() -> None:
    results = run(compiled(), {"x": X, "y": Y, "w": W}, RATE)
    residual = X @ W - Y
    gradient = 2 / 4 * X.T @ residual
    np.testing.assert_allclose(results.loss, (residual**2).mean(), rtol=1e-12)
    np.testing.assert_allclose(results.gradients["w"], gradient, rtol=1e-12)
    np.testing.assert_allclose(results.updated["w"], W - 0.01 * gradient, rtol=1e-12)


def test_two_layers_with_momentum_over_three_steps() -> None:
    def loss(x: Tensor, y: Tensor, v: Tensor, b: Tensor, w: Tensor) -> Tensor:
        residual = (x @ v + b) @ w - y
        return (residual * residual).sum()

    shapes = {"x": (4, 3), "y": (4, 1), "v": (3, 2), "b": (1, 2), "w": (2, 1)}
    step = compiled(
        loss=loss,
        inputs={name: spec(*shape) for name, shape in shapes.items()},
        parameters=["w", "v", "b"],
        optimizer=Momentum(0.5),
    )
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    rate = {"learning_rate": np.array(1e-3)}
    states = {name: {"velocity": np.zeros(shapes[name])} for name in "vbw"}
    by_hand, velocity = dict(arrays), {name: np.zeros(shapes[name]) for name in "vbw"}
    for _ in range(3):
        results = run(step, arrays, rate, states)
        arrays |= results.updated
        states = results.states
        x, y, v, b, w = by_hand.values()
        hidden = x @ v + b
        g = 2 * (hidden @ w - y)
        gradients = {"v": x.T @ (g @ w.T), "b": (g @ w.T).sum(axis=0, keepdims=True), "w": hidden.T @ g}
        for name, gradient in gradients.items():
            velocity[name] = 0.5 * velocity[name] + gradient
            by_hand[name] = by_hand[name] - 1e-3 * velocity[name]
    for name in "vbw":
        np.testing.assert_allclose(arrays[name], by_hand[name], rtol=1e-10)
        np.testing.assert_allclose(states[name]["velocity"], velocity[name], rtol=1e-10)


def test_a_batch_of_any_size() -> None:
    step = compiled(
        loss=lambda x, y, w: ((x @ w - y) * (x @ w - y)).sum(),
        inputs={"x": spec("N", 3), "y": spec("N", 1), "w": spec(3, 1)},
    )
    for rows in (1, 4):
        results = run(step, {"x": X[:rows], "y": Y[:rows], "w": W}, RATE)
        np.testing.assert_allclose(results.gradients["w"], 2 * X[:rows].T @ (X[:rows] @ W - Y[:rows]), rtol=1e-12)


def test_a_loss_of_many_layers() -> None:
    """Deeper than the interpreter's stack."""

    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        value = x @ w
        for _ in range(3000):
            value = value * value
        return value.mean()

    step = plain(loss=loss, forward_expansions=[expand_mean_graph])
    assert len(step.forward.operations) == 3007
