"""How large the polynomials behind the values of an artifact can be, operator by operator.

Every element of a value is N / (B**e * D): polynomials N and D with integer coefficients, in the inputs and in the
values of random functions, and one integer B, the product of all denominators of literals, that a whole check shares.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Final, NamedTuple

from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    BroadcastReduceOperator,
    DivOperator,
    MatmulOperator,
    MeanOperator,
    MulOperator,
    ProductOperator,
    ReshapeOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)


class Growth(NamedTuple):
    """Upper bounds for all elements of a value.

    `degree` and `bits` are of N, `low_degree` and `low_bits` of D; bits bound the base-2 logarithm of the sum of the
    coefficients' absolute values. `power` is e.
    """

    degree: int
    bits: int
    low_degree: int = 0
    low_bits: int = 0
    power: int = 0

    def join(self, other: Growth) -> Growth:
        """What bounds both."""
        return Growth(*map(max, self, other))


VARIABLE: Final = Growth(1, 0)


class Algebra(NamedTuple):
    """The growth of results, given `unit_bits`, the bits of B."""

    unit_bits: int

    def literal(self, *numbers: Fraction) -> Growth:
        """What bounds all of these numbers."""
        fractional = any(number.denominator != 1 for number in numbers)
        bits = max([_bits(abs(number.numerator)) for number in numbers], default=0)
        return Growth(0, bits + fractional * self.unit_bits, power=int(fractional))

    def add(self, x: Growth, y: Growth) -> Growth:
        power = max(x.power, y.power)
        return Growth(
            max(x.degree + y.low_degree, y.degree + x.low_degree),
            max(
                x.bits + y.low_bits + (power - x.power) * self.unit_bits,
                y.bits + x.low_bits + (power - y.power) * self.unit_bits,
            )
            + 1,
            x.low_degree + y.low_degree,
            x.low_bits + y.low_bits,
            power,
        )

    def mul(self, x: Growth, y: Growth) -> Growth:
        return Growth(*map(int.__add__, x, y))

    def div(self, x: Growth, y: Growth) -> Growth:
        return Growth(
            x.degree + y.low_degree,
            x.bits + y.low_bits + y.power * self.unit_bits,
            x.low_degree + y.degree,
            x.low_bits + y.bits,
            x.power,
        )

    def sum(self, x: Growth, terms: int) -> Growth:
        others = max(terms - 1, 0)
        return Growth(
            x.degree + others * x.low_degree,
            x.bits + others * x.low_bits + _bits(terms),
            x.low_degree + others * x.low_degree,
            x.low_bits + others * x.low_bits,
            x.power,
        )

    def mean(self, x: Growth, terms: int) -> Growth:
        total = self.sum(x, terms)
        return total._replace(bits=total.bits + self.unit_bits, power=total.power + 1)

    def product(self, x: Growth, factors: int) -> Growth:
        return Growth(*[field * factors for field in x])


Shape = tuple[int, ...]


class Rule(NamedTuple):
    """`result(algebra, operands, terms)`; `terms` says from the shapes of operand and result how many are added up."""

    result: Callable[[Algebra, list[Growth], int], Growth]
    terms: Callable[[Shape, Shape], int] | None = None


def reduced_count(operand: Shape, result: Shape) -> int:
    """How many elements of the operand go into one of the result."""
    return prod(operand) // max(prod(result), 1)


_MOVEMENT: Final = Rule(lambda algebra, operands, terms: operands[0])
_SUM: Final = Rule(lambda algebra, operands, terms: algebra.sum(operands[0], terms), reduced_count)
_ADD: Final = Rule(lambda algebra, operands, terms: algebra.add(*operands))

#: The operators that mean field operations. A `right_literal` counts as a second operand.
RULES: Final[dict[type[TensorOperator], Rule]] = {
    AddOperator: _ADD,
    SubOperator: _ADD,
    MulOperator: Rule(lambda algebra, operands, terms: algebra.mul(*operands)),
    DivOperator: Rule(lambda algebra, operands, terms: algebra.div(*operands)),
    MatmulOperator: Rule(
        lambda algebra, operands, terms: algebra.sum(algebra.mul(*operands), terms), lambda operand, _: operand[-1]
    ),
    SumOperator: _SUM,
    BroadcastReduceOperator: _SUM,
    MeanOperator: Rule(lambda algebra, operands, terms: algebra.mean(operands[0], terms), reduced_count),
    ProductOperator: Rule(lambda algebra, operands, terms: algebra.product(operands[0], terms), reduced_count),
    ReshapeOperator: _MOVEMENT,
    BroadcastOperator: _MOVEMENT,
    TransposeOperator: _MOVEMENT,
}


def _bits(count: int) -> int:
    """The base-2 logarithm, rounded up; 0 for 0."""
    return (count - 1).bit_length() if count > 0 else 0
