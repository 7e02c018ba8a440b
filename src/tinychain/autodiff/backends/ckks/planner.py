"""From a program of tensor operations to a circuit on ciphertexts, for one layout.

Transposes and reshapes cost nothing, and a product with a known number changes a factor that is applied later: together
with a mask, a change of depth or the decryption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from tinychain.autodiff.backends.ckks.arithmetic import Arithmetic, scaled
from tinychain.autodiff.backends.ckks.axes import Indices
from tinychain.autodiff.backends.ckks.circuit import Circuit, Output
from tinychain.autodiff.backends.ckks.layout import Axes, Layout, indices_of
from tinychain.autodiff.backends.ckks.packed import Packed
from tinychain.autodiff.backends.ckks.program import Operation, Program
from tinychain.autodiff.backends.ckks.ranges import Interval
from tinychain.autodiff.backends.ckks.recorder import Recorder
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.operators import (
    AddOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)


def plan_circuit(program: Program, indices: Indices, intervals: Sequence[Interval], layout: Layout) -> Circuit:
    """The circuit of a program's secret operations. `intervals` bound the elements of all operations.

    Raises invalid_encryption_plan where factors leave the range of a float. Linear in the operations and the
    ciphertexts that they need.
    """
    planner = _Planner(program, indices, intervals, layout)
    for operation in program.operations:
        if operation.secret:
            planner.add(operation)
    outputs = {name: planner.output(position) for name, position in program.outputs.items()}
    return Circuit(planner.recorder.instructions, outputs)


class _Planner:
    def __init__(self, program: Program, indices: Indices, intervals: Sequence[Interval], layout: Layout) -> None:
        self._operations = program.operations
        self._indices = indices
        self._intervals = intervals
        self._layout = layout
        self.recorder = Recorder(layout)
        self._arithmetic = Arithmetic(self.recorder)
        self._packed: dict[int, Packed] = {}

    def add(self, operation: Operation) -> None:
        """Records the instructions of a secret operation, whose operands were added before."""
        self.recorder.origin = operation.position
        x = self._result(operation)
        if not isfinite(x.factor) or x.factor == 0.0 or not isfinite(x.reach):
            raise AutodiffError(
                "invalid_encryption_plan",
                f"{operation.label}: the numbers that it is multiplied by leave the range of a float; scale the loss",
            )
        bound = min(x.bound, self._intervals[operation.position].reach)
        is_exact = not x.garbage(self._layout) and not x.dirty(self._layout)
        reach = min(x.reach, bound / abs(x.factor)) if is_exact else x.reach
        self._packed[operation.position] = replace(x, bound=bound, reach=reach)

    def output(self, position: int) -> Output:
        """A result, rescaled and relinearized."""
        x = self.recorder.settled(self._packed[position])
        return Output(x.blocks, x.factor, self._indices.axes[position], tuple(sorted(x.owned)))

    def _result(self, operation: Operation) -> Packed:
        match operation.operator:
            case None:
                owned = indices_of(self._indices.axes[operation.position])
                return self.recorder.input(operation.name, owned, self._intervals[operation.position].reach)
            case TransposeOperator() | ReshapeOperator():
                return self._packed[operation.operands[0]]
            case AddOperator():
                return self._sum(operation, 1.0)
            case SubOperator():
                return self._sum(operation, -1.0)
            case MulOperator():
                return self._product(operation)
            case MatmulOperator():
                return self._contraction(operation)
        raise AutodiffError("unsupported_operator", f"{operation.label}: the backend has no {operation.operator.name}")

    def _sum(self, operation: Operation, sign: float) -> Packed:
        literal = operation.op_params.get("right_literal")
        x = self._secret(operation, 0)
        if literal is not None:
            assert x is not None
            return self._plus_number(x, sign * literal)
        y = self._secret(operation, 1)
        if x is not None and y is not None:
            return self._arithmetic.plus(x, y, sign)
        if x is not None:
            return self._plus_plain(x, operation, 1, sign)
        assert y is not None
        return self._plus_plain(scaled(y, sign), operation, 0, 1.0)

    def _plus_plain(self, x: Packed, operation: Operation, slot: int, sign: float) -> Packed:
        uniform = self._operations[operation.operands[slot]].uniform
        if uniform is None:
            return self._arithmetic.plus_plain(x, *self._plain(operation, slot), sign)
        return self._plus_number(x, sign * uniform)

    def _plus_number(self, x: Packed, number: float) -> Packed:
        return self._arithmetic.plus_plain(x, None, (), 1.0, number) if number else x

    def _product(self, operation: Operation) -> Packed:
        x = self._secret(operation, 0)
        if "right_literal" in operation.op_params:
            assert x is not None
            return scaled(x, operation.op_params["right_literal"])
        y = self._secret(operation, 1)
        if x is not None and y is not None:
            return self._arithmetic.times(x, y)
        secret, slot = (x, 1) if x is not None else (y, 0)
        assert secret is not None
        uniform = self._operations[operation.operands[slot]].uniform
        if uniform is not None:
            return scaled(secret, uniform)
        return self._arithmetic.times_plain(secret, *self._plain(operation, slot))

    def _contraction(self, operation: Operation) -> Packed:
        summed = self._indices.contracted(operation.position)
        x, y = self._secret(operation, 0), self._secret(operation, 1)
        if x is not None and y is not None:
            owned = x.owned | y.owned
            product = self._arithmetic.times(x, y, summed)
        else:
            secret, slot = (x, 1) if x is not None else (y, 0)
            assert secret is not None
            uniform = self._operations[operation.operands[slot]].uniform
            if uniform is not None:
                owned = secret.owned
                product = scaled(self._arithmetic.total(secret, summed), uniform)
            else:
                value, axes, bound = self._plain(operation, slot)
                owned = secret.owned.union(indices_of(axes))
                product = self._arithmetic.times_plain(secret, value, axes, bound, summed)
        for index in summed:
            if index not in owned:  # all terms are alike
                product = scaled(product, self._layout.sizes[index])
        return product

    def _secret(self, operation: Operation, slot: int) -> Packed | None:
        return self._packed.get(operation.operands[slot])

    def _plain(self, operation: Operation, slot: int) -> tuple[int, Axes, float]:
        position = operation.operands[slot]
        return position, self._indices.operand_axes(operation.position, slot), self._intervals[position].reach
