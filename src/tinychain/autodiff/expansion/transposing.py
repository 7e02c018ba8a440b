"""Transposes on a machine that has none: pushed through the operators down to what is bound from outside.

(A B)^T = B^T A^T, and element by element nothing changes; so the transpose of a value is computed from the transposes
of the inputs, its duals, which whoever holds the inputs binds as well. Only the last two axes are swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import Decline, TensorNodeRecord
from tinychain.autodiff.operators import ReshapeOperator, TransposeOperator
from tinychain.autodiff.types import TensorType, Typespec, is_sequence, parse_type, spec_field, swapped, typespec

_SUFFIX: Final = ".mT"


def dual_id(value_id: str) -> str:
    """The id under which the transpose of an input is bound: that of the input with `.mT` after it."""
    return f"{value_id}{_SUFFIX}"


def dual_source(value_id: str) -> str | None:
    """The id of the input whose transpose is bound under this one; None for an id that is no dual."""
    return value_id.removesuffix(_SUFFIX) if value_id.endswith(_SUFFIX) else None


def transposed_name(name: str) -> str:
    """What the transpose of an input is called, if that has a name; no input is called so, as it has a space."""
    return f"{name} transposed"


def dual_spec(spec: Typespec | None) -> Typespec | None:
    """The typespec of a dual; None where the type is not known, and where the transpose is none or a reshape."""
    type_ = _dual_type(spec)
    return None if type_ is None else typespec(type_)


def is_swap(node: TensorNodeRecord) -> bool:
    """Whether a node swaps the last two axes of its operand and nothing else."""
    perm = node.op_params.get("perm")
    if not isinstance(node.operator, TransposeOperator) or not is_sequence(perm) or len(perm) < 2:
        return False
    return tuple(perm) == swapped(range(len(perm)))


class Duals:
    """The transposed inputs that a transpose may be computed from; `bound` are those that nothing declares yet.

    `specs` holds the typespecs of all values, and gets those of the bound ones; `produced` the values that are no
    inputs. Only `inputs` have duals, where they are given.
    """

    def __init__(
        self, specs: dict[str, Typespec | None], *, produced: Container[str], inputs: Container[str] | None
    ) -> None:
        self.bound: dict[str, Typespec] = {}
        self._specs = specs
        self._produced = produced
        self._inputs = inputs

    def of(self, value_id: str) -> str | Decline:
        """The id of an input's transpose, which is bound now if nobody declares it."""
        inputs = self._specs if self._inputs is None else self._inputs
        type_ = _dual_type(self._specs.get(value_id))
        source = dual_source(value_id)
        is_input = source in inputs and source not in self._produced
        if source is not None and is_input and type_ is not None and self._type(source) == type_:
            return source
        if type_ is None or value_id not in inputs:
            return Decline(f"it needs the transpose of {quote(value_id)}, which is no input")
        dual = dual_id(value_id)
        if dual not in self._specs:
            self._specs[dual] = self.bound[dual] = typespec(type_)
        if dual in self._produced or self._type(dual) != type_:
            return Decline(f"{quote(dual)}, the dual of {quote(value_id)}, is the id of another value")
        return dual

    def _type(self, value_id: str) -> TensorType | None:
        return _known_type(self._specs.get(value_id))


class _Wanted(NamedTuple):
    """A value, transposed or as it is."""

    value_id: str
    transposed: bool


