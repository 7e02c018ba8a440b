"""The only door to the CKKS library: its module, its objects as bytes, its exceptions as ours.

The library writes to paths alone, so bytes pass through a private file in memory where the machine has one. Only what
a server may see does; a secret key never leaves the library's objects.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from tinychain.autodiff.errors import AutodiffError

try:
    from tenseal import sealapi
except ImportError as error:
    raise ImportError(
        f"tinychain.autodiff.backends.ckks needs tenseal: pip install 'tinychain-autodiff[ckks]' ({error})"
    ) from error

#: The library's module. It has no types; the names below say what is meant.
seal: Final = sealapi

Context: TypeAlias = Any
Ciphertext: TypeAlias = Any
Plaintext: TypeAlias = Any

#: What the library raises: std::invalid_argument, std::out_of_range, and std::logic_error and std::runtime_error.
LIBRARY_ERRORS: Final = (ValueError, IndexError, RuntimeError)

#: Its messages are constants and quote no data, so that ours may quote them.
_TRANSPARENT: Final = "result ciphertext is transparent"

_KINDS: Final = {"ciphertext": "Ciphertext", "relinearization keys": "RelinKeys", "rotation keys": "GaloisKeys"}
_MEMORY: Final = Path("/dev/shm")


@contextmanager
def library_errors(category: str, message: str) -> Iterator[None]:
    """Raises AutodiffError of this category, with the message and the library's reason, for what the library raises."""
    try:
        yield
    except LIBRARY_ERRORS as error:
        raise AutodiffError(category, f"{message}: {error}") from None


def is_transparent(error: Exception) -> bool:
    """Whether the library computed a result but refuses it because it hides nothing, such as that of x - x."""
    return str(error) == _TRANSPARENT


def to_bytes(thing: Any) -> bytes:
    """An object of the library, such as a ciphertext or the keys of an evaluation, in the library's own format."""
    with _private_file() as path:
        with library_errors("invalid_message", "writing to a temporary file"):
            thing.save(str(path))
        return path.read_bytes()


def from_bytes(kind: str, context: Context, data: bytes | memoryview) -> Any:
    """The inverse of `to_bytes`, for a "ciphertext", "relinearization keys" or "rotation keys".

    Raises invalid_message for bytes that are none of this kind in this context. The library does not notice every
    change of the bytes; who transports them has to.
    """
    thing = getattr(sealapi, _KINDS[kind])()
    with _private_file() as path:
        path.write_bytes(data)
        with library_errors("invalid_message", f"reading {kind} from {len(data)} bytes"):
            thing.load(context, str(path))
    return thing


@contextmanager
def _private_file() -> Iterator[Path]:
    """A path that nobody else can read, in a folder that is gone afterwards; in memory where that is possible."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        path = Path(folder, "bytes")
        path.touch(mode=0o600)
        yield path
