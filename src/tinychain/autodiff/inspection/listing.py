"""An artifact in words: what it is, its text, and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinychain.autodiff.inspection.label import id_label, printable
from tinychain.autodiff.inspection.summary import summarize
from tinychain.autodiff.inspection.table import aligned, figures_table, notes, operators_table
from tinychain.autodiff.inspection.view import Artifact, Part, parts
from tinychain.autodiff.text import format_text
from tinychain.autodiff.training import CompiledTrainingStep


def describe(artifact: Artifact, *, shape_bindings: Mapping[str, int] | None = None) -> str:
    """A listing of a graph, a derivative program or a compiled step, with its figures below.

    Programs are in the notation of `format_text`; a step's are given as lowered, with what was rewritten above each.
    Raises as `summarize` does, and malformed_derivative_ir for what has no text form. Linear.
    """
    summary = summarize(artifact, shape_bindings=shape_bindings)
    blocks = [*_header(artifact), *["\n".join(_part(part)) for part in parts(artifact)]]
    blocks += [aligned(figures_table(summary)), aligned(operators_table(summary))]
    blocks.append("\n".join([f"note: {note}" for note in notes(summary)]))
    return "\n\n".join(blocks) + "\n"


def _header(artifact: Artifact) -> Iterator[str]:
    if not isinstance(artifact, CompiledTrainingStep):
        return
    provenance = artifact.provenance
    ids = {name: id_label(value_id) for name, value_id in artifact.input_value_ids.items()}
    gradients = [f"{record.name} -> {id_label(record.gradient_value_id)}" for record in artifact.parameters]
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


def _part(part: Part) -> Iterator[str]:
    if part.lowered is not None:
        yield f"{part.name}{f' (used {part.uses:,} times)' if part.uses > 1 else ''}"
    for region in part.regions:
        emitted = ", ".join(map(id_label, region.emitted_node_ids))
        yield f"# {region.label} became {emitted}, which ends in {id_label(region.terminal_value_id)}"
    yield format_text(part.drawn.artifact).rstrip("\n")
