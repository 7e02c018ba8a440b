"""What the client and the server of a plan agree on: the parts of each message, and how long one may be."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from tinychain.autodiff.backends.ckks.circuit import Instruction, Kind
from tinychain.autodiff.backends.ckks.evaluator import ENCODE, ENCODE_NUMBER, InputKey, Measured, input_key
from tinychain.autodiff.backends.ckks.messages import Form, Message, MessageKind, Part, pack_numbers, unpack_numbers
from tinychain.autodiff.backends.ckks.plaintexts import plaintext_bytes
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.types import TensorType

#: The parts that are no tensor.
EVALUATION_KEYS: Final = Part(Form.KEYS, "evaluation keys")
FIGURES: Final = Part(Form.NUMBERS, "figures")
CATEGORY: Final = Part(Form.TEXT, "category")
TEXT: Final = Part(Form.TEXT, "text")

_TIMED: Final = (*map(str, Kind), ENCODE, ENCODE_NUMBER)


def check_plan(plan: object) -> None:
    """Raises TypeError for what is no plan."""
    if not isinstance(plan, TrainingPlan):
        raise TypeError(f"expected a TrainingPlan, got a {type(plan).__name__}")


def input_parts(plan: TrainingPlan) -> dict[MessageKind, dict[Part, InputKey]]:
    """The ciphertexts of a message with the data, and of one with what is trained. Their places are the circuit's."""
    parts: dict[MessageKind, dict[Part, InputKey]] = {MessageKind.DATA: {}, MessageKind.STEPS: {}}
    trained, seen = {*plan.parameter_names, *plan.state_names}, set()
    for place, instruction in enumerate(plan.circuit.instructions):
        key = input_key(instruction)
        if instruction.kind is Kind.INPUT and key not in seen:
            seen.add(key)
            kind = MessageKind.STEPS if key[0] in trained else MessageKind.DATA
            parts[kind][Part(Form.CIPHERTEXT, key[0], place)] = key
    return parts


def plain_parts(plan: TrainingPlan) -> dict[str, Part]:
    """The plain tensors of a request, by name: the server reads them."""
    return {name: Part(Form.NUMBERS, name) for name in plan.plain_inputs}


def output_parts(plan: TrainingPlan) -> dict[str, dict[int, Part]]:
    """The ciphertexts of a result, by name and block."""
    outputs = plan.circuit.outputs.items()
    return {name: {block: Part(Form.CIPHERTEXT, name, block) for block in output.blocks} for name, output in outputs}


def pack_figures(seconds: float, measured: Measured) -> bytes:
    """What a request took, in all and by kind of operation, as the contents of FIGURES."""
    by_kind = [measured.seconds.get(kind, 0.0) for kind in _TIMED]
    return pack_numbers(np.array([seconds, measured.peak_ciphertexts, measured.peak_bytes, *by_kind], np.float64))


def unpack_figures(message: Message) -> tuple[float, Measured]:
    """The inverse of `pack_figures`."""
    numbers = unpack_numbers(FIGURES.name, message.parts[FIGURES], (3 + len(_TIMED),)).tolist()
    seconds, ciphertexts, size, *by_kind = numbers
    timed = {kind: number for kind, number in zip(_TIMED, by_kind, strict=True) if number}
    return seconds, Measured(timed, int(ciphertexts), int(size))


def trained_types(plan: TrainingPlan) -> dict[str, TensorType]:
    """The types of the parameters by name, and of the states by `state_name`, also of those that no step reads."""
    positions = [plan.program.outputs[name] for name in (*plan.parameter_names, *plan.state_names)]
    types = [plan.program.operations[position].type for position in positions]
    return dict(zip((*plan.parameter_names, *plan.state_names), types, strict=True))


def most_bytes(plan: TrainingPlan) -> int:
    """A length that no message of the plan has, about twice that of the longest if nothing in it were compressed."""
    parameters, instructions = plan.parameters, plan.circuit.instructions
    key = 2 * 8 * parameters.ring_size * len(parameters.modulus_bits) * parameters.primes_at(0)
    sent = [i for i in instructions if i.kind is Kind.INPUT]
    back = [instructions[at] for output in plan.circuit.outputs.values() for at in output.blocks.values()]

    def of_ciphertexts(found: Sequence[Instruction]) -> int:
        return sum([i.size * plaintext_bytes(parameters, i.depth) for i in found])

    plain = 8 * sum([prod(plan.program.operations[plan.program.inputs[name]].shape) for name in plan.plain_inputs])
    keys = key * (1 + len(plan.circuit.rotations))
    return 2 * (max(keys, of_ciphertexts(sent), of_ciphertexts(back)) + plain) + 2**20
