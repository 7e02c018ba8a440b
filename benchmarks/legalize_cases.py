"""Every operator in each of its forms, at each rank from 0 to 4: what the table of docs/legalize.md judges."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, permutations
from math import prod
from typing import Any, Final, NamedTuple

from tinychain.autodiff.expansion import transpose_by_constants
from tinychain.autodiff.expansion.planner import Rules
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    BroadcastReduceOperator,
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
    MulOperator,
    ProductOperator,
    ReshapeOperator,
    SignOperator,
    SqrtOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)

Shape = tuple[int, ...]

_Operators = tuple[type[TensorOperator], ...]

_ELEMENTWISE: Final[_Operators] = (
    AddOperator,
    SubOperator,
    MulOperator,
    DivOperator,
    MaximumOperator,
    MinimumOperator,
)
_UNARY: Final[_Operators] = (SqrtOperator, ExpOperator, LogOperator, SignOperator)
_REDUCTIONS: Final[_Operators] = (SumOperator, MeanOperator, MaxOperator, MinOperator, ProductOperator)
_SIZES: Final = (2, 3, 4, 5)
_SHAPES: Final = tuple([_SIZES[:rank] for rank in range(5)])
_ASKED: Final[Rules] = {TransposeOperator: [transpose_by_constants]}


class Case(NamedTuple):
    """One node on operands of these shapes. Cases of one operator and form make one row, whatever their rank."""

    operator: type[TensorOperator]
    form: str
    rank: int
    shapes: Sequence[Shape]
    op_params: Mapping[str, Any] = {}
    rules: Rules = {}


def all_cases() -> Iterator[Case]:
    """In the order of the table."""
    for operator in _ELEMENTWISE:
        yield from _elementwise(operator)
    for operator in _UNARY:
        yield from [Case(operator, "any", len(shape), [shape]) for shape in _SHAPES]
    yield from _matmuls()
    for operator in _REDUCTIONS:
        yield from _reductions(operator)
    yield from _broadcasts()
    yield from _moves()
    for shape in _SHAPES:
        yield Case(FillOperator, "any", len(shape), [], {"fill": 1.5, "dtype": "f64", "shape": [*shape]})
        values = [float(i) for i in range(prod(shape))]
        yield Case(ConstantOperator, "any", len(shape), [], {"values": values, "dtype": "f64", "shape": [*shape]})


def _subsets(shape: Shape) -> Iterator[Shape]:
    """Every set of axes, none and all among them."""
    axes = range(len(shape))
    return chain.from_iterable([combinations(axes, count) for count in range(len(shape) + 1)])


def _where(axes: Collection[int], rank: int) -> str:
    """Where the axes lie, which decides what they cost."""
    if len(axes) in (0, rank):
        return "all" if axes else "none"
    lead = next(axis for axis in range(rank) if axis not in axes)
    tail = next(axis for axis in range(rank) if rank - 1 - axis not in axes)
    if lead + tail < len(axes):
        return "between others"
    return "first" if not tail else "last" if not lead else "first and last"


def _with_ones(shape: Shape, axes: Collection[int]) -> Shape:
    return tuple([1 if axis in axes else dim for axis, dim in enumerate(shape)])


def _shorter(shape: Shape) -> Iterator[tuple[str, Shape]]:
    """Every shape that broadcasts to this one, and along which axes."""
    for axes in _subsets(shape):
        yield _where(axes, len(shape)), _with_ones(shape, axes)
    for lead in range(1, len(shape) + 1):
        yield _where(range(lead), len(shape)), shape[lead:]


def _elementwise(operator: type[TensorOperator]) -> Iterator[Case]:
    for shape in _SHAPES:
        for where, shorter in _shorter(shape):
            form = "equal shapes" if where == "none" else f"one operand stretched, axes: {where}"
            yield Case(operator, form, len(shape), [shape, shorter])
            yield Case(operator, form, len(shape), [shorter, shape])
        for axes in list(_subsets(shape))[1:-1]:
            rest = [axis for axis in range(len(shape)) if axis not in axes]
            pair = [_with_ones(shape, axes), _with_ones(shape, rest)]
            yield Case(operator, "both operands stretched", len(shape), pair)
        for literal in (3.0, 0.0) if "right_literal" in operator.params else ():
            yield Case(operator, f"literal: {literal}", len(shape), [shape], {"right_literal": literal})


def _matmuls() -> Iterator[Case]:
    for batch in ((), (2,), (2, 3)):
        ones = tuple([1 for _ in batch])
        rank, equal = len(batch) + 2, "equal batch dims" if batch else "two matrices"
        yield Case(MatmulOperator, equal, rank, [(*batch, 3, 4), (*batch, 4, 5)])
        if batch:
            yield Case(MatmulOperator, "equal batch dims, rows by columns", rank, [(*batch, 1, 4), (*batch, 4, 1)])
        for none in (ones, ()) if batch else ():
            yield Case(MatmulOperator, "batch dims left", rank, [(*batch, 3, 4), (*none, 4, 5)])
            yield Case(MatmulOperator, "batch dims right", rank, [(*none, 3, 4), (*batch, 4, 5)])
            yield Case(MatmulOperator, "one row with batch dims right", rank, [(*none, 1, 4), (*batch, 4, 1)])
            yield Case(MatmulOperator, "outer product with batch dims right", rank, [(*none, 3, 1), (*batch, 1, 1)])
    yield Case(MatmulOperator, "both batch dims stretched", 4, [(2, 1, 3, 4), (1, 3, 4, 5)])


def _reductions(operator: type[TensorOperator]) -> Iterator[Case]:
    for shape in _SHAPES:
        for axes in _subsets(shape):
            for keepdims in (False, True):
                form = f"axes: {_where(axes, len(shape))}"
                yield Case(operator, form, len(shape), [shape], {"axes": [*axes], "keepdims": keepdims})


def _broadcasts() -> Iterator[Case]:
    pairs = [(shape, *shorter) for shape in _SHAPES for shorter in _shorter(shape)]
    for shape, where, shorter in pairs:
        yield Case(BroadcastOperator, f"axes: {where}", len(shape), [shorter], {"shape": [*shape]})
    for shape, where, shorter in pairs:
        params = {"target_shape": [*shorter]}
        yield Case(BroadcastReduceOperator, f"axes: {where}", len(shape), [shape], params)


def _moves() -> Iterator[Case]:
    for shape in _SHAPES:
        for target in ((prod(shape),), (*shape, 1), shape[::-1]):
            yield Case(ReshapeOperator, "any", len(shape), [shape], {"shape": [*target]})
    transposes = [(shape, perm) for shape in _SHAPES for perm in permutations(range(len(shape)))]
    for shape, perm in transposes:
        yield Case(TransposeOperator, _moved(perm), len(shape), [shape], {"perm": [*perm]})
    for shape in _SHAPES[2:]:
        rank, ones = len(shape), _with_ones(shape, range(len(shape) - 1))
        yield Case(TransposeOperator, "only axes of length 1", rank, [ones], {"perm": [*range(rank)][::-1]})
    for shape, perm in transposes:
        form = "any axes, with the rule `transpose_by_constants`"
        yield Case(TransposeOperator, form, len(shape), [shape], {"perm": [*perm]}, _ASKED)


def _moved(perm: Sequence[int]) -> str:
    axes = list(range(len(perm)))
    if list(perm) == axes:
        return "nothing moves"
    return "the last two axes" if list(perm[:-2]) == axes[:-2] else "other axes"
