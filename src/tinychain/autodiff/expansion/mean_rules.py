"""What a mean must satisfy to be rewritten as matmuls, clause by clause, each with its own category and reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.rewriter import DEFAULT_PREFIX
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.operators import FillOperator
from tinychain.autodiff.operators.reduction import explicit_axes, float_count
from tinychain.autodiff.types import FLOATING_DTYPES, Shape, Typespec, parse_shape, reduced_shape, spec_field


def check_mean(node: TensorNodeRecord, specs: Mapping[str, Typespec | None], prefix: str) -> None:
    """Raises AutodiffError for the first clause that the mean breaks; the message names the node."""

    def refuse(category: str, reason: str) -> NoReturn:
        raise AutodiffError(category, f"mean node {quote(node.node_id)}: {reason}")

    def ranked_shape(spec: Typespec | None, owner: str) -> Shape:
        try:
            return parse_shape(spec_field(spec, "shape"), label=owner)
        except AutodiffError as error:
            refuse(error.category, f"{owner} declares no ranked shape: {error.message}")

    def dtype(spec: Typespec | None, owner: str) -> str:
        name = spec_field(spec, "dtype")
        if not isinstance(name, str) or not name:
            refuse("missing_dtype_metadata", f"{owner} declares no dtype; give its value a complete typespec")
        return name

    if len(node.input_value_ids) != 1:
        refuse("unsupported_reduction", f"expected exactly one operand, got {len(node.input_value_ids)}")
    operand = specs.get(node.input_value_ids[0])
    shape = ranked_shape(operand, "operand")
    operand_dtype = dtype(operand, "operand")
    if len(shape) != 2:
        refuse("unsupported_reduction", f"operand has rank {len(shape)}; expected 2, so reshape it to a matrix")
    for dim in shape:
        if isinstance(dim, str):
            refuse("unresolved_symbolic_shape", f"operand dim {quote(dim)} is symbolic; expected an int")
    for dim in shape:
        if dim == 0:
            refuse("unsupported_reduction", "operand dim 0 is not positive; the mean of no elements is undefined")
    try:
        float_count(shape)
    except AutodiffError as error:
        refuse(error.category, error.message)
    try:
        axes = explicit_axes(node.op_params.get("axes"), shape)
    except AutodiffError as error:
        refuse(error.category, f"declared axes are malformed: {error.message}")
    if axes != (0, 1):
        refuse("unsupported_reduction", f"a partial reduction over axes {list(axes)}; expected both axes")
    keepdims = node.op_params.get("keepdims")
    if not isinstance(keepdims, bool):
        refuse("unsupported_reduction", f"'keepdims' is not a bool but {quote(keepdims)}")
    if operand_dtype not in FLOATING_DTYPES:
        refuse(
            "dtype_not_differentiable",
            f"operand dtype is not differentiable: {quote(operand_dtype)}; expected {' or '.join(FLOATING_DTYPES)}",
        )
    output_shape = ranked_shape(node.output_typespec, "output")
    output_dtype = dtype(node.output_typespec, "output")
    expected = reduced_shape(shape, axes, keepdims=keepdims)
    if output_shape != expected:
        refuse(
            "reduction_shape_mismatch", f"output declares shape {quote(list(output_shape))}; expected {list(expected)}"
        )
    if output_dtype != operand_dtype:
        refuse("reduction_shape_mismatch", f"output declares dtype {output_dtype}; expected {operand_dtype}")
    reserved = tuple([f"{namespace}{kind}" for namespace in (DEFAULT_PREFIX, prefix) for kind in "nv"])
    for id_ in (node.node_id, node.output_value_id):
        if id_.startswith(reserved):
            refuse("unsupported_reduction", f"id {quote(id_)} lies in the reserved expansion namespace")
    for key in FillOperator.params:
        if key in node.op_params:
            refuse("unsupported_reduction", f"op_params carry the fill descriptor key {quote(key)}")
