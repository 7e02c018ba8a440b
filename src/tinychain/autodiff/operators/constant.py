"""Operators without operands: a constant that is described by one number, and one whose numbers are written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record, Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import Symbols, TensorType, as_int, check_floating, check_literal, is_sequence, swapped

FILL_ROUTE_NAME: Final = "fill"

_XP_DTYPES: Final = {"f32": "float32", "f64": "float64"}


@dataclass(frozen=True)
class FillDescriptor(Record):
    """A constant tensor: every element is `fill`."""

    fill: float
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ConstantDescriptor(Record):
    """A constant tensor: its elements are `values`, in row-major order."""

    values: tuple[float, ...]
    dtype: str
    shape: tuple[int, ...]


def parse_fill(op_params: Mapping[str, Any], *, label: str) -> FillDescriptor:
    """The checked descriptor in a fill's params.

    Raises malformed_derivative_ir for a foreign key or a fill beyond a float, missing_dtype_metadata and
    missing_shape_metadata for the other two.
    """
    _check_keys(op_params, FillOperator(), label)
    number = _number(op_params.get("fill"), f"{label} has a bad fill")
    dtype, shape = _parse_type(op_params, label)
    return FillDescriptor(fill=number, dtype=dtype, shape=shape)


def parse_constant(op_params: Mapping[str, Any], *, label: str) -> ConstantDescriptor:
    """The checked descriptor in a constant's params.

    Raises malformed_derivative_ir for a foreign key, values that are no sequence and a value beyond a float,
    missing_dtype_metadata and missing_shape_metadata for the other two, shape_mismatch for another count of values.
    """
    _check_keys(op_params, ConstantOperator(), label)
    values = op_params.get("values")
    if not is_sequence(values):
        raise AutodiffError("malformed_derivative_ir", f"{label} has the values {quote(values)}; expected a list")
    if {*map(type, values)} <= {float}:  # nearly always, and there may be a million
        numbers = tuple(values)
    else:
        numbers = tuple([_number(value, f"{label} has a bad value at {i}") for i, value in enumerate(values)])
    dtype, shape = _parse_type(op_params, label)
    if len(numbers) != prod(shape):
        raise AutodiffError(
            "shape_mismatch", f"{label} has {len(numbers)} values; the shape {quote(list(shape))} takes {prod(shape)}"
        )
    return ConstantDescriptor(values=numbers, dtype=dtype, shape=shape)


class _Constant(TensorOperator):
    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 0

    def vjp(self, emit: object, node: TensorNodeRecord, g: str) -> Sequence[str]:
        return ()

    def flops(self, result: TensorType, **op_params: Any) -> int:
        return 0


class FillOperator(_Constant):
    """A tensor of one repeated number. () -> f[shape]."""

    route_name = FILL_ROUTE_NAME
    params = ("fill", "dtype", "shape")
    samples = (
        Sample((), {"fill": 1.0, "dtype": "f64", "shape": [3, 2]}),
        Sample((), {"fill": -2, "dtype": "f64", "shape": []}),
    )

    def result_type(self, symbols: Symbols, **op_params: Any) -> TensorType:
        descriptor = parse_fill(op_params, label="fill")
        return TensorType(check_floating(descriptor.dtype), descriptor.shape)

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        return emit(FillOperator, **{**node.op_params, "shape": list(swapped(node.op_params["shape"]))})

    def reference(self, xp: Any, *, fill: float, dtype: str, shape: Sequence[int]) -> Any:
        return xp.full(tuple(shape), check_literal(fill), dtype=_xp_dtype(xp, dtype))


class ConstantOperator(_Constant):
    """A tensor of the numbers `values`, in row-major order. () -> f[shape]."""

    route_name = "constant"
    params = ("values", "dtype", "shape")
    samples = (
        Sample((), {"values": [1.0, -0.5, 0.0, 3, 1e30, 0.1], "dtype": "f64", "shape": [3, 2]}),
        Sample((), {"values": [2.5], "dtype": "f64", "shape": []}),
        Sample((), {"values": [], "dtype": "f64", "shape": [0, 3]}),
    )

    def result_type(self, symbols: Symbols, **op_params: Any) -> TensorType:
        descriptor = parse_constant(op_params, label="constant")
        return TensorType(check_floating(descriptor.dtype), descriptor.shape)

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        values, shape = node.op_params["values"], node.op_params["shape"]
        rows, columns = shape[-2:]
        size = rows * columns
        starts = range(0, len(values), size) if size else ()
        moved = [values[start + i * columns + j] for start in starts for j in range(columns) for i in range(rows)]
        return emit(ConstantOperator, **{**node.op_params, "values": moved, "shape": list(swapped(shape))})

    def reference(self, xp: Any, *, values: Sequence[float], dtype: str, shape: Sequence[int]) -> Any:
        return xp.reshape(xp.asarray(list(map(check_literal, values)), dtype=_xp_dtype(xp, dtype)), tuple(shape))


def _check_keys(op_params: Mapping[str, Any], operator: _Constant, label: str) -> None:
    foreign = [key for key in op_params if key not in operator.params]
    if foreign:
        raise AutodiffError(
            "malformed_derivative_ir",
            f"{label} has the op_params key {quote(foreign[0])}; a {operator.route_name} has only"
            f" {', '.join(operator.params)}",
        )


def _number(value: object, label: str) -> float:
    try:
        return check_literal(value)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{label}: {error.message}") from None


def _parse_type(op_params: Mapping[str, Any], label: str) -> tuple[str, tuple[int, ...]]:
    dtype, shape = op_params.get("dtype"), op_params.get("shape")
    if not isinstance(dtype, str) or not dtype:
        raise AutodiffError("missing_dtype_metadata", f"{label} has the dtype {quote(dtype)}; expected a non-empty str")
    sizes = [as_int(dim) for dim in shape] if is_sequence(shape) else [None]
    dims = tuple([size for size in sizes if size is not None and size >= 0])
    if len(dims) != len(sizes):
        raise AutodiffError(
            "missing_shape_metadata", f"{label} has the shape {quote(shape)}; expected a list of non-negative ints"
        )
    return dtype, dims


def _xp_dtype(xp: Any, dtype: str) -> Any:
    return getattr(xp, _XP_DTYPES[check_floating(dtype)])
