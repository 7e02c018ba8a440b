"""A division by numbers that are written in the program is a multiplication with their reciprocals.

It is no rule of the operator's class, as a rule sees a form, and not the numbers of an operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.constants import constant_descriptor, fill_descriptor
from tinychain.autodiff.graph import Decline, ExpansionRule, TensorNodeRecord
from tinychain.autodiff.literals import reciprocals
from tinychain.autodiff.operators import FillOperator, MulOperator
from tinychain.autodiff.operators.region import MAX_CONSTANT, region_of, too_large


def division_by(divisor: TensorNodeRecord) -> ExpansionRule:
    """The rule for divisions by this fill or constant.

    It multiplies by a literal where a fill repeats nothing, else by a fill or a constant, as the divisor is; by two of
    them where some number has no literal for its reciprocal. It declines where a reciprocal is no normal number of the
    dtype, that of 0 among them, and beyond 2**20 numbers. Raises as `fill_descriptor` and `constant_descriptor` do.
    """
    is_fill = isinstance(divisor.operator, FillOperator)
    numbers = [fill_descriptor(divisor).fill] if is_fill else constant_descriptor(divisor).values

    def rule(emit: Emitter, node: TensorNodeRecord) -> Decline | None:
        region = region_of(emit, node)
        if isinstance(region, Decline):
            return region
        factors = _factors(numbers, region.result.dtype)
        if isinstance(factors, Decline):
            return factors
        x = region.x
        for i, row in enumerate(factors, 1):
            into = node.output_value_id if i == len(factors) else None
            if is_fill and emit.type(x) == region.result:
                x = emit(MulOperator, x, right_literal=row[0], into=into)
            else:
                values = {"fill": row[0]} if is_fill else {"values": row}
                factor = emit(type(divisor.operator), **{**divisor.op_params, **values})
                x = emit(MulOperator, x, factor, into=into)
        return None

    rule.__qualname__ = "division by reciprocals"
    return rule


def _factors(numbers: Sequence[float], dtype: str) -> list[list[float]] | Decline:
    """For each factor its part of every number's reciprocal."""
    if len(numbers) > MAX_CONSTANT:
        return too_large(len(numbers))
    found = {number: reciprocals(number, dtype) for number in dict.fromkeys(numbers)}
    for number, parts in found.items():
        if not parts:
            return Decline(f"1 / {quote(number)} is no normal number in {dtype}")
    count = max(map(len, found.values()), default=1)
    return [[(*found[number], 1.0)[factor] for number in numbers] for factor in range(count)]
