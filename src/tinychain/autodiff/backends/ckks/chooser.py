"""Choosing encryption parameters for a circuit: the fewest primes, of the fewest bits, that are precise and wide.

The time of an operation depends on the number of primes, so a scale may be as large as the others leave room for; the
limit is on the bits of all primes together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, log2
from typing import Final, NamedTuple

from tinychain.autodiff.backends.ckks.circuit import Circuit
from tinychain.autodiff.backends.ckks.noise import output_noise
from tinychain.autodiff.backends.ckks.parameters import SECURE_BITS, Parameters
from tinychain.autodiff.backends.ckks.ranges import Interval

#: Errors stay within so many standard deviations, but for one slot in a billion: they are multiplied by the secret key,
#: which makes them Laplace-distributed about, and exp(-15 * sqrt(2)) is 6e-10.
DEVIATIONS: Final = 15.0

#: One bit for the sign, and one because no prime is a power of two.
_MARGIN_BITS: Final = 2

SCALE_BITS: Final = range(25, 61)
_FEWEST_BITS: Final = 20
_MOST_BITS: Final = 60

_BASE_PRIMES: Final = (1, 2, 3, 4)

#: How much larger than the other primes the one for switching keys is, from the least noise to the fewest bits.
_SPECIAL_MARGINS: Final = (12, 8, 4, 0)


class Misfit(NamedTuple):
    """Why no parameters of a ring fit: how many bits of moduli those need at least that are precise enough.

    Where no scale is, it is how many the least scale needs.
    """

    ring_size: int
    depth: int
    bits: int

    def __str__(self) -> str:
        secure = SECURE_BITS[self.ring_size]
        if self.bits > secure:
            return f"ring {self.ring_size}: needs at least {self.bits} bits of moduli, and {secure} are secure"
        return f"ring {self.ring_size}: no scale of up to {SCALE_BITS[-1]} bits is precise enough"


class Chooser:
    """Chooses for one circuit in one ring. `intervals` bound the tensors of its program, by position."""

    def __init__(self, circuit: Circuit, intervals: Sequence[Interval], ring_size: int) -> None:
        self._circuit = circuit
        self._intervals = intervals
        self._ring_size = ring_size

    def choose(self, precision: float, scale_bits: int | None = None) -> Parameters | Misfit:
        """The secure parameters of the fewest primes, and of the fewest bits among these; or why there are none.

        `precision` bounds the absolute error that encryption adds to an element of a result, at DEVIATIONS standard
        deviations of the predicted noise; where `scale_bits` are given it is not asked for.
        """
        fewest: list[int] = []
        for base_primes in _BASE_PRIMES:
            candidates = list(self._candidates(base_primes, precision, scale_bits))
            best = min(candidates, key=lambda parameters: parameters.total_bits, default=None)
            if best is not None and best.total_bits <= SECURE_BITS[self._ring_size]:
                return replace(best, secure=True)
            fewest += [parameters.total_bits for parameters in candidates]
        return Misfit(self._ring_size, self._circuit.depth, min(fewest, default=self._least_bits()))

    def base_bits(self, scale_bits: int) -> int:
        """The bits that the base must have at least, so that no value of the circuit ever wraps around its modulus.

        A value of reach r at depth d, at the scale s or s**2, needs log2(r) bits beside those of its scale, and has the
        base and one prime for each depth that is left.
        """
        least = scale_bits + 1.0
        for instruction in self._circuit.instructions:
            scales = (2 if instruction.pending else 1) - (self._circuit.depth - instruction.depth)
            least = max(least, log2(max(instruction.reach, 1.0)) + scales * scale_bits + _MARGIN_BITS)
        return ceil(least)

    def is_precise(self, parameters: Parameters, precision: float) -> bool:
        """Whether the predicted noise of every result is within the precision."""
        noise = output_noise(self._circuit, parameters, self._intervals)
        return all(DEVIATIONS * deviation <= precision for deviation in noise.values())

    def _least_bits(self) -> int:
        least = [self._parameters(SCALE_BITS[0], base_primes, 0) for base_primes in _BASE_PRIMES]
        return min([parameters.total_bits for parameters in least if parameters is not None])

    def _candidates(self, base_primes: int, precision: float, scale_bits: int | None) -> Iterator[Parameters]:
        for margin in _SPECIAL_MARGINS:
            if scale_bits is not None:
                parameters = self._parameters(scale_bits, base_primes, margin)
            else:
                parameters = self._least_precise(base_primes, margin, precision)
            if parameters is not None:
                yield parameters

    def _least_precise(self, base_primes: int, margin: int, precision: float) -> Parameters | None:
        """By bisection, as noise falls with the scale."""
        low, high, found = 0, len(SCALE_BITS), None
        while low < high:
            middle = (low + high) // 2
            parameters = self._parameters(SCALE_BITS[middle], base_primes, margin)
            if parameters is None:  # more scale bits need no fewer of the base
                high = middle
            elif self.is_precise(parameters, precision):
                high, found = middle, parameters
            else:
                low = middle + 1
        return found

    def _parameters(self, scale_bits: int, base_primes: int, margin: int) -> Parameters | None:
        """With the least base that can be split in so many primes; None where a prime would have too many bits."""
        base = self.base_bits(scale_bits)
        parts = [base * (at + 1) // base_primes - base * at // base_primes for at in range(base_primes)]
        if max(parts) > _MOST_BITS or (base_primes > 1 and min(parts) < _FEWEST_BITS):
            return None
        special = min(max(scale_bits, *parts) + margin, _MOST_BITS)
        return Parameters(self._ring_size, scale_bits, tuple(parts), self._circuit.depth, special, secure=False)
