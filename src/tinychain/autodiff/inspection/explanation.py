"""The explanation as data and as text: what becomes of each operation of an artifact on a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.depth import Depth
from tinychain.autodiff.graph import Record
from tinychain.autodiff.inspection.figures import Figures
from tinychain.autodiff.inspection.label import id_label, printable
from tinychain.autodiff.inspection.table import Table, aligned, number_cell, values_cell
from tinychain.autodiff.tracing import SourceLine

LEGAL: Final = "legal"
REWRITTEN: Final = "rewritten"
IMPOSSIBLE: Final = "impossible"
VERDICTS: Final = (LEGAL, REWRITTEN, IMPOSSIBLE)

_STYLES: Final = {LEGAL: "green", REWRITTEN: "yellow", IMPOSSIBLE: "bold red"}


@dataclass(frozen=True)
class Obstacle(Record):
    """Why a rule does not help; of no rule, why the target cannot run the operation as it is."""

    rule: str | None
    reason: str


@dataclass(frozen=True)
class ExplainedOperation(Record):
    """What becomes of one operation: `verdict` is one of VERDICTS.

    A rewritten one has the names of its `rules` in the order of their use, and `emitted`, the counts of the operators
    that they emit, without what an operation before it has emitted for both, such as a fill. An impossible one has
    every obstacle. `line` is the user's own, where it is known.
    """

    node_id: str
    operator: str
    verdict: str
    rules: tuple[str, ...] = ()
    emitted: Mapping[str, int] | None = None
    obstacles: tuple[Obstacle, ...] = ()
    line: SourceLine | None = None


@dataclass(frozen=True)
class ProgramCost(Record):
    """The figures and the multiplicative depth of a program."""

    figures: Figures
    depth: Depth


@dataclass(frozen=True)
class Explanation(Record):
    """Of every operation that the outputs need, in artifact order, what becomes of it on the target.

    `duals` are the inputs that the legal artifact reads transposed beside those of this one. `after` is None where an
    operation is impossible. `artifact` and `target` are names. Its `str` is a text, which Rich prints in colour.
    """

    artifact: str
    target: str
    operations: tuple[ExplainedOperation, ...]
    duals: tuple[str, ...]
    before: ProgramCost
    after: ProgramCost | None

    def with_verdict(self, verdict: str) -> tuple[ExplainedOperation, ...]:
        """The operations of one verdict; ValueError for what is none."""
        if verdict not in VERDICTS:
            raise ValueError(f"unknown verdict {quote(verdict)}; expected one of {', '.join(VERDICTS)}")
        return tuple([operation for operation in self.operations if operation.verdict == verdict])

    def __str__(self) -> str:
        return "\n".join([line for line, _ in _styled_lines(self)])

    def __rich_console__(self, console: Any, options: object) -> Iterator[Any]:
        """The text in the colours of the verdicts, by the protocol of Rich, which a console of its makes real."""
        for line, style in _styled_lines(self):
            yield console.render_str(line, style=style, markup=False, emoji=False, highlight=False)


# ---------------------------------------------------------------------------------------------------------------- text


def _styled_lines(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Each line with the style of the verdict that it is about."""
    operations = [_STYLES[operation.verdict] for operation in explanation.operations]
    for number, (block, verdict) in enumerate(_blocks(explanation)):
        if number:
            yield "", ""
        lines = block.split("\n")
        styles = ["", "", *operations] if verdict is None else [_STYLES.get(verdict, "")] * len(lines)
        yield from zip(lines, styles, strict=True)


def _blocks(explanation: Explanation) -> Iterator[tuple[str, str | None]]:
    """Each block with the verdict that it is about, if any; None for the table, whose rows have their own."""
    operations = explanation.operations
    counts = Counter([operation.verdict for operation in operations])
    told = [f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict]]
    yield (
        (
            f"{explanation.artifact} for {printable(explanation.target)}: {len(operations):,} operations"
            f"{': ' if told else ''}{', '.join(told)}"
        ),
        "",
    )
    if operations:
        rows = [*map(_row, operations)]
        yield aligned(Table(("node", "operator", "verdict", "rules", "emitted", "line"), rows, 6)), None
    for operation in explanation.with_verdict(IMPOSSIBLE):
        yield "\n".join(_obstacles(operation)), IMPOSSIBLE
    for block in _cost_blocks(explanation):
        yield block, ""


def _cost_blocks(explanation: Explanation) -> Iterator[str]:
    costs = [("before", explanation.before)]
    if explanation.after is not None:
        costs.append(("after", explanation.after))
    rows = [(name, *_cost_cells(cost)) for name, cost in costs]
    yield aligned(Table(("", "operations", "FLOPs", "constants", "depth"), rows, numbers_from=1))
    counted = [(name, _counts(cost.figures.operators)) for name, cost in costs]
    yield aligned(Table(("", "operators"), counted, numbers_from=2))
    notes = [note for name, cost in costs for note in _notes(name, cost)]
    if explanation.duals:
        notes.append(f"bound transposed too: {', '.join(map(id_label, explanation.duals))}")
    if notes:
        yield "\n".join(notes)


def _row(operation: ExplainedOperation) -> tuple[str, ...]:
    return (
        id_label(operation.node_id),
        operation.operator,
        operation.verdict,
        printable(", ".join(operation.rules)),
        _counts(operation.emitted or {}),
        _line(operation),
    )


def _obstacles(operation: ExplainedOperation) -> Iterator[str]:
    line = _line(operation)
    yield f"{id_label(operation.node_id)} ({operation.operator}){f' at {line}' if line else ''} is impossible:"
    for obstacle in operation.obstacles:
        rule = "" if obstacle.rule is None else f"{obstacle.rule}: "
        yield f"  {printable(f'{rule}{obstacle.reason}')}"


def _cost_cells(cost: ProgramCost) -> Sequence[str]:
    figures = cost.figures
    return (
        f"{figures.operations:,}",
        number_cell(figures.flops),
        values_cell(figures.constants),
        number_cell(cost.depth.levels),
    )


def _notes(name: str, cost: ProgramCost) -> Iterator[str]:
    if cost.depth.path:
        yield f"depth {name}: {' -> '.join(map(id_label, cost.depth.path))}"
    for reason in dict.fromkeys([*cost.depth.unknown, *cost.figures.unknown]):
        yield f"unknown {name}: {printable(reason)}"


def _counts(operators: Mapping[str, int]) -> str:
    return ", ".join([f"{count:,} {operator}" for operator, count in operators.items()])


def _line(operation: ExplainedOperation) -> str:
    return "" if operation.line is None else printable(str(operation.line))
