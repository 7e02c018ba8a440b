"""Writing a file so that a reader sees the old one or the new one, whole, whatever kills the writer in between."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Where `path` leads, through symbolic links: to a regular file, or to nothing yet.

    Raises OSError for a directory, a device, a pipe or a socket, none of which is opened, and for a path that cannot
    be; ValueError for one with a NUL or a lone surrogate.
    """
    target = Path(os.path.realpath(path))
    with suppress(FileNotFoundError):
        mode = target.lstat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(target))
    return target


@contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new binary file that takes the place of `path` when the block ends without an exception.

    The bytes are on the disk before the name is; a symbolic link stays one, and an existing file's mode is kept. After
    an exception `path` is as it was. Raises as `regular_file` does, and OSError. A killed process may leave a
    `.tinychain-*.tmp` beside `path`.
    """
    target = regular_file(path)
    temporary = target.with_name(f".tinychain-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """The new name outlives a power cut too, where a folder can be synced at all."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
