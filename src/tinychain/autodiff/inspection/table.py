"""A summary as rows of text, for the listing and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tinychain.autodiff.inspection.figures import Figures, Values, total
from tinychain.autodiff.inspection.summary import Summary


class Table(NamedTuple):
    """Rows of cells; the columns from `numbers_from` on hold numbers and are set to the right."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers_from: int


_FIGURES: Final = ("operations", "FLOPs", "inputs", "captures", "constants", "results", "peak live bytes")


def figures_table(summary: Summary) -> Table:
    """One row of figures a program."""
    rows = [(name, program, *_cells(uses, figures)) for name, program, uses, figures in _programs(summary)]
    return Table(("part", "program", "uses", *_FIGURES), rows, numbers_from=2)


def operators_table(summary: Summary) -> Table:
    """The operators of each program, with their counts."""
    rows = [
        (
            name,
            program,
            ", ".join([f"{count:,} {operator}" for operator, count in figures.operators.items()]),
        )
        for name, program, _, figures in _programs(summary)
    ]
    return Table(("part", "program", "operators"), rows, numbers_from=3)


def notes(summary: Summary) -> list[str]:
    """What must be said of the figures: how they are counted, what is not needed, why some are unknown."""
    found = ["bytes count every value in full; inputs are what is bound, parameters and seeds among them"]
    for part in summary.parts:
        for figures in (part.source,) if part.lowered is None else (part.source, part.lowered):
            if figures.unneeded:
                found.append(f"{part.name}: {figures.unneeded:,} operations that no output needs are not counted")
            found += [f"{part.name}: unknown because {reason}" for reason in figures.unknown]
    return list(dict.fromkeys(found))


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


def _programs(summary: Summary) -> Iterator[tuple[str, str, str, Figures]]:
    """Part, program, uses and figures of each row; what repeats the row above is left out."""
    totals = [] if summary.total in summary.parts else [summary.total]
    for part in (*summary.parts, *totals):
        if part.lowered is None:
            yield part.name, "as given", f"{part.uses:,}", part.source
        elif part.lowered == part.source:
            yield part.name, "both", f"{part.uses:,}", part.source
        else:
            yield part.name, "source", f"{part.uses:,}", part.source
            yield "", "lowered", "", part.lowered


def _cells(uses: str, figures: Figures) -> tuple[str, ...]:
    reads = dict(figures.reads)
    captures = reads.pop("capture")
    inputs = Values(
        sum([values.count for values in reads.values()]), total([values.bytes for values in reads.values()])
    )
    return (
        uses,
        f"{figures.operations:,}",
        _number(figures.flops),
        *map(_values, (inputs, captures, figures.constants, figures.results)),
        _number(figures.peak_live_bytes),
    )


def _values(values: Values) -> str:
    return f"{values.count:,} ({_number(values.bytes)} B)" if values.count else "0"


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
