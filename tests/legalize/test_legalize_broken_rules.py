"""Rules of a caller's own that break a promise: each is named, with what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from by_hand import OBJECT
from legalizing import RANK2, broken, refusal
from strategies import OwnOperator
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import legalize
from tinychain.autodiff.graph import Decline, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    ExpOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SqrtOperator,
    SumOperator,
)
from verifying import traced

SPEC = {"dtype": "f64", "shape": [2, 2]}
ROOT = traced(lambda x: x.sqrt(), [2, 2])

Rule = Callable[[Emitter, Any], Any]


def of_root(rule: Rule) -> str:
    """The message about a rule for the square root of a matrix; it names the rule."""
    message = broken(ROOT, RANK2, {SqrtOperator: [rule]})
    assert message.startswith(f"the expansion rule {rule.__qualname__} ")
    return message


def line(emit: Emitter, node: TensorNodeRecord) -> None:
    """The square root near 1."""
    half = emit(MulOperator, node.input_value_ids[0], right_literal=0.5)
    ones = emit(SumOperator, emit(BroadcastOperator, half, shape=[1, *emit.shape(half)]), axes=[0], keepdims=False)
    emit(AddOperator, ones, half, into=node.output_value_id)


def test_a_rule_that_emits_its_own_operator_would_loop() -> None:
    def loop(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(SqrtOperator, *node.input_value_ids, into=node.output_value_id)

    assert "emitted SqrtOperator(f64[2, 2]) -> f64[2, 2] of level 19 for" in of_root(loop)


def test_two_rules_that_would_loop() -> None:
    def by_exp(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(ExpOperator, *node.input_value_ids, into=node.output_value_id)

    def by_sqrt(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(SqrtOperator, *node.input_value_ids, into=node.output_value_id)

    assert "of level" in broken(ROOT, RANK2, {SqrtOperator: [by_exp], ExpOperator: [by_sqrt]})


@pytest.mark.parametrize("junk", [3, "value", [], ("reason",), AutodiffError, Decline], ids=repr)
def test_returns_junk(junk: Any) -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> Any:
        line(emit, node)
        return junk

    assert "returned" in of_root(rule)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("x"), RecursionError(), AutodiffError("missing_dependency", "no")]
)
def test_raises(error: Exception) -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        raise error

    message = of_root(rule)
    assert f"raised {type(error).__name__}: " in message
    assert "for SqrtOperator(f64[2, 2]) -> f64[2, 2]" in message


def test_an_interrupt_passes() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        legalize(ROOT, RANK2, rules={SqrtOperator: [rule]})


def test_a_rule_that_asks_for_the_size_of_a_symbol_declines() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        raise AutodiffError("unresolved_symbolic_shape", "N is not known")

    message = refusal(traced(lambda x: x.sqrt(), ["N"]), RANK2, rules={SqrtOperator: [rule]})
    assert "rule: N is not known" in message


def test_emits_nothing() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        pass

    assert "emitted nothing" in of_root(rule)


def test_does_not_end_in_the_value_of_its_node() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(AddOperator, *node.input_value_ids, *node.input_value_ids)

    assert "did not end in the value of its node; emit the last one with into=node.output_value_id" in of_root(rule)


def test_goes_on_behind_the_value_of_its_node() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        line(emit, node)
        emit(AddOperator, node.output_value_id, node.output_value_id)

    assert "did not end in the value of its node" in of_root(rule)


def test_ends_in_another_type() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(ReshapeOperator, *node.input_value_ids, shape=[4], into=node.output_value_id)

    assert "ended in {'dtype': 'f64', 'shape': [4]}; expected f64[2, 2]" in of_root(rule)


def test_reads_a_value_that_it_neither_got_nor_made() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(AddOperator, "v0", *node.input_value_ids, into=node.output_value_id)

    assert "from a value that it neither got nor made" in of_root(rule)


def test_reads_its_own_result() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(AddOperator, node.output_value_id, node.output_value_id, into=node.output_value_id)

    assert "from a value that it neither got nor made" in of_root(rule)


def test_emits_over_an_operand() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        emit(AddOperator, x, x, into=x)
        emit(AddOperator, x, x, into=node.output_value_id)

    assert "twice, or over an operand" in of_root(rule)


def by_hand(node: TensorNodeRecord, operator: TensorOperator, *operands: str, **fields: Any) -> TensorNodeRecord:
    return TensorNodeRecord(
        **{
            "node_id": "own",
            "output_value_id": node.output_value_id,
            "operator": operator,
            "op_params": {},
            "input_value_ids": operands,
            "output_typespec": SPEC,
            **fields,
        }
    )


def test_lies_about_a_type() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        wrong = {"dtype": "f64", "shape": [2, 1]}
        emit.nodes.append(by_hand(node, AddOperator(), x, x, output_value_id="y", output_typespec=wrong))
        emit.nodes.append(by_hand(node, MatmulOperator(), x, x))

    assert "emitted 'y' as {'dtype': 'f64', 'shape': [2, 1]}; its operands give f64[2, 2]" in of_root(rule)


def test_hides_a_type() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        emit.nodes.append(by_hand(node, AddOperator(), x, x, output_typespec=None))

    assert "as None; its operands give f64[2, 2]" in of_root(rule)


def test_appends_a_node_with_a_wrong_number_of_operands() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit.nodes.append(by_hand(node, AddOperator(), *node.input_value_ids))

    assert "emitted a wrong node" in of_root(rule)


def test_appends_what_is_no_node() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit.nodes.append(OBJECT)

    assert "emitted no nodes" in of_root(rule)


def test_emits_an_operator_without_a_type_rule() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(OwnOperator, *node.input_value_ids, into=node.output_value_id)

    assert "OwnOperator has no type rule" in of_root(rule)


def test_fixes_a_symbol_that_its_node_leaves_open() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        row = emit(ReshapeOperator, x, shape=["N"])
        zero = emit(MulOperator, emit(SumOperator, row, axes=[0], keepdims=False), right_literal=0.0)
        four = emit(BroadcastOperator, row, shape=[4])
        emit(AddOperator, x, emit(AddOperator, zero, emit(SumOperator, four, axes=[0], keepdims=False)), into="result")

    message = broken(traced(lambda x: x.sqrt(), ["N"]), RANK2, {SqrtOperator: [rule]})
    assert "takes the symbol 'N' for 4, which SqrtOperator(f64[N]) -> f64[N] does not say" in message


@pytest.mark.parametrize(
    "spoil",
    [
        lambda node: node.op_params.update(right_literal=2.0),
        lambda node: node.input_value_ids.append("x"),
        lambda node: node.output_typespec["shape"].append(1),
    ],
    ids=["params", "operands", "typespec"],
)
def test_changes_the_node_that_it_is_given(spoil: Callable[[Any], None]) -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> Decline:
        spoil(node)
        return Decline("after the deed")

    text = repr(ROOT)
    assert "changed the node that it was given" in of_root(rule)
    assert repr(ROOT) == text


def test_changes_a_list_in_the_params_and_not_the_artifact() -> None:
    def rule(emit: Emitter, node: TensorNodeRecord) -> Decline:
        node.op_params["axes"].append(1)
        return Decline("after the deed")

    before = traced(lambda x: x.sum([0]), [2, 2])
    text = repr(before)
    assert "changed the node that it was given" in broken(before, RANK2, {SumOperator: [rule]})
    assert repr(before) == text
