"""Running expansion passes inside a compile: each result is held against what the pass was given.

A pass is any callable from an artifact to an artifact. It may add and rewrite; it may not rename, steal or lose what
the other artifacts of the step refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias, TypeVar

from tinychain.autodiff.errors import AutodiffError, describe, qualified_name, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, copy_node, copy_spec
from tinychain.autodiff.types import is_sequence
from tinychain.autodiff.walks import first_duplicate

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
        sequence = cls(kind, tuple(passes), tuple(map(qualified_name, passes)))
        for position, item in enumerate(sequence.passes):
            if not callable(item):
                raise _violation(sequence.where(position), f"is no callable: {quote(item)}")
        return sequence

    def for_forward_graph(self, lowered: TensorGraph, source: TensorGraph) -> PassSequence:
        """The passes over a derivative program; one with a method of this name is asked for itself with the graphs."""
        asked = []
        for position, item in enumerate(self.passes):
            ask = getattr(item, "for_forward_graph", None)
            try:
                asked.append(item if ask is None else ask(lowered, source))
            except Exception as error:
                raise _violation(self.where(position), f"raised {describe(error)} for the forward graph") from error
        return replace(self, passes=tuple(asked))

    @property
    def recomputes_captures(self) -> bool:
        """Whether a pass says of itself that what it no longer captures is computed again."""
        return any(getattr(item, "recomputes_captures", None) is True for item in self.passes)

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
            result: Any = expansion(_copy(artifact))
        except AutodiffError:
            raise
        except Exception as error:
            raise _violation(where, f"raised {describe(error)}") from error
        kind: Any = TensorGraph if isinstance(artifact, TensorGraph) else DerivativeProgram
        if not isinstance(result, kind):
            raise _violation(where, f"returned a {type(result).__name__}: {quote(result)}; expected a {kind.__name__}")
        try:
            _check_form(where, result)
            _check_kept(where, artifact, result)
            _check_obligations(where, obligations, artifact, result)
        except AutodiffError:
            raise
        except Exception as error:  # such as a record that lacks a field, or a param without a truth value
            raise _violation(where, f"returned an artifact that cannot be judged: {describe(error)}") from error
        artifact = result
    return artifact


def is_unchanged(result: TensorGraph | DerivativeProgram, artifact: TensorGraph | DerivativeProgram) -> bool:
    """Whether the passes have left an artifact as it was."""
    if result is artifact:
        return True
    try:
        return bool(result == artifact)
    except Exception:  # a pass has added data without a truth value, such as an array
        return False


def _copy(artifact: TensorGraph | DerivativeProgram) -> TensorGraph | DerivativeProgram:
    """An artifact that a pass may spoil without reaching this one; typespecs that values share stay shared."""
    copies: dict[int, Any] = {}

    def copy(spec: Any) -> Any:
        if id(spec) not in copies:
            copies[id(spec)] = copy_spec(spec)
        return copies[id(spec)]

    nodes = [copy_node(node, copy) for node in artifact.nodes]
    if isinstance(artifact, TensorGraph):
        return replace(artifact, nodes=nodes, inputs=[(value_id, copy(spec)) for value_id, spec in artifact.inputs])
    return replace(
        artifact,
        nodes=nodes,
        gradients=dict(artifact.gradients),
        output_gradients=list(artifact.output_gradients),
        value_typespecs={value_id: copy(spec) for value_id, spec in artifact.value_typespecs.items()},
    )


def _check_form(where: str, result: TensorGraph | DerivativeProgram) -> None:
    if not is_sequence(result.nodes):
        raise _violation(where, f"returned the nodes {quote(result.nodes)}; expected a sequence of node records")
    for node in result.nodes:
        if not isinstance(node, TensorNodeRecord):
            raise _violation(where, f"returned the node {quote(node)}; expected a TensorNodeRecord")
        if not isinstance(node.op_params, Mapping) or not is_sequence(node.input_value_ids):
            raise _violation(
                where,
                f"returned node {quote(node.node_id)} with the op_params {quote(node.op_params)} and the"
                f" input_value_ids {quote(node.input_value_ids)}; expected a mapping and a list",
            )
        for id_ in (node.node_id, node.output_value_id, *node.input_value_ids):
            if not isinstance(id_, str):
                raise _violation(where, f"returned a node with the id {quote(id_)}; expected a str")
    declared: list[str] = []
    if isinstance(result, TensorGraph):
        for entry in result.inputs:
            if not is_sequence(entry) or len(entry) != 2 or not isinstance(entry[0], str):
                raise _violation(
                    where, f"returned the input {quote(entry)}; expected a pair of a str id and a typespec"
                )
            declared.append(entry[0])
        _check_ids(where, "outputs", result.outputs)
    else:
        _check_ids(where, "output_gradients", result.output_gradients)
        for name in ("gradients", "value_typespecs"):
            if not isinstance(getattr(result, name), Mapping):
                raise _violation(where, f"returned the {name} {quote(getattr(result, name))}; expected a mapping")
    _check_unique(where, "node", [node.node_id for node in result.nodes])
    _check_unique(where, "value", [*declared, *[node.output_value_id for node in result.nodes]])


def _check_ids(where: str, name: str, ids: object) -> None:
    if not is_sequence(ids):
        raise _violation(where, f"returned the {name} {quote(ids)}; expected a list of str ids")
    for value_id in ids:
        if not isinstance(value_id, str):
            raise _violation(where, f"returned {name} with the id {quote(value_id)}; expected a str")


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
        _refuse_change(where, "output_gradients", given, result)
    if dict(result.gradients) != dict(given.gradients):
        _refuse_change(where, "gradients", given, result)
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


def _refuse_change(where: str, name: str, given: DerivativeProgram, result: DerivativeProgram) -> NoReturn:
    raise _violation(
        where,
        f"changed {name} from {quote(getattr(given, name))} to {quote(getattr(result, name))}; let the node that"
        " replaces a gradient's producer carry its id",
    )


def _check_all(where: str, failure: str, wanted: Iterable[str], present: Collection[str]) -> None:
    for value_id in wanted:
        if value_id not in present:
            raise _violation(where, f"{failure} {quote(value_id)}")


def _check_unique(where: str, kind: str, ids: Sequence[str]) -> None:
    duplicate = first_duplicate(ids)
    if duplicate is not None:
        raise _violation(where, f"returned the {kind} id {quote(duplicate)} twice")


def _declared(artifact: TensorGraph | DerivativeProgram) -> set[str]:
    return {value_id for value_id, _ in artifact.inputs} if isinstance(artifact, TensorGraph) else set()


def _produced(artifact: TensorGraph | DerivativeProgram) -> set[str]:
    return {node.output_value_id for node in artifact.nodes}


def _mentions(program: DerivativeProgram, value_id: str | None) -> bool:
    return value_id in program.output_gradients or any(value_id in node.input_value_ids for node in program.nodes)


def _violation(where: str, what: str) -> AutodiffError:
    return AutodiffError("expansion_contract_violation", f"{where} {what}")
