"""A secret tensor while a circuit is planned: its ciphertexts, and what is known of every slot of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tinychain.autodiff.backends.ckks.layout import Block, Layout


@dataclass(frozen=True, eq=False)
class Packed:
    """A tensor that is `factor` times what its ciphertexts hold.

    It has the indices in `owned`; along all others it is constant. Address bits of no owned index are free: slots where
    a free bit is set are garbage unless the bit is in `repeated` or in `zero`; the other slots are then repetitions, or
    zero. The padding of the indices in `clean` is zero. `bound` bounds the absolute value of the tensor's elements,
    `reach` that of everything in the slots. The ciphertexts are alike in depth, scale and size.

    `source` says that they are an input of this name times this number.
    """

    blocks: Mapping[Block, int]
    owned: frozenset[int]
    repeated: frozenset[int]
    zero: frozenset[int]
    clean: frozenset[int]
    depth: int
    pending: bool
    size: int
    factor: float
    bound: float
    reach: float
    source: tuple[str, float] | None = None

    def garbage(self, layout: Layout) -> frozenset[int]:
        """The free bits that are neither repeated nor zero."""
        return free_bits(self.owned, layout) - self.repeated - self.zero

    def dirty(self, layout: Layout) -> frozenset[int]:
        """The indices whose padding may hold anything."""
        unclean = self.owned - self.clean
        return unclean - layout.unpadded(unclean)


def free_bits(owned: Iterable[int], layout: Layout) -> frozenset[int]:
    """The address bits inside a ciphertext that are of none of these indices."""
    return frozenset(range(layout.slot_bits)) - slot_bits(owned, layout)


def slot_bits(indices: Iterable[int], layout: Layout) -> frozenset[int]:
    """The address bits inside a ciphertext that are of these indices."""
    return frozenset([place for index in indices for place in layout.slot_places(index)])
