"""Pairs of functions as graphs with the same inputs, and what verifying them says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder, get_active_builder
from tinychain.autodiff.verify import EquivalenceResult, verify_equivalent

Function = Callable[..., Any]


def traced(function: Function, *shapes: list[int | str], dtype: str = "f64") -> TensorGraph:
    """The graph of a function of tensors v0, v1, ..., all of which are inputs, used or not."""
    with TensorGraphBuilder() as builder:
        tensors = [builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)]
        result = function(*tensors)
    graph = builder.build(outputs=result)
    return replace(graph, inputs=[(f"v{i}", {"dtype": dtype, "shape": shape}) for i, shape in enumerate(shapes)])


def verified(
    before: Function, after: Function, *shapes: list[int | str], dtype: str = "f64", **options: Any
) -> EquivalenceResult:
    """The exact verdict on two functions; with `points` the numeric one too."""
    pair = [traced(function, *shapes, dtype=dtype) for function in (before, after)]
    return verify_equivalent(*pair, **{"points": (), **options})


def applied(operator: type[TensorOperator], *tensors: Tensor, **op_params: Any) -> Tensor:
    """An operator that tensors have no method for."""
    builder = get_active_builder()
    assert builder is not None
    return builder.apply(operator, tensors, op_params)


def edited(graph: TensorGraph, operator: type[TensorOperator], **changes: Any) -> TensorGraph:
    """The graph with fields changed of the only node of an operator."""
    found = [node for node in graph.nodes if type(node.operator) is operator]
    assert len(found) == 1, f"{len(found)} nodes are {operator.__name__}"
    return replace(graph, nodes=[replace(node, **changes) if node is found[0] else node for node in graph.nodes])


def rescaled(graph: TensorGraph, scale: Callable[[float], float]) -> TensorGraph:
    """The graph with another literal in its only multiplication by one."""

    def changed(node: TensorNodeRecord) -> TensorNodeRecord:
        if type(node.operator) is MulOperator and "right_literal" in node.op_params:
            return replace(node, op_params={"right_literal": scale(node.op_params["right_literal"])})
        return node

    assert [changed(node) == node for node in graph.nodes].count(False) == 1
    return replace(graph, nodes=list(map(changed, graph.nodes)))
