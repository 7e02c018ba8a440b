"""Products, sums and contractions of packed tensors, each with whatever must happen to the operands first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from tinychain.autodiff.backends.ckks.circuit import Kind, Plain
from tinychain.autodiff.backends.ckks.layout import Axes, Block, indices_of
from tinychain.autodiff.backends.ckks.packed import Packed, slot_bits
from tinychain.autodiff.backends.ckks.recorder import Recorder

#: By how much a factor may make the content of a summand larger than the other one and its own elements, rather than
#: that a level is spent: such bits are bits of the lowest modulus.
_LARGEST_GROWTH: Final = 2.0**10


def scaled(x: Packed, number: float) -> Packed:
    """The product with a number that is known: no instruction at all."""
    return replace(x, factor=x.factor * number, bound=x.bound * abs(number))


class Arithmetic:
    """Records tensor arithmetic. A set of indices to sum over, `summed`, makes a product a contraction."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._layout = recorder.layout

    # --------------------------------------------------------------------------------------------------- products

    def times(self, x: Packed, y: Packed, summed: Collection[int] = ()) -> Packed:
        """The product of two secrets."""
        record, layout = self._recorder, self._layout
        x, y = record.settled(x), record.settled(y)
        if y.depth < x.depth:
            x, y = y, x  # x is the one that can rather afford to be masked
        is_square = x.blocks == y.blocks and x.owned == y.owned
        x, y = self._repeated(x, y.owned), self._repeated(y, x.owned)
        owned = x.owned | y.owned
        clean = x.clean | y.clean
        if any(layout.is_padded(index) for index in (frozenset(summed) & owned) - clean):
            x = record.settled(self._masked(x))
            clean |= x.owned
        depth = max(x.depth, y.depth)
        x, y = (z if z.depth == depth else record.lowered(z, depth, 1.0) for z in (x, y))
        like = Packed(
            blocks={},
            owned=owned,
            repeated=(x.repeated & y.repeated) - slot_bits(owned, layout),
            zero=(x.zero | y.zero) - slot_bits(owned, layout),
            clean=clean,
            depth=depth,
            pending=True,
            size=3,
            factor=x.factor * y.factor,
            bound=x.bound * y.bound,
            reach=x.reach * y.reach,
        )
        x_mask, y_mask = layout.block_mask(x.owned), layout.block_mask(y.owned)

        def emit(block: Block) -> int:
            if is_square:
                return record.emit(Kind.SQUARE, x.blocks[block], like=like)
            return record.emit(Kind.MULTIPLY, x.blocks[block & x_mask], y.blocks[block & y_mask], like=like)

        return self._contracted(like, layout.blocks(owned), summed, emit)

    def times_plain(
        self, x: Packed, value: int | None, axes: Axes, bound: float, summed: Collection[int] = ()
    ) -> Packed:
        """The product with a plain tensor of the program, or with 1. It removes all garbage, and the factor."""
        record, layout = self._recorder, self._layout
        indices = frozenset(indices_of(axes))
        x = self._repeated(record.settled(x), indices)
        owned = x.owned | indices
        garbage, dirty = tuple(sorted(x.garbage(layout))), tuple(sorted(x.dirty(layout)))
        bound *= x.bound
        like = replace(
            x,
            owned=owned,
            repeated=x.repeated - slot_bits(owned, layout),
            zero=x.zero.union(garbage),
            clean=owned,
            pending=True,
            factor=1.0,
            bound=bound,
            reach=bound,
            source=None,
        )
        mask = layout.block_mask(x.owned)
        is_number = value is None and not garbage and not dirty

        def emit(block: Block) -> int:
            at = x.blocks[block & mask]
            if is_number:
                return record.emit(Kind.MULTIPLY_NUMBER, at, like=like, number=x.factor)
            plain = Plain(value, x.factor, axes, block, garbage, dirty)
            return record.emit(Kind.MULTIPLY_PLAIN, at, like=like, plain=plain)

        return self._contracted(like, layout.blocks(owned), summed, emit)

    def total(self, x: Packed, summed: Collection[int]) -> Packed:
        """The sum over indices. It costs no level, unless padding must be cleaned."""
        if x.dirty(self._layout) & frozenset(summed):
            x = self._masked(x)
        return self._contracted(x, x.blocks, summed, x.blocks.__getitem__)

    # ------------------------------------------------------------------------------------------------------- sums

    def plus(self, x: Packed, y: Packed, sign: float = 1.0) -> Packed:
        """x + y, or x - y for a sign of -1."""
        x, y = self._repeated(x, y.owned), self._repeated(y, x.owned)
        y = scaled(y, sign)
        if x.blocks == y.blocks:
            factor = x.factor + y.factor
            if factor != 0.0:
                return scaled(x, factor / x.factor)
        x, y = self._aligned(x, y)
        kind = Kind.ADD if x.factor == y.factor else Kind.SUB
        layout = self._layout
        owned = x.owned | y.owned
        like = replace(
            x,
            owned=owned,
            repeated=(x.repeated & y.repeated) - slot_bits(owned, layout),
            zero=x.zero & y.zero,
            clean=(x.clean & y.clean) | layout.unpadded(owned),
            size=max(x.size, y.size),
            bound=x.bound + y.bound,
            reach=x.reach + y.reach,
            source=None,
        )
        x_mask, y_mask = layout.block_mask(x.owned), layout.block_mask(y.owned)
        blocks = {
            block: self._recorder.emit(kind, x.blocks[block & x_mask], y.blocks[block & y_mask], like=like)
            for block in layout.blocks(owned)
        }
        return replace(like, blocks=blocks)

    def plus_plain(self, x: Packed, value: int | None, axes: Axes, bound: float, number: float = 1.0) -> Packed:
        """The sum with `number` times a plain tensor of the program, or with the number alone."""
        layout = self._layout
        indices = frozenset(indices_of(axes))
        x = self._repeated(x, indices)
        owned = x.owned | indices
        factor = number / x.factor
        zero, clean = tuple(sorted(x.zero)), tuple(sorted(filter(layout.is_padded, x.clean)))
        bound *= abs(number)
        like = replace(
            x,
            owned=owned,
            repeated=x.repeated - slot_bits(owned, layout),
            clean=x.clean | layout.unpadded(owned),
            bound=x.bound + bound,
            reach=x.reach + bound / abs(x.factor),
            source=None,
        )
        mask = layout.block_mask(x.owned)
        blocks = {}
        for block in layout.blocks(owned):
            plain = Plain(value, factor, axes, block, zero, clean)
            blocks[block] = self._recorder.emit(Kind.ADD_PLAIN, x.blocks[block & mask], like=like, plain=plain)
        return replace(like, blocks=blocks)

    # ---------------------------------------------------------------------------------------------------- details

    def _masked(self, x: Packed) -> Packed:
        return self.times_plain(x, None, (), 1.0)

    def _repeated(self, x: Packed, indices: Iterable[int]) -> Packed:
        bits = slot_bits(frozenset(indices) - x.owned, self._layout)
        return self._recorder.repeated(x, bits, self._masked)

    def _contracted(
        self, like: Packed, blocks: Iterable[Block], summed: Collection[int], emit: Callable[[Block], int]
    ) -> Packed:
        """The terms that `emit` makes of the blocks of a tensor like this one, summed over some of its indices."""
        indices = frozenset(summed) & like.owned
        sums, terms = self._recorder.grouped(blocks, indices, like, emit)
        count = 1
        for index in indices:
            count *= self._layout.sizes[index]
        x = replace(
            like,
            blocks=sums,
            owned=like.owned - indices,
            clean=like.clean - indices,
            bound=like.bound * count,
            reach=like.reach * terms,
            source=like.source if not indices else None,
        )
        return self._recorder.folded(x, slot_bits(indices, self._layout))

    def _aligned(self, x: Packed, y: Packed) -> tuple[Packed, Packed]:
        """Both as summands: of equal depth and scale, and with factors that are equal but for the sign."""
        record = self._recorder
        if x.depth == y.depth and x.pending == y.pending and abs(x.factor) == abs(y.factor):
            return x, y
        if x.pending and y.pending:
            x, y = record.settled(x), record.settled(y)
            return self._aligned(x, y)
        if y.pending or (y.depth > x.depth and not x.pending):
            y, x = self._aligned(y, x)
            return x, y
        # From here on y is settled, and x either pending or at least as deep.
        if x.pending and y.depth > x.depth:
            return self._aligned(record.settled(x), y)
        if self._grows_too_much(y, x):
            x = record.settled(x)
            if y.depth > x.depth:
                return self._aligned(x, y)
            x = record.lifted(x, x.depth, 1.0)
            return x, record.lifted(y, x.depth, 1.0)
        if x.pending:
            return x, record.lifted(y, x.depth, x.factor)
        if y.depth < x.depth or y.source is not None:
            return x, record.lowered(y, x.depth, x.factor)
        return record.lifted(x, x.depth, 1.0), record.lifted(y, x.depth, 1.0)

    @staticmethod
    def _grows_too_much(y: Packed, x: Packed) -> bool:
        """Whether y would become too large with the factor of x."""
        return y.bound / abs(x.factor) > _LARGEST_GROWTH * max(x.reach, y.bound, 1.0)
