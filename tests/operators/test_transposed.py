"""The transposed form of every operator against what NumPy says of its result, from operands that are transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.graph import Decline, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    BroadcastOperator,
    BroadcastReduceOperator,
    ConstantOperator,
    DivOperator,
    ExpOperator,
    FillOperator,
    LogOperator,
    MatmulOperator,
    MaximumOperator,
    MaxOperator,
    MeanOperator,
    MinimumOperator,
    MinOperator,
    MulOperator,
    ProductOperator,
    ReshapeOperator,
    SignOperator,
    SqrtOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.types import Typespec

Array = NDArray[Any]
Shapes = Sequence[Sequence[int]]

ELEMENTWISE = (AddOperator, SubOperator, MulOperator, DivOperator, MaximumOperator, MinimumOperator)
UNARY = (SqrtOperator, ExpOperator, LogOperator, SignOperator)
REDUCTIONS = (SumOperator, MeanOperator, MaxOperator, MinOperator, ProductOperator)

matrices = st.lists(st.integers(1, 3), min_size=2, max_size=4)


def pushed(operator: type[TensorOperator], shapes: Shapes, **op_params: Any) -> Array | str:
    """The transpose that the operator emits from transposed operands, once it has been compared; or why it declines."""
    known = {f"x{i}": list(shape) for i, shape in enumerate(shapes)}
    known |= {f"{name}.mT": list(as_operand(np.empty(shape)).shape) for name, shape in known.items()}
    specs: dict[str, Typespec | None] = {name: {"dtype": "f64", "shape": shape} for name, shape in known.items()}
    emit = Emitter(specs=specs, mint_value=mint("v", ()), mint_node=mint("n", ()))
    operands = [f"x{i}" for i in range(len(shapes))]
    emit.emit(operator, operands, op_params, "result")
    (node,) = emit.nodes
    answer = operator().transposed(emit, node, "{}.mT".format)
    if isinstance(answer, Decline):
        return answer.reason
    random = np.random.default_rng(0)
    values = {name: random.uniform(0.5, 2.0, shape) for name, shape in zip(operands, shapes, strict=True)}
    expected = np.swapaxes(computed([node], values)["result"], -1, -2)
    got = computed(emit.nodes[1:], {f"{name}.mT": as_operand(array) for name, array in values.items()})
    type_ = emit.type(answer)
    assert type_ is not None
    assert type_.shape == got[answer].shape == expected.shape
    np.testing.assert_allclose(got[answer], expected, rtol=1e-12)
    return got[answer]


def as_operand(array: Array) -> Array:
    """What stands for an operand's transpose: a column for a vector, a scalar itself."""
    return array if array.ndim == 0 else array[:, np.newaxis] if array.ndim == 1 else np.swapaxes(array, -1, -2)


def computed(nodes: Sequence[TensorNodeRecord], values: Mapping[str, Array]) -> dict[str, Array]:
    known = dict(values)
    for node in nodes:
        operands = [known[value_id] for value_id in node.input_value_ids]
        known[node.output_value_id] = node.operator.reference(np, *operands, **node.op_params)
    return known


def moved(result: Array | str) -> None:
    assert not isinstance(result, str), result


@st.composite
def stretched(draw: st.DrawFn, shape: Sequence[int]) -> list[int]:
    """A shape that broadcasts to this one."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    return [1 if draw(st.booleans()) else dim for dim in kept]


@given(st.sampled_from(ELEMENTWISE), matrices, st.data())
def test_two_operands_of_which_one_is_stretched(
    operator: type[TensorOperator], shape: list[int], data: st.DataObject
) -> None:
    shapes = data.draw(st.permutations([shape, data.draw(stretched(shape))]))
    moved(pushed(operator, shapes))


@given(st.sampled_from(ELEMENTWISE[1:]), matrices)
def test_an_operand_and_a_literal(operator: type[TensorOperator], shape: list[int]) -> None:
    moved(pushed(operator, [shape], right_literal=1.5))


@given(st.sampled_from(UNARY), matrices)
def test_a_function_of_one_operand(operator: type[TensorOperator], shape: list[int]) -> None:
    moved(pushed(operator, [shape]))


@given(matrices, st.integers(1, 3), st.data())
def test_a_product_of_matrices(shape: list[int], columns: int, data: st.DataObject) -> None:
    batch = data.draw(stretched(shape[:-2]))
    moved(pushed(MatmulOperator, [shape, [*batch, shape[-1], columns]]))
    moved(pushed(MatmulOperator, [[*batch, columns, shape[-2]], shape]))


@given(st.sampled_from(REDUCTIONS), matrices, st.booleans(), st.data())
def test_a_reduction(operator: type[TensorOperator], shape: list[int], keepdims: bool, data: st.DataObject) -> None:
    rank = len(shape)
    axes = sorted(
        data.draw(st.sets(st.integers(0, rank - 1 if keepdims else rank - 3) if rank > 2 or keepdims else st.nothing()))
    )
    moved(pushed(operator, [shape], axes=axes, keepdims=keepdims))


@pytest.mark.parametrize("operator", REDUCTIONS)
def test_a_reduction_that_drops_one_of_the_last_axes_declines(operator: type[TensorOperator]) -> None:
    reason = pushed(operator, [[2, 3, 4]], axes=[1], keepdims=False)
    assert reason == f"{operator.__name__} over axes [1] of rank 3 drops one that would be swapped"


@given(matrices, st.data())
def test_a_broadcast(shape: list[int], data: st.DataObject) -> None:
    moved(pushed(BroadcastOperator, [data.draw(stretched(shape))], shape=shape))


@given(matrices, st.data())
def test_the_adjoint_of_a_broadcast(shape: list[int], data: st.DataObject) -> None:
    target = [1 if data.draw(st.booleans()) else dim for dim in shape[data.draw(st.integers(0, len(shape) - 2)) :]]
    moved(pushed(BroadcastReduceOperator, [shape], target_shape=target))


@given(matrices)
def test_constants(shape: list[int]) -> None:
    moved(pushed(FillOperator, [], fill=2.5, dtype="f64", shape=shape))
    values = [float(i) for i in range(int(np.prod(shape)))]
    moved(pushed(ConstantOperator, [], values=values, dtype="f64", shape=shape))


def test_constants_without_elements() -> None:
    moved(pushed(FillOperator, [], fill=2.5, dtype="f64", shape=[0, 3]))
    moved(pushed(ConstantOperator, [], values=[], dtype="f64", shape=[2, 0, 3]))


@given(matrices)
def test_a_reshape_to_the_same_shape(shape: list[int]) -> None:
    moved(pushed(ReshapeOperator, [shape], shape=shape))


@pytest.mark.parametrize(
    ("before", "after"), [([3], [1, 3]), ([3], [3, 1]), ([6], [1, 1, 6]), ([], [1, 1]), ([6], [2, 3, 1])]
)
def test_a_reshape_of_a_vector(before: list[int], after: list[int]) -> None:
    moved(pushed(ReshapeOperator, [before], shape=after))


@pytest.mark.parametrize(("before", "after"), [([2, 3], [3, 2]), ([6], [2, 3]), ([2, 2, 3], [4, 3])])
def test_a_reshape_that_mixes_the_axes_declines(before: list[int], after: list[int]) -> None:
    assert pushed(ReshapeOperator, [before], shape=after) == f"a reshape of {before} to {after} mixes the axes"


def test_every_operator_has_a_transposed_form() -> None:
    """But a transpose, which is undone by whoever pushes one."""
    without = [operator for operator in OPERATORS if operator.transposed is TensorOperator.transposed]
    assert without == [TransposeOperator]
