"""Tables of results, printed at the end of a run and kept in docs/performance.md between the markers of their names."""

from __future__ import annotations

import math
import os
import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs" / "performance.md"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose other columns are numbers, aligned to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [_line(header, widths), "|" + "|".join(_rule(i, width) for i, width in enumerate(widths)) + "|"]
    return "\n".join([*lines, *[_line(row, widths) for row in rows]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"


def _rule(column: int, width: int) -> str:
    return "-" * (width + 1) + (":" if column else "-")


def exponent(points: Sequence[tuple[int, float]]) -> str:
    """The slope of log(seconds) over log(size), by least squares; nothing for fewer than two points."""
    if len(points) < 2:
        return ""
    logs = [(math.log(size), math.log(seconds)) for size, seconds in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)
    return f"{slope:.3f}"


def replace_between(page: str, name: str, table: str) -> str:
    """The page with `table` between its markers `<!-- name:begin -->` and `<!-- name:end -->`."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page needs the markers {begin} and {end}, once each")
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{table}\n\n{end}", page, flags=re.DOTALL)


def environment() -> str:
    """One line on what the numbers were measured with."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "jax", "torch", "tenseal"))
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"Measured on {system}, Python {sys.version.split()[0]}, {libraries}."
