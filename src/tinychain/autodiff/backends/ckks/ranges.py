"""Between which numbers the elements of every tensor lie, from the declared ranges of the inputs.

Interval arithmetic, operation by operation: a bound holds for all data within the ranges, and is seldom reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tinychain.autodiff.backends.ckks.declared import refused
from tinychain.autodiff.backends.ckks.program import Operation, Program
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)
from tinychain.autodiff.types import is_sequence


class Interval(NamedTuple):
    """All numbers from `low` to `high`, both among them."""

    low: float
    high: float

    @property
    def reach(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def within(self, largest: float) -> Interval:
        """Those of its numbers whose absolute value is not larger."""
        return Interval(min(max(self.low, -largest), largest), max(min(self.high, largest), -largest))


def bounds(program: Program, declared: Mapping[str, tuple[float, float]], largest: float = inf) -> Sequence[Interval]:
    """An interval by position in the program that holds every element of the tensor, up to rounding.

    `declared` has the lowest and the highest element of every input of the program by name; it may have others. No
    result of an operation is taken to be larger than `largest`.

    Raises invalid_encryption_plan for ranges that are missing, all of them in one message, or malformed, and for a
    tensor whose bound is beyond a float; unsupported_operator for another operator than the target's.
    """
    given = _checked(program, declared)
    found: list[Interval] = []
    for operation in program.operations:
        if operation.known is not None:
            interval = _of_array(operation.known)
        elif operation.operator is None:
            interval = given[operation.name]
        else:
            rule = _RULES.get(type(operation.operator))
            if rule is None:
                raise AutodiffError(
                    "unsupported_operator", f"{operation.label}: no bound of {operation.operator.name} is known"
                )
            operands = [_Operand(program.operations[position], found[position]) for position in operation.operands]
            interval = rule(operation, *operands).within(largest)
        if not (isfinite(interval.low) and isfinite(interval.high)):
            raise refused(
                f"{operation.label} of shape {[*operation.shape]} is bounded by no number that a float can hold;"
                " declare smaller ranges, or run fewer steps"
            )
        found.append(interval)
    return found


def widest(program: Program, intervals: Sequence[Interval]) -> tuple[str, float]:
    """The label of the tensor with the largest bound, and this bound."""
    operation = max(program.operations, key=lambda operation: intervals[operation.position].reach)
    return operation.label, intervals[operation.position].reach


def _checked(program: Program, declared: Mapping[str, Any]) -> dict[str, Interval]:
    if not isinstance(declared, Mapping):
        raise refused(f"ranges: expected a mapping from the name of an input to (low, high), got {quote(declared)}")
    missing = [name for name in program.inputs if name not in declared]
    if missing:
        raise refused(f"ranges: missing are {missing}; declare the lowest and the highest element of each")
    return {name: _interval(name, declared[name]) for name in program.inputs}


def _interval(name: str, given: Any) -> Interval:
    if is_sequence(given) and len(given) == 2 and not any(isinstance(end, (bool, str)) for end in given):
        try:
            low, high = map(float, given)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if isfinite(low) and isfinite(high) and low <= high:
                return Interval(low, high)
    raise refused(f"the range of {quote(name)}: expected two finite numbers (low, high), got {quote(given)}")


class _Operand(NamedTuple):
    operation: Operation
    interval: Interval


def _of_array(array: Any) -> Interval:
    return Interval(float(array.min()), float(array.max())) if array.size else Interval(0.0, 0.0)


def _add(operation: Operation, x: _Operand, y: _Operand) -> Interval:
    return Interval(x.interval.low + y.interval.low, x.interval.high + y.interval.high)


def _sub(operation: Operation, x: _Operand, y: _Operand | None = None) -> Interval:
    if y is not None and y.operation is x.operation:
        return Interval(0.0, 0.0)
    other = _literal(operation) if y is None else y.interval
    return Interval(x.interval.low - other.high, x.interval.high - other.low)


def _mul(operation: Operation, x: _Operand, y: _Operand | None = None) -> Interval:
    if y is not None and y.operation is x.operation:
        ends = sorted(map(abs, x.interval))
        return Interval(0.0 if x.interval.low < 0 < x.interval.high else ends[0] * ends[0], ends[1] * ends[1])
    return _product(x.interval, _literal(operation) if y is None else y.interval)


def _matmul(operation: Operation, x: _Operand, y: _Operand) -> Interval:
    for known, other, axis in ((y.operation.known, x.interval, -2), (x.operation.known, y.interval, -1)):
        if known is not None:  # each of its columns, or rows, is one weighted sum
            with np.errstate(all="ignore"):  # what leaves the floats is refused by the caller
                positive, negative = np.maximum(known, 0).sum(axis), np.minimum(known, 0).sum(axis)
                low, high = positive * other.low + negative * other.high, positive * other.high + negative * other.low
            return Interval(_of_array(low).low, _of_array(high).high)
    terms = x.operation.shape[-1]
    one = _product(x.interval, y.interval)
    return Interval(terms * one.low, terms * one.high)


def _same(operation: Operation, x: _Operand) -> Interval:
    return x.interval


def _product(x: Interval, y: Interval) -> Interval:
    corners = [a * b for a in x for b in y]
    return Interval(min(corners), max(corners))


def _literal(operation: Operation) -> Interval:
    number = float(operation.op_params["right_literal"])
    return Interval(number, number)


_Rule: TypeAlias = Callable[..., Interval]

_RULES: Final[Mapping[type[TensorOperator], _Rule]] = {
    AddOperator: _add,
    SubOperator: _sub,
    MulOperator: _mul,
    MatmulOperator: _matmul,
    TransposeOperator: _same,
    ReshapeOperator: _same,
}
