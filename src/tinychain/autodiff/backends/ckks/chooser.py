"""Choosing encryption parameters for a circuit: the fewest primes, of the fewest bits, that are precise and wide.

The time of an operation depends on the number of primes, so a scale may be as large as the others leave room for; the
limit is on the bits of all primes together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, inf, log2
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

    Where no scale is, it is how many are needed for any precision.
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
    """Chooses for one circuit in one ring. `intervals` bound the tensors of its program, by position.

    `expected`, if given, says what encryption with some parameters adds at most, in place of the prediction for the
    worst values within the intervals.
    """

    def __init__(
        self,
        circuit: Circuit,
        intervals: Sequence[Interval],
        ring_size: int,
        expected: Callable[[Parameters], float] | None = None,
    ) -> None:
        self._circuit = circuit
        self._intervals = intervals
        self._ring_size = ring_size
        self._error = self._predicted if expected is None else expected
        self._largest: dict[int, float] = {}
        for instruction in circuit.instructions:
            scales = (2 if instruction.pending else 1) - (circuit.depth - instruction.depth)
            self._largest[scales] = max(self._largest.get(scales, 1.0), instruction.reach)

    def choose(self, precision: float, scale_bits: int | None = None) -> Parameters | Misfit:
        """The secure parameters of the fewest primes, and of the fewest bits among these; or why there are none.

        `precision` bounds the absolute error that encryption adds to an element of a result; where `scale_bits` are
        given it is not asked for.
        """
        scales = SCALE_BITS
        if scale_bits is not None:
            scales, precision = range(scale_bits, scale_bits + 1), inf
        for base_primes in _BASE_PRIMES:
            best = self._best(base_primes, precision, scales, SECURE_BITS[self._ring_size])
            if best is not None:
                return replace(best, secure=True)
        for base_primes in reversed(_BASE_PRIMES):  # the more there are, the smaller the special prime may be
            best = self._best(base_primes, precision, scales, inf)
            if best is not None:
                return Misfit(self._ring_size, self._circuit.depth, best.total_bits)
        least = min([self.base_bits(scale) + (self._circuit.depth + 1) * scale for scale in scales])
        return Misfit(self._ring_size, self._circuit.depth, least)

    def base_bits(self, scale_bits: int) -> int:
        """The bits that the base must have at least, so that no value of the circuit ever wraps around its modulus.

        A value of reach r at depth d, at the scale s or s**2, needs log2(r) bits beside those of its scale, and has the
        base and one prime for each depth that is left.
        """
        needed = [log2(reach) + scales * scale_bits + _MARGIN_BITS for scales, reach in self._largest.items()]
        return ceil(max([scale_bits + 1.0, *needed]))

    def reason_against(self, parameters: Parameters) -> str | None:
        """Why parameters that were chosen elsewhere do not fit the circuit, if they do not. Precision is not asked."""
        depth, bits, needed = self._circuit.depth, sum(parameters.base_bits), self.base_bits(parameters.scale_bits)
        if parameters.depth != depth:
            return f"they have a depth of {parameters.depth}, and this plan one of {depth}"
        if bits < needed:
            return f"their base has {bits} bits, and values within the declared ranges need {needed}"
        return None

    def is_precise(self, parameters: Parameters, precision: float) -> bool:
        """Whether the error of every result is within the precision."""
        return self._error(parameters) <= precision

    def _predicted(self, parameters: Parameters) -> float:
        noise = output_noise(self._circuit, parameters, self._intervals)
        return DEVIATIONS * max(noise.values(), default=0.0)

    def _best(self, base_primes: int, precision: float, scales: range, limit: float) -> Parameters | None:
        """The precise parameters of the fewest bits, which are within a limit."""
        best, least = None, scales.start
        for margin in _SPECIAL_MARGINS:  # a scale that is not precise with one margin is not so with a smaller one
            found, least = self._least_precise(base_primes, margin, precision, range(least, scales.stop), limit)
            if found is not None:
                best, limit = found, found.total_bits - 1
        return best

    def _least_precise(
        self, base_primes: int, margin: int, precision: float, scales: range, limit: float
    ) -> tuple[Parameters | None, int]:
        """Those of the least scale, if they are within the limit; and the least scale that may be precise.

        By bisection, as noise falls with the scale; and as it halves with every bit, where it should be precise comes
        first.
        """
        low, high, found = scales.start, scales.stop, None
        likely = (low + high) // 2
        while low < high:
            middle = min(max(likely, low), high - 1)
            parameters = self._parameters(middle, base_primes, margin)
            if parameters is None or parameters.total_bits > limit:  # more scale bits need no fewer of the base
                high = middle
                likely = (low + high) // 2
                continue
            error = self._error(parameters) if precision < inf else 0.0
            if error <= precision:
                high, found = middle, parameters
            else:
                low = middle + 1
            likely = middle + ceil(log2(error / precision)) if 0 < error < inf else (low + high) // 2
        return found, low

    def _parameters(self, scale_bits: int, base_primes: int, margin: int) -> Parameters | None:
        """With the least base that can be split in so many primes; None where a prime would have too many bits."""
        base = self.base_bits(scale_bits)
        parts = [base * (at + 1) // base_primes - base * at // base_primes for at in range(base_primes)]
        if max(parts) > _MOST_BITS or (base_primes > 1 and min(parts) < _FEWEST_BITS):
            return None
        special = min(max(scale_bits, *parts) + margin, _MOST_BITS)
        return Parameters(self._ring_size, scale_bits, tuple(parts), self._circuit.depth, special, secure=False)
