"""Recording a circuit: instructions on all ciphertexts of packed tensors at a time.

Nothing is rescaled, relinearized or brought to another depth before an operation asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from tinychain.autodiff.backends.ckks.circuit import Instruction, Kind
from tinychain.autodiff.backends.ckks.layout import Block, Layout
from tinychain.autodiff.backends.ckks.packed import Packed, free_bits
from tinychain.autodiff.errors import AutodiffError

#: Tens of minutes of work in the smallest ring; planning still takes seconds.
MOST_INSTRUCTIONS: Final = 200_000


class Recorder:
    """The instructions so far, and the ways to append to them.

    A method that is named after a state returns a tensor of the same value in that state, the same object where there
    is nothing to do, and what it returned before for the same ciphertexts.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.instructions: list[Instruction] = []
        self.origin = -1  # of the instructions to come
        self._done: dict[tuple[object, ...], Packed] = {}

    def emit(self, kind: Kind, *operands: int, like: Packed, **changes: Any) -> int:
        """Appends an instruction whose result is like the ciphertexts of `like` but for the changes."""
        if len(self.instructions) >= MOST_INSTRUCTIONS:
            raise AutodiffError(
                "invalid_encryption_plan",
                f"the steps between two refreshes need more than {MOST_INSTRUCTIONS:,} operations on ciphertexts; take"
                " smaller tensors or fewer steps",
            )
        state = {"depth": like.depth, "pending": like.pending, "size": like.size, "reach": like.reach}
        self.instructions.append(Instruction(kind, operands, **{**state, **changes}, origin=self.origin))
        return len(self.instructions) - 1

    def each(self, x: Packed, kind: Kind, *, more: Mapping[str, Any] | None = None, **changes: Any) -> Packed:
        """One instruction for each ciphertext of a tensor, which change the tensor's state like this."""
        blocks = {block: self.emit(kind, at, like=x, **changes, **(more or {})) for block, at in x.blocks.items()}
        return replace(x, blocks=blocks, source=None, **changes)

    def grouped(
        self, blocks: Iterable[Block], summed: Iterable[int], like: Packed, emit: Callable[[Block], int]
    ) -> tuple[dict[Block, int], int]:
        """Emits the ciphertexts of a tensor and adds up those that differ in the summed indices alone.

        Returns the sums by block, and of how many terms they are at most. A term is added as soon as it is there.
        """
        kept = ~self.layout.block_mask(summed)
        sums: dict[Block, int] = {}
        most = 1
        for block, members in groupby(sorted(blocks, key=lambda block: (block & kept, block)), lambda b: b & kept):
            sums[block] = emit(next(members))
            for terms, member in enumerate(members, 2):
                sums[block] = self.emit(Kind.ADD, sums[block], emit(member), like=like, reach=like.reach * terms)
                most = max(most, terms)
        return sums, most

    def input(self, name: str, owned: Iterable[int], bound: float, depth: int = 0, number: float = 1.0) -> Packed:
        """What the client encrypts at a depth: `number` times a tensor whose elements are within `bound`."""
        key = ("input", name, depth, number)
        if key not in self._done:
            owned = frozenset(owned)
            like = Packed(
                blocks={},
                owned=owned,
                repeated=free_bits(owned, self.layout),
                zero=frozenset(),
                clean=owned,
                depth=depth,
                pending=False,
                size=2,
                factor=1.0 / number,
                bound=bound,
                reach=bound * abs(number),
                source=(name, number),
            )
            blocks = {
                block: self.emit(Kind.INPUT, like=like, source=(name, block), number=number)
                for block in self.layout.blocks(owned)
            }
            self._done[key] = replace(like, blocks=blocks)
        return self._done[key]

    # ------------------------------------------------------------------------------------------- depths and scales

    def settled(self, x: Packed) -> Packed:
        """Relinearized and rescaled. The other order is faster, but what rescaling a third polynomial rounds off is
        multiplied by the square of the secret, and costs several bits of precision.
        """
        return self._once("settled", x, self._settle) if x.pending or x.size > 2 else x

    def lowered(self, x: Packed, depth: int, factor: float) -> Packed:
        """A settled tensor at a greater depth and with another factor, which one product brings about.

        An input is encrypted at the depth instead, which may be its own.
        """
        if x.depth == depth and x.factor == factor:
            return x
        ratio = x.factor / factor
        if x.source is not None:
            name, number = x.source
            lowered = self.input(name, x.owned, x.reach / abs(number), depth, number * ratio)
            return replace(lowered, factor=factor, bound=x.bound)
        made = self._once("lowered", x, lambda x: self.settled(self._times(x, depth - 1, ratio)), depth, ratio)
        return replace(made, factor=factor)  # which the division may miss by a rounding

    def lifted(self, x: Packed, depth: int, factor: float) -> Packed:
        """A settled tensor as a product, pending at its depth or at a greater one, and with another factor."""
        ratio = x.factor / factor
        made = self._once("lifted", x, lambda x: self._times(x, depth, ratio), depth, ratio)
        return replace(made, factor=factor)

    # ------------------------------------------------------------------------------------------------------- slots

    def repeated(self, x: Packed, bits: Iterable[int], masked: Callable[[Packed], Packed]) -> Packed:
        """Repeated along these free bits; `masked` is asked to remove garbage, which a rotation would spread."""
        missing = frozenset(bits) - x.repeated
        if not missing:
            return x
        if x.garbage(self.layout):
            x = masked(x)
        return self._once("repeated", self.settled(x), lambda x: self._repeat(x, missing), missing)

    def folded(self, x: Packed, bits: Iterable[int]) -> Packed:
        """The sum over free bits whose slots hold terms, which ends up where they are not set.

        Each rotation adds to a slot the one where a bit differs. Where the bit was set it carries into the higher bits,
        which does no harm if the tensor is repeated along all of these; the sum then is too.
        """
        for bit in sorted(bits, reverse=True):
            x = self.settled(x)
            reach = 2 * x.reach
            x = replace(self._add_rotated(x, 1 << bit, reach), reach=reach)
            if x.repeated >= frozenset(range(bit + 1, self.layout.slot_bits)):
                x = replace(x, repeated=x.repeated | {bit})
        return x

    # ----------------------------------------------------------------------------------------------------- details

    def _once(self, state: str, x: Packed, make: Callable[[Packed], Packed], *arguments: object) -> Packed:
        known = (x.owned, x.repeated, x.zero, x.clean, x.factor)
        key = (state, *x.blocks.items(), *known, *arguments)
        if key not in self._done:
            self._done[key] = make(x)
        return self._done[key]

    def _settle(self, x: Packed) -> Packed:
        if x.size > 2:
            x = self.each(x, Kind.RELINEARIZE, size=2)
        return self.each(x, Kind.RESCALE, depth=x.depth + 1, pending=False) if x.pending else x

    def _times(self, x: Packed, depth: int, number: float) -> Packed:
        """The content times a number, pending at a depth, and the factor divided by it."""
        if x.depth < depth:
            x = self.each(x, Kind.SWITCH, depth=depth)
        reach = x.reach * abs(number)
        product = self.each(x, Kind.MULTIPLY_NUMBER, pending=True, reach=reach, more={"number": number})
        return replace(product, factor=x.factor / number)

    def _repeat(self, x: Packed, bits: Iterable[int]) -> Packed:
        for bit in sorted(bits):
            x = self._add_rotated(x, -(1 << bit), x.reach, disjoint=True)
            x = replace(x, repeated=x.repeated | {bit}, zero=x.zero - {bit})
        return x

    def _add_rotated(self, x: Packed, steps: int, reach: float, *, disjoint: bool = False) -> Packed:
        blocks = {}
        for block, at in x.blocks.items():
            turned = self.emit(Kind.ROTATE, at, like=x, steps=steps)
            blocks[block] = self.emit(Kind.ADD, at, turned, like=x, reach=reach, disjoint=disjoint)
        return replace(x, blocks=blocks, source=None)
