"""The figures of an artifact: of each of its programs, before and after expansion, and of a whole step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tinychain.autodiff.inspection.figures import Figures, Measured, Reasons, Values, measure, ranked, total
from tinychain.autodiff.inspection.parts import Artifact, Part, parts
from tinychain.autodiff.inspection.schedule import Program, StepSchedule
from tinychain.autodiff.inspection.summary import PartSummary, Summary
from tinychain.autodiff.inspection.view import CAPTURE
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.types import parse_bindings


def summarize(artifact: Artifact, *, shape_bindings: Mapping[str, int] | None = None) -> Summary:
    """The figures of a graph, a derivative program or a compiled step, under the given sizes of its symbols.

    An elementwise operation counts one FLOP an element of its result, a reduction one an element of its operand, a
    matmul 2 m n k, whatever only moves or makes elements none. Where a dim, a dtype or a FLOP count is not known, the
    figure is None and `unknown` says why. Raises TypeError for another artifact or bad bindings, ValueError for a size
    that is none, and malformed_derivative_ir, ambiguous_producer or invalid_selected_output for what could not be run.
    """
    symbols = parse_bindings(shape_bindings)
    found = parts(artifact)
    sources = [measure(part.source, symbols) for part in found]
    lowered = [
        None if part.lowered is None else source if part.lowered is part.source else measure(part.lowered, symbols)
        for part, source in zip(found, sources, strict=True)
    ]
    summaries = tuple(
        [
            PartSummary(part.name, part.uses, source.figures, after and after.figures)
            for part, source, after in zip(found, sources, lowered, strict=True)
        ]
    )
    whole = summaries[0]
    if isinstance(artifact, CompiledTrainingStep):
        after_all = [measured for measured in lowered if measured is not None]
        whole = PartSummary("total", 1, _total(artifact, found, sources), _total(artifact, found, after_all))
    return Summary(type(artifact).__name__, summaries, whole)


def _total(step: CompiledTrainingStep, found: Sequence[Part], measured: Sequence[Measured]) -> Figures:
    figures = [item.figures for item in measured]
    uses = [part.uses for part in found]
    counts: Counter[str] = Counter()
    reasons = Reasons()
    for use, item in zip(uses, figures, strict=True):
        for name, count in item.operators.items():
            counts[name] += use * count
        for reason in item.unknown:
            reasons.add(reason)

    def weighted(values: Sequence[int | None]) -> int | None:
        return total([None if value is None else use * value for use, value in zip(uses, values, strict=True)])

    def values(all_values: Sequence[Values]) -> Values:
        count = sum([use * item.count for use, item in zip(uses, all_values, strict=True)])
        return Values(count, weighted([item.bytes for item in all_values]))

    run = StepSchedule(step, [Program(item.operations, item.sizes) for item in measured])
    return Figures(
        operations=sum(counts.values()),
        unneeded=sum([use * item.unneeded for use, item in zip(uses, figures, strict=True)]),
        operators=ranked(counts),
        reads={**run.reads(), CAPTURE: figures[1].reads[CAPTURE]},
        constants=values([item.constants for item in figures]),
        results=values([item.results for item in figures]),
        flops=weighted([item.flops for item in figures]),
        peak_live_bytes=run.peak_live_bytes(),
        unknown=reasons.told(),
    )
