"""The side that computes: it has a plan, evaluation keys and ciphertexts, and nothing to decrypt them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TypeAlias

import numpy as np

from tinychain.autodiff.backends.ckks.evaluator import Evaluator, InputKey
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys
from tinychain.autodiff.backends.ckks.library import Ciphertext, from_bytes, to_bytes
from tinychain.autodiff.backends.ckks.messages import (
    SESSION_BYTES,
    Message,
    MessageKind,
    Part,
    check_parts,
    invalid,
    pack_message,
    unpack_message,
    unpack_numbers,
)
from tinychain.autodiff.backends.ckks.moduli import Moduli
from tinychain.autodiff.backends.ckks.plain import plain_values
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.session import (
    CATEGORY,
    EVALUATION_KEYS,
    FIGURES,
    TEXT,
    check_plan,
    input_parts,
    most_bytes,
    output_parts,
    pack_figures,
    plain_parts,
)
from tinychain.autodiff.backends.ckks.streams import Reader, Writer, answer
from tinychain.autodiff.errors import AutodiffError, quote

Parts: TypeAlias = dict[Part, bytes]
Ciphertexts: TypeAlias = Mapping[InputKey, Ciphertext]


@dataclass(frozen=True, eq=False)
class _State:
    """What a server has of its client. A message is answered with another state, or refused."""

    session: bytes
    moduli: Moduli
    evaluator: Evaluator
    number: int
    data: Ciphertexts | None = None


class Server:
    """Runs the steps of one plan for one client, whose keys come first, then its data, then its requests.

    Not for several threads at once. Raises TypeError for what is no plan.
    """

    def __init__(self, plan: TrainingPlan) -> None:
        check_plan(plan)
        self._plan = plan
        self._inputs, self._plain, self._outputs = input_parts(plan), plain_parts(plan), output_parts(plan)
        self._state: _State | None = None

    def __repr__(self) -> str:
        has = "no keys" if self._state is None else "keys" if self._state.data is None else "keys and data"
        return f"<Server of {', '.join(self._plan.parameter_names)} with {has}>"

    def handle(self, message: bytes) -> bytes:
        """The reply to a message. A refusal is one too, and leaves the server as it was. Else only a TypeError."""
        session, number = bytes(SESSION_BYTES), 0
        try:
            request = unpack_message(message, is_reply=False)
            session, number = request.session, request.number
            state, parts = self._answer(request)
        except AutodiffError as error:
            kind = MessageKind.REFUSAL
            parts = {CATEGORY: error.category.encode(), TEXT: error.message.encode("utf-8", "replace")}
        else:
            kind, self._state = request.kind, state
        return pack_message(Message(kind, True, session, self._plan.fingerprint, number, parts))

    def _answer(self, request: Message) -> tuple[_State, Parts]:
        if request.fingerprint != self._plan.fingerprint:
            raise invalid("the message is of another plan than the server's; both sides must make theirs alike")
        if request.kind is MessageKind.KEYS:
            return self._keys(request), {}
        state = self._state
        if state is None:
            raise _wrong_key("the server has no keys; send those of the session first")
        if request.session != state.session:
            raise invalid("the message is of another session than the keys that the server has")
        if request.number <= state.number:
            raise invalid(f"the message has number {request.number} and was there before: the last was {state.number}")
        state = replace(state, number=request.number)
        if request.kind is MessageKind.DATA:
            expected = self._inputs[MessageKind.DATA]
            check_parts(request, expected)
            return replace(state, data=_ciphertexts(state.moduli, request, expected)), {}
        if request.kind is MessageKind.STEPS:
            return state, self._steps(request, state)
        raise invalid("the message is a refusal, and a client has nothing to refuse")

    def _keys(self, request: Message) -> _State:
        if self._state is not None:
            whose = "these keys" if self._state.session == request.session else "the keys of another session"
            raise _wrong_key(f"the server has {whose} already; it takes keys once, so start another one")
        check_parts(request, [EVALUATION_KEYS])
        keys = EvaluationKeys.from_bytes(self._plan.parameters, request.parts[EVALUATION_KEYS])
        if keys.session != request.session:
            raise _wrong_key("the keys are of another session than their message")
        evaluator = Evaluator(keys, self._plan.circuit, self._plan.layout, self._plan.known)
        return _State(request.session, keys.moduli, evaluator, request.number)

    def _steps(self, request: Message, state: _State) -> Parts:
        began, program = perf_counter(), self._plan.program
        expected = self._inputs[MessageKind.STEPS]
        check_parts(request, [*expected, *self._plain.values()])
        if state.data is None:
            raise invalid("the server has no data; send them before the first request")
        trained = _ciphertexts(state.moduli, request, expected)
        plain = {}
        for name, part in self._plain.items():
            operation = program.operations[program.inputs[name]]
            plain[name] = unpack_numbers(name, request.parts[part], operation.shape)
        with np.errstate(all="ignore"):  # what is not finite is refused when it is encoded
            tensors = plain_values(program, plain)
        execution = state.evaluator.run({**state.data, **trained}, tensors)
        parts: Parts = {}
        for name, blocks in self._outputs.items():
            parts |= {part: to_bytes(execution.outputs[name][block]) for block, part in blocks.items()}
        parts[FIGURES] = pack_figures(perf_counter() - began, execution.measured)
        return parts


def serve(plan: TrainingPlan, reader: Reader, writer: Writer) -> None:
    """Serves one client over binary streams until it closes its side.

    Raises invalid_message where the connection breaks, or nobody can tell where the next message starts, and TypeError
    for what is no plan or no binary stream.
    """
    answer(Server(plan).handle, reader, writer, max_bytes=most_bytes(plan))


def _ciphertexts(moduli: Moduli, request: Message, expected: Mapping[Part, InputKey]) -> dict[InputKey, Ciphertext]:
    found = {}
    for part, key in expected.items():
        ciphertext = from_bytes("ciphertext", moduli.context, request.parts[part])
        moduli.check_fresh(ciphertext, key[2], f"block {key[1]} of {quote(key[0])}")
        found[key] = ciphertext
    return found


def _wrong_key(message: str) -> AutodiffError:
    return AutodiffError("invalid_encryption_key", message)
