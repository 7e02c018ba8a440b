"""A program as the thing to look at: one graph, with the role and the name of every value that it reads.

A derivative program becomes a graph whose inputs are what it reads. Listing, summary and drawing all start from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import dual_source, transposed_name
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.types import Typespec
from tinychain.autodiff.walks import first_duplicate, post_order, producer_index

INPUT: Final = "input"
PARAMETER: Final = "parameter"
CAPTURE: Final = "capture"
SEED: Final = "seed"
ROLES: Final = (INPUT, PARAMETER, CAPTURE, SEED)


@dataclass(frozen=True)
class View:
    """One program as a graph: `roles` has an entry for each of its inputs.

    `names` has one for those inputs that have a name, `output_names` for such outputs.
    """

    artifact: TensorGraph | DerivativeProgram
    graph: TensorGraph
    roles: Mapping[str, str]
    names: Mapping[str, str]
    output_names: Mapping[str, str] = field(default_factory=dict)


def graph_view(
    graph: TensorGraph, roles: Mapping[str, str] | None = None, names: Mapping[str, str] | None = None
) -> View:
    """A graph. Raises as `parts` does."""
    check_graph(graph, "artifact")
    return _view(graph, graph.nodes, dict(graph.inputs), graph.outputs, roles or {}, names or {})


def program_view(
    program: DerivativeProgram,
    roles: Mapping[str, str],
    names: Mapping[str, str] | None = None,
    declared: Mapping[str, Typespec | None] | None = None,
) -> View:
    """A derivative program; `declared` are typespecs of what its own table lacks. Raises as `parts` does."""
    check_program(program, "artifact")
    table = program.value_typespecs
    nodes = [_typed(node, table) for node in program.nodes]
    outputs = [gradient for gradient in program.output_gradients if gradient is not None]
    return _view(program, nodes, {}, outputs, roles, names or {}, {**(declared or {}), **table})


def _view(
    artifact: TensorGraph | DerivativeProgram,
    nodes: Sequence[TensorNodeRecord],
    declared: Mapping[str, Typespec | None],
    outputs: Iterable[Any],
    roles: Mapping[str, str],
    names: Mapping[str, str],
    table: Mapping[str, Typespec | None] | None = None,
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
    sources = {value_id: dual_source(value_id) for value_id in inputs}
    duals = {
        value_id: source
        for value_id, source in sources.items()
        if source is not None and (source in inputs or source in names or source in roles)
    }
    return View(
        artifact=artifact,
        graph=TensorGraph(nodes=list(nodes), inputs=list(inputs.items()), outputs=selected),
        roles={value_id: roles.get(duals.get(value_id, value_id), INPUT) for value_id in inputs},
        names={**names, **{dual: transposed_name(names.get(source, source)) for dual, source in duals.items()}},
    )


def _typed(node: TensorNodeRecord, table: Mapping[str, Typespec]) -> TensorNodeRecord:
    """The node under the typespec that the program's table, which wins, has for its value."""
    spec = table.get(node.output_value_id)
    return node if spec is None or spec is node.output_typespec else replace(node, output_typespec=spec)
