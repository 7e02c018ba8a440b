"""Every operator of the package through every check, from its own samples."""

from __future__ import annotations

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import OPERATORS, MaxOperator, MinOperator, ProductOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.testing import check_operator
from tinychain.autodiff.tracing import TensorGraphBuilder

NOT_DIFFERENTIABLE = (MaxOperator, MinOperator, ProductOperator)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(operator: type[TensorOperator], dtype: str) -> None:
    check_operator(operator, dtypes=(dtype,), differentiable=operator not in NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("operator", NOT_DIFFERENTIABLE)
def test_the_gradient_of_an_order_statistic_or_product_is_refused_by_name(operator: type[TensorOperator]) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2, 3])
        builder.apply(operator, [x], {"axes": [0], "keepdims": False})
    graph = builder.build()
    with pytest.raises(AutodiffError, match=operator.__name__) as caught:
        generate(graph, graph.outputs[0], ["v0"], "seed")
    assert caught.value.category == "unsupported_reduction"
    assert "'n0'" in caught.value.message


def test_route_names_are_distinct() -> None:
    assert len({operator().route_name for operator in OPERATORS}) == len(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_has_more_than_one_sample(operator: type[TensorOperator]) -> None:
    assert len(operator.samples) > 1
