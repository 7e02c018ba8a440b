"""What legalization would make of an artifact, operation by operation, and what stands in its way: all of it at once.

Nothing is rewritten for the caller; the figures and the depth of what would come out stand beside those of what is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.conversion import Rewriting
from tinychain.autodiff.expansion.depth import bound_values, check_secret, depth_of
from tinychain.autodiff.expansion.legalize import Artifact, rewritten
from tinychain.autodiff.expansion.planner import Rules
from tinychain.autodiff.expansion.target import Target
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.inspection.explanation import (
    IMPOSSIBLE,
    LEGAL,
    REWRITTEN,
    ExplainedOperation,
    Explanation,
    Obstacle,
    ProgramCost,
)
from tinychain.autodiff.inspection.figures import measure, ranked
from tinychain.autodiff.inspection.label import operator_label
from tinychain.autodiff.inspection.parts import parts
from tinychain.autodiff.tracing import SourceLine
from tinychain.autodiff.types import as_int, is_sequence, parse_bindings


def explain(
    artifact: Artifact,
    target: Target,
    *,
    rules: Rules | None = None,
    duals: bool = True,
    forward_graph: TensorGraph | None = None,
    secret: Collection[str] | Mapping[str, int] | None = None,
    lines: Mapping[str, SourceLine] | None = None,
    shape_bindings: Mapping[str, int] | None = None,
) -> Explanation:
    """What `legalize` with the same options would do to a graph or a derivative program, and why where it would refuse.

    `secret` says what depth follows, as in `multiplicative_depth`; `lines` are the `source_lines` of the builder that
    traced the artifact; `shape_bindings` size symbols for the figures, not for the rules. Linear.

    Raises TypeError or ValueError for bad options and another artifact, expansion_contract_violation for a rule that
    breaks its promises, and what `summarize` and `multiplicative_depth` raise for an artifact that could not be run.
    """
    symbols = parse_bindings(shape_bindings)
    known_lines = _check_lines(lines)
    if not isinstance(target, Target):
        raise TypeError(f"target must be a Target, got {quote(target)}")
    if not isinstance(duals, bool):
        raise TypeError(f"duals must be a bool, got {quote(duals)}")
    named = check_secret(secret, bound_values(artifact, forward_graph))
    before = _cost(artifact, target, forward_graph, named, symbols)

    rewriting = Rewriting(artifact, target, rules=rules, duals=duals, forward_graph=forward_graph)
    nodes = rewriting.run()
    after = None
    if not rewriting.problems:
        after = _cost(rewritten(artifact, nodes, rewriting), target, forward_graph, named, symbols)
    return Explanation(
        artifact=type(artifact).__name__,
        target=target.name,
        operations=tuple(_operations(artifact.nodes, rewriting, nodes, known_lines)),
        duals=tuple(rewriting.duals),
        before=before,
        after=after,
    )


def _operations(
    source: Sequence[TensorNodeRecord],
    rewriting: Rewriting,
    nodes: Sequence[TensorNodeRecord],
    lines: Mapping[str, SourceLine],
) -> list[ExplainedOperation]:
    regions = {region.source_node_ids[0]: region for region in rewriting.regions}
    problems = {problem.node.node_id: problem.reason for problem in rewriting.problems}
    labels = {node.node_id: operator_label(node.operator) for node in nodes}
    found = []
    for node in source:
        if node.output_value_id not in rewriting.needed:
            continue
        node_id, name, line = node.node_id, operator_label(node.operator), lines.get(node.node_id)
        if node_id in problems:
            refusal, objections = problems[node_id]
            obstacles = (Obstacle(None, refusal), *[Obstacle(item.rule, item.reason) for item in objections])
            found.append(ExplainedOperation(node_id, name, IMPOSSIBLE, obstacles=obstacles, line=line))
        elif node_id in regions:
            region = regions[node_id]
            emitted = ranked(Counter([labels[id_] for id_ in region.emitted_node_ids]))
            found.append(ExplainedOperation(node_id, name, REWRITTEN, region.rules, emitted, line=line))
        else:
            found.append(ExplainedOperation(node_id, name, LEGAL, line=line))
    return found


def _cost(
    artifact: TensorGraph | DerivativeProgram,
    target: Target,
    forward_graph: TensorGraph | None,
    secret: Mapping[str, int],
    symbols: Mapping[str, int],
) -> ProgramCost:
    (part,) = parts(artifact)
    return ProgramCost(measure(part.source, symbols).figures, depth_of(artifact, target, forward_graph, secret))


def _check_lines(lines: object) -> dict[str, SourceLine]:
    """The lines by node id; TypeError for what does not map ids to pairs of a file and a line."""
    if lines is None:
        return {}
    if not isinstance(lines, Mapping):
        raise TypeError(f"lines must map node ids to (file, line) pairs, got {quote(lines)}")
    found = {}
    for node_id, entry in lines.items():
        number = as_int(entry[1]) if is_sequence(entry) and len(entry) == 2 else None
        if number is None or not isinstance(entry[0], str):
            raise TypeError(f"lines maps {quote(node_id)} to {quote(entry)}; expected a (file, line) pair")
        found[node_id] = SourceLine(entry[0], number)
    return found
