"""What a node means over a prime field: field operations where it has such a meaning, else a random function.

A random function gives equal results for equal operands and nothing else away, so two artifacts that agree on it agree
whatever the operator computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from fractions import Fraction
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from tinychain.autodiff.graph import TensorOperator, plain
from tinychain.autodiff.literals import rational
from tinychain.autodiff.operators import (
    ConstantOperator,
    DivOperator,
    ExpOperator,
    FillOperator,
    LogOperator,
    MatmulOperator,
    MaximumOperator,
    MaxOperator,
    MeanOperator,
    MinimumOperator,
    MinOperator,
    SignOperator,
    SqrtOperator,
)
from tinychain.autodiff.operators.reduction import explicit_axes
from tinychain.autodiff.types import check_literal
from tinychain.autodiff.verify.field import Elements, Field, integers
from tinychain.autodiff.verify.growth import RULES
from tinychain.autodiff.verify.plan import Plan, Step, UndefinedError

_POINTWISE: Final = (SqrtOperator, ExpOperator, LogOperator, SignOperator, MaximumOperator, MinimumOperator)
_ROWWISE: Final = (MaxOperator, MinOperator)
#: Their result does not depend on the order of what they compare.
_SYMMETRIC: Final = (MaximumOperator, MinimumOperator, MaxOperator, MinOperator)


class Kind(Enum):
    """How the result comes about."""

    FIELD = "field operations"
    CONSTANT = "a fill or a constant"
    POINTWISE = "a random function of the operands' elements at each place"
    ROWWISE = "a random function of each group of elements that is reduced"
    WHOLE = "a random function of all operands"


class Meaning(NamedTuple):
    """The kind, the literal as a further operand if there is one, the random function's name, a constant's numbers.

    The numbers are in row-major order; a fill has one.
    """

    kind: Kind
    literal: Fraction | None = None
    name: str = ""
    numbers: tuple[Fraction, ...] = ()


_FIELD: Final = Meaning(Kind.FIELD)


def meaning(step: Step, plan: Plan) -> Meaning:
    """What a step means. One with an infinite literal, a division by the literal 0 or a mean of nothing is random."""
    node = step.node
    operator = type(node.operator)
    if not step.op_params and operator in RULES:
        return _FIELD  # nearly all nodes
    if operator is ConstantOperator:
        return _constant(step, plan)
    raw = step.op_params.get("fill" if operator is FillOperator else "right_literal")
    if operator in RULES or operator is FillOperator or operator in _POINTWISE:
        literal = None if raw is None else rational(check_literal(raw), plan.types[node.output_value_id].dtype)
        if raw is not None and literal is None:
            return Meaning(Kind.POINTWISE, None, _name(operator, raw))
        if operator in _POINTWISE:
            return Meaning(Kind.POINTWISE, literal, _name(operator))
        if operator is DivOperator and literal == 0:
            return Meaning(Kind.POINTWISE, None, _name(operator, raw))
        if operator is MeanOperator and not prod(plan.shapes[node.input_value_ids[0]]):
            return Meaning(Kind.POINTWISE, None, _name(operator))
        if operator is FillOperator and literal is not None:
            return Meaning(Kind.CONSTANT, numbers=(literal,))
        return Meaning(Kind.FIELD, literal)
    if operator in _ROWWISE:
        return Meaning(Kind.ROWWISE, None, _name(operator))
    return _whole(step)


def evaluate(step: Step, what: Meaning, operands: list[Elements], shape: Sequence[int], field: Field) -> Elements:
    """The value of a step over the field. Raises UndefinedError where it divides by zero."""
    try:
        if what.kind is Kind.CONSTANT:
            elements = {number: field.constant(number) for number in set(what.numbers)}
            values = field.tensor([elements[number] for number in what.numbers], [len(what.numbers)])
            return np.full(shape, values[0], dtype=object) if len(values) == 1 else values.reshape(shape)
        if what.literal is not None:
            operands = [*operands, np.array(field.constant(what.literal), dtype=object)]
        if what.kind is Kind.FIELD:
            return _field_operation(step, operands, what.literal is not None, shape, field)
    except ZeroDivisionError:
        node = step.node
        raise UndefinedError(f"node {node.node_id!r} ({node.operator.name}) divides by zero") from None
    symmetric = type(step.node.operator) in _SYMMETRIC

    def random(arguments: Iterable[int]) -> Any:
        return field.random_function(what.name, sorted(arguments) if symmetric else arguments)

    if what.kind is Kind.POINTWISE:
        if not operands or not all(operand.size for operand in operands):
            return np.full(shape, random(()), dtype=object)
        places = zip(*map(integers, np.broadcast_arrays(*operands)), strict=True)
        return field.tensor(map(random, places), shape)
    if what.kind is Kind.ROWWISE:
        return field.tensor(map(random, _rows(operands[0], step.op_params["axes"])), shape)
    known = [number for operand in operands for number in (operand.ndim, *operand.shape, *integers(operand))]
    return field.tensor([random((place, *known)) for place in range(prod(shape))], shape)


def _field_operation(
    step: Step, operands: list[Elements], has_literal: bool, shape: Sequence[int], field: Field
) -> Elements:
    operator = step.node.operator
    if type(operator) is MatmulOperator:
        return field.matmul(*operands)
    op_params = {} if has_literal else step.op_params
    result = np.asarray(operator.reference(np, *operands, **op_params), dtype=object)
    if result.size and not all(operand.size for operand in operands):
        return field.tensor(result.ravel().tolist(), shape)  # NumPy adds nothing up to a plain 0
    return result


def _rows(x: Elements, axes: Any) -> list[list[int]]:
    """The elements that go into each element of the result, in row-major order of the result."""
    reduced = explicit_axes(axes, x.shape)
    kept = [axis for axis in range(x.ndim) if axis not in reduced]
    length = prod([x.shape[axis] for axis in reduced])
    numbers = integers(x.transpose([*kept, *reduced]))
    if not length:
        return [[] for _ in range(prod([x.shape[axis] for axis in kept]))]
    return [numbers[start : start + length] for start in range(0, len(numbers), length)]


def _constant(step: Step, plan: Plan) -> Meaning:
    """One with an infinity or a NaN in it is random."""
    dtype = plan.types[step.node.output_value_id].dtype
    numbers = [rational(check_literal(value), dtype) for value in step.op_params["values"]]
    known = tuple([number for number in numbers if number is not None])
    return Meaning(Kind.CONSTANT, numbers=known) if len(known) == len(numbers) else _whole(step)


def _whole(step: Step) -> Meaning:
    operator = step.node.operator
    params = sorted(map(repr, plain(step.op_params).items()))
    return Meaning(Kind.WHOLE, None, _name(type(operator), operator.route_name, params))


def _name(operator: type[TensorOperator], *more: object) -> str:
    return repr((operator.__module__, operator.__qualname__, *more))
