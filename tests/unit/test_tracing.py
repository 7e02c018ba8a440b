"""The builder: one trace, its context, its inputs and ids, hand-recorded nodes, and the graphs that it builds."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from by_hand import node
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder, get_active_builder


class Axis(IntEnum):
    THREE = 3


F32 = {"dtype": "f32", "shape": [2]}


def _ids(artifact: TensorGraph) -> list[tuple[str, str, list[str]]]:
    return [(n.node_id, n.output_value_id, n.input_value_ids) for n in artifact.nodes]


# ------------------------------------------------------------------------------------------------------------ context


def test_the_builder_is_active_inside_its_context_only() -> None:
    assert get_active_builder() is None
    with TensorGraphBuilder() as builder:
        assert get_active_builder() is builder
    assert get_active_builder() is None


def test_a_nested_trace_is_refused_and_the_outer_one_goes_on() -> None:
    with TensorGraphBuilder() as builder:
        with pytest.raises(RuntimeError, match=r"^Nested"), TensorGraphBuilder():
            pass
        assert get_active_builder() is builder
        builder.input("x", dtype="f32", shape=[])


def test_the_inner_builder_of_a_refused_nesting_is_still_new() -> None:
    inner = TensorGraphBuilder()
    with TensorGraphBuilder(), pytest.raises(RuntimeError, match=r"^Nested"):
        inner.__enter__()
    with inner:
        assert get_active_builder() is inner


def test_entering_the_active_builder_again_is_nested() -> None:
    with TensorGraphBuilder() as builder, pytest.raises(RuntimeError, match=r"^Nested"):
        builder.__enter__()


@pytest.mark.parametrize("fail", [False, True])
def test_a_used_builder_is_single_trace(fail: bool) -> None:
    builder = TensorGraphBuilder()
    try:
        with builder:
            if fail:
                raise KeyError
    except KeyError:
        pass
    with pytest.raises(RuntimeError, match="single-trace"):
        builder.__enter__()


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, GeneratorExit])
def test_a_failing_body_propagates_and_deactivates(error: type[BaseException]) -> None:
    with pytest.raises(error), TensorGraphBuilder():
        raise error
    assert get_active_builder() is None


def test_exiting_another_builder_leaves_the_active_one_alone() -> None:
    with TensorGraphBuilder() as builder:
        TensorGraphBuilder().__exit__(None, None, None)
        assert get_active_builder() is builder


def test_a_thread_has_a_trace_of_its_own() -> None:
    seen: list[Any] = []

    def trace() -> None:
        seen.append(get_active_builder())
        with TensorGraphBuilder() as builder:
            x = builder.input("x", dtype="f32", shape=[2])
            seen.append(_ids(builder.build(outputs=x + x)))

    with TensorGraphBuilder() as builder:
        thread = threading.Thread(target=trace)
        thread.start()
        thread.join()
        assert get_active_builder() is builder
    assert seen == [None, [("n0", "v1", ["v0", "v0"])]]


def test_a_context_that_outlives_the_trace_has_no_active_builder() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        later = contextvars.copy_context()
        assert later.run(get_active_builder) is builder
    assert later.run(get_active_builder) is None
    with pytest.raises(RuntimeError, match="active trace"):
        later.run(lambda: x + x)
    assert later.run(lambda: TensorGraphBuilder().__enter__()) is not None


def test_interleaved_tasks_trace_apart() -> None:
    async def trace(count: int) -> int:
        with TensorGraphBuilder() as builder:
            x = builder.input("x", dtype="f32", shape=[2])
            for _ in range(count):
                x = x + x
                await asyncio.sleep(0)
            return len(builder.build(outputs=x).nodes)

    async def both() -> list[int]:
        return list(await asyncio.gather(trace(3), trace(5)))

    assert asyncio.run(both()) == [3, 5]


# ------------------------------------------------------------------------------------------------------------- inputs


def test_an_input_is_a_typed_symbolic_tensor() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=("N", Axis.THREE, 0))
        assert (x.shape, x.dtype, x.ndim) == (("N", 3, 0), "f64", 3)
        assert builder.value_id(x) == "v0"
        assert builder.build(outputs=x).inputs == [("v0", {"dtype": "f64", "shape": ["N", 3, 0]})]


@pytest.mark.parametrize("when", ["before", "after", "inside another"])
def test_an_input_needs_the_active_trace(when: str) -> None:
    builder = TensorGraphBuilder()
    if when == "after":
        with builder:
            pass
    around: AbstractContextManager[object] = TensorGraphBuilder() if when == "inside another" else nullcontext()
    with around, pytest.raises(RuntimeError, match="active trace"):
        builder.input("x", dtype="f32", shape=[])


@pytest.mark.parametrize("name", [None, 3, b"x", ["x"], ""])
def test_the_name_of_an_input_is_a_str(name: Any) -> None:
    with TensorGraphBuilder() as builder, pytest.raises(TypeError, match="non-empty str") as caught:
        builder.input(name, dtype="f32", shape=[])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["1x", "a b", "a.b", "class", "None", " ", "x\n", "\ud800", "-" * 1_000_000])
def test_the_name_of_an_input_is_an_identifier(name: str) -> None:
    with TensorGraphBuilder() as builder, pytest.raises(ValueError, match="identifier") as caught:
        builder.input(name, dtype="f32", shape=[])
    assert len(str(caught.value)) < 300


def test_a_second_input_of_a_name_is_refused() -> None:
    with TensorGraphBuilder() as builder:
        builder.input("x", dtype="f32", shape=[])
        with pytest.raises(ValueError, match=r"duplicate .*'x'"):
            builder.input("x", dtype="f32", shape=[])
        assert builder.value_id(builder.input("y", dtype="f32", shape=[])) == "v1"


@pytest.mark.parametrize("dtype", ["i32", "float32", "", None, 32, ["f32"], np.float32, np.array(["f32", "f64"])])
def test_another_dtype_is_not_differentiable(dtype: Any) -> None:
    with TensorGraphBuilder() as builder, pytest.raises(AutodiffError, match="f32, f64") as caught:
        builder.input("x", dtype=dtype, shape=[])
    assert caught.value.category == "dtype_not_differentiable"
    assert "'x'" in caught.value.message


@pytest.mark.parametrize(
    "shape", [None, 3, "ab", b"ab", True, {2}, [True], [-1], ["1x"], [""], [2.0], [None], [[2]], np.array([2])]
)
def test_a_malformed_shape_is_a_value_error(shape: Any) -> None:
    with TensorGraphBuilder() as builder, pytest.raises(ValueError, match="input 'x'"):
        builder.input("x", dtype="f32", shape=shape)


@pytest.mark.parametrize("keywords", [{}, {"dtype": "f32"}, {"shape": []}, {"dtype": "f32", "shape": [], "more": 1}])
def test_missing_and_foreign_keywords_are_type_errors(keywords: dict[str, Any]) -> None:
    with TensorGraphBuilder() as builder, pytest.raises(TypeError):
        builder.input("x", **keywords)


def test_a_refused_input_declares_nothing() -> None:
    with TensorGraphBuilder() as builder:
        for dtype, shape in (("i32", [2]), ("f32", [-1])):
            with pytest.raises((ValueError, AutodiffError)):
                builder.input("x", dtype=dtype, shape=shape)
        assert builder.value_id(builder.input("x", dtype="f32", shape=[2])) == "v0"


# ---------------------------------------------------------------------------------------------------------------- ids


def test_the_ids_of_a_mean_squared_error() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[4, 3])
        y = builder.input("y", dtype="f32", shape=[4, 1])
        w = builder.input("w", dtype="f32", shape=[3, 1])
        residual = x @ w - y
        loss = (residual * residual).mean()
    built = builder.build(outputs=loss)
    assert [value_id for value_id, _ in built.inputs] == ["v0", "v1", "v2"]
    assert _ids(built) == [
        ("n0", "v3", ["v0", "v2"]),
        ("n1", "v4", ["v3", "v1"]),
        ("n2", "v5", ["v4", "v4"]),
        ("n3", "v6", ["v5"]),
    ]
    assert [n.operator.route_name for n in built.nodes] == ["matmul", "sub", "mul", "mean"]
    assert built.outputs == ["v6"]


def test_values_are_registered_by_identity() -> None:
    builder = TensorGraphBuilder()
    one, other = [1], [1]
    assert builder.register_value(one) == "v0"
    assert builder.register_value(other) == "v1"
    assert builder.register_value(one) == "v0"
    assert builder.value_id(other) == "v1"


def test_a_registered_object_is_kept_so_that_its_id_is_not_used_again() -> None:
    builder = TensorGraphBuilder()
    ids = set()
    for _ in range(200):
        ids.add(builder.register_value(object()))
        gc.collect(0)
    assert len(ids) == 200


def test_a_value_can_be_registered_under_an_id() -> None:
    builder = TensorGraphBuilder()
    thing = object()
    assert builder.register_value(thing, "mine") == "mine"
    assert builder.register_value(thing, "mine") == "mine"
    with pytest.raises(ValueError, match="already registered as 'mine', not 'other'"):
        builder.register_value(thing, "other")


def test_a_minted_id_avoids_the_registered_ones() -> None:
    builder = TensorGraphBuilder()
    builder.register_value(object(), "v0")
    assert builder.register_value(object()) == "v1"


@pytest.mark.parametrize("value_id", ["", 3, b"v0", ["v0"]])
def test_a_bad_id_is_a_type_error(value_id: Any) -> None:
    builder = TensorGraphBuilder()
    with pytest.raises(TypeError, match="non-empty str") as caught:
        builder.register_value(object(), value_id)
    assert repr(value_id) in str(caught.value)
    with pytest.raises(TypeError, match="non-empty str"):
        builder.mark_output_value(value_id)


def test_registering_a_tensor_of_another_trace_leaves_it_whole() -> None:
    with TensorGraphBuilder() as first:
        x = first.input("x", dtype="f32", shape=[2])
    TensorGraphBuilder().register_value(x)
    assert x.shape == (2,)
    assert first.value_id(x) == "v0"


def test_the_id_of_an_untraced_object_is_a_value_error_that_names_an_input() -> None:
    with TensorGraphBuilder() as first:
        x = first.input("weights", dtype="f32", shape=[2])
    with pytest.raises(ValueError, match="weights"):
        TensorGraphBuilder().value_id(x)
    for other in (object(), None, "v0", Tensor()):
        with pytest.raises(ValueError, match="not traced by this builder"):
            first.value_id(other)


# --------------------------------------------------------------------------------------------------- hand-made records


def _record(output: str, *operands: str, node_id: str = "mine", typespec: Any = None) -> TensorNodeRecord:
    return TensorNodeRecord(
        node_id=node_id,
        output_value_id=output,
        operator=AddOperator(),
        op_params={},
        input_value_ids=operands,
        output_typespec=typespec,
    )


def test_a_hand_made_node_is_recorded_as_it_is() -> None:
    record = _record("sum", "a", "b")
    with TensorGraphBuilder() as builder:
        builder.record(record)
    built = builder.build()
    assert built == TensorGraph([record], [("a", None), ("b", None)], ["sum"])
    assert built.nodes[0] is record


@pytest.mark.parametrize("value", [None, "n0", {"node_id": "n0"}])
def test_only_records_are_recorded(value: Any) -> None:
    builder = TensorGraphBuilder()
    with pytest.raises(TypeError, match="TensorNodeRecord"):
        builder.record(value)
    assert builder.build().nodes == []


@pytest.mark.parametrize("record", [node(node_id=7), node(node_id=[]), _record(None), _record("v", [])])  # type: ignore[arg-type]
def test_a_record_with_an_id_that_is_no_str_is_malformed(record: TensorNodeRecord) -> None:
    builder = TensorGraphBuilder()
    with pytest.raises(AutodiffError, match="an id in the trace must be a str") as caught:
        builder.record(record)
    assert caught.value.category == "malformed_derivative_ir"
    assert builder.build().nodes == []


def test_minted_ids_avoid_those_of_hand_made_nodes() -> None:
    with TensorGraphBuilder() as builder:
        builder.record(_record("v0", "v1", node_id="n0"))
        x = builder.input("x", dtype="f32", shape=[2])
        y = x + x
    assert builder.value_id(x) == "v2"
    assert _ids(builder.build(outputs=y))[1] == ("n1", "v3", ["v2", "v2"])


def test_a_tensor_can_stand_for_the_value_of_a_hand_made_node() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        builder.record(_record("mine", "v0", "v0", typespec=F32))
        mine = Tensor()
        builder.register_value(mine, "mine")
        assert mine.shape == (2,)
        y = mine * x
    built = builder.build(outputs=y)
    assert built.nodes[1].input_value_ids == ["mine", "v0"]
    assert built.nodes[1].output_typespec == F32
    assert built.inputs == [("v0", F32)]
