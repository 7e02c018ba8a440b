"""Functions of one operand, element by element: square root, exponential, logarithm, sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.graph import Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators.elementwise import DivOperator, MulOperator
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.types import Symbols, TensorType, check_floating, element_count

_ANY = (Sample(((4, 3),)), Sample(((),)))
_POSITIVE = tuple([sample._replace(domain=(0.5, 2.0)) for sample in _ANY])


class _Unary(TensorOperator):
    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 1

    def result_type(self, symbols: Symbols, x: TensorType) -> TensorType:
        check_floating(x.dtype)
        return x

    def flops(self, result: TensorType, *operands: Any, **op_params: Any) -> int:
        return element_count(result.shape)

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        return emit(type(self), *map(of, node.input_value_ids))

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.FUNCTION


class SqrtOperator(_Unary):
    """The square root. Below 0 it is NaN on NumPy; at 0 its slope is infinite."""

    route_name = "sqrt"
    inexact = "a square root is no polynomial; no exact form exists"
    ufunc = "sqrt"
    samples = _POSITIVE

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        root = node.output_value_id
        return (lambda: emit(DivOperator, g, emit(MulOperator, root, right_literal=2.0)),)


class ExpOperator(_Unary):
    """e ** x."""

    route_name = "exp"
    inexact = "an exponential is no polynomial; no exact form exists"
    ufunc = "exp"
    samples = _ANY

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        return (lambda: emit(MulOperator, g, node.output_value_id),)


class LogOperator(_Unary):
    """The natural logarithm."""

    route_name = "log"
    inexact = "a logarithm is no polynomial; no exact form exists"
    ufunc = "log"
    samples = _POSITIVE

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        return (lambda: emit(DivOperator, g, x),)


class SignOperator(_Unary):
    """-1, 0 or 1. Its gradient is zero and no refusal, as the gradient of a maximum is made of signs."""

    route_name = "sign"
    inexact = "a sign is no polynomial; no exact form exists"
    ufunc = "sign"
    samples = _ANY

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        return (lambda: emit(MulOperator, g, right_literal=0.0),)
