"""The error model: a closed list of categories, and an exception that is a frozen record and still can be raised."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from contextlib import contextmanager
from typing import Any

import pytest

from tinychain.autodiff.errors import AUTODIFF_ERROR_CATEGORIES, AutodiffError, quote

CATEGORIES_IN_ORDER = """
    unsupported_operator missing_derivative_behavior missing_derivative_ir non_differentiable_route
    missing_shape_metadata missing_dtype_metadata dtype_not_differentiable shape_mismatch unresolved_symbolic_shape
    symbolic_shape_mismatch broadcast_shape_mismatch matmul_shape_mismatch invalid_permutation reduction_shape_mismatch
    unsupported_reduction seed_shape_mismatch malformed_derivative_ir side_effecting_route_unsupported
    autodiff_not_implemented dtype_mismatch missing_dependency ambiguous_producer invalid_selected_output
    handler_contract_violation invalid_update_signature invalid_update_output invalid_training_declaration
    invalid_loss_signature invalid_loss_output expansion_contract_violation
""".split()

ERROR = AutodiffError("shape_mismatch", "two and three")


def test_the_first_thirty_categories_never_change() -> None:
    assert isinstance(AUTODIFF_ERROR_CATEGORIES, tuple)
    assert list(AUTODIFF_ERROR_CATEGORIES[:30]) == CATEGORIES_IN_ORDER
    assert len(set(AUTODIFF_ERROR_CATEGORIES)) == len(AUTODIFF_ERROR_CATEGORIES)


@pytest.mark.parametrize("category", AUTODIFF_ERROR_CATEGORIES)
def test_every_category_can_be_raised_and_read(category: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        raise AutodiffError(category, "why")
    assert (caught.value.category, caught.value.message) == (category, "why")
    assert str(caught.value) == f"{category}: why"


@pytest.mark.parametrize("category", ["nope", "", "Shape_mismatch", None, 8, ["shape_mismatch"], b"shape_mismatch"])
def test_an_unknown_category_is_a_value_error_that_shows_it(category: Any) -> None:
    with pytest.raises(ValueError, match="unknown autodiff error category") as caught:
        AutodiffError(category, "why")
    assert repr(category) in str(caught.value)


def test_it_is_an_exception_and_a_dataclass() -> None:
    assert isinstance(ERROR, Exception)
    assert [field.name for field in dataclasses.fields(ERROR)] == ["category", "message"]
    assert dataclasses.replace(ERROR, message="other") == AutodiffError("shape_mismatch", "other")


def test_equality_and_hash_are_by_fields() -> None:
    assert AutodiffError("shape_mismatch", "two and three") == ERROR
    assert hash(AutodiffError("shape_mismatch", "two and three")) == hash(ERROR)
    assert AutodiffError("shape_mismatch", "other") != ERROR
    assert AutodiffError("dtype_mismatch", "two and three") != ERROR


@pytest.mark.parametrize("name", ["category", "message", "args", "anything"])
def test_it_is_frozen(name: str) -> None:
    error = AutodiffError("shape_mismatch", "two and three")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(error, name, "changed")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(error, name)
    assert error == ERROR


def test_the_interpreter_can_chain_it() -> None:
    cause = KeyError("cause")
    with pytest.raises(AutodiffError) as caught:
        raise AutodiffError("shape_mismatch", "two and three") from cause
    assert caught.value.__cause__ is cause
    assert caught.value.__suppress_context__
    assert caught.value.__traceback__ is not None


def test_the_interpreter_can_give_it_a_context() -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError:
            raise AutodiffError("shape_mismatch", "second")  # noqa: B904 - the implicit context is the point

    with pytest.raises(AutodiffError) as caught:
        fail()
    assert isinstance(caught.value.__context__, KeyError)


@pytest.mark.parametrize("name", ["__traceback__", "__cause__", "__context__", "__suppress_context__", "__notes__"])
def test_what_the_interpreter_owns_is_assignable(name: str) -> None:
    error = AutodiffError("shape_mismatch", "two and three")
    value = {"__notes__": ["note"], "__suppress_context__": True}.get(name)
    setattr(error, name, value)
    assert getattr(error, name) == value


def test_it_takes_notes_and_they_can_be_dropped() -> None:
    error = AutodiffError("shape_mismatch", "two and three")
    error.add_note("seen in layer 3")
    assert error.__notes__ == ["seen in layer 3"]
    assert error == ERROR
    del error.__notes__
    assert not hasattr(error, "__notes__")


def test_it_passes_through_a_context_manager() -> None:
    @contextmanager
    def manager() -> Any:
        yield

    with pytest.raises(AutodiffError) as caught, manager():
        raise ERROR
    assert caught.value is ERROR


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_is_equal_and_raises_alike(clone: Any) -> None:
    copied = clone(ERROR)
    assert copied == ERROR
    assert type(copied) is AutodiffError
    assert (str(copied), copied.args) == (str(ERROR), ERROR.args)


def test_to_dict_is_json_and_from_dict_its_inverse() -> None:
    data = ERROR.to_dict()
    assert data == {"category": "shape_mismatch", "message": "two and three"}
    assert AutodiffError.from_dict(json.loads(json.dumps(data))) == ERROR


@pytest.mark.parametrize("data", [{}, {"category": "shape_mismatch"}, {**ERROR.to_dict(), "more": 1}])
def test_from_dict_names_the_keys_that_it_takes(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="category and message"):
        AutodiffError.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "category", 3])
def test_from_dict_of_no_mapping_is_a_type_error(data: Any) -> None:
    with pytest.raises(TypeError, match="takes a mapping"):
        AutodiffError.from_dict(data)


def test_from_dict_of_an_unknown_category_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="unknown autodiff error category 'nope'"):
        AutodiffError.from_dict({"category": "nope", "message": ""})


def test_quote_keeps_short_values_whole() -> None:
    assert quote("v0") == "'v0'"
    assert quote([1, "N"]) == "[1, 'N']"


def test_quote_cuts_a_long_value_and_says_how_long_it_is() -> None:
    text = quote("v" * 1_000_000)
    assert len(text) < 200
    assert text.startswith("'vvv")
    assert "(1000002 characters)" in text


class _Unprintable:
    def __repr__(self) -> str:
        raise KeyError("no repr")


@pytest.mark.parametrize("value", [_Unprintable(), [_Unprintable()], pytest.param(10**5000, id="too many digits")])
def test_quote_of_a_value_without_repr_names_its_type(value: object) -> None:
    assert type(value).__name__ in quote(value)
