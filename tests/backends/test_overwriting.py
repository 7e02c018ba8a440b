"""A compiled function writes results over operands that nobody reads any more, and over nothing else."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from running import compiled, trace
from strategies import traced_graphs
from tinychain.autodiff import TensorGraph

SHAPE = (64, 32)
X = np.random.default_rng(0).uniform(1.0, 2.0, SHAPE)


def run(function: Callable[..., Any]) -> list[NDArray[Any]]:
    """The results for X as both inputs, which stays as it is."""
    given_x, given_y = X.copy(), X.copy()
    graph = trace(function, [*SHAPE], [*SHAPE])
    found = compiled(graph)(dict(zip(["v0", "v1"], [given_x, given_y], strict=True)))
    np.testing.assert_array_equal(given_x, X)
    np.testing.assert_array_equal(given_y, X)
    return [found[value_id] for value_id in graph.outputs]


def chain(x: Any, y: Any) -> Any:
    for _ in range(20):
        x = x * y - y * 0.5
    return x


def test_a_chain_holds_no_more_than_the_arrays_that_are_alive() -> None:
    def halve(x: Any) -> Any:
        for _ in range(10):
            x = x * 0.5
        return x

    function, given_x = compiled(trace(halve, [1000, 1000])), np.ones((1000, 1000))
    tracemalloc.start()
    function({"v0": given_x})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * given_x.nbytes  # a second array, for results that alternate between two, would be 2


@pytest.mark.parametrize(
    "function",
    [
        chain,
        lambda x, y: (x * y) * (x * y),
        lambda x, y: ((z := x + y) * z) + z,
        lambda x, y: ((z := x + y), z * 2.0, (z * 2.0) * 3.0),
        lambda x, y: (x * 2.0).reshape((32, 64)).reshape(SHAPE) * 3.0 + (x * 2.0),
        lambda x, y: (x * y).sum(axis=0) + x * 0.5,
    ],
    ids=["chain", "square", "read twice", "outputs", "views", "broadcast"],
)
def test_computes_what_numpy_does(function: Callable[[Any, Any], Any]) -> None:
    expected = function(X, X)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, wanted in zip(run(function), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_value_is_kept_while_a_view_of_it_is_alive() -> None:
    """z dies at the product, before its transposed view does; its memory must outlive it."""

    def function(x: Any, y: Any) -> Any:
        z = x * 2.0
        view = z.reshape((32, 64))
        return (z * 3.0) @ view

    (found,) = run(function)
    np.testing.assert_array_equal(found, function(X, X))


@given(traced_graphs())
def test_a_second_call_gives_the_same(graph: TensorGraph) -> None:
    arrays = {value_id: np.ones(spec["shape"]) for value_id, spec in graph.inputs if spec is not None}
    function = compiled(graph)
    first = {key: array.copy() for key, array in function(arrays).items()}
    for key, array in function(arrays).items():
        np.testing.assert_array_equal(array, first[key])
    assert all((array == 1.0).all() for array in arrays.values())
