"""Gradient clipping inside a compiled step: what it does to the gradients, and how clippings nest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from steps import compiled, gradient_inputs, run, spec
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, Adam, ClipByGlobalNorm, ClipByValue, Momentum, Optimizer

#: The gradients of `linear` for its parameters u and w; their norm is 13.
GRADIENTS = {"u": np.array([3.0, -4.0]), "w": np.array([[12.0]])}
ZEROS = {"u": np.zeros(2), "w": np.zeros((1, 1))}


def linear(u: Tensor, w: Tensor, at_u: Tensor, at_w: Tensor) -> Tensor:
    return (u * at_u).sum() + (w * at_w).sum()


def step_of(optimizer: Optimizer) -> Any:
    return compiled(
        loss=linear,
        inputs={"u": spec(2), "w": spec(1, 1), "at_u": spec(2), "at_w": spec(1, 1)},
        parameters=["u", "w"],
        optimizer=optimizer,
        optimizer_inputs=dict.fromkeys(optimizer.required_optimizer_inputs, spec()),
    )


def moved(optimizer: Optimizer, scale: float = 1.0) -> dict[str, NDArray[Any]]:
    """How far one step at rate 1 goes from zero, against the gradients times `scale`."""
    at = {f"at_{name}": gradient * scale for name, gradient in GRADIENTS.items()}
    given: dict[str, Any] = {"learning_rate": np.array(1.0)}
    given |= {name: np.array(function(1)) for name, function in optimizer.step_inputs.items()}
    states = {name: dict.fromkeys(optimizer.state, zeros) for name, zeros in ZEROS.items()}
    return {name: -new for name, new in run(step_of(optimizer), {**ZEROS, **at}, given, states).updated.items()}


def assert_moved(optimizer: Optimizer, expected: dict[str, Any], scale: float = 1.0) -> None:
    got = moved(optimizer, scale)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-14, err_msg=name)


# ------------------------------------------------------------------------------------------------------------ one clip


def test_clips_each_element() -> None:
    assert_moved(ClipByValue(SGD(), 3.5), {"u": [3.0, -3.5], "w": [[3.5]]})


def test_scales_all_gradients_to_the_norm() -> None:
    assert_moved(ClipByGlobalNorm(SGD(), 6.5), {"u": [1.5, -2.0], "w": [[6.0]]})


@pytest.mark.parametrize("max_norm", [13, 13.5, 1e6, 0.1 + 0.2])
def test_gradients_within_the_norm_stay_as_they_are_to_the_last_bit(max_norm: float) -> None:
    scale = min(max_norm / 13.5, 1.0)
    got = moved(ClipByGlobalNorm(SGD(), max_norm), scale)
    for name, gradient in GRADIENTS.items():
        assert got[name].tolist() == (gradient * scale).tolist()


def test_gradients_that_are_all_zero_stay_zero() -> None:
    assert_moved(ClipByGlobalNorm(SGD(), 1.0), ZEROS, scale=0.0)


def test_the_norm_can_be_read() -> None:
    step = step_of(ClipByGlobalNorm(SGD(), 1.0))
    gradients = {step.parameter(name).gradient_value_id: gradient for name, gradient in GRADIENTS.items()}
    assert gradient_inputs(step, gradients) == {"gradient_norm": 13.0}


# ------------------------------------------------------------------------------------------------------------- nesting


def test_the_outer_clip_sees_the_gradients_first() -> None:
    clipped = {"u": np.array([3.0, -3.0]), "w": np.array([[3.0]])}
    norm = 27.0**0.5
    assert_moved(ClipByValue(ClipByGlobalNorm(SGD(), 2.0), 3.0), {name: 2 * g / norm for name, g in clipped.items()})
    assert_moved(ClipByGlobalNorm(ClipByValue(SGD(), 3.0), 6.5), {"u": [1.5, -2.0], "w": [[3.0]]})


def test_clips_nest_deeply() -> None:
    optimizer = ClipByValue(ClipByGlobalNorm(ClipByValue(ClipByValue(SGD(), 0.5), 2.0), 6.5), 12.0)
    assert_moved(optimizer, {"u": [0.5, -0.5], "w": [[0.5]]})


def test_the_update_is_that_of_the_optimizer_inside() -> None:
    for optimizer in (Momentum(0.9), Adam()):
        assert_moved(ClipByValue(optimizer, 100.0), moved(optimizer))
        assert_moved(ClipByGlobalNorm(optimizer, 100.0), moved(optimizer))


class ScaledByMax(SGD):
    """An optimizer with an input of its own that follows from the gradients."""

    gradient_inputs = ("sum_of_all",)

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate", "sum_of_all")

    def update(self, *, parameter: Any, gradient: Any, learning_rate: Any, sum_of_all: Any) -> Any:  # type: ignore[override]
        return parameter - gradient * sum_of_all * learning_rate

    def from_gradients(self, gradients: Any) -> Any:
        first, second = gradients.values()
        return {"sum_of_all": first.sum() + second.sum()}


def test_what_follows_from_gradients_inside_follows_from_the_clipped_ones() -> None:
    assert_moved(ScaledByMax(), {"u": [33.0, -44.0], "w": [[132.0]]})
    assert_moved(ClipByValue(ScaledByMax(), 3.5), {"u": [9.0, -10.5], "w": [[10.5]]})
    both = ClipByGlobalNorm(ScaledByMax(), 6.5)
    assert both.gradient_inputs == ("sum_of_all", "gradient_norm")
    assert_moved(both, {"u": [1.5 * 5.5, -2.0 * 5.5], "w": [[33.0]]})


def test_states_and_inputs_are_those_of_the_optimizer_inside() -> None:
    adam = Adam()
    for optimizer in (ClipByValue(adam, 1.0), ClipByGlobalNorm(adam, 1.0)):
        assert optimizer.state == adam.state
        assert dict(optimizer.step_inputs).keys() == adam.step_inputs.keys()
    assert ClipByValue(adam, 1.0).required_optimizer_inputs == adam.required_optimizer_inputs
    assert ClipByValue(adam, 1.0).gradient_inputs == ()
    assert ClipByGlobalNorm(adam, 1.0).required_optimizer_inputs == (*adam.required_optimizer_inputs, "gradient_norm")
    assert ClipByGlobalNorm(adam, 1.0).gradient_inputs == ("gradient_norm",)


def test_a_set_of_inputs_stays_a_set() -> None:
    class Odd(SGD):
        required_optimizer_inputs = frozenset({"learning_rate"})  # type: ignore[assignment]

    optimizer = ClipByGlobalNorm(Odd(), 1.0)
    assert optimizer.required_optimizer_inputs == {"learning_rate", "gradient_norm"}
    assert step_of(optimizer).provenance.optimizer_label == "ClipByGlobalNorm"


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("clip", [ClipByValue, ClipByGlobalNorm])
@pytest.mark.parametrize("optimizer", [None, SGD, "sgd", lambda parameter, gradient: parameter])
def test_wraps_optimizers_only(clip: Any, optimizer: Any) -> None:
    with pytest.raises(TypeError, match=f"{clip.__name__} wraps an Optimizer, got "):
        clip(optimizer, 1.0)


@pytest.mark.parametrize("clip", [ClipByValue, ClipByGlobalNorm])
def test_an_optimizer_that_contradicts_itself_is_refused_at_once(clip: Any) -> None:
    class Forgetful(SGD):
        state = ("velocity",)

    class Unnamed(SGD):
        required_optimizer_inputs = None  # type: ignore[assignment]

    for bad, part in ((Forgetful(), "velocity"), (Unnamed(), "Unnamed.required_optimizer_inputs")):
        with pytest.raises(AutodiffError, match=part) as caught:
            clip(bad, 1.0)
        assert caught.value.category == "invalid_update_signature"


def test_one_norm_is_enough() -> None:
    inner = ClipByValue(ClipByGlobalNorm(SGD(), 1.0), 2.0)
    with pytest.raises(ValueError, match="has a 'gradient_norm' already; clip by one norm, the smaller one"):
        ClipByGlobalNorm(inner, 3.0)
