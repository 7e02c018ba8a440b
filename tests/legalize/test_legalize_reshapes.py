"""Reshapes in a row: what legalization leaves of them, and that each value of the artifact stays where it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from by_hand import graph, producing
from legalizing import RANK2, check_regions, checked, legal, names, needed_values
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.expansion import Limits, Target, legalize, legalize_detailed
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import AddOperator, MulOperator, ReshapeOperator, SqrtOperator
from verifying import traced

CUBE: dict[str, Any] = {"dtype": "f64", "shape": [2, 3, 4]}


def needed(artifact: TensorGraph) -> list[str]:
    """The names of the nodes that the outputs need."""
    values = needed_values(artifact)
    return [node.operator.route_name for node in artifact.nodes if node.output_value_id in values]


def test_operations_in_a_row_are_computed_on_matrices_without_a_reshape_between() -> None:
    result = legal(lambda x: ((x * 2.0) * x) * x, [2, 3, 4])
    assert needed(result.artifact) == ["reshape", "mul", "mul", "mul", "reshape"]


def test_the_values_between_stay_for_who_captures_them() -> None:
    before = traced(lambda x: ((x * 2.0) * x) * x, [2, 3, 4])
    after = legalize(before, RANK2)
    made = {node.output_value_id: node for node in after.nodes}
    for node in before.nodes:
        assert made[node.output_value_id].output_typespec == node.output_typespec


def test_the_same_value_is_reshaped_once() -> None:
    result = legal(lambda x, y: (x * x) + (x * y), [2, 3, 4], [2, 3, 4])
    read = [node.input_value_ids for node in result.artifact.nodes if node.operator == ReshapeOperator()]
    assert [value_id for (value_id,) in read if value_id in ("v0", "v1")] == ["v0", "v1"]


def test_a_reshape_of_the_users_own_is_read_through() -> None:
    result = legal(lambda x: x.reshape([2, 3, 2]) * 2.0, [6, 2])
    assert needed(result.artifact) == ["mul", "reshape"]


def test_an_output_between_is_reshaped_too() -> None:
    before = traced(lambda x: [x * 2.0, (x * 2.0) * x], [2, 3, 4])
    result = checked(before, legalize_detailed(before, RANK2), RANK2)
    assert set(before.outputs) <= needed_values(result.artifact)


def test_a_node_that_the_machine_has_stays_as_it_is() -> None:
    before = traced(lambda x: x.reshape([12]).reshape([3, 4]), [2, 6])
    assert legalize(before, RANK2) is before
    mixed = traced(lambda x: (x.reshape([12]).reshape([3, 4]), x.sum()), [2, 6])
    assert legalize(mixed, RANK2).nodes[:2] == mixed.nodes[:2]


def test_a_symbol_may_stay_in_a_reshape_that_is_kept() -> None:
    target = Target("chip", {**RANK2.operators, ReshapeOperator: Limits()})
    before = graph(
        producing("y", ReshapeOperator(), "x", typespec={"dtype": "f64", "shape": [1, "N"]}, shape=[1, "N"]),
        producing("z", SqrtOperator(), "y", typespec={"dtype": "f64", "shape": [1, "N"]}),
        inputs=[("x", {"dtype": "f64", "shape": ["N"]})],
        outputs=["z"],
    )

    def back_and_forth(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        emit(ReshapeOperator, emit(ReshapeOperator, x, shape=["N"]), shape=[1, "N"], into=node.output_value_id)

    after = legalize(before, target, rules={SqrtOperator: [back_and_forth]})
    assert [node.input_value_ids for node in after.nodes] == [["x"], ["x"]]


def _chain(shapes: Sequence[Sequence[int]]) -> Any:
    """A rule that reshapes again and again."""

    def rule(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        for shape in shapes:
            x = emit(ReshapeOperator, x, shape=list(shape))
        emit(AddOperator, x, x, into=node.output_value_id)

    return rule


@pytest.mark.parametrize("between", [[[6, 4], [24]], [[6, 4], [24], [4, 6]], [], None])
def test_the_chain_of_one_rule_back_to_the_shape_that_was(between: list[list[int]] | None) -> None:
    target = Target("any rank", {AddOperator: Limits(), ReshapeOperator: Limits()})
    before = graph(producing("z", SqrtOperator(), "x", typespec=CUBE), inputs=[("x", CUBE)], outputs=["z"])
    shapes = [] if between is None else [*between, CUBE["shape"]]
    result = legalize_detailed(before, target, rules={SqrtOperator: [_chain(shapes)]})
    assert names(result.artifact) == ["add"]
    check_regions(before, result)


def test_the_chain_of_one_rule_to_another_shape() -> None:
    target = Target("any rank", {AddOperator: Limits(), ReshapeOperator: Limits()})
    flat = {"dtype": "f64", "shape": [24]}
    before = graph(producing("z", SqrtOperator(), "x", typespec=flat), inputs=[("x", flat)], outputs=["z"])

    def there_and_back(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        x = emit(ReshapeOperator, emit(ReshapeOperator, x, shape=[24]), shape=[4, 6])
        doubled = emit(AddOperator, x, emit(ReshapeOperator, x, shape=[4, 6]))
        emit(ReshapeOperator, emit(ReshapeOperator, doubled, shape=[2, 12]), shape=[24], into=node.output_value_id)

    assert names(legalize(before, target, rules={SqrtOperator: [there_and_back]})) == ["reshape", "add", "reshape"]


def test_what_is_left_out_costs_nothing() -> None:
    """Of two rules the one whose reshapes vanish is cheaper, though it emits more nodes."""
    target = Target("priced", {cls: Limits(node_cost=1.0) for cls in (AddOperator, MulOperator, ReshapeOperator)})

    def two_nodes(emit: Emitter, node: TensorNodeRecord) -> None:
        (x,) = node.input_value_ids
        emit(AddOperator, emit(MulOperator, x, x), x, into=node.output_value_id)

    before = graph(producing("z", SqrtOperator(), "x", typespec=CUBE), inputs=[("x", CUBE)], outputs=["z"])
    rules: Any = {SqrtOperator: [two_nodes, _chain([[24], [6, 4], [2, 3, 4]])]}
    assert names(legalize(before, target, rules=rules)) == ["add"]
