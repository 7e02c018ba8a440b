"""The figures of an artifact: of each of its programs, before and after expansion, and of a whole step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinychain.autodiff.graph import Record
from tinychain.autodiff.inspection.figures import Figures, Measured, Reasons, Values, measure, ranked, total
from tinychain.autodiff.inspection.liveness import Operation, peak_live_bytes
from tinychain.autodiff.inspection.view import (
    CAPTURE,
    INPUT,
    PARAMETER,
    ROLES,
    SEED,
    Artifact,
    Part,
    parts,
    shared_updates,
)
from tinychain.autodiff.training import CompiledTrainingStep, ParameterCompilation
from tinychain.autodiff.types import parse_bindings


@dataclass(frozen=True)
class PartSummary(Record):
    """One program. `lowered` is None but for a step, and equal to `source` where no pass rewrote it.

    `uses` is how often a step runs it: parameters of one type share an update.
    """

    name: str
    uses: int
    source: Figures
    lowered: Figures | None


@dataclass(frozen=True)
class Summary(Record):
    """The figures of an artifact; `artifact` is the name of its class.

    `total` is one whole step: every part as often as it is used, what the caller binds as `reads`, and the peak of
    running all of it in one go. Of a graph or a program, it is the one part.
    """

    artifact: str
    parts: tuple[PartSummary, ...]
    total: PartSummary


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

    run = _Run(step, measured)
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


class _Run:
    """One whole step as one schedule: forward, derivative, gradient inputs, then the updates in parameter order.

    Values of forward and derivative go by their ids, those of the other programs by the program's name and their id.
    """

    def __init__(self, step: CompiledTrainingStep, measured: Sequence[Measured]) -> None:
        forward, derivative, *rest = measured
        self._operations: list[Operation[Hashable]] = []
        self._sizes: dict[Hashable, int] = {}
        self._kept: list[Hashable] = [step.loss_value_id]
        self._roles: dict[Hashable, str] = dict.fromkeys(step.seed_value_ids, SEED)
        for record in step.parameters:
            self._roles[record.value_id] = PARAMETER
        self._add(forward)
        self._add(derivative)
        if step.gradient_inputs is not None:
            inputs = step.gradient_inputs
            gradients = {record.name: record.gradient_value_id for record in step.parameters}
            keys: dict[str, Hashable] = {value_id: gradients[name] for name, value_id in inputs.input_value_ids.items()}
            keys |= {value_id: _optimizer_input(name) for name, value_id in inputs.output_value_ids.items()}
            self._add(rest.pop(0), keys, "gradient inputs")
        updates = {
            record.name: update
            for sharing, update in zip(shared_updates(step), rest, strict=True)
            for record in sharing
        }
        for record in step.parameters:
            self._add_update(record, updates[record.name])

    def _add_update(self, record: ParameterCompilation, update: Measured) -> None:
        keys: dict[str, Hashable] = {}
        for name, value_id in record.update_input_value_ids.items():
            if name in record.updated_state_value_ids:
                keys[value_id] = (record.name, value_id)
                self._roles[keys[value_id]] = PARAMETER
            else:
                keys[value_id] = _optimizer_input(name)
        keys[record.update_input_value_ids["parameter"]] = record.value_id
        keys[record.update_input_value_ids["gradient"]] = record.gradient_value_id
        self._add(update, keys, record.name)
        for value_id in (record.updated_parameter_value_id, *record.updated_state_value_ids.values()):
            self._kept.append(keys.get(value_id, (record.name, value_id)))

    def _add(self, program: Measured, keys: Mapping[str, Hashable] | None = None, name: str = "") -> None:
        """Appends a program; `keys` renames values, and those not in it are the program's own if it has a name."""
        renamed = keys or {}

        def key(value_id: str) -> Hashable:
            return renamed.get(value_id, (name, value_id) if name else value_id)

        for operation in program.operations:
            self._operations.append(Operation(key(operation.result), tuple(map(key, operation.operands))))
        self._sizes.update([(key(value_id), size) for value_id, size in program.sizes.items()])

    def _inputs(self) -> Iterator[Hashable]:
        """What is read and not computed, or kept without being read."""
        made = {operation.result for operation in self._operations}
        read = [operand for operation in self._operations for operand in operation.operands]
        return (value for value in dict.fromkeys([*read, *self._kept]) if value not in made)

    def reads(self) -> dict[str, Values]:
        groups: dict[str, list[Hashable]] = {role: [] for role in ROLES}
        for value in self._inputs():
            groups[self._roles.get(value, INPUT)].append(value)
        return {
            role: Values(len(values), total([self._sizes.get(value) for value in values]))
            for role, values in groups.items()
        }

    def peak_live_bytes(self) -> int | None:
        inputs = list(self._inputs())
        if any(value not in self._sizes for value in [*inputs, *[item.result for item in self._operations]]):
            return None
        return peak_live_bytes(self._operations, self._sizes, inputs=inputs, kept=self._kept)


def _optimizer_input(name: str) -> Hashable:
    """One value for all updates of a step."""
    return "optimizer input", name
