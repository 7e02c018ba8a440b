"""Divisions by numbers that are written in the program: multiplications with constants of their reciprocals."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from legalizing import RANK2, checked, legal, names, refusal, without
from steps import compiled, spec
from tinychain.autodiff.backends.numpy import rank2_registry
from tinychain.autodiff.expansion import Legalize, Limits, Target, legalize_detailed
from tinychain.autodiff.expansion.dividing import Numbers
from tinychain.autodiff.operators import ConstantOperator, DivOperator, FillOperator, MulOperator
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.verify import verify_step
from verifying import applied, traced


def written(values: Sequence[float], *shape: int) -> Tensor:
    return applied(ConstantOperator, values=list(values), dtype="f64", shape=list(shape))


def filled(number: float, *shape: int) -> Tensor:
    return applied(FillOperator, fill=number, dtype="f64", shape=list(shape))


def test_each_number_becomes_its_reciprocal() -> None:
    result = legal(lambda x: x / written([4.0, -3.0, 0.5, 1e10], 2, 2), [2, 2])
    assert names(result.artifact) == ["constant", "constant", "mul"]
    assert result.artifact.nodes[1].op_params["values"] == [0.25, -1 / 3, 2.0, 1e-10]
    assert result.regions[0].rules == ("division by reciprocals",)


def test_a_number_without_a_literal_for_its_reciprocal_takes_two_constants() -> None:
    result = legal(lambda x: x / written([4.0, 3.102795988181382], 1, 2), [1, 2])
    assert names(result.artifact) == ["constant", "constant", "mul", "constant", "mul"]
    _, whole, rest = [node.op_params["values"] for node in result.artifact.nodes if "values" in node.op_params]
    assert (whole[0], rest[0]) == (0.25, 1.0)
    assert whole[1] * rest[1] == pytest.approx(1 / 3.102795988181382)


@pytest.mark.parametrize(("x", "shape"), [([3, 2], [2]), ([2], [2, 1]), ([4, 1, 2], [3, 1]), ([], [2, 1])])
def test_either_side_may_be_stretched(x: list[int | str], shape: list[int]) -> None:
    numbers = [float(i + 2) for i in range(max(shape))]
    legal(lambda t: t / written(numbers, *shape), x)
    legal(lambda t: t / filled(3.0, *shape), x)


def test_the_reciprocals_are_written_once() -> None:
    numbers = [2.0, 3.0]
    result = legal(lambda x: x / written(numbers, 1, 2) / written(numbers, 1, 2), [1, 2])
    reciprocals = [node for node in result.artifact.nodes if node.op_params.get("values") == [1 / 2, 1 / 3]]
    assert len(reciprocals) == 1


def test_the_value_keeps_its_typespec() -> None:
    layout = {"dtype": "f64", "shape": [1, 2], "layout": "rows"}
    before = traced(lambda x: x / written([2.0, 4.0], 1, 2), [1, 2])
    before.nodes[-1] = type(before.nodes[-1])(
        **{**{name: getattr(before.nodes[-1], name) for name in before.nodes[-1].__slots__}, "output_typespec": layout}
    )
    result = checked(before, legalize_detailed(before, RANK2), RANK2)
    assert result.artifact.nodes[-1].output_typespec is layout


@pytest.mark.parametrize("number", [0.0, -0.0, 1e-310, inf, 1.7e308])
def test_a_number_without_a_reciprocal(number: float) -> None:
    for divisor in (lambda: written([2.0, number], 2), lambda: filled(number, 2)):
        message = refusal(traced(lambda x, divisor=divisor: x / divisor(), [3, 2]), RANK2)
        assert f"division by reciprocals: 1 / {number!r} is no normal number in f64" in message


def test_a_reciprocal_that_only_f64_has() -> None:
    before = traced(
        lambda x: x / applied(ConstantOperator, values=[1e-39, 1.0], dtype="f32", shape=[1, 2]), [1, 2], dtype="f32"
    )
    assert "1 / 1e-39 is no normal number in f32" in refusal(before, RANK2)


def test_numbers_in_another_shape_are_numbers_too() -> None:
    result = legal(lambda x: x / written([2.0, 4.0], 2).reshape([2, 1]), [2, 3])
    assert result.regions[0].rules[0] == "division by reciprocals"


def test_a_tensor_in_the_divisor_is_no_number() -> None:
    message = refusal(traced(lambda x, y: x / (y + written([2.0, 3.0], 1, 2)), [1, 2], [1, 2]), RANK2)
    assert "division by reciprocals" not in message


def test_a_machine_that_takes_other_factors_says_so() -> None:
    factors = Target("chip", {**RANK2.operators, MulOperator: Limits(right="literal")})
    message = refusal(traced(lambda x: x / written([2.0, 3.0], 1, 2), [1, 2]), factors)
    assert "MulOperator of chip takes a literal as the right operand only" in message
    assert "division by reciprocals: it needs MulOperator(f64[1, 2], f64[1, 2])" in message
    constants = refusal(traced(lambda x: x / written([2.0, 3.0], 1, 2), [1, 2]), without(RANK2, ConstantOperator))
    assert "division by reciprocals > ConstantOperator: there is no rule for it" in constants


def test_a_fill_that_the_machine_cannot_make_is_still_a_literal() -> None:
    ones = Target("ones", {**RANK2.operators, FillOperator: Limits(fills=(1.0, 3.0))})
    assert names(legal(lambda x: x / filled(3.0, 2, 2), [2, 2], target=ones).artifact) == ["fill", "mul"]


def test_a_transpose_is_pushed_through_a_division() -> None:
    result = legal(lambda x: (x / written([2.0, 3.0], 2)).T, [3, 2])
    assert [value_id for value_id, _ in result.artifact.inputs] == ["v0", "v0.mT"]
    legal(lambda x: (x / filled(3.0, 3, 1)).T, [3, 2])


def test_two_divisions_of_one_form_by_other_numbers() -> None:
    result = legal(lambda x: x / written([2.0, 4.0], 1, 2) + x / written([8.0, 16.0], 1, 2), [1, 2])
    assert names(result.artifact).count("constant") == 4


def test_numbers_by_which_many_divide_are_read_once() -> None:
    """Reading them costs as much as there are numbers, so that it must not be done for each division."""

    def scaled(x: Tensor) -> Tensor:
        numbers = written([2.0, 4.0], 2)
        return x / numbers.reshape([1, 2]) / numbers.reshape([1, 2])

    graph = traced(scaled, [1, 2])
    numbers = Numbers()
    for node in graph.nodes:
        numbers.note(node)
    first, second = [numbers.divisor(node) for node in graph.nodes if node.operator == DivOperator()]
    assert first is not None
    assert first is second
    assert first.op_params == {"values": [2.0, 4.0], "dtype": "f64", "shape": [1, 2]}
    assert numbers.key(first) is numbers.key(first)


def test_reshapes_to_several_shapes_are_several_divisors() -> None:
    def scaled(x: Tensor) -> Tensor:
        numbers = written([2.0, 4.0], 2)
        return x / numbers.reshape([1, 2]) / numbers.reshape([2, 1])

    result = legal(scaled, [2, 2])
    shapes = [node.op_params["shape"] for node in result.artifact.nodes if "values" in node.op_params]
    assert shapes == [[2], [1, 2], [2, 1]]


def test_a_division_that_the_machine_has_stays() -> None:
    target = Target("divides", {**RANK2.operators, DivOperator: Limits()})
    before = traced(lambda x: x / written([2.0, 0.0], 1, 2), [1, 2])
    assert legalize_detailed(before, target).artifact is before


def test_the_gradient_divides_by_numbers_of_the_forward_graph() -> None:
    def scaled(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        residual = (x @ w - y) / written([2.0, 3.0, 4.0, 5.0], 4, 1)
        return (residual * residual).mean()

    kinds = ("forward_expansions", "derivative_expansions", "update_expansions")
    passes: dict[str, Any] = dict.fromkeys(kinds, (Legalize(RANK2),))
    inputs = {"x": spec(4, 3), "y": spec(4, 1), "w": spec(3, 1)}
    step = compiled(loss=scaled, inputs=inputs, handlers=rank2_registry(), **passes)
    assert "div" in names(step.source_derivative_program)
    assert all(verify_step(step, points=()).values())
