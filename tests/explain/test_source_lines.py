"""The line of the user's code that made a node."""

from __future__ import annotations

import inspect
import linecache
from typing import Any

import pytest

from by_hand import producing
from tinychain.autodiff.expansion.targets import ADD_MUL_MATMUL
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.inspection import explain
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.tracing import SourceLine, Tensor, TensorGraphBuilder
from tinychain.autodiff.training import sgd_update


def model(x: Tensor) -> Tensor:
    scaled = x * 2.0
    shifted = 1.0 - scaled
    return shifted.sum()


def trace(*, record_lines: bool) -> tuple[TensorGraphBuilder, Any]:
    with TensorGraphBuilder(record_lines=record_lines) as builder:
        result = model(builder.input("x", dtype="f64", shape=(3,)))
    return builder, builder.build(outputs=result)


def test_each_node_has_the_line_that_made_it() -> None:
    builder, graph = trace(record_lines=True)
    first = inspect.getsourcelines(model)[1]
    assert [node.operator.route_name for node in graph.nodes] == ["mul", "mul", "sub", "sum"]
    lines = [builder.source_lines[node.node_id] for node in graph.nodes]
    assert [line.line - first for line in lines[:3]] == [1, 2, 2]  # one written operation may make two nodes
    assert {line.file for line in lines} == {__file__}
    assert linecache.getline(*lines[0]).strip() == "scaled = x * 2.0"
    assert str(lines[0]) == f"{__file__}:{first + 1}"


def test_nothing_is_recorded_unless_asked() -> None:
    assert trace(record_lines=False)[0].source_lines == {}


def test_the_graph_is_the_same() -> None:
    with_lines, without = trace(record_lines=True)[1], trace(record_lines=False)[1]
    assert with_lines == without
    assert content_hash(with_lines) == content_hash(without)


def test_the_lines_are_a_copy() -> None:
    builder, _ = trace(record_lines=True)
    builder.source_lines.clear()
    assert len(builder.source_lines) == 4


def test_a_node_that_the_package_makes_has_the_line_that_asked_for_it() -> None:
    with TensorGraphBuilder(record_lines=True) as builder:
        w, g = [builder.input(name, dtype="f64", shape=(3,)) for name in ("w", "g")]
        sgd_update(parameter=w, gradient=g, learning_rate=builder.input("rate", dtype="f64", shape=()))
    assert {linecache.getline(*line).strip()[:10] for line in builder.source_lines.values()} == {"sgd_update"}


def test_a_node_built_by_hand_has_the_line_that_recorded_it() -> None:
    with TensorGraphBuilder(record_lines=True) as builder:
        builder.record(producing("z", AddOperator(), "x", "x"))
    assert linecache.getline(*builder.source_lines["n_z"]).strip().startswith("builder.record(")


def test_an_operation_that_fails_leaves_no_line() -> None:
    with TensorGraphBuilder(record_lines=True) as builder:
        x = builder.input("x", dtype="f64", shape=(3,))
        with pytest.raises(Exception, match="broadcast"):
            x + builder.input("y", dtype="f64", shape=(2,))
    assert builder.source_lines == {}


def test_an_explanation_gives_them() -> None:
    builder, graph = trace(record_lines=True)
    explanation = explain(graph, ADD_MUL_MATMUL, lines=builder.source_lines)
    assert [operation.line for operation in explanation.operations] == list(builder.source_lines.values())
    assert explain(graph, ADD_MUL_MATMUL).operations[0].line is None


def test_lines_are_recorded_or_not() -> None:
    with pytest.raises(TypeError, match="record_lines must be a bool, got 1"):
        TensorGraphBuilder(record_lines=1)  # type: ignore[arg-type]


def test_code_that_has_no_module_name() -> None:
    with TensorGraphBuilder(record_lines=True) as builder:
        x = builder.input("x", dtype="f64", shape=(3,))
        exec(compile("\nx * x", "a cell", "exec"), {"x": x, "__name__": None})
    assert list(builder.source_lines.values()) == [SourceLine("a cell", 2)]
