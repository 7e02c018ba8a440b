"""The tester is tested: check_expansion passes right rewrites and catches each planted bug, saying where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import FillOperator, MeanOperator, MulOperator, ReshapeOperator
from tinychain.autodiff.testing import check_expansion
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

DTYPES = pytest.mark.parametrize("dtype", ["f32", "f64"])


def trace(dtype: str = "f64", keepdims: bool = False) -> tuple[TensorGraph, DerivativeProgram]:
    """The mean of a non-square matrix product, and its gradient."""

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).mean(keepdims=keepdims)

    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype=dtype, shape=[4, 3])
        w = builder.input("w", dtype=dtype, shape=[3, 2])
        result = loss(x, w)
    return builder.build(outputs=[result]), builder.vjp(result, wrt=[x, w])


Change = Callable[[TensorNodeRecord], TensorNodeRecord]


def changed(nodes: list[TensorNodeRecord], operator: type, change: Change) -> list[TensorNodeRecord]:
    """The nodes with the first one of the operator changed."""
    number = next(i for i, node in enumerate(nodes) if isinstance(node.operator, operator))
    return [*nodes[:number], change(nodes[number]), *nodes[number + 1 :]]


def with_params(**op_params: Any) -> Change:
    return lambda node: replace(node, op_params={**node.op_params, **op_params})


def with_type(**fields: Any) -> Change:
    return lambda node: replace(node, output_typespec={**(node.output_typespec or {}), **fields})


def scaled(node: TensorNodeRecord) -> TensorNodeRecord:
    return replace(node, op_params={"right_literal": node.op_params["right_literal"] * 1.0005})


def failure(before: Any, after: Any, forward_graph: TensorGraph | None = None) -> str:
    with pytest.raises(AssertionError) as caught:
        check_expansion(before, after, forward_graph=forward_graph)
    return str(caught.value)


def spoiled_graph(operator: type, change: Change, dtype: str = "f64") -> str:
    """The verdict on an expanded graph of which one node is changed."""
    before, _ = trace(dtype)
    good = expand_mean_graph(before)
    return failure(before, TensorGraph(changed(good.nodes, operator, change), good.inputs, good.outputs))


# ------------------------------------------------------------------------------------------------------------- right


@DTYPES
@pytest.mark.parametrize("keepdims", [False, True])
def test_passes_the_package_s_own_passes(dtype: str, keepdims: bool) -> None:
    graph, program = trace(dtype, keepdims)
    check_expansion(graph, expand_mean_graph(graph))
    expanded = expand_mean_derivative_program(program)
    check_expansion(program, expanded, forward_graph=graph)
    assert expanded.nodes != program.nodes


def test_rounding_differences_pass() -> None:
    before, _ = trace()
    rounded = changed(
        expand_mean_graph(before).nodes,
        MulOperator,
        lambda node: replace(node, op_params={"right_literal": node.op_params["right_literal"] * (1 + 2**-52)}),
    )
    check_expansion(before, TensorGraph(rounded, before.inputs, before.outputs))


# ----------------------------------------------------------------------------------------------------- wrong values


@DTYPES
def test_catches_a_factor_that_is_0_05_percent_off(dtype: str) -> None:
    message = spoiled_graph(MulOperator, scaled, dtype)
    assert message.startswith("output 'v3' at [] is ")
    assert "expected" in message
    assert "the worst error is" in message
    assert f"the tolerance {'1e-06' if dtype == 'f32' else '1e-12'} relative" in message


def test_catches_a_factor_that_is_off_in_a_program() -> None:
    graph, program = trace(keepdims=True)
    good = expand_mean_derivative_program(program)
    bad = replace(good, nodes=changed(good.nodes, MulOperator, scaled))
    message = failure(program, bad, graph)
    assert message.startswith(f"output '{program.output_gradients[0]}' at [")


def test_catches_a_wrong_constant() -> None:
    assert "output 'v3'" in spoiled_graph(FillOperator, with_params(fill=1.0005))


def test_catches_a_nan() -> None:
    assert "is nan" in spoiled_graph(MulOperator, with_params(right_literal=float("nan")))


def test_catches_a_wrong_axis() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[3, 3])
        builder.mark_output(x.mean(axes=0))
    before = TensorGraph(builder.build().nodes, [("v0", {"dtype": "f64", "shape": [3, 3]})], ["v1"])
    after = TensorGraph(changed(before.nodes, MeanOperator, with_params(axes=[1])), before.inputs, before.outputs)
    assert "output 'v1' at [" in failure(before, after)


# ------------------------------------------------------------------------------------------------------ wrong types


def test_catches_a_swapped_fill_shape() -> None:
    message = spoiled_graph(FillOperator, lambda node: with_type(shape=[1, 2])(with_params(shape=[1, 2])(node)))
    assert message.startswith("the rewritten artifact: AutodiffError: matmul_shape_mismatch: ")


def test_catches_a_swapped_fill_shape_that_only_the_params_have() -> None:
    message = spoiled_graph(FillOperator, with_params(shape=[1, 2]))
    assert "FillOperator" in message
    assert "declares f64[2, 1]; its operands give f64[1, 2]" in message


def test_catches_a_wrong_dtype_inside() -> None:
    message = spoiled_graph(FillOperator, lambda node: with_type(dtype="f64")(with_params(dtype="f64")(node)), "f32")
    assert "dtype_mismatch" in message
    assert "MatmulOperator" in message


def test_catches_a_wrong_declared_dtype_of_an_output() -> None:
    message = spoiled_graph(ReshapeOperator, with_type(dtype="f32"))
    assert "node 'exn5'" in message
    assert "declares f32[]; its operands give f64[]" in message


def test_catches_an_artifact_that_is_consistent_in_the_wrong_dtype() -> None:
    (before, _), (after, _) = trace("f32"), trace("f64")
    assert failure(before, after).startswith("the typespec of input 'v0' is {'dtype': 'f64'")


def test_catches_an_output_of_another_rank() -> None:
    (before, _), (after, _) = trace(), trace(keepdims=True)
    assert failure(before, after) == "the declared type of output 'v3' is 'f64[1, 1]'; expected 'f64[]'"


# ---------------------------------------------------------------------------------------------------- wrong surfaces


def test_catches_an_output_under_another_id() -> None:
    before, _ = trace()
    after = TensorGraph(expand_mean_graph(before).nodes, before.inputs, ["exv4"])
    assert failure(before, after) == "outputs is ['exv4']; expected ['v3']"


def test_catches_a_new_input() -> None:
    before, _ = trace()
    after = TensorGraph(before.nodes, [*before.inputs, ("ones", {"dtype": "f64", "shape": [3, 1]})], before.outputs)
    assert failure(before, after) == "the rewritten artifact reads 'ones', no input of the original"


def test_catches_a_value_that_nobody_produces_any_more() -> None:
    before, _ = trace()
    after = TensorGraph(expand_mean_graph(before).nodes[:-1], before.inputs, before.outputs)
    assert "the rewritten artifact: AutodiffError" in failure(before, after)


def test_catches_exchanged_gradients() -> None:
    graph, program = trace()
    gradients = dict(zip(program.gradients, reversed(program.gradients.values()), strict=True))
    assert failure(program, replace(program, gradients=gradients), graph).startswith("gradients is {")


def test_a_program_needs_its_forward_graph() -> None:
    _, program = trace()
    with pytest.raises(TypeError, match="forward_graph"):
        check_expansion(program, program)
