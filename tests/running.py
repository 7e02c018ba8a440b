"""Traced in one line and run on NumPy in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from tinychain.autodiff.backends.numpy import NumpyFunction, bind_input, reference_registry
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.lowering import OperationHandlerRegistry, lower_graph
from tinychain.autodiff.tracing import TensorGraphBuilder


def trace(function: Callable[..., Any], *shapes: list[int | str], dtype: str = "f64") -> TensorGraph:
    """The graph of a function of tensors v0, v1, ... with one result or several."""
    with TensorGraphBuilder() as builder:
        result = function(*[builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)])
    return builder.build(outputs=result)


def compiled(graph: TensorGraph, handlers: OperationHandlerRegistry | None = None) -> NumpyFunction:
    return NumpyFunction(lower_graph(graph, handlers=handlers or reference_registry(), bind_input=bind_input))


def only(results: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    (result,) = results.values()
    return result
