"""Making any artifact fit a machine: every node that its outputs need is kept, rewritten exactly, or refused.

The conversion is full or there is none; a refusal has every reason, for every node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.conversion import Rewriting
from tinychain.autodiff.expansion.planner import Rules
from tinychain.autodiff.expansion.provenance import LegalizedRegion
from tinychain.autodiff.expansion.refusal import refused
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.expansion.transposing import dual_id, dual_source, dual_spec
from tinychain.autodiff.form import check_graph
from tinychain.autodiff.graph import DerivativeProgram, Record, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import TransposeOperator

Artifact = TypeVar("Artifact", TensorGraph, DerivativeProgram)


@dataclass(frozen=True)
class Legalization(Record, Generic[Artifact]):
    """The artifact that fits, what was rewritten, in artifact order, and the duals that it reads and that were new."""

    artifact: Artifact
    regions: tuple[LegalizedRegion, ...]
    duals: tuple[str, ...] = ()


def legalize(
    artifact: Artifact,
    target: Target,
    *,
    rules: Rules | None = None,
    duals: bool = True,
    forward_graph: TensorGraph | None = None,
    reserved_id_prefix: str | None = None,
) -> Artifact:
    """`legalize_detailed` without the regions."""
    rewriting = Rewriting(
        artifact, target, rules=rules, duals=duals, forward_graph=forward_graph, prefix=reserved_id_prefix
    )
    return _legalized(artifact, target, rewriting)


def legalize_detailed(
    artifact: Artifact,
    target: Target,
    *,
    rules: Rules | None = None,
    duals: bool = True,
    forward_graph: TensorGraph | None = None,
    reserved_id_prefix: str | None = None,
) -> Legalization[Artifact]:
    """A graph or a derivative program whose every needed node fits the target, computing exactly the same function.

    `rules` are more rewrites, by operator class, beside those that the classes have; the cheapest by the target's costs
    wins. Nodes that no output needs stay as they are. New ids start with the prefix, "lg" for a graph and "lp" for a
    program unless it is given, and are none that the artifact or the forward graph mentions. A constant is emitted once
    for all. With nothing to rewrite the artifact itself is returned; it is never changed.

    A swap of the last two axes that the target lacks is computed from transposed inputs, its duals, which a graph then
    declares beside them (`dual_id` names them); `duals=False` forbids it. Rules are asked where that is impossible, or
    where they cost nothing. For a derivative program `forward_graph` is the legal forward graph: what the program
    captures is then computed again, transposed, from the duals of the graph's inputs, which the graph has to declare,
    see `declare_duals`. Without it, every value that the program does not produce has a dual, for the caller to bind.

    Raises not_legalizable with every node that does not fit and every reason; expansion_contract_violation for a rule
    that breaks its promises; malformed_derivative_ir and the categories of the type rules for a malformed artifact and
    a bad prefix; TypeError for other arguments.
    """
    rewriting = Rewriting(
        artifact, target, rules=rules, duals=duals, forward_graph=forward_graph, prefix=reserved_id_prefix
    )
    legal = _legalized(artifact, target, rewriting)
    return Legalization(legal, rewriting.regions, tuple(rewriting.duals))


def _legalized(artifact: Artifact, target: Target, rewriting: Rewriting) -> Artifact:
    nodes = rewriting.run()
    if rewriting.problems:
        raise refused(target, rewriting.problems)
    return rewritten(artifact, nodes, rewriting)


def rewritten(artifact: Artifact, nodes: list[TensorNodeRecord], rewriting: Rewriting) -> Artifact:
    """The artifact with these nodes of the rewriting, and with what else they read declared; itself if none is new."""
    if not rewriting.changes:
        return artifact
    changes: dict[str, Any] = {"nodes": nodes}
    if isinstance(artifact, TensorGraph):
        changes["inputs"] = [*artifact.inputs, *rewriting.declared.items()]
    else:
        changes["value_typespecs"] = {**artifact.value_typespecs, **rewriting.declared}
    return replace(artifact, **changes)


@dataclass(frozen=True)
class Legalize:
    """`legalize` as a pass, for each of the three sequences of `compile_training_step`; its fields are the options.

    The forward pass declares the duals of all inputs, for the derivative pass to read. `forward_graph` is as for
    `legalize`, and `source_graph` the same before it was made legal, through which transposes are pushed rather.
    """

    target: Target
    rules: Rules | None = None
    duals: bool = True
    forward_graph: TensorGraph | None = None
    source_graph: TensorGraph | None = None
    reserved_id_prefix: str | None = None

    #: What a program captured to be transposed is computed again from duals, so it may capture less.
    recomputes_captures: ClassVar[bool] = True

    def for_forward_graph(self, lowered: TensorGraph, source: TensorGraph) -> Legalize:
        """The pass for the derivative program of a forward graph, given after and before it was lowered."""
        return replace(self, forward_graph=lowered, source_graph=source)

    def __call__(self, artifact: Artifact) -> Artifact:
        rewriting = Rewriting(
            artifact,
            self.target,
            rules=self.rules,
            duals=self.duals,
            forward_graph=self.forward_graph,
            source_graph=self.source_graph,
            prefix=self.reserved_id_prefix,
        )
        legal = _legalized(artifact, self.target, rewriting)
        if self.forward_graph is not None and rewriting.duals:
            raise AutodiffError(
                "not_legalizable",
                f"the gradients for the target {quote(self.target.name)} read the transposed inputs"
                f" {', '.join(map(quote, rewriting.duals))}, which the forward graph does not declare; let the same"
                " pass legalize it too, or see declare_duals",
            )
        transposes_all = self.target.operators.get(TransposeOperator) == Limits()
        if isinstance(legal, DerivativeProgram) or not self.duals or transposes_all:
            return legal
        return declare_duals(legal)


def declare_duals(graph: TensorGraph) -> TensorGraph:
    """The graph with the transpose of every matrix input declared beside it; the graph itself where none is missing.

    Raises as `check_graph` does, and missing_*_metadata for an input with a malformed typespec.
    """
    check_graph(graph, "graph")
    declared = {value_id for value_id, _ in graph.inputs}
    taken = declared.union([node.output_value_id for node in graph.nodes])
    duals = [
        (dual_id(value_id), spec)
        for value_id, spec in [(value_id, dual_spec(spec)) for value_id, spec in graph.inputs]
        if spec is not None and dual_source(value_id) not in declared and dual_id(value_id) not in taken
    ]
    return replace(graph, inputs=[*graph.inputs, *duals]) if duals else graph
