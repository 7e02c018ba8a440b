"""The arrays that a caller gives: judged by the types that the step declares, cut into batches, shuffled.

What does not fit is invalid_training_data; the message names the array, what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.arrays import DTYPES, check_array, check_names
from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.types import Symbols, TensorType, as_int, resolve_shape

Array: TypeAlias = NDArray[Any]
#: Whole arrays by name, or batches of them, or a function from the number of an epoch (the first is 1) to its batches.
Data: TypeAlias = Mapping[str, Any] | Iterable[Mapping[str, Any]] | Callable[[int], Iterable[Mapping[str, Any]]]


def refused(message: str) -> AutodiffError:
    return AutodiffError("invalid_training_data", message)


def positive(name: str, value: object) -> int:
    """`value` as an int of at least 1, or ValueError."""
    number = as_int(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be an int of at least 1, got {quote(value)}")
    return number


def named(
    label: str, given: object, needed: Collection[str], optional: Collection[str] = (), hint: str = ""
) -> Mapping[str, Any]:
    """`given`, a mapping with the needed names and perhaps some of the optional ones; `hint` says where others are."""
    if not isinstance(given, Mapping):
        form = ", ".join([f'"{name}": ...' for name in needed or optional])
        raise refused(f"{label}: expected a mapping {{{form}}}, got {quote(given)}")
    check_names(label, given, needed, optional, hint)
    return given


def check_arrays(
    of: str, given: object, types: Mapping[str, TensorType], symbols: Symbols, optional: Collection[str] = ()
) -> dict[str, Array]:
    """The arrays of these names, each finite and exactly of its type, whose symbols are bound."""
    given, arrays = named(of, given, types, optional), {}
    for name, type_ in types.items():
        label = f"{name!r} of {of}: expected {type_}"
        array = _array(label, given[name])
        try:
            check_array("the array", array, *type_, symbols)
        except AutodiffError as error:
            raise refused(f"{label}, but {error.message}; nothing is cast or reshaped") from None
        if (bad := non_finite(array)) is not None:
            raise refused(f"{label} of finite numbers, got {bad}")
        arrays[name] = array
    return arrays


def filled(label: str, value: object, type_: TensorType) -> Array:
    """A number, or an array of the shape, as an array of the type."""
    label = f"{label}: expected a finite number or an array of them for {type_}"
    array, shape = _array(label, value), resolve_shape(type_.shape, {}, label=label)
    if array.dtype.kind in "iuf" and array.shape in ((), shape):
        with np.errstate(over="ignore"):
            array = np.full(shape, array, DTYPES[type_.dtype])
        if non_finite(array) is None:
            return array
    raise refused(f"{label}, got {quote(value)}")


def _array(label: str, value: object) -> Array:
    try:
        return np.asarray(value)
    except Exception as error:  # such as the ValueError for rows of different lengths
        raise refused(f"{label}, got {quote(value)}, of which NumPy makes no array: {describe(error)}") from error


def non_finite(array: Array) -> str | None:
    """The first element that is NaN or infinite, and where it is; None if there is none."""
    finite = np.isfinite(array)
    if finite.all():
        return None
    index = tuple(np.argwhere(~finite)[0].tolist())
    return f"{array[index]} at {list(index)}" if index else f"{array[index]}"


def count_rows(batch: Mapping[str, Array]) -> int:
    """The rows of a batch; 1 where nothing in it has rows."""
    return max([len(array) for array in batch.values() if array.ndim], default=1)


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
        seed = as_int(shuffle_seed)
        if shuffle_seed is not None and (seed is None or not 0 <= seed < 2**63):
            raise ValueError(f"shuffle_seed must be None or an int from 0 to 2**63 - 1, got {quote(shuffle_seed)}")
        size = None if batch_size is None else positive("batch_size", batch_size)
        self._data, self._types, self._unread = data, types, unread
        self._left: Iterator[Any] = iter(())
        self.plan = {"rows": -1, "batch_size": -1, "batches": -1, "shuffle_seed": -1}
        if isinstance(data, Mapping):
            self._cut(data, size, drop_remainder)
            self.plan["shuffle_seed"] = -1 if seed is None else seed
        elif batch_size is not None or shuffle_seed is not None or drop_remainder:
            raise ValueError("batch_size, shuffle_seed and drop_remainder are for arrays; these are batches already")
        elif not callable(data) and not isinstance(data, Iterable):
            raise TypeError(f"data must be arrays by name, batches or a function that makes them, got {quote(data)}")

    def _cut(self, data: Mapping[str, Any], batch_size: int | None, drop_remainder: bool) -> None:
        if scalars := [name for name, type_ in self._types.items() if not type_.shape]:
            raise refused(f"{scalars} are declared as scalars, which have no rows; pass them in fixed")
        symbols: dict[str, int] = {}
        whole = {
            name: TensorType(type_.dtype, (f"rows of {name}", *type_.shape[1:])) for name, type_ in self._types.items()
        }
        self._arrays = check_arrays("the data", data, whole, symbols, self._unread)
        counts = {name: len(array) for name, array in self._arrays.items()}
        if len(set(counts.values())) > 1:
            raise refused(f"the arrays of the data must have equally many rows, got {counts}")
        rows = max(counts.values(), default=1)
        leading = [type_.shape[0] for type_ in self._types.values()]
        known = {symbols.get(dim) if isinstance(dim, str) else dim for dim in leading}
        declared = sorted([dim for dim in known if dim is not None])
        size = next(iter(declared), batch_size or rows)
        batches, rest = divmod(rows, size) if size else (0, 0)
        keeps_rest = bool(rest) and not drop_remainder
        why = ""
        if len(declared) > 1:
            why = f"batches of {declared} rows are declared at once; pass what is no batch in fixed"
        elif batch_size not in (None, size):
            why = f"batch_size is {batch_size}, but the step declares batches of {size} rows"
        elif keeps_rest and declared:
            why = f"{rest} are left over from declared batches of {size} rows; drop_remainder=True leaves them out"
        elif not batches + keeps_rest:
            why = f"a batch has {size} rows"
        if why:
            raise refused(f"{rows} rows do not make batches: {why}")
        self.plan |= {"rows": rows, "batch_size": min(size, rows), "batches": batches + keeps_rest}

    def epoch(self, number: int, skip: int = 0) -> Iterator[dict[str, Array]]:
        """The batches of an epoch without the first `skip`."""
        if isinstance(self._data, Mapping):
            rows, size, batches, seed = self.plan.values()
            order = None if seed < 0 else np.random.default_rng((seed, number)).permutation(rows)
            for start in range(skip * size, batches * size, size):
                part: Any = slice(start, start + size) if order is None else order[start : start + size]
                yield {name: array[part] for name, array in self._arrays.items()}
            return
        data = self._data(number) if callable(self._data) else self._data
        if not isinstance(data, Iterable):
            raise refused(f"data, a function, must return the batches of epoch {number}, got {quote(data)}")
        self._left = islice(data, skip, None)
        count = skip
        for count, given in enumerate(self._left, skip + 1):
            label = f"batch {count} of epoch {number}"
            batch = check_arrays(label, given, self._types, {}, self._unread)
            if not count_rows(batch):
                raise refused(f"{label} has no rows; leave it out")
            yield batch
        if not count:
            raise refused(f"epoch {number} has no batch; an iterator is read once, so pass a list or a function")

    def exhausted(self) -> bool:
        """Whether an iterable has no batch left in this epoch; it is asked for one more, which is not judged."""
        return self.plan["batches"] < 0 and next(self._left, None) is None
