"""Lowering through handlers: what they are given, in which order, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given

from analysed import FORWARD, PROGRAM, derivative
from dags import AnyOperator, Recorder, bind_text, chain, counting, dag, dags, fan_in, fan_out, gradient, op
from lowered import GRAPH
from opaque import Opaque
from tinychain.autodiff.dependencies import ValueDependency, analyze_graph_dependencies
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.lowering import (
    LoweredOperation,
    OperationContext,
    OperationHandlerRegistry,
    lower_derivative_program,
    lower_graph,
)

# --------------------------------------------------------------------------------------------------------- the result


def test_a_lowered_graph() -> None:
    lowered = lower_graph(GRAPH, handlers=Recorder().registry, bind_input=bind_text)
    assert lowered.selected_outputs == ("b",)
    assert lowered.operations == (
        LoweredOperation("a", "a(x)", ("n_a",), (AnyOperator(),), False),
        LoweredOperation("b", "b(a(x), y, a(x))", ("n_b",), (AnyOperator(),), False),
    )
    assert lowered.values == {"x": "x", "y": "y", "a": "a(x)", "b": "b(a(x), y, a(x))"}
    assert lowered.output_values == ("b(a(x), y, a(x))",)
    assert lowered.dependencies == analyze_graph_dependencies(GRAPH)


def test_a_lowered_derivative_program() -> None:
    recorder = Recorder()
    lowered = lower_derivative_program(
        PROGRAM, forward_graph=FORWARD, seed_value_ids=["seed"], handlers=recorder.registry, bind_input=bind_text
    )
    assert lowered.output_values == ("d1(d0(seed, a), x)",)
    assert lowered.dependencies == derivative()
    assert [context.input_provenance for context in recorder.contexts] == [
        ("seed_input", "forward_capture"),
        ("local_value", "declared_input"),
    ]


def test_the_values_are_read_only() -> None:
    lowered = lower_graph(GRAPH, handlers=Recorder().registry)
    values: Any = lowered.values
    with pytest.raises(TypeError):
        values["b"] = 1


def test_outputs_come_in_the_selected_order_and_once() -> None:
    lowered = lower_graph(GRAPH, handlers=Recorder().registry, outputs=["b", "x", "a", "b"], bind_input=bind_text)
    assert lowered.selected_outputs == ("b", "x", "a")
    assert lowered.output_values == ("b(a(x), y, a(x))", "x", "a(x)")


def test_only_the_selected_region_is_lowered() -> None:
    recorder = Recorder()
    lowered = lower_graph(GRAPH, handlers=recorder.registry, outputs=["a"])
    assert recorder.node_ids == ["n_a"]
    assert set(lowered.values) == {"x", "a"}


def test_a_selected_input_needs_no_handler() -> None:
    lowered = lower_graph(GRAPH, handlers=OperationHandlerRegistry(), outputs=["y"], bind_input=bind_text)
    assert (lowered.operations, lowered.output_values) == ((), ("y",))


def test_lowering_twice_gives_equal_programs() -> None:
    first, second = [lower_graph(GRAPH, handlers=Recorder().registry) for _ in range(2)]
    assert first == second


def test_a_lowered_program_is_plain_data_where_its_values_are() -> None:
    lowered = lower_graph(GRAPH, handlers=Recorder().registry, outputs=["a"], bind_input=bind_text)
    assert lowered.to_dict() == {
        "selected_outputs": ["a"],
        "operations": [
            {
                "output_value_id": "a",
                "value": "a(x)",
                "source_node_ids": ["n_a"],
                "source_operators": [{"type": "AnyOperator", "route_name": "any"}],
                "is_fused": False,
            }
        ],
        "values": {"x": "x", "a": "a(x)"},
        "dependencies": analyze_graph_dependencies(GRAPH, outputs=["a"]).to_dict(),
    }


# ------------------------------------------------------------------------------------------------------------ binding


def test_required_inputs_are_bound_in_analysis_order_before_any_handler() -> None:
    events: list[str] = []
    recorder = Recorder(lower=lambda context: events.append(context.node_id) or "value")  # type: ignore[func-returns-value]
    reads = gradient(op("d0", "a", "s2", "x", "s1"), outputs=["d0"])

    def bind(dependency: ValueDependency) -> str:
        events.append(dependency.value_id)
        return dependency.value_id

    lower_derivative_program(
        reads, forward_graph=FORWARD, seed_value_ids=["s1", "s2"], handlers=recorder.registry, bind_input=bind
    )
    assert events == ["x", "s1", "s2", "a", "n_d0"]


def test_without_a_binder_the_dependency_is_the_value() -> None:
    recorder = Recorder()
    lower_graph(GRAPH, handlers=recorder.registry, outputs=["a"])
    assert recorder.contexts[0].inputs == (ValueDependency("x", "declared_input", "f32", (2,)),)


# ------------------------------------------------------------------------------------------------- what a handler sees


def test_a_context_holds_the_operation() -> None:
    recorder = Recorder()
    lower_graph(GRAPH, handlers=recorder.registry, bind_input=bind_text)
    assert recorder.contexts[1] == OperationContext(
        node_id="n_b",
        operator=AnyOperator(),
        op_params={"axes": [0, 1]},
        input_value_ids=("a", "y", "a"),
        inputs=("a(x)", "y", "a(x)"),
        input_provenance=("local_value", "declared_input", "local_value"),
        output_value_id="b",
        output_typespec={"dtype": "f32", "shape": [2]},
    )


def test_an_operand_in_two_slots_is_the_same_object_twice() -> None:
    recorder = Recorder(lower=lambda context: object())
    lower_graph(GRAPH, handlers=recorder.registry)
    first, _, third = recorder.contexts[1].inputs
    assert first is third


def test_a_typespec_that_is_unknown_is_none() -> None:
    recorder = Recorder()
    untyped = gradient(op("d0", "seed", typespec=None), outputs=["d0"])
    lower_derivative_program(untyped, forward_graph=FORWARD, seed_value_ids=["seed"], handlers=recorder.registry)
    assert recorder.contexts[0].output_typespec is None


def test_a_context_is_read_only() -> None:
    recorder = Recorder()
    lower_graph(GRAPH, handlers=recorder.registry)
    context: Any = recorder.contexts[1]
    with pytest.raises(FrozenInstanceError):
        context.node_id = "other"
    with pytest.raises(TypeError):
        context.op_params["axes"] = []
    with pytest.raises(TypeError):
        context.output_typespec["dtype"] = "f64"
    for name in ("input_value_ids", "inputs", "input_provenance"):
        assert isinstance(getattr(context, name), tuple)


def test_a_handler_cannot_reach_the_artifact() -> None:
    def spoil(context: OperationContext) -> str:
        for mapping in (context.op_params, context.output_typespec or {}):
            for value in mapping.values():
                if isinstance(value, list):
                    value.clear()
                if isinstance(value, dict):
                    value["nested"].append(value)
        return "value"

    graph = dag(op("a", "x", axes=[[0], 1], options={"nested": [1]}), op("b", "a", axes=[2]), outputs=["b"])
    before = graph.to_dict()
    lower_graph(graph, handlers=Recorder(lower=spoil).registry)
    assert graph.to_dict() == before


# ------------------------------------------------------------------------------------------------------- exactly once


@given(dags())
def test_every_needed_operation_is_lowered_once_in_the_schedule(graph: TensorGraph) -> None:
    recorder = Recorder()
    lowered = lower_graph(graph, handlers=recorder.registry)
    scheduled = [value.value_id for value in lowered.dependencies.local_values]
    assert [context.output_value_id for context in recorder.contexts] == scheduled
    assert [operation.output_value_id for operation in lowered.operations] == scheduled
    assert set(lowered.values) == {value.value_id for value in lowered.dependencies.dependencies}


@given(dags())
def test_the_artifact_is_as_it_was(graph: TensorGraph) -> None:
    before = graph.to_dict()
    lower_graph(graph, handlers=Recorder().registry)
    assert graph.to_dict() == before


# ------------------------------------------------------------------------------------------------------------- opaque


def test_target_values_are_never_looked_into() -> None:
    recorder = Recorder(lower=lambda context: Opaque())
    lowered = lower_graph(GRAPH, handlers=recorder.registry, bind_input=lambda dependency: Opaque())
    assert {type(value) for value in lowered.values.values()} == {Opaque}
    assert recorder.contexts[1].inputs[0] is recorder.contexts[1].inputs[2] is lowered.values["a"]
    assert lowered.output_values[0] is lowered.operations[1].value


@pytest.mark.parametrize("false", [0, False, "", (), [], {}])
def test_a_false_value_is_a_value(false: Any) -> None:
    lowered = lower_graph(
        GRAPH, handlers=Recorder(lower=lambda context: false).registry, bind_input=lambda dependency: false
    )
    assert all(value is false for value in lowered.values.values())


# --------------------------------------------------------------------------------------------------------------- size


@pytest.mark.parametrize(("make", "size"), [(chain, 1200), (chain, 100_000), (fan_in, 100_000), (fan_out, 100_000)])
def test_long_and_wide_graphs_are_lowered(make: Callable[[int], TensorGraph], size: int) -> None:
    graph = make(size)
    lowered = lower_graph(graph, handlers=counting(AnyOperator))
    assert len(lowered.operations) == len(graph.nodes)
