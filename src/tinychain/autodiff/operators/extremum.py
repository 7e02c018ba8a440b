"""The larger and the smaller of two operands, element by element; not the reductions `max` and `min`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import ClassVar

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Sample, TensorNodeRecord
from tinychain.autodiff.operators.elementwise import PAIRS, MulOperator, SubOperator, WithLiteral
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.operators.unary import SignOperator


class _Extremum(WithLiteral):
    samples = PAIRS + (Sample(((4, 3),), {"right_literal": 0.25}), Sample(((),), {"right_literal": 3}))

    levels = (Level.FUNCTION_LITERAL, Level.FUNCTION_ALIGNED, Level.FUNCTION_BROADCASTING)

    #: The sign of x - y where the result is x.
    wins: ClassVar[float]

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        """The winner takes g, and a tie shares it: g * (0.5 + 0.5 * sign(x - y)) for the x of a maximum."""
        x, *rest = node.input_value_ids

        @cache  # both operands read it
        def sign() -> str:
            return emit(SignOperator, emit(SubOperator, x, *rest, **node.op_params))

        def share(half: float) -> str:
            weight = emit(SubOperator, emit(MulOperator, sign(), right_literal=half), right_literal=-0.5)
            return emit(MulOperator, g, weight)

        shares = partial(share, self.wins / 2), partial(share, -self.wins / 2)
        return shares[: len(node.input_value_ids)]


class MaximumOperator(_Extremum):
    """The larger of x and y, or of x and right_literal; NaN where either is, as in NumPy."""

    route_name = "maximum"
    inexact = "the larger of two numbers is no polynomial; no exact form exists"
    ufunc = "maximum"
    wins = 1.0


class MinimumOperator(_Extremum):
    """The smaller of x and y, or of x and right_literal; NaN where either is, as in NumPy."""

    route_name = "minimum"
    inexact = "the smaller of two numbers is no polynomial; no exact form exists"
    ufunc = "minimum"
    wins = -1.0
