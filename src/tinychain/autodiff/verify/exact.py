"""Both artifacts at random points of a random prime field.

Artifacts whose outputs are different rational functions agree there with a probability of, up to a small factor,
(degree + bits of the coefficients) / prime: the lemma of Schwartz and Zippel for the point, and for the prime that few
of its size divide all coefficients of a polynomial.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod
from random import Random
from typing import Any, Final, NamedTuple

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.operators import DivOperator, MeanOperator
from tinychain.autodiff.verify.field import Elements, Field
from tinychain.autodiff.verify.growth import RULES, VARIABLE, Algebra, Growth, reduced_count
from tinychain.autodiff.verify.meaning import Kind, Meaning, evaluate, meaning
from tinychain.autodiff.verify.plan import Plan, Step, UndefinedError

#: The base-2 logarithm of the largest accepted probability that a difference goes unseen.
ERROR_EXPONENT: Final = -40
_FEWEST_BITS: Final = 61
_MOST_BITS: Final = 1024
_REDRAWS: Final = 8


class Readings(NamedTuple):
    """A plan and what each of its steps means."""

    plan: Plan
    meanings: list[Meaning]

    def values(
        self, field: Field, inputs: dict[str, Elements], observe: Callable[[str, Elements], None] | None = None
    ) -> list[Elements]:
        meanings = iter(self.meanings)

        def compute(step: Step, operands: list[Any]) -> Elements:
            shape = self.plan.shapes[step.node.output_value_id]
            return evaluate(step, next(meanings), operands, shape, field)

        return self.plan.run(inputs, compute, observe)


class Bound(NamedTuple):
    """The degree of the difference of two outputs, and what the probability of an error is a multiple of."""

    degree: int
    weight: int

    @property
    def field_bits(self) -> int:
        """The bits of a prime that keeps the error below 2**ERROR_EXPONENT."""
        return max(_FEWEST_BITS, self.weight.bit_length() + 3 - ERROR_EXPONENT)

    def error(self, trials: int) -> float:
        """The probability that a difference goes unseen in every one of so many trials."""
        # Of the primes with b bits, more than 2**b / (2.4 * b) in number, at most bits / (b - 1) divide a polynomial; a
        # point is a root with a probability of at most degree * 2 / 2**b. That no divisor is zero at most doubles both.
        return float(Fraction(8 * self.weight, 2**self.field_bits) ** trials)


def read(plan: Plan) -> Readings:
    """What each step of a plan means."""
    return Readings(plan, [meaning(step, plan) for step in plan.steps])


def bound(before: Readings, after: Readings) -> Bound:
    """The bound for a pair. Raises invalid_verification where a polynomial is too large for any field in use here."""
    algebra = Algebra(_unit_bits(before, after))
    tally = _Tally(algebra)
    grown = [tally.grow(readings) for readings in (before, after)]
    differences = [algebra.add(x, y) for x, y in zip(*grown, strict=True)]
    degree = max([difference.degree for difference in differences], default=0)
    weight = max([_size(difference) for difference in differences], default=0)
    result = Bound(degree, weight + tally.weight() + algebra.unit_bits)
    if result.field_bits > _MOST_BITS:
        raise _too_large("an output")
    return result


def draw(before: Plan, after: Plan, bits: int, seed: str) -> tuple[Field, dict[str, Elements]]:
    """A field, and a point of it for the inputs of both."""
    field = Field(bits, Random(seed))
    shapes = {value_id: plan.shapes[value_id] for plan in (after, before) for value_id in plan.inputs}
    return field, {value_id: field.draw(shapes[value_id]) for value_id in sorted(shapes)}


class Trial(NamedTuple):
    """Both artifacts' outputs at one point, and how to get there again."""

    field: Field
    inputs: dict[str, Elements]
    before: list[Elements]
    after: list[Elements]


def run_trial(before: Readings, after: Readings, bits: int, seed: int) -> Trial:
    """The values at the first point of a seed where no divisor is zero; invalid_verification if there is none."""
    for redraw in range(_REDRAWS):
        field, inputs = draw(before.plan, after.plan, bits, f"{seed}/{redraw}")
        try:
            return Trial(field, inputs, before.values(field, inputs), after.values(field, inputs))
        except UndefinedError as error:
            reason = str(error)
    raise AutodiffError(
        "invalid_verification", f"{reason} at each of {_REDRAWS} random points; its divisor seems to be zero everywhere"
    )


class _Tally:
    """Adds up what can go wrong on the way: a divisor or a difference of two arguments that happens to be zero."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra
        self._divisors = 0
        self._arguments = VARIABLE  # of random functions, all together
        self._compared = 0

    def grow(self, readings: Readings) -> list[Growth]:
        """The growth of the outputs."""
        plan = readings.plan
        meanings = iter(readings.meanings)

        def compute(step: Step, operands: list[Growth]) -> Growth:
            result = self._result(plan, step, next(meanings), operands)
            if sum(result).bit_length() > _MOST_BITS:
                raise _too_large(f"the result of node {quote(step.node.node_id)} ({step.node.operator.name})")
            return result

        return plan.run(dict.fromkeys(plan.inputs, VARIABLE), compute)

    def weight(self) -> int:
        pairs = self._compared * (self._compared - 1) // 2
        return self._divisors + pairs * _size(self._algebra.add(self._arguments, self._arguments))

    def _result(self, plan: Plan, step: Step, what: Meaning, operands: list[Growth]) -> Growth:
        node = step.node
        if what.kind is Kind.CONSTANT:
            return self._algebra.literal(*what.numbers)
        if what.literal is not None:
            operands = [*operands, self._algebra.literal(what.literal)]
        shape = plan.shapes[node.output_value_id]
        if what.kind is Kind.FIELD:
            rule = RULES[type(node.operator)]
            terms = 1 if rule.terms is None else rule.terms(plan.shapes[node.input_value_ids[0]], shape)
            if type(node.operator) is DivOperator and what.literal is None:
                self._divisors += prod(plan.shapes[node.input_value_ids[1]]) * _size(operands[1])
            return rule.result(self._algebra, operands, terms)
        for operand in operands:
            self._arguments = self._arguments.join(operand)
        self._compared += prod(shape) + sum([prod(plan.shapes[operand]) for operand in node.input_value_ids])
        return VARIABLE


def _unit_bits(before: Readings, after: Readings) -> int:
    """The bits of the product of all distinct denominators."""
    denominators = set()
    for plan, meanings in (before, after):
        for step, what in zip(plan.steps, meanings, strict=True):
            denominators.update([number.denominator for number in what.numbers])
            if what.literal is not None:
                denominators.add(what.literal.denominator)
            elif type(step.node.operator) is MeanOperator and what.kind is Kind.FIELD:
                node = step.node
                denominators.add(reduced_count(plan.shapes[node.input_value_ids[0]], plan.shapes[node.output_value_id]))
    return sum([denominator.bit_length() for denominator in denominators if denominator > 1])


def _size(growth: Growth) -> int:
    return growth.degree + growth.bits


def _too_large(what: str) -> AutodiffError:
    return AutodiffError(
        "invalid_verification",
        f"the degree or the coefficients of {what} are too large to be told apart modulo a prime of {_MOST_BITS} bits;"
        " verify a part of the artifact with fewer operations between its inputs and outputs",
    )
