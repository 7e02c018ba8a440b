"""Circuits by hand, each value beside the slots that it should have, and sessions that run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind, Output, Plain
from tinychain.autodiff.backends.ckks.evaluator import Evaluator, Execution, InputKey, input_key
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys, SecretKeys
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.library import Ciphertext, from_bytes, to_bytes
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.ranges import Interval

Slots = NDArray[Any]

#: Small and insecure: what a test needs of depth and precision in as little time as possible.
SMALL = Parameters(2048, 40, (50,), 4, 60, secure=False)

#: The steps that the keys of `session` rotate by.
ROTATIONS = (1, -1, 2, 4, 256, 512)


def layout_of(parameters: Parameters) -> Layout:
    """One index, 0, that has all slots."""
    return Layout(parameters.slot_bits, {0: tuple(range(parameters.slot_bits))}, {0: 1 << parameters.slot_bits})


class Building:
    """Emits instructions; every method returns a position, and `slots` has what each value should be."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.slots: list[Slots] = []
        self.inputs: dict[InputKey, Slots] = {}
        self.tensors: dict[int, Slots] = {}
        self.outputs: dict[str, Output] = {}

    @property
    def circuit(self) -> Circuit:
        return Circuit(tuple(self.instructions), self.outputs)

    @property
    def intervals(self) -> Sequence[Interval]:
        """Of the plain tensors, by position."""
        return [Interval(float(np.min(tensor)), float(np.max(tensor))) for tensor in self.tensors.values()]

    def input(self, name: str, slots: Slots, depth: int = 0, number: float = 1.0) -> int:
        at = self._emit(Kind.INPUT, (), slots * number, depth, source=(name, 0), number=number)
        self.inputs[input_key(self.instructions[at])] = slots * number
        return at

    def add(self, x: int, y: int) -> int:
        return self._emit(Kind.ADD, (x, y), self.slots[x] + self.slots[y])

    def sub(self, x: int, y: int) -> int:
        return self._emit(Kind.SUB, (x, y), self.slots[x] - self.slots[y])

    def negate(self, x: int) -> int:
        return self._emit(Kind.NEGATE, (x,), -self.slots[x])

    def multiply(self, x: int, y: int) -> int:
        return self._emit(Kind.MULTIPLY, (x, y), self.slots[x] * self.slots[y], pending=True, size=3)

    def square(self, x: int) -> int:
        return self._emit(Kind.SQUARE, (x,), self.slots[x] ** 2, pending=True, size=3)

    def add_plain(self, x: int, slots: Slots, factor: float = 1.0) -> int:
        return self._emit(Kind.ADD_PLAIN, (x,), self.slots[x] + factor * slots, plain=self._plain(slots, factor))

    def multiply_plain(self, x: int, slots: Slots, factor: float = 1.0) -> int:
        plain = self._plain(slots, factor)
        return self._emit(Kind.MULTIPLY_PLAIN, (x,), self.slots[x] * factor * slots, pending=True, plain=plain)

    def multiply_number(self, x: int, number: float) -> int:
        return self._emit(Kind.MULTIPLY_NUMBER, (x,), self.slots[x] * number, pending=True, number=number)

    def relinearize(self, x: int) -> int:
        return self._emit(Kind.RELINEARIZE, (x,), self.slots[x], size=2)

    def rescale(self, x: int) -> int:
        return self._emit(Kind.RESCALE, (x,), self.slots[x], self.instructions[x].depth + 1, pending=False)

    def switch(self, x: int, depth: int) -> int:
        return self._emit(Kind.SWITCH, (x,), self.slots[x], depth)

    def rotate(self, x: int, steps: int) -> int:
        return self._emit(Kind.ROTATE, (x,), np.roll(self.slots[x], -steps), steps=steps)

    def settle(self, x: int) -> int:
        """A product brought to two polynomials and to the next depth."""
        return self.rescale(self.relinearize(x) if self.instructions[x].size > 2 else x)

    def output(self, x: int, name: str = "result", factor: float = 1.0) -> None:
        self.outputs[name] = Output({0: x}, factor, ((0,),), (0,))

    def _plain(self, slots: Slots, factor: float) -> Plain:
        position = len(self.tensors)
        self.tensors[position] = slots
        return Plain(position, factor, ((0,),) if slots.ndim else ())

    def _emit(
        self,
        kind: Kind,
        operands: tuple[int, ...],
        slots: Slots,
        depth: int | None = None,
        *,
        pending: bool | None = None,
        size: int | None = None,
        **more: Any,
    ) -> int:
        """Whatever is not said is as with the first operand."""
        first = self.instructions[operands[0]] if operands else Instruction(kind, (), 0, False, 2, 0.0)
        sizes = [self.instructions[operand].size for operand in operands]
        instruction = Instruction(
            kind,
            operands,
            first.depth if depth is None else depth,
            first.pending if pending is None else pending,
            max([*sizes, 2]) if size is None else size,
            float(np.max(np.abs(slots))),
            **more,
        )
        self.instructions.append(instruction)
        self.slots.append(slots)
        return len(self.instructions) - 1


class Session(NamedTuple):
    """Both sides of a session, in one process."""

    secret: SecretKeys
    keys: EvaluationKeys

    def encrypt(self, building: Building) -> dict[InputKey, Ciphertext]:
        context = self.keys.moduli.context
        return {
            key: from_bytes("ciphertext", context, self.secret.encrypt(slots, key[2]))
            for key, slots in building.inputs.items()
        }

    def execute(self, building: Building) -> Execution:
        evaluator = Evaluator(self.keys, building.circuit, layout_of(self.keys.moduli.parameters))
        return evaluator.run(self.encrypt(building), building.tensors)

    def decrypt(self, execution: Execution) -> Mapping[str, Slots]:
        return {name: self.secret.decrypt(to_bytes(blocks[0])) for name, blocks in execution.outputs.items()}

    def run(self, building: Building) -> Mapping[str, Slots]:
        """The decrypted outputs, by name, before their factors."""
        return self.decrypt(self.execute(building))


@lru_cache
def session(parameters: Parameters = SMALL, rotations: tuple[int, ...] = ROTATIONS) -> Session:
    """Keys that all tests share: they take longer to make than most circuits take to run."""
    secret = SecretKeys.generate(parameters, rotations)
    return Session(secret, EvaluationKeys.from_bytes(parameters, secret.evaluation_keys))
