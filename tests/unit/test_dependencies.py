"""What a selection needs: the groups and their order, origins, metadata, and what each of these refuses."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given

from analysed import FORWARD, PROGRAM, derivative, ids, refused
from by_hand import OBJECT
from dags import chain, dag, dags, gradient, op
from tinychain.autodiff.dependencies import (
    DEPENDENCY_PROVENANCE_DECLARED_INPUT,
    DEPENDENCY_PROVENANCE_FORWARD_CAPTURE,
    DEPENDENCY_PROVENANCE_LOCAL_VALUE,
    DEPENDENCY_PROVENANCE_ORDER,
    DEPENDENCY_PROVENANCE_SEED_INPUT,
    DependencyAnalysis,
    ValueDependency,
    analyze_graph_dependencies,
)
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph

F64 = {"dtype": "f64", "shape": ["N", 3]}


# ------------------------------------------------------------------------------------------------------------ records


def test_the_provenances_and_their_order() -> None:
    assert DEPENDENCY_PROVENANCE_ORDER == ("declared_input", "seed_input", "forward_capture", "local_value")
    assert DEPENDENCY_PROVENANCE_ORDER == (
        DEPENDENCY_PROVENANCE_DECLARED_INPUT,
        DEPENDENCY_PROVENANCE_SEED_INPUT,
        DEPENDENCY_PROVENANCE_FORWARD_CAPTURE,
        DEPENDENCY_PROVENANCE_LOCAL_VALUE,
    )


def test_an_analysis_groups_every_needed_value() -> None:
    analysis = derivative()
    assert analysis == DependencyAnalysis(
        selected_outputs=("d1",),
        dependencies=(
            ValueDependency("x", "declared_input", "f32", (2,)),
            ValueDependency("seed", "seed_input", "f32", (2,)),
            ValueDependency("a", "forward_capture", "f32", (2,)),
            ValueDependency("d0", "local_value", "f32", (2,)),
            ValueDependency("d1", "local_value", "f32", (2,)),
        ),
    )
    assert ids(analysis.declared_inputs) == ["x"]
    assert ids(analysis.seed_inputs) == ["seed"]
    assert ids(analysis.forward_captures) == ["a"]
    assert ids(analysis.local_values) == ["d0", "d1"]
    assert ids(analysis.required_inputs) == ["x", "seed", "a"]
    assert analysis.with_provenance("seed_input") == analysis.seed_inputs


def test_an_analysis_is_plain_data() -> None:
    analysis = analyze_graph_dependencies(dag(op("a", "x"), outputs=["a"]))
    assert analysis.to_dict() == {
        "selected_outputs": ["a"],
        "dependencies": [
            {"value_id": "x", "provenance": "declared_input", "dtype": "f32", "shape": [2]},
            {"value_id": "a", "provenance": "local_value", "dtype": "f32", "shape": [2]},
        ],
    }


@given(dags())
def test_the_groups_split_the_dependencies(forward: TensorGraph) -> None:
    analysis = analyze_graph_dependencies(forward)
    groups = [analysis.with_provenance(provenance) for provenance in DEPENDENCY_PROVENANCE_ORDER]
    assert sum(groups, ()) == analysis.dependencies
    assert len(set(ids(analysis.dependencies))) == len(analysis.dependencies)


# ------------------------------------------------------------------------------------------------------------ outputs


def test_the_default_outputs_are_the_artifacts_own() -> None:
    assert analyze_graph_dependencies(FORWARD).selected_outputs == ("loss",)
    assert derivative().selected_outputs == ("d1",)


def test_only_what_the_selection_needs_is_listed() -> None:
    analysis = analyze_graph_dependencies(FORWARD, outputs=["a"])
    assert ids(analysis.dependencies) == ["x", "a"]


def test_a_repeated_output_is_selected_once() -> None:
    assert analyze_graph_dependencies(FORWARD, outputs=("b", "a", "b")).selected_outputs == ("b", "a")


def test_a_declared_input_may_be_selected() -> None:
    analysis = analyze_graph_dependencies(FORWARD, outputs=["y"])
    assert analysis.dependencies == (ValueDependency("y", "declared_input", "f32", (2,)),)


@pytest.mark.parametrize(
    ("value_id", "provenance"), [("x", "declared_input"), ("seed", "seed_input"), ("b", "forward_capture")]
)
def test_a_derivative_analysis_may_select_any_free_value(value_id: str, provenance: str) -> None:
    (only,) = derivative(outputs=[value_id]).dependencies
    assert (only.value_id, only.provenance) == (value_id, provenance)


def test_a_gradient_that_is_the_seed_needs_no_node() -> None:
    assert ids(derivative(gradient(outputs=["seed"])).dependencies) == ["seed"]


@pytest.mark.parametrize("bad", ["loss", b"loss", 7, {"loss"}, iter(["loss"]), OBJECT])
def test_outputs_that_are_no_list_are_refused(bad: Any) -> None:
    refused(
        "invalid_selected_output", analyze_graph_dependencies, FORWARD, outputs=bad, saying="outputs must be a list"
    )
    refused("invalid_selected_output", derivative, outputs=bad, saying="outputs must be a list")


@pytest.mark.parametrize("bad", ["", None, 3, b"loss", ["loss"]])
def test_an_output_that_is_no_id_is_refused(bad: Any) -> None:
    refused(
        "invalid_selected_output", analyze_graph_dependencies, FORWARD, outputs=["loss", bad], saying="non-empty str"
    )
    refused("invalid_selected_output", derivative, outputs=["d1", bad], saying="non-empty str")


def test_an_empty_selection_is_refused() -> None:
    refused("invalid_selected_output", analyze_graph_dependencies, FORWARD, outputs=[], saying="at least one")
    refused("invalid_selected_output", analyze_graph_dependencies, dag(outputs=[]), saying="at least one")
    refused("invalid_selected_output", derivative, gradient(outputs=[]), saying="at least one")


def test_an_unknown_output_is_refused_by_name() -> None:
    refused("invalid_selected_output", analyze_graph_dependencies, FORWARD, outputs=["a", "nix"], saying="'nix'")
    refused("invalid_selected_output", derivative, outputs=["d1", "nix"], saying="'nix'")


def test_a_program_with_a_none_gradient_is_refused() -> None:
    refused("invalid_selected_output", derivative, gradient(outputs=[None]), saying="None")


# -------------------------------------------------------------------------------------------------------------- seeds


def test_seeds_come_in_the_callers_order_and_once() -> None:
    reads = gradient(op("d0", "s1", "s2", "s3"), outputs=["d0"])
    analysis = derivative(reads, seeds=["s3", "s1", "s2", "s3"])
    assert ids(analysis.seed_inputs) == ["s3", "s1", "s2"]


def test_a_seed_that_nothing_reads_is_no_dependency() -> None:
    assert ids(derivative(seeds=["seed", "other"]).seed_inputs) == ["seed"]


@pytest.mark.parametrize("bad", ["seed", None, {"seed"}, 3, [""], [None], ["seed", 3]])
def test_bad_seeds_are_refused(bad: Any) -> None:
    refused("invalid_selected_output", derivative, seeds=bad, saying="seed_value_ids must")


# -------------------------------------------------------------------------------------------------------------- order


def test_inputs_come_in_declaration_order() -> None:
    reads = dag(op("a", "z", "y", "x"), inputs=["x", "y", "z"], outputs=["a"])
    assert ids(analyze_graph_dependencies(reads).declared_inputs) == ["x", "y", "z"]


def test_captures_follow_the_whole_forward_graph_and_not_the_reads() -> None:
    # "late" is reached from the outputs last and scheduled first; "unread" is not reached from them at all.
    forward = dag(
        op("unread", "x"), op("c0", "x"), op("late", "x"), op("c1", "c0"), op("out", "late", "c1"), outputs=["out"]
    )
    reads = gradient(op("d0", "unread", "out", "late", "c1", "c0"), outputs=["d0"])
    whole = analyze_graph_dependencies(forward, outputs=["out", "unread"])
    assert ids(derivative(reads, forward).forward_captures) == ids(whole.local_values)
    assert set(ids(whole.local_values)) == {"unread", "out", "late", "c1", "c0"}


# -------------------------------------------------------------------------------------------------- producers, origins


def test_two_producers_of_a_value_are_ambiguous() -> None:
    twice = dag(op("a", "x"), op("a", "x", node_id="second"), outputs=["a"])
    saying = "'a' has two producers: nodes 'n_a' and 'second'"
    refused("ambiguous_producer", analyze_graph_dependencies, twice, saying=saying)
    refused("ambiguous_producer", derivative, forward=twice, saying=saying)
    refused("ambiguous_producer", derivative, gradient(*twice.nodes, outputs=["a"]), saying=saying)


def test_a_record_that_is_listed_twice_is_ambiguous_too() -> None:
    node = op("a", "x")
    refused("ambiguous_producer", analyze_graph_dependencies, dag(node, node, outputs=["a"]), saying="two producers")


@pytest.mark.parametrize(
    ("program", "forward", "seeds", "both"),
    [
        pytest.param(PROGRAM, FORWARD, ["x"], "'x' is a seed_input and already a declared_input", id="seed, input"),
        pytest.param(PROGRAM, FORWARD, ["a"], "'a' is a forward_capture and already a seed_input", id="seed, capture"),
        pytest.param(PROGRAM, FORWARD, ["d0"], "'d0' is a local_value and already a seed_input", id="seed, local"),
        pytest.param(
            PROGRAM,
            dag(op("x", "y"), inputs=["x", "y"], outputs=["x"]),
            ["seed"],
            "'x' is a forward_capture and already a declared_input",
            id="input, forward",
        ),
        pytest.param(
            gradient(op("a", "x"), outputs=["a"]),
            FORWARD,
            ["seed"],
            "'a' is a local_value and already a forward_capture",
            id="forward, local",
        ),
        pytest.param(
            gradient(op("y", "x"), outputs=["y"]),
            FORWARD,
            ["seed"],
            "'y' is a local_value and already a declared_input",
            id="input, local",
        ),
        pytest.param(
            PROGRAM,
            dag(op("a", "x"), inputs=["x", "x"], outputs=["a"]),
            ["seed"],
            "'x' is a declared_input and already a declared_input",
            id="input twice",
        ),
    ],
)
def test_a_value_has_one_origin(program: DerivativeProgram, forward: TensorGraph, seeds: list[str], both: str) -> None:
    refused("ambiguous_producer", derivative, program, forward, seeds, saying=both)


def test_a_graph_value_has_one_origin() -> None:
    produced = dag(op("x", "y"), inputs=["x", "y"], outputs=["x"])
    saying = "'x' is a local_value and already a declared_input"
    refused("ambiguous_producer", analyze_graph_dependencies, produced, saying=saying)
    declared_twice = dag(op("a", "x"), inputs=["x", "x"], outputs=["a"])
    refused("ambiguous_producer", analyze_graph_dependencies, declared_twice, saying="'x' is a declared_input")


def test_a_free_value_without_origin_is_missing() -> None:
    dangling = dag(op("m", "x", "nowhere"), outputs=["m"])
    saying = r"node 'n_m' \(AnyOperator\) reads 'nowhere'"
    refused("missing_dependency", analyze_graph_dependencies, dangling, saying=saying)
    refused("missing_dependency", derivative, gradient(*dangling.nodes, outputs=["m"]), saying=saying)


def test_a_selected_value_that_is_only_read_is_missing() -> None:
    dangling = dag(op("a", "nowhere"), op("b", "x"), outputs=["b"])
    refused("missing_dependency", analyze_graph_dependencies, dangling, outputs=["nowhere"], saying="'nowhere'")
    assert ids(analyze_graph_dependencies(dangling).dependencies) == ["x", "b"]


# ------------------------------------------------------------------------------------------------------------- cycles


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([op("a", "a")], id="itself"),
        pytest.param([op("a", "b"), op("b", "a")], id="two"),
        pytest.param([op("a", "x", "c", "x"), op("b", "a"), op("c", "b", "x")], id="three"),
    ],
)
def test_a_reachable_cycle_is_refused(nodes: list[Any]) -> None:
    refused("malformed_derivative_ir", analyze_graph_dependencies, dag(*nodes, outputs=["a"]), saying="cycle: value '")
    refused("malformed_derivative_ir", derivative, gradient(*nodes, outputs=["a"]), dag(outputs=[]), saying="cycle")


def test_a_cycle_out_of_reach_is_not_judged() -> None:
    graph = dag(op("a", "b"), op("b", "a"), op("c", "x"), outputs=["c"])
    assert ids(analyze_graph_dependencies(graph).dependencies) == ["x", "c"]


def test_a_forward_cycle_is_reported_only_when_something_is_captured() -> None:
    forward = dag(op("a", "x"), op("loop", "pool"), op("pool", "loop"), outputs=["a"])
    assert ids(derivative(gradient(op("d0", "seed", "x"), outputs=["d0"]), forward).required_inputs) == ["x", "seed"]
    refused("malformed_derivative_ir", derivative, PROGRAM, forward, saying="cycle")


# ----------------------------------------------------------------------------------------------------------- metadata


def test_a_symbolic_shape_and_odd_ints_are_read() -> None:
    class Size(IntEnum):
        TWO = 2

    spec = {"dtype": "f64", "shape": ("N", Size.TWO), "layout": "row"}
    (x,) = analyze_graph_dependencies(dag(outputs=["x"], inputs=[("x", spec)])).dependencies
    assert (x.dtype, x.shape) == ("f64", ("N", 2))
    assert x.shape is not None
    assert type(x.shape[1]) is int


@pytest.mark.parametrize(
    ("spec", "category"),
    [
        (None, "missing_dtype_metadata"),
        ({}, "missing_dtype_metadata"),
        ("f32", "missing_dtype_metadata"),
        ({"shape": [2]}, "missing_dtype_metadata"),
        ({"dtype": None, "shape": "bad"}, "missing_dtype_metadata"),
        ({"dtype": "f32"}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": "N"}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": [True]}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": [-1]}, "missing_shape_metadata"),
        ({"dtype": "f32", "shape": ["not an identifier"]}, "missing_shape_metadata"),
    ],
)
def test_a_graph_analysis_demands_complete_metadata(spec: Any, category: str) -> None:
    of_input = dag(op("a", "w"), inputs=[("w", spec)], outputs=["a"])
    of_node = dag(op("w", "x", typespec=spec), op("a", "w"), outputs=["a"])
    refused(category, analyze_graph_dependencies, of_input, saying="value 'w'")
    refused(category, analyze_graph_dependencies, of_node, saying="value 'w'")


def test_metadata_of_an_unread_value_is_not_judged() -> None:
    graph = dag(op("a", "x"), op("b", "x", typespec=None), inputs=["x", ("y", None)], outputs=["a"])
    assert ids(analyze_graph_dependencies(graph).dependencies) == ["x", "a"]


def test_a_derivative_analysis_reports_unknown_metadata_as_none() -> None:
    untyped = gradient(op("d0", "seed", "x", typespec=None), outputs=["d0"])
    analysis = derivative(untyped, dag(inputs=[("x", None)], outputs=[]))
    assert [(value.dtype, value.shape) for value in analysis.dependencies] == [(None, None)] * 3


@pytest.mark.parametrize(
    ("spec", "category"), [({"shape": [2]}, "missing_dtype_metadata"), ({"dtype": "f32"}, "missing_shape_metadata")]
)
def test_a_derivative_analysis_refuses_half_known_metadata(spec: Any, category: str) -> None:
    of_table = gradient(op("d0", "seed"), outputs=["d0"], specs={"seed": spec})
    of_node = gradient(op("seed2", "seed", typespec=spec), outputs=["seed2"])
    refused(category, derivative, of_table, saying="value 'seed'")
    refused(category, derivative, of_node, saying="value 'seed2'")


def test_the_programs_table_comes_before_every_other_source() -> None:
    program = gradient(op("d0", "seed", "a", "x"), outputs=["d0"], specs=dict.fromkeys(["d0", "a", "x", "seed"], F64))
    assert {(value.dtype, value.shape) for value in derivative(program).dependencies} == {("f64", ("N", 3))}


def test_without_a_table_each_value_has_its_own_artifacts_type() -> None:
    forward = dag(op("a", "x", typespec=F64), inputs=["x"], outputs=["a"])
    program = gradient(op("d0", "a", "x", typespec=F64), outputs=["d0"], specs={"a": None})
    found = {value.value_id: value.dtype for value in derivative(program, forward).dependencies}
    assert found == {"x": "f32", "a": "f64", "d0": "f64"}


def test_a_table_that_makes_its_typespecs_anew_is_read_right() -> None:
    class Fresh(UserDict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return {"dtype": "f32", "shape": [int(key[1:])]}

    values = [f"d{i}" for i in range(300)]
    program = gradient(*[op(value, typespec=None) for value in values], outputs=values)
    table: Any = Fresh.fromkeys(values)
    found = derivative(replace(program, value_typespecs=table)).dependencies
    assert {value.value_id: value.shape for value in found} == {f"d{i}": (i,) for i in range(300)}


# --------------------------------------------------------------------------------------------------------------- size


def test_long_and_wide_derivatives_are_analysed() -> None:
    length = 100_000
    forward = chain(length)
    values = [node.output_value_id for node in forward.nodes]
    steps = [op(f"d{i}", f"d{i - 1}" if i else "seed", value) for i, value in enumerate(reversed(values))]
    analysis = derivative(gradient(*steps, outputs=[f"d{length - 1}"]), forward)
    assert ids(analysis.forward_captures) == values
    assert ids(analysis.local_values) == [f"d{i}" for i in range(length)]
