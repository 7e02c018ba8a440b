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

_STEP = 1e-5


def run(graph: TensorGraph, values: Mapping[str, Array]) -> Values:
    """Every value of a graph whose node list is in an order that can be run."""
    known = dict(values)
    for node in graph.nodes:
        operands = [known[operand] for operand in node.input_value_ids]
        known[node.output_value_id] = np.asarray(node.operator.reference(np, *operands, **node.op_params))
    return known


def differences(function: Callable[[Array], float], at: Array) -> Array:
    """The gradient of a number by central differences, element by element."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][index] += _STEP
        moved[1][index] -= _STEP
        gradient[index] = (function(moved[0]) - function(moved[1])) / (2 * _STEP)
    return gradient


def draw(graph: TensorGraph, *, low: float = 0.6, high: float = 1.4, **sizes: int) -> Values:
    """Random inputs in f64, the same in every run; symbols have the given sizes."""
    generator = np.random.default_rng(0)
    shapes = {value_id: [sizes.get(dim, dim) for dim in (spec or {})["shape"]] for value_id, spec in graph.inputs}
    return {value_id: generator.uniform(low, high, shape) for value_id, shape in shapes.items()}
