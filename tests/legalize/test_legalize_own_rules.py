"""Rules of a caller's own: what they may do, how far they lead, and operators that bring rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from by_hand import graph, producing
from legalizing import RANK2, broken, legal, names, only, refusal
from strategies import OwnOperator
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import legalize, legalize_detailed
from tinychain.autodiff.graph import Decline, TensorGraph, TensorNodeRecord, TensorOperator, expansion
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    MaximumOperator,
    MulOperator,
    ReshapeOperator,
    SqrtOperator,
    SumOperator,
)
from tinychain.autodiff.types import Symbols, TensorType
from verifying import traced

SPEC = {"dtype": "f64", "shape": [2, 2]}
ROOT = traced(lambda x: x.sqrt(), [2, 2])

Rule = Callable[[Emitter, Any], Any]


def line(emit: Emitter, node: TensorNodeRecord) -> None:
    """The square root near 1."""
    half = emit(MulOperator, node.input_value_ids[0], right_literal=0.5)
    ones = emit(SumOperator, emit(BroadcastOperator, half, shape=[1, *emit.shape(half)]), axes=[0], keepdims=False)
    emit(AddOperator, ones, half, into=node.output_value_id)


def test_a_rule_may_emit_what_the_machine_lacks_if_that_can_be_rewritten() -> None:
    result = legalize_detailed(ROOT, RANK2, rules={SqrtOperator: [line]})
    assert result.regions[0].rules[0] == "line"
    assert set(names(result.artifact)) <= {"fill", "mul", "add", "matmul", "reshape"}


def test_a_rule_that_emits_what_nobody_can_rewrite_does_not_help() -> None:
    def by_maximum(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(MaximumOperator, *node.input_value_ids, right_literal=0.0, into=node.output_value_id)

    message = refusal(traced(lambda x: x.sum(), [2, 2]), only(), rules={})
    assert "chip has no SumOperator" in message
    with pytest.raises(AutodiffError, match="of level 22 for"):
        legalize(ROOT, RANK2, rules={SqrtOperator: [by_maximum]})


def test_a_rule_is_asked_for_what_another_one_emits() -> None:
    class HalfOperator(OwnOperator):
        def result_type(self, symbols: Symbols, *operands: Any, **op_params: Any) -> TensorType:
            return TensorType(*operands[0])

    def outer(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(HalfOperator, *node.input_value_ids, into=node.output_value_id)

    message = refusal(ROOT, RANK2, rules={SqrtOperator: [outer]})
    assert "HalfOperator: there is no rule for it" in message


def test_a_rule_does_not_touch_what_the_machine_has() -> None:
    legal(lambda x: x * x, [2, 2], rules={MulOperator: [line]})


def test_a_rule_of_a_base_class_is_not_asked_for_a_subclass() -> None:
    assert "OwnOperator: there is no rule for it" in refusal(
        graph(producing("z", OwnOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"]),
        RANK2,
        rules={TensorOperator: [line]},
    )


def test_a_rule_for_an_operator_of_the_users_own() -> None:
    own = graph(producing("z", OwnOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])

    def copy(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(ReshapeOperator, node.input_value_ids[0], shape=[2, 2], into=node.output_value_id)

    message = broken(own, RANK2, {OwnOperator: [copy]})
    assert "of level 0 for OwnOperator(f64[2, 2]) -> f64[2, 2] of level 0" in message
    assert "see expansion_level" in message


class DoubleOperator(TensorOperator):
    """An operator with a rule and a level of its own."""

    route_name = "double"

    def result_type(self, symbols: Symbols, x: TensorType) -> TensorType:
        return x

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return 30

    @expansion
    def as_sum(self, emit: Emitter, node: TensorNodeRecord) -> Decline | None:
        """x + x."""
        (x,) = node.input_value_ids
        emit(AddOperator, x, x, into=node.output_value_id)
        return None


def one(operator: TensorOperator) -> TensorGraph:
    return graph(producing("z", operator, "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])


def test_an_operator_of_the_users_own_brings_its_rule() -> None:
    result = legalize_detailed(one(DoubleOperator()), RANK2)
    assert names(result.artifact) == ["add"]
    assert result.regions[0].rules == ("DoubleOperator.as_sum",)


def test_a_rule_that_leads_down_too_many_levels() -> None:
    class DeepOperator(DoubleOperator):
        params = ("depth",)

        def result_type(self, symbols: Symbols, x: TensorType, *, depth: int = 0) -> TensorType:
            return x

        def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
            return 100 + int(op_params["depth"])

        @expansion
        def as_sum(self, emit: Emitter, node: TensorNodeRecord) -> Decline | None:
            depth = node.op_params["depth"]
            emit(DeepOperator, *node.input_value_ids, depth=depth - 1, into=node.output_value_id)
            return None

    deep = graph(producing("z", DeepOperator(), "x", typespec=SPEC, depth=10**6), inputs=[("x", SPEC)], outputs=["z"])
    with pytest.raises(AutodiffError) as caught:
        legalize(deep, RANK2)
    assert caught.value.category == "expansion_contract_violation"
    assert "DeepOperator" in caught.value.message


def test_a_rule_that_grows_without_bound_does_not_help() -> None:
    class TreeOperator(DoubleOperator):
        params = ("depth",)

        def result_type(self, symbols: Symbols, x: TensorType, *, depth: int = 0) -> TensorType:
            return x

        def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
            return 100 + int(op_params["depth"])

        @expansion
        def as_sum(self, emit: Emitter, node: TensorNodeRecord) -> Decline | None:
            (x,), depth = node.input_value_ids, node.op_params["depth"]
            if depth:
                x, y = [emit(TreeOperator, x, depth=depth - 1) for _ in range(2)]
            else:
                y = x
            emit(AddOperator, x, y, into=node.output_value_id)
            return None

    tree = graph(producing("z", TreeOperator(), "x", typespec=SPEC, depth=40), inputs=[("x", SPEC)], outputs=["z"])
    message = refusal(tree, RANK2)
    assert "it takes more than 131072 operations" in message
    assert len(message) < 4000


class Level(DoubleOperator):
    given: Any = None

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("given", "said"), [(None, "returned None"), (1.5, "returned 1.5"), (KeyError("k"), "raised KeyError")]
)
def test_a_level_that_is_none(given: Any, said: str) -> None:
    own = type("LevelOperator", (Level,), {"given": given})
    assert f"expansion_level of LevelOperator {said}" in broken(one(own()), RANK2, None)


@pytest.mark.parametrize(
    ("flops", "said"),
    [
        (lambda self, *types, **params: "many", "returned 'many'"),
        (lambda self, *types, **params: -1, "returned -1"),
        (lambda self, *types, **params: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_flops_that_are_none(flops: Callable[..., Any], said: str) -> None:
    own = type("FlopsOperator", (OwnOperator,), {"flops": flops})
    message = broken(one(own()), only(own), None)
    assert f"flops of FlopsOperator {said}" in message
    assert "for FlopsOperator(f64[2, 2]) -> f64[2, 2]" in message


# ----------------------------------------------------------------------------------------------------------- the option


@pytest.mark.parametrize("rules", [3, "rules", [line], 0, "", ()])
def test_refuses_rules_that_are_no_mapping(rules: Any) -> None:
    assert broken(ROOT, RANK2, rules).startswith("rules must map operator classes to lists of callables, got ")


@pytest.mark.parametrize("key", ["SqrtOperator", SqrtOperator(), int, None])
def test_refuses_a_key_that_is_no_operator_class(key: Any) -> None:
    assert "got the key" in broken(ROOT, RANK2, {key: [line]})


@pytest.mark.parametrize("given", [line, "line", [3], [None], None])
def test_refuses_what_is_no_list_of_callables(given: Any) -> None:
    assert "for SqrtOperator" in broken(ROOT, RANK2, {SqrtOperator: given})


@pytest.mark.parametrize("rules", [None, {}, {SqrtOperator: []}, {SqrtOperator: ()}])
def test_no_rules(rules: dict[type[TensorOperator], Sequence[Rule]] | None) -> None:
    assert "a square root is no polynomial" in refusal(ROOT, RANK2, rules=rules)
