"""Operators without operands: the one constant that is described instead of stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record, Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import Symbols, TensorType, as_int, check_floating, check_literal, is_sequence

FILL_ROUTE_NAME: Final = "fill"

_XP_DTYPES: Final = {"f32": "float32", "f64": "float64"}


@dataclass(frozen=True)
class FillDescriptor(Record):
    """A constant tensor: every element is `fill`."""

    fill: float
    dtype: str
    shape: tuple[int, ...]


def parse_fill(op_params: Mapping[str, Any], *, label: str) -> FillDescriptor:
    """The checked descriptor in a fill's params.

    Raises malformed_derivative_ir for a foreign key or a fill beyond a float, missing_dtype_metadata and
    missing_shape_metadata for the other two.
    """
    foreign = [key for key in op_params if key not in FillOperator.params]
    if foreign:
        raise AutodiffError(
            "malformed_derivative_ir",
            f"{label} has the op_params key {quote(foreign[0])}; a fill has only {', '.join(FillOperator.params)}",
        )
    fill, dtype, shape = op_params.get("fill"), op_params.get("dtype"), op_params.get("shape")
    try:
        number = check_literal(fill)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{label} has a bad fill: {error.message}") from None
    if not isinstance(dtype, str) or not dtype:
        raise AutodiffError("missing_dtype_metadata", f"{label} has the dtype {quote(dtype)}; expected a non-empty str")
    sizes = [as_int(dim) for dim in shape] if is_sequence(shape) else [None]
    dims = tuple([size for size in sizes if size is not None and size >= 0])
    if len(dims) != len(sizes):
        raise AutodiffError(
            "missing_shape_metadata", f"{label} has the shape {quote(shape)}; expected a list of non-negative ints"
        )
    return FillDescriptor(fill=number, dtype=dtype, shape=dims)


class FillOperator(TensorOperator):
    """A tensor of one repeated number. () -> f[shape]."""

    route_name = FILL_ROUTE_NAME
    params = ("fill", "dtype", "shape")
    samples = (
        Sample((), {"fill": 1.0, "dtype": "f64", "shape": [3, 2]}),
        Sample((), {"fill": -2, "dtype": "f64", "shape": []}),
    )

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 0

    def result_type(self, symbols: Symbols, **op_params: Any) -> TensorType:
        descriptor = parse_fill(op_params, label="fill")
        return TensorType(check_floating(descriptor.dtype), descriptor.shape)

    def vjp(self, emit: object, node: TensorNodeRecord, g: str) -> Sequence[str]:
        return ()

    def flops(self, result: TensorType, **op_params: Any) -> int:
        return 0

    def reference(self, xp: Any, *, fill: float, dtype: str, shape: Sequence[int]) -> Any:
        return xp.full(tuple(shape), check_literal(fill), dtype=getattr(xp, _XP_DTYPES[check_floating(dtype)]))
