"""What legalization does with each node: kept, rewritten, or refused; and with what no output needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from by_hand import graph, producing
from legalizing import RANK2, checked, legal, mean_square, names, only, renamed
from strategies import OwnOperator
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Limits, Target, legalize, legalize_detailed
from tinychain.autodiff.graph import ExpansionRule, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import (
    AddOperator,
    DivOperator,
    FillOperator,
    MulOperator,
    ReshapeOperator,
    SqrtOperator,
    SubOperator,
    SumOperator,
)
from verifying import traced

SPEC = {"dtype": "f64", "shape": [2, 2]}


def test_nothing_to_do_gives_the_same_object() -> None:
    fitting = traced(lambda x, y: x * y + x, [2, 3], [2, 3])
    result = legalize_detailed(fitting, RANK2)
    assert result.artifact is fitting
    assert (result.regions, result.duals) == ((), ())


def test_a_node_that_fits_stays_the_same_object() -> None:
    before = traced(lambda x, y: x * y - x, [2, 3], [2, 3])
    after = legalize(before, RANK2)
    assert after.nodes[0] is before.nodes[0]


def test_a_region_stands_where_its_source_stood() -> None:
    result = legal(lambda x, y: (x - y) * x, [2, 3], [2, 3])
    assert names(result.artifact) == ["mul", "add", "mul"]


def test_the_value_of_a_rewritten_node_keeps_its_id_and_its_typespec() -> None:
    spec = {"dtype": "f64", "shape": [2, 2], "layout": "rows"}
    before = graph(producing("z", SubOperator(), "x", "x", typespec=spec), inputs=[("x", SPEC)], outputs=["z"])
    after = legalize(before, RANK2)
    assert after.nodes[-1].output_value_id == "z"
    assert after.nodes[-1].output_typespec is spec


def test_the_graph_itself_is_never_changed() -> None:
    before = traced(mean_square, [3, 2], [3, 2])
    text = repr(before)
    legalize(before, RANK2)
    assert repr(before) == text


def test_what_no_output_needs_is_neither_judged_nor_touched() -> None:
    nodes = [
        producing("dead", SqrtOperator(), "x", typespec=SPEC),
        producing("untyped", SubOperator(), "dead", "elsewhere"),
        producing("z", SubOperator(), "x", "x", typespec=SPEC),
    ]
    before = graph(*nodes, inputs=[("x", SPEC)], outputs=["z"])
    after = legalize(before, RANK2)
    assert after.nodes[:2] == nodes[:2]
    assert names(after)[2:] == ["mul", "add"]


def test_without_outputs_nothing_is_judged() -> None:
    before = graph(producing("z", SqrtOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)])
    assert legalize(before, RANK2) is before


def dear(emit: Emitter, node: TensorNodeRecord) -> None:
    (x,) = node.input_value_ids
    emit(MulOperator, emit(MulOperator, x, x), x, into=node.output_value_id)


def cheap(emit: Emitter, node: TensorNodeRecord) -> None:
    emit(MulOperator, node.input_value_ids[0], right_literal=0.5, into=node.output_value_id)


@pytest.mark.parametrize("rules", [[dear, cheap], [cheap, dear]])
def test_the_cheapest_rule_in_flops_wins(rules: list[ExpansionRule]) -> None:
    before = graph(producing("z", SqrtOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])
    result = legalize_detailed(before, RANK2, rules={SqrtOperator: rules})
    assert result.regions[0].rules == ("cheap",)


def test_of_equal_rules_the_first_one_wins() -> None:
    before = graph(producing("z", SqrtOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])

    def other(emit: Emitter, node: TensorNodeRecord) -> None:
        cheap(emit, node)

    result = legalize_detailed(before, RANK2, rules={SqrtOperator: [cheap, other]})
    assert result.regions[0].rules == ("cheap",)


@pytest.mark.parametrize(("costs", "reshapes"), [({}, 1), ({"node_cost": 1000.0}, 0)])
def test_what_the_target_says_of_costs_decides(costs: dict[str, Any], reshapes: int) -> None:
    """Adding up a matrix is one matmul between reshapes, or two without."""
    limits = {**RANK2.operators, ReshapeOperator: Limits(**costs)}
    target = Target("priced", limits)
    result = legal(lambda x: x.sum([0, 1], keepdims=True), [4, 3], target=target)
    names = Counter([node.operator.route_name for node in result.artifact.nodes])
    assert (names["reshape"], names["matmul"]) == (reshapes, 1 if reshapes else 2)


@pytest.mark.parametrize("shape", [[2, 2], [1, 2], []])
def test_a_division_by_a_fill_is_one_by_its_number(shape: list[int]) -> None:
    fill: dict[str, Any] = {"fill": 15.0, "dtype": "f64", "shape": shape}
    before = graph(
        producing("c", FillOperator(), **fill, typespec={"dtype": "f64", "shape": shape}),
        producing("z", DivOperator(), "x", "c", typespec=SPEC),
        inputs=[("x", SPEC)],
        outputs=["z"],
    )
    result = checked(before, legalize_detailed(before, RANK2), RANK2)
    assert names(result.artifact) == ["fill", "mul"]
    assert result.artifact.nodes[-1].op_params == {"right_literal": 1 / 15}


def test_a_division_by_a_fill_of_zeros_is_refused() -> None:
    fill: dict[str, Any] = {"fill": 0.0, "dtype": "f64", "shape": []}
    before = graph(
        producing("c", FillOperator(), **fill, typespec={"dtype": "f64", "shape": []}),
        producing("z", DivOperator(), "x", "c", typespec=SPEC),
        inputs=[("x", SPEC)],
        outputs=["z"],
    )
    with pytest.raises(AutodiffError, match="a division by a tensor is no polynomial"):
        legalize(before, RANK2)


def test_a_fill_is_emitted_once_for_all() -> None:
    result = legal(lambda x, y: (x * y).sum([1]) + x.sum([1]) + y.mean([1]), [4, 3], [4, 3])
    fills = Counter([str(node.op_params) for node in result.artifact.nodes if node.operator == FillOperator()])
    assert set(fills.values()) == {1}


def test_fills_of_two_types_are_two() -> None:
    result = legal(lambda x, y: x.sum([1]) + y.sum([1]), [4, 3], [4, 2])
    assert names(result.artifact).count("fill") == 2


def test_a_constant_is_emitted_once_for_all() -> None:
    result = legal(lambda x, y: x.sum([1]) + y.sum([1]), [2, 3, 2], [2, 3, 2])
    assert names(result.artifact).count("constant") == 1


def test_dims_may_stay_symbols_where_no_rule_needs_a_number() -> None:
    result = legal(lambda x, y: x - y, ["N", 3], ["N", 3])
    assert [node.output_typespec["shape"] for node in result.artifact.nodes] == [["N", 3]] * 2


def test_a_symbol_that_the_operands_bind_may_be_declared() -> None:
    declared = {"dtype": "f64", "shape": ["N", 2]}
    inputs = [("x", SPEC), ("y", declared)]
    before = graph(producing("z", SubOperator(), "x", "y", typespec=declared), inputs=inputs, outputs=["z"])
    after = legalize(before, only(AddOperator, MulOperator))
    assert after.nodes[-1].output_typespec is declared


def test_dims_of_zero() -> None:
    result = legal(lambda x, y: (x - y).sum([0]), [0, 3], [0, 3])
    assert result.artifact.nodes[-1].operator == FillOperator()


def test_scalars() -> None:
    assert names(legal(lambda x, y: x - y, [], []).artifact) == ["reshape", "mul", "reshape", "add", "reshape"]


def test_an_operator_of_the_users_own_that_the_machine_has() -> None:
    before = graph(producing("z", OwnOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])
    assert legalize(before, only(OwnOperator)) is before


def test_a_fill_that_a_rule_emits_counts_as_a_constant_operand() -> None:
    """The sum of nothing is a fill, so a machine that multiplies by constants only can use it."""
    target = Target("chip", {MulOperator: Limits(right="constant"), FillOperator: Limits()})

    def times_nothing(emit: Emitter, node: TensorNodeRecord) -> None:
        nothing = emit(FillOperator, fill=1.0, dtype="f64", shape=[0, 2, 2])
        zero = emit(SumOperator, nothing, axes=[0], keepdims=False)
        emit(MulOperator, node.input_value_ids[0], zero, into=node.output_value_id)

    before = graph(producing("z", SqrtOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])
    after = legalize(before, target, rules={SqrtOperator: [times_nothing]})
    assert names(after) == ["fill", "fill", "mul"]


# ---------------------------------------------------------------------------------------------------------------- ids


def ids(artifact: TensorGraph) -> list[str]:
    return [id_ for node in artifact.nodes for id_ in (node.node_id, node.output_value_id)]


def test_new_ids_start_with_the_prefix_and_are_none_that_the_graph_mentions() -> None:
    before = renamed(traced(mean_square, [3, 2], [3, 2]), {"v0": "lgv1", "v2": "lgv0"})
    after = legalize(before, RANK2)
    new = [id_ for id_ in ids(after) if id_ not in ids(before)]
    assert new
    assert all(id_.startswith(("lgv", "lgn")) for id_ in new)
    assert "lgv1" not in new
    assert len(set(ids(after))) == len(ids(after))


def test_an_id_that_only_a_dead_node_reads_is_taken_too() -> None:
    nodes = [
        producing("dead", SubOperator(), "lgv0", "x", typespec=SPEC),
        producing("z", SubOperator(), "x", "x", typespec=SPEC),
    ]
    after = legalize(graph(*nodes, inputs=[("x", SPEC)], outputs=["z"]), RANK2)
    assert "lgv0" not in ids(after)


def test_the_prefix_may_be_chosen() -> None:
    after = legalize(traced(mean_square, [3, 2], [3, 2]), RANK2, reserved_id_prefix="own")
    assert {id_[:3] for id_ in ids(after) if id_[0] not in "vn"} == {"own"}


@pytest.mark.parametrize("prefix", ["", " ", "v", "node", "d", 3])
def test_refuses_a_prefix_that_tracing_may_mint(prefix: object) -> None:
    with pytest.raises(AutodiffError, match=r"malformed_derivative_ir: reserved_id_prefix is"):
        legalize(traced(mean_square, [3, 2], [3, 2]), RANK2, reserved_id_prefix=prefix)  # type: ignore[arg-type]


def test_a_second_round_mints_other_ids() -> None:
    machine = only(SubOperator, SumOperator, MulOperator)
    first = legalize(traced(lambda x, y: (x - y).mean([1]), [3, 2], [3, 2]), machine)
    second = legalize(first, RANK2)
    assert [id_ for id_ in ids(first) if id_.startswith("lg")] != []
    assert len(set(ids(second))) == len(ids(second))


# ---------------------------------------------------------------------------------------------------------- bad input


def test_refuses_another_artifact() -> None:
    with pytest.raises(TypeError, match="artifact must be a DerivativeProgram, got 3"):
        legalize(3, RANK2)  # type: ignore[type-var]


def test_refuses_another_target() -> None:
    with pytest.raises(TypeError, match="target must be a Target, got 'rank2'"):
        legalize(traced(mean_square, [2], [2]), "rank2")  # type: ignore[arg-type]


def test_refuses_duals_that_are_no_bool() -> None:
    with pytest.raises(TypeError, match="duals must be a bool, got 'no'"):
        legalize(traced(mean_square, [2], [2]), RANK2, duals="no")  # type: ignore[arg-type]


def test_refuses_a_forward_graph_beside_a_graph() -> None:
    before = traced(mean_square, [2], [2])
    with pytest.raises(TypeError, match="forward_graph goes with a DerivativeProgram"):
        legalize(before, RANK2, forward_graph=before)


def test_refuses_an_output_that_is_no_id() -> None:
    before = replace(traced(mean_square, [2], [2]), outputs=[["v2"]])  # type: ignore[list-item]
    with pytest.raises(AutodiffError, match=r"invalid_selected_output: an output must be a value id, got \['v2'\]"):
        legalize(before, RANK2)


def test_refuses_a_node_id_that_stands_twice() -> None:
    node = producing("y", SubOperator(), "x", "x", typespec=SPEC)
    before = graph(node, replace(node, output_value_id="z"), inputs=[("x", SPEC)], outputs=["y", "z"])
    with pytest.raises(AutodiffError, match="malformed_derivative_ir: the node id 'n_y' stands twice"):
        legalize(before, RANK2)


def test_refuses_an_input_that_a_node_produces() -> None:
    before = graph(producing("x", SubOperator(), "x", "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["x"])
    with pytest.raises(AutodiffError, match="malformed_derivative_ir: the input 'x' is produced by a node too"):
        legalize(before, RANK2)


def test_refuses_an_input_that_is_declared_twice() -> None:
    before = graph(inputs=[("x", SPEC), ("x", SPEC)], outputs=["x"])
    with pytest.raises(AutodiffError, match="malformed_derivative_ir: the input 'x' is declared twice"):
        legalize(before, RANK2)


def test_refuses_a_value_with_two_producers() -> None:
    nodes = [producing("z", SubOperator(), "x", "x", typespec=SPEC) for _ in range(2)]
    before = graph(nodes[0], replace(nodes[1], node_id="other"), inputs=[("x", SPEC)], outputs=["z"])
    with pytest.raises(AutodiffError, match="malformed_derivative_ir: value 'z' has two producers"):
        legalize(before, RANK2)


def test_refuses_a_cycle() -> None:
    nodes = [
        producing("y", SubOperator(), "z", "z", typespec=SPEC),
        producing("z", SubOperator(), "y", "y", typespec=SPEC),
    ]
    with pytest.raises(AutodiffError, match="malformed_derivative_ir: cycle"):
        legalize(graph(*nodes, outputs=["z"]), RANK2)


def test_a_node_that_contradicts_its_operands_is_named_and_no_rule_blamed() -> None:
    wrong = producing("z", SubOperator(), "x", "x", typespec={"dtype": "f64", "shape": [2, 3]})
    with pytest.raises(AutodiffError) as caught:
        legalize(graph(wrong, inputs=[("x", SPEC)], outputs=["z"]), RANK2)
    assert caught.value.category == "broadcast_shape_mismatch"
    assert "node 'n_z' (SubOperator) declares f64[2, 3]; its operands give f64[2, 2]" in caught.value.message


def test_what_becomes_a_constant_counts_as_one() -> None:
    """A sum of nothing is a fill of zeros."""
    target = Target("plain", {**RANK2.operators, MulOperator: Limits(min_rank=2, max_rank=2, right="constant")})
    result = legal(lambda y, z: y * z.sum(axes=[1]), [3, 4], [3, 0, 4], target=target)
    assert names(result.artifact) == ["fill", "mul"]


def test_sizes_beyond_a_float() -> None:
    huge = {"dtype": "f64", "shape": [10**155, 10**155]}
    before = graph(producing("z", AddOperator(), "x", "x", typespec=huge), inputs=[("x", huge)], outputs=["z"])
    assert legalize(before, RANK2) is before
