"""What the CKKS backend lowers, and what it refuses by name before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinychain.autodiff.backends.ckks.handlers import Handler, Term, bind_input, ckks_registry
from tinychain.autodiff.backends.ckks.target import CKKS
from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import legalize
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.lowering import LoweredProgram, lower_graph
from tinychain.autodiff.operators import MulOperator, ReshapeOperator
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder
from tinychain.autodiff.types import TensorType


def traced(function: Callable[..., Tensor], *shapes: tuple[int | str, ...], dtype: str = "f64") -> TensorGraph:
    with TensorGraphBuilder() as builder:
        operands = [builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)]
        result = function(*operands)
    return builder.build(outputs=[result])


def lowered(graph: TensorGraph, **options: Any) -> LoweredProgram:
    return lower_graph(graph, handlers=ckks_registry(), bind_input=options.pop("bind_input", bind_input), **options)


def refusal(graph: TensorGraph, **options: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        lowered(graph, **options)
    return caught.value


def test_an_operation_becomes_a_term_on_the_terms_of_its_operands() -> None:
    program = lowered(traced(lambda x, y: x @ y * 2.0, (4, 3), (3, 2)))
    product, scaled = [operation.value for operation in program.operations]
    assert isinstance(scaled, Term)
    assert scaled.operator == MulOperator()
    assert scaled.op_params == {"right_literal": 2.0}
    assert scaled.operands == (product,)
    assert scaled.type == TensorType("f64", (4, 2))
    assert [operand.operator for operand in product.operands] == [None, None]


def test_the_handlers_are_those_of_the_target() -> None:
    assert set(ckks_registry().supported_types()) == set(CKKS.operators)


def test_sums_and_means_are_legalized_to_products_with_ones() -> None:
    graph = legalize(traced(lambda x: x.mean(axes=[0]) / 2.0, (4, 3)), CKKS)
    names = [operation.value.operator.route_name for operation in lowered(graph).operations]
    assert names.count("matmul") == 1
    assert not {"mean", "sum", "div"} & set(names)


def test_broadcasting_and_transposes_stay_as_they_are() -> None:
    graph = traced(lambda x, y: (x + y).T, (4, 3), (3,))
    assert legalize(graph, CKKS) is graph
    assert lowered(graph).output_values[0].type.shape == (3, 4)


def test_an_operator_without_a_handler_is_refused_by_name() -> None:
    error = refusal(traced(lambda x: x / (x + x), (4, 3)))
    assert error.category == "unsupported_operator"
    assert "DivOperator" in error.message
    assert "'n1'" in error.message


def test_an_input_of_unknown_size_is_refused() -> None:
    error = refusal(traced(lambda x: x * 2.0, ("N", 3)))
    assert error.category == "unresolved_symbolic_shape"
    assert "input 'v0' has the symbol 'N'" in error.message


@pytest.mark.parametrize(
    ("dtype", "shape", "category"),
    [
        (None, (3,), "missing_dtype_metadata"),
        ("f64", None, "missing_shape_metadata"),
        ("i32", (3,), "dtype_not_differentiable"),
    ],
)
def test_an_input_of_unknown_type_is_refused(dtype: str | None, shape: Any, category: str) -> None:
    with pytest.raises(AutodiffError, match="input 'data'") as caught:
        bind_input(ValueDependency("data", "declared_input", dtype, shape))
    assert caught.value.category == category


@pytest.mark.parametrize(
    ("shape", "category"), [([5, 3], "shape_mismatch"), (["N", 3], "unresolved_symbolic_shape"), (3, "missing_shape")]
)
def test_a_reshape_to_another_count_is_refused_with_its_node(shape: Any, category: str) -> None:
    node = TensorNodeRecord(
        node_id="r1",
        output_value_id="r",
        operator=ReshapeOperator(),
        op_params={"shape": shape},
        input_value_ids=["x"],
        output_typespec={"dtype": "f64", "shape": [4, 3]},
    )
    graph = TensorGraph([node], [("x", {"dtype": "f64", "shape": [4, 3]})], ["r"])
    error = refusal(graph)
    assert error.category.startswith(category)
    assert "node 'r1' (ReshapeOperator)" in error.message


def test_the_target_values_of_another_backend_are_refused() -> None:
    error = refusal(traced(lambda x: x * 2.0, (4, 3)), bind_input=None)
    assert error.category == "handler_contract_violation"
    assert "bind_input" in error.message


def test_a_handler_is_registered_once() -> None:
    registry = ckks_registry()
    with pytest.raises(AutodiffError, match="MulOperator"):
        registry.register(Handler(MulOperator))
