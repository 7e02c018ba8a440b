"""A division by numbers that are written in the program is a multiplication with their reciprocals.

It is no rule of the operator's class, as a rule sees a form, and not the numbers of an operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.constants import constant_descriptor, fill_descriptor
from tinychain.autodiff.expansion.planner import CONSTANTS
from tinychain.autodiff.graph import Decline, ExpansionRule, TensorNodeRecord
from tinychain.autodiff.hashing import params_text
from tinychain.autodiff.literals import reciprocals
from tinychain.autodiff.operators import DivOperator, FillOperator, MulOperator, ReshapeOperator
from tinychain.autodiff.operators.region import MAX_CONSTANT, region_of, too_large
from tinychain.autodiff.types import is_sequence


class Numbers:
    """The fills and constants among the nodes that were noted, and the values that are a reshape of one.

    Many nodes may divide by the same numbers, so these are read out once, and reshapes to one shape are one record.
    """

    def __init__(self) -> None:
        self._by_value: dict[str, TensorNodeRecord] = {}
        self._reshaped: dict[tuple[object, ...], TensorNodeRecord] = {}
        self._keys: dict[int, tuple[TensorNodeRecord, tuple[object, ...]]] = {}  # an id holds while its record lives

    def note(self, node: TensorNodeRecord) -> None:
        """Nobody has judged the node yet."""
        if type(node.operator) in CONSTANTS:
            self._by_value[node.output_value_id] = node
        elif type(node.operator) is ReshapeOperator and len(node.input_value_ids) == 1:
            numbers, shape = self._by_value.get(node.input_value_ids[0]), node.op_params.get("shape")
            if numbers is not None and is_sequence(shape) and all(isinstance(dim, int) for dim in shape):
                self._by_value[node.output_value_id] = self._in_shape(numbers, shape, node)

    def divisor(self, node: TensorNodeRecord) -> TensorNodeRecord | None:
        """The fill or constant by which a node divides, if it does."""
        operands = node.input_value_ids if type(node.operator) is DivOperator else []
        return self._by_value.get(operands[1]) if len(operands) == 2 else None

    def key(self, divisor: TensorNodeRecord) -> tuple[object, ...]:
        """The same for equal numbers in one shape."""
        if id(divisor) not in self._keys:
            self._keys[id(divisor)] = divisor, (type(divisor.operator), params_text(divisor.op_params))
        return self._keys[id(divisor)][1]

    def _in_shape(self, numbers: TensorNodeRecord, shape: Sequence[int], node: TensorNodeRecord) -> TensorNodeRecord:
        key = id(numbers), tuple(shape), id(node.output_typespec)
        if key not in self._reshaped:
            params = {**numbers.op_params, "shape": shape}
            self._reshaped[key] = replace(numbers, op_params=params, output_typespec=node.output_typespec)
        return self._reshaped[key]


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
