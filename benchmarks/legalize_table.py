"""The table of docs/legalize.md: what each ready target makes of every operator, run and verified.

`python -m benchmarks.legalize_table` writes it; a test checks that the page has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from benchmarks.legalize_cases import Case, all_cases
from benchmarks.tables import replace_between
from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import READY_TARGETS, Target, legalize_detailed
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.types import Typespec
from tinychain.autodiff.verify import verify_equivalent

PAGE: Final = Path(__file__).parents[1] / "docs" / "legalize.md"
MARKER: Final = "every-operator"

#: Sums of numbers of both signs lose digits; a wrong rule is off by many more than these, 2e-10 of the value.
_MAX_ULPS: Final = 2.0**20
_POINTS: Final = ("normal", "tiny", "huge")


_Outcome: TypeAlias = tuple[str, ...] | str  # the rules, or the reason why nothing helps


class Row(NamedTuple):
    """Cases of an operator that came out alike: their forms and ranks, and one cell for each target."""

    forms: tuple[str, ...]
    ranks: frozenset[int]
    cells: tuple[str, ...]


def graph_of(case: Case) -> TensorGraph:
    """The node of a case on inputs x0, x1, ..."""
    specs: dict[str, Typespec | None] = {
        f"x{i}": {"dtype": "f64", "shape": [*shape]} for i, shape in enumerate(case.shapes)
    }
    emit = Emitter(specs=specs, mint_value=mint("v", ()), mint_node=mint("n", ()))
    inputs = list(specs.items())
    emit.emit(case.operator, list(specs), case.op_params, "result")
    return TensorGraph(emit.nodes, inputs, ["result"])


def outcome(case: Case, target: Target) -> _Outcome:
    """The rules that make the case fit the target, exactly and in floats; or the reason why nothing does.

    Raises not_equivalent for a rewrite that is none.
    """
    graph = graph_of(case)
    try:
        legal = legalize_detailed(graph, target, rules=case.rules, duals=not case.rules)
    except AutodiffError as error:
        if error.category != "not_legalizable":
            raise
        return _reason(error.message)
    verify_equivalent(graph, legal.artifact, points=_POINTS, max_ulps=_MAX_ULPS, raise_on_difference=True)
    return tuple([rule.rpartition(".")[2] for region in legal.regions for rule in region.rules])


def _reason(message: str) -> str:
    """The first reason against the only node of a refusal, its shapes left out."""
    _, _, first, *_ = message.splitlines()
    return re.sub(r"\[[\d, ]+\]", "[...]", first.partition(": ")[2])


def tables(reasons: list[str]) -> dict[str, list[Row]]:
    """The rows by operator; what is declined is listed in `reasons`, and its cell says where there."""
    found: dict[str, dict[str, list[Case]]] = {}
    for case in all_cases():
        found.setdefault(case.operator().route_name, {}).setdefault(case.form, []).append(case)
    return {operator: _rows(operator, forms, reasons) for operator, forms in found.items()}


def _rows(operator: str, forms: Mapping[str, Sequence[Case]], reasons: list[str]) -> list[Row]:
    rows: dict[tuple[str, ...], Row] = {}
    for form, cases in forms.items():
        outcomes = [[outcome(case, target) for case in cases] for target in READY_TARGETS.values()]
        cells = tuple([_cell(f"{operator}, {form}", column, reasons) for column in outcomes])
        row = rows.get(cells, Row((), frozenset(), cells))
        rows[cells] = Row((*row.forms, form), row.ranks | {case.rank for case in cases}, cells)
    return list(rows.values())


def _cell(label: str, outcomes: Sequence[_Outcome], reasons: list[str]) -> str:
    """One cell for all cases of a form, which have to be exact or declined alike."""
    declined = {answer for answer in outcomes if isinstance(answer, str)}
    chains = [answer for answer in outcomes if isinstance(answer, tuple)]
    if declined and chains:
        raise ValueError(f"{label}: some cases are exact and some are declined; give them two forms")
    if declined:
        numbers = [_number(reason, reasons) for reason in sorted(declined)]
        return f"no ({', '.join(map(str, sorted(numbers)))})"
    always = [rule for rule in dict.fromkeys(chains[0]) if all(rule in chain for chain in chains)]
    sometimes = [rule for chain in chains for rule in chain if rule not in always]
    named = [*[f"`{rule}`" for rule in always], *[f"(`{rule}`)" for rule in dict.fromkeys(sometimes)]]
    return ", ".join(named) or "as it is"


def _number(reason: str, reasons: list[str]) -> int:
    if reason not in reasons:
        reasons.append(reason)
    return reasons.index(reason) + 1


def _forms(row: Row, rows: Collection[Row]) -> str:
    """The forms, with what several of them begin with said once."""
    if len(rows) == 1:
        return "any"
    details: dict[str, list[str]] = {}
    for form in row.forms:
        kind, _, detail = form.partition(": ")
        details.setdefault(kind, []).append(detail)
    return "; ".join([f"{kind}: {', '.join(told)}" if any(told) else kind for kind, told in details.items()])


def _ranks(ranks: Iterable[int]) -> str:
    known = sorted(ranks)
    return f"{known[0]} to {known[-1]}" if len(known) > 1 else str(known[0])


def rendered() -> str:
    """The table and its reasons, as Markdown."""
    reasons: list[str] = []
    lines = [["Operator", "Form", "Ranks", *READY_TARGETS], ["---"] * (3 + len(READY_TARGETS))]
    for operator, rows in tables(reasons).items():
        lines += [[f"`{operator}`", _forms(row, rows), _ranks(row.ranks), *row.cells] for row in rows]
    listed = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    counted = f"{len(list(all_cases())):,} graphs, each on {len(READY_TARGETS)} targets:"
    return "\n".join([counted, "", *[f"| {' | '.join(line)} |" for line in lines], "", *listed])


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_between(page, MARKER, rendered()), encoding="utf-8")


if __name__ == "__main__":
    main()
