"""Arithmetic element by element, with NumPy broadcasting between two operands, or with a literal on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.types import Symbols, TensorType, broadcast_shapes, check_floating, check_literal, common_dtype

_PAIRS = (
    Sample(((4, 3), (4, 3))),
    Sample(((4, 3), (3,))),
    Sample(((1, 3), (4, 1))),
    Sample(((), (2, 3))),
    Sample(((2, 1, 3), (4, 1))),
)
_LITERALS = (Sample(((4, 3),), {"right_literal": -1.5}), Sample(((),), {"right_literal": 3}))


class _Elementwise(TensorOperator):
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


class AddOperator(_Elementwise):
    """x + y. It has no literal form."""

    route_name = "add"
    samples = _PAIRS

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 2

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str]:
        return g, g

    def reference(self, xp: Any, x: Any, y: Any) -> Any:
        return x + y


class SubOperator(_Elementwise):
    """x - y, or x - right_literal."""

    route_name = "sub"
    params = ("right_literal",)
    samples = _PAIRS + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str | Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (g,)
        return g, lambda: emit(MulOperator, g, right_literal=-1.0)

    def reference(self, xp: Any, x: Any, y: Any = None, *, right_literal: float = 0.0) -> Any:
        return x - (check_literal(right_literal) if y is None else y)


class MulOperator(_Elementwise):
    """x * y, or x * right_literal."""

    route_name = "mul"
    params = ("right_literal",)
    samples = _PAIRS + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (lambda: emit(MulOperator, g, **node.op_params),)
        x, y = node.input_value_ids
        return lambda: emit(MulOperator, g, y), lambda: emit(MulOperator, g, x)

    def reference(self, xp: Any, x: Any, y: Any = None, *, right_literal: float = 0.0) -> Any:
        return x * (check_literal(right_literal) if y is None else y)


class DivOperator(_Elementwise):
    """x / y, or x / right_literal."""

    route_name = "div"
    params = ("right_literal",)
    samples = tuple([pair._replace(domain=(0.5, 2.0)) for pair in _PAIRS]) + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (lambda: emit(DivOperator, g, **node.op_params),)
        x, y = node.input_value_ids

        def wrt_y() -> str:  # d(x / y) / dy = -x / y**2
            numerator = emit(MulOperator, g, x)
            quotient = emit(DivOperator, numerator, emit(MulOperator, y, y))
            return emit(MulOperator, quotient, right_literal=-1.0)

        return lambda: emit(DivOperator, g, y), wrt_y

    def reference(self, xp: Any, x: Any, y: Any = None, *, right_literal: float = 1.0) -> Any:
        return x / (check_literal(right_literal) if y is None else y)
