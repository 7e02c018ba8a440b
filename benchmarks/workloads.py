"""The graphs that the stages are measured on, written once for Tensors and JAX arrays alike, and the stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tinychain.autodiff import (
    DerivativeProgram,
    OperationContext,
    OperationHandlerRegistry,
    TensorGraph,
    TensorGraphBuilder,
    TensorOperator,
    analyze_graph_dependencies,
    expand_mean_derivative_program,
    expand_mean_graph,
    generate,
    lower_graph,
)
from tinychain.autodiff.operators import OPERATORS

SIDE: Final = 2


def chain(x: Any, y: Any, nodes: int) -> Any:
    """One long chain: each product is the operand of the next."""
    for _ in range(nodes - 1):
        x = x * y
    return x.mean()


def fan_in(x: Any, y: Any, nodes: int) -> Any:
    """Many independent terms of one value: x has `nodes / 2` consumers, so as many contributions to its gradient."""
    total = x * y
    for _ in range(nodes // 2 - 1):
        total = total + x * y
    return total.mean()


def means(x: Any, y: Any, nodes: int) -> Any:
    """A chain in which every eighth operation is a mean, so that the expansion has work to do."""
    for index in range(nodes - 1):
        x = x.mean(keepdims=True) if index % 8 == 6 else x * y
    return x.mean()


WORKLOADS: Final = {"chain": chain, "fan-in": fan_in, "means": means}


class Forget:
    """Lowers any operator of one class to nothing but its result's id, so that only the library's time is measured."""

    def __init__(self, operator_type: type[TensorOperator]) -> None:
        self.operator_type = operator_type

    def lower(self, context: OperationContext) -> str:
        return context.output_value_id


HANDLERS: Final = OperationHandlerRegistry()
for _operator_type in OPERATORS:
    HANDLERS.register(Forget(_operator_type))


def trace(workload: Callable[[Any, Any, int], Any], nodes: int) -> TensorGraph:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=(SIDE, SIDE))
        y = builder.input("y", dtype="f32", shape=(SIDE, SIDE))
        loss = workload(x, y, nodes)
    return builder.build(outputs=loss)


def differentiate(graph: TensorGraph) -> DerivativeProgram:
    return generate(graph, graph.outputs[0], [graph.inputs[0][0]], "seed")


def stages(workload: Callable[[Any, Any, int], Any], nodes: int) -> Mapping[str, tuple[Callable[[], object], int]]:
    """Each stage by name: what to run, and how many nodes it is given."""
    graph = trace(workload, nodes)
    program = differentiate(graph)
    forward, both = len(graph.nodes), len(graph.nodes) + len(program.nodes)
    return {
        "trace": (lambda: trace(workload, nodes), forward),
        "generate": (lambda: differentiate(graph), forward),
        "expand": (lambda: (expand_mean_graph(graph), expand_mean_derivative_program(program)), both),
        "analyse": (lambda: analyze_graph_dependencies(graph), forward),
        "lower": (lambda: lower_graph(graph, handlers=HANDLERS), forward),
    }
