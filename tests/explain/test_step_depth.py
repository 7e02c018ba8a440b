"""The depth of whole training steps, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from steps import compiled, spec
from tinychain.autodiff.expansion.legalize import Legalize
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.expansion.targets import ADD_MUL_MATMUL
from tinychain.autodiff.inspection import step_depth
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, ClipByGlobalNorm, Momentum

#: v3 = x @ w, v4 = v3 - y, v5 = v4 * v4, v6 = mean(v5).
STEP = compiled()


def test_a_linear_model() -> None:
    found = step_depth(STEP)
    assert found.loss == 3  # x @ w, its square, the mean
    # The residual has 1 level; times the plain seed 2, times x 3, times the learning rate 4.
    assert found.gradients == {"w": 3}
    assert found.parameters == {"w": 4}
    assert (found.levels, found.states, found.unknown) == (4, {"w": {}}, ())
    assert [program for program, _ in found.path] == ["forward", "derivative", "derivative", "update of w"]
    assert found.path[0] == ("forward", "n0")


def test_what_is_secret_is_said_by_name() -> None:
    assert step_depth(STEP, secret=[]).parameters == {"w": 0}
    assert step_depth(STEP, secret=["w"]).parameters == {"w": 4}
    assert step_depth(STEP, secret=["y"]).parameters == {"w": 3}  # x is plain, and so is x @ w
    assert step_depth(STEP, secret=["x", "y", "w", "learning_rate"]).parameters == {"w": 4}


def test_a_target_without_a_cost_for_plain_factors() -> None:
    target = Target("t", {MulOperator: Limits(plain_levels=0)})
    assert step_depth(STEP, target).parameters == {"w": 2}
    assert step_depth(STEP, target, secret=["x", "y", "w", "learning_rate"]).parameters == {"w": 3}


def test_states() -> None:
    step = compiled(optimizer=Momentum())
    found = step_depth(step)
    assert found.states["w"].keys() == {*Momentum().state}
    assert found.parameters == {"w": 4}
    assert step_depth(step, secret=[]).states == {"w": dict.fromkeys(Momentum().state, 0)}


def test_what_follows_from_all_gradients() -> None:
    inputs = {name: spec() for name in ClipByGlobalNorm(SGD(), 1.0).required_optimizer_inputs}
    found = step_depth(compiled(optimizer=ClipByGlobalNorm(SGD(), 1.0), optimizer_inputs=inputs))
    assert found.levels is None
    assert found.gradients == {"w": 3}
    assert found.unknown[0].startswith("gradient inputs: node ")
    assert "no polynomial" in found.unknown[0]


def network(x: Tensor, y: Tensor, w: Tensor, u: Tensor) -> Tensor:
    hidden = x @ w
    residual = (hidden * hidden) @ u - y
    return (residual * residual).mean()


def test_legalizing_a_step_costs_no_depth() -> None:
    inputs = {"x": spec(4, 3), "y": spec(4, 1), "w": spec(3, 2), "u": spec(2, 1)}
    passes = [Legalize(ADD_MUL_MATMUL)]
    step = compiled(
        loss=network,
        inputs=inputs,
        parameters=["w", "u"],
        forward_expansions=passes,
        derivative_expansions=passes,
        update_expansions=passes,
    )
    before, after = [step_depth(step, ADD_MUL_MATMUL, lowered=lowered) for lowered in (False, True)]
    # The residual has 3 levels and its gradient 4. For u: times the hidden layer's square 5, times the learning rate 6.
    # For w: times u 5, times the hidden layer 6, times x 7, times the learning rate 8.
    assert before.parameters == {"w": 8, "u": 6}
    assert after.parameters == before.parameters
    assert step_depth(step, secret=["x"]).unknown == ()


def test_the_data_is_json() -> None:
    data = json.loads(json.dumps(step_depth(STEP).to_dict()))
    assert data == step_depth(STEP).to_dict()
    assert data["path"][0] == ["forward", "n0"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"step": STEP.source_forward_graph}, TypeError, "step must be a CompiledTrainingStep, got TensorGraph"),
        ({"target": 3}, TypeError, "target must be a Target or None, got 3"),
        ({"lowered": None}, TypeError, "lowered must be a bool, got None"),
        ({"secret": "w"}, TypeError, "secret must be a collection of input names, got 'w'"),
        (
            {"secret": ["v0"]},
            ValueError,
            r"secret has 'v0', which is no input of the step; its inputs are \['x', 'y', 'w', 'learning_rate'\]",
        ),
    ],
)
def test_bad_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        step_depth(**{"step": STEP, **changes})
