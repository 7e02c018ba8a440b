"""How far decrypted results should be off: every operation's own error, and what it makes of those of its operands.

All errors are standard deviations of a slot's real part, in units of the value. A polynomial whose coefficients have
the variance v has slots of the variance N v / 2 for a ring of N. Sources of the formulas:

- Encryption and encoding: Cheon, Kim, Kim and Song, "Homomorphic encryption for arithmetic of approximate numbers"
  (2017), section 3; the library draws errors from a centered binomial distribution of the variance 10.5, and secrets
  uniformly from -1, 0 and 1.
- Rescaling and switching keys: Kim, Papadimitriou and Polyakov, "Approximate homomorphic encryption with reduced
  approximation error" (2020), for one special prime. The library does not center the digits that a key is switched
  with. Their mean, q / 2 in every coefficient, is a polynomial that is up to 2 N / pi times as large in a slot, and is
  so in the first one. That slot is the one predicted; a special prime of ten bits more than the others removes the
  difference. Slot j of the library is the polynomial at the 3**j-th power of a primitive 2N-th root of unity.

Errors of different slots are independent where ciphertexts are encrypted, rescaled and switched. A sum over slots has
one error in all of them, though, and so has a number that is rounded when it is encoded. Where that meets other values
and is summed over the same slots again, errors add up as such and not in quadrature.

Values enter with their bounds, so predictions are larger than what is measured on data inside of them. Rounding errors
are multiplied by the secret, whose slots differ in size: over the slots they have a Laplace distribution, where k
deviations are exceeded with the probability exp(-sqrt(2) k), and not a normal one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import hypot, pi, sin, sqrt
from operator import add
from typing import Final, NamedTuple

from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.ranges import Interval

_ERROR: Final = 10.5
_SECRET: Final = 2 / 3
_ROUNDING: Final = 1 / 12


def output_noise(circuit: Circuit, parameters: Parameters, intervals: Sequence[Interval]) -> Mapping[str, float]:
    """The standard deviation of the error of each output, by name: of the worst of its ciphertexts, times its factor.

    `intervals` bound the tensors of the program, by position; those of the plain ones are read.

    Errors that may have a common origin are added as such, others in quadrature.
    """
    walk = _Walk(circuit, parameters, intervals)
    for position, dead in enumerate(circuit.last_uses):
        walk.step(position)
        walk.forget(dead)
    return {
        name: abs(output.factor)
        * max([walk.errors[position].total for position in output.blocks.values()], default=0.0)
        for name, output in circuit.outputs.items()
    }


class FreshErrors:
    """The errors that operations make themselves, beside those of their operands: one place for their deviations."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._ring = parameters.ring_size
        self._scale = 2.0**parameters.scale_bits

    def deviation(self, instruction: Instruction) -> float:
        """Of the first slot of the result, which no other exceeds; of one of the plaintext if `is_of_plaintext`."""
        return hypot(self.even(instruction), self.leaning(instruction))

    def even(self, instruction: Instruction) -> float:
        """The part that is alike in all slots."""
        scale = self._scale**2 if instruction.pending else self._scale
        match instruction.kind:
            case Kind.INPUT:
                return self._slot(_ERROR + _ROUNDING) / scale
            case Kind.RESCALE:
                return self._rounded(instruction.size) / scale
            case Kind.RELINEARIZE | Kind.ROTATE:
                return hypot(self._slot(self._digits(instruction.depth) * _ROUNDING), self._rounded(2)) / scale
            case Kind.ADD_PLAIN:
                return self._encoded(instruction) / scale
            case Kind.MULTIPLY_NUMBER | Kind.MULTIPLY_PLAIN:
                # The scale of the operand is that of every depth, so close that the difference does not matter here.
                return self._encoded(instruction) / self._scale
        return 0.0

    def leaning(self, instruction: Instruction) -> float:
        """The part, in the first slot, that falls off in the others: what the mean of digits makes of key errors."""
        if instruction.kind not in (Kind.RELINEARIZE, Kind.ROTATE):
            return 0.0
        scale = self._scale**2 if instruction.pending else self._scale
        return self._slot(self._digits(instruction.depth) * self._ring / pi**2) / scale

    def _slot(self, variance: float) -> float:
        """The deviation of a slot, from the variance of a coefficient."""
        return sqrt(self._ring / 2 * variance)

    def _encoded(self, instruction: Instruction) -> float:
        """One number is a polynomial of one coefficient, whose rounding is the same in all slots."""
        return sqrt(_ROUNDING) if is_alike(instruction) else self._slot(_ROUNDING)

    def _rounded(self, size: int) -> float:
        """Of a ciphertext whose polynomials are rounded: the second one is multiplied by the secret, a third twice."""
        secret = self._ring * _SECRET
        return self._slot(_ROUNDING * (1 + secret + (2 * secret**2 if size > 2 else 0)))

    def _digits(self, depth: int) -> float:
        """The variance of key errors times the squares of the digits that they are multiplied by in a key switch."""
        bits = self._parameters.modulus_bits[: self._parameters.primes_at(depth)]
        return sum([4.0 ** (own - self._parameters.special_bits) for own in bits]) * self._ring * _ERROR


