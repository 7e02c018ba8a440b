"""What trace_parameter_update refuses, by category, in order, with the parts of the message that say what to repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder, get_active_builder
from tinychain.autodiff.training import SGD, Momentum
from tinychain.autodiff.types import TensorType
from updates import MATRIX, SCALAR, Stateful, exchange, failure, trace


def refused(update: Any, **changes: Any) -> str:
    """The message of a refusal before anything is traced."""
    error = failure(update, **changes)
    assert error.category == "invalid_update_signature"
    return error.message


# ------------------------------------------------------------------------------------------------------ bad signatures


@pytest.mark.parametrize("given", [0, "", [], (), False, 3, "learning_rate", ["learning_rate"], {"learning_rate"}])
def test_refuses_optimizer_inputs_that_are_no_mapping(given: Any) -> None:
    message = refused(SGD(), optimizer_inputs=given)
    assert "optimizer_inputs" in message
    assert repr(given) in message


@pytest.mark.parametrize("name", ["", 3, None, ("a",), "a b", "1x", "class", "None", "parameter", "gradient"])
def test_refuses_a_bad_name(name: Any) -> None:
    message = refused(SGD(), optimizer_inputs={name: SCALAR})
    assert repr(name) in message
    assert "learning_rate" not in message


@pytest.mark.parametrize("declared", [{}, {"rate": SCALAR}, {"learning_rate": SCALAR, "decay": SCALAR}])
def test_refuses_inputs_other_than_the_required_ones(declared: dict[str, Any]) -> None:
    message = refused(SGD(), optimizer_inputs=declared)
    assert "SGD" in message
    assert "['learning_rate']" in message
    assert str(sorted(declared)) in message


@pytest.mark.parametrize(
    "required", ["learning_rate", None, 3, iter(["learning_rate"]), [""], [3], [["learning_rate"]]]
)
def test_refuses_a_bad_list_of_required_inputs(required: Any) -> None:
    class Bad(SGD):
        required_optimizer_inputs = required

    message = refused(Bad())
    assert "Bad.required_optimizer_inputs" in message


def test_required_inputs_may_be_any_collection() -> None:
    class Odd(SGD):
        required_optimizer_inputs = frozenset({"learning_rate"})  # type: ignore[assignment]

    assert trace(Odd()) == trace(SGD())


def test_refuses_an_optimizer_whose_update_does_not_take_the_inputs() -> None:
    class Forgetful(SGD):
        def update(self, *, parameter: Tensor, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return parameter

    message = refused(Forgetful())
    assert "Forgetful" in message
    assert "learning_rate" in message


def test_refuses_an_optimizer_whose_update_does_not_take_its_state() -> None:
    class Forgetful(SGD):
        state = ("velocity",)

    assert "velocity" in refused(Forgetful())


@pytest.mark.parametrize(
    "update",
    [
        lambda parameter: parameter,
        lambda parameter, gradient: parameter,
        lambda parameter, gradient, learning_rate, decay: parameter,
        lambda parameter, gradient, learning_rate, /: parameter,
        min,
        SGD,
    ],
)
def test_refuses_a_callable_with_another_signature(update: Any) -> None:
    assert update.__qualname__ in refused(update)


@pytest.mark.parametrize("update", [None, 3, "sgd", MATRIX])
def test_refuses_what_cannot_be_called(update: Any) -> None:
    message = refused(update)
    assert "must be an Optimizer or a callable" in message
    assert repr(update) in message


def test_refuses_the_class_of_an_optimizer() -> None:
    assert "got the class Momentum; make one of it: Momentum(...)" in refused(Momentum)


# ------------------------------------------------------------------------------------------------------- bad typespecs


class RaisingShape(list[int]):
    def __iter__(self) -> NoReturn:
        raise RuntimeError("no shape today")


class RaisingSpec(dict[str, Any]):
    def get(self, *_: Any) -> NoReturn:
        raise RuntimeError("no field today")


@pytest.mark.parametrize("name", ["parameter", "gradient", "learning_rate"])
@pytest.mark.parametrize(
    ("spec", "category"),
    [
        (None, "missing_dtype_metadata"),
        ("f32", "missing_dtype_metadata"),
        (TensorType("f32", (3, 1)), "missing_dtype_metadata"),
        ({}, "missing_dtype_metadata"),
        ({"shape": [3, 1]}, "missing_dtype_metadata"),
        ({"dtype": None}, "missing_dtype_metadata"),
        (RaisingSpec(), "missing_dtype_metadata"),
        ({"dtype": "f32"}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": "31"}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": 3}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": [-1]}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": [True]}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": ["a b"]}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": RaisingShape([3, 1])}, "missing_shape_metadata"),
        ({"dtype": "i32", "shape": [3, 1]}, "dtype_not_differentiable"),
    ],
)
def test_refuses_an_incomplete_typespec(name: str, spec: Any, category: str) -> None:
    changes = {"optimizer_inputs": {name: spec}} if name == "learning_rate" else {name: spec}
    error = failure(SGD(), **changes)
    assert error.category == category
    assert f"input '{name}'" in error.message


def test_refusals_come_in_order() -> None:
    """Everything is wrong; repairing it from the front lets each next reason show."""
    bad: Any = {"dtype": "i32", "shape": "x"}
    steps: list[tuple[Any, dict[str, Any], str, str]] = [
        (None, {"parameter": None, "optimizer_inputs": []}, "invalid_update_signature", "optimizer_inputs"),
        (None, {"parameter": None, "optimizer_inputs": {"": None}}, "invalid_update_signature", "''"),
        (None, {"parameter": None, "optimizer_inputs": {"rate": None}}, "invalid_update_signature", "callable"),
        (SGD(), {"parameter": None, "optimizer_inputs": {"rate": None}}, "invalid_update_signature", "SGD"),
        (SGD(), {"parameter": None, "gradient": None}, "missing_dtype_metadata", "parameter"),
        (SGD(), {"parameter": bad, "gradient": None}, "missing_shape_metadata", "parameter"),
        (SGD(), {"gradient": None, "optimizer_inputs": {"learning_rate": None}}, "missing_dtype_metadata", "gradient"),
        (SGD(), {"optimizer_inputs": {"learning_rate": None}}, "missing_dtype_metadata", "learning_rate"),
        (SGD(), {"gradient": {"dtype": "f32", "shape": [4, 1]}}, "broadcast_shape_mismatch", "[4, 1]"),
    ]
    for update, changes, category, part in steps:
        error = failure(update, **changes)
        assert error.category == category
        assert part in error.message


# --------------------------------------------------------------------------------------------------------- bad results


@pytest.mark.parametrize("result", [None, 1.0, "v4", [1], np.zeros((3, 1))])
def test_refuses_a_result_that_is_no_tensor(result: Any) -> None:
    def rule(**_: Tensor) -> Any:
        return result

    error = failure(rule)
    assert error.category == "invalid_update_output"
    assert "rule must return the new parameter, a Tensor" in error.message


def test_refuses_a_tensor_of_another_trace() -> None:
    with TensorGraphBuilder() as builder:
        foreign = builder.input("x", dtype="f32", shape=[3, 1])
    for tensor in (foreign, Tensor()):
        error = failure(lambda tensor=tensor, **_: tensor)
        assert error.category == "invalid_update_output"
        assert "another trace" in error.message


@pytest.mark.parametrize(
    ("update", "got"),
    [
        (lambda parameter, gradient, learning_rate: gradient.sum(), "f32[]"),
        (lambda parameter, gradient, learning_rate: parameter.reshape(1, 3), "f32[1, 3]"),
        (lambda parameter, gradient, learning_rate: learning_rate, "f64[3, 1]"),
    ],
)
def test_refuses_a_result_of_another_type(update: Callable[..., Tensor], got: str) -> None:
    error = failure(update, optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": [3, 1]}})
    assert error.category == "invalid_update_output"
    assert f"the new parameter is {got}, not of the parameter's type f32[3, 1]" in error.message


def test_a_shape_conflict_inside_the_rule_keeps_the_category_of_tracing() -> None:
    assert failure(SGD(), gradient={"dtype": "f32", "shape": [4, 1]}).category == "broadcast_shape_mismatch"
    assert failure(SGD(), gradient={"dtype": "f64", "shape": [3, 1]}).category == "dtype_mismatch"


def test_an_exception_of_the_rule_propagates_and_leaves_no_trace_open() -> None:
    def rule(**_: Tensor) -> NoReturn:
        raise ZeroDivisionError("in the rule")

    with pytest.raises(ZeroDivisionError, match="in the rule"):
        trace(rule)
    assert get_active_builder() is None
    trace(SGD())


def test_does_not_nest_and_leaves_the_outer_trace_open() -> None:
    with TensorGraphBuilder() as builder:
        with pytest.raises(RuntimeError, match="Nested"):
            trace(SGD())
        assert get_active_builder() is builder


# ------------------------------------------------------------------------------------------------------------ bad state


@pytest.mark.parametrize(
    "state",
    ["velocity", 3, None, [""], [3], ["not an identifier"], ["class"], ["parameter"], ["gradient"], ["learning_rate"]],
)
def test_refuses_bad_state_names(state: Any) -> None:
    message = refused(Stateful(exchange, state=state))
    assert "state" in message
    assert repr(state[0] if isinstance(state, list) else state) in message


@pytest.mark.parametrize(
    "result",
    [
        lambda parameter, gradient, **_: parameter,
        lambda parameter, gradient, **_: (parameter,),
        lambda parameter, gradient, **_: (parameter, parameter),
        lambda parameter, gradient, **_: (None, {"first": parameter, "second": parameter}),
        lambda parameter, gradient, **_: (parameter, {"first": parameter}),
        lambda parameter, gradient, **_: (parameter, {"first": parameter, "second": parameter, "third": parameter}),
        lambda parameter, gradient, **_: (parameter, {"first": parameter, "second": 0.0}),
        lambda parameter, gradient, **_: None,
    ],
)
def test_refuses_a_result_without_every_state(result: Callable[..., Any]) -> None:
    error = failure(Stateful(result))
    assert error.category == "invalid_update_output"
    assert "Stateful must return" in error.message
    assert "second" in error.message


def test_refuses_a_state_of_another_shape() -> None:
    error = failure(
        Stateful(lambda parameter, gradient, **_: (parameter, {"first": parameter, "second": parameter.sum()}))
    )
    assert error.category == "invalid_update_output"
    assert "the new second is f32[], not of the parameter's type f32[3, 1]" in error.message


class Twice(SGD):
    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate", "learning_rate")


class Raising(SGD):
    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        raise KeyError("rate")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Twice(), "Twice.required_optimizer_inputs names 'learning_rate' twice"),
        (Raising(), "Raising.required_optimizer_inputs raised KeyError: 'rate'"),
    ],
)
def test_what_a_rule_declares_of_itself_is_read_with_care(optimizer: SGD, message: str) -> None:
    assert message in refused(optimizer)
