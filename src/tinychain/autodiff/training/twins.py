"""The twins of a step: its transposed parameters, which its own programs keep up to date.

What the step computes is transposed once more and goes through the same passes. A pass for a machine without
transposes pushes them down to what is bound, so that the machine makes new transposes of those it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from tinychain.autodiff.dependencies import DependencyAnalysis, Schedule, analyze_graph, analyze_program
from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import dual_id, dual_source, dual_spec, transposed_name
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.operators import TransposeOperator
from tinychain.autodiff.training.passes import Obligations, PassSequence, run_passes
from tinychain.autodiff.training.records import CompiledTrainingStep, ParameterCompilation, Twins
from tinychain.autodiff.types import Typespec, swapped
from tinychain.autodiff.walks import declared_specs, needed_by, producer_index

Lower: TypeAlias = Callable[[DependencyAnalysis, Schedule], LoweredProgram]

_PREFIX: Final = "twin"
#: How often only those twins are added that another one reads; then all are, as a chain of n would take n rounds.
_ROUNDS: Final = 3
_NAMES_SHOWN: Final = 4


def compile_twins(
    step: CompiledTrainingStep, derivative: PassSequence, update: PassSequence, lower: Lower
) -> Twins | None:
    """The twins of those parameters of which a program reads the transpose, that of the gradient or of a state.

    None where no program does. Raises not_legalizable for a twin that a pass refuses, and where an update reads an
    optimizer input transposed that another program of the step computes; and what the passes, the analysis and lowering
    raise.
    """
    _check_computed_inputs(step, step.parameters)
    wanted = _read_transposed(step)
    if not wanted:
        return None
    parameters = {record.value_id: record.name for record in step.parameters}
    specs = dict(step.source_forward_graph.inputs)
    matrices = {name for value_id, name in parameters.items() if dual_spec(specs.get(value_id)) is not None}
    rounds = 0
    while True:
        chosen = [record for record in step.parameters if record.name in wanted]
        source = transposed_gradients(step.source_derivative_program, [record.value_id for record in chosen])
        with _told_of(chosen):
            lowered = run_passes(source, derivative, Obligations(seed=step.seed_value_ids[0]))
        analysis, order = analyze_program(lowered, step.lowered_forward_graph, step.seed_value_ids, None)
        more = _duals_among(analysis, parameters) - wanted
        if not more:
            break
        rounds += 1
        wanted |= more if rounds < _ROUNDS else matrices
    _check_captures(step, analysis, derivative)
    twins = Twins(source, lowered, lower(analysis, order), tuple(_twins_of(chosen, lowered, update, lower)))
    _check_computed_inputs(step, twins.parameters)
    return twins


def transposed_gradients(program: DerivativeProgram, value_ids: Sequence[str]) -> DerivativeProgram:
    """The program with the transposes of the gradients of these values behind its own, each as that of a dual.

    Raises missing_derivative_ir for a gradient that there is not, missing_shape_metadata for one of unknown type,
    invalid_permutation for one of a rank below 2.
    """
    specs: dict[str, Typespec | None] = {node.output_value_id: node.output_typespec for node in program.nodes}
    specs |= program.value_typespecs
    gradients = [program.gradients.get(value_id, "") for value_id in value_ids]
    if "" in gradients:
        missing = value_ids[gradients.index("")]
        raise AutodiffError("missing_derivative_ir", f"the program has no gradient of {quote(missing)}")
    nodes, transposed = _transposes(program.nodes, specs, gradients)
    outputs = [transposed[gradient] for gradient in gradients]
    duals = [dual_id(value_id) for value_id in value_ids]
    known = {node.output_value_id: node.output_typespec for node in nodes if node.output_typespec is not None}
    return replace(
        program,
        nodes=[*program.nodes, *nodes],
        gradients={**program.gradients, **dict(zip(duals, outputs, strict=True))},
        output_gradients=[*program.output_gradients, *outputs],
        metadata=replace(program.metadata, wrt_signature=(*program.metadata.wrt_signature, *duals)),
        value_typespecs={**program.value_typespecs, **known},
    )


def transposed_update(graph: TensorGraph, updated: Iterable[str]) -> TensorGraph:
    """The source of an update with the transposes of these values, each once, as its outputs; raises like the above."""
    nodes, transposed = _transposes(graph.nodes, declared_specs(graph), updated)
    return replace(graph, nodes=[*graph.nodes, *nodes], outputs=list(transposed.values()))


def updated_value_ids(record: ParameterCompilation) -> list[str]:
    """The ids of the new parameter and of the new states in an update."""
    return [record.updated_parameter_value_id, *record.updated_state_value_ids.values()]


def twin_of(
    record: ParameterCompilation, gradient: str, source: TensorGraph, lowered: TensorGraph, update: LoweredProgram
) -> ParameterCompilation:
    """The twin of a parameter; `source` is its `transposed_update`, and `gradient` the value id of its gradient."""
    transposed = dict(zip(dict.fromkeys(updated_value_ids(record)), source.outputs, strict=True))
    own = ("parameter", "gradient", *record.updated_state_value_ids)
    ids = {name: dual_id(id_) if name in own else id_ for name, id_ in record.update_input_value_ids.items()}
    return ParameterCompilation(
        name=transposed_name(record.name),
        value_id=dual_id(record.value_id),
        gradient_value_id=gradient,
        source_update_graph=source,
        lowered_update_graph=lowered,
        update=update,
        update_input_value_ids=MappingProxyType(ids),
        updated_parameter_value_id=transposed[record.updated_parameter_value_id],
        updated_state_value_ids=MappingProxyType(
            {name: transposed[value_id] for name, value_id in record.updated_state_value_ids.items()}
        ),
    )


def _twins_of(
    chosen: Sequence[ParameterCompilation], program: DerivativeProgram, passes: PassSequence, lower: Lower
) -> Iterator[ParameterCompilation]:
    first: dict[int, ParameterCompilation] = {}  # of each update, whose twin the others share
    for record in chosen:
        value_id = dual_id(record.value_id)
        gradient = program.gradients[value_id]
        known = first.get(id(record.update))
        if known is not None:
            yield known.shared_by(transposed_name(record.name), value_id, gradient)
            continue
        source = transposed_update(record.source_update_graph, updated_value_ids(record))
        declared = [input_id for input_id, _ in source.inputs]
        with _told_of([record]):
            lowered = run_passes(source, passes, Obligations(declared, source.outputs))
        lowered = _needed(lowered, source.outputs)
        update = lower(*analyze_graph(lowered, source.outputs))
        first[id(record.update)] = twin = twin_of(record, gradient, source, lowered, update)
        yield twin


def _needed(graph: TensorGraph, outputs: Sequence[str]) -> TensorGraph:
    """The graph without what no output needs, such as what was computed only to be transposed."""
    producers = producer_index(graph.nodes, category="ambiguous_producer")
    reached = {node.output_value_id for node in needed_by(outputs, producers)}
    return replace(graph, nodes=[node for node in graph.nodes if node.output_value_id in reached])


def _transposes(
    nodes: Sequence[TensorNodeRecord], specs: Mapping[str, Typespec | None], value_ids: Iterable[str]
) -> tuple[list[TensorNodeRecord], dict[str, str]]:
    """A transpose of each value, once, under ids that follow from those that are taken; and its id by the value's."""
    taken = {*specs, *[node.node_id for node in nodes]}
    emit = Emitter(specs=specs, mint_value=mint(f"{_PREFIX}v", taken), mint_node=mint(f"{_PREFIX}n", taken))
    transposed = {}
    for value_id in dict.fromkeys(value_ids):
        rank = len(emit.shape(value_id))
        if rank < 2:
            raise AutodiffError("invalid_permutation", f"{quote(value_id)} has rank {rank}; a twin is of a matrix")
        transposed[value_id] = emit(TransposeOperator, value_id, perm=list(swapped(range(rank))))
    return emit.nodes, transposed