def leanings(ring_size: int) -> Sequence[float]:
    """How large the errors of `FreshErrors.leaning` are in every slot, against the first: as the mean of digits is."""
    exponents = accumulate(range(1, ring_size // 2), lambda exponent, _: exponent * 3 % (2 * ring_size), initial=1)
    return [sin(pi / (2 * ring_size)) / sin(pi * exponent / (2 * ring_size)) for exponent in exponents]


def is_of_plaintext(instruction: Instruction) -> bool:
    """Whether the own error of an operation is that of a plaintext, which is multiplied by the operand."""
    return instruction.kind in (Kind.MULTIPLY_NUMBER, Kind.MULTIPLY_PLAIN)


def is_alike(instruction: Instruction) -> bool:
    """Whether one number is encoded for all slots."""
    match instruction.kind:
        case Kind.MULTIPLY_NUMBER:
            return True
        case Kind.ADD_PLAIN | Kind.MULTIPLY_PLAIN:
            return instruction.plain is not None and instruction.plain.is_number
    return False


class _Error(NamedTuple):
    """The deviations of a slot's error in three parts, which are independent of each other.

    `own` is another one in each slot, `shared` may be the same in slots whose addresses differ in these `bits` alone,
    and `uniform` may be the same in all slots of all ciphertexts.
    """

    own: float = 0.0
    shared: float = 0.0
    bits: int = 0
    uniform: float = 0.0

    @property
    def total(self) -> float:
        return hypot(self.own, self.shared, self.uniform)

    def times(self, bound: float) -> _Error:
        """What it comes to in a product with values within a bound, at worst the same value everywhere."""
        return _Error(self.own * bound, self.shared * bound, self.bits, self.uniform * bound)

    def plus(self, other: _Error, *, related: bool) -> _Error:
        """The error of a sum; `related` are errors that may have a common origin."""
        combined = add if related else hypot
        own, shared = combined(self.own, other.own), combined(self.shared, other.shared)
        return _Error(own, shared, self.bits | other.bits, self.uniform + other.uniform)

    def and_own(self, deviation: float) -> _Error:
        """With another error beside it, which is another one in each slot."""
        return self._replace(own=hypot(self.own, deviation)) if deviation else self

    def folded(self, turned: _Error, bit: int) -> _Error:
        """The error of the sum with the same value rotated by this bit of a slot's address."""
        shared = (add if self.bits & bit else hypot)(self.shared, turned.shared)
        shared = hypot(shared, self.own, turned.own)
        return _Error(0.0, shared, self.bits | bit, self.uniform + turned.uniform)

    def repeated(self, floor: _Error, bit: int) -> _Error:
        """The error of the sum with the same value rotated by this bit, where the one or the other is zero."""
        shared = hypot(self.shared, self.own, floor.total)
        return _Error(0.0, shared, self.bits | bit, self.uniform)


class _Walk:
    """The errors of a circuit's values that are still read.

    `_origins` has a bit for every input and rotation that is in an error.
    `_floors` are the errors of the slots that a mask made zero, where that is known; elsewhere those of all slots.
    """

    def __init__(self, circuit: Circuit, parameters: Parameters, intervals: Sequence[Interval]) -> None:
        self._intervals = intervals
        self._instructions = circuit.instructions
        self._fresh = FreshErrors(parameters)
        self._origins: dict[int, int] = {}
        self._origins_made = 0
        self._floors: dict[int, _Error] = {}
        self.errors: dict[int, _Error] = {}

    def step(self, position: int) -> None:
        """Adds the error of the next value."""
        instruction = self._instructions[position]
        error, added = self._inherited(instruction), self._fresh.deviation(instruction)
        if is_of_plaintext(instruction):
            added *= self._instructions[instruction.operands[0]].reach
        alike = error._replace(uniform=hypot(error.uniform, added))
        error = alike if is_alike(instruction) else error.and_own(added)
        self.errors[position] = error
        self._floors[position] = self._floor(instruction, error, added)
        origins = 0
        if instruction.kind in (Kind.INPUT, Kind.ROTATE):
            origins = 1 << self._origins_made
            self._origins_made += 1
        else:
            for operand in instruction.operands:
                origins |= self._origins[operand]
        self._origins[position] = origins

    def forget(self, positions: Iterable[int]) -> None:
        """What nothing reads any more: origins have as many bits as there were inputs and rotations before."""
        for position in positions:
            del self.errors[position], self._floors[position], self._origins[position]

    def _inherited(self, instruction: Instruction) -> _Error:
        """What the errors of the operands come to in the result."""
        errors = [self.errors[operand] for operand in instruction.operands]
        reaches = [self._instructions[operand].reach for operand in instruction.operands]
        match instruction.kind:
            case Kind.INPUT:
                return _Error()
            case Kind.SQUARE:
                return errors[0].times(2 * reaches[0] + errors[0].total)
            case Kind.MULTIPLY:
                x, y = errors[0].times(reaches[1] + errors[1].total), errors[1].times(reaches[0])
                return x.plus(y, related=self._are_related(instruction))
            case Kind.ADD | Kind.SUB:
                x, y = errors
                one, other = instruction.operands
                turned = self._instructions[other]
                if instruction.disjoint:
                    return x.repeated(self._floors[other], abs(turned.steps))
                if turned.kind is Kind.ROTATE and turned.operands == (one,):
                    return x.folded(y, abs(turned.steps))
                return x.plus(y, related=self._are_related(instruction))
            case Kind.MULTIPLY_NUMBER:
                return errors[0].times(abs(instruction.number))
            case Kind.MULTIPLY_PLAIN if instruction.plain is not None:
                value, factor, *_, zero_bits, _ = instruction.plain
                kept = errors[0].bits & ~sum([1 << bit for bit in zero_bits])  # only one of these slots has it still
                masked = errors[0]._replace(bits=kept)
                return masked.times(abs(factor) * (1.0 if value is None else self._intervals[value].reach))
        return errors[0]

    def _floor(self, instruction: Instruction, error: _Error, added: float) -> _Error:
        """The error of the zeros among the slots of a result that has this error."""
        floors = [self._floors[operand] for operand in instruction.operands]
        match instruction.kind:
            case Kind.MULTIPLY_PLAIN if instruction.plain is not None and instruction.plain.zero_bits:
                return _Error(added)
            case Kind.RESCALE | Kind.RELINEARIZE | Kind.ROTATE:
                return floors[0].and_own(added)
            case Kind.ADD if instruction.disjoint:
                return floors[0].plus(floors[1], related=False)
        return error

    def _are_related(self, instruction: Instruction) -> bool:
        one, other = instruction.operands
        return bool(self._origins[one] & self._origins[other])
