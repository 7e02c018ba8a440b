"""What limits refuse, in which words, and which limits are none."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from targeting import form, outcome, raised_by
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion.target import Form, Limits
from tinychain.autodiff.operators import (
    AddOperator,
    DivOperator,
    ExpOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SumOperator,
)

PAIR = form(MulOperator, "f64 4 3", "f64 4 3")


@pytest.mark.parametrize(
    "form_",
    [
        PAIR,
        form(MulOperator, "f32 N 3", "f32 3"),
        form(DivOperator, "f64", right_literal=2.0),
        form(MatmulOperator, "f64 5 2 3", "f64 3 4"),
        form(FillOperator, fill=0.5, dtype="f32", shape=[10**9]),
        form(SumOperator, "f64 4 3", axes=[0], keepdims=False),
    ],
    ids=str,
)
def test_no_limits_take_everything(form_: Form) -> None:
    assert Limits().refusal(form_) is None


REFUSALS: list[tuple[Limits, Form, str]] = [
    (Limits(dtypes=("f32",)), PAIR, "takes f32 only, not f64[4, 3]"),
    (Limits(max_rank=1), PAIR, "takes ranks 0 to 1 only, not f64[4, 3]"),
    (Limits(min_rank=3), PAIR, "takes rank 3 and above only, not f64[4, 3]"),
    (Limits(min_rank=1, max_rank=1), PAIR, "takes rank 1 only, not f64[4, 3]"),
    (Limits(min_rank=1), form(ReshapeOperator, "f64 1", shape=[]), "takes rank 1 and above only, not f64[]"),
    (Limits(max_rank=1), form(ReshapeOperator, "f64 4", shape=[2, 2]), "takes ranks 0 to 1 only, not f64[2, 2]"),
    (Limits(broadcasts=False), form(AddOperator, "f64 4 3", "f64 3"), "does not broadcast f64[4, 3] and f64[3]"),
    (Limits(broadcasts=False), form(AddOperator, "f64 4 3", "f64 1 3"), "does not broadcast f64[4, 3] and f64[1, 3]"),
    (Limits(broadcasts=False), form(MulOperator, "f64 N", "f64 1"), "does not broadcast f64[N] and f64[1]"),
    (
        Limits(broadcasts=False),
        form(MatmulOperator, "f64 5 2 3", "f64 3 4"),
        "does not broadcast f64[5, 2, 3] and f64[3, 4]",
    ),
    (Limits(literals=False), form(MulOperator, "f64 2", right_literal=2), "takes no literal"),
    (Limits(right="constant"), PAIR, "takes a constant as the right operand only"),
    (
        Limits(right="constant"),
        form(MulOperator, "f64 2", "f64 2", constants=(0,)),
        "takes a constant as the right operand only",
    ),
    (
        Limits(right="literal"),
        form(MulOperator, "f64 2", "f64 2", constants=(1,)),
        "takes a literal as the right operand only",
    ),
    (
        Limits(fills=(1.0, 0.0)),
        form(FillOperator, fill=2, dtype="f64", shape=[3]),
        "fills with 1.0, 0.0 only, not with 2",
    ),
    (
        Limits(fills=(0.0, 1)),
        form(FillOperator, fill=-0.0, dtype="f64", shape=[3]),
        "fills with 0.0, 1 only, not with -0.0",
    ),
    (Limits(symbols=False), form(ExpOperator, "f64 2 N"), "takes dims of known size only, not f64[2, N]"),
    (Limits(max_dim=9), form(ExpOperator, "f64 2 N"), "takes dims of known size only, not f64[2, N]"),
    (Limits(max_elements=9), form(ExpOperator, "f64 2 N"), "takes dims of known size only, not f64[2, N]"),
    (Limits(max_dim=3), PAIR, "takes dims of at most 3, not f64[4, 3]"),
    (Limits(max_elements=11), PAIR, "takes at most 11 elements, not f64[4, 3]"),
    (Limits(max_elements=7), form(MatmulOperator, "f64 4 1", "f64 1 3"), "takes at most 7 elements, not f64[4, 3]"),
]


@pytest.mark.parametrize(("limits", "form_", "reason"), REFUSALS, ids=[reason for _, _, reason in REFUSALS])
def test_a_refusal_says_what_is_taken_and_what_came(limits: Limits, form_: Form, reason: str) -> None:
    assert limits.refusal(form_) == reason


@pytest.mark.parametrize(
    ("limits", "form_"),
    [
        (Limits(min_rank=2, max_rank=2), PAIR),
        (Limits(broadcasts=False), form(AddOperator, "f64 N 3", "f64 N 3")),
        (Limits(broadcasts=False), form(MulOperator, "f64 4 3", right_literal=0.5)),
        (Limits(broadcasts=False), form(MatmulOperator, "f64 2 4 3", "f64 2 3 5")),
        (Limits(broadcasts=False), form(ReshapeOperator, "f64 4", shape=[2, 2])),
        (Limits(right="constant"), form(MulOperator, "f64 2", "f64 2", constants=(1,))),
        (Limits(right="constant"), form(MulOperator, "f64 2", right_literal=3.0)),
        (Limits(right="literal"), form(MulOperator, "f64 2", right_literal=3.0)),
        (Limits(literals=False), PAIR),
        (Limits(fills=(1, 0)), form(FillOperator, fill=1.0, dtype="f64", shape=[3])),
        (Limits(fills=(-0.0,)), form(FillOperator, fill=-0.0, dtype="f64", shape=[3])),
        (Limits(max_dim=4, max_elements=12), PAIR),
        (Limits(max_dim=1, max_elements=1), form(ExpOperator, "f64")),
        (Limits(max_elements=1), form(ExpOperator, "f64 0 9")),
    ],
)
def test_what_just_fits_is_taken(limits: Limits, form_: Form) -> None:
    assert limits.refusal(form_) is None


# ------------------------------------------------------------------------------------------------- limits that are none

WRONG: list[tuple[str, Any, str]] = [
    ("dtypes", (), "one or more of f32, f64, got ()"),
    ("dtypes", ("f64", "i8"), "one or more of f32, f64, got ('f64', 'i8')"),
    ("dtypes", ["f64"], "one or more of f32, f64, got ['f64']"),
    ("dtypes", "f64", "one or more of f32, f64, got 'f64'"),
    ("dtypes", (np.zeros(2),), "one or more of f32, f64"),
    ("min_rank", -1, "an int of at least 0, got -1"),
    ("secret_levels", 16**5000, "an int below 2**63"),
    ("flop_cost", -1.0, "a finite number of at least 0, got -1.0"),
    ("flop_cost", float("nan"), "a finite number of at least 0, got nan"),
    ("node_cost", float("inf"), "a finite number of at least 0, got inf"),
    ("node_cost", "1", "a finite number of at least 0, got '1'"),
    ("node_cost", True, "a finite number of at least 0, got True"),
    ("min_rank", None, "an int of at least 0, got None"),
    ("min_rank", True, "an int of at least 0, got True"),
    ("max_rank", 2.0, "an int of at least 0, got 2.0"),
    ("max_rank", -1, "an int of at least 0, got -1"),
    ("max_dim", 0, "an int of at least 1, got 0"),
    ("max_dim", "8", "an int of at least 1, got '8'"),
    ("max_elements", 0, "an int of at least 1, got 0"),
    ("broadcasts", 1, "a bool, got 1"),
    ("literals", None, "a bool, got None"),
    ("symbols", "no", "a bool, got 'no'"),
    ("right", "left", "one of any, constant, literal, got 'left'"),
    ("right", np.zeros(2), "one of any, constant, literal"),
    ("fills", (), "one or more numbers"),
    ("fills", [1.0], "one or more numbers"),
    ("fills", (True,), "one or more numbers"),
    ("fills", ("1",), "one or more numbers"),
    ("fills", (float("nan"),), "one or more numbers"),
    ("fills", (10**400,), "one or more numbers"),
]


@pytest.mark.parametrize(("name", "value", "part"), WRONG, ids=[f"{name} {part}" for name, _, part in WRONG])
def test_a_wrong_value_is_refused_under_its_name(name: str, value: Any, part: str) -> None:
    error = raised_by(Limits, **{name: value})
    assert error.category == "invalid_target"
    assert error.message.startswith(f"{name}: expected {part}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_rank": 3, "max_rank": 2}, "max_rank: expected an int of at least 3, got 2"),
        (
            {"right": "literal", "literals": False},
            "right: expected any or constant, as literals is false, got 'literal'",
        ),
    ],
)
def test_limits_that_contradict_each_other_are_refused(values: dict[str, Any], message: str) -> None:
    error = raised_by(Limits, **values)
    assert (error.category, error.message) == ("invalid_target", message)


def test_an_int_that_cannot_be_printed_is_refused_all_the_same() -> None:
    for name in ("min_rank", "max_rank", "max_dim", "max_elements", "plain_levels"):
        error = raised_by(Limits, **{name: 10**5000})
        assert (error.category, error.message[: len(name)]) == ("invalid_target", name)


def test_integers_of_numpy_become_plain_ones() -> None:
    limits = Limits(max_rank=np.int64(2))  # type: ignore[arg-type]
    assert json.loads(json.dumps(limits.to_dict()))["max_rank"] == 2


_values = (
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["any", "constant", "literal", ("f32",), ("f32", "f64")])
    | st.lists(st.integers() | st.floats(), max_size=2).map(tuple)
)
_names = st.sampled_from(list(Limits.__dataclass_fields__))


@given(st.dictionaries(_names, _values, max_size=5))
def test_any_values_make_limits_or_an_invalid_target(values: dict[str, Any]) -> None:
    limits = outcome(Limits, **values)
    if isinstance(limits, AutodiffError):
        assert limits.category == "invalid_target"
        return
    for form_ in (
        PAIR,
        form(MulOperator, "f32 N", right_literal=1.0),
        form(FillOperator, fill=1, dtype="f32", shape=[]),
    ):
        reason = limits.refusal(form_)
        assert reason is None or reason.startswith(("takes ", "does not ", "fills with "))
