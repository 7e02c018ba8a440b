"""The side that knows: it makes the keys, encrypts data and parameters, and decrypts what comes back.

Decrypting and encrypting again is what refreshes the parameters, every so many steps as the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tinychain.autodiff.arrays import DTYPES
from tinychain.autodiff.backends.ckks.evaluator import Measured
from tinychain.autodiff.backends.ckks.given import Array, check_inputs, check_range, filled, named
from tinychain.autodiff.backends.ckks.keys import SecretKeys
from tinychain.autodiff.backends.ckks.messages import (
    Message,
    MessageKind,
    Part,
    check_parts,
    invalid,
    pack_message,
    pack_numbers,
    unpack_message,
)
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
    plain_parts,
    trained_types,
    unpack_figures,
)
from tinychain.autodiff.backends.ckks.streams import Reader, Writer, ask
from tinychain.autodiff.errors import AUTODIFF_ERROR_CATEGORIES, AutodiffError, quote

_LONGEST_TEXT: Final = 4096


@dataclass(frozen=True, eq=False)
class Result:
    """What a request came to: parameters by name, states by `state_name`, and the loss if it is planned, decrypted.

    The loss is that before the last of the request's steps. `seconds` and `measured` are what the server says it took.
    """

    trained: Mapping[str, Array] = field(repr=False)
    loss: float | None = field(repr=False)
    seconds: float
    measured: Measured


class Client:
    """One session: its secret keys, which stay here, and the messages to and from the server of an equal plan.

    Messages are to be sent in the order in which they were made, but for the keys, which come first. Of a kind only the
    reply to the last message is taken, so that one that comes late is not mistaken for it. Nothing that is secret is in
    the text of an error or in a repr. Raises TypeError for what is no plan.
    """

    def __init__(self, plan: TrainingPlan) -> None:
        check_plan(plan)
        self._plan = plan
        self._keys = SecretKeys.generate(plan.parameters, plan.circuit.rotations)
        self._inputs, self._plain, self._outputs = input_parts(plan), plain_parts(plan), output_parts(plan)
        self._trained = trained_types(plan)
        self._number = 0
        self._awaited: dict[int, MessageKind] = {}

    def __repr__(self) -> str:
        return f"<Client of {', '.join(self._plan.parameter_names)}>"

    def keys(self) -> bytes:
        """The message with the evaluation keys, which is number 0."""
        return self._message(0, MessageKind.KEYS, {EVALUATION_KEYS: self._keys.evaluation_keys})

    def data(self, inputs: Mapping[str, Any]) -> bytes:
        """The message with the encrypted data: the secret inputs that are not trained, for all requests to come.

        Raises invalid_training_data for what is not of the planned type, or not finite, and value_out_of_range.
        """
        types = {name: self._plan.types[name] for name in self._plan.secret_inputs if name not in self._trained}
        arrays = check_inputs("the data", inputs, types, self._plan.ranges)
        return self._next(MessageKind.DATA, self._encrypted(MessageKind.DATA, arrays))

    def request(self, trained: Mapping[str, Any], plain: Mapping[str, Any] | None = None) -> bytes:
        """The message that asks for the steps between two refreshes, from these parameters and states.

        `plain` has the plain inputs, numbers or arrays, which the server reads. Raises as `data` does.
        """
        arrays = check_inputs("what is trained", trained, self._trained, self._plan.ranges)
        parts, of = self._encrypted(MessageKind.STEPS, arrays), "the plain inputs"
        given = named(of, {} if plain is None else plain, self._plain)
        for name, part in self._plain.items():
            array = filled(of, name, given[name], self._plan.types[name])
            check_range(f"{quote(name)} of {of}", array, self._plan.ranges.get(name))
            parts[part] = pack_numbers(array)
        return self._next(MessageKind.STEPS, parts)

    def accept(self, reply: bytes) -> None:
        """Reads the reply to keys or data. Raises as `result` does, but for value_out_of_range."""
        check_parts(self._reply(reply, (MessageKind.KEYS, MessageKind.DATA)), [])

    def result(self, reply: bytes) -> Result:
        """Decrypts the reply to a request.

        Raises what the server has refused with; invalid_message for a reply that is damaged, was there before or
        belongs to another request, session or plan; and value_out_of_range for what left its declared range.
        """
        message = self._reply(reply, (MessageKind.STEPS,))
        check_parts(message, [FIGURES, *[part for blocks in self._outputs.values() for part in blocks.values()]])
        arrays = {name: self._decrypted(name, message) for name in self._outputs}
        seconds, measured = unpack_figures(message)
        loss = arrays.pop("loss").item() if self._plan.loss else None
        for name, array in arrays.items():
            check_range(f"{quote(name)}, as decrypted", array, self._plan.ranges.get(name))
        return Result(arrays, loss, seconds, measured)

    # -------------------------------------------------------------------------------------------------------- contents

    def _encrypted(self, kind: MessageKind, arrays: Mapping[str, Array]) -> dict[Part, bytes]:
        parts = {}
        for part, (name, block, depth, number) in self._inputs[kind].items():
            array = arrays[name].astype(np.float64)
            slots = self._plan.layout.pack(array, self._plan.secret_inputs[name], block)
            parts[part] = self._keys.encrypt(slots * number, depth)
        return parts

    def _decrypted(self, name: str, message: Message) -> Array:
        output = self._plan.circuit.outputs[name]
        blocks = {
            block: self._keys.decrypt(message.parts[part]) * output.factor
            for block, part in self._outputs[name].items()
        }
        array = self._plan.layout.unpack(blocks, output.axes, output.owned)
        return array.astype(DTYPES[self._trained[name].dtype]) if name in self._trained else array

    # -------------------------------------------------------------------------------------------------------- messages

    def _next(self, kind: MessageKind, parts: Mapping[Part, bytes]) -> bytes:
        self._number += 1
        return self._message(self._number, kind, parts)

    def _message(self, number: int, kind: MessageKind, parts: Mapping[Part, bytes]) -> bytes:
        self._awaited = {before: other for before, other in self._awaited.items() if other is not kind} | {number: kind}
        return pack_message(Message(kind, False, self._keys.session, self._plan.fingerprint, number, parts))

    def _reply(self, reply: bytes, kinds: Collection[MessageKind]) -> Message:
        message = unpack_message(reply, is_reply=True)
        if message.kind is MessageKind.REFUSAL:
            raise _refusal(message)
        if (message.session, message.fingerprint) != (self._keys.session, self._plan.fingerprint):
            raise invalid("the reply is of another session or plan than the client's")
        if message.kind not in kinds or self._awaited.get(message.number) is not message.kind:
            what = f"{message.kind.name.lower()} with number {message.number}"
            raise invalid(f"the reply is about {what}, and none is awaited for that here; a reply counts once")
        del self._awaited[message.number]
        return message


def connect(plan: TrainingPlan, reader: Reader, writer: Writer) -> Callable[[bytes], bytes]:
    """The function that sends a message to a server over binary streams and returns its reply.

    It raises invalid_message where the connection breaks. Raises TypeError for what is no plan or no binary stream.
    """
    check_plan(plan)
    return ask(reader, writer, max_bytes=most_bytes(plan))


def _refusal(message: Message) -> AutodiffError:
    """What a server has refused with. Its text is cut and made printable, as the server is not trusted."""
    check_parts(message, [CATEGORY, TEXT])
    category, text = [
        bytes(message.parts[part][:_LONGEST_TEXT]).decode("utf-8", "replace") for part in (CATEGORY, TEXT)
    ]
    known = category if category in AUTODIFF_ERROR_CATEGORIES else "invalid_message"
    return AutodiffError(known, f"the server refused: {text if text.isprintable() else quote(text)}")
