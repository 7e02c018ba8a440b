"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators.movement import TransposeOperator
from tinychain.autodiff.types import Symbols, TensorType, common_dtype, element_count, matmul_shape


class MatmulOperator(TensorOperator):
    """x @ y over the last two axes, batch axes broadcast. f[..., m, k], f[..., k, n] -> f[..., m, n]."""

    route_name = "matmul"
    ufunc = "matmul"
    shape_category = "matmul_shape_mismatch"
    samples = (
        Sample(((4, 3), (3, 2))),
        Sample(((2, 4, 3), (2, 3, 5))),
        Sample(((2, 1, 4, 3), (6, 3, 1))),
        Sample(((3, 3), (2, 3, 3))),
    )

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 2

    def result_type(self, symbols: Symbols, x: TensorType, y: TensorType) -> TensorType:
        return TensorType(common_dtype(x.dtype, y.dtype), matmul_shape(x.shape, y.shape, symbols))

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        x, y = node.input_value_ids

        def transposed(operand: str) -> str:
            *batch, row, column = range(len(emit.shape(operand)))
            return emit(TransposeOperator, operand, perm=[*batch, column, row])

        return lambda: emit(MatmulOperator, g, transposed(y)), lambda: emit(MatmulOperator, transposed(x), g)

    def flops(self, result: TensorType, x: TensorType, y: TensorType) -> int:
        return 2 * element_count(result.shape) * element_count(x.shape[-1:])
