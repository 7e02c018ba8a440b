"""The programs of an artifact, each before and after expansion, with the regions that tell the two apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.inspection.label import type_label
from tinychain.autodiff.inspection.regions import Region, given_regions, rewritten_regions
from tinychain.autodiff.inspection.view import CAPTURE, INPUT, PARAMETER, SEED, View, graph_view, program_view
from tinychain.autodiff.text.write import NoText, format_value
from tinychain.autodiff.training import CompiledTrainingStep, ParameterCompilation
from tinychain.autodiff.training.gradient_inputs import GradientInputs
from tinychain.autodiff.types import is_sequence

Artifact: TypeAlias = TensorGraph | DerivativeProgram | CompiledTrainingStep

#: Params that say what the type of the result says too.
SHAPE_PARAMS: Final = ("shape", "target_shape", "dtype")

_NAMES_SHOWN: Final = 4


@dataclass(frozen=True)
class Part:
    """One program of an artifact. `lowered` is None but for a step, and `source` itself where no pass rewrote it.

    `uses` is how often a step runs it, `regions` are those of the program that is drawn, and `type` that of the
    parameters that an update is for.
    """

    name: str
    source: View
    lowered: View | None = None
    uses: int = 1
    regions: tuple[Region, ...] = ()
    type: str = ""

    @property
    def drawn(self) -> View:
        return self.lowered or self.source


def parts(artifact: Artifact, regions: object = ()) -> list[Part]:
    """The programs of an artifact; of a step, those that it runs. `regions` are those that a pass reported of a graph
    or program.

    Raises TypeError for what is none, ValueError for regions that are not the artifact's, malformed_derivative_ir for a
    cycle and for ids that are no str or not unique, ambiguous_producer for a value that comes from
    two places, invalid_selected_output for an output that is no id.
    """
    if isinstance(artifact, CompiledTrainingStep):
        if not is_sequence(regions) or regions:
            raise ValueError("regions must be left out for a CompiledTrainingStep, which tells them itself")
        return _step_parts(artifact)
    if isinstance(artifact, TensorGraph):
        name, view = "graph", graph_view(artifact)
    elif isinstance(artifact, DerivativeProgram):
        name, view = "derivative", program_view(artifact, dict.fromkeys(artifact.gradients, PARAMETER))
    else:
        raise TypeError(
            f"artifact must be a TensorGraph, a DerivativeProgram or a CompiledTrainingStep, got {quote(artifact)}"
        )
    return [Part(name, view, regions=given_regions(regions, view.graph.nodes))]


def shared_updates(step: CompiledTrainingStep) -> list[list[ParameterCompilation]]:
    """The parameters of a step and their twins, those of one update together."""
    groups: dict[tuple[int, int], list[ParameterCompilation]] = {}
    twins = () if step.twins is None else step.twins.parameters
    for record in (*step.parameters, *twins):
        key = id(record.source_update_graph), id(record.lowered_update_graph)
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def alike(found: Sequence[Part]) -> list[list[Part]]:
    """The parts, those together that differ in nothing but shapes; only updates ever do."""
    groups: dict[Hashable, list[Part]] = {}
    for position, part in enumerate(found):
        key = (_form(part.source), _form(part.drawn)) if part.type else position
        groups.setdefault(key, []).append(part)
    return list(groups.values())


def _form(view: View) -> Hashable:
    """All that a drawing shows of a program but the shapes."""
    nodes = [
        (
            node.node_id,
            node.output_value_id,
            type(node.operator),
            tuple(node.input_value_ids),
            tuple([(key, _param(value)) for key, value in node.op_params.items() if key not in SHAPE_PARAMS]),
        )
        for node in view.graph.nodes
    ]
    inputs = [(value_id, view.names.get(value_id)) for value_id, _ in view.graph.inputs]
    return tuple(nodes), tuple(inputs), tuple(view.graph.outputs)


def _param(value: object) -> Hashable:
    try:
        return format_value(value)
    except NoText:
        return id(value)


# ------------------------------------------------------------------------------------------------------------- steps


def _step_parts(step: CompiledTrainingStep) -> list[Part]:
    names = {value_id: name for name, value_id in step.input_value_ids.items()}
    roles = dict.fromkeys([record.value_id for record in step.parameters], PARAMETER)
    passed_on = [(step.loss_value_id, "loss"), *[(value_id, "captured") for value_id in step.forward_capture_value_ids]]
    found = [
        _rewritten(
            "forward",
            graph_view(step.source_forward_graph, roles, names),
            graph_view(step.lowered_forward_graph, roles, names),
            step.provenance.forward_expansions,
            outputs=passed_on,
        )
    ]
    captures = dict.fromkeys([value_id for value_id, _ in passed_on], CAPTURE)
    seeds = dict.fromkeys(step.seed_value_ids, SEED)
    read = {**captures, **dict.fromkeys(names, INPUT), **roles, **seeds}
    names |= {value_id: SEED for value_id in seeds if value_id not in names}
    declared, run = dict(step.lowered_forward_graph.inputs), step.twins or step
    records = [record for pair in step.with_twins() for record in pair]
    found.append(
        _rewritten(
            "derivative",
            program_view(run.source_derivative_program, read, names, declared),
            program_view(run.lowered_derivative_program, read, names, declared),
            step.provenance.derivative_expansions,
            outputs=[(record.gradient_value_id, f"gradient of {record.name}") for record in records],
        )
    )
    labels = step.provenance.update_expansions
    if step.gradient_inputs is not None:
        found.append(_gradient_inputs_part(step.gradient_inputs, labels))
    for sharing in shared_updates(step):
        found.append(_update_part(sharing, labels))
    return found


def _gradient_inputs_part(inputs: GradientInputs, labels: Sequence[str]) -> Part:
    names = {value_id: f"gradient of {name}" for name, value_id in inputs.input_value_ids.items()}
    return _rewritten(
        f"gradient inputs: {', '.join(inputs.output_value_ids)}",
        graph_view(inputs.source_graph, names=names),
        graph_view(inputs.lowered_graph, names=names),
        labels,
        outputs=[(value_id, name) for name, value_id in inputs.output_value_ids.items()],
    )


def _update_part(sharing: Sequence[ParameterCompilation], labels: Sequence[str]) -> Part:
    record = sharing[0]
    names = {value_id: name for name, value_id in record.update_input_value_ids.items()}
    updated = {"parameter": record.updated_parameter_value_id, **record.updated_state_value_ids}
    roles = {record.update_input_value_ids[name]: PARAMETER for name in updated}
    shown = [parameter.name for parameter in sharing[:_NAMES_SHOWN]]
    more = len(sharing) - len(shown)
    part = _rewritten(
        f"update of {', '.join(shown)}{f' and {more} more' if more else ''}",
        graph_view(record.source_update_graph, roles, names),
        graph_view(record.lowered_update_graph, roles, names),
        labels,
        outputs=[(value_id, f"new {name}") for name, value_id in updated.items()],
    )
    spec = dict(part.source.graph.inputs).get(record.update_input_value_ids["parameter"])
    return replace(part, uses=len(sharing), type=type_label(spec))


def _rewritten(
    name: str, source: View, lowered: View, labels: Sequence[str], *, outputs: Iterable[tuple[str, str]]
) -> Part:
    """A part of a step, with the regions that tell the two apart; `outputs` are what the step asks for, with names."""
    output_names = _joined(outputs)
    source, lowered = [
        replace(view, graph=replace(view.graph, outputs=list(output_names)), output_names=output_names)
        for view in (source, lowered)
    ]
    if source.artifact is lowered.artifact:
        return Part(name, source, source)
    regions = rewritten_regions(source.graph.nodes, lowered.graph.nodes, labels)
    return Part(name, source, lowered, regions=regions)


def _joined(named: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Each value with all its names."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for value_id, name in named:
        names[value_id].append(name)
    return {value_id: ", ".join(dict.fromkeys(all_names)) for value_id, all_names in names.items()}
