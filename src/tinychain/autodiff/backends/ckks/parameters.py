"""The parameters of the encryption: the ring, and the bits of the moduli, within the limits of 128-bit security.

A record of plain numbers, from which client and server make the same moduli without a word between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record
from tinychain.autodiff.types import as_int, is_sequence

#: The most bits that all moduli may have together, by ring size, for 128-bit security against classical attacks with
#: ternary secrets: the Homomorphic Encryption Standard (Albrecht et al. 2018, table 1), which the library enforces.
SECURE_BITS: Final = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}

#: What the library's arithmetic can hold, and the least that leaves primes to choose from in every ring.
_LEAST_BITS, _MOST_BITS = 20, 60
_MOST_DEPTH: Final = max(SECURE_BITS.values()) // _LEAST_BITS


@dataclass(frozen=True)
class Parameters(Record):
    """The ring, and the bits of its moduli: of the base, of one prime a depth, and of the prime for key switching.

    A ciphertext has ring_size / 2 slots. `scale_bits` are those of the scale and of the prime that a rescaling divides
    by. Some ten `special_bits` more than all others have keep the noise of rotations low, see `output_noise`.

    Raises invalid_encryption_plan where the parts contradict each other, the library cannot hold them, or all bits
    together exceed the limit of 128-bit security; `secure=False` lifts that limit, for tests in small rings alone.
    """

    ring_size: int
    scale_bits: int
    base_bits: tuple[int, ...]
    depth: int
    special_bits: int
    secure: bool = True

    def __post_init__(self) -> None:
        if reason := self._reason_against():
            raise AutodiffError("invalid_encryption_plan", f"encryption parameters: {reason}")
        object.__setattr__(self, "base_bits", tuple(self.base_bits))  # JSON has lists

    @property
    def modulus_bits(self) -> tuple[int, ...]:
        """The bits of every prime, in the library's order: each rescaling drops the last before the special one."""
        return (*self.base_bits, *[self.scale_bits] * self.depth, self.special_bits)

    @property
    def total_bits(self) -> int:
        """The bits of all primes together, which security limits."""
        return sum(self.modulus_bits)

    @property
    def slot_bits(self) -> int:
        """The address bits of a slot."""
        return self.ring_size.bit_length() - 2

    def primes_at(self, depth: int) -> int:
        """How many primes a ciphertext of this depth has."""
        return len(self.base_bits) + self.depth - depth

    def _reason_against(self) -> str | None:
        if not is_sequence(self.base_bits) or not isinstance(self.secure, bool):
            return f"base_bits must be ints and secure a bool, got {quote(self.base_bits)} and {quote(self.secure)}"
        for number in (self.ring_size, self.scale_bits, *self.base_bits, self.depth, self.special_bits):
            if as_int(number) is None:
                return f"sizes, bits and depth must be ints, got {quote(number)}"
        if self.depth > _MOST_DEPTH:
            return f"no ring has the bits for a depth of more than {_MOST_DEPTH}, got {quote(self.depth)}"
        limit = SECURE_BITS.get(self.ring_size)
        if limit is None:
            return f"ring_size must be one of {list(SECURE_BITS)}, got {quote(self.ring_size)}"
        if self.depth < 0 or not self.base_bits:
            return f"the base needs a prime and the depth is at least 0, got {self.base_bits} and {self.depth}"
        if not all(_LEAST_BITS <= bits <= _MOST_BITS for bits in self.modulus_bits):
            return f"every modulus must have {_LEAST_BITS} to {_MOST_BITS} bits, got {list(self.modulus_bits)}"
        if self.special_bits < max(self.modulus_bits):
            return f"special_bits must be the most, or switching keys drowns values in noise, got {self.special_bits}"
        if self.scale_bits >= sum(self.base_bits):
            return f"scale_bits must be less than the base has, got {self.scale_bits} and {sum(self.base_bits)}"
        if self.secure and self.total_bits > limit:
            return (
                f"{self.total_bits} bits of moduli in a ring of {self.ring_size} are more than the {limit} that have "
                "128-bit security; take a larger ring, fewer steps between refreshes or fewer scale_bits"
            )
        return None
