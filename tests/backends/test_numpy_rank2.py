"""The backend of matrices: it computes what the reference computes, and refuses what is not for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from running import compiled, only, trace
from targeting import raised_by
from tinychain.autodiff.backends.numpy import bind_input, rank2_registry, reference_registry
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.lowering import lower_graph
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)
from tinychain.autodiff.tracing import Tensor

OWNED = (AddOperator, MulOperator, MatmulOperator, FillOperator, ConstantOperator, ReshapeOperator)


def constant(**op_params: Any) -> TensorGraph:
    """A graph that is one fill or constant."""
    node = TensorNodeRecord(
        node_id="n0",
        output_value_id="v0",
        operator=FillOperator() if "fill" in op_params else ConstantOperator(),
        op_params=op_params,
        input_value_ids=(),
        output_typespec={"dtype": op_params["dtype"], "shape": op_params["shape"]},
    )
    return TensorGraph([node], [], ["v0"])


def test_owns_exactly_its_six_operators() -> None:
    assert set(rank2_registry().supported_types()) == set(OWNED)


def test_a_registry_is_new_each_time() -> None:
    rank2_registry().register(reference_registry().lookup(SubOperator))
    assert set(rank2_registry().supported_types()) == set(OWNED)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, y: x + y, [[2, 3], [2, 3]]),
        (lambda x, y: x * y, [[2, 3], [2, 3]]),
        (lambda x: x * -1.5, [[2, 3]]),
        (lambda x, y: x @ y, [[2, 3], [3, 4]]),
        (lambda x, y: x @ y, [[2, 0], [0, 4]]),
        (lambda x: x.reshape(1, 12), [[2, 3, 2]]),
        (lambda x: x.reshape([]), [[1, 1]]),
        (lambda x: x * x + x, [[4, 1]]),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_computes_what_the_reference_computes(
    function: Callable[..., Tensor], shapes: list[list[int | str]], dtype: str
) -> None:
    graph = trace(function, *shapes, dtype=dtype)
    arrays = {}
    for number, (value_id, spec) in enumerate(graph.inputs):
        assert spec is not None
        values = np.asarray(np.random.default_rng(number).random(spec["shape"]))
        arrays[value_id] = values.astype({"f32": np.float32, "f64": np.float64}[dtype])
    got, wanted = [only(compiled(graph, registry())(arrays)) for registry in (rank2_registry, reference_registry)]
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "graph",
    [
        constant(fill=1.5, dtype="f32", shape=[2, 2, 1]),
        constant(values=[1.0, -0.5, 1e30, 0.1, 3, 0.0], dtype="f32", shape=[3, 2]),
        constant(values=[2.5], dtype="f64", shape=[]),
        constant(values=[], dtype="f64", shape=[0, 3]),
    ],
)
def test_makes_the_constants_of_the_reference(graph: TensorGraph) -> None:
    got, wanted = [only(compiled(graph, registry())({})) for registry in (rank2_registry, reference_registry)]
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


def test_a_caller_who_writes_into_a_result_does_not_change_the_constant() -> None:
    function = compiled(constant(values=[1.0, 2.0], dtype="f64", shape=[1, 2]), rank2_registry())
    only(function({}))[:] = 0.0
    assert only(function({})).tolist() == [[1.0, 2.0]]


# ---------------------------------------------------------------------------------------------------- what it refuses


def refusal(function: Callable[..., Tensor], *shapes: list[int | str]) -> tuple[str, str]:
    error = raised_by(lower_graph, trace(function, *shapes), handlers=rank2_registry(), bind_input=bind_input)
    assert "'n0'" in error.message
    return error.category, error.message


@pytest.mark.parametrize(
    ("function", "shapes", "part"),
    [
        (lambda x, y: x + y, [[3], [3]], "f64[3] and f64[3]"),
        (lambda x, y: x + y, [[2, 3], [3]], "f64[2, 3] and f64[3]"),
        (lambda x, y: x * y, [[2, 2, 2], [2, 2, 2]], "f64[2, 2, 2] and f64[2, 2, 2]"),
        (lambda x: x * 2.0, [[]], "f64[]"),
        (lambda x, y: x @ y, [[5, 2, 3], [5, 3, 4]], "f64[5, 2, 3] and f64[5, 3, 4]"),
        (lambda x, y: x @ y, [[5, 2, 3], [3, 4]], "f64[5, 2, 3] and f64[3, 4]"),
    ],
)
def test_refuses_what_is_no_matrix(function: Callable[..., Tensor], shapes: list[list[int | str]], part: str) -> None:
    category, message = refusal(function, *shapes)
    assert category == "unsupported_operator"
    assert part in message
    assert "computes on matrices, so legalize the program first" in message


@pytest.mark.parametrize("function", [lambda x, y: x + y, lambda x, y: x * y])
def test_refuses_to_broadcast(function: Callable[..., Tensor]) -> None:
    category, message = refusal(function, [2, 3], [1, 3])
    assert category == "broadcast_shape_mismatch"
    assert "f64[2, 3] and f64[1, 3]" in message


def test_refuses_a_reshape_whose_count_is_not_known() -> None:
    category, message = refusal(lambda x: x.reshape("N", 1), ["N"])
    assert category == "shape_mismatch"
    assert "keeps the element count" in message


@pytest.mark.parametrize("operator", [cls for cls in OPERATORS if cls not in OWNED])
def test_has_no_other_operator(operator: Any) -> None:
    assert raised_by(rank2_registry().lookup, operator).category == "unsupported_operator"


def test_refuses_a_transpose_before_anything_is_bound() -> None:
    category, message = refusal(lambda x: x.T, [2, 3])
    assert category == "unsupported_operator"
    assert TransposeOperator.__name__ in message
