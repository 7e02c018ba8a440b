"""The multiplicative depth of a program: how many levels of an encrypted machine it uses up, and which nodes cost them.

The caller says what is secret; the walk follows it from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinychain.autodiff.dependencies import distinct_ids
from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.depth_walk import PLAIN, Chain, DepthWalk, deepest_of
from tinychain.autodiff.expansion.target import Target
from tinychain.autodiff.expansion.transposing import dual_id
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import DerivativeProgram, Record, TensorGraph, TensorNodeRecord
from tinychain.autodiff.types import as_int


@dataclass(frozen=True)
class Depth(Record):
    """The levels that each output uses up, and `levels`, those of the deepest; what depends on no secret uses up none.

    `path` names the nodes that cost the deepest output its levels, first to last. An output has the depth None where it
    depends on a secret through an operation that is no polynomial, and `unknown` says of every such operation why.
    """

    levels: int | None
    outputs: Mapping[str, int | None]
    path: tuple[str, ...]
    unknown: tuple[str, ...]


def multiplicative_depth(
    artifact: TensorGraph | DerivativeProgram,
    *,
    secret: Collection[str] | Mapping[str, int] | None = None,
    target: Target | None = None,
    forward_graph: TensorGraph | None = None,
) -> Depth:
    """The depth of a graph or a derivative program. Iterative and linear.

    `secret` names those bound values that are secret, or maps them to the levels that they have used up already; None
    stands for all: the declared inputs, and what else is read and not computed, such as captures and seeds. With the
    `forward_graph` of a program, its inputs and the seeds are what is bound, and captures have the depth they have
    there. The dual of a secret is secret. What a level costs is in the target's `Limits` of the operator, or of `mul`
    where the target lacks it; without a target every product costs one.

    Raises TypeError for other arguments, ValueError for a `secret` that nobody binds or whose levels are no
    non-negative int, malformed_derivative_ir for a cycle, two producers of a value and a literal that is no number,
    invalid_selected_output for an output that is no id.
    """
    if target is not None and not isinstance(target, Target):
        raise TypeError(f"target must be a Target or None, got {quote(target)}")
    return depth_of(artifact, target, forward_graph, check_secret(secret, bound_values(artifact, forward_graph)))


def bound_values(artifact: TensorGraph | DerivativeProgram, forward_graph: TensorGraph | None) -> dict[str, None]:
    """What an artifact takes from outside, in order: what is declared or read, and not computed."""
    if isinstance(artifact, TensorGraph):
        check_graph(artifact, "artifact")
        return _free([value_id for value_id, _ in artifact.inputs], artifact.nodes, _outputs(artifact))
    if not isinstance(artifact, DerivativeProgram):
        raise TypeError(f"artifact must be a TensorGraph or a DerivativeProgram, got {quote(artifact)}")
    check_program(artifact, "artifact")
    read = _free([], artifact.nodes, _outputs(artifact))
    if forward_graph is None:
        return read
    check_graph(forward_graph, "forward_graph")
    captured = {node.output_value_id for node in forward_graph.nodes}
    declared = [value_id for value_id, _ in forward_graph.inputs]
    bound = _free(declared, forward_graph.nodes, ())
    return {**bound, **dict.fromkeys([value_id for value_id in read if value_id not in captured])}


def check_secret(secret: object, bound: Mapping[str, None]) -> dict[str, int]:
    """The levels that each secret value has used up; None stands for all that is bound, with none."""
    if secret is None:
        return dict.fromkeys(bound, 0)
    if isinstance(secret, (str, bytes)) or not isinstance(secret, Collection):
        raise TypeError(f"secret must be a collection of value ids, or map them to levels, got {quote(secret)}")
    named: dict[str, int] = {}
    for value_id in secret:
        if not isinstance(value_id, str):
            raise TypeError(f"secret must hold value ids, which are str, got {quote(value_id)}")
        if value_id not in bound and dual_id(value_id) not in bound:
            raise ValueError(f"secret has {quote(value_id)}, which nobody binds; bound are {quote(list(bound))}")
        given = secret[value_id] if isinstance(secret, Mapping) else 0
        levels = as_int(given)
        if levels is None or levels < 0:
            raise ValueError(f"secret maps {quote(value_id)} to {quote(given)}; expected a non-negative int of levels")
        named[value_id] = levels
    return named


def depth_of(
    artifact: TensorGraph | DerivativeProgram,
    target: Target | None,
    forward_graph: TensorGraph | None,
    secret: Mapping[str, int],
) -> Depth:
    """The depth of a checked artifact. `secret` may name values that it does not read."""
    walk = DepthWalk(target)
    values = {value_id: Chain(levels) for value_id, levels in secret.items()}
    outputs = _outputs(artifact)
    if forward_graph is not None and isinstance(artifact, DerivativeProgram):
        read = [operand for node in artifact.nodes for operand in node.input_value_ids]
        walk.run(forward_graph.nodes, [*read, *outputs], values)
    walk.run(artifact.nodes, outputs, values)
    chains = {value_id: values.get(value_id, PLAIN) for value_id in outputs}
    deepest = deepest_of(chains.values())
    return Depth(
        levels=deepest.levels,
        outputs={value_id: chain.levels for value_id, chain in chains.items()},
        path=tuple([node_id for _, node_id in deepest.path()]),
        unknown=tuple(walk.unknown),
    )


def _free(first: Iterable[str], nodes: Sequence[TensorNodeRecord], last: Iterable[str]) -> dict[str, None]:
    """The ids among those given and those read that no node produces."""
    produced = {node.output_value_id for node in nodes}
    read = [operand for node in nodes for operand in node.input_value_ids]
    return dict.fromkeys([value_id for value_id in (*first, *read, *last) if value_id not in produced])


def _outputs(artifact: TensorGraph | DerivativeProgram) -> list[str]:
    if isinstance(artifact, TensorGraph):
        return list(distinct_ids(artifact.outputs, "outputs"))
    gradients = artifact.output_gradients
    return list(distinct_ids([value_id for value_id in gradients if value_id is not None], "output_gradients"))
