"""The figures of an artifact as records, which read as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tinychain.autodiff.graph import Record
from tinychain.autodiff.inspection.figures import Figures, Values, total
from tinychain.autodiff.inspection.table import Table, aligned, number_cell, values_cell

_FIGURES: Final = ("operations", "FLOPs", "inputs", "captures", "constants", "results", "peak live bytes")
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True)
class PartSummary(Record):
    """One program. `lowered` is None but for a step, and equal to `source` where no pass rewrote it.

    `uses` is how often a step runs it: parameters of one type share an update.
    """

    name: str
    uses: int
    source: Figures
    lowered: Figures | None


@dataclass(frozen=True, repr=False)
class Summary(Record):
    """The figures of an artifact; `artifact` is the name of its class.

    `total` is one whole step: every part as often as it is used, what the caller binds as `reads`, and the peak of
    running all of it as one program (a runner, which takes the programs one by one, holds more). Of a graph or a
    program, it is the one part. Its `str` is a text to read.
    """

    artifact: str
    parts: tuple[PartSummary, ...]
    total: PartSummary

    def __str__(self) -> str:
        told = "\n".join([f"note: {note}" for note in notes(self)])
        return "\n\n".join([aligned(figures_table(self)), aligned(operators_table(self)), told]) + "\n"

    def __repr__(self) -> str:
        figures = self.total.lowered or self.total.source
        names = ", ".join([part.name for part in self.parts[:_NAMES_SHOWN]])
        more = f" and {len(self.parts) - _NAMES_SHOWN} more" if len(self.parts) > _NAMES_SHOWN else ""
        cost = f"{figures.operations:,} operations, {number_cell(figures.flops)} FLOPs"
        return f"<Summary of a {self.artifact} ({names}{more}): {cost}>"


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
    reasons: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for part in summary.parts:
        for figures in (part.source,) if part.lowered is None else (part.source, part.lowered):
            if figures.unneeded:
                found.append(f"{part.name}: {figures.unneeded:,} operations that no output needs are not counted")
            if figures.unknown:
                reasons[figures.unknown].append(part.name)
    found += [f"{', '.join(dict.fromkeys(names))}: unknown because {'; '.join(why)}" for why, names in reasons.items()]
    return list(dict.fromkeys(found))


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
        number_cell(figures.flops),
        *map(values_cell, (inputs, captures, figures.constants, figures.results)),
        number_cell(figures.peak_live_bytes),
    )
