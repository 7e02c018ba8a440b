"""One exact rule on one node: what it emits, or why it declines, and whether that is the same function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from by_reference import draw, run
from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.graph import Decline, ExpansionRule, TensorGraph, TensorOperator
from tinychain.autodiff.types import TensorType, Typespec, parse_type
from tinychain.autodiff.verify import verify_equivalent

DTYPES = {"f32": np.float32, "f64": np.float64}
TOLERANCES = {"f32": 1e-6, "f64": 1e-12}


class Applied(NamedTuple):
    """A node as a graph of its own, and the region that a rule made of it."""

    before: TensorGraph
    after: TensorGraph

    def names(self) -> list[str]:
        """The route names of the emitted nodes, fills left out."""
        return [name for node in self.after.nodes if (name := node.operator.route_name) != "fill"]

    def flops(self) -> int:
        return sum([operator.flops(*types, **params) or 0 for operator, types, params in forms(self.after)])


def rules_of(operator: type[TensorOperator]) -> dict[str, ExpansionRule]:
    return {getattr(rule, "__name__", ""): rule for rule in operator().expansions}


def apply(
    rule: ExpansionRule, operator: type[TensorOperator], *shapes: Sequence[int | str], dtype: str = "f64", **params: Any
) -> Applied | Decline:
    """What a rule makes of a node whose operands are x0, x1, ...; one that declines has emitted nothing."""
    specs: dict[str, Typespec | None] = {f"x{i}": {"dtype": dtype, "shape": [*shape]} for i, shape in enumerate(shapes)}
    return apply_to(rule, operator, specs, params)


def apply_to(
    rule: ExpansionRule,
    operator: type[TensorOperator],
    specs: Mapping[str, Typespec | None],
    op_params: Mapping[str, Any],
) -> Applied | Decline:
    """The same for operands of these typespecs."""
    emit = Emitter(specs=specs, mint_value=mint("v", ()), mint_node=mint("n", ()))
    emit.emit(operator, list(specs), op_params, "result")
    (node,) = emit.nodes
    before = TensorGraph([node], list(specs.items()), ["result"])
    emit = Emitter(specs=specs, mint_value=mint("v", ()), mint_node=mint("n", ()))
    answer = rule(emit, node)
    if answer is not None:
        assert emit.nodes == []
        assert answer.reason
        return answer
    return Applied(before, TensorGraph(emit.nodes, list(specs.items()), ["result"]))


def region(operator: type[TensorOperator], rule: str, *shapes: Sequence[int | str], **params: Any) -> Applied:
    """The checked region of the rule of this name."""
    answer = apply(rules_of(operator)[rule], operator, *shapes, **params)
    assert isinstance(answer, Applied), answer
    return check(answer)


def reason(operator: type[TensorOperator], rule: str, *shapes: Sequence[int | str], **params: Any) -> str:
    """Why the rule of this name declines."""
    answer = apply(rules_of(operator)[rule], operator, *shapes, **params)
    assert isinstance(answer, Decline), "the rule applies"
    return answer.reason


def check(applied: Applied) -> Applied:
    """The region ends in the node's value and type, and its levels fall; it is the same function."""
    (source,), emitted = applied.before.nodes, applied.after.nodes
    assert [node.output_value_id for node in emitted].count("result") == 1
    assert emitted[-1].output_value_id == "result"
    assert emitted[-1].output_typespec == source.output_typespec
    _check_levels(applied)
    verify_equivalent(applied.before, applied.after, points=(), raise_on_difference=True)
    dtype = parse_type(source.output_typespec, label="result").dtype
    values = {value_id: array.astype(DTYPES[dtype]) for value_id, array in draw(applied.before).items()}
    expected, got = [run(graph, values)["result"] for graph in applied]
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=TOLERANCES[dtype])
    return applied


def regions(operator: type[TensorOperator], *shapes: Sequence[int | str], **params: Any) -> dict[str, Applied]:
    """The regions of all rules that apply, each checked, by the rule's name."""
    answers = {name: apply(rule, operator, *shapes, **params) for name, rule in rules_of(operator).items()}
    return {name: check(answer) for name, answer in answers.items() if isinstance(answer, Applied)}


def forms(graph: TensorGraph) -> list[tuple[TensorOperator, list[TensorType], Mapping[str, Any]]]:
    """Operator, types of the result and the operands, and params of each node."""
    specs = {**dict(graph.inputs), **{node.output_value_id: node.output_typespec for node in graph.nodes}}
    return [
        (
            node.operator,
            [parse_type(specs[value], label=value) for value in (node.output_value_id, *node.input_value_ids)],
            node.op_params,
        )
        for node in graph.nodes
    ]


def _check_levels(applied: Applied) -> None:
    ((level, _),) = _levels(applied.before)
    for emitted, name in _levels(applied.after):
        assert emitted < level, f"{name} has the level {emitted}, not below {level}"


def _levels(graph: TensorGraph) -> list[tuple[int, str]]:
    return [(operator.expansion_level(*types, **params), operator.name) for operator, types, params in forms(graph)]
