"""A backend that can only add, multiply and matmul: the template for one of your own.

It stands for a machine without reductions, broadcasting, division, subtraction or transposes. A handler takes an
`OperationContext` and returns whatever the machine calls a value; here that is an `Array`.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tinychain.autodiff.arrays import DTYPES
from tinychain.autodiff.backends.numpy.array import Array, compute, compute_ufunc
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion import fill_descriptor
from tinychain.autodiff.lowering import OperationContext, OperationHandlerRegistry
from tinychain.autodiff.operators import AddOperator, FillOperator, MatmulOperator, MulOperator, ReshapeOperator


def limited_registry() -> OperationHandlerRegistry:
    """A new registry that owns Add, Mul, Matmul, Fill, and a Reshape of the same element count. Nothing broadcasts."""
    registry = OperationHandlerRegistry()

    @registry.handler(AddOperator)
    class Add:
        def lower(self, context: OperationContext) -> Array:
            check_equal_shapes(context)
            return compute_ufunc(context, np.add)

    @registry.handler(MulOperator)
    class Mul:
        def lower(self, context: OperationContext) -> Array:
            if "right_literal" not in context.op_params:
                check_equal_shapes(context)
            return compute_ufunc(context, np.multiply)

    @registry.handler(MatmulOperator)
    class Matmul:
        def lower(self, context: OperationContext) -> Array:
            check_equal_shapes(context, batch_only=True)
            return compute_ufunc(context, np.matmul)

    @registry.handler(FillOperator)
    class Fill:
        def lower(self, context: OperationContext) -> Array:
            fill = fill_descriptor(context)
            return compute(context, np.full, shape=fill.shape, fill_value=fill.fill, dtype=DTYPES[fill.dtype])

    @registry.handler(ReshapeOperator)
    class Reshape:
        def lower(self, context: OperationContext) -> Array:
            _check_same_count(context)
            shape = context.op_params["shape"]
            return compute(context, lambda x: x.reshape(shape))

    return registry


def check_equal_shapes(context: OperationContext, *, batch_only: bool = False) -> None:
    types = [operand.type for operand in context.inputs]
    shapes = [None if type_ is None else type_.shape[:-2] if batch_only else type_.shape for type_ in types]
    if None in shapes or shapes[0] != shapes[1]:
        raise AutodiffError(
            "broadcast_shape_mismatch",
            f"node {quote(context.node_id)} ({context.operator.name}) has operands of types"
            f" {' and '.join(map(str, types))}; this backend does not broadcast, so give both the same"
            f" {'batch dims' if batch_only else 'shape'}",
        )


def _check_same_count(context: OperationContext) -> None:
    source, target = context.inputs[0].type, context.op_params["shape"]
    if (
        source is None
        or any(isinstance(dim, str) for dim in (*source.shape, *target))
        or prod(source.shape) != prod(target)
    ):
        raise AutodiffError(
            "shape_mismatch",
            f"node {quote(context.node_id)} reshapes {source} to {list(target)}; this backend keeps the element count",
        )
