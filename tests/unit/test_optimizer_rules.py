"""Each optimizer of the package against its formula in plain NumPy, its literals, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from running import compiled
from steps import spec
from tinychain.autodiff.training import (
    SGD,
    Adam,
    AdamW,
    ClipByGlobalNorm,
    ClipByValue,
    Momentum,
    Nesterov,
    Optimizer,
    trace_parameter_update,
)

Array = NDArray[np.float64]
Rule = Callable[[int, Array, Array, float, dict[str, Array]], Array]

STEPS = 5
RATES = (0.1, 0.05, 0.2, 0.1, 0.3)


def walk(optimizer: Optimizer) -> list[Array]:
    """The parameter after each step along random gradients, by the traced update; the rate changes at each."""
    required = optimizer.required_optimizer_inputs
    traced = trace_parameter_update(
        optimizer, parameter=spec(3, 2), gradient=spec(3, 2), optimizer_inputs=dict.fromkeys(required, spec())
    )
    update, ids = compiled(traced.graph), traced.input_value_ids
    given: dict[str, Array] = {"parameter": start(), **{name: np.zeros((3, 2)) for name in optimizer.state}}
    parameters = []
    for number, gradient in enumerate(gradients(), start=1):
        given |= {"gradient": gradient, "learning_rate": np.array(RATES[number - 1])}
        given |= {name: np.array(function(number)) for name, function in optimizer.step_inputs.items()}
        results = update({value_id: given[name] for name, value_id in ids.items()})
        given["parameter"] = results[traced.updated_parameter_id]
        given |= {name: results[value_id] for name, value_id in traced.updated_state_ids.items()}
        parameters.append(given["parameter"])
    return parameters


def start() -> Array:
    return np.random.default_rng(0).normal(size=(3, 2))


def gradients() -> Array:
    return np.random.default_rng(1).normal(size=(STEPS, 3, 2))


def by_hand(rule: Rule) -> list[Array]:
    parameter, state, parameters = start(), dict[str, Array](), []
    for number, gradient in enumerate(gradients(), start=1):
        parameter = rule(number, parameter, gradient, RATES[number - 1], state)
        parameters.append(parameter)
    return parameters


# ------------------------------------------------------------------------------------------------------------ formulas


def descent(decay: float) -> Rule:
    def rule(step: int, p: Array, g: Array, rate: float, state: dict[str, Array]) -> Array:
        return p - rate * (g + decay * p)

    return rule


def momentum(beta: float, decay: float = 0.0, *, ahead: bool = False) -> Rule:
    def rule(step: int, p: Array, g: Array, rate: float, state: dict[str, Array]) -> Array:
        g = g + decay * p
        state["v"] = beta * state.get("v", np.zeros_like(p)) + g
        return p - rate * (g + beta * state["v"] if ahead else state["v"])

    return rule


def adam(beta1: float, beta2: float, epsilon: float, decay: float, *, decoupled: bool = False) -> Rule:
    def rule(step: int, p: Array, g: Array, rate: float, state: dict[str, Array]) -> Array:
        if decoupled:
            p = p * (1 - rate * decay)
        else:
            g = g + decay * p
        state["m"] = beta1 * state.get("m", np.zeros_like(p)) + (1 - beta1) * g
        state["s"] = beta2 * state.get("s", np.zeros_like(p)) + (1 - beta2) * g**2
        mean, square = state["m"] / (1 - beta1**step), state["s"] / (1 - beta2**step)
        return p - rate * mean / (np.sqrt(square) + epsilon)

    return rule


RULES: list[tuple[Optimizer, Rule]] = [
    (SGD(), descent(0.0)),
    (SGD(weight_decay=0.25), descent(0.25)),
    (Momentum(0.75), momentum(0.75)),
    (Momentum(0.75, weight_decay=0.25), momentum(0.75, 0.25)),
    (Momentum(0), momentum(0.0)),
    (Nesterov(0.75), momentum(0.75, ahead=True)),
    (Nesterov(0.75, weight_decay=0.25), momentum(0.75, 0.25, ahead=True)),
    (Adam(), adam(0.9, 0.999, 1e-8, 0.0)),
    (Adam(0.5, 0.75, 0.125, 0.25), adam(0.5, 0.75, 0.125, 0.25)),
    (Adam(0, 0, 0), adam(0.0, 0.0, 0.0, 0.0)),
    (AdamW(), adam(0.9, 0.999, 1e-8, 0.01, decoupled=True)),
    (AdamW(0.5, 0.75, 0.125, 0.25), adam(0.5, 0.75, 0.125, 0.25, decoupled=True)),
    (AdamW(weight_decay=0), adam(0.9, 0.999, 1e-8, 0.0)),
]


@pytest.mark.parametrize(("optimizer", "rule"), RULES, ids=[repr(optimizer) for optimizer, _ in RULES])
def test_the_traced_rule_is_its_formula(optimizer: Optimizer, rule: Rule) -> None:
    for got, expected in zip(walk(optimizer), by_hand(rule), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("plain", "decaying"),
    [(SGD(), SGD(0.1)), (Momentum(), Momentum(weight_decay=0.1)), (AdamW(weight_decay=0.0), AdamW(weight_decay=0.1))],
)
def test_no_decay_costs_no_operation(plain: Optimizer, decaying: Optimizer) -> None:
    def operations(optimizer: Optimizer) -> int:
        inputs = dict.fromkeys(optimizer.required_optimizer_inputs, spec())
        traced = trace_parameter_update(optimizer, parameter=spec(2), gradient=spec(2), optimizer_inputs=inputs)
        return len(traced.graph.nodes)

    assert operations(plain) < operations(decaying)


# ---------------------------------------------------------------------------------------------- what it says of itself


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (SGD(), "SGD(weight_decay=0.0)"),
        (Momentum(0.5), "Momentum(momentum=0.5, weight_decay=0.0)"),
        (Nesterov(weight_decay=0.1), "Nesterov(momentum=0.9, weight_decay=0.1)"),
        (Adam(), "Adam(beta1=0.9, beta2=0.999, epsilon=1e-08, weight_decay=0.0)"),
        (AdamW(), "AdamW(beta1=0.9, beta2=0.999, epsilon=1e-08, weight_decay=0.01)"),
        (ClipByValue(SGD(), 1.5), "ClipByValue(optimizer=SGD(weight_decay=0.0), limit=1.5)"),
        (ClipByGlobalNorm(SGD(), 2), "ClipByGlobalNorm(optimizer=SGD(weight_decay=0.0), max_norm=2)"),
    ],
)
def test_prints_its_literals(optimizer: Optimizer, text: str) -> None:
    assert repr(optimizer) == text


def test_a_rule_may_be_refined_by_a_class_with_literals_of_its_own() -> None:
    class Bold(SGD):
        def __init__(self, boldness: float) -> None:
            self.boldness = boldness

        def update(self, *, parameter: Any, gradient: Any, **rates: Any) -> Any:
            return super().update(parameter=parameter, gradient=gradient * self.boldness, **rates)

    np.testing.assert_allclose(walk(Bold(2.0))[0], start() - 2 * RATES[0] * gradients()[0], rtol=1e-12)


def test_adam_is_told_what_follows_from_the_step() -> None:
    optimizer = Adam(0.5, 0.75)
    assert optimizer.state == ("first_moment", "second_moment")
    assert optimizer.required_optimizer_inputs == ("learning_rate", "first_correction", "second_correction")
    first, second = (optimizer.step_inputs[name] for name in ("first_correction", "second_correction"))
    assert [first(step) for step in (1, 2, 3)] == [2.0, 4 / 3, 8 / 7]
    assert [second(step) for step in (1, 2)] == [4.0, 16 / 7]
    assert first(100_000) == 1.0


@pytest.mark.parametrize("step", [0, -1, 1.5, True, None, "1"])
def test_there_is_no_correction_for_what_is_no_step(step: Any) -> None:
    with pytest.raises(ValueError, match="the number of a step must be an int of at least 1, got"):
        Adam().step_inputs["first_correction"](step)


def test_the_rules_without_corrections_follow_from_nothing() -> None:
    for optimizer in (SGD(), Momentum(), Nesterov()):
        assert dict(optimizer.step_inputs) == {}
        assert optimizer.gradient_inputs == ()
        assert dict(optimizer.from_gradients({})) == {}


# ------------------------------------------------------------------------------------------------------------ literals

BELOW_ONE = [-0.1, 1.0, 2]
AT_LEAST_ZERO = [-0.1, float("inf"), 10**400]
POSITIVE = [0, 0.0, *AT_LEAST_ZERO]
NO_NUMBER = [True, None, "0.9", float("nan"), 1j, [0.9]]


def literals(*rules: tuple[Callable[..., Any], str, str, list[Any]]) -> list[tuple[Any, str, str, Any]]:
    return [(make, name, range_, bad) for make, name, range_, all_bad in rules for bad in (*all_bad, *NO_NUMBER)]


@pytest.mark.parametrize(
    ("make", "name", "range_", "bad"),
    literals(
        (SGD, "weight_decay", "[0, inf)", AT_LEAST_ZERO),
        (Momentum, "momentum", "[0, 1)", BELOW_ONE),
        (Momentum, "weight_decay", "[0, inf)", AT_LEAST_ZERO),
        (Nesterov, "momentum", "[0, 1)", BELOW_ONE),
        (Adam, "beta1", "[0, 1)", BELOW_ONE),
        (Adam, "beta2", "[0, 1)", BELOW_ONE),
        (Adam, "epsilon", "[0, inf)", AT_LEAST_ZERO),
        (Adam, "weight_decay", "[0, inf)", AT_LEAST_ZERO),
        (AdamW, "weight_decay", "[0, inf)", AT_LEAST_ZERO),
        (ClipByValue, "limit", "(0, inf)", POSITIVE),
        (ClipByGlobalNorm, "max_norm", "(0, inf)", POSITIVE),
    ),
)
def test_refuses_a_literal_out_of_its_range(make: Callable[..., Any], name: str, range_: str, bad: Any) -> None:
    given: Mapping[str, Any] = {"optimizer": SGD()} if make in (ClipByValue, ClipByGlobalNorm) else {}
    with pytest.raises(ValueError, match=f"{name} must be a number in ") as caught:
        make(**given, **{name: bad})
    assert f"{range_}, got " in str(caught.value)


@pytest.mark.parametrize("number", [0, 0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_any_real_number_in_range_is_a_literal(number: Any) -> None:
    got, expected = walk(Momentum(number)), by_hand(momentum(float(number)))
    np.testing.assert_allclose(got[-1], expected[-1], rtol=1e-12)
