"""Reading a fill or a constant: what a handler needs to generate it, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorNodeRecord, TensorOperator
from tinychain.autodiff.lowering import OperationContext
from tinychain.autodiff.operators.constant import (
    ConstantDescriptor,
    ConstantOperator,
    FillDescriptor,
    FillOperator,
    parse_constant,
    parse_fill,
)
from tinychain.autodiff.types import is_sequence, spec_field

Descriptor = TypeVar("Descriptor", FillDescriptor, ConstantDescriptor)


def fill_descriptor(node: TensorNodeRecord | OperationContext) -> FillDescriptor:
    """The number, dtype and shape of a fill node or of the context that a fill's handler gets.

    Raises malformed_derivative_ir for another argument, operator or operand count, a foreign param, a fill that is no
    number, and a typespec that disagrees; missing_dtype_metadata and missing_shape_metadata for bad params.
    """
    return _descriptor(node, FillOperator(), parse_fill)


def constant_descriptor(node: TensorNodeRecord | OperationContext) -> ConstantDescriptor:
    """The numbers in row-major order, dtype and shape of a constant node or of its handler's context.

    Raises as `fill_descriptor`, and shape_mismatch where the shape takes another count of values.
    """
    return _descriptor(node, ConstantOperator(), parse_constant)


def _descriptor(
    node: TensorNodeRecord | OperationContext,
    operator: TensorOperator,
    parse: Callable[..., Descriptor],
) -> Descriptor:
    if not isinstance(node, (TensorNodeRecord, OperationContext)):
        raise AutodiffError(
            "malformed_derivative_ir", f"expected a TensorNodeRecord or an OperationContext, got {quote(node)}"
        )
    label = f"node {quote(node.node_id)}"
    if type(node.operator) is not type(operator):
        raise AutodiffError("malformed_derivative_ir", f"{label} is a {node.operator.name}; expected a {operator.name}")
    if node.input_value_ids:
        raise AutodiffError(
            "malformed_derivative_ir",
            f"{label} has {len(node.input_value_ids)} operands; a {operator.route_name} has none",
        )
    descriptor = parse(node.op_params, label=label)
    _check_spec(node.output_typespec, descriptor, label)
    return descriptor


def _check_spec(spec: Mapping[str, Any] | None, descriptor: FillDescriptor | ConstantDescriptor, label: str) -> None:
    shape = spec_field(spec, "shape")
    agrees = spec_field(spec, "dtype") == descriptor.dtype and is_sequence(shape) and tuple(shape) == descriptor.shape
    if spec is not None and not agrees:
        raise AutodiffError(
            "malformed_derivative_ir",
            f"{label} declares {quote(spec)}; its params give dtype {quote(descriptor.dtype)} and shape"
            f" {quote(list(descriptor.shape))}",
        )
