"""The programs of a step, strung together to one schedule: what reads what across them, and what is alive when."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tinychain.autodiff.expansion.transposing import dual_id
from tinychain.autodiff.inspection.figures import Values, total
from tinychain.autodiff.inspection.liveness import Operation, peak_live_bytes
from tinychain.autodiff.inspection.parts import shared_updates
from tinychain.autodiff.inspection.view import INPUT, PARAMETER, ROLES, SEED
from tinychain.autodiff.training import CompiledTrainingStep, ParameterCompilation


class Program(NamedTuple):
    """The operations of a program in schedule order, and the bytes of its values where they are known."""

    operations: Sequence[Operation[str]]
    sizes: Mapping[str, int]


class StepSchedule:
    """Forward, derivative, gradient inputs if there are any, then the updates in parameter order, twins behind.

    `programs` are those of the step's parts: one for each shared update. As a rule the step is one program, which frees
    every value after its last reader. With `by_program` it is run program by program: what one is given and gives back
    is alive until it ends, what the caller binds until the step ends, and the seed is made from the loss.

    Values of forward and derivative go by their ids, those of the other programs by the program's name and their id.
    """

    def __init__(self, step: CompiledTrainingStep, programs: Sequence[Program], *, by_program: bool = False) -> None:
        forward, derivative, *rest = programs
        self._by_program = by_program
        self._operations: list[Operation[Hashable]] = []
        self._sizes: dict[Hashable, int] = {}
        self._kept: list[Hashable] = [] if by_program else [step.loss_value_id]
        self._roles: dict[Hashable, str] = dict.fromkeys(step.seed_value_ids, SEED)
        for record in step.parameters:
            self._roles |= {record.value_id: PARAMETER, dual_id(record.value_id): PARAMETER}
        passed_on = [step.loss_value_id, *step.forward_capture_value_ids]
        pairs = step.with_twins()
        self._add(forward, passed_on)
        if by_program:
            for seed in step.seed_value_ids:
                self._operations.append(Operation(seed, [step.loss_value_id]))
        self._add(derivative, [*passed_on, *[record.gradient_value_id for pair in pairs for record in pair]])
        if step.gradient_inputs is not None:
            inputs = step.gradient_inputs
            keys: dict[str, Hashable] = {}
            for record, *twins in pairs:
                value_id = inputs.input_value_ids[record.name]
                keys |= {value_id: record.gradient_value_id}
                keys |= {dual_id(value_id): twin.gradient_value_id for twin in twins}
            keys |= {value_id: _optimizer_input(name) for name, value_id in inputs.output_value_ids.items()}
            self._add(rest.pop(0), inputs.output_value_ids.values(), keys, "gradient inputs")
        updates = {
            record.name: update
            for sharing, update in zip(shared_updates(step), rest, strict=True)
            for record in sharing
        }
        for pair in pairs:
            keys = {value_id: key for record in pair for value_id, key in self._update_inputs(record).items()}
            for record in pair:
                self._add_update(record, updates[record.name], keys)
        if by_program:
            self._kept += self._inputs()

    def _update_inputs(self, record: ParameterCompilation) -> dict[str, Hashable]:
        keys: dict[str, Hashable] = {}
        for name, value_id in record.update_input_value_ids.items():
            if name in record.updated_state_value_ids:
                keys[value_id] = (record.name, value_id)
                self._roles[keys[value_id]] = PARAMETER
            else:
                keys[value_id] = _optimizer_input(name)
        keys[record.update_input_value_ids["parameter"]] = record.value_id
        keys[record.update_input_value_ids["gradient"]] = record.gradient_value_id
        return keys

    def _add_update(self, record: ParameterCompilation, update: Program, keys: Mapping[str, Hashable]) -> None:
        """Appends the update of a parameter or a twin; `keys` are those of what both of them are given."""
        outputs = [record.updated_parameter_value_id, *record.updated_state_value_ids.values()]
        self._add(update, outputs, keys, record.name)
        if self._by_program and record.value_id in self._sizes:
            for name in record.updated_state_value_ids:  # which is there even if the update does not read it
                state = keys[record.update_input_value_ids[name]]
                self._sizes[state] = self._sizes[record.value_id]
                self._kept.append(state)
        for value_id in outputs:
            self._kept.append(keys.get(value_id, (record.name, value_id)))

    def _add(
        self,
        program: Program,
        outputs: Iterable[str],
        keys: Mapping[str, Hashable] | None = None,
        name: str = "",
    ) -> None:
        """Appends a program; `keys` renames values, and those not in it are the program's own if it has a name."""
        renamed = keys or {}

        def key(value_id: str) -> Hashable:
            return renamed.get(value_id, (name, value_id) if name else value_id)

        added = [Operation(key(result), tuple(map(key, operands))) for result, operands in program.operations]
        self._operations += added
        self._sizes.update([(key(value_id), size) for value_id, size in program.sizes.items()])
        if self._by_program:
            made = {operation.result for operation in added}
            given = [operand for operation in added for operand in operation.operands if operand not in made]
            end = "end", len(self._operations)
            self._operations.append(Operation(end, tuple(dict.fromkeys([*given, *map(key, outputs)]))))
            self._sizes[end] = 0

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
