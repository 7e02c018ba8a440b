"""Where the elements of packed tensors lie: one place for every index of a plan, in slots and across ciphertexts.

The tensors of a plan share their indices as the terms of an einsum do: the rows of the data, its columns, the hidden
units. Each index gets address bits of its own. The low bits of an address say which slot, the others which ciphertext.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.graph import Record

#: The indices of each axis of a tensor, most significant first; an axis of size 1 has none.
Axes: TypeAlias = tuple[tuple[int, ...], ...]

#: A ciphertext of a packed tensor: the address bits above the slots, 0 where the tensor does not have the index.
Block: TypeAlias = int


def indices_of(axes: Axes) -> list[int]:
    """The indices of a tensor, axis by axis."""
    return [index for axis in axes for index in axis]


@dataclass(frozen=True)
class Layout(Record):
    """The address bits of every index, least significant first, and its size, which need not be a power of two."""

    slot_bits: int
    places: Mapping[int, tuple[int, ...]]
    sizes: Mapping[int, int]

    @cached_property
    def slots(self) -> int:
        """How many numbers a ciphertext holds."""
        return 1 << self.slot_bits

    def slot_places(self, index: int) -> tuple[int, ...]:
        """The address bits of an index that are inside a ciphertext."""
        return tuple([place for place in self.places[index] if place < self.slot_bits])

    def block_mask(self, indices: Iterable[int]) -> int:
        """The bits of a block that these indices decide."""
        bits = [place for index in indices for place in self.places[index] if place >= self.slot_bits]
        return sum([1 << place - self.slot_bits for place in bits])

    def is_padded(self, index: int) -> bool:
        """Whether the address bits reach farther than the index."""
        return self.sizes[index] < 1 << len(self.places[index])

    def unpadded(self, indices: Iterable[int]) -> frozenset[int]:
        """Those of the indices that fill their address bits."""
        return frozenset([index for index in indices if not self.is_padded(index)])

    def blocks(self, indices: Collection[int]) -> list[Block]:
        """The ciphertexts of a tensor with these indices, ascending, without those that would hold padding alone."""
        blocks = [0]
        for index in indices:
            blocks = [block | bits for block in blocks for bits in self._blocks[index]]
        return sorted(blocks)

    @cached_property
    def _blocks(self) -> Mapping[int, Sequence[int]]:
        """The bits of a block that the numbers of each index have, all of them once."""
        return {
            index: sorted({*(_address(np.arange(self.sizes[index]), places) >> self.slot_bits).tolist()})
            for index, places in self.places.items()
        }

    def pack(
        self,
        array: NDArray[Any],
        axes: Axes,
        block: Block = 0,
        *,
        zero_bits: Collection[int] = (),
        inside: Collection[int] = (),
    ) -> NDArray[Any]:
        """The slots of one ciphertext of a tensor with these axes.

        They are zero in padding, in the padding of the indices in `inside` too, and where one of `zero_bits` is set in
        a slot's address. Along address bits that are not of the tensor's indices the elements are repeated.
        """
        indices = indices_of(axes)
        elements = array.reshape([self.sizes[index] for index in indices])
        addresses = np.arange(self.slots) | block << self.slot_bits
        nonzero = np.ones(self.slots, bool)
        for bit in zero_bits:
            nonzero &= addresses >> bit & 1 == 0
        numbers = {index: _number(addresses, self.places[index]) for index in {*indices, *inside}}
        for index, number in numbers.items():
            nonzero &= number < self.sizes[index]
        chosen = tuple([np.minimum(numbers[index], self.sizes[index] - 1) for index in indices])
        return np.where(nonzero, elements[chosen], 0.0)

    def unpack(self, blocks: Mapping[Block, NDArray[Any]], axes: Axes, owned: Collection[int]) -> NDArray[Any]:
        """The tensor in these ciphertexts: the inverse of `pack`. It is repeated along indices that are not owned."""
        indices = indices_of(axes)
        addresses: NDArray[Any] = np.zeros([1] * len(indices), np.int64)
        for position, index in enumerate(indices):
            numbers = np.arange(self.sizes[index])
            own = _address(numbers, self.places[index]) if index in owned else numbers * 0
            addresses = addresses + own.reshape([-1 if at == position else 1 for at in range(len(indices))])
        found = np.empty(addresses.shape)
        chosen = addresses >> self.slot_bits
        for block, slots in blocks.items():
            here = chosen == block
            found[here] = slots[addresses[here] & self.slots - 1]
        return found.reshape([int(np.prod([self.sizes[index] for index in axis], dtype=int)) for axis in axes])


def _address(number: Any, places: Sequence[int]) -> Any:
    """The address bits of a number, or of an array of them."""
    address = number * 0
    for bit, place in enumerate(places):
        address = address | (number >> bit & 1) << place
    return address


def _number(address: Any, places: Sequence[int]) -> Any:
    """The inverse of `_address`."""
    number = address * 0
    for bit, place in enumerate(places):
        number = number | (address >> place & 1) << bit
    return number
