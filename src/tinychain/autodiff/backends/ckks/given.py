"""What a client is given, judged by the types and the ranges of a plan. No text made here has a value in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.arrays import DTYPES, check_names
from tinychain.autodiff.backends.ckks.ranges import Interval
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.types import TensorType, resolve_shape

Array: TypeAlias = NDArray[Any]


def refused(message: str) -> AutodiffError:
    return AutodiffError("invalid_training_data", message)


def named(
    of: str, given: object, needed: Collection[str], optional: Collection[str] = (), hint: str = ""
) -> Mapping[str, Any]:
    """`given`, a mapping with the needed names and perhaps some optional ones; `hint` says where others may be."""
    if not isinstance(given, Mapping):
        raise refused(f"{of}: expected a mapping with {list(needed or optional)}, got a {type(given).__name__}")
    check_names(of, given, needed, optional, hint)
    return given


def check_array(of: str, name: str, value: object, type_: TensorType) -> Array:
    """The value as an array: finite and exactly of its type, with the planned number of rows."""
    label = f"{quote(name)} of {of}: expected {type_}"
    array, shape = _array(label, value), resolve_shape(type_.shape, {}, label=label)
    if array.ndim == len(shape) and array.shape[1:] == shape[1:] and array.shape != shape:
        rows = f"it has {len(array)} rows, and {shape[0]} are planned"
        raise refused(f"{label}, but {rows}; make a plan for {len(array)}, or give {shape[0]}")
    if (array.dtype, array.shape) != (DTYPES[type_.dtype], shape):
        raise refused(f"{label}, got {array.dtype}{list(array.shape)}; nothing is cast or reshaped")
    _check_finite(label, array)
    return array


def check_inputs(
    of: str, given: object, types: Mapping[str, TensorType], ranges: Mapping[str, Interval]
) -> dict[str, Array]:
    """The arrays of these names, each of its type and within its range, if it has one."""
    given, arrays = named(of, given, types), {}
    for name, type_ in types.items():
        arrays[name] = check_array(of, name, given[name], type_)
        check_range(f"{quote(name)} of {of}", arrays[name], ranges.get(name))
    return arrays


def filled(of: str, name: str, value: object, type_: TensorType) -> Array:
    """A number, or an array of the shape, as an array of the type."""
    label = f"{quote(name)} of {of}: expected a finite number or an array of them for {type_}"
    array, shape = _array(label, value), resolve_shape(type_.shape, {}, label=label)
    if array.dtype.kind not in "iuf" or array.shape not in ((), shape):
        raise refused(f"{label}, got {array.dtype}{list(array.shape)}")
    with np.errstate(over="ignore"):
        array = np.full(shape, array, DTYPES[type_.dtype])
    _check_finite(label, array)
    return array


def check_range(label: str, array: Array, range_: Interval | None) -> None:
    """Raises value_out_of_range, with the number of elements outside of the declared range, if there is one."""
    if range_ is None:
        return
    outside = array.size - int(((array >= range_.low) & (array <= range_.high)).sum())
    if outside:
        raise AutodiffError(
            "value_out_of_range",
            f"{label}: {outside} of {array.size} elements are outside of the declared range from {range_.low:g} to"
            f" {range_.high:g}; scale the data, or make a plan for a wider range",
        )


def _array(label: str, value: object) -> Array:
    try:
        array = np.asarray(value)
    except Exception:  # such as the ValueError for rows of different lengths, whose text may have values
        array = None
    if array is None:
        raise refused(f"{label}, got a {type(value).__name__} of which NumPy makes no array")
    return array


def _check_finite(label: str, array: Array) -> None:
    bad = array.size - int(np.isfinite(array).sum())
    if bad:
        raise refused(f"{label} of finite numbers, but {bad} of {array.size} elements are NaN or infinite")
