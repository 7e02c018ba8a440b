"""Where in the user's code an operation was written."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

_PACKAGE: Final = f"{__name__.removesuffix('.tracing.source')}."


class SourceLine(NamedTuple):
    """A line of a file, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def calling_line() -> SourceLine | None:
    """The innermost line under way that is not of this package; None where all are, as in a thread of its own."""
    frame = sys._getframe(1)
    while str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)
