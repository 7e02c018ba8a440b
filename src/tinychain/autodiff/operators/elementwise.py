"""Arithmetic element by element, with NumPy broadcasting between two operands, or with a literal on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import (
    Symbols,
    TensorType,
    broadcast_shapes,
    check_floating,
    check_literal,
    common_dtype,
    element_count,
)

PAIRS = (
    Sample(((4, 3), (4, 3))),
    Sample(((4, 3), (3,))),
    Sample(((1, 3), (4, 1))),
    Sample(((), (2, 3))),
    Sample(((2, 1, 3), (4, 1))),
)
_LITERALS = (Sample(((4, 3),), {"right_literal": -1.5}), Sample(((),), {"right_literal": 3}))


class Elementwise(TensorOperator):
    """The arity and the type rule that they all share."""

    shape_category = "broadcast_shape_mismatch"

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 1 if "right_literal" in op_params else 2

    def result_type(
        self, symbols: Symbols, x: TensorType, y: TensorType | None = None, *, right_literal: object = None
    ) -> TensorType:
        if y is None:
            check_literal(right_literal)
            check_floating(x.dtype)
            return x
        if right_literal is not None:
            raise AutodiffError("malformed_derivative_ir", "two operands and a right_literal; expected one of them")
        dtype = common_dtype(x.dtype, y.dtype)
        return x if x is y else TensorType(dtype, broadcast_shapes(x.shape, y.shape, symbols))

    def flops(self, result: TensorType, *operands: Any, **op_params: Any) -> int:
        return element_count(result.shape)


class AddOperator(Elementwise):
    """x + y. It has no literal form."""

    route_name = "add"
    ufunc = "add"
    samples = PAIRS

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 2

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str]:
        return g, g


class SubOperator(Elementwise):
    """x - y, or x - right_literal."""

    route_name = "sub"
    ufunc = "subtract"
    params = ("right_literal",)
    samples = PAIRS + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str | Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (g,)
        return g, lambda: emit(MulOperator, g, right_literal=-1.0)


class MulOperator(Elementwise):
    """x * y, or x * right_literal."""

    route_name = "mul"
    ufunc = "multiply"
    params = ("right_literal",)
    samples = PAIRS + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (lambda: emit(MulOperator, g, **node.op_params),)
        x, y = node.input_value_ids
        return lambda: emit(MulOperator, g, y), lambda: emit(MulOperator, g, x)


class DivOperator(Elementwise):
    """x / y, or x / right_literal."""

    route_name = "div"
    ufunc = "divide"
    params = ("right_literal",)
    samples = tuple([pair._replace(domain=(0.5, 2.0)) for pair in PAIRS]) + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (lambda: emit(DivOperator, g, **node.op_params),)
        x, y = node.input_value_ids

        def wrt_y() -> str:  # d(x / y) / dy = -x / y**2
            numerator = emit(MulOperator, g, x)
            quotient = emit(DivOperator, numerator, emit(MulOperator, y, y))
            return emit(MulOperator, quotient, right_literal=-1.0)

        return lambda: emit(DivOperator, g, y), wrt_y
