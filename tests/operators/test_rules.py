"""Every exact rule of every operator: on the operator's samples, and what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from rules import Applied, apply, apply_to, check, rules_of
from tinychain.autodiff.graph import Decline, TensorOperator
from tinychain.autodiff.operators import (
    OPERATORS,
    DivOperator,
    MatmulOperator,
    MaximumOperator,
    MeanOperator,
    MulOperator,
    SubOperator,
    SumOperator,
)

RULES = [(operator, name) for operator in OPERATORS for name in rules_of(operator)]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("operator", "name"), RULES)
def test_a_rule_on_the_samples_of_its_operator(operator: type[TensorOperator], name: str, dtype: str) -> None:
    rule = rules_of(operator)[name]
    answers = [apply(rule, operator, *sample.shapes, dtype=dtype, **sample.op_params) for sample in operator.samples]
    for answer in answers:
        if isinstance(answer, Applied):
            check(answer)


@pytest.mark.parametrize(("operator", "name"), RULES)
def test_a_rule_applies_to_some_sample(operator: type[TensorOperator], name: str) -> None:
    rule = rules_of(operator)[name]
    answers = [apply(rule, operator, *sample.shapes, **sample.op_params) for sample in operator.samples]
    assert any(isinstance(answer, Applied) for answer in answers)


@pytest.mark.parametrize(("operator", "name"), RULES)
def test_a_rule_declines_operands_of_unknown_type(operator: type[TensorOperator], name: str) -> None:
    for sample in operator.samples:
        specs = dict.fromkeys([f"x{i}" for i in range(len(sample.shapes))])
        answer = apply_to(rules_of(operator)[name], operator, specs, sample.op_params)
        assert isinstance(answer, Decline)
        assert "types of its operands are not known" in answer.reason


def test_a_rule_is_named_by_its_method_and_says_what_it_does() -> None:
    for operator, name in RULES:
        rule = getattr(operator(), name)
        assert rule.__qualname__.endswith(f".{name}")
        assert rule.__doc__


def test_the_older_expansion_of_a_mean_is_no_rule() -> None:
    assert list(rules_of(MeanOperator)) == ["as_sum", "as_matmuls_by_constants"]


def test_the_operators_that_have_rules() -> None:
    assert {operator().route_name for operator, _ in RULES} == set(
        "add sub mul div maximum minimum matmul sum mean broadcast broadcast_reduce transpose".split()
    )


@pytest.mark.parametrize("operator", [operator for operator in OPERATORS if not rules_of(operator)])
def test_an_operator_without_rules_says_why(operator: type[TensorOperator]) -> None:
    assert operator.inexact


def test_a_reason_names_what_has_no_exact_form() -> None:
    texts = {operator().route_name: operator.inexact for operator in OPERATORS}
    for name, part in {
        "div": "a division by a tensor",
        "sqrt": "a square root",
        "exp": "an exponential",
        "log": "a logarithm",
        "sign": "a sign",
        "max": "the largest of several numbers",
        "min": "the smallest of several numbers",
        "maximum": "the larger of two numbers",
        "minimum": "the smaller of two numbers",
    }.items():
        assert texts[name] == f"{part} is no polynomial; no exact form exists"
    assert "keep the factors in tensors of their own" in texts["product"]


# ------------------------------------------------------------------------------------------------------------ symbols

_NEEDS_INTS: dict[str, tuple[type[TensorOperator], list[list[int | str]], dict[str, Any]]] = {
    "with_fill": (MulOperator, [["N", 3]], {"right_literal": 2.0}),
    "as_sum_with_fill": (SubOperator, [["N", 3]], {"right_literal": 2.0}),
    "as_matmuls": (SumOperator, [["N", 3]], {"axes": [1], "keepdims": False}),
    "as_matrix_product": (MatmulOperator, [["N", 4, 3], [3, 2]], {}),
    "by_blocks": (MatmulOperator, [["N", 4, 3], ["N", 3, 2]], {}),
    "as_products_and_sums": (MatmulOperator, [["N", 4, 3], ["N", 3, 2]], {}),
}


@pytest.mark.parametrize("name", _NEEDS_INTS)
def test_a_rule_that_needs_ints_declines_a_symbol(name: str) -> None:
    operator, shapes, op_params = _NEEDS_INTS[name]
    answer = apply(rules_of(operator)[name], operator, *shapes, **op_params)
    assert isinstance(answer, Decline)
    assert "the symbol 'N', whose size is not known; declare an int" in answer.reason


_NEEDS_NONE: dict[str, tuple[type[TensorOperator], list[list[int | str]], dict[str, Any]]] = {
    "with_equal_shapes": (MaximumOperator, [["N", 3], [3]], {}),
    "as_sum": (SubOperator, [["N", 3], ["N", 3]], {}),
    "as_product": (DivOperator, [["N"]], {"right_literal": 3.0}),
    "with_equal_batches": (MatmulOperator, [["N", 4, 3], [3, 2]], {}),
}


@pytest.mark.parametrize("name", _NEEDS_NONE)
def test_a_rule_that_needs_no_ints_takes_symbols(name: str) -> None:
    operator, shapes, op_params = _NEEDS_NONE[name]
    answer = apply(rules_of(operator)[name], operator, *shapes, **op_params)
    assert isinstance(answer, Applied)
    check(answer)


def test_a_mean_takes_a_symbol_that_it_keeps() -> None:
    answer = apply(rules_of(MeanOperator)["as_sum"], MeanOperator, ["N", 4], axes=[1], keepdims=True)
    assert isinstance(answer, Applied)
    check(answer)
