"""Whether the parts of a step belong together, judged by the analysis that lowering needs anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tinychain.autodiff.dependencies import DependencyAnalysis, Schedule, analyze_graph, analyze_program
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import dual_source
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.serialization.faults import Fault
from tinychain.autodiff.serialization.parts import ParameterPart, StepParts, TwinsPart, UpdatePart
from tinychain.autodiff.training.twins import transposed_gradients, transposed_update
from tinychain.autodiff.walks import first_duplicate

Analysed: TypeAlias = tuple[DependencyAnalysis, Schedule]
Result = TypeVar("Result")


@dataclass(frozen=True)
class AnalysedTwins:
    """What `AnalysedParts` has, and the sources, which are in no file.

    `parameters` are those that have a twin; `updates` has source, lowered graph and analysis where one of them has it.
    """

    parameters: tuple[ParameterPart, ...]
    source: DerivativeProgram
    derivative: Analysed
    updates: Mapping[int, tuple[TensorGraph, TensorGraph, Analysed]]


@dataclass(frozen=True)
class AnalysedParts:
    """The analysis and the order by which to lower each unit."""

    forward: Analysed
    derivative: Analysed
    updates: tuple[Analysed, ...]
    gradient_inputs: Analysed | None
    twins: AnalysedTwins | None


def analyse_parts(parts: StepParts) -> AnalysedParts:
    """A Fault for parts that could not come from one `compile_training_step`."""
    _check_names(parts)
    _check_ids(parts)
    forward, extra = parts.forward, parts.gradient_inputs
    return AnalysedParts(
        forward=_analysed_graph(".forward.lowered", forward.lowered, forward.outputs, parts.input_value_ids),
        derivative=_analysed_derivative(parts),
        updates=tuple(
            [
                _analysed_graph(
                    f".updates[{index}].lowered", update.unit.lowered, update.unit.outputs, update.input_value_ids
                )
                for index, update in enumerate(parts.updates)
            ]
        ),
        gradient_inputs=None
        if extra is None
        else _analysed_graph(".gradient_inputs.lowered", extra.unit.lowered, extra.unit.outputs, extra.input_value_ids),
        twins=None if parts.twins is None else _analysed_twins(parts, parts.twins),
    )


def _check_names(parts: StepParts) -> None:
    provenance, source = parts.provenance, parts.derivative.source.metadata
    parameters = parts.parameters
    repeated = first_duplicate([part.name for part in parameters])
    if repeated is not None:
        raise Fault(".parameters", "a name for each parameter", f"{quote(repeated)} twice")
    _check_same(".provenance.parameter_names", provenance.parameter_names, [part.name for part in parameters])
    _check_same(".provenance.wrt_signature", provenance.wrt_signature, [part.value_id for part in parameters])
    _check_same(".provenance.seed_value_ids", provenance.seed_value_ids, parts.seed_value_ids)
    _check_same(".provenance.input_names", sorted(provenance.input_names), sorted(parts.input_value_ids))
    _check_same(".derivative.source.metadata.wrt_signature", source.wrt_signature, provenance.wrt_signature)
    for name in ("source_graph_id", "transform_version", "tensor_op_contract_version"):
        _check_same(f".provenance.{name}", getattr(provenance, name), getattr(source, name))
    for index, update in enumerate(parts.updates):
        states = update.updated_state_value_ids
        names = {"parameter", "gradient", *provenance.optimizer_input_names, *states}
        _check_same(f".updates[{index}].input_value_ids", sorted(update.input_value_ids), sorted(names))
    if parts.gradient_inputs is not None:
        names = set(parts.gradient_inputs.input_value_ids)
        _check_same(".gradient_inputs.input_value_ids", sorted(names), sorted(provenance.parameter_names))
        given = parts.gradient_inputs.output_value_ids
        _check_all(
            ".gradient_inputs.output_value_ids", given, {*provenance.optimizer_input_names}, "an optimizer input"
        )


def _check_ids(parts: StepParts) -> None:
    selected = {*parts.forward.outputs}
    _check_all(".loss_value_id", [parts.loss_value_id], selected, "an output of forward")
    _check_all(".forward_capture_value_ids", parts.forward_capture_value_ids, selected, "an output of forward")
    gradients, gradient_outputs = parts.derivative.source.gradients, {*parts.derivative.outputs}
    for index, part in enumerate(parts.parameters):
        path = f".parameters[{index}]"
        _check_same(f"{path}.value_id", part.value_id, parts.input_value_ids.get(part.name))
        _check_same(f"{path}.gradient_value_id", part.gradient_value_id, gradients.get(part.value_id))
        _check_all(f"{path}.gradient_value_id", [part.gradient_value_id], gradient_outputs, "an output of derivative")
        if not 0 <= part.update < len(parts.updates):
            raise Fault(f"{path}.update", f"a position below {len(parts.updates)}", quote(part.update))
    for index, update in enumerate(parts.updates):
        _check_update(f".updates[{index}]", update)
    if parts.gradient_inputs is not None:
        ids, outputs = parts.gradient_inputs.output_value_ids.values(), {*parts.gradient_inputs.unit.outputs}
        _check_all(".gradient_inputs.output_value_ids", ids, outputs, "an output of its program")


def _check_update(path: str, update: UpdatePart) -> None:
    outputs = {*update.unit.outputs}
    parameter, states = update.updated_parameter_value_id, update.updated_state_value_ids
    _check_all(f"{path}.updated_parameter_value_id", [parameter], outputs, "an output of the update")
    _check_all(f"{path}.updated_state_value_ids", states.values(), outputs, "an output of the update")


def _check_same(path: str, given: object, wanted: object) -> None:
    if isinstance(wanted, (list, tuple)):
        given, wanted = list(given), list(wanted)  # type: ignore[call-overload]
    if given != wanted:
        raise Fault(path, f"{quote(wanted)}, as the rest of the step has it", quote(given))


def _check_all(path: str, ids: Iterable[str], known: AbstractSet[str], what: str) -> None:
    for value_id in ids:
        if value_id not in known:
            raise Fault(path, what, quote(value_id))


def _analysed_graph(path: str, graph: TensorGraph, outputs: Sequence[str], named: Mapping[str, str]) -> Analysed:
    """The analysis of a lowered graph, whose inputs must be among those that the step names."""
    analysis, order = _judged(path, lambda: analyze_graph(graph, outputs))
    bound = {*named.values()}
    read = [value.value_id for value in analysis.declared_inputs if dual_source(value.value_id) not in bound]
    _check_all(f"{path}.inputs", read, bound, "a named input or its dual")
    return analysis, order


def _analysed_derivative(parts: StepParts) -> Analysed:
    """The analysis of the lowered program."""
    unit, forward = parts.derivative, parts.forward
    if unit.lowered is not unit.source or forward.lowered is not forward.source:
        _analysed_program(".derivative.source", parts, unit.source, forward.source, unit.outputs)
    return _analysed_program(".derivative.lowered", parts, unit.lowered, forward.lowered, unit.outputs)


def _analysed_program(
    path: str, parts: StepParts, program: DerivativeProgram, forward: TensorGraph, outputs: Sequence[str] | None
) -> Analysed:
    """The analysis of a program, which captures nothing but what forward gives."""
    analysis, order = _judged(path, lambda: analyze_program(program, forward, parts.seed_value_ids, outputs))
    given = {parts.loss_value_id, *parts.forward_capture_value_ids}
    _check_all(path, [value.value_id for value in analysis.forward_captures], given, "a capture that forward gives")
    return analysis, order


def _analysed_twins(parts: StepParts, twins: TwinsPart) -> AnalysedTwins:
    """The analysis of the twins, whose sources are made of those of the step."""
    named = {*twins.parameters}
    having = [part for part in parts.parameters if part.name in named]
    used = {part.update for part in having}
    _check_same(".twins.parameters", twins.parameters, [part.name for part in having])
    given = [graph is not None for graph in twins.updates]
    _check_same(".twins.updates", given, [index in used for index in range(len(parts.updates))])
    path, program = ".twins.derivative", twins.derivative
    source = _judged(path, lambda: transposed_gradients(parts.derivative.source, [part.value_id for part in having]))
    _check_same(f"{path}.gradients", program.gradients, source.gradients)
    _check_same(f"{path}.output_gradients", program.output_gradients, source.output_gradients)
    return AnalysedTwins(
        parameters=tuple(having),
        source=source,
        derivative=_analysed_program(path, parts, program, parts.forward.lowered, None),
        updates={
            index: _analysed_twin(f".twins.updates[{index}]", update, graph)
            for index, (update, graph) in enumerate(zip(parts.updates, twins.updates, strict=True))
            if graph is not None
        },
    )


def _analysed_twin(path: str, update: UpdatePart, graph: TensorGraph) -> tuple[TensorGraph, TensorGraph, Analysed]:
    updated = [update.updated_parameter_value_id, *update.updated_state_value_ids.values()]
    source = _judged(path, lambda: transposed_update(update.unit.source, updated))
    return source, graph, _analysed_graph(path, graph, source.outputs, update.input_value_ids)


def _judged(path: str, judge: Callable[[], Result]) -> Result:
    try:
        return judge()
    except AutodiffError as error:
        raise Fault(path, "an artifact that can be lowered", str(error)) from None
