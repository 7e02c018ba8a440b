"""Where a run stands, in one file that is whole at any moment, and that is read without trusting it.

The file is an .npz of numbers, which np.load shows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.runner.batches import Array, non_finite
from tinychain.autodiff.serialization.atomic import atomic_writer
from tinychain.autodiff.types import as_int

VERSION: Final = 1
_MARGIN: Final = 2**26  # the bytes of names, headers and histories, at most


@dataclass(frozen=True)
class Checkpoint:
    """Writes the file `path` every so many steps and when `fit` ends; its folder must exist."""

    path: str | os.PathLike[str]
    every: int

    def __post_init__(self) -> None:
        os.fspath(self.path)
        if (as_int(self.every) or 0) < 1:
            raise ValueError(f"every must be a number of steps of at least 1, got {quote(self.every)}")


@dataclass(frozen=True)
class Snapshot:
    """The parameters and states by name, where the run is in whole numbers, and the histories of callbacks."""

    trained: Mapping[str, Array]
    place: Mapping[str, int]
    histories: tuple[tuple[float, ...], ...] = ()


def write(path: str | os.PathLike[str], snapshot: Snapshot, digest: str) -> None:
    """Replaces the file in one go; unwritable_checkpoint leaves the one before as it was."""
    arrays = {"version": np.array(VERSION), "step": np.frombuffer(bytes.fromhex(digest), np.uint8)}
    arrays |= {f"place/{name}": np.array(number, np.int64) for name, number in snapshot.place.items()}
    arrays |= {f"trained/{name}": array for name, array in snapshot.trained.items()}
    arrays |= {f"history/{i}": np.array(values, np.float64) for i, values in enumerate(snapshot.histories)}
    try:
        with atomic_writer(path) as file, ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    except OSError as error:
        message = f"{quote(os.fspath(path))} cannot be written: {describe(error)}; what was there is unchanged"
        raise AutodiffError("unwritable_checkpoint", message) from error


def read(path: str | os.PathLike[str], like: Snapshot, digest: str) -> Snapshot:
    """The snapshot in a file that `write` made for this step, its arrays of the types of those in `like`.

    Any other file is an invalid_checkpoint. Reading takes twice the arrays, and at most 20 times the file.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            largest = sum([array.nbytes + 2048 for array in like.trained.values()]) + _MARGIN
            if size > largest:
                raise ValueError(f"it has {size} bytes, and a checkpoint of this step has at most {largest}")
            with ZipFile(file) as archive:
                return _read(archive, size, like, digest)
    except Exception as error:  # a hostile file can make zipfile and NumPy raise nearly anything
        message = f"{quote(os.fspath(path))} cannot be used: {describe(error)}"
        raise AutodiffError("invalid_checkpoint", message) from error


def _read(archive: ZipFile, size: int, like: Snapshot, digest: str) -> Snapshot:
    number = np.array(VERSION)
    if (version := int(_member(archive, size, "version", number))) != VERSION:
        raise ValueError(f"its version is {version}; this package reads version {VERSION}")
    if _member(archive, size, "step", np.zeros(len(digest) // 2, np.uint8)).tobytes().hex() != digest:
        raise ValueError("it is of another training step: another loss, optimizer, inputs or passes")
    names = [
        "version",
        "step",
        *[f"place/{name}" for name in like.place],
        *[f"trained/{name}" for name in like.trained],
    ]
    histories = [f"history/{index}" for index in range(len(archive.namelist()) - len(names))]
    expected, found = Counter([f"{name}.npy" for name in (*names, *histories)]), Counter(archive.namelist())
    if expected != found:
        raise ValueError(f"missing are {quote([*(expected - found)])}, unknown {quote([*(found - expected)])}")
    trained = {name: _member(archive, size, f"trained/{name}", array) for name, array in like.trained.items()}
    for name, array in trained.items():
        if (bad := non_finite(array)) is not None:
            raise ValueError(f"{name!r} is {bad}")
    place = {name: int(_member(archive, size, f"place/{name}", number)) for name in like.place}
    if min(place["step"], place["epoch"] - 1, place["batch"]) < 0:
        raise ValueError(f"no run stands at {place}")
    return Snapshot(trained, place, tuple([tuple(_member(archive, size, name).tolist()) for name in histories]))


def _member(archive: ZipFile, size: int, name: str, like: Array | None = None) -> Array:
    """An array of the type of `like`, by default any list of floats."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_size != info.file_size or info.file_size > size:
        raise ValueError(f"{name!r} is compressed, or declared to be larger than the file")
    with archive.open(info) as member:
        if npy.read_magic(member) != (1, 0):
            raise ValueError(f"{name!r} is no array of the expected format")
        shape, fortran_order, dtype = npy.read_array_header_1_0(member)
        expected = (np.dtype(np.float64), shape[:1]) if like is None else (like.dtype, like.shape)
        if (dtype, shape) != expected or fortran_order:
            raise ValueError(f"{name!r}: expected {expected[0]}{list(expected[1])}, got {dtype}{list(shape)}")
        content = member.read()  # to the end, which checks the sum
    if len(content) != prod(shape) * dtype.itemsize:
        raise ValueError(f"{name!r}: expected {prod(shape)} numbers, got {len(content)} bytes")
    array = np.frombuffer(content, dtype).reshape(shape).copy()
    array.flags.writeable = False
    return array
