"""The arrays that a caller gives: judged by the types that the step declares, cut into batches, shuffled.

What does not fit is invalid_training_data; the message names the array, what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.types import Symbols, TensorType, as_int, bind_shape, resolve_shape

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
_ROWS: Final = "number of rows"  # a symbol of no declaration, whose symbols are identifiers

Array: TypeAlias = NDArray[Any]
#: Whole arrays by name, or batches of them, or a function from the number of an epoch (the first is 1) to its batches.
Data: TypeAlias = Mapping[str, Any] | Iterable[Mapping[str, Any]] | Callable[[int], Iterable[Mapping[str, Any]]]


def refused(message: str) -> AutodiffError:
    return AutodiffError("invalid_training_data", message)


def check_names(
    label: str, given: object, needed: Collection[str], optional: Collection[str] = ()
) -> Mapping[str, Any]:
    """`given`, a mapping with the needed names and perhaps some of the optional ones."""
    if not isinstance(given, Mapping):
        raise refused(f"{label}: expected a mapping by name, got {quote(given)}")
    missing = [name for name in needed if name not in given]
    unknown = [name for name in given if name not in needed and name not in optional]
    if missing or unknown:
        others = f" and perhaps {list(optional)}" if optional else ""
        raise refused(f"{label}: expected {list(needed)}{others}; missing are {missing}, unknown {quote(unknown)}")
    return given


def check_arrays(
    of: str, given: Mapping[str, Any], types: Mapping[str, TensorType], symbols: Symbols
) -> dict[str, Array]:
    """The arrays of these names, each finite and exactly of its type, whose symbols are bound."""
    arrays = {}
    for name, type_ in types.items():
        label = f"{name!r} of {of}: expected {type_}"
        try:
            array = np.asarray(given[name])
            fits, why = bind_shape(type_.shape, array.shape, symbols), ""
        except AutodiffError as error:
            fits, why = False, f": {error.message}"
        except Exception as error:
            raise refused(f"{label}, got {quote(given[name])}: {describe(error)}") from error
        if array.dtype != DTYPES[type_.dtype] or not fits:
            raise refused(f"{label}, got {array.dtype} of shape {list(array.shape)}{why}; nothing is cast or reshaped")
        if (bad := non_finite(array)) is not None:
            raise refused(f"{label} of finite numbers, got {bad}")
        arrays[name] = array
    return arrays


def filled(label: str, value: object, type_: TensorType) -> Array:
    """A number, or an array of the shape, as an array of the type."""
    array, shape = np.asarray(value), resolve_shape(type_.shape, {}, label=label)
    if array.dtype.kind in "iuf" and array.shape in ((), shape):
        with np.errstate(over="ignore"):
            array = np.full(shape, array, DTYPES[type_.dtype])
        if non_finite(array) is None:
            return array
    raise refused(f"{label}: expected a finite number or an array of them for {type_}, got {quote(value)}")


def non_finite(array: Array) -> str | None:
    """The first element that is NaN or infinite, and where it is; None if there is none."""
    finite = np.isfinite(array)
    if finite.all():
        return None
    index = tuple(np.argwhere(~finite)[0].tolist())
    return f"{array[index]} at {list(index)}" if index else f"{array[index]}"


class Batches:
    """The batches of each epoch. Arrays are judged at once; batches of the caller's one by one, as they come.

    `plan` says in numbers how arrays are cut; -1 stands for what does not apply.
    """

    def __init__(
        self,
        data: Data,
        types: Mapping[str, TensorType],
        unread: Collection[str],
        batch_size: int | None = None,
        drop_remainder: bool = False,
        shuffle_seed: int | None = None,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("shuffle_seed", shuffle_seed, 0)):
            if value is not None and not least <= (-1 if (number := as_int(value)) is None else number) < 2**63:
                raise ValueError(f"{name} must be None or an int from {least} to 2**63 - 1, got {quote(value)}")
        self._data, self._types, self._unread = data, types, unread
        self.plan = {"rows": -1, "batch_size": -1, "batches": -1, "shuffle_seed": -1}
        if isinstance(data, Mapping):
            self._cut(check_names("the data", data, types, unread), as_int(batch_size), drop_remainder)
            self.plan["shuffle_seed"] = -1 if shuffle_seed is None else int(shuffle_seed)
        elif batch_size is not None or shuffle_seed is not None or drop_remainder:
            raise ValueError("batch_size, shuffle_seed and drop_remainder are for arrays; these are batches already")
        elif not callable(data) and not isinstance(data, Iterable):
            raise TypeError(f"data must be arrays by name, batches or a function that makes them, got {quote(data)}")

    def _cut(self, data: Mapping[str, Any], batch_size: int | None, drop_remainder: bool) -> None:
        if scalars := [name for name, type_ in self._types.items() if not type_.shape]:
            raise refused(f"{scalars} are declared as scalars, which have no rows; pass them in fixed")
        symbols: dict[str, int] = {}
        whole = {name: TensorType(type_.dtype, (_ROWS, *type_.shape[1:])) for name, type_ in self._types.items()}
        self._arrays = check_arrays("the data", data, whole, symbols)
        rows = symbols.get(_ROWS, 1)
        leading = [type_.shape[0] for type_ in self._types.values()]
        known = [symbols.get(dim) if isinstance(dim, str) else dim for dim in leading]
        declared = {dim for dim in known if dim is not None}
        sizes = (declared if batch_size is None else declared | {batch_size}) or {rows}
        size = max(sizes)
        batches, rest = divmod(rows, size) if size else (0, 0)
        keeps_rest = bool(rest) and not drop_remainder
        if len(sizes) > 1 or not batches + keeps_rest or (keeps_rest and declared):
            raise refused(
                f"{rows} rows do not make batches: declared are {sorted(declared)} rows, batch_size is {batch_size},"
                f" {rest} are left over; pass what is no batch in fixed, or drop_remainder=True to leave rows out"
            )
        self.plan |= {"rows": rows, "batch_size": size, "batches": batches + keeps_rest}

    def epoch(self, number: int, skip: int = 0) -> Iterator[dict[str, Array]]:
        """The batches of an epoch without the first `skip`."""
        if isinstance(self._data, Mapping):
            rows, size, batches, seed = self.plan.values()
            order = None if seed < 0 else np.random.default_rng((seed, number)).permutation(rows)
            for start in range(skip * size, batches * size, size):
                part: Any = slice(start, start + size) if order is None else order[start : start + size]
                yield {name: array[part] for name, array in self._arrays.items()}
            return
        count = skip
        for batch in islice(self._data(number) if callable(self._data) else self._data, skip, None):
            count += 1
            label = f"batch {count} of epoch {number}"
            yield check_arrays(label, check_names(label, batch, self._types, self._unread), self._types, {})
        if not count:
            raise refused(f"epoch {number} has no batch; an iterator is read once, so pass a list or a function")
