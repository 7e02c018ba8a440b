"""The graphs that a builder makes of its trace: unchecked ones, and typed ones with what is reachable as inputs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import AddOperator, MulOperator
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

F32 = {"dtype": "f32", "shape": [2]}


def _record(output: str, *operands: str, node_id: str = "mine", typespec: Any = None) -> TensorNodeRecord:
    return TensorNodeRecord(
        node_id=node_id,
        output_value_id=output,
        operator=AddOperator(),
        op_params={},
        input_value_ids=operands,
        output_typespec=typespec,
    )


# -------------------------------------------------------------------------------------------------------- plain builds


def test_an_empty_trace_builds_an_empty_graph() -> None:
    with TensorGraphBuilder() as builder:
        builder.input("x", dtype="f32", shape=[2])
    assert builder.build() == TensorGraph([], [], [])


def test_a_plain_build_has_free_operands_in_order_of_first_use_and_the_last_output() -> None:
    with TensorGraphBuilder() as builder:
        x, y = [builder.input(name, dtype="f32", shape=[2]) for name in "xy"]
        z = y + x
        _ = z * y
    built = builder.build()
    assert built.inputs == [("v1", None), ("v0", None)]
    assert built.outputs == ["v3"]


def test_marked_outputs_come_in_order_of_marking_and_once() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        y = x + x
        z = y + x
        builder.mark_output(z)
        builder.mark_output(x)
        builder.mark_output(z)
        builder.mark_output_value("v1")
        builder.mark_output_value("v2")
    assert builder.build().outputs == ["v2", "v0", "v1"]


def test_only_a_traced_object_can_be_marked() -> None:
    with pytest.raises(ValueError, match="not traced by this builder"):
        TensorGraphBuilder().mark_output(object())


@pytest.mark.parametrize(
    "misuse",
    [
        lambda builder: builder.record(_record("x", "x")),
        lambda builder: [builder.record(_record("x", "a", node_id="m0")), builder.record(_record("x", "b"))],
        lambda builder: [builder.record(_record("x", "y")), builder.record(_record("y", "x"))],
        lambda builder: builder.mark_output_value("nowhere"),
    ],
)
def test_a_plain_build_validates_nothing(misuse: Callable[[TensorGraphBuilder], object]) -> None:
    builder = TensorGraphBuilder()
    misuse(builder)
    assert isinstance(builder.build(), TensorGraph)


def test_a_build_inside_the_trace_has_what_was_recorded_so_far() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        y = x + x
        early = builder.build(outputs=y)
        _ = y * y
    assert len(early.nodes) == 1
    assert len(builder.build(outputs=y).nodes) == 2


def test_a_failed_trace_can_still_be_built() -> None:
    builder = TensorGraphBuilder()
    with suppress(KeyError), builder:
        x = builder.input("x", dtype="f32", shape=[2])
        _ = x + x
        raise KeyError
    assert len(builder.build().nodes) == 1


def test_the_graph_is_a_copy() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        y = x + x
    builder.build(outputs=y).nodes.clear()
    assert [n.operator for n in builder.build(outputs=y).nodes] == [AddOperator()]


def test_an_operator_is_shared_by_its_nodes() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        y = x * x * x
    assert [n.operator for n in builder.build(outputs=y).nodes] == [MulOperator(), MulOperator()]


# -------------------------------------------------------------------------------------------------------- typed builds


def _refused(builder: TensorGraphBuilder, output: object) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        builder.build(outputs=output)
    return caught.value


def test_outputs_are_one_value_or_a_sequence_and_duplicates_are_dropped() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        y = x + x
    assert builder.build(outputs=y).outputs == ["v1"]
    assert builder.build(outputs=[y, x, y]).outputs == ["v1", "v0"]
    assert builder.build(outputs=(x,)).outputs == ["v0"]


@pytest.mark.parametrize("outputs", [[], ()])
def test_no_output_is_a_value_error(outputs: Any) -> None:
    with pytest.raises(ValueError, match="at least one"):
        TensorGraphBuilder().build(outputs=outputs)


@pytest.mark.parametrize("outputs", ["v0", 3, [None], [Tensor()], {"v0"}])
def test_an_untraced_output_is_a_value_error(outputs: Any) -> None:
    with TensorGraphBuilder() as builder:
        builder.input("x", dtype="f32", shape=[2])
    with pytest.raises(ValueError, match="not traced by this builder"):
        builder.build(outputs=outputs)


def test_inputs_are_the_reachable_ones_in_declaration_order() -> None:
    with TensorGraphBuilder() as builder:
        x, y, z = [builder.input(name, dtype="f32", shape=[2]) for name in "xyz"]
        unused = y * y
        result = z - x
    assert builder.build(outputs=result).inputs == [("v0", F32), ("v2", F32)]
    assert builder.build(outputs=[result, unused]).inputs == [("v0", F32), ("v1", F32), ("v2", F32)]
    assert builder.build(outputs=y) == TensorGraph(builder.build().nodes, [("v1", F32)], ["v1"])


def test_unreachable_nodes_stay_and_are_not_judged() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        y = x + x
        _ = Tensor() * x
        builder.record(_record("mine", "nowhere"))
    built = builder.build(outputs=y)
    assert [n.output_value_id for n in built.nodes] == ["v1", "v3", "mine"]
    assert built.inputs == [("v0", F32)]


def test_an_untyped_input_lacks_a_dtype() -> None:
    with TensorGraphBuilder() as builder:
        loose = Tensor()
        y = loose + builder.input("x", dtype="f32", shape=[2])
    for output in (y, loose):
        error = _refused(builder, output)
        assert error.category == "missing_dtype_metadata"
        assert "input value 'v1'" in error.message


def test_free_inputs_are_judged_in_the_order_of_their_ids() -> None:
    with TensorGraphBuilder() as builder:
        builder.record(_record("mine", "b", "a"))
        mine = Tensor()
        builder.register_value(mine, "mine")
    assert "input value 'a'" in _refused(builder, mine).message


@pytest.mark.parametrize(
    ("typespec", "category"),
    [
        (None, "missing_dtype_metadata"),
        ({"shape": [2]}, "missing_dtype_metadata"),
        ({"shape": [-2]}, "missing_dtype_metadata"),
        ({"dtype": 32, "shape": [2]}, "missing_dtype_metadata"),
        ({"dtype": "f32"}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": None}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": [-2]}, "missing_shape_metadata"),
        ("f32[2]", "missing_dtype_metadata"),
    ],
)
def test_a_reachable_node_without_complete_typespec_is_refused(typespec: Any, category: str) -> None:
    with TensorGraphBuilder() as builder:
        builder.input("x", dtype="f32", shape=[2])
        builder.record(_record("mine", "v0", typespec=typespec))
        mine = Tensor()
        builder.register_value(mine, "mine")
    error = _refused(builder, mine)
    assert error.category == category
    assert "value 'mine'" in error.message


def test_a_hand_made_typespec_is_taken_over_with_its_extra_keys() -> None:
    typespec = {"dtype": "i32", "shape": ["N"], "layout": "rows"}
    with TensorGraphBuilder() as builder:
        builder.input("x", dtype="f32", shape=[2])
        builder.record(_record("mine", "v0", typespec=typespec))
        mine = Tensor()
        builder.register_value(mine, "mine")
    assert builder.build(outputs=mine).nodes[0].output_typespec is typespec


@pytest.mark.parametrize(
    "records",
    [
        [_record("x", "x")],
        [_record("x", "y"), _record("y", "x", node_id="m1")],
        [_record("x", "v0"), _record("x", "v0", node_id="m1")],
    ],
)
def test_cycles_and_second_producers_are_malformed(records: list[TensorNodeRecord]) -> None:
    with TensorGraphBuilder() as builder:
        builder.input("x", dtype="f32", shape=[2])
        for record in records:
            builder.record(record)
        mine = Tensor()
        builder.register_value(mine, "x")
    assert _refused(builder, mine).category == "malformed_derivative_ir"


def test_a_long_chain_is_built_without_recursion() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        for _ in range(5_000):
            x = x + x
    assert len(builder.build(outputs=x).nodes) == 5_000
