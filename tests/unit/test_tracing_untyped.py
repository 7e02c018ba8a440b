"""Traces without types: bare tensors and hand-recorded values record every operation, and infer nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder


def untyped(function: Callable[[Tensor], Any]) -> TensorGraph:
    with TensorGraphBuilder() as builder:
        function(Tensor())
    return builder.build()


@pytest.mark.parametrize(
    ("function", "route", "op_params"),
    [
        (lambda x: x + x, "add", {}),
        (lambda x: x - 2.5, "sub", {"right_literal": 2.5}),
        (lambda x: -x, "mul", {"right_literal": -1.0}),
        (lambda x: x / x, "div", {}),
        (lambda x: x @ x, "matmul", {}),
        (lambda x: x.mean(), "mean", {"axes": None, "keepdims": False}),
        (lambda x: x.mean(-1, True), "mean", {"axes": -1, "keepdims": True}),
        (lambda x: x.sum(axis=[1, -1]), "sum", {"axes": [1, -1], "keepdims": False}),
        (lambda x: x.transpose(), "transpose", {"perm": None}),
        (lambda x: x.transpose([1, 0]), "transpose", {"perm": [1, 0]}),
        (lambda x: x.reshape([2, -1]), "reshape", {"shape": [2, -1]}),
        (lambda x: x.reshape(6), "reshape", {"shape": [6]}),
        (lambda x: x.broadcast_to([2, "N"]), "broadcast", {"shape": [2, "N"]}),
    ],
)
def test_an_operation_is_recorded_as_given(
    function: Callable[[Tensor], Any], route: str, op_params: dict[str, Any]
) -> None:
    (node,) = untyped(function).nodes
    assert (node.operator.route_name, node.op_params) == (route, op_params)
    assert node.output_typespec is None


def test_operands_are_registered_before_the_result_and_once() -> None:
    built = untyped(lambda x: (x + Tensor()) * x)
    assert [(n.output_value_id, n.input_value_ids) for n in built.nodes] == [("v2", ["v0", "v1"]), ("v3", ["v2", "v0"])]
    assert built.inputs == [("v0", None), ("v1", None)]


def test_one_untyped_operand_makes_the_result_untyped() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=["N"])
        y = x + Tensor()
        _ = x + x
    assert [n.output_typespec for n in builder.build().nodes] == [None, {"dtype": "f32", "shape": ["N"]}]
    assert builder.symbols == {}
    with pytest.raises(AutodiffError, match="untyped"):
        y.dtype  # noqa: B018 - a property that raises


@pytest.mark.parametrize("name", ["shape", "dtype", "ndim", "T", "mT"])
def test_an_untyped_tensor_has_no_type_to_ask_for(name: str) -> None:
    with TensorGraphBuilder(), pytest.raises(AutodiffError, match="untyped") as caught:
        getattr(Tensor(), name)
    assert caught.value.category == "missing_shape_metadata"


def test_axes_that_the_caller_changes_later_stay_as_recorded() -> None:
    axes, shape, perm = [0], [6], [1, 0]
    with TensorGraphBuilder() as builder:
        x = Tensor()
        _ = x.mean(axes), x.reshape(shape), x.transpose(perm)
    for mutable in (axes, shape, perm):
        mutable.append(7)
    recorded = [n.op_params for n in builder.build().nodes]
    assert recorded == [{"axes": [0], "keepdims": False}, {"shape": [6]}, {"perm": [1, 0]}]


def test_an_untyped_trace_has_no_vjp() -> None:
    with TensorGraphBuilder() as builder:
        x = Tensor()
        y = x * x
    with pytest.raises(AutodiffError) as caught:
        builder.vjp(y, wrt=[x])
    assert caught.value.category == "missing_dtype_metadata"
