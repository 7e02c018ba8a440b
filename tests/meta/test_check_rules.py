"""Wrong rules: what the checks of `rules` must find."""

from __future__ import annotations

import pytest

from rules import Applied, apply, check
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Decline, ExpansionRule, TensorNodeRecord
from tinychain.autodiff.operators import FillOperator, MatmulOperator, MeanOperator, MulOperator, SumOperator


def applied(rule: ExpansionRule) -> Applied:
    """A rule on the sum of a square matrix over its rows."""
    answer = apply(rule, SumOperator, [3, 3], axes=[1], keepdims=True)
    assert isinstance(answer, Applied)
    return answer


def row_sums(emit: Emitter, node: TensorNodeRecord, *, fill: float = 1.0, into: str | None = "result") -> None:
    ones = emit(FillOperator, fill=fill, dtype="f64", shape=[3, 1])
    emit(MatmulOperator, node.input_value_ids[0], ones, into=into)


def test_a_right_rule_passes() -> None:
    check(applied(row_sums))


def test_finds_a_factor() -> None:
    with pytest.raises(AutodiffError, match="not_equivalent"):
        check(applied(lambda emit, node: row_sums(emit, node, fill=1.0005)))


def test_finds_a_swapped_axis() -> None:
    def columns(emit: Emitter, node: TensorNodeRecord) -> None:
        ones = emit(FillOperator, fill=1.0, dtype="f64", shape=[1, 3])
        emit(MatmulOperator, ones, node.input_value_ids[0], into="result")

    with pytest.raises(AssertionError):
        check(applied(columns))


def test_finds_a_level_that_does_not_fall() -> None:
    def longer_way(emit: Emitter, node: TensorNodeRecord) -> None:
        mean = emit(MeanOperator, node.input_value_ids[0], **node.op_params)
        emit(MulOperator, mean, right_literal=3.0, into="result")

    with pytest.raises(AssertionError, match="MeanOperator has the level"):
        check(applied(longer_way))


def test_finds_a_region_that_does_not_end_in_the_value() -> None:
    with pytest.raises(AssertionError):
        check(applied(lambda emit, node: row_sums(emit, node, into=None)))


def test_finds_what_is_emitted_before_a_decline() -> None:
    def late(emit: Emitter, node: TensorNodeRecord) -> Decline:
        row_sums(emit, node)
        return Decline("too late")

    with pytest.raises(AssertionError):
        apply(late, SumOperator, [3, 3], axes=[1], keepdims=True)
