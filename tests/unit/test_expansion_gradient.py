"""The derivative pass: the one pattern that it rewrites, and every near miss that it leaves alone without an error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tinychain.autodiff.expansion import (
    BROADCAST_SCALE_EXPANSION,
    MeanExpansionRegion,
    expand_mean_derivative_program,
    expand_mean_derivative_program_detailed,
)
from tinychain.autodiff.graph import DerivativeMetadata, DerivativeProgram, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    DivOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SumOperator,
)
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

METADATA = DerivativeMetadata("source", "1", "1", ("v0",), "seed matches v1")


def spec(*shape: Any, dtype: str = "f32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


SCALAR_MATRIX: Any = spec(1, 1)


def node(
    number: int, operator: TensorOperator, operands: list[str], op_params: Mapping[str, Any], typespec: Any
) -> TensorNodeRecord:
    return TensorNodeRecord(
        node_id=f"dn{number}",
        output_value_id=f"d{number}",
        operator=operator,
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=typespec,
    )


def program(
    *,
    g: Any = SCALAR_MATRIX,
    broadcast: Mapping[str, Any] | None = None,
    div: Mapping[str, Any] | None = None,
    more: list[TensorNodeRecord] | None = None,
    **fields: Any,
) -> DerivativeProgram:
    """seed [1, 1] -> broadcast d0 [4, 3] -> div d1, with changes to the two nodes, and whatever follows."""
    nodes = [
        replace(node(0, BroadcastOperator(), ["seed"], {"shape": [4, 3]}, spec(4, 3)), **(broadcast or {})),
        replace(node(1, DivOperator(), ["d0"], {"right_literal": 12.0}, spec(4, 3)), **(div or {})),
        *(more or []),
    ]
    given = {"gradients": {"v0": "d1"}, "output_gradients": ["d1"], "value_typespecs": {"seed": g}, **fields}
    return DerivativeProgram(nodes=nodes, metadata=METADATA, **given)


def expanded(before: DerivativeProgram) -> DerivativeProgram:
    """The expanded program, which differs in its nodes alone; the argument stays as it was."""
    untouched = copy.deepcopy(before)
    after = expand_mean_derivative_program(before)
    assert before == untouched
    assert replace(after, nodes=before.nodes) == before
    return after


# ------------------------------------------------------------------------------------------------------ what it emits


def test_the_pattern_becomes_matmuls_and_a_scale() -> None:
    rows = [
        (type(n.operator), n.op_params, n.input_value_ids, n.output_value_id, (n.output_typespec or {})["shape"])
        for n in expanded(program()).nodes
    ]
    assert rows == [
        (FillOperator, {"fill": 1.0, "dtype": "f32", "shape": [4, 1]}, [], "exv0", [4, 1]),
        (MatmulOperator, {}, ["exv0", "seed"], "exv1", [4, 1]),
        (FillOperator, {"fill": 1.0, "dtype": "f32", "shape": [1, 3]}, [], "exv2", [1, 3]),
        (MatmulOperator, {}, ["exv1", "exv2"], "exv3", [4, 3]),
        (MulOperator, {"right_literal": 1.0 / 12.0}, ["exv3"], "d1", [4, 3]),
    ]
    assert [n.node_id for n in expanded(program()).nodes] == [f"exn{i}" for i in range(5)]


def test_the_name_of_the_pass() -> None:
    assert BROADCAST_SCALE_EXPANSION == "broadcast_scale_expansion"


def test_says_what_became_of_what() -> None:
    result = expand_mean_derivative_program_detailed(program())
    assert result.program == expanded(program())
    assert result.regions == (
        MeanExpansionRegion(
            pass_name=BROADCAST_SCALE_EXPANSION,
            source_node_ids=("dn0", "dn1"),
            emitted_node_ids=("exn0", "exn1", "exn2", "exn3", "exn4"),
            terminal_value_id="d1",
            tier="rank_preserving",
        ),
    )


def traced(function: Callable[[Tensor], Tensor], shape: list[int | str], dtype: str = "f32") -> DerivativeProgram:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype=dtype, shape=shape)
        y = function(x)
    return builder.vjp(y, wrt=[x])


def test_a_reshape_before_it_stays_and_the_tier_is_the_same() -> None:
    before = traced(lambda x: x.mean(), [4, 3])
    result = expand_mean_derivative_program_detailed(before)
    assert result.program.nodes[0] is before.nodes[0]
    assert isinstance(before.nodes[0].operator, ReshapeOperator)
    assert [region.tier for region in result.regions] == ["rank_preserving"]


def test_the_region_stands_where_the_division_stood_and_other_nodes_are_carried_over() -> None:
    between = node(5, AddOperator(), ["seed", "seed"], {}, spec(1, 1))
    after = node(6, AddOperator(), ["d1", "d1"], {}, spec(4, 3))
    before = program()
    before = replace(before, nodes=[before.nodes[0], between, before.nodes[1], after])
    nodes = expanded(before).nodes
    assert nodes[0] is between
    assert nodes[-1] is after
    assert [n.node_id for n in nodes[1:-1]] == [f"exn{i}" for i in range(5)]


def test_regions_are_in_artifact_order() -> None:
    before = traced(lambda x: x.mean(keepdims=True) * (x * x).mean(keepdims=True), [4, 3])
    regions = expand_mean_derivative_program_detailed(before).regions
    positions = {n.node_id: position for position, n in enumerate(before.nodes)}
    ends = [positions[region.source_node_ids[-1]] for region in regions]
    assert len(ends) == 2
    assert ends == sorted(ends)
    assert regions[1].emitted_node_ids[0] == "exn5"


def test_a_second_run_has_nothing_to_do() -> None:
    once = expanded(program())
    again = expand_mean_derivative_program_detailed(once)
    assert again.program == once
    assert again.regions == ()


def test_equal_programs_give_equal_ones() -> None:
    assert expand_mean_derivative_program_detailed(program()) == expand_mean_derivative_program_detailed(program())


@pytest.mark.parametrize(
    "same",
    [
        program(div={"op_params": {"right_literal": 12}}),
        program(
            g=None, broadcast={"input_value_ids": ["d9"]}, more=[node(9, AddOperator(), ["s", "s"], {}, spec(1, 1))]
        ),
        program(g={"dtype": "f32", "shape": (1, 1), "layout": "row"}),
        program(broadcast={"op_params": {"shape": (4, 3)}}),
    ],
    ids=["int divisor", "operand typed by its node", "tuple and extra keys", "shape param as a tuple"],
)
def test_the_pattern_in_its_other_forms(same: DerivativeProgram) -> None:
    assert len(expand_mean_derivative_program_detailed(same).regions) == 1


def test_the_typespec_of_the_node_overlays_the_table() -> None:
    before = program(
        broadcast={"input_value_ids": ["d9"]},
        more=[node(9, AddOperator(), ["s", "s"], {}, spec(1, 1))],
        value_typespecs={"d9": spec(7, 7)},
    )
    assert len(expand_mean_derivative_program_detailed(before).regions) == 1


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_dtype_is_the_operand_s(dtype: str) -> None:
    after = expand_mean_derivative_program(traced(lambda x: x.mean(keepdims=True), [4, 3], dtype))
    assert {(n.output_typespec or {})["dtype"] for n in after.nodes} == {dtype}


def test_an_exact_huge_divisor_that_a_float_holds() -> None:
    side = 2**100
    big = spec(side, side)
    before = program(
        broadcast={"op_params": {"shape": [side, side]}, "output_typespec": big},
        div={"op_params": {"right_literal": float(side * side)}, "output_typespec": big},
    )
    assert expanded(before).nodes[-1].op_params == {"right_literal": 2.0**-200}


# -------------------------------------------------------------------------------------------------- what it leaves be

HUGE = 10**200


class OwnDivOperator(DivOperator):
    """A subclass is another operator."""


class OwnBroadcastOperator(BroadcastOperator):
    """A subclass is another operator."""


def div_by(value: Any) -> DerivativeProgram:
    return program(div={"op_params": {"right_literal": value}})


def shaped(*shape: Any, divisor: Any = 12.0) -> DerivativeProgram:
    return program(
        broadcast={"op_params": {"shape": list(shape)}, "output_typespec": spec(*shape)},
        div={"op_params": {"right_literal": divisor}, "output_typespec": spec(*shape)},
    )


#: Each breaks one condition alone.
NEAR_MISSES: dict[str, DerivativeProgram] = {
    "1: two operands": program(div={"input_value_ids": ["d0", "v0"], "op_params": {}}),
    "1: two operands and a literal": program(div={"input_value_ids": ["d0", "v0"]}),
    "1: no literal": program(div={"op_params": {}}),
    "1: another key": program(div={"op_params": {"right_literal": 12.0, "note": 1}}),
    "1: a bool divisor": shaped(1, 1, divisor=True),
    "1: a str divisor": div_by("12"),
    "1: no divisor": div_by(None),
    "1: a NaN": div_by(float("nan")),
    "1: another class": program(div={"operator": OwnDivOperator()}),
    "1: a multiplication": program(div={"operator": MulOperator()}),
    "2: operand from outside": program(div={"input_value_ids": ["v0"]}),
    "2: another producer": program(broadcast={"operator": ReshapeOperator()}),
    "2: another class": program(broadcast={"operator": OwnBroadcastOperator()}),
    "3: no operand": program(broadcast={"input_value_ids": []}),
    "3: two operands": program(broadcast={"input_value_ids": ["seed", "seed"]}),
    "3: rank 1": shaped(12),
    "3: rank 3": shaped(2, 2, 3),
    "3: a symbol": shaped("N", 3),
    "3: no element": shaped(0, 3, divisor=0),
    "3: no shape param": program(broadcast={"op_params": {}}),
    "3: a shape param that its typespec contradicts": program(broadcast={"op_params": {"shape": [3, 4]}}),
    "3: no typespec": program(broadcast={"output_typespec": None}),
    "3: no shape": program(broadcast={"output_typespec": {"dtype": "f32"}}),
    "3: no dtype": program(broadcast={"output_typespec": {"shape": [4, 3]}}),
    "3: a dtype without a matmul": program(
        g=spec(1, 1, dtype="i32"),
        broadcast={"output_typespec": spec(4, 3, dtype="i32")},
        div={"output_typespec": spec(4, 3, dtype="i32")},
    ),
    "4: no typespec": program(g=None),
    "4: no shape": program(g={"dtype": "f32"}),
    "4: no dtype": program(g={"shape": [1, 1]}),
    "4: another dtype": program(g=spec(1, 1, dtype="f64")),
    "4: rank 0": program(g=spec()),
    "4: a column": program(g=spec(4, 1)),
    "4: a row": program(g=spec(1, 3)),
    "4: a symbol": program(g=spec(1, "N")),
    "5: one less": div_by(11.0),
    "5: one more": div_by(13),
    "5: nearly": div_by(12.000000000000002),
    "5: negative": div_by(-12.0),
    "5: infinite": div_by(float("inf")),
    "5: a count beyond floats": shaped(HUGE, HUGE, divisor=HUGE * HUGE),
    "6: no typespec": program(div={"output_typespec": None}),
    "6: no shape": program(div={"output_typespec": {"dtype": "f32"}}),
    "6: another dtype": program(div={"output_typespec": spec(4, 3, dtype="f64")}),
    "6: another shape": program(div={"output_typespec": spec(3, 4)}),
    "7: read twice": program(more=[node(2, AddOperator(), ["d0", "v0"], {}, spec(4, 3))]),
    "7: read twice by one": program(more=[node(2, SumOperator(), ["d0", "d0"], {}, None)]),
    "7: a gradient": program(gradients={"v0": "d1", "v9": "d0"}),
    "7: an output gradient": program(output_gradients=["d1", "d0"]),
}


@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_leaves_a_near_miss_alone(reason: str) -> None:
    before = NEAR_MISSES[reason]
    assert expanded(before) == before
    assert expand_mean_derivative_program_detailed(before).regions == ()


def test_the_unbroken_pattern_is_none_of_them() -> None:
    """The near misses differ from this by what they name alone."""
    assert len(expand_mean_derivative_program_detailed(program()).regions) == 1
    assert len(expand_mean_derivative_program_detailed(shaped(2, 6)).regions) == 1
    assert len(expand_mean_derivative_program_detailed(shaped(1, 1, divisor=1)).regions) == 1
    assert len(expand_mean_derivative_program_detailed(div_by(12)).regions) == 1


@pytest.mark.parametrize(
    "function", [lambda x: x.mean(axes=[0], keepdims=True), lambda x: x.sum(keepdims=True), lambda x: x / 12.0]
)
def test_leaves_other_gradients_alone(function: Callable[[Tensor], Tensor]) -> None:
    before = traced(function, [4, 3])
    assert expanded(before) == before


def test_a_match_beside_a_near_miss_is_rewritten() -> None:
    other = [
        node(2, BroadcastOperator(), ["seed"], {"shape": [4, 3]}, spec(4, 3)),
        node(3, DivOperator(), ["d2"], {"right_literal": 13.0}, spec(4, 3)),
    ]
    result = expand_mean_derivative_program_detailed(program(more=other))
    assert [region.source_node_ids for region in result.regions] == [("dn0", "dn1")]
    assert result.program.nodes[-2:] == other


def test_an_empty_program() -> None:
    empty = DerivativeProgram(nodes=[], gradients={}, output_gradients=[], metadata=METADATA)
    assert expanded(empty) == empty


def test_no_bookkeeping_hides_in_the_params() -> None:
    allowed = {
        FillOperator: {"fill", "dtype", "shape"},
        MatmulOperator: set(),
        MulOperator: {"right_literal"},
    }
    for emitted in expanded(program()).nodes:
        assert set(emitted.op_params) == allowed[type(emitted.operator)]
