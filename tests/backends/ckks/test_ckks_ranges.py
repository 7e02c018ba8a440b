"""Bounds hold for whatever lies in the declared ranges, and are tight where the form of an operation allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckks_steps import MODELS, NOTHING, Arrays, arrays_for, evaluated, linked, program_of
from tinychain.autodiff.backends.ckks.program import Operation, Program
from tinychain.autodiff.backends.ckks.ranges import Interval, bounds
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.operators import TransposeOperator
from tinychain.autodiff.tracing import Tensor

RANGES = {"x": (-1.0, 2.0), "y": (1.0, 3.0)}


def bound(function: Callable[..., Tensor], known: Arrays = NOTHING, **shapes: tuple[int, ...]) -> Interval:
    program = program_of(function, shapes, known)
    return bounds(program, RANGES)[program.outputs["result"]]


def refusal(declared: Any, program: Program | None = None) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        bounds(linked(MODELS["logistic"]) if program is None else program, declared)
    return caught.value


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y: x + y, (0, 5)),
        (lambda x, y: x - y, (-4, 1)),
        (lambda x, y: y - x, (-1, 4)),
        (lambda x, y: x - 1.5, (-2.5, 0.5)),
        (lambda x, y: x - x, (0, 0)),
        (lambda x, y: x * y, (-3, 6)),
        (lambda x, y: x * -2.0, (-4, 2)),
        (lambda x, y: x * x, (0, 4)),
        (lambda x, y: y * y, (1, 9)),
        (lambda x, y: (y * -1.0) * (y * -1.0), (1, 9)),
        (lambda x, y: x @ y.T, (-9, 18)),
        (lambda x, y: x.T.reshape((2, 6)), (-1, 2)),
    ],
)
def test_an_operation_is_bounded_by_its_operands(function: Any, expected: tuple[float, float]) -> None:
    assert bound(function, x=(4, 3), y=(4, 3)) == expected


def test_a_square_of_one_sign_does_not_reach_zero() -> None:
    assert bound(lambda y: y * -1.0 - 0.0, y=(2,)) == (-3, -1)
    program = program_of(lambda y: [z := y * -1.0, z * z][1], {"y": (2,)})
    assert bounds(program, RANGES)[program.outputs["result"]] == (1, 9)


def test_known_elements_are_bounded_exactly() -> None:
    known = {"k": np.array([3.0, -0.5])}
    assert bound(lambda x, k: x + k, known, x=(2,)) == (-1.5, 5)


@pytest.mark.parametrize(
    ("function", "expected"),
    [(lambda x, k: x @ k, (-4, 5)), (lambda x, k: k.T @ x.T, (-4, 5)), (lambda x, k: x @ (k * 0.0), (0, 0))],
)
def test_a_product_with_known_elements_is_a_weighted_sum(function: Any, expected: tuple[float, float]) -> None:
    """The columns (1, 1), (2, -1) and (0, -2): up to 4, 5 and 2, down to -2, -4 and -4."""
    known = {"k": np.array([[1.0, 2.0, 0.0], [1.0, -1.0, -2.0]])}
    assert bound(function, known, x=(5, 2)) == expected


def test_an_interval_reaches_as_far_as_its_larger_end() -> None:
    assert Interval(-3.0, 2.0).reach == 3.0
    assert Interval(1.0, 2.0).reach == 2.0


# --------------------------------------------------------------------------------------------------------- properties

OPERATIONS: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, c: a + b,
    lambda a, b, c: a - b,
    lambda a, b, c: a * b,
    lambda a, b, c: a * a,
    lambda a, b, c: a * -0.5,
    lambda a, b, c: a - 1.25,
    lambda a, b, c: a @ (b.T @ c),
    lambda a, b, c: a.reshape((2, 3)).T,
]


@st.composite
def ranges(draw: st.DrawFn) -> tuple[float, float]:
    low, high = sorted(draw(st.tuples(*[st.floats(-3, 3, allow_subnormal=False)] * 2)))
    return low, high


@given(st.data(), ranges(), ranges(), st.integers(0, 2**32))
def test_bounds_hold_whatever_lies_in_the_ranges(
    data: st.DataObject, x: tuple[float, float], y: tuple[float, float], seed: int
) -> None:
    random = np.random.default_rng(seed)

    def function(x: Tensor, y: Tensor, k: Tensor) -> Tensor:
        found = [x, y, k]
        for _ in range(data.draw(st.integers(1, 5))):
            picked = [data.draw(st.sampled_from(found)) for _ in range(3)]
            found.append(data.draw(st.sampled_from(OPERATIONS))(*picked))
        return found[-1] + x

    program = program_of(function, {"x": (3, 2), "y": (3, 2)}, {"k": random.uniform(-2, 2, (3, 2))})
    found = bounds(program, {"x": x, "y": y})
    for _ in range(3):
        ends = {"x": random.choice(x, (3, 2)), "y": random.choice(y, (3, 2))}
        inside = {"x": random.uniform(*x, (3, 2)), "y": random.uniform(*y, (3, 2))}
        for arrays in (ends, inside):
            for interval, array in zip(found, evaluated(program, arrays), strict=True):
                slack = 1e-9 * interval.reach
                assert interval.low - slack <= array.min() <= array.max() <= interval.high + slack


@pytest.mark.parametrize("name", MODELS)
def test_whole_steps_keep_to_their_bounds(name: str) -> None:
    program = linked(MODELS[name], steps=2, loss=True, known={})
    declared = {**dict.fromkeys(program.inputs, (-1.0, 1.0)), "learning_rate": (0.0, 0.1)}
    arrays = {**arrays_for(MODELS[name]), "learning_rate": np.array(0.05)}
    for interval, array in zip(bounds(program, declared), evaluated(program, arrays), strict=True):
        assert interval.low <= array.min() <= array.max() <= interval.high


# ----------------------------------------------------------------------------------------------------------- refusals


def test_all_missing_ranges_are_named_at_once() -> None:
    error = refusal({"y": (0.0, 1.0)})
    assert error.category == "invalid_encryption_plan"
    assert "missing are ['x', 'w']" in error.message


def test_ranges_of_other_names_are_not_read() -> None:
    assert bounds(linked(MODELS["logistic"]), {**dict.fromkeys("xyw", (0, 1)), "other": (1, 0)})


@pytest.mark.parametrize(
    "range_",
    [
        (1.0, 0.0),
        (float("nan"), 1.0),
        (0.0, float("inf")),
        (0.0,),
        (0.0, 1.0, 2.0),
        ("0", "1"),
        "01",
        (False, True),
        (0, 10**400),
        (0.0, None),
        3.0,
        None,
    ],
)
def test_a_malformed_range_is_refused(range_: Any) -> None:
    error = refusal({"x": (0.0, 1.0), "y": (0.0, 1.0), "w": range_})
    assert error.category == "invalid_encryption_plan"
    assert "the range of 'w': expected two finite numbers (low, high), got" in error.message


def test_ranges_are_a_mapping() -> None:
    assert "expected a mapping from the name of an input to (low, high)" in refusal([(0.0, 1.0)]).message


@pytest.mark.parametrize(
    "function", [lambda x: (x * x) * (x * x), lambda x: x * x - x * x, lambda x, k: (x * 1e108) @ k]
)
def test_a_bound_beyond_a_float_is_refused_with_the_operation(function: Any) -> None:
    known = {"k": np.full((1, 2), 1e300)} if "k" in function.__code__.co_varnames else {}
    error = refusal({"x": (-1e200, 1e200)}, program_of(function, {"x": (3, 1)}, known))
    assert error.category == "invalid_encryption_plan"
    assert "is bounded by no number that a float can hold" in error.message
    assert error.message.startswith(("mul 'v", "matmul 'v"))


def test_an_operator_without_a_bound_is_refused() -> None:
    class Unknown(TransposeOperator):
        route_name = "unknown"

    program = program_of(lambda x: x * 2.0, {"x": (4,)})
    last = program.operations[-1]
    other = Operation(last.position, Unknown(), {}, (0,), last.type, True, None, None, "", "unknown 'v1'")
    error = refusal(RANGES, Program([program.operations[0], other], program.inputs, program.outputs))
    assert error.category == "unsupported_operator"
    assert "unknown 'v1': no bound of Unknown is known" in error.message
