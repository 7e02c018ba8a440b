"""Errors in units in the last place, at points where they show."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import FillOperator
from tinychain.autodiff.types import Symbols, TensorType
from tinychain.autodiff.verify import POINTS, NumericCheck
from verifying import Function, applied, verified


def numeric(before: Function, after: Function, *shapes: list[int | str], **options: Any) -> NumericCheck:
    result = verified(before, after, *shapes, **{"points": POINTS, **options})
    assert result.numeric is not None
    return result.numeric


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_same_operations_have_no_error(dtype: str) -> None:
    check = numeric(lambda x, y: (x @ y).exp() / y, lambda x, y: (x @ y).exp() / y, [3, 3], [3, 3], dtype=dtype)
    assert check.points == POINTS
    assert check.ulps == {"v4": dict.fromkeys(POINTS, 0.0)}


@pytest.mark.parametrize(("dtype", "epsilon"), [("f32", 2.0**-23), ("f64", 2.0**-52)])
def test_an_error_is_counted_in_units_in_the_last_place_of_the_dtype(dtype: str, epsilon: float) -> None:
    check = numeric(lambda x: x * 1.0, lambda x: x * (1 + 3 * epsilon), [3], dtype=dtype, points=["ones"])
    assert check.ulps == {"v1": {"ones": 3.0}}


def test_reordering_a_sum_shows_where_it_cancels() -> None:
    check = numeric(lambda x: x.sum(), lambda x: x.sum([0]).sum(), [40, 25])
    (errors,) = check.ulps.values()
    assert errors["zeros"] == errors["ones"] == 0.0
    assert errors["normal"] > 0.0
    assert errors["cancelling"] > 0.0
    assert check.worst_ulps == {"v1": max(errors.values())}


def test_an_identity_of_algebra_that_cancels_is_far_off_in_floats() -> None:
    result = verified(lambda x: (x + 1.0) - 1.0, lambda x: x * 1.0, [3], points=POINTS)
    assert result.equivalent
    assert result.numeric is not None
    assert result.numeric.ulps["v2"]["tiny"] > 1e15


def test_an_overflow_in_only_one_is_infinitely_far_off() -> None:
    check = numeric(lambda x: x * x * x * x * x / (x * x * x * x), lambda x: x * 1.0, [3], points=["ones", "huge"])
    (errors,) = check.ulps.values()
    assert errors == {"ones": 0.0, "huge": inf}


def test_an_overflow_in_both_is_equal() -> None:
    check = numeric(lambda x: x.exp() * 2.0, lambda x: x.exp() + x.exp(), [3], points=["huge"])
    assert check.worst_ulps == {"v2": 0.0}


def test_nan_in_both_is_equal() -> None:
    check = numeric(lambda x: x / x, lambda x: x / x, [3], points=["zeros"])
    assert check.worst_ulps == {"v1": 0.0}


def test_symbolic_dims_have_the_sizes_of_the_exact_check() -> None:
    result = verified(
        lambda x: x.broadcast_to(["M", "N"]) * 2.0, lambda x: (x + x).broadcast_to(["M", "N"]), ["N"], points=POINTS
    )
    assert result.equivalent
    assert result.exact.sizes == {"N": 2, "M": 3}


def test_a_mean_of_nothing_warns_of_nothing() -> None:
    check = numeric(lambda x: x.mean([0]), lambda x: (x * 1.0).mean([0]), [0, 2])
    assert check.worst_ulps == {"v1": 0.0}


def test_errors_are_only_reported() -> None:
    result = verified(lambda x: x + 1e-9 - 1e-9, lambda x: x * 1.0, [3], points=POINTS)
    assert result.equivalent


def test_a_limit_is_kept() -> None:
    options: dict[str, Any] = {"points": ["normal"], "max_ulps": 4.0}
    assert verified(lambda x: x.sum(), lambda x: x.sum([0]).sum(), [3, 3], **options).equivalent
    result = verified(lambda x: x + 1e9 - 1e9, lambda x: x * 1.0, [3], **options)
    assert not result.equivalent
    assert result.difference is None
    with pytest.raises(AutodiffError) as caught:
        result.check()
    assert caught.value.category == "not_equivalent"
    assert "more than 4 ulp" in caught.value.message
    assert "v2: at most" in caught.value.message


class Unknown(TensorOperator):
    """An operator without a reference meaning."""

    route_name = "unknown"

    def result_type(self, symbols: Symbols, x: TensorType) -> TensorType:
        return x


def test_an_operator_without_a_meaning_can_only_be_checked_exactly() -> None:
    def unknown(x: object) -> object:
        return applied(Unknown, x)  # type: ignore[arg-type]

    assert verified(unknown, unknown, [3]).equivalent
    with pytest.raises(AutodiffError, match="Unknown") as caught:
        verified(unknown, unknown, [3], points=["ones"])
    assert caught.value.category == "unsupported_operator"


class Failing(Unknown):
    """An operator whose reference raises."""

    def reference(self, xp: object, x: object) -> object:
        raise ValueError("no such luck")


def test_a_reference_that_raises_is_named() -> None:
    def failing(x: object) -> object:
        return applied(Failing, x)  # type: ignore[arg-type]

    with pytest.raises(
        AutodiffError, match=r"node 'n0' \(Failing\) cannot be computed: ValueError: no such luck"
    ) as caught:
        verified(failing, failing, [3], points=["ones"])
    assert caught.value.category == "invalid_verification"


def test_a_fill_is_an_output_like_any_other() -> None:
    check = numeric(
        lambda x: (x, applied(FillOperator, fill=0.1, dtype="f64", shape=[2])),
        lambda x: (x, applied(FillOperator, fill=float(np.nextafter(0.1, 1)), dtype="f64", shape=[2])),
        [3],
        points=["ones"],
    )
    assert check.worst_ulps == {"v0": 0.0, "v1": 1.0}
