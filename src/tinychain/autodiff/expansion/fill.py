"""Reading a fill: what a handler needs to generate the constant, checked."""

from __future__ import annotations

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.lowering import OperationContext
from tinychain.autodiff.operators.constant import FillDescriptor, FillOperator, parse_fill
from tinychain.autodiff.types import is_sequence, spec_field


def fill_descriptor(node: TensorNodeRecord | OperationContext) -> FillDescriptor:
    """The number, dtype and shape of a fill node or of the context that a fill's handler gets.

    Raises malformed_derivative_ir for another argument, operator or operand count, a foreign param, a fill that is no
    number, and a typespec that disagrees; missing_dtype_metadata and missing_shape_metadata for bad params.
    """
    if not isinstance(node, (TensorNodeRecord, OperationContext)):
        raise AutodiffError(
            "malformed_derivative_ir", f"expected a TensorNodeRecord or an OperationContext, got {quote(node)}"
        )
    label = f"node {quote(node.node_id)}"
    if type(node.operator) is not FillOperator:
        raise AutodiffError("malformed_derivative_ir", f"{label} is a {node.operator.name}; expected a FillOperator")
    if node.input_value_ids:
        raise AutodiffError(
            "malformed_derivative_ir", f"{label} has {len(node.input_value_ids)} operands; a fill has none"
        )
    descriptor = parse_fill(node.op_params, label=label)
    spec = node.output_typespec
    shape = spec_field(spec, "shape")
    agrees = spec_field(spec, "dtype") == descriptor.dtype and is_sequence(shape) and tuple(shape) == descriptor.shape
    if spec is not None and not agrees:
        raise AutodiffError(
            "malformed_derivative_ir",
            f"{label} declares {quote(spec)}; its params give dtype {quote(descriptor.dtype)} and shape"
            f" {quote(list(descriptor.shape))}",
        )
    return descriptor
