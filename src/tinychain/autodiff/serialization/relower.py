"""Parts of a step to a compiled step again: its artifacts are lowered for a backend, in the order of a compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TypeAlias

from tinychain.autodiff.dependencies import DependencyAnalysis, Schedule
from tinychain.autodiff.expansion.transposing import dual_id, transposed_name
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.serialization.parts import GradientInputsPart, ParameterPart, StepParts, TwinsPart, UpdatePart
from tinychain.autodiff.serialization.step_checks import AnalysedParts, AnalysedTwins
from tinychain.autodiff.training import CompiledTrainingStep, GradientInputs, ParameterCompilation, Twins
from tinychain.autodiff.training.twins import twin_of

Lower: TypeAlias = Callable[[DependencyAnalysis, Schedule], LoweredProgram]


def lower_parts(parts: StepParts, analysed: AnalysedParts, lower: Lower) -> CompiledTrainingStep:
    """The compiled step. What `lower` raises passes unchanged."""
    forward = lower(*analysed.forward)
    derivative = lower(*analysed.derivative)
    gradient_inputs = None
    if parts.gradient_inputs is not None and analysed.gradient_inputs is not None:
        gradient_inputs = _gradient_inputs(parts.gradient_inputs, lower(*analysed.gradient_inputs))
    first: dict[int, ParameterCompilation] = {}  # of each update, which the others share
    parameters = []
    for part in parts.parameters:
        if part.update in first:
            record = first[part.update].shared_by(part.name, part.value_id, part.gradient_value_id)
        else:
            update = lower(*analysed.updates[part.update])
            record = first[part.update] = _parameter(part, parts.updates[part.update], update)
        parameters.append(record)
    return CompiledTrainingStep(
        source_forward_graph=parts.forward.source,
        source_derivative_program=parts.derivative.source,
        lowered_forward_graph=parts.forward.lowered,
        lowered_derivative_program=parts.derivative.lowered,
        forward=forward,
        derivative=derivative,
        input_value_ids=MappingProxyType(dict(parts.input_value_ids)),
        loss_value_id=parts.loss_value_id,
        forward_capture_value_ids=parts.forward_capture_value_ids,
        seed_value_ids=parts.seed_value_ids,
        parameters=tuple(parameters),
        provenance=parts.provenance,
        gradient_inputs=gradient_inputs,
        twins=None if parts.twins is None else _twins(parts.twins, analysed.twins, parameters, lower),
    )


def _twins(
    part: TwinsPart, analysed: AnalysedTwins | None, parameters: Sequence[ParameterCompilation], lower: Lower
) -> Twins:
    assert analysed is not None  # as there are twins
    records = {record.name: record for record in parameters}
    derivative = lower(*analysed.derivative)
    first: dict[int, ParameterCompilation] = {}
    twins = []
    for having in analysed.parameters:
        gradient = analysed.source.gradients[dual_id(having.value_id)]
        if having.update not in first:
            source, graph, update = analysed.updates[having.update]
            first[having.update] = twin_of(records[having.name], gradient, source, graph, lower(*update))
        shared = first[having.update]
        twins.append(shared.shared_by(transposed_name(having.name), dual_id(having.value_id), gradient))
    return Twins(analysed.source, part.derivative, derivative, tuple(twins))


def _gradient_inputs(part: GradientInputsPart, program: LoweredProgram) -> GradientInputs:
    return GradientInputs(
        source_graph=part.unit.source,
        lowered_graph=part.unit.lowered,
        program=program,
        input_value_ids=MappingProxyType(dict(part.input_value_ids)),
        output_value_ids=MappingProxyType(dict(part.output_value_ids)),
    )


def _parameter(part: ParameterPart, update: UpdatePart, program: LoweredProgram) -> ParameterCompilation:
    return ParameterCompilation(
        name=part.name,
        value_id=part.value_id,
        gradient_value_id=part.gradient_value_id,
        source_update_graph=update.unit.source,
        lowered_update_graph=update.unit.lowered,
        update=program,
        update_input_value_ids=MappingProxyType(dict(update.input_value_ids)),
        updated_parameter_value_id=update.updated_parameter_value_id,
        updated_state_value_ids=MappingProxyType(dict(update.updated_state_value_ids)),
    )
