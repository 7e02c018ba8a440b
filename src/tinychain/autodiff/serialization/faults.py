"""What is wrong and where: a JSON path that grows from the inside out while the fault rises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tinychain.autodiff.errors import AutodiffError, quote

_is_bare_key = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}").fullmatch

_WRITE_AGAIN: Final = "only what save has written can be loaded, so write the file again"
_MEND: Final = "mend what built the artifact"


class Fault(Exception):
    """Something at `path` is not as expected; `path` is relative to what the raiser was given.

    Without a `remedy` of its own, a file must be written again, and an artifact mended.
    """

    def __init__(self, path: str, expected: str, got: str, remedy: str = "") -> None:
        self.path = path
        self.expected = expected
        self.got = got
        self.remedy = remedy

    def below(self, path: str) -> Fault:
        """The same as seen from further outside."""
        return Fault(path + self.path, self.expected, self.got, self.remedy)

    def text(self, remedy: str) -> str:
        return f"expected {self.expected}, got {self.got}; {self.remedy or remedy}"


def found(data: object) -> str:
    """Parsed JSON in few words; unlike `quote`, it takes no memory for a large array or object."""
    if isinstance(data, (list, dict)):
        return f"an {'array' if isinstance(data, list) else 'object'} of {len(data)}"
    return quote(data)


def step(key: object) -> str:
    """One step of a path: `.name`, `["any key"]` or `[3]`."""
    if isinstance(key, str):
        return f".{key}" if _is_bare_key(key) else f"[{quote(key)}]"
    return f"[{key}]"


@contextmanager
def within(path: str) -> Iterator[None]:
    """Whatever is wrong inside is wrong below `path`."""
    try:
        yield
    except Fault as fault:
        raise fault.below(path) from None


@contextmanager
def loading(source: str) -> Iterator[None]:
    """A fault of a file is an AutodiffError of the category invalid_artifact_file."""
    try:
        yield
    except Fault as fault:
        raise AutodiffError("invalid_artifact_file", f"{source}: at {fault.path}: {fault.text(_WRITE_AGAIN)}") from None
    except RecursionError:  # before anything of it is looked at, and wherever the caller's own stack is nearly full
        deep = Fault("$", "arrays and objects that nest as an artifact does", "far deeper ones")
        raise AutodiffError("invalid_artifact_file", f"{source}: at {deep.path}: {deep.text(_WRITE_AGAIN)}") from None


@contextmanager
def saving() -> Iterator[None]:
    """A fault of an artifact that is to be saved is malformed_derivative_ir."""
    try:
        yield
    except Fault as fault:
        raise AutodiffError("malformed_derivative_ir", f"{fault.path} cannot be saved: {fault.text(_MEND)}") from None
    except RecursionError:
        raise AutodiffError("malformed_derivative_ir", "the artifact cannot be saved: the stack is full") from None
