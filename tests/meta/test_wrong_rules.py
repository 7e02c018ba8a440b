"""Wrong rules that a legalization is given: it believes them, and both verifiers find each one."""

from __future__ import annotations

from typing import Any

import pytest

from meta import wrong_rules
from planting import KINDS
from steps import compiled
from tinychain.autodiff.backends.numpy import rank2_registry
from tinychain.autodiff.expansion import Legalize, Limits, Target, legalize_detailed, ready_target
from tinychain.autodiff.expansion.planner import Rules
from tinychain.autodiff.graph import ExpansionRule, TensorGraph, TensorOperator
from tinychain.autodiff.operators import (
    BroadcastOperator,
    ConstantOperator,
    DivOperator,
    MatmulOperator,
    MeanOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.verify import EquivalenceResult, verify_equivalent, verify_step
from verifying import Function, applied, traced

MACHINE = ready_target("add-mul-matmul-rank2")


def row(*numbers: float) -> Tensor:
    return applied(ConstantOperator, values=list(numbers), dtype="f64", shape=[1, len(numbers)])


#: A right rule is a few units in the last place off at these points, a wrong one by many more.
WELL_CONDITIONED = ["normal", "tiny", "huge"]
FAR_OFF = 1e6

WRONG: list[tuple[ExpansionRule, type[TensorOperator], Function, list[list[int | str]]]] = [
    (wrong_rules.off_by_a_factor, MeanOperator, lambda x: x.mean(), [[4, 4]]),
    (wrong_rules.off_by_one_row, MeanOperator, lambda x: x.mean(), [[4, 4]]),
    (wrong_rules.over_the_other_axis, SumOperator, lambda x: x.sum(axes=[0]), [[4, 4]]),
    (wrong_rules.over_the_wrong_group, SumOperator, lambda x: x.sum(axes=[1]), [[4, 4, 4]]),
    (wrong_rules.along_the_other_axis, BroadcastOperator, lambda x: x.broadcast_to([4, 4]), [[4]]),
    (wrong_rules.without_the_second_term, SubOperator, lambda x, y: x - y, [[4, 4], [4, 4]]),
    (wrong_rules.with_the_wrong_sign, SubOperator, lambda x, y: x - y, [[4, 4], [4, 4]]),
    (wrong_rules.not_transposed, TransposeOperator, lambda x: x.T, [[4, 3]]),
    (wrong_rules.by_a_rounded_reciprocal, DivOperator, lambda x: x / 3.0, [[4, 4]]),
    (wrong_rules.by_the_numbers_in_reverse, DivOperator, lambda x: x / row(1.0, 2.0, 4.0, 8.0), [[1, 4]]),
    (wrong_rules.all_by_the_first_matrix, MatmulOperator, lambda x, y: x @ y, [[2, 4, 4], [2, 4, 4]]),
]


def verified(graph: TensorGraph, target: Target, rules: Rules) -> tuple[tuple[str, ...], EquivalenceResult]:
    """The rules that were used, and what both verifiers say of the result."""
    legal = legalize_detailed(graph, target, rules=rules)
    (region,) = legal.regions
    result = verify_equivalent(graph, legal.artifact, regions=legal.regions, points=WELL_CONDITIONED)
    if result.difference is not None:
        assert result.difference.region == region
    return region.rules, result


def worst(result: EquivalenceResult) -> float:
    assert result.numeric is not None
    return max(result.numeric.worst_ulps.values())


@pytest.mark.parametrize(("rule", "operator", "function", "shapes"), WRONG, ids=[case[0].__name__ for case in WRONG])
def test_a_wrong_rule(
    rule: ExpansionRule, operator: type[TensorOperator], function: Function, shapes: list[list[int | str]]
) -> None:
    graph = traced(function, *shapes)
    _, right = verified(graph, MACHINE, {})
    assert right.equivalent
    assert worst(right) < FAR_OFF
    used, wrong = verified(graph, MACHINE, {operator: [rule]})
    assert used[0] == rule.__name__
    assert wrong.difference is not None
    assert worst(wrong) > FAR_OFF


@pytest.mark.parametrize(
    "operator", [wrong_rules.NotReversed, wrong_rules.OfTheWrongOperand, wrong_rules.UntransposedOperand]
)
def test_a_wrong_transpose_by_duals(operator: type[MatmulOperator]) -> None:
    """What an operator says of its transpose is a rule too, and (A B)^T is easily B^T A."""

    def transposed_product(by: type[TensorOperator]) -> TensorGraph:
        return traced(lambda x, y: applied(by, x, y).T, [4, 4], [4, 4])

    target = Target("machine", {**MACHINE.operators, operator: Limits()})
    assert verified(transposed_product(MatmulOperator), target, {})[1].equivalent
    used, wrong = verified(transposed_product(operator), target, {})
    assert used == ("transpose by duals",)
    assert wrong.difference is not None
    assert worst(wrong) > FAR_OFF


def test_a_wrong_rule_in_a_step() -> None:
    def step(**options: Any) -> Any:
        passes = [Legalize(MACHINE, **options)]
        sequences: dict[str, Any] = {f"{kind}_expansions": passes for kind in KINDS}
        return compiled(handlers=rank2_registry(), **sequences)

    assert all(verify_step(step(), points=()).values())
    wrong = verify_step(step(rules={SubOperator: [wrong_rules.without_the_second_term]}), points=())
    assert [name for name, result in wrong.items() if not result] == ["loss", "gradients", "update of w"]
