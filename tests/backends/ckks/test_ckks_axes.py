"""Which axes are the same index, held against arrays whose elements say their own indices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from ckks_steps import MODELS, compiled, evaluated, linked, program_of
from tinychain.autodiff.backends.ckks.axes import Indices, share_indices
from tinychain.autodiff.backends.ckks.layout import Axes
from tinychain.autodiff.backends.ckks.program import Operation, Program, link
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.operators import TransposeOperator
from tinychain.autodiff.tracing import Tensor


def refusal(function: Callable[..., Tensor], **shapes: tuple[int, ...]) -> AutodiffError:
    program = program_of(function, shapes)
    with pytest.raises(AutodiffError) as caught:
        share_indices(program)
    assert caught.value.category == "unsupported_layout"
    return caught.value


class Unsupported(Exception):
    pass


def shared(program: Program) -> Indices:
    """The indices; Unsupported where they are refused as a layout that there is not."""
    try:
        return share_indices(program)
    except AutodiffError as error:
        if error.category == "unsupported_layout":
            raise Unsupported from error
        raise


def enumerated(axes: Axes, sizes: dict[int, int]) -> NDArray[Any]:
    """An array whose elements say which numbers their indices have: the sum of number times weight."""
    weights = {index: prod(list(sizes.values())[:index]) for index in sizes}
    total: NDArray[Any] = np.zeros([1] * sum(map(len, axes)), np.int64)
    for position, index in enumerate([index for axis in axes for index in axis]):
        shape = [-1 if at == position else 1 for at in range(total.ndim)]
        total = total + (np.arange(sizes[index]) * weights[index]).reshape(shape)
    return total.reshape([prod([sizes[index] for index in axis]) for axis in axes])


def check_movements(program: Program, indices: Indices) -> None:
    """Moving the elements of an operand moves them to where the axes of the result say."""
    for operation in program.operations:
        if operation.operator is not None and operation.operator.route_name in ("reshape", "transpose"):
            source = enumerated(indices.operand_axes(operation.position, 0), {**indices.sizes})
            moved = operation.operator.reference(np, source, **operation.op_params)
            assert_array_equal(moved, enumerated(indices.axes[operation.position], {**indices.sizes}))


# ------------------------------------------------------------------------------------------------------------- models


def axes_by_name(program: Program, indices: Indices) -> dict[str, Axes]:
    return {name: indices.axes[position] for name, position in program.inputs.items()}


def test_a_linear_model_has_rows_and_columns() -> None:
    program = linked(MODELS["linear"], steps=2, loss=True)
    indices = share_indices(program)
    rows, columns = 0, 1
    assert indices.sizes == {rows: 12, columns: 5}
    assert axes_by_name(program, indices) == {
        "x": ((rows,), (columns,)),
        "y": ((rows,), ()),
        "w": ((columns,), ()),
        "w.velocity": ((columns,), ()),
        "b": ((),),
        "b.velocity": ((),),
    }
    found = {
        (operation.shape, indices.contracted(operation.position), indices.axes[operation.position])
        for operation in program.operations
        if operation.label.startswith("matmul")
    }
    assert ((12, 1), (columns,), ((rows,), ())) in found
    assert ((5, 1), (rows,), ((columns,), ())) in found
    assert ((1, 1), (rows,), ((), ())) in found
    for name, position in program.outputs.items():
        expected = () if name == "loss" else indices.axes[program.inputs[name]]
        assert indices.axes[position] == expected


def test_a_network_has_rows_columns_hidden_units_and_outputs() -> None:
    program = linked(MODELS["network"])
    indices = share_indices(program)
    rows, columns, outputs, hidden = 0, 1, 2, 3
    assert indices.sizes == {rows: 10, columns: 4, outputs: 2, hidden: 3}
    found = axes_by_name(program, indices)
    assert found["x"] == ((rows,), (columns,))
    assert found["y"] == ((rows,), (outputs,))
    assert found["w1"] == ((columns,), (hidden,))
    assert found["b1"] == ((hidden,),)
    assert found["w2"] == ((hidden,), (outputs,))


@pytest.mark.parametrize("name", MODELS)
def test_tensors_have_the_sizes_of_their_indices(name: str) -> None:
    program = linked(MODELS[name], secret=["x"], steps=2, loss=True)
    indices = share_indices(program)

    def shape(axes: Axes) -> tuple[int, ...]:
        return tuple([prod([indices.sizes[index] for index in axis]) for axis in axes])

    for operation in program.operations:
        if not operation.secret:
            assert indices.axes[operation.position] == ()
            continue
        assert shape(indices.axes[operation.position]) == operation.shape
        for slot, operand in enumerate(operation.operands):
            assert shape(indices.operand_axes(operation.position, slot)) == program.operations[operand].shape
    check_movements_of_secrets(program, indices)


def check_movements_of_secrets(program: Program, indices: Indices) -> None:
    secret = [operation for operation in program.operations if operation.secret]
    check_movements(Program(secret, program.inputs, program.outputs), indices)


def test_a_plain_tensor_may_be_read_in_two_ways() -> None:
    ones = np.ones((4, 1))
    program = program_of(lambda x, y, k: (x + k) @ (y + k).T, {"x": (4, 3), "y": (4, 3)}, {"k": ones})
    indices = share_indices(program)
    reads = {indices.operand_axes(o.position, 1) for o in program.operations if o.label.startswith("add")}
    assert reads == {((0,), ()), ((2,), ())}
    assert indices.axes[program.outputs["result"]] == ((0,), (2,))


def test_a_square_tensor_has_two_indices() -> None:
    program = program_of(lambda x, y: x @ y, {"x": (3, 3), "y": (3, 3)})
    indices = share_indices(program)
    assert indices.sizes == {0: 3, 1: 3, 2: 3}
    assert indices.axes[program.outputs["result"]] == ((0,), (2,))


def test_batches_are_broadcast_from_the_right() -> None:
    program = program_of(lambda x, y: x @ y, {"x": (2, 1, 4, 3), "y": (5, 3, 1)})
    indices = share_indices(program)
    assert indices.axes[program.outputs["result"]] == ((0,), (3,), (1,), ())
    assert indices.contracted(program.outputs["result"]) == (2,)


def test_an_axis_is_split_for_all_that_meet_it() -> None:
    program = program_of(lambda x, y: x.reshape((6,)) * y, {"x": (2, 3), "y": (4, 6)})
    indices = share_indices(program)
    assert axes_by_name(program, indices) == {"x": ((0,), (1,)), "y": ((2,), (0, 1))}
    assert indices.sizes == {0: 2, 1: 3, 2: 4}


def test_two_splits_that_refine_each_other_are_joined() -> None:
    program = program_of(lambda x, y: x.reshape((24,)) + y.reshape((24,)), {"x": (4, 6), "y": (2, 12)})
    indices = share_indices(program)
    assert axes_by_name(program, indices) == {"x": ((0, 1), (2,)), "y": ((0,), (1, 2))}
    assert indices.sizes == {0: 2, 1: 2, 2: 6}


# ----------------------------------------------------------------------------------------------------------- refusals


def test_rows_by_rows_are_refused() -> None:
    message = refusal(lambda x: x @ x.T, x=(4, 3)).message
    assert message.startswith("matmul 'v2', of shape [4, 4]: it pairs elements of the data with each other")
    assert "axes 0 and 1 of its result would have one index twice" in message
    assert "x @ (x.T @ z) for (x @ x.T) @ z, or declare one of the two as an input of its own" in message


def test_an_own_input_for_one_of_the_two_is_allowed() -> None:
    program = program_of(lambda x, z: (x @ z.T) * 2.0, {"x": (4, 3), "z": (4, 3)})
    assert share_indices(program).axes[program.outputs["result"]] == ((0,), (2,))


def test_the_operation_that_brings_it_about_is_named() -> None:
    message = refusal(lambda x, y: ((x * 2.0) @ y.T + (y @ x.T)) * 3.0, x=(4, 4), y=(4, 4)).message
    assert message.startswith("add 'v")


def test_a_sum_with_its_own_transpose_is_refused() -> None:
    message = refusal(lambda x: x + x.T, x=(3, 3)).message
    assert message.startswith("add 'v2', of shape [3, 3]")
    assert "axes 0 and 1 of input 'x' of shape [3, 3]" in message


def test_an_index_twice_on_one_axis_is_refused() -> None:
    message = refusal(lambda x: x.reshape((2, 2)) + x.reshape((2, 2)).T, x=(4,)).message
    assert message.startswith("add 'v")
    assert "as axis 0 of input 'x' of shape [4] would have one index twice" in message


def test_a_plain_operand_that_would_need_an_index_twice_is_refused() -> None:
    program = program_of(lambda x, k: x + x @ k, {"x": (4, 3)}, {"k": np.eye(3)})
    with pytest.raises(AutodiffError, match=r"add 'v\d', .* axes 0 and 1 of input 'k' of shape \[3, 3\]") as caught:
        share_indices(program)
    assert caught.value.category == "unsupported_layout"


def test_a_reshape_between_sizes_that_do_not_divide_is_refused() -> None:
    message = refusal(lambda x: x.reshape((3, 2)), x=(2, 3)).message
    assert message.startswith("reshape 'v1', of shape [3, 2]: its axes would have to be cut into parts of 3 and of 2")
    assert "reshape between sizes that divide each other" in message


def test_two_splits_that_do_not_refine_each_other_are_refused() -> None:
    message = refusal(lambda x, y: x.reshape((6,)) + y.reshape((6,)), x=(2, 3), y=(3, 2)).message
    assert "add 'v4', of shape [6]" in message


def test_a_tensor_without_elements_is_refused() -> None:
    message = refusal(lambda x: x * 2.0, x=(0, 3)).message
    assert "input 'x' of shape [0, 3] has no elements" in message


def test_an_operator_that_has_no_packed_form_is_refused() -> None:
    program = program_of(lambda x: x * 2.0, {"x": (4,)})
    (last,) = [o for o in program.operations if o.operator is not None]

    class Unknown(TransposeOperator):
        route_name = "unknown"

    other = Operation(last.position, Unknown(), {}, last.operands, last.type, True, None, None, "", "unknown 'v1'")
    with pytest.raises(AutodiffError, match="unknown 'v1': no packed form of Unknown is known") as caught:
        share_indices(Program([*program.operations[:-1], other], program.inputs, program.outputs))
    assert caught.value.category == "unsupported_operator"


# --------------------------------------------------------------------------------------------------------- properties

shapes_of_powers = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4).map(tuple)
shapes_of_any = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).map(tuple)


@st.composite
def factorizations(draw: st.DrawFn, total: int) -> tuple[int, ...]:
    shape = []
    while total > 1:
        size = draw(st.sampled_from([size for size in range(1, total + 1) if total % size == 0]))
        shape.append(size)
        total //= size
        if len(shape) == 5:
            shape[-1] *= total
            break
    return tuple(shape)


def moved(data: st.DataObject, x: Tensor, count: int) -> Tensor:
    for _ in range(count):
        shape = [size for size in x.shape if isinstance(size, int)]
        if data.draw(st.booleans()):
            x = x.reshape(data.draw(factorizations(prod(shape))))
        else:
            x = x.transpose(data.draw(st.permutations(range(len(shape)))))
    return x


@given(st.data(), shapes_of_powers)
def test_elements_move_as_the_indices_say(data: st.DataObject, shape: tuple[int, ...]) -> None:
    program = program_of(lambda x: moved(data, x, 4) * 2.0, {"x": shape})
    indices = share_indices(program)
    assert prod(indices.sizes.values()) == prod(shape)
    check_movements(program, indices)
    source = enumerated(indices.axes[program.inputs["x"]], {**indices.sizes}) / 2
    result = evaluated(program, {"x": source})[program.outputs["result"]]
    assert_array_equal(result, enumerated(indices.axes[program.outputs["result"]], {**indices.sizes}))


@given(st.data(), shapes_of_any)
def test_tensors_that_meet_have_the_same_indices_or_are_refused(data: st.DataObject, shape: tuple[int, ...]) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return moved(data, x, 3).reshape((prod(shape),)) * moved(data, y, 3).reshape((prod(shape),))

    program = program_of(function, {"x": shape, "y": data.draw(factorizations(prod(shape)))})
    with suppress(Unsupported):
        indices = shared(program)
        check_movements(program, indices)
        last = program.operations[-1].position
        assert indices.operand_axes(last, 0) == indices.operand_axes(last, 1) == indices.axes[last]


@given(st.data(), shapes_of_any)
def test_a_reshape_is_refused_where_the_cumulative_products_do_not_divide(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    target = data.draw(factorizations(prod(shape)))
    products = sorted({*np.cumprod(shape).tolist(), *np.cumprod(target).tolist()})
    divides = all(larger % smaller == 0 for smaller, larger in pairwise(products))
    program = program_of(lambda x: x.reshape(target) * 2.0, {"x": shape})
    if divides:
        check_movements(program, share_indices(program))
    else:
        with pytest.raises(AutodiffError, match="unsupported_layout"):
            share_indices(program)


def test_it_takes_time_linear_in_the_program() -> None:
    """A thousand steps, without recursion."""
    program = link(compiled(MODELS["linear"]), secret=["x"], known={"learning_rate": 0.1}, steps=1000)
    assert len(program.operations) > 10_000
    assert share_indices(program).sizes == {0: 12, 1: 5}
