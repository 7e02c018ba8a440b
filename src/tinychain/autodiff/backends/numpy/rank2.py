"""A backend that adds, multiplies and matmuls matrices: the machine of the target add-mul-matmul-rank2.

All that it has besides are constants and reshapes, which compute nothing. Nothing broadcasts.
"""

from __future__ import annotations

import numpy as np

from tinychain.autodiff.arrays import DTYPES
from tinychain.autodiff.backends.numpy.array import Array, compute, compute_ufunc
from tinychain.autodiff.backends.numpy.limited import check_equal_shapes, limited_registry
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion import constant_descriptor
from tinychain.autodiff.lowering import OperationContext, OperationHandlerRegistry
from tinychain.autodiff.operators import (
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
)


def rank2_registry() -> OperationHandlerRegistry:
    """A new registry: Add, Mul and Matmul of matrices; Fill, Constant, and a Reshape of the same element count.

    Lowering raises unsupported_operator for an operand of another rank, broadcast_shape_mismatch for two matrices of
    different shapes, and shape_mismatch for a reshape whose element count is not known to stay.
    """
    registry = OperationHandlerRegistry()

    @registry.handler(AddOperator)
    class Add:
        def lower(self, context: OperationContext) -> Array:
            _check_matrices(context)
            check_equal_shapes(context)
            return compute_ufunc(context, np.add)

    @registry.handler(MulOperator)
    class Mul:
        def lower(self, context: OperationContext) -> Array:
            _check_matrices(context)
            if "right_literal" not in context.op_params:
                check_equal_shapes(context)
            return compute_ufunc(context, np.multiply)

    @registry.handler(MatmulOperator)
    class Matmul:
        def lower(self, context: OperationContext) -> Array:
            _check_matrices(context)
            return compute_ufunc(context, np.matmul)

    @registry.handler(ConstantOperator)
    class Constant:
        def lower(self, context: OperationContext) -> Array:
            constant = constant_descriptor(context)
            values = np.array(constant.values, DTYPES[constant.dtype]).reshape(constant.shape)
            return compute(context, values.copy)

    limited = limited_registry()
    for operator_type in (FillOperator, ReshapeOperator):
        registry.register(limited.lookup(operator_type))
    return registry


def _check_matrices(context: OperationContext) -> None:
    types = [operand.type for operand in context.inputs]
    if any(type_ is None or len(type_.shape) != 2 for type_ in types):
        raise AutodiffError(
            "unsupported_operator",
            f"node {quote(context.node_id)} ({context.operator.name}) has operands of types"
            f" {' and '.join(map(str, types))}; this backend computes on matrices, so legalize the program first",
        )
