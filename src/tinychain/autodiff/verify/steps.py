"""Do the programs of a compiled step compute what was traced and differentiated? Each pair of artifacts in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import transposed_name
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.reverse import joint_graph
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.training.twins import transposed_gradients, transposed_update, updated_value_ids
from tinychain.autodiff.verify.equivalence import verify_equivalent
from tinychain.autodiff.verify.records import EquivalenceResult


def verify_step(
    step: CompiledTrainingStep, other: CompiledTrainingStep | None = None, **options: Any
) -> dict[str, EquivalenceResult]:
    """The lowered artifacts of `other`, by default of `step` itself, against the source artifacts of `step`.

    By name: "loss"; "gradients", each program with its own forward graph; "gradient inputs", where there are any; and
    "update of NAME" for each parameter; "gradients with twins" and "update of NAME transposed" where `other` has twins,
    against the transposes of what `step` has. The options are those of `verify_equivalent`, which says what is raised;
    TypeError for what is no step.
    """
    rewritten = step if other is None else other
    for given in (step, rewritten):
        if not isinstance(given, CompiledTrainingStep):
            raise TypeError(f"expected one CompiledTrainingStep or two, got {quote(given)}")
    graphs = step.source_forward_graph, rewritten.lowered_forward_graph
    programs = step.source_derivative_program, rewritten.lowered_derivative_program
    pairs = {"loss": graphs, "gradients": _joined(programs, graphs)}
    if step.gradient_inputs is not None and rewritten.gradient_inputs is not None:
        pairs["gradient inputs"] = (step.gradient_inputs.source_graph, rewritten.gradient_inputs.lowered_graph)
    for record in step.parameters:
        update = rewritten.parameter(record.name).lowered_update_graph
        pairs[f"update of {record.name}"] = (record.source_update_graph, update)
    if rewritten.twins is not None:
        twins = {twin.name: twin for twin in rewritten.twins.parameters}
        having = [record for record in step.parameters if transposed_name(record.name) in twins]
        source = transposed_gradients(step.source_derivative_program, [record.value_id for record in having])
        pairs["gradients with twins"] = _joined((source, rewritten.twins.lowered_derivative_program), graphs)
        for record in having:
            twin = twins[transposed_name(record.name)]
            pairs[f"update of {twin.name}"] = (
                transposed_update(record.source_update_graph, updated_value_ids(record)),
                twin.lowered_update_graph,
            )
    return {name: _compared(name, before, after, options) for name, (before, after) in pairs.items()}


def _joined(
    programs: tuple[DerivativeProgram, DerivativeProgram], graphs: tuple[TensorGraph, TensorGraph]
) -> tuple[TensorGraph, TensorGraph]:
    """Each program with its forward graph.

    A rewritten program whose gradients are zeros whatever the seed is, as for a batch of no rows, does not read the
    seed; it is declared all the same, as inputs are matched.
    """
    before, after = [joint_graph(program, forward_graph=graph) for program, graph in zip(programs, graphs, strict=True)]
    declared = {*dict(graphs[0].inputs), *dict(after.inputs)}
    seeds = [(value_id, spec) for value_id, spec in before.inputs if value_id not in declared]
    return before, replace(after, inputs=[*after.inputs, *seeds])


def _compared(name: str, before: TensorGraph, after: TensorGraph, options: dict[str, Any]) -> EquivalenceResult:
    try:
        return verify_equivalent(before, after, **options)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{name}: {error.message}") from None