def _read_transposed(step: CompiledTrainingStep) -> set[str]:
    """The names of the parameters of which a program reads the transpose, that of the gradient or of a state."""
    parameters = {record.value_id: record.name for record in step.parameters}
    found = _duals_among(step.forward.dependencies, parameters) | _duals_among(step.derivative.dependencies, parameters)
    shared = step.gradient_inputs
    if shared is not None:
        gradients = {value_id: name for name, value_id in shared.input_value_ids.items()}
        found |= _duals_among(shared.program.dependencies, gradients)
    for record in step.parameters:
        ids = record.update_input_value_ids
        own = {ids[name]: record.name for name in ("parameter", "gradient", *record.updated_state_value_ids)}
        found |= _duals_among(record.update.dependencies, own)
    return found


def _duals_among(analysis: DependencyAnalysis, names: Mapping[str, str]) -> set[str]:
    """The names, given by value id, of the values whose transposes a program reads."""
    sources = [dual_source(value.value_id) for value in analysis.required_inputs]
    return {names[source] for source in sources if source is not None and source in names}


def _check_computed_inputs(step: CompiledTrainingStep, records: Sequence[ParameterCompilation]) -> None:
    computed: Collection[str] = () if step.gradient_inputs is None else step.gradient_inputs.output_value_ids
    for record in records:
        ids = {id_: name for name, id_ in record.update_input_value_ids.items() if name in computed}
        for name in sorted(_duals_among(record.update.dependencies, ids)):
            raise AutodiffError(
                "not_legalizable",
                f"the update of {quote(record.name)} reads the optimizer input {quote(name)} transposed, which is"
                " computed from the gradients; nobody computes its transpose",
            )


def _check_captures(step: CompiledTrainingStep, analysis: DependencyAnalysis, passes: PassSequence) -> None:
    given = {step.loss_value_id, *step.forward_capture_value_ids}
    for value in analysis.forward_captures:
        if value.value_id not in given:
            applied = "; ".join(map(passes.where, range(len(passes.passes))))
            raise AutodiffError(
                "expansion_contract_violation",
                f"the gradients of the twins capture {quote(value.value_id)}, which the step does not; applied were:"
                f" {applied}",
            )


@contextmanager
def _told_of(chosen: Sequence[ParameterCompilation]) -> Iterator[None]:
    """A refusal names the parameters, as the nodes that it names are not the caller's."""
    try:
        yield
    except AutodiffError as error:
        more = len(chosen) - _NAMES_SHOWN
        names = ", ".join([quote(record.name) for record in chosen[:_NAMES_SHOWN]])
        several = f"{names} and {more} more" if more > 0 else names
        message = f"the step cannot keep the transposes of {several} up to date: {error.message}"
        raise AutodiffError(error.category, message) from None
