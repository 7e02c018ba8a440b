"""Programs of tensor operations made by hand, and what they compute on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.program import Operation, Program
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.types import TensorType


class ProgramBuilder:
    """Appends operations; each method returns a position."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def input(self, name: str, shape: Sequence[int], secret: bool = True) -> int:
        return self._add(None, {}, (), TensorType("f64", tuple(shape)), secret, name=name)

    def known(self, array: NDArray[Any]) -> int:
        return self._add(None, {}, (), TensorType("f64", array.shape), False, known=array)

    def apply(self, operator: TensorOperator, *operands: int, **op_params: Any) -> int:
        types = [self.operations[operand].type for operand in operands]
        secret = any(self.operations[operand].secret for operand in operands)
        return self._add(operator, op_params, operands, operator.result_type({}, *types, **op_params), secret)

    def shape(self, position: int) -> tuple[int, ...]:
        return self.operations[position].shape

    def program(self, **outputs: int) -> Program:
        inputs = {o.name: o.position for o in self.operations if o.operator is None and o.known is None}
        return Program(self.operations, inputs, outputs)

    def _add(
        self,
        operator: TensorOperator | None,
        op_params: Mapping[str, Any],
        operands: tuple[int, ...],
        type_: TensorType,
        secret: bool,
        name: str = "",
        known: NDArray[Any] | None = None,
    ) -> int:
        position = len(self.operations)
        uniform = float(known.flat[0]) if known is not None and np.ptp(known) == 0 else None
        label = f"{name or type(operator).__name__} at {position}"
        self.operations.append(
            Operation(position, operator, op_params, operands, type_, secret, known, uniform, name, label)
        )
        return position


def computed(program: Program, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs of a program on arrays."""
    values: list[NDArray[Any]] = []
    for operation in program.operations:
        if operation.known is not None:
            values.append(operation.known)
        elif operation.operator is None:
            values.append(inputs[operation.name])
        else:
            operands = [values[operand] for operand in operation.operands]
            values.append(np.asarray(operation.operator.reference(np, *operands, **operation.op_params)))
    return {name: values[position] for name, position in program.outputs.items()}