class Transposer:
    """Emits transposes of values, each once; they are there for the taking, and what nobody takes is nowhere.

    `producers` holds the nodes to push through, down to what has duals; `readable` the values that may be read as they
    are, others are computed again; `specs` the typespecs of all values, and gets those of the latter; `refusal` says
    why the machine cannot run a node that was emitted, if so.
    """

    def __init__(
        self,
        emit: Emitter,
        *,
        producers: Mapping[str, TensorNodeRecord],
        readable: Container[str],
        specs: dict[str, Typespec | None],
        duals: Duals,
        refusal: Callable[[TensorNodeRecord], str | None],
    ) -> None:
        self._emit = emit
        self._producers = producers
        self._readable = readable
        self._specs = specs
        self.duals = duals
        self._refusal = refusal
        self._answers: dict[_Wanted, str | Decline] = {}
        self._waiting: dict[str, tuple[int, TensorNodeRecord]] = {}  # by value: emitted, and not yet taken

    def of(self, value_id: str) -> str | Decline:
        """The id of a value's transpose; `take` has the nodes that compute it.

        Raises expansion_contract_violation for an operator whose `transposed` breaks its promises, and
        malformed_derivative_ir for a cycle.
        """
        answers = self._answers
        pending = [_Wanted(value_id, True)]
        opened: set[_Wanted] = set()
        while pending:
            wanted = pending[-1]
            missing = [] if wanted in answers else [other for other in self._needed(wanted) if other not in answers]
            if not missing:
                if wanted not in answers:
                    answers[wanted] = self._judged(wanted)
                pending.pop()
            elif wanted in opened:
                raise AutodiffError(
                    "malformed_derivative_ir", f"cycle: value {quote(wanted.value_id)} depends on itself"
                )
            else:
                opened.add(wanted)
                pending += missing
        return answers[_Wanted(value_id, True)]

    def take(self, value_id: str) -> list[TensorNodeRecord]:
        """The nodes that compute an emitted value, in order, but for those that were taken before."""
        taken = []
        pending = [value_id]
        while pending:
            entry = self._waiting.pop(pending.pop(), None)
            if entry is not None:
                taken.append(entry)
                pending += entry[1].input_value_ids
        return [node for _, node in sorted(taken, key=lambda entry: entry[0])]

    def _needed(self, wanted: _Wanted) -> list[_Wanted]:
        """What comes first."""
        value_id, transposed = wanted
        node = self._producers.get(value_id)
        if not transposed:
            swap = node is not None and is_swap(node)
            return (
                [] if node is None or value_id in self._readable else [_Wanted(x, swap) for x in node.input_value_ids]
            )
        type_ = self._emit.type(value_id)
        if type_ is None:
            return []
        if _moves_nothing(type_):
            return [_Wanted(value_id, False)]
        if node is None:
            return []
        if isinstance(node.operator, TransposeOperator):
            return [_Wanted(x, False) for x in node.input_value_ids] if is_swap(node) else []
        return [_Wanted(operand, True) for operand in node.input_value_ids]

    def _judged(self, wanted: _Wanted) -> str | Decline:
        emitted = self._emit.nodes
        start = len(emitted)
        answer = self._push(wanted.value_id) if wanted.transposed else self._again(wanted.value_id)
        for position in range(start, len(emitted)):
            node = emitted[position]
            refusal = self._refusal(node)
            if refusal is not None:
                return Decline(f"it needs {node.operator.name}, and {refusal}")
            self._waiting[node.output_value_id] = position, node
        return answer

    def _again(self, value_id: str) -> str | Decline:
        """The value as it is, computed again where it may not be read."""
        if value_id in self._readable:
            return value_id
        node = self._producers.get(value_id)
        if node is None:
            return Decline(f"it needs {quote(value_id)}, which is no input and not captured")
        swap = is_swap(node)
        operands = [self._answers[_Wanted(operand, swap)] for operand in node.input_value_ids]
        given = [operand for operand in operands if isinstance(operand, str)]
        if len(given) < len(operands):
            return next(operand for operand in operands if isinstance(operand, Decline))
        if swap:
            return given[0]
        again = self._emit.repeat(node, given)
        self._specs[again] = node.output_typespec
        return again

    def _push(self, value_id: str) -> str | Decline:
        type_ = self._emit.type(value_id)
        if type_ is None:
            return Decline(f"the dtype and the shape of {quote(value_id)} are not known; give it a typespec")
        if _moves_nothing(type_):
            same = self._answers[_Wanted(value_id, False)]
            return same if isinstance(same, Decline) else self._as_column(same, type_)
        node = self._producers.get(value_id)
        if node is None:
            return self.duals.of(value_id)
        if isinstance(node.operator, TransposeOperator):
            return self._undo(node)
        operands = {}
        for operand in node.input_value_ids:
            answer = self._answers[_Wanted(operand, True)]
            if isinstance(answer, Decline):
                return answer
            operands[operand] = answer
        return self._ask(node, type_, operands)

    def _ask(self, node: TensorNodeRecord, type_: TensorType, operands: Mapping[str, str]) -> str | Decline:
        try:
            answer = node.operator.transposed(self._emit, node, operands.__getitem__)
        except Exception as error:
            raise _broken(node, f"raised {describe(error)}") from error
        if isinstance(answer, Decline):
            return answer
        found = self._emit.type(answer) if isinstance(answer, str) else None
        if found != _swapped(type_):
            got = quote(answer) if found is None else f"a {found}"
            raise _broken(node, f"returned {got}; expected a Decline or the id of a {_swapped(type_)}")
        return answer

    def _undo(self, node: TensorNodeRecord) -> str | Decline:
        """The transpose of a transpose is what it was made of."""
        (x,) = node.input_value_ids
        if not is_swap(node):
            return Decline(f"{quote(node.output_value_id)} is a transpose of other axes than the last two")
        return self._answers[_Wanted(x, False)]

    def _as_column(self, value_id: str, type_: TensorType) -> str:
        """The transpose of what has one row or column; a vector stands for a row, and a scalar has none."""
        shape = type_.shape
        if len(shape) > 1:
            return self._emit(ReshapeOperator, value_id, shape=list(swapped(shape)))
        return self._emit(ReshapeOperator, value_id, shape=[*shape, 1]) if shape else value_id


def _moves_nothing(type_: TensorType) -> bool:
    """Whether a transpose leaves the elements in their order."""
    return len(type_.shape) < 2 or 1 in type_.shape[-2:]


def _known_type(spec: Typespec | None) -> TensorType | None:
    if spec_field(spec, "shape") is None or spec_field(spec, "dtype") is None:
        return None
    return parse_type(spec, label="an input")


def _dual_type(spec: Typespec | None) -> TensorType | None:
    type_ = _known_type(spec)
    return type_ and (_swapped(type_) if len(type_.shape) > 1 and 1 not in type_.shape[-2:] else None)


def _swapped(type_: TensorType) -> TensorType:
    return type_._replace(shape=swapped(type_.shape))


def _broken(node: TensorNodeRecord, what: str) -> AutodiffError:
    return AutodiffError(
        "expansion_contract_violation", f"transposed of {node.operator.name}, node {quote(node.node_id)}, {what}"
    )
