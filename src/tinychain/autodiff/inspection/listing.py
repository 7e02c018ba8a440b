"""An artifact in words: what it is, its text, and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinychain.autodiff.inspection.label import id_label, printable
from tinychain.autodiff.inspection.parts import Artifact, Part, alike, parts
from tinychain.autodiff.inspection.totals import summarize
from tinychain.autodiff.text import format_text
from tinychain.autodiff.training import CompiledTrainingStep


def describe(artifact: Artifact, *, shape_bindings: Mapping[str, int] | None = None) -> str:
    """A listing of a graph, a derivative program or a compiled step, with its figures below.

    Programs are in the notation of `format_text`. A step's are given as lowered, with the names of inputs and outputs
    and what was rewritten above each; of updates that differ in nothing but shapes, the first.
    Raises as `summarize` does, and malformed_derivative_ir for what has no text form. Linear.
    """
    summary = summarize(artifact, shape_bindings=shape_bindings)
    programs = ["\n".join(_program(first, others)) for first, *others in alike(parts(artifact))]
    return "\n\n".join([*_header(artifact), *programs, str(summary)])


def _header(artifact: Artifact) -> Iterator[str]:
    if not isinstance(artifact, CompiledTrainingStep):
        return
    provenance = artifact.provenance
    ids = {name: id_label(value_id) for name, value_id in artifact.input_value_ids.items()}
    records = [record for pair in artifact.with_twins() for record in pair]
    gradients = [f"{record.name} -> {id_label(record.gradient_value_id)}" for record in records]
    passes = {
        "forward": provenance.forward_expansions,
        "derivative": provenance.derivative_expansions,
        "update": provenance.update_expansions,
    }
    lines = [
        f"training step of {', '.join(provenance.parameter_names)} by {printable(provenance.optimizer_label)}",
        f"  inputs      {', '.join([f'{name} = {value_id}' for name, value_id in ids.items()])}",
        f"  optimizer   {', '.join(provenance.optimizer_input_names) or 'no inputs'}",
        f"  loss        {id_label(artifact.loss_value_id)}",
        f"  captures    {', '.join(map(id_label, artifact.forward_capture_value_ids)) or 'none'}",
        f"  seed        {', '.join(map(id_label, artifact.seed_value_ids))} ({printable(provenance.seed_label)})",
        f"  gradients   {', '.join(gradients)}",
        *[f"  passes      {kind}: {', '.join(map(printable, labels))}" for kind, labels in passes.items() if labels],
    ]
    yield "\n".join(lines)


def _program(part: Part, others: Sequence[Part]) -> Iterator[str]:
    """A program, and the names and types of those that differ from it in nothing but shapes."""
    graph, names, output_names = part.drawn.graph, part.drawn.names, part.drawn.output_names
    if part.lowered is not None:
        yield _title(part)
    yield from [f"# alike but for shapes: {_title(other)} : {other.type}" for other in others]
    inputs = [f"{printable(names[id_])} = {id_label(id_)}" for id_, _ in graph.inputs if id_ in names]
    if inputs:
        yield f"# inputs: {', '.join(inputs)}"
    outputs = [f"{printable(name)} = {id_label(id_)}" for id_, name in output_names.items()]
    if outputs:
        yield f"# outputs: {', '.join(outputs)}"
    for region in part.regions:
        emitted = ", ".join(map(id_label, region.emitted_node_ids))
        yield f"# {region.label} became {emitted}, which ends in {id_label(region.terminal_value_id)}"
    yield format_text(part.drawn.artifact).rstrip("\n")


def _title(part: Part) -> str:
    used = f" (used {part.uses:,} times)" if part.uses > 1 else ""
    return f"{part.name}{used}"
