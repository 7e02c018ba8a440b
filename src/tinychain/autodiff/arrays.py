"""What a declared type is in NumPy, and whether an array is of it; backends and the runner judge by the same rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.types import Shape, Symbols, bind_shape

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def check_array(
    label: str, array: NDArray[Any], dtype: str | None, shape: Shape | None, symbols: Symbols, *, remedy: str = ""
) -> None:
    """Binds the declared symbols to the dims of an array that is exactly of the declared type; None declares nothing.

    Raises dtype_mismatch, where `remedy` ends the message, shape_mismatch, and symbolic_shape_mismatch for a symbol
    that is bound otherwise.
    """
    if dtype is not None and array.dtype != DTYPES.get(dtype):
        raise AutodiffError("dtype_mismatch", f"{label} has dtype {array.dtype}; expected {dtype}{remedy}")
    if shape is None:
        return
    wrong = f"{label} has shape {list(array.shape)}; expected {list(shape)}"
    try:
        fits = bind_shape(shape, array.shape, symbols)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{wrong}: {error.message}") from None
    if not fits:
        raise AutodiffError("shape_mismatch", wrong)


def check_names(
    of: str, given: Mapping[str, Any], needed: Collection[str], optional: Collection[str] = (), hint: str = ""
) -> None:
    """Raises invalid_training_data, with `hint` where one is missing, for other names than the needed and optional."""
    missing = [name for name in needed if name not in given]
    unknown = [name for name in given if name not in needed and name not in optional]
    if missing or unknown:
        others = f" and perhaps {list(optional)}" if optional else ""
        message = f"{of}: expected {list(needed)}{others}; missing are {missing}, unknown {quote(unknown)}"
        raise AutodiffError("invalid_training_data", message + hint * bool(missing))
