"""An artifact as the things to look at: one graph each, with the role and the name of every value that it reads.

A derivative program becomes a graph whose inputs are what it reads; a compiled step becomes its programs, each before
and after expansion. Listing, summary and drawing all start from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.inspection.regions import Region, given_regions, rewritten_regions
from tinychain.autodiff.training import CompiledTrainingStep, ParameterCompilation
from tinychain.autodiff.training.gradient_inputs import GradientInputs
from tinychain.autodiff.types import Typespec, is_sequence
from tinychain.autodiff.walks import first_duplicate, post_order, producer_index

Artifact: TypeAlias = TensorGraph | DerivativeProgram | CompiledTrainingStep

INPUT: Final = "input"
PARAMETER: Final = "parameter"
CAPTURE: Final = "capture"
SEED: Final = "seed"
ROLES: Final = (INPUT, PARAMETER, CAPTURE, SEED)

_NAMES_SHOWN: Final = 4


@dataclass(frozen=True)
class View:
    """One program as a graph: `roles` has an entry for each of its inputs, `names` for those that have a name."""

    artifact: TensorGraph | DerivativeProgram
    graph: TensorGraph
    roles: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One program of an artifact. `lowered` is None but for a step, and `source` itself where no pass rewrote it.

    `uses` is how often a step runs it, and `regions` are those of the program that is drawn.
    """

    name: str
    source: View
    lowered: View | None = None
    uses: int = 1
    regions: tuple[Region, ...] = ()

    @property
    def drawn(self) -> View:
        return self.lowered or self.source


def parts(artifact: Artifact, regions: object = ()) -> list[Part]:
    """The programs of an artifact. `regions` are those that a pass reported of a graph or program.

    Raises TypeError for what is none, ValueError for regions that are not the artifact's, malformed_derivative_ir for a
    cycle and for ids that are no str or not unique, ambiguous_producer for a value that comes from
    two places, invalid_selected_output for an output that is no id.
    """
    if isinstance(artifact, CompiledTrainingStep):
        if not is_sequence(regions) or regions:
            raise ValueError("regions must be left out for a CompiledTrainingStep, which tells them itself")
        return _step_parts(artifact)
    if isinstance(artifact, TensorGraph):
        name, view = "graph", _graph_view(artifact)
    elif isinstance(artifact, DerivativeProgram):
        name, view = "derivative", _program_view(artifact, dict.fromkeys(artifact.gradients, PARAMETER))
    else:
        raise TypeError(
            f"artifact must be a TensorGraph, a DerivativeProgram or a CompiledTrainingStep, got {quote(artifact)}"
        )
    return [Part(name, view, regions=given_regions(regions, view.graph.nodes))]


# ------------------------------------------------------------------------------------------------------------- views


def _graph_view(graph: TensorGraph, roles: Mapping[str, str] | None = None, **named: Any) -> View:
    check_graph(graph, "artifact")
    return _view(graph, graph.nodes, dict(graph.inputs), graph.outputs, roles or {}, **named)


def _program_view(program: DerivativeProgram, roles: Mapping[str, str], **named: Any) -> View:
    check_program(program, "artifact")
    table = program.value_typespecs
    nodes = [_typed(node, table) for node in program.nodes]
    outputs = [gradient for gradient in program.output_gradients if gradient is not None]
    return _view(program, nodes, {}, outputs, roles, table, **named)


def _view(
    artifact: TensorGraph | DerivativeProgram,
    nodes: Sequence[TensorNodeRecord],
    declared: Mapping[str, Typespec | None],
    outputs: Iterable[Any],
    roles: Mapping[str, str],
    table: Mapping[str, Typespec] | None = None,
    names: Mapping[str, str] | None = None,
) -> View:
    """The view, whose inputs are those declared and then all else that is read; `roles` may tell any, read or not."""
    selected = list(dict.fromkeys(outputs))
    for value_id in selected:
        if not isinstance(value_id, str) or not value_id:
            raise AutodiffError(
                "invalid_selected_output", f"an output must be a non-empty str id, got {quote(value_id)}"
            )
    producers = producer_index(nodes, category="ambiguous_producer")
    duplicate = first_duplicate([node.node_id for node in nodes])
    if duplicate is not None:
        raise AutodiffError("malformed_derivative_ir", f"two nodes have the id {quote(duplicate)}")
    for value_id in declared:
        if value_id in producers:
            raise AutodiffError(
                "ambiguous_producer",
                f"value {quote(value_id)} is a declared input and produced by node"
                f" {quote(producers[value_id].node_id)}",
            )
    post_order(nodes, producers)  # refuses a cycle
    inputs = dict(declared)
    for value_id in [*[operand for node in nodes for operand in node.input_value_ids], *selected]:
        if value_id not in producers and value_id not in inputs:
            inputs[value_id] = (table or {}).get(value_id)
    return View(
        artifact=artifact,
        graph=TensorGraph(nodes=list(nodes), inputs=list(inputs.items()), outputs=selected),
        roles={value_id: roles.get(value_id, INPUT) for value_id in inputs},
        names=names or {},
    )


