"""Figures as rows of text, for the listing and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinychain.autodiff.inspection.figures import Values


class Table(NamedTuple):
    """Rows of cells; the columns from `numbers_from` on hold numbers and are set to the right."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers_from: int


def aligned(table: Table) -> str:
    """The table as lines, two spaces between the columns and none at the end of a line."""
    lines = [table.header, *table.rows]
    widths = [max([len(line[column]) for line in lines]) for column in range(len(table.header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column >= table.numbers_from else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(table.header), "  ".join(["-" * width for width in widths]), *map(line, table.rows)])


def values_cell(values: Values) -> str:
    """How many values, and their bytes."""
    return f"{values.count:,} ({number_cell(values.bytes)} B)" if values.count else "0"


def number_cell(number: int | None) -> str:
    """A figure."""
    return "unknown" if number is None else f"{number:,}"
