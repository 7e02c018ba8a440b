"""Which axes of a program's tensors are the same index: found by unification, as a packed layout needs it.

The rows of the data are one index wherever they occur, and so are its columns and the hidden units.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from tinychain.autodiff.backends.ckks.layout import Axes
from tinychain.autodiff.backends.ckks.program import Operation, Program
from tinychain.autodiff.backends.ckks.unification import Variables
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Record, TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)

#: The variable of each axis of a tensor; None for an axis of size 1.
_Tensor: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True)
class Indices(Record):
    """The indices of a program and their sizes, and the axes of its tensors, by position.

    A plain tensor has no axes of its own, since two operations may read it differently: `slots` are the axes that an
    operation reads each of its operands with. Indices are numbered in the order of the program.
    """

    sizes: Mapping[int, int]
    axes: Sequence[Axes]
    slots: Sequence[tuple[Axes, ...]]

    def operand_axes(self, position: int, slot: int) -> Axes:
        """The axes that a secret operation reads an operand with, plain or secret; as many as the operand has."""
        return self.slots[position][slot]

    def contracted(self, position: int) -> tuple[int, ...]:
        """The indices that a secret matmul adds up over."""
        return self.slots[position][0][-1]


def share_indices(program: Program) -> Indices:
    """The indices of all secret operations, in time linear in the size of the program.

    Raises unsupported_layout for a tensor that has no elements, one that has the same index on two axes, and a reshape
    whose sizes, or those of tensors that meet, do not divide each other; unsupported_operator for another operator.
    """
    operations = program.operations
    indices = _walked(operations)
    if _clash(operations, indices) is not None:
        # The first operation to bring it about is the one to name; more operations never take a clash away.
        prefixes = range(1, len(operations) + 1)
        count = prefixes[
            bisect_left(prefixes, True, key=lambda n: _clash(operations, _walked(operations[:n])) is not None)
        ]
        clash = _clash(operations, _walked(operations[:count]))
        assert clash is not None
        _refuse_clash(operations[count - 1], *clash)
    return indices


def _walked(operations: Sequence[Operation]) -> Indices:
    walk = _Walk(operations)
    for operation in operations:
        if operation.secret:
            walk.visit(operation)
    return walk.resolved()


class _Walk:
    """The variables of the operations so far."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._variables = Variables()
        self._tensors: list[_Tensor] = [()] * len(operations)
        self._slots: list[tuple[_Tensor, ...]] = [()] * len(operations)

    def visit(self, operation: Operation) -> None:
        position, operator = operation.position, operation.operator
        operands = [self._operations[operand] for operand in operation.operands]
        for tensor in (operation, *operands):
            if 0 in tensor.shape:
                _refuse(
                    operation, f"{tensor.label} of shape {[*tensor.shape]} has no elements; nothing can be encrypted"
                )
        if operator is None:
            self._tensors[position] = self._fresh(operation.shape)
            return
        rule = _RULES.get(type(operator))
        if rule is None:
            raise AutodiffError(
                "unsupported_operator", f"{operation.label}: no packed form of {operator.name} is known"
            )
        slots = [self._tensors[o.position] if o.secret else self._fresh(o.shape) for o in operands]
        self._slots[position] = tuple(slots)
        self._tensors[position] = rule(self, operation, *slots)

    def elementwise(self, operation: Operation, *slots: _Tensor) -> _Tensor:
        return self._aligned(operation, slots)

    def matmul(self, operation: Operation, x: _Tensor, y: _Tensor) -> _Tensor:
        self._unify(operation, x[-1:], y[-2:-1])
        return (*self._aligned(operation, (x[:-2], y[:-2])), x[-2], y[-1])

    def transpose(self, operation: Operation, x: _Tensor) -> _Tensor:
        return tuple([x[axis] for axis in operation.op_params["perm"]])

    def reshape(self, operation: Operation, x: _Tensor) -> _Tensor:
        result = self._fresh(operation.shape)
        self._unify(operation, x, result)
        return result

    def _fresh(self, shape: Sequence[int]) -> _Tensor:
        return tuple([None if size == 1 else self._variables.fresh(size) for size in shape])

    def _aligned(self, operation: Operation, slots: Sequence[_Tensor]) -> _Tensor:
        """The axes of a broadcast: aligned from the right, each that of an operand which has it."""
        rank = max(map(len, slots))
        result: list[int | None] = [None] * rank
        for slot in slots:
            for axis, variable in enumerate(slot, start=rank - len(slot)):
                found = result[axis]
                if found is None:
                    result[axis] = variable
                elif variable is not None:
                    self._unify(operation, (found,), (variable,))
        return tuple(result)

    def _unify(self, operation: Operation, left: _Tensor, right: _Tensor) -> None:
        conflict = self._variables.unify(*[[v for v in tensor if v is not None] for tensor in (left, right)])
        if conflict is not None:
            a, b = conflict
            _refuse(
                operation,
                f"its axes would have to be cut into parts of {a} and of {b}, neither of which divides the other; keep"
                " axes whole, or reshape between sizes that divide each other",
            )

    def resolved(self) -> Indices:
        """The indices that the variables have turned out to be."""
        indices: dict[int, int] = {}  # by unsplit variable
        named: dict[int, tuple[int, ...]] = {}  # by any variable

        def resolve(tensor: _Tensor) -> Axes:
            for variable in tensor:
                if variable is not None and variable not in named:
                    leaves = self._variables.leaves(variable)
                    named[variable] = tuple([indices.setdefault(leaf, len(indices)) for leaf in leaves])
            return tuple([() if variable is None else named[variable] for variable in tensor])

        axes, slots = [], []
        for own, operands in zip(self._tensors, self._slots, strict=True):
            slots.append(tuple(map(resolve, operands)))
            axes.append(resolve(own))
        return Indices({index: self._variables.size(leaf) for leaf, index in indices.items()}, axes, slots)


_Rule: TypeAlias = Callable[..., _Tensor]

_RULES: Final[Mapping[type[TensorOperator], _Rule]] = {
    AddOperator: _Walk.elementwise,
    SubOperator: _Walk.elementwise,
    MulOperator: _Walk.elementwise,
    MatmulOperator: _Walk.matmul,
    TransposeOperator: _Walk.transpose,
    ReshapeOperator: _Walk.reshape,
}


def _clash(operations: Sequence[Operation], indices: Indices) -> tuple[Operation, int, int] | None:
    """The first tensor that has an index on two axes, or twice on one, and these axes."""
    for operation, axes, slots in zip(operations, indices.axes, indices.slots, strict=False):
        for tensor, read in (*zip([operations[o] for o in operation.operands], slots, strict=False), (operation, axes)):
            seen: dict[int, int] = {}
            for axis, own in enumerate(read):
                for index in own:
                    if index in seen:
                        return tensor, seen[index], axis
                    seen[index] = axis
    return None


def _refuse_clash(operation: Operation, tensor: Operation, first: int, second: int) -> NoReturn:
    axes = f"axis {first}" if first == second else f"axes {first} and {second}"
    what = "its result" if tensor is operation else f"{tensor.label} of shape {[*tensor.shape]}"
    _refuse(
        operation,
        f"it pairs elements of the data with each other, as {axes} of {what} would have one index twice, and a packed"
        " tensor has room for it once; multiply in another order, such as x @ (x.T @ z) for (x @ x.T) @ z, or declare"
        " one of the two as an input of its own",
    )


def _refuse(operation: Operation, reason: str) -> NoReturn:
    raise AutodiffError("unsupported_layout", f"{operation.label}, of shape {[*operation.shape]}: {reason}")
