"""An artifact ready to be evaluated: typed, in schedule order, and then with an int for every symbol."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from tinychain.autodiff.dependencies import analyze_graph
from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.types import Dim, TensorType, is_sequence, resolve_shape
from tinychain.autodiff.walks import declared_specs


class UndefinedError(Exception):
    """A node has no value at this point of the field, as it divides by zero there."""


class Step(NamedTuple):
    """One node with ints for symbols in its params, and the values that nothing reads after it."""

    node: TensorNodeRecord
    op_params: Mapping[str, Any]
    dead: tuple[str, ...]


class Plan(NamedTuple):
    """What to compute, in order. `types` and `shapes` hold every value that is read or computed."""

    steps: list[Step]
    inputs: dict[str, TensorType]
    outputs: list[str]
    types: dict[str, TensorType]
    shapes: dict[str, tuple[int, ...]]

    def run(
        self,
        inputs: Mapping[str, Any],
        compute: Callable[[Step, list[Any]], Any],
        observe: Callable[[str, Any], None] | None = None,
    ) -> list[Any]:
        """The outputs, by `compute(step, operands)`; `observe` sees the value of every node.

        Another exception of `compute` than AutodiffError and UndefinedError becomes invalid_verification.
        """
        values = {value_id: inputs[value_id] for value_id in self.inputs}
        for step in self.steps:
            node = step.node
            try:
                value = compute(step, [values[operand] for operand in node.input_value_ids])
            except (AutodiffError, UndefinedError):
                raise
            except Exception as error:
                where = f"node {quote(node.node_id)} ({node.operator.name})"
                raise AutodiffError("invalid_verification", f"{where} cannot be computed: {describe(error)}") from error
            values[node.output_value_id] = value
            if observe is not None:
                observe(node.output_value_id, value)
            for value_id in step.dead:
                del values[value_id]
        return [values[output] for output in self.outputs]


class Typed:
    """A graph whose nodes are in schedule order and agree with their operators' type rules.

    Raises what `analyze_graph_dependencies` raises, and what an operator's rule says of a node.
    """

    def __init__(self, graph: TensorGraph) -> None:
        self._graph = graph
        analysis, self.nodes = analyze_graph(graph, None)
        self.outputs = list(graph.outputs)
        emit = Emitter(specs=declared_specs(graph), mint_value=mint("v", ()), mint_node=mint("n", ()))
        for node in self.nodes:
            emit.check(node)
        self.symbols = emit.symbols
        self.types = {value.value_id: _known(emit, value.value_id) for value in analysis.dependencies}
        self.inputs = {value.value_id: self.types[value.value_id] for value in analysis.required_inputs}

    def free_symbols(self) -> list[str]:
        """The symbols that nothing in the graph binds, in order of appearance."""
        dims = dict.fromkeys(dim for type_ in dict.fromkeys(self.types.values()) for dim in type_.shape)
        return [dim for dim in dims if isinstance(dim, str) and dim not in self.symbols]

    def showing(self, value_ids: Container[str]) -> Typed:
        """One that also computes those of these values that no output needs, if it can from the same inputs."""
        unneeded = [node.output_value_id for node in self._graph.nodes if node.output_value_id not in self.types]
        outputs = [*self.outputs, *[value_id for value_id in unneeded if value_id in value_ids]]
        with suppress(AutodiffError):  # nobody has judged what no output needs
            shown = Typed(replace(self._graph, outputs=outputs))
            if shown.inputs.keys() <= self.inputs.keys():
                return shown
        return self

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """The graph at these sizes of its symbols."""
        shapes: dict[tuple[Dim, ...], tuple[int, ...]] = {}
        for type_ in dict.fromkeys(self.types.values()):
            shapes[type_.shape] = resolve_shape(type_.shape, sizes, label=f"type {type_}")
        return Plan(
            steps=self._steps(sizes),
            inputs=self.inputs,
            outputs=self.outputs,
            types=self.types,
            shapes={value_id: shapes[type_.shape] for value_id, type_ in self.types.items()},
        )

    def _steps(self, sizes: Mapping[str, int]) -> list[Step]:
        live = set(self.outputs)
        steps = []
        for node in reversed(self.nodes):
            read = dict.fromkeys(node.input_value_ids)
            steps.append(Step(node, _resolved(node.op_params, sizes), tuple([v for v in read if v not in live])))
            live.update(read)
        steps.reverse()
        return steps


def _known(emit: Emitter, value_id: str) -> TensorType:
    type_ = emit.type(value_id)
    assert type_ is not None  # the analysis refuses a value without a complete typespec
    return type_


def _resolved(op_params: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    if not sizes or not op_params:
        return op_params
    return {key: _resolve(value, sizes) if is_sequence(value) else value for key, value in op_params.items()}


def _resolve(dims: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    return [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