def _typed(node: TensorNodeRecord, table: Mapping[str, Typespec]) -> TensorNodeRecord:
    """The node under the typespec that the program's table, which wins, has for its value."""
    spec = table.get(node.output_value_id)
    return node if spec is None or spec is node.output_typespec else replace(node, output_typespec=spec)


# ------------------------------------------------------------------------------------------------------------- steps


def _step_parts(step: CompiledTrainingStep) -> list[Part]:
    names = {value_id: name for name, value_id in step.input_value_ids.items()}
    roles = dict.fromkeys([record.value_id for record in step.parameters], PARAMETER)
    found = [
        _rewritten(
            "forward",
            _graph_view(step.source_forward_graph, roles, names=names),
            _graph_view(step.lowered_forward_graph, roles, names=names),
            step.provenance.forward_expansions,
            outputs=(step.loss_value_id, *step.forward_capture_value_ids),
        )
    ]
    captures = dict.fromkeys((step.loss_value_id, *step.forward_capture_value_ids), CAPTURE)
    declared = dict.fromkeys(names, INPUT)
    seeds = dict.fromkeys(step.seed_value_ids, SEED)
    read = {**captures, **declared, **roles, **seeds}
    found.append(
        _rewritten(
            "derivative",
            _program_view(step.source_derivative_program, read, names=names),
            _program_view(step.lowered_derivative_program, read, names=names),
            step.provenance.derivative_expansions,
            outputs=step.derivative.selected_outputs,
        )
    )
    labels = step.provenance.update_expansions
    if step.gradient_inputs is not None:
        found.append(_gradient_inputs_part(step.gradient_inputs, labels))
    for sharing in shared_updates(step):
        found.append(_update_part(sharing, labels))
    return found


def shared_updates(step: CompiledTrainingStep) -> list[list[ParameterCompilation]]:
    """The parameters of a step, those of one update together."""
    groups: dict[tuple[int, int], list[ParameterCompilation]] = {}
    for record in step.parameters:
        key = id(record.source_update_graph), id(record.lowered_update_graph)
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def _gradient_inputs_part(inputs: GradientInputs, labels: Sequence[str]) -> Part:
    names = {value_id: f"gradient of {name}" for name, value_id in inputs.input_value_ids.items()}
    return _rewritten(
        f"gradient inputs: {', '.join(inputs.output_value_ids)}",
        _graph_view(inputs.source_graph, names=names),
        _graph_view(inputs.lowered_graph, names=names),
        labels,
        outputs=tuple(inputs.output_value_ids.values()),
    )


def _update_part(sharing: Sequence[ParameterCompilation], labels: Sequence[str]) -> Part:
    record = sharing[0]
    names = {value_id: name for name, value_id in record.update_input_value_ids.items()}
    updated = ("parameter", *record.updated_state_value_ids)
    roles = {record.update_input_value_ids[name]: PARAMETER for name in updated}
    shown = [parameter.name for parameter in sharing[:_NAMES_SHOWN]]
    more = len(sharing) - len(shown)
    return _rewritten(
        f"update of {', '.join(shown)}{f' and {more} more' if more else ''}",
        _graph_view(record.source_update_graph, roles, names=names),
        _graph_view(record.lowered_update_graph, roles, names=names),
        labels,
        outputs=(record.updated_parameter_value_id, *record.updated_state_value_ids.values()),
        uses=len(sharing),
    )


def _rewritten(
    name: str, source: View, lowered: View, labels: Sequence[str], *, outputs: Sequence[str], uses: int = 1
) -> Part:
    """A part of a step, whose outputs are those that the step asks for, with the regions that tell the two apart."""
    source, lowered = [
        replace(view, graph=replace(view.graph, outputs=list(dict.fromkeys(outputs)))) for view in (source, lowered)
    ]
    if source.artifact is lowered.artifact:
        return Part(name, source, source, uses)
    regions = rewritten_regions(source.graph.nodes, lowered.graph.nodes, labels)
    return Part(name, source, lowered, uses, regions)
