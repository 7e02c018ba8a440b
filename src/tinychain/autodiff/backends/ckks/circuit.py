"""What a server executes: operations on single ciphertexts, in order, each with all that is known of its result.

A ciphertext at depth d has been rescaled d times. It has the scale S[d], or S[d]**2 while the rescaling of a product is
still pending, where S[d + 1] = S[d]**2 / q and q is the modulus that a rescaling at depth d divides by. So scales match
exactly wherever depths do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from tinychain.autodiff.backends.ckks.layout import Axes, Block
from tinychain.autodiff.graph import Record


class Kind(StrEnum):
    """The operations; the names are those of the figures in explanations and calibrations."""

    INPUT = "input"
    ADD = "add"
    SUB = "sub"
    NEGATE = "negate"
    ADD_PLAIN = "add_plain"
    MULTIPLY = "multiply"
    SQUARE = "square"
    MULTIPLY_PLAIN = "multiply_plain"
    MULTIPLY_NUMBER = "multiply_number"
    RELINEARIZE = "relinearize"
    RESCALE = "rescale"
    SWITCH = "switch"
    ROTATE = "rotate"


class Plain(NamedTuple):
    """A plaintext: `factor` times a plain tensor of the program, or times 1 where `value` is None, packed for a block.

    `axes` are those of the tensor, () for 1; the other fields are the arguments of `Layout.pack`. Where there are no
    axes and nothing is zero, all slots are alike.
    """

    value: int | None
    factor: float
    axes: Axes = ()
    block: Block = 0
    zero_bits: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether all slots are alike."""
        return not any(self.axes) and not self.zero_bits and not self.inside


class Instruction(NamedTuple):
    """One operation; its operands are positions in the circuit. `reach` bounds the absolute value of every slot.

    An INPUT is named by `source`, a name and a block, and the client multiplies what it encrypts by `number`. A ROTATE
    moves slot i + steps to slot i, cyclically. A SWITCH goes to a greater depth and keeps the scale of its operand;
    only MULTIPLY_NUMBER and MULTIPLY_PLAIN read it. MULTIPLY_NUMBER multiplies all slots by `number`. The plaintext of
    a product is encoded at whatever scale brings the result to S[depth]**2, that of ADD_PLAIN at that of the operand.
    The operands of a `disjoint` ADD are in no slot both more than the noise of a zero. `origin` is the position in the
    program of the tensor operation that first asked for it.
    """

    kind: Kind
    operands: tuple[int, ...]
    depth: int
    pending: bool
    size: int  # polynomials: 2, or 3 before relinearization
    reach: float
    source: tuple[str, Block] | None = None
    steps: int = 0
    number: float = 1.0
    plain: Plain | None = None
    disjoint: bool = False
    origin: int = -1


class Output(NamedTuple):
    """A result: its ciphertexts by block, and what to multiply the decrypted slots by; see `Layout.unpack`."""

    blocks: Mapping[Block, int]
    factor: float
    axes: Axes
    owned: tuple[int, ...]


@dataclass(frozen=True)
class Circuit(Record):
    """Operations in order, each after its operands, and the results by name."""

    instructions: Sequence[Instruction]
    outputs: Mapping[str, Output]

    @cached_property
    def depth(self) -> int:
        """How often a value is rescaled at most."""
        return max([instruction.depth for instruction in self.instructions], default=0)

    @cached_property
    def rotations(self) -> tuple[int, ...]:
        """The steps of the rotations, ascending: each needs a Galois key."""
        return tuple(sorted({i.steps for i in self.instructions if i.kind is Kind.ROTATE}))

    @cached_property
    def counts(self) -> Mapping[Kind, int]:
        """How many operations there are of each kind, in the order of the kinds."""
        found = Counter([instruction.kind for instruction in self.instructions])
        return {kind: found[kind] for kind in Kind if found[kind]}

    @cached_property
    def last_uses(self) -> Sequence[tuple[int, ...]]:
        """For each operation the values that nothing reads after it and that are no output."""
        kept = {position for output in self.outputs.values() for position in output.blocks.values()}
        seen = set(kept)
        dead: list[tuple[int, ...]] = []
        for position in range(len(self.instructions) - 1, -1, -1):
            found = tuple([i for i in {*self.instructions[position].operands, position} if i not in seen])
            seen.update(found)
            dead.append(found)
        return dead[::-1]
