"""Running expansion passes inside a compile: each result is held against what the pass was given.

A pass is any callable from an artifact to an artifact. It may add and rewrite; it may not rename, steal or lose what
the other artifacts of the step refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, copy_node
from tinychain.autodiff.types import is_sequence

ExpansionPass: TypeAlias = Callable[[Any], Any]
Artifact = TypeVar("Artifact", TensorGraph, DerivativeProgram)


@dataclass(frozen=True)
class PassSequence:
    """The passes of one kind of artifact, with their labels in order."""

    kind: str
    passes: tuple[ExpansionPass, ...]
    labels: tuple[str, ...]

    @classmethod
    def declared(cls, kind: str, passes: object) -> PassSequence:
        """Checks that `passes` is a sequence of callables: expansion_contract_violation."""
        if not is_sequence(passes):
            raise AutodiffError(
                "expansion_contract_violation",
                f"{kind}_expansions must be a sequence of passes, got {quote(passes)}",
            )
        for position, item in enumerate(passes):
            if not callable(item):
                raise AutodiffError(
                    "expansion_contract_violation",
                    f"position {position} of the {kind} expansion sequence holds {quote(item)}; expected a callable",
                )
        return cls(kind, tuple(passes), tuple(map(_label, passes)))

    def where(self, position: int) -> str:
        return f"expansion pass {self.labels[position]!r} at position {position} of the {self.kind} expansion sequence"


@dataclass(frozen=True)
class Obligations:
    """What every pass of a sequence must leave in place.

    `declared` are inputs of the graph, `available` values that it declares or produces, `seed` the value that a
    derivative program reads and nobody may produce.
    """

    declared: Collection[str] = ()
    available: Collection[str] = ()
    seed: str | None = None


def run_passes(artifact: Artifact, sequence: PassSequence, obligations: Obligations) -> Artifact:
    """The artifact after all passes; without a pass, the very same object. Each pass works on a copy.

    Raises expansion_contract_violation for a pass that raises another error than AutodiffError, returns another kind
    of artifact or a malformed one, or breaks an obligation; the message names the pass and its position.
    """
    for position, expansion in enumerate(sequence.passes):
        where = sequence.where(position)
        try:
            result = expansion(_copy(artifact))
        except AutodiffError:
            raise
        except Exception as error:
            raise _violation(where, f"raised {type(error).__name__}: {error}") from error
        if type(result) is not type(artifact):
            raise _violation(where, f"returned {quote(result)}; expected a {type(artifact).__name__}")
        _check_form(where, result)
        _check_kept(where, artifact, result)
        _check_obligations(where, obligations, artifact, result)
        artifact = result
    return artifact


def _label(expansion: ExpansionPass) -> str:
    name = getattr(expansion, "__qualname__", None)
    return name if isinstance(name, str) and name else type(expansion).__qualname__


def _copy(artifact: Artifact) -> Artifact:
    """The artifact with containers and records of its own."""
    fresh: dict[str, Any] = {"nodes": [copy_node(node) for node in artifact.nodes]}
    if isinstance(artifact, DerivativeProgram):
        fresh["gradients"] = dict(artifact.gradients)
        fresh["output_gradients"] = list(artifact.output_gradients)
        fresh["value_typespecs"] = dict(artifact.value_typespecs)
    return replace(artifact, **fresh)  # a graph copies its own containers


def _check_form(where: str, result: TensorGraph | DerivativeProgram) -> None:
    if not is_sequence(result.nodes):
        raise _violation(where, f"returned nodes that are {quote(result.nodes)}; expected a sequence of node records")
    for node in result.nodes:
        if not isinstance(node, TensorNodeRecord):
            raise _violation(where, f"returned the node {quote(node)}; expected a TensorNodeRecord")
        for id_ in (node.node_id, node.output_value_id, *node.input_value_ids):
            if not isinstance(id_, str):
                raise _violation(where, f"returned a node with the id {quote(id_)}; expected a str")
    declared: list[str] = []
    if isinstance(result, TensorGraph):
        for entry in result.inputs:
            if not isinstance(entry, (tuple, list)) or len(entry) != 2 or not isinstance(entry[0], str):
                raise _violation(
                    where, f"returned the input {quote(entry)}; expected a pair of a str id and a typespec"
                )
            declared.append(entry[0])
    else:
        if not is_sequence(result.output_gradients) or not all(isinstance(v, str) for v in result.output_gradients):
            raise _violation(
                where, f"returned the output_gradients {quote(result.output_gradients)}; expected a list of str ids"
            )
        for name in ("gradients", "value_typespecs"):
            if not isinstance(getattr(result, name), dict):
                raise _violation(where, f"returned {name} that are {quote(getattr(result, name))}; expected a dict")
    _check_unique(where, "node", [node.node_id for node in result.nodes])
    _check_unique(where, "value", [*declared, *[node.output_value_id for node in result.nodes]])


def _check_kept(where: str, given: TensorGraph | DerivativeProgram, result: TensorGraph | DerivativeProgram) -> None:
    """A node that stays under its id stays as it is, and a value keeps its role."""
    before = {node.node_id: node for node in given.nodes}
    for node in result.nodes:
        old = before.get(node.node_id)
        if old is not None and old is not node:
            for name in ("operator", "op_params", "input_value_ids", "output_value_id"):
                if getattr(old, name) != getattr(node, name):
                    raise _violation(
                        where,
                        f"changed {name} of node {quote(node.node_id)} from {quote(getattr(old, name))} to"
                        f" {quote(getattr(node, name))}; emit a node with a new id instead",
                    )
    produced_before, produced = _produced(given), _produced(result)
    for value_id in sorted(_declared(given) & produced):
        raise _violation(where, f"produces {quote(value_id)}, which was a declared input")
    for value_id in sorted(produced_before & _declared(result)):
        raise _violation(where, f"declares {quote(value_id)} as an input, which a node produced")


def _check_obligations(
    where: str, obligations: Obligations, given: TensorGraph | DerivativeProgram, result: Any
) -> None:
    declared, produced = _declared(result), _produced(result)
    _check_all(where, "no longer declares the input", obligations.declared, declared)
    _check_all(where, "no longer declares or produces", obligations.available, declared | produced)
    if not isinstance(given, DerivativeProgram):
        return
    if list(result.output_gradients) != list(given.output_gradients):
        raise _violation(
            where,
            f"changed output_gradients from {quote(given.output_gradients)} to {quote(result.output_gradients)}",
        )
    produced_before = _produced(given)
    _check_all(
        where,
        "no longer produces the gradient",
        [gradient for gradient in given.output_gradients if gradient in produced_before],
        produced,
    )
    seed = obligations.seed
    if seed in produced:
        raise _violation(where, f"produces the seed {quote(seed)}")
    if _mentions(given, seed) and not _mentions(result, seed):
        raise _violation(where, f"no longer reads the seed {quote(seed)}")


def _check_all(where: str, failure: str, wanted: Iterable[str], present: Collection[str]) -> None:
    for value_id in wanted:
        if value_id not in present:
            raise _violation(where, f"{failure} {quote(value_id)}")


def _check_unique(where: str, kind: str, ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for id_ in ids:
        if id_ in seen:
            raise _violation(where, f"returned the {kind} id {quote(id_)} twice")
        seen.add(id_)


def _declared(artifact: TensorGraph | DerivativeProgram) -> set[str]:
    return {value_id for value_id, _ in artifact.inputs} if isinstance(artifact, TensorGraph) else set()


def _produced(artifact: TensorGraph | DerivativeProgram) -> set[str]:
    return {node.output_value_id for node in artifact.nodes}


def _mentions(program: DerivativeProgram, value_id: str | None) -> bool:
    return value_id in program.output_gradients or any(value_id in node.input_value_ids for node in program.nodes)


def _violation(where: str, what: str) -> AutodiffError:
    return AutodiffError("expansion_contract_violation", f"{where} {what}")
