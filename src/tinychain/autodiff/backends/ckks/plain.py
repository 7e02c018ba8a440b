"""What a server computes in the clear: the plain operations of a program, from the plain inputs of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.program import Program


def plain_values(program: Program, inputs: Mapping[str, NDArray[Any]]) -> dict[int, NDArray[Any]]:
    """The elements of every plain tensor of the program, by position, from those of its plain inputs by name."""
    values: dict[int, NDArray[Any]] = {}
    for operation in program.operations:
        if operation.secret:
            continue
        if operation.known is not None:
            values[operation.position] = operation.known
        elif operation.operator is None:
            values[operation.position] = np.asarray(inputs[operation.name], np.float64)
        else:
            operands = [values[operand] for operand in operation.operands]
            values[operation.position] = operation.operator.reference(np, *operands, **operation.op_params)
    return values
