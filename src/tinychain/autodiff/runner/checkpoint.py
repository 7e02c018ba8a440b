"""Where a run stands, in one file that is whole at any moment, and that is read without trusting it.

The file is an .npz of numbers, which np.load shows, with a sum over them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.runner.batches import Array, non_finite, positive
from tinychain.autodiff.serialization.atomic import atomic_writer, regular_file

VERSION: Final = 1
_MARGIN: Final = 2**26  # the bytes of names, headers and histories, at most


@dataclass(frozen=True)
class Checkpoint:
    """Writes the file `path` every so many steps and when `fit` ends; its folder must exist."""

    path: str | os.PathLike[str]
    every: int

    def __post_init__(self) -> None:
        check_path("path", self.path)
        positive("every", self.every)


@dataclass(frozen=True)
class Snapshot:
    """The parameters and states by name, where the run is in whole numbers, and the histories of callbacks."""

    trained: Mapping[str, Array]
    place: Mapping[str, int]
    histories: tuple[tuple[float, ...], ...] = ()


def check_path(name: str, path: object) -> str:
    """`path` as a str; TypeError for what is none, ValueError for one that no file can have."""
    given = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str):
        raise TypeError(f"{name} must be a str or an os.PathLike of one, got {quote(path)}")
    with suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(given):
            return given
    raise ValueError(f"{name} must be a path without a NUL and without lone surrogates, got {quote(path)}")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises unwritable_checkpoint where there is no folder, or something that is no file, such as a device."""
    folder = os.path.dirname(os.path.realpath(check_path("path", path)))
    if not os.path.isdir(folder):
        raise _unwritable(path, f"there is no folder {quote(folder)}; make it first")
    try:
        regular_file(path)
    except OSError as error:
        raise _unwritable(path, f"{describe(error)}; choose another path") from error


def write(path: str | os.PathLike[str], snapshot: Snapshot, digest: str) -> None:
    """Replaces the file in one go; unwritable_checkpoint leaves the one before as it was."""
    check_writable(path)
    arrays = _contents(snapshot, digest)
    members: dict[str, Any] = {**arrays, "sha256": _sha256(arrays)}
    try:
        # As np.savez does, but that leaves the archive open when a write fails.
        with atomic_writer(path) as file, ZipFile(file, "w") as archive:
            for name, array in members.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array), version=(1, 0), allow_pickle=False)
    except OSError as error:
        raise _unwritable(path, f"{describe(error)}; what was there is unchanged") from error


def _unwritable(path: str | os.PathLike[str], why: str) -> AutodiffError:
    return AutodiffError("unwritable_checkpoint", f"{quote(os.fspath(path))} cannot be written: {why}")


def _contents(snapshot: Snapshot, digest: str) -> dict[str, Array]:
    """The members of a file but for the sum over them."""
    return {
        "version": np.array(VERSION, np.int64),
        "step": np.frombuffer(bytes.fromhex(digest), np.uint8),
        **{f"place/{name}": np.array(number, np.int64) for name, number in snapshot.place.items()},
        **{f"trained/{name}": np.asarray(array, order="C") for name, array in snapshot.trained.items()},
        **{f"history/{i}": np.array(values, np.float64) for i, values in enumerate(snapshot.histories)},
    }


def _sha256(arrays: Mapping[str, Array]) -> Array:
    """The SHA-256 of arrays with their names and types, whatever their order."""
    total = sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.data)
    return np.frombuffer(total.digest(), np.uint8)


def read(path: str | os.PathLike[str], like: Snapshot, digest: str) -> Snapshot:
    """The snapshot in a file that `write` made for this step, its arrays of the types of those in `like`.

    Any other file is an invalid_checkpoint. Reading takes twice the arrays, and at most 20 times the file.
    """
    check_path("path", path)
    try:
        with regular_file(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            largest = sum([array.nbytes + 2048 for array in like.trained.values()]) + _MARGIN
            if size > largest:
                raise unfit(f"it has {size} bytes, and a checkpoint of this step has at most {largest}")
            with ZipFile(file) as archive:
                return _read(archive, size, like, digest)
    except Exception as error:  # a hostile file can make zipfile and NumPy raise nearly anything
        why = error.message if isinstance(error, AutodiffError) else describe(error)
        raise unfit(f"{quote(os.fspath(path))} cannot be used: {why}") from error


def unfit(message: str) -> AutodiffError:
    return AutodiffError("invalid_checkpoint", message)


def _read(archive: ZipFile, size: int, like: Snapshot, digest: str) -> Snapshot:
    expected = _contents(Snapshot(like.trained, like.place), digest)
    if (version := int(_member(archive, size, "version", expected["version"]))) != VERSION:
        raise unfit(f"its version is {version}; this package reads version {VERSION}")
    if (_member(archive, size, "step", expected["step"]) != expected["step"]).any():
        raise unfit("it is of another training step: another loss, optimizer, inputs or passes")
    histories = [f"history/{index}" for index in range(len(archive.namelist()) - len(expected) - 1)]
    names, found = Counter(map("{}.npy".format, (*expected, *histories, "sha256"))), Counter(archive.namelist())
    if names != found:
        raise unfit(f"missing are {quote([*(names - found)])}, unknown {quote([*(found - names)])}")
    arrays = {name: _member(archive, size, name, expected.get(name)) for name in (*expected, *histories)}
    trained = {name: arrays[f"trained/{name}"] for name in like.trained}
    for name, array in trained.items():
        if (bad := non_finite(array)) is not None:
            raise unfit(f"{name!r} is {bad}")
    place = {name: int(arrays[f"place/{name}"]) for name in like.place}
    if not _is_possible(**place):
        raise unfit(f"no run stands at {place}")
    total = _sha256(arrays)
    if (_member(archive, size, "sha256", total) != total).any():
        raise unfit("its numbers are not those that were saved: their SHA-256 is another")
    return Snapshot(trained, place, tuple([tuple(arrays[name].tolist()) for name in histories]))


def _is_possible(
    step: int, epoch: int, batch: int, stopped: int, rows: int, batch_size: int, batches: int, shuffle_seed: int
) -> bool:
    """Whether a run can be there: no epoch was without a step, and the data is not arrays or cut into these batches."""
    cut = 1 <= batch_size <= rows and batches in (rows // batch_size, -(-rows // batch_size)) and shuffle_seed >= -1
    if not ((cut and batch < batches) or rows == batch_size == batches == shuffle_seed == -1):
        return False
    return epoch >= 1 and batch >= 0 and epoch - 1 + batch <= step < 2**62 and stopped in (0, 1)


def _member(archive: ZipFile, size: int, name: str, like: Array | None = None) -> Array:
    """An array of the type of `like`, by default any list of floats; it takes no more memory than the file has."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_size != info.file_size or info.file_size > size:
        raise unfit(f"{name!r} is compressed, or declared to be larger than the file")
    with archive.open(info) as member:
        npy.read_magic(member)  # another version than 1.0 does not have its header
        shape, fortran_order, dtype = npy.read_array_header_1_0(member)
        expected = (np.dtype(np.float64), shape[:1]) if like is None else (like.dtype, like.shape)
        if (dtype, shape) != expected or fortran_order:
            raise unfit(f"{name!r}: expected {expected[0]}{list(expected[1])}, got {dtype}{list(shape)}")
        content = member.read()  # to the end, which checks the sum
    if len(content) != prod(shape) * dtype.itemsize:
        raise unfit(f"{name!r}: expected {prod(shape)} numbers, got {len(content)} bytes")
    array = np.frombuffer(content, dtype).reshape(shape).copy()
    array.flags.writeable = False
    return array
