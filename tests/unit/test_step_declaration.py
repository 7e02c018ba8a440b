"""What compile_training_step refuses before anything of the caller's runs, in which order, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from by_hand import OBJECT
from steps import compiled, declaration, failure, mse, spec
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, compile_training_step


def never(x: Tensor, y: Tensor, w: Tensor) -> NoReturn:
    raise AssertionError("the loss ran")


def refused(**changes: Any) -> AutodiffError:
    """The error of a declaration whose loss must not run."""
    return failure(**{"loss": never, **changes})


def bad(**changes: Any) -> str:
    error = refused(**changes)
    assert error.category == "invalid_training_declaration"
    return error.message


# --------------------------------------------------------------------------------------------------- inputs, parameters


@pytest.mark.parametrize("inputs", [None, 0, "xyw", ["x", "y", "w"], {"x"}, {}, MappingProxyType({})])
def test_refuses_inputs_that_are_no_mapping_or_empty(inputs: Any) -> None:
    message = bad(inputs=inputs)
    assert "inputs must be a non-empty mapping" in message
    assert repr(inputs) in message


@pytest.mark.parametrize("name", ["", 3, None, ("x",), "a b", "1x", "class", "None"])
def test_refuses_a_bad_input_name(name: Any) -> None:
    message = bad(inputs={"w": spec(), name: spec()}, parameters=["w"])
    assert "input name" in message
    assert repr(name) in message


@pytest.mark.parametrize("parameters", [None, 3, "w", b"w", {"w"}, {"w": 1}, iter(["w"]), [], ()])
def test_refuses_parameters_that_are_no_sequence_or_empty(parameters: Any) -> None:
    message = bad(parameters=parameters)
    assert "parameters must be a non-empty sequence" in message
    assert repr(parameters) in message


@pytest.mark.parametrize("name", ["", 3, None, ["w"], {}, "a b", "class"])
def test_refuses_a_bad_parameter_name(name: Any) -> None:
    message = bad(parameters=["w", name])
    assert "parameter name" in message
    assert repr(name) in message


def test_refuses_a_parameter_named_twice() -> None:
    assert "parameter 'w' is named twice" in bad(parameters=["w", "x", "w"])


def test_refuses_a_parameter_that_is_no_input_and_lists_the_inputs() -> None:
    message = bad(parameters=["w", "bias"])
    assert "'bias'" in message
    assert "['x', 'y', 'w']" in message


@pytest.mark.parametrize("label", [None, 3, "", b"seed"])
def test_refuses_a_bad_seed_label(label: Any) -> None:
    message = bad(seed_label=label)
    assert "seed_label must be a non-empty str" in message
    assert repr(label) in message


def test_takes_any_mapping_and_any_sequence() -> None:
    changed = {name: MappingProxyType({**typespec, "more": 1}) for name, typespec in declaration()["inputs"].items()}
    assert compiled(inputs=MappingProxyType(changed), parameters=("w",)).provenance == compiled().provenance


# ------------------------------------------------------------------------------------------------------------ typespecs


class RaisingShape(list[int]):
    def __iter__(self) -> NoReturn:
        raise RuntimeError("no shape today")


@pytest.mark.parametrize("name", ["x", "y", "w"])
@pytest.mark.parametrize(
    ("typespec", "category"),
    [
        (None, "missing_dtype_metadata"),
        (3, "missing_dtype_metadata"),
        ({}, "missing_dtype_metadata"),
        ({"dtype": None, "shape": [1]}, "missing_dtype_metadata"),
        ({"shape": [1]}, "missing_dtype_metadata"),
        ({"dtype": "f64"}, "missing_shape_metadata"),
        ({"dtype": "f64", "shape": None}, "missing_shape_metadata"),
        ({"dtype": "f64", "shape": "N"}, "missing_shape_metadata"),
        ({"dtype": "f64", "shape": [-1]}, "missing_shape_metadata"),
        ({"dtype": "f64", "shape": [True]}, "missing_shape_metadata"),
        ({"dtype": "f64", "shape": ["a b"]}, "missing_shape_metadata"),
        ({"dtype": "f64", "shape": RaisingShape([1])}, "missing_shape_metadata"),
    ],
)
def test_refuses_an_incomplete_typespec_and_names_its_input(name: str, typespec: Any, category: str) -> None:
    error = refused(inputs={**declaration()["inputs"], name: typespec})
    assert error.category == category
    assert f"input {name!r}" in error.message


def test_refuses_another_dtype_where_the_inputs_are_traced() -> None:
    error = refused(inputs={**declaration()["inputs"], "y": spec(4, 1, dtype="i32")})
    assert error.category == "dtype_not_differentiable"
    assert "'y'" in error.message
    assert "'i32'" in error.message


# ------------------------------------------------------------------------------------------------------------ optimizer


@pytest.mark.parametrize("given", [0, "", [], ["learning_rate"]])
def test_refuses_optimizer_inputs_that_are_no_mapping(given: Any) -> None:
    error = refused(optimizer_inputs=given)
    assert error.category == "invalid_update_signature"
    assert "optimizer_inputs" in error.message


def test_refuses_optimizer_inputs_other_than_the_required_ones() -> None:
    error = refused(optimizer_inputs={"rate": spec()})
    assert error.category == "invalid_update_signature"
    assert "SGD" in error.message
    assert "['learning_rate']" in error.message
    assert "['rate']" in error.message


def test_refuses_an_incomplete_typespec_of_an_optimizer_input() -> None:
    error = refused(optimizer_inputs={"learning_rate": {"dtype": "f64"}})
    assert error.category == "missing_shape_metadata"
    assert "'learning_rate'" in error.message


def ascend(parameter: Tensor, gradient: Tensor) -> Tensor:
    return parameter + gradient


@pytest.mark.parametrize("optimizer", [None, 3, "sgd", min, SGD, ascend])
def test_refuses_an_optimizer_with_another_signature(optimizer: Any) -> None:
    error = refused(optimizer=optimizer)
    assert error.category == "invalid_update_signature"
    assert getattr(optimizer, "__qualname__", repr(optimizer)) in error.message


def test_no_optimizer_inputs_are_none() -> None:
    assert compiled(optimizer=ascend, optimizer_inputs=None).provenance.optimizer_input_names == ()


# ----------------------------------------------------------------------------------------------------------------- loss


def positional(x: Tensor, y: Tensor, w: Tensor, /) -> NoReturn:
    raise AssertionError("the loss ran")


def another(x: Tensor, y: Tensor, weights: Tensor) -> NoReturn:
    raise AssertionError("the loss ran")


def greedy(x: Tensor, y: Tensor, w: Tensor, z: Tensor) -> NoReturn:
    raise AssertionError("the loss ran")


class Fewer:
    def __call__(self, x: Tensor, y: Tensor) -> NoReturn:
        raise AssertionError("the loss ran")


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (None, "None"),
        (3, "3"),
        ("mse", "'mse'"),
        (min, "min"),
        (positional, "positional"),
        (another, "another"),
        (greedy, "greedy"),
        (Fewer(), "Fewer"),
        (partial(mse, OBJECT), "partial"),
    ],
)
def test_refuses_a_loss_that_does_not_take_the_inputs(loss: Any, name: str) -> None:
    error = refused(loss=loss)
    assert error.category == "invalid_loss_signature"
    assert name in error.message


def test_says_which_inputs_the_loss_must_take() -> None:
    assert "['x', 'y', 'w']" in refused(loss=greedy).message


def anything(**tensors: Tensor) -> Tensor:
    return mse(**tensors)


class Loss:
    def __call__(self, *, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return mse(x, y, w)

    @classmethod
    def of(cls, w: Tensor, **data: Tensor) -> Tensor:
        return mse(w=w, **data)


@pytest.mark.parametrize("loss", [Loss(), Loss.of, partial(mse), anything])
def test_takes_any_callable_of_these_keywords(loss: Any) -> None:
    assert compiled(loss=loss).source_forward_graph == compiled().source_forward_graph


# ----------------------------------------------------------------------------------------------------------- expansions


@pytest.mark.parametrize("kind", ["forward", "derivative", "update"])
@pytest.mark.parametrize("passes", [None, 3, "pass", {"pass"}, iter([])])
def test_refuses_expansions_that_are_no_sequence(kind: str, passes: Any) -> None:
    error = refused(**{f"{kind}_expansions": passes})
    assert error.category == "expansion_contract_violation"
    assert f"{kind}_expansions must be a sequence" in error.message
    assert repr(passes) in error.message


@pytest.mark.parametrize("kind", ["forward", "derivative", "update"])
def test_refuses_an_expansion_pass_that_cannot_be_called(kind: str) -> None:
    error = refused(**{f"{kind}_expansions": [abs, 3]})
    assert error.category == "expansion_contract_violation"
    assert f"expansion pass 'int' at position 1 of the {kind} expansion sequence" in error.message
    assert "3" in error.message


# ---------------------------------------------------------------------------------------------------------------- order


#: One fault a check, in the order of the checks: how to plant it, its category, and what the message says.
FAULTS: list[tuple[Callable[[dict[str, Any]], Any], str, str]] = [
    (lambda given: given["inputs"].update({"a b": spec()}), "invalid_training_declaration", "'a b'"),
    (lambda given: given.update(parameters=["w", "w"]), "invalid_training_declaration", "'w' is named twice"),
    (lambda given: given.update(seed_label=""), "invalid_training_declaration", "seed_label"),
    (lambda given: given["inputs"].update(y={"shape": [4, 1]}), "missing_dtype_metadata", "'y'"),
    (lambda given: given["optimizer_inputs"].update({"class": None}), "invalid_update_signature", "'class'"),
    (lambda given: given["optimizer_inputs"].update(learning_rate={}), "missing_dtype_metadata", "'learning_rate'"),
    (lambda given: given.update(optimizer=ascend), "invalid_update_signature", "ascend"),
    (lambda given: given.update(loss=another), "invalid_loss_signature", "another"),
    (lambda given: given.update(update_expansions=3), "expansion_contract_violation", "update_expansions"),
    (lambda given: given["inputs"].update(x=spec(4, 3, dtype="i8")), "dtype_not_differentiable", "'i8'"),
]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_check_is_the_one_that_speaks(first: int) -> None:
    given = declaration(loss=never)
    for plant, _, _ in FAULTS[first:]:
        plant(given)
    _, category, saying = FAULTS[first]
    with pytest.raises(AutodiffError) as caught:
        compile_training_step(**given)
    assert caught.value.category == category
    assert saying in caught.value.message


def test_handlers_are_judged_after_the_loss_ran() -> None:
    with pytest.raises(AssertionError, match="the loss ran"):
        compiled(loss=never, handlers=None)
    error = failure(handlers=None)
    assert error.category == "handler_contract_violation"
    assert "OperationHandlerRegistry" in error.message
