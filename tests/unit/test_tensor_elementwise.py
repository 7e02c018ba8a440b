"""Square roots, exponentials, logarithms, signs, and the larger or smaller of two: what is recorded, what it means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from running import compiled, only, trace
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.tracing import TensorGraphBuilder

Recorded = list[tuple[str, dict[str, Any], list[str]]]


def recorded(function: Callable[..., Any], *shapes: list[int | str]) -> Recorded:
    """Route name, params and operands of every node."""
    nodes = trace(function, *shapes).nodes
    return [(node.operator.route_name, node.op_params, node.input_value_ids) for node in nodes]


def values(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    given = [np.asarray(array, float) for array in arrays]
    graph = trace(function, *[list(array.shape) for array in given])
    return only(compiled(graph)({f"v{i}": array for i, array in enumerate(given)})).tolist()  # type: ignore[no-any-return]


def gradients(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    """The gradient of the result's sum for each array."""
    given = {f"v{i}": np.asarray(array, float) for i, array in enumerate(arrays)}
    graph = trace(function, *[list(array.shape) for array in given.values()])
    program = generate(graph, graph.outputs[0], list(given), "seed")
    joint = compiled(joint_graph(program, forward_graph=graph))
    results = joint({**given, "seed": np.ones((graph.nodes[-1].output_typespec or {})["shape"])})
    return [results[program.gradients[value_id]].tolist() for value_id in given]


# ------------------------------------------------------------------------------------------------------------ recorded


@pytest.mark.parametrize("name", ["sqrt", "exp", "log", "sign"])
def test_a_function_of_one_tensor_is_one_node(name: str) -> None:
    assert recorded(lambda x: getattr(x, name)(), [2, "N"]) == [(name, {}, ["v0"])]


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_an_extremum_takes_a_tensor_or_a_number(name: str) -> None:
    assert recorded(lambda x, y: getattr(x, name)(y), [4, 1], [3]) == [(name, {}, ["v0", "v1"])]
    assert recorded(lambda x: getattr(x, name)(2), [3]) == [(name, {"right_literal": 2}, ["v0"])]
    assert recorded(lambda x: getattr(x, name)(np.float32(0.5)), [3]) == [(name, {"right_literal": 0.5}, ["v0"])]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((), []),
        ((None, None), []),
        ((-1,), [("maximum", {"right_literal": -1}, ["v0"])]),
        ((None, 2.5), [("minimum", {"right_literal": 2.5}, ["v0"])]),
        ((0, 1), [("maximum", {"right_literal": 0}, ["v0"]), ("minimum", {"right_literal": 1}, ["v1"])]),
    ],
)
def test_clip_is_a_maximum_and_a_minimum(bounds: tuple[Any, ...], expected: Recorded) -> None:
    assert recorded(lambda x: x.clip(*bounds), [3]) == expected


def test_clip_takes_a_tensor_as_bound() -> None:
    assert recorded(lambda x, low: x.clip(low), [3], [1]) == [("maximum", {}, ["v0", "v1"])]


@pytest.mark.parametrize("other", ["2", True, 1j, [1, 2], np.ones(2)])
@pytest.mark.parametrize("name", ["maximum", "minimum", "clip"])
def test_another_kind_of_operand_is_a_type_error_that_names_the_method(name: str, other: Any) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(TypeError, match=f"an operand of {name} must be a Tensor or a real number"):
            getattr(x, name)(other)
        assert builder.build().nodes == []


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_shapes_that_do_not_broadcast(name: str) -> None:
    with pytest.raises(AutodiffError, match=r"Operator\('v0': f64\[4\], 'v1': f64\[3\]\)") as caught:
        trace(lambda x, y: getattr(x, name)(y), [4], [3])
    assert caught.value.category == "broadcast_shape_mismatch"


def test_a_symbol_is_bound_by_the_other_operand() -> None:
    (node,) = trace(lambda x, y: x.maximum(y), ["N"], [3]).nodes
    assert node.output_typespec == {"dtype": "f64", "shape": [3]}


# ------------------------------------------------------------------------------------------------------------- meaning


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (lambda x: x.sqrt(), [0.0, 4.0], [0.0, 2.0]),
        (lambda x: x.exp(), [0.0, 1.0], [1.0, math.e]),
        (lambda x: x.log(), [1.0, math.e], [0.0, 1.0]),
        (lambda x: x.sign(), [-3.0, 0.0, 0.5, math.inf], [-1.0, 0.0, 1.0, 1.0]),
        (lambda x: x.maximum(1), [-3.0, 1.0, 2.0], [1.0, 1.0, 2.0]),
        (lambda x: x.minimum(1), [-3.0, 1.0, 2.0], [-3.0, 1.0, 1.0]),
        (lambda x: x.clip(-1, 1), [-3.0, 0.5, 2.0], [-1.0, 0.5, 1.0]),
        (lambda x: x.clip(1, -1), [-3.0, 0.5, 2.0], [-1.0, -1.0, -1.0]),
    ],
)
def test_values(function: Callable[..., Any], x: list[float], expected: list[float]) -> None:
    assert values(function, x) == pytest.approx(expected)


def test_an_extremum_of_two_tensors_broadcasts() -> None:
    assert values(lambda x, y: x.maximum(y), [[0.0], [2.0]], [1.0, 3.0]) == [[1.0, 3.0], [2.0, 3.0]]
    assert values(lambda x, y: x.minimum(y), [[0.0], [2.0]], [1.0, 3.0]) == [[0.0, 0.0], [1.0, 2.0]]


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_wins(name: str) -> None:
    first, second = values(lambda x, y: getattr(x, name)(y), [math.nan, 1.0], [1.0, math.nan])
    assert math.isnan(first)
    assert math.isnan(second)


@pytest.mark.parametrize(
    ("name", "x", "y"), [("maximum", [0.0, 1.0, 0.5], [1.0, 0.0, 0.5]), ("minimum", [1.0, 0.0, 0.5], [0.0, 1.0, 0.5])]
)
def test_the_winner_takes_the_gradient_and_a_tie_shares_it(name: str, x: list[float], y: list[float]) -> None:
    assert gradients(lambda a, b: getattr(a, name)(b), [0.0, 1.0, 2.0], [1.0, 0.0, 2.0]) == [x, y]


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_both_halves_come_together_in_an_extremum_of_a_tensor_with_itself(name: str) -> None:
    assert gradients(lambda a: getattr(a, name)(a), [-1.0, 0.0, 2.0]) == [[1.0, 1.0, 1.0]]


def test_the_gradient_of_a_clip_is_that_of_what_it_lets_pass() -> None:
    assert gradients(lambda x: x.clip(-1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0]) == [[0.0, 0.5, 1.0, 0.5, 0.0]]


def test_a_broadcast_operand_gets_the_sum_of_its_shares() -> None:
    assert gradients(lambda x, y: x.maximum(y), [[0.0], [2.0]], [1.0, 3.0]) == [[[0.0], [1.0]], [1.0, 2.0]]


def test_the_gradient_of_a_sign_is_zero() -> None:
    assert gradients(lambda x: x.sign(), [-1.0, 0.0, 2.0]) == [[0.0, 0.0, 0.0]]
