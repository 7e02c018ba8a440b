"""Graphs run node by node through what their operators say they mean, and differences of what comes out.

It uses nothing of the package but the records and `reference`, so that it can judge everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.graph import TensorGraph

Array = NDArray[Any]
Values = dict[str, Array]

#: What the symbols of a graph stand for here.
SIZES = {"N": 2}

_STEP = 1e-5


def run(graph: TensorGraph, values: Mapping[str, Array]) -> Values:
    """Every value that the given ones determine; the node list must be in an order that can be run."""
    known = dict(values)
    for node in graph.nodes:
        if known.keys() >= set(node.input_value_ids):
            operands = [known[operand] for operand in node.input_value_ids]
            op_params = {key: _sizes(value) if "shape" in key else value for key, value in node.op_params.items()}
            known[node.output_value_id] = np.asarray(node.operator.reference(np, *operands, **op_params))
    return known


def differences(function: Callable[[Array], float], at: Array) -> Array:
    """The gradient of a number by central differences, element by element."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        right, left = at.copy(), at.copy()
        right[index] += _STEP
        left[index] -= _STEP
        gradient[index] = (function(right) - function(left)) / (2 * _STEP)
    return gradient


def draw(graph: TensorGraph) -> Values:
    """Random inputs in f64 around 1, the same in every run."""
    generator = np.random.default_rng(0)
    return {value_id: generator.uniform(0.6, 1.4, _sizes((spec or {})["shape"])) for value_id, spec in graph.inputs}


def _sizes(shape: list[int | str]) -> list[int]:
    return [SIZES[dim] if isinstance(dim, str) else dim for dim in shape]
