"""A whole step against its sources, and two steps against each other: what is compared and what a wrong part says."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from steps import compiled, mse, several, spec
from tinychain.autodiff.backends.numpy import rank2_registry, reference_registry
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.expansion.legalize import Legalize
from tinychain.autodiff.expansion.targets import ready_target
from tinychain.autodiff.serialization import dumps, loads_training_step
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, Adam, ClipByGlobalNorm, CompiledTrainingStep, Momentum
from tinychain.autodiff.verify import verify_step
from twinning import compiled as with_duals

EXPANDED: dict[str, Any] = {
    "forward_expansions": [expand_mean_graph],
    "derivative_expansions": [partial(expand_mean_derivative_program, reserved_id_prefix="gx")],
}


def verdicts(step: CompiledTrainingStep, other: CompiledTrainingStep | None = None) -> dict[str, bool]:
    return {name: bool(result) for name, result in verify_step(step, other, points=()).items()}


def test_an_expanded_step_computes_what_its_sources_do() -> None:
    assert verdicts(compiled(**EXPANDED)) == {"loss": True, "gradients": True, "update of w": True}


def test_each_parameter_is_named() -> None:
    assert list(verdicts(several())) == ["loss", "gradients", "update of u", "update of b", "update of w"]


def test_what_follows_from_the_gradients_is_compared_too() -> None:
    optimizer = ClipByGlobalNorm(Adam(), max_norm=1.0)
    step = compiled(
        optimizer=optimizer, optimizer_inputs=dict.fromkeys(optimizer.required_optimizer_inputs, spec()), **EXPANDED
    )
    assert verdicts(step) == {"loss": True, "gradients": True, "gradient inputs": True, "update of w": True}


def test_a_transposed_input_that_a_pass_declares_is_the_transpose_of_its_input() -> None:
    passes = [Legalize(ready_target("add-mul-matmul-rank2"))]
    step = compiled(
        handlers=rank2_registry(),
        forward_expansions=passes,
        derivative_expansions=passes,
        update_expansions=passes,
    )
    assert any(value_id.endswith(".mT") for value_id, _ in step.lowered_forward_graph.inputs)
    assert all(verdicts(step).values())


def test_gradients_that_do_not_depend_on_the_seed_are_compared() -> None:
    """A batch of no rows has zeros as gradients; what is left of the program reads nothing."""

    def two_layers(x: Tensor, y: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        return ((x @ w1) @ w2).sum()

    shapes = {"x": (0, 5), "y": (0, 2), "w1": (5, 4), "w2": (4, 2)}
    results = verify_step(with_duals(two_layers, shapes), points=())
    assert "gradients with twins" in results
    assert all(results.values())


def doubled(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return mse(x, y, w) * 2.0


def test_another_loss_is_not_the_same_function() -> None:
    assert verdicts(compiled(), compiled(loss=doubled)) == {"loss": False, "gradients": False, "update of w": True}


def test_another_update_is_not_the_same_function() -> None:
    step, other = compiled(optimizer=SGD()), compiled(optimizer=SGD(weight_decay=0.1))
    assert verdicts(step, other) == {"loss": True, "gradients": True, "update of w": False}


def test_two_steps_with_other_passes_are_the_same() -> None:
    assert all(verdicts(compiled(), compiled(**EXPANDED)).values())


def test_a_loaded_step_is_the_same() -> None:
    step = compiled(**EXPANDED)
    assert all(verdicts(step, loads_training_step(dumps(step), handlers=reference_registry())).values())


def test_steps_that_cannot_be_compared() -> None:
    with pytest.raises(AutodiffError) as caught:
        verify_step(compiled(), compiled(optimizer=Momentum(0.5)))
    assert caught.value.category == "invalid_verification"
    assert "update of w" in caught.value.message
    with pytest.raises(AutodiffError) as caught:
        verify_step(several(), compiled())
    assert caught.value.category == "invalid_training_declaration"
    assert "no parameter 'u'" in caught.value.message


@pytest.mark.parametrize("given", [None, 3, "step"])
def test_refuses_what_is_no_step(given: Any) -> None:
    with pytest.raises(TypeError, match="expected one CompiledTrainingStep or two, got"):
        verify_step(given)


def test_options_are_passed_on() -> None:
    with pytest.raises(AutodiffError) as caught:
        verify_step(compiled(), compiled(loss=doubled), points=(), raise_on_difference=True)
    assert caught.value.category == "not_equivalent"
    assert caught.value.message.startswith("loss: ")
