"""The reference backend: every operator of the package, computed as its own class says."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tinychain.autodiff.backends.numpy.array import Array, compute, compute_ufunc
from tinychain.autodiff.graph import TensorNodeRecord, TensorOperator
from tinychain.autodiff.lowering import OperationContext, OperationHandlerRegistry
from tinychain.autodiff.operators import OPERATORS


class ReferenceHandler:
    """Lowers one operator class to its own `reference` on NumPy."""

    def __init__(self, operator_type: type[TensorOperator]) -> None:
        self.operator_type = operator_type

    def lower(self, context: OperationContext) -> Array:
        operator = context.operator
        if operator.ufunc is not None:
            return compute_ufunc(context, getattr(np, operator.ufunc))
        return compute(context, partial(operator.reference, np), **context.op_params)


def reference_registry() -> OperationHandlerRegistry:
    """A new registry with a handler for every operator of the package; register those of your own on top."""
    registry = OperationHandlerRegistry()
    for operator_type in OPERATORS:
        registry.register(ReferenceHandler(operator_type))
    return registry


def reference_dispatch(node: TensorNodeRecord, args: list[Any]) -> Any:
    """One node on NumPy arrays: the dispatch for an `ExecutionScheduler`."""
    return node.operator.reference(np, *args, **node.op_params)
