"""A target: a name and the limits of its operators, in Python and from handlers."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from targeting import form, raised_by
from tinychain.autodiff.backends.numpy import limited_registry, reference_registry
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    DivOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    SumOperator,
)

MACHINE = Target(
    "chip",
    {MatmulOperator: Limits(max_rank=2), MulOperator: Limits(right="literal"), FillOperator: Limits(fills=(1.0,))},
)


def test_an_operator_that_it_lacks_is_refused_by_both_names() -> None:
    assert MACHINE.refusal(form(AddOperator, "f64 2", "f64 2")) == "chip has no AddOperator"


def test_a_form_beyond_the_limits_is_refused_by_both_names_and_the_limit() -> None:
    refusal = MACHINE.refusal(form(MatmulOperator, "f64 2 3 4", "f64 2 4 5"))
    assert refusal == "MatmulOperator of chip takes ranks 0 to 2 only, not f64[2, 3, 4]"


def test_a_form_within_the_limits_is_taken() -> None:
    assert MACHINE.refusal(form(MatmulOperator, "f64 3 4", "f64 4 5")) is None


def test_a_subclass_is_another_operator() -> None:
    class Scale(MulOperator):
        """An operator of a user's own."""

    assert MACHINE.refusal(form(Scale, "f64 2", right_literal=2.0)) == "chip has no Scale"


def test_what_the_caller_changes_later_does_not_reach_it() -> None:
    operators: dict[type[TensorOperator], Limits] = {MulOperator: Limits()}
    target = Target("chip", operators)
    operators.clear()
    assert list(target.operators) == [MulOperator]
    with pytest.raises(TypeError):
        target.operators[AddOperator] = Limits()  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        target.name = "other"  # type: ignore[misc]


def test_a_machine_without_operators_refuses_everything() -> None:
    assert Target("brick").refusal(form(AddOperator, "f64", "f64")) == "brick has no AddOperator"


def test_equal_targets_have_equal_parts() -> None:
    assert Target("chip", {MulOperator: Limits(max_dim=8)}) == Target("chip", {MulOperator: Limits(max_dim=8)})
    assert Target("chip", {MulOperator: Limits(max_dim=8)}) != Target("chip", {MulOperator: Limits(max_dim=9)})


def test_as_plain_data() -> None:
    data = json.loads(json.dumps(MACHINE.to_dict()))
    assert data["name"] == "chip"
    assert [item["operator"] for item in data["operators"]] == ["MatmulOperator", "MulOperator", "FillOperator"]
    assert data["operators"][2]["fills"] == [1.0]
    assert data["operators"][0]["max_rank"] == 2


# ----------------------------------------------------------------------------------------------------- of handlers


@pytest.mark.parametrize("registry", [limited_registry, reference_registry])
def test_the_machine_of_handlers_has_their_operators_without_limits(registry: Any) -> None:
    handlers = registry()
    target = Target.of_handlers("mine", handlers)
    assert dict(target.operators) == dict.fromkeys(handlers.supported_types(), Limits())
    assert target.name == "mine"


def test_handlers_that_come_later_do_not_reach_it() -> None:
    handlers = limited_registry()
    target = Target.of_handlers("mine", handlers)
    handlers.register(reference_registry().lookup(SumOperator))
    assert SumOperator not in target.operators


# ------------------------------------------------------------------------------------------------ targets that are none


@pytest.mark.parametrize(
    ("name", "operators", "message"),
    [
        ("", {}, "name: expected a non-empty str, got ''"),
        (3, {}, "name: expected a non-empty str, got 3"),
        ("chip", [MulOperator], "operators: expected a mapping of operator classes"),
        ("chip", {"mul": Limits()}, "operators: expected operator classes as keys, got 'mul'"),
        ("chip", {MulOperator(): Limits()}, "operators: expected operator classes as keys"),
        ("chip", {int: Limits()}, "operators: expected operator classes as keys, got <class 'int'>"),
        ("chip", {MulOperator: {"max_rank": 2}}, "operators.MulOperator: expected Limits, got {'max_rank': 2}"),
        ("chip", {MulOperator: None}, "operators.MulOperator: expected Limits, got None"),
    ],
)
def test_a_wrong_part_is_refused_under_its_name(name: Any, operators: Any, message: str) -> None:
    error = raised_by(Target, name, operators)
    assert error.category == "invalid_target"
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("operator", "limits", "message"),
    [
        (
            MatmulOperator,
            Limits(max_rank=1),
            "operators.MatmulOperator.max_rank: expected 2 or more for a matmul, got 1",
        ),
        (
            AddOperator,
            Limits(right="literal"),
            "operators.AddOperator.right: expected any or constant, as AddOperator has no form with a literal",
        ),
        (
            DivOperator,
            Limits(fills=(1.0,)),
            "operators.DivOperator.fills: expected to be left out, as DivOperator is no fill, got (1.0,)",
        ),
    ],
)
def test_limits_that_do_not_suit_the_operator_are_refused(operator: Any, limits: Limits, message: str) -> None:
    error = raised_by(Target, "chip", {operator: limits})
    assert error.category == "invalid_target"
    assert error.message.startswith(message)


@pytest.mark.parametrize("handlers", [None, OPERATORS, limited_registry])
def test_only_a_registry_has_handlers(handlers: Any) -> None:
    error = raised_by(Target.of_handlers, "mine", handlers)
    assert error.category == "invalid_target"
    assert "handlers: expected an OperationHandlerRegistry" in error.message
