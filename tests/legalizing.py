"""Legalized artifacts judged from outside: do they fit, are they the same function; and machines drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Form, Legalization, Limits, Target, legalize_detailed, ready_target
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
)
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.types import Typespec, parse_type
from tinychain.autodiff.verify import verify_equivalent
from verifying import Function, traced

RANK2 = ready_target("add-mul-matmul-rank2")
ANY_RANK = ready_target("add-mul-matmul")

#: What no program can be made without.
_BASE = (AddOperator, MulOperator, MatmulOperator, ReshapeOperator, FillOperator, ConstantOperator)

limits = st.builds(
    Limits,
    max_rank=st.sampled_from([None, None, 2, 3]),
    broadcasts=st.booleans(),
    right=st.sampled_from(["any", "any", "constant"]),
    max_dim=st.sampled_from([None, None, 12]),
    max_elements=st.sampled_from([None, None, 40]),
)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    """Machines that nearly always add, multiply and matmul, and have some other operators; each with limits."""
    operators = set(draw(st.sets(st.sampled_from(OPERATORS), max_size=6)))
    if draw(st.integers(0, 5)):
        operators.update(_BASE)
    ordered = [operator for operator in OPERATORS if operator in operators]
    return Target("drawn", {operator: draw(limits) if draw(st.booleans()) else Limits() for operator in ordered})


def without(target: Target, *operators: type[TensorOperator]) -> Target:
    """The machine without some of its operators."""
    return Target(target.name, {cls: limits for cls, limits in target.operators.items() if cls not in operators})


def only(*operators: type[TensorOperator]) -> Target:
    """A machine that has these operators without limits."""
    return Target("chip", dict.fromkeys(operators, Limits()))


def legal(function: Function, *shapes: list[int | str], target: Target = RANK2, **options: Any) -> Legalization[Any]:
    """A legalized function of tensors, checked."""
    graph = traced(function, *shapes)
    return checked(graph, legalize_detailed(graph, target, **options), target)


def checked(before: TensorGraph, result: Legalization[TensorGraph], target: Target) -> Legalization[TensorGraph]:
    """The result itself, if it fits the machine, is the same function, and its regions say what was done."""
    assert unfit(result.artifact, target) == []
    assert verify_equivalent(before, result.artifact, points=())
    check_regions(before, result)
    return result


def check_regions(before: TensorGraph | DerivativeProgram, result: Legalization[Any]) -> None:
    """Each new node is in one region, whose sources are gone."""
    old = {node.node_id: node for node in before.nodes}
    new = {node.node_id: node for node in result.artifact.nodes}
    emitted = [node_id for region in result.regions for node_id in region.emitted_node_ids]
    assert emitted == [node_id for node_id in new if node_id not in old]
    sources = [node_id for region in result.regions for node_id in region.source_node_ids]
    assert sources == [node_id for node_id in old if node_id not in new]
    for region in result.regions:
        assert new[region.emitted_node_ids[-1]].output_value_id == region.terminal_value_id
        assert old[region.source_node_ids[0]].output_value_id == region.terminal_value_id
        assert region.rules


def unfit(graph: TensorGraph, target: Target) -> list[str]:
    """The needed nodes that a machine refuses, and why."""
    constants = {node.output_value_id for node in graph.nodes if not node.input_value_ids}
    specs = {**dict(graph.inputs), **{node.output_value_id: node.output_typespec for node in graph.nodes}}
    needed = needed_values(graph)
    refusals = []
    for node in graph.nodes:
        if node.output_value_id in needed:
            values = (node.output_value_id, *node.input_value_ids)
            result, *operands = [parse_type(specs[value], label=value) for value in values]
            flags = tuple([value in constants for value in node.input_value_ids])
            reason = target.refusal(Form(node.operator, node.op_params, tuple(operands), result, flags))
            if reason is not None:
                refusals.append(reason)
    return refusals


def needed_values(graph: TensorGraph) -> set[str]:
    producers = {node.output_value_id: node for node in graph.nodes}
    needed: set[str] = set()
    pending = list(graph.outputs)
    while pending:
        value = pending.pop()
        if value not in needed:
            needed.add(value)
            pending += producers[value].input_value_ids if value in producers else []
    return needed


def refusal(artifact: Any, target: Target, **options: Any) -> str:
    """The message of a legalization that has to be refused."""
    with pytest.raises(AutodiffError) as caught:
        legalize_detailed(artifact, target, **options)
    assert caught.value.category == "not_legalizable"
    return caught.value.message


def broken(artifact: Any, target: Target, rules: Any) -> str:
    """The message about a rule that breaks its promises."""
    with pytest.raises(AutodiffError) as caught:
        legalize_detailed(artifact, target, rules=rules)
    assert caught.value.category == "expansion_contract_violation"
    return caught.value.message


def names(graph: TensorGraph | DerivativeProgram) -> list[str]:
    return [node.operator.route_name for node in graph.nodes]


def renamed(graph: TensorGraph, ids: Mapping[str, str]) -> TensorGraph:
    """The graph with other value ids."""

    def to(value_ids: Sequence[str]) -> list[str]:
        return [ids.get(value_id, value_id) for value_id in value_ids]

    nodes: list[TensorNodeRecord] = []
    for node in graph.nodes:
        (output,) = to([node.output_value_id])
        nodes.append(replace(node, output_value_id=output, input_value_ids=to(node.input_value_ids)))
    inputs: list[tuple[str, Typespec | None]] = [(ids.get(value_id, value_id), spec) for value_id, spec in graph.inputs]
    return replace(graph, nodes=nodes, inputs=inputs, outputs=to(graph.outputs))


def mean_square(x: Tensor, y: Tensor) -> Tensor:
    """A function of two tensors of one shape that the small machines lack half of."""
    return ((x - y) * (x - y)).mean()
