"""The NumPy backends: the reference, which runs every operator, and two that only add, multiply and matmul.

program = lower_graph(graph, handlers=reference_registry(), bind_input=bind_input)
results = NumpyFunction(program)({"v0": x, "v1": y})
"""

from __future__ import annotations

from tinychain.autodiff.backends.numpy.array import Array, NumpyFunction, bind_input, compute, compute_ufunc
from tinychain.autodiff.backends.numpy.limited import limited_registry
from tinychain.autodiff.backends.numpy.rank2 import rank2_registry
from tinychain.autodiff.backends.numpy.reference import ReferenceHandler, reference_dispatch, reference_registry

__all__ = [
    "Array",
    "NumpyFunction",
    "ReferenceHandler",
    "bind_input",
    "compute",
    "compute_ufunc",
    "limited_registry",
    "rank2_registry",
    "reference_dispatch",
    "reference_registry",
]
