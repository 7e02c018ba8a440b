"""The updates of a compiled step, shared by parameters of one type, and what provenance says of their rule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import pytest

from steps import plain, several, spec
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, Momentum, sgd_update

# -------------------------------------------------------------------------------------------------------------- updates


def test_parameters_of_one_type_share_one_update() -> None:
    calls = []

    def rule(parameter: Tensor, gradient: Tensor) -> Tensor:
        calls.append(parameter.shape)
        return parameter - gradient

    step = several(optimizer=rule, optimizer_inputs=None)
    u, b, w = step.parameters
    assert calls == [(3, 3), (1, 3)]
    assert u.update is w.update
    assert u.lowered_update_graph is w.lowered_update_graph
    assert u.update is not b.update
    assert (u.name, u.value_id, u.gradient_value_id) != (w.name, w.value_id, w.gradient_value_id)
    assert b.source_update_graph.inputs[0] == ("v0", spec(1, 3))


def test_symbols_are_part_of_a_type() -> None:
    inputs = {name: spec("N") for name in "abc"} | {"c": spec("M")}
    step = plain(loss=lambda a, b, c: (a * b).sum() + c.sum(), inputs=inputs, parameters=["a", "b", "c"])
    a, b, c = step.parameters
    assert a.update is b.update
    assert a.update is not c.update
    assert c.source_update_graph.inputs[1] == ("v1", spec("M"))


def test_state_is_selected_and_named() -> None:
    (record,) = plain(optimizer=Momentum(0.5)).parameters
    assert record.update_input_value_ids == {
        "parameter": "v0",
        "gradient": "v1",
        "learning_rate": "v2",
        "velocity": "v3",
    }
    assert list(record.updated_state_value_ids) == ["velocity"]
    assert record.update.selected_outputs == (
        record.updated_parameter_value_id,
        record.updated_state_value_ids["velocity"],
    )


def test_without_state_the_states_are_empty() -> None:
    assert plain().parameter("w").updated_state_value_ids == {}


# ----------------------------------------------------------------------------------------------------------- provenance


class Rule:
    """A callable object; that it looks like an optimizer is of no interest."""

    @property
    def required_optimizer_inputs(self) -> NoReturn:
        raise AssertionError("read")

    def __call__(self, parameter: Tensor, gradient: Tensor, **rates: Tensor) -> Tensor:
        return parameter - gradient * rates["learning_rate"] * rates["decay"]

    def method(self, parameter: Tensor, gradient: Tensor, **rates: Tensor) -> Tensor:
        return self(parameter, gradient, **rates)


RATES = {"learning_rate": spec(), "decay": spec()}


class Decayed(SGD):
    required_optimizer_inputs = ("decay", "learning_rate")

    def update(self, **tensors: Tensor) -> Tensor:
        return Rule()(**tensors)


class Unordered(Decayed):
    required_optimizer_inputs = frozenset(RATES)  # type: ignore[assignment]


class Viewed(Decayed):
    required_optimizer_inputs = {"decay": 0.1, "learning_rate": 0.2}.keys()  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("optimizer", "label", "names"),
    [
        (Decayed(), "Decayed", ("decay", "learning_rate")),
        (Viewed(), "Viewed", ("decay", "learning_rate")),
        (Unordered(), "Unordered", ("learning_rate", "decay")),
        (Rule(), "Rule", ("learning_rate", "decay")),
        (Rule().method, "Rule.method", ("learning_rate", "decay")),
        (partial(Rule()), "partial", ("learning_rate", "decay")),
    ],
)
def test_provenance_names_the_optimizer_and_its_inputs_in_order(
    optimizer: Any, label: str, names: tuple[str, ...]
) -> None:
    provenance = plain(optimizer=optimizer, optimizer_inputs=RATES).provenance
    assert provenance.optimizer_label == label
    assert provenance.optimizer_input_names == names


def test_a_plain_function_and_an_optimizer_of_the_same_rule_give_the_same_step() -> None:
    step = plain(optimizer=sgd_update)
    assert step.provenance.optimizer_label == "sgd_update"
    assert replace(step, provenance=plain().provenance) == plain()
