"""A compiled step without what a backend made of it: that is made again by lowering the same artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.training import CompiledTrainingStep, TrainingStepProvenance, Twins

Artifact = TypeVar("Artifact", TensorGraph, DerivativeProgram)


@dataclass(frozen=True)
class Unit(Generic[Artifact]):
    """What one lowered program comes from: the artifact before and after the passes, and the outputs to select."""

    source: Artifact
    lowered: Artifact
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class UpdatePart:
    unit: Unit[TensorGraph]
    input_value_ids: Mapping[str, str]
    updated_parameter_value_id: str
    updated_state_value_ids: Mapping[str, str]


@dataclass(frozen=True)
class GradientInputsPart:
    unit: Unit[TensorGraph]
    input_value_ids: Mapping[str, str]
    output_value_ids: Mapping[str, str]


@dataclass(frozen=True)
class TwinsPart:
    """The lowered artifacts; their sources follow from those of the step. `parameters` are names of its parameters, and
    `updates` has the graph of the twins of each update, None where its parameters have none.
    """

    derivative: DerivativeProgram
    parameters: tuple[str, ...]
    updates: tuple[TensorGraph | None, ...]


@dataclass(frozen=True)
class ParameterPart:
    """`update` is a position in the updates, of which parameters of one type share one."""

    name: str
    value_id: str
    gradient_value_id: str
    update: int


@dataclass(frozen=True)
class StepParts:
    forward: Unit[TensorGraph]
    derivative: Unit[DerivativeProgram]
    input_value_ids: Mapping[str, str]
    loss_value_id: str
    forward_capture_value_ids: tuple[str, ...]
    seed_value_ids: tuple[str, ...]
    parameters: tuple[ParameterPart, ...]
    updates: tuple[UpdatePart, ...]
    provenance: TrainingStepProvenance
    gradient_inputs: GradientInputsPart | None
    twins: TwinsPart | None


def parts_of(compiled: CompiledTrainingStep) -> StepParts:
    """The parts of a compiled step; each update once, however many parameters share it."""
    updates: list[UpdatePart] = []
    positions: dict[object, int] = {}
    parameters = []
    for record in compiled.parameters:
        inputs, states = record.update_input_value_ids, record.updated_state_value_ids
        objects = (record.update, record.source_update_graph, record.lowered_update_graph)
        ids = (record.updated_parameter_value_id, tuple(inputs.items()), tuple(states.items()))
        key = (tuple(map(id, objects)), ids)
        position = positions.setdefault(key, len(updates))
        if position == len(updates):
            unit = Unit(record.source_update_graph, record.lowered_update_graph, record.update.selected_outputs)
            updates.append(UpdatePart(unit, inputs, record.updated_parameter_value_id, states))
        parameters.append(ParameterPart(record.name, record.value_id, record.gradient_value_id, position))
    extra = compiled.gradient_inputs
    return StepParts(
        forward=Unit(compiled.source_forward_graph, compiled.lowered_forward_graph, compiled.forward.selected_outputs),
        derivative=Unit(
            compiled.source_derivative_program,
            compiled.lowered_derivative_program,
            compiled.derivative.selected_outputs,
        ),
        input_value_ids=compiled.input_value_ids,
        loss_value_id=compiled.loss_value_id,
        forward_capture_value_ids=compiled.forward_capture_value_ids,
        seed_value_ids=compiled.seed_value_ids,
        parameters=tuple(parameters),
        updates=tuple(updates),
        provenance=compiled.provenance,
        gradient_inputs=None
        if extra is None
        else GradientInputsPart(
            Unit(extra.source_graph, extra.lowered_graph, extra.program.selected_outputs),
            extra.input_value_ids,
            extra.output_value_ids,
        ),
        twins=None if compiled.twins is None else _twins_part(compiled, compiled.twins, [p.update for p in parameters]),
    )


def _twins_part(compiled: CompiledTrainingStep, twins: Twins, positions: Sequence[int]) -> TwinsPart:
    """`positions` are those of the updates of the parameters."""
    names = []
    graphs: dict[int, TensorGraph] = {}
    for (record, *having), position in zip(compiled.with_twins(), positions, strict=True):
        for twin in having:
            names.append(record.name)
            graphs.setdefault(position, twin.lowered_update_graph)
    updates = tuple([graphs.get(position) for position in range(max(positions, default=-1) + 1)])
    return TwinsPart(twins.lowered_derivative_program, tuple(names), updates)
