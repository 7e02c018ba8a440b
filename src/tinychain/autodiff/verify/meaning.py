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
from tinychain.autodiff.operators import (
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
from tinychain.autodiff.verify.rational import rational

_POINTWISE: Final = (SqrtOperator, ExpOperator, LogOperator, SignOperator, MaximumOperator, MinimumOperator)
_ROWWISE: Final = (MaxOperator, MinOperator)
#: Their result does not depend on the order of what they compare.
_SYMMETRIC: Final = (MaximumOperator, MinimumOperator, MaxOperator, MinOperator)


class Kind(Enum):
    """How the result comes about."""

    FIELD = "field operations"
    CONSTANT = "a fill"
    POINTWISE = "a random function of the operands' elements at each place"
    ROWWISE = "a random function of each group of elements that is reduced"
    WHOLE = "a random function of all operands"


class Meaning(NamedTuple):
    """The kind, the literal as a further operand if there is one, and the random function's name."""

    kind: Kind
    literal: Fraction | None = None
    name: str = ""


_FIELD: Final = Meaning(Kind.FIELD)


def meaning(step: Step, plan: Plan) -> Meaning:
    """What a step means. One with an infinite literal, a division by the literal 0 or a mean of nothing is random."""
    node = step.node
    operator = type(node.operator)
    if not step.op_params and operator in RULES:
        return _FIELD  # nearly all nodes
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
        return Meaning(Kind.CONSTANT if operator is FillOperator else Kind.FIELD, literal)
    if operator in _ROWWISE:
        return Meaning(Kind.ROWWISE, None, _name(operator))
    params = sorted(map(repr, plain(step.op_params).items()))
    return Meaning(Kind.WHOLE, None, _name(operator, node.operator.route_name, params))


def evaluate(step: Step, what: Meaning, operands: list[Elements], shape: Sequence[int], field: Field) -> Elements:
    """The value of a step over the field. Raises UndefinedError where it divides by zero."""
    try:
        if what.literal is not None:
            number = np.array(field.constant(what.literal), dtype=object)
            if what.kind is Kind.CONSTANT:
                return np.full(shape, number, dtype=object)
            operands = [*operands, number]
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


def _name(operator: type[TensorOperator], *more: object) -> str:
    return repr((operator.__module__, operator.__qualname__, *more))
