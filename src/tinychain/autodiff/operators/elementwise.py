"""Arithmetic element by element, with NumPy broadcasting between two operands, or with a literal on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Decline, Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.literals import reciprocals
from tinychain.autodiff.operators.contraction import BroadcastOperator
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.operators.region import Region, SizedRegion, sized_rule, typed_rule
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
    Sample(((2, 3, 1), (2, 3, 1))),
)
_LITERALS = (Sample(((4, 3),), {"right_literal": -1.5}), Sample(((),), {"right_literal": 3}))


class Elementwise(TensorOperator):
    """The arity, the type rule and the rules that they all share."""

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

    #: The levels of the literal form, and with two operands that are of the result's shape or that are stretched.
    levels: ClassVar[tuple[Level, Level, Level]] = (Level.LITERAL, Level.ALIGNED, Level.BROADCASTING)

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        literal, aligned, broadcasting = self.levels
        if any(type_.shape != result.shape for type_ in operands):
            return broadcasting
        level = literal if len(operands) == 1 else aligned
        return level if len(result.shape) == 2 else level + 1

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str:
        return emit(type(self), *map(of, node.input_value_ids), **node.op_params)

    @typed_rule
    def with_equal_shapes(self, region: Region) -> Decline | None:
        """Each operand repeated to the shape of the result, by an explicit broadcast."""
        shape = region.result.shape
        operands = list(zip(region.node.input_value_ids, region.operands, strict=True))
        if all(type_.shape == shape for _, type_ in operands):
            return Decline("every operand has the shape of the result already", concerns=False)
        region.finish(
            type(self),
            *[
                id_ if type_.shape == shape else region.emit(BroadcastOperator, id_, shape=list(shape))
                for id_, type_ in operands
            ],
        )
        return None

    @sized_rule
    def as_matrices(self, region: SizedRegion) -> Decline | None:
        """On matrices of the same elements, between reshapes."""
        if any(shape != region.shape for shape in region.shapes):
            return Decline("its operands have different shapes", concerns=False)
        if len(region.shape) == 2:
            return Decline("its operands are matrices already", concerns=False)
        *rows, columns = region.shape or (1,)
        operands = [region.reshaped(id_, prod(rows), columns) for id_ in region.node.input_value_ids]
        region.finish(type(self), *operands, **region.node.op_params)
        return None


class WithLiteral(Elementwise):
    """Those that have a second form, with one operand and a literal."""

    params = ("right_literal",)

    @sized_rule
    def with_fill(self, region: SizedRegion) -> Decline | None:
        """The literal as a second operand of the same shape."""
        literal = region.node.op_params.get("right_literal")
        if literal is None:
            return Decline("it has no literal", concerns=False)
        region.finish(type(self), region.x, region.filled(check_literal(literal)))
        return None


class _Composed(WithLiteral):
    """Those whose rules make other elementwise operators of them, so that they stand above those."""

    levels = (Level.COMPOSED_LITERAL, Level.COMPOSED_ALIGNED, Level.COMPOSED_BROADCASTING)


class AddOperator(Elementwise):
    """x + y. It has no literal form."""

    route_name = "add"
    ufunc = "add"
    multiplies = "never"
    samples = PAIRS

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 2

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str]:
        return g, g


class SubOperator(_Composed):
    """x - y, or x - right_literal."""

    route_name = "sub"
    ufunc = "subtract"
    multiplies = "never"
    samples = PAIRS + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str | Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (g,)
        return g, lambda: emit(MulOperator, g, right_literal=-1.0)

    @typed_rule
    def as_sum(self, region: Region) -> Decline | None:
        """x + y * -1."""
        if len(region.operands) == 1:
            return Decline("it subtracts a literal; as_sum_with_fill adds one", concerns=False)
        x, y = region.node.input_value_ids
        region.finish(AddOperator, x, region.emit(MulOperator, y, right_literal=-1.0))
        return None

    @sized_rule
    def as_sum_with_fill(self, region: SizedRegion) -> Decline | None:
        """x + (-c), as add has no literal form."""
        literal = region.node.op_params.get("right_literal")
        if literal is None:
            return Decline("it has no literal", concerns=False)
        region.finish(AddOperator, region.x, region.filled(-check_literal(literal)))
        return None


class MulOperator(WithLiteral):
    """x * y, or x * right_literal."""

    route_name = "mul"
    ufunc = "multiply"
    multiplies = "product"
    samples = PAIRS + _LITERALS

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        if "right_literal" in node.op_params:
            return (lambda: emit(MulOperator, g, **node.op_params),)
        x, y = node.input_value_ids
        return lambda: emit(MulOperator, g, y), lambda: emit(MulOperator, g, x)


class DivOperator(_Composed):
    """x / y, or x / right_literal."""

    route_name = "div"
    ufunc = "divide"
    multiplies = "quotient"
    inexact = "a division by a tensor is no polynomial; no exact form exists"
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

    @typed_rule
    def as_product(self, region: Region) -> Decline | None:
        """x * (1 / c) for a literal c; in two steps where no literal stands for 1 / c."""
        literal = region.node.op_params.get("right_literal")
        if literal is None:
            return Decline(self.inexact)
        number = check_literal(literal)
        factors = reciprocals(number, region.result.dtype)
        if not factors:
            return Decline(f"1 / {number!r} is no normal number in {region.result.dtype}")
        x = region.x
        for factor in factors[:-1]:
            x = region.emit(MulOperator, x, right_literal=factor)
        region.finish(MulOperator, x, right_literal=factors[-1])
        return None
