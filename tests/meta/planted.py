"""Operators of a user's own: some right, and for each way to be wrong one that differs in that alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tinychain.autodiff.graph import Sample, TensorOperator
from tinychain.autodiff.operators import (
    BroadcastOperator,
    MulOperator,
    ReshapeOperator,
    TransposeOperator,
)
from tinychain.autodiff.types import TensorType, broadcast_shapes, common_dtype


class Times(TensorOperator):
    """x * y, right in everything."""

    route_name = "times"
    samples: ClassVar[Sequence[Sample]] = (Sample(((3, 2), (3, 2))), Sample(((2, 2), (2,))))

    def operand_count(self, op_params: Any) -> int:
        return 2

    def result_type(self, symbols: Any, x: TensorType, y: TensorType, **op_params: Any) -> TensorType:
        return TensorType(common_dtype(x.dtype, y.dtype), broadcast_shapes(x.shape, y.shape, symbols))

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        x, y = node.input_value_ids
        return lambda: emit(MulOperator, g, y), lambda: emit(MulOperator, g, x)

    def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
        return x * y


class RowSums(TensorOperator):
    """The sums along the rows of a matrix, right in everything; square samples hide an axis from the type rule."""

    route_name = "row_sums"
    samples: ClassVar[Sequence[Sample]] = (Sample(((3, 3),)),)
    spread_as: ClassVar[tuple[int, int]] = (3, 1)

    def result_type(self, symbols: Any, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape[:1])

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        def spread() -> str:
            column: str = emit(ReshapeOperator, g, shape=list(self.spread_as))
            grown: str = emit(BroadcastOperator, column, shape=list(emit.shape(node.input_value_ids[0])))
            return grown

        return (spread,)

    def reference(self, xp: Any, x: Any) -> Any:
        return xp.sum(x, axis=1)


class Difference(Times):
    """x - y, right in everything."""

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return g, lambda: emit(MulOperator, g, right_literal=-1.0)

    def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
        return x - y


class TwiceProduct(Times):
    """2 * x * y, right in everything."""

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        by_x, by_y = super().vjp(emit, node, g)
        return lambda: emit(MulOperator, by_x(), right_literal=2.0), lambda: emit(
            MulOperator, by_y(), right_literal=2.0
        )

    def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
        return 2 * x * y


class Square(TensorOperator):
    """x * x, right in everything. Its VJP emits `slope`, so that its second order is the VJP of that."""

    route_name = "square"
    samples = (Sample(((2, 3),)),)
    slope: ClassVar[type[TensorOperator]] = TwiceProduct

    def result_type(self, symbols: Any, x: TensorType) -> TensorType:
        return x

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return (lambda: emit(self.slope, g, *node.input_value_ids),)

    def reference(self, xp: Any, x: Any) -> Any:
        return x * x


RIGHT = (Times, RowSums, Difference, TwiceProduct, Square)

# --------------------------------------------------------------------------------------------------- wrong gradients


class _OffBy(Times):
    """One slot's gradient is 0.05 % off."""

    slot: ClassVar[int]

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        entries = list(super().vjp(emit, node, g))
        right = entries[self.slot]
        entries[self.slot] = lambda: emit(MulOperator, right(), right_literal=1.0005)
        return entries


class OffInLeft(_OffBy):
    slot = 0


class OffInRight(_OffBy):
    slot = 1


class LostLeft(Times):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return None, super().vjp(emit, node, g)[1]


class LostRight(Times):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return super().vjp(emit, node, g)[0], None


class LostOnly(Square):
    """The only contribution is lost, so that no gradient reaches the operand at all."""

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return (None,)


class SwappedProduct(Times):
    samples = (Sample(((3, 2), (3, 2))),)

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return super().vjp(emit, node, g)[::-1]


class SwappedDifference(Difference):
    samples = (Sample(((3, 2), (3, 2))),)

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return super().vjp(emit, node, g)[::-1]


class WrongAxisInVjp(RowSums):
    spread_as = (1, 3)


class WrongAxisInReference(RowSums):
    """On a square matrix the type rule cannot tell, but the gradient can."""

    def reference(self, xp: Any, x: Any) -> Any:
        return xp.sum(x, axis=0)


class ForgottenReduce(Times):
    """The gradient has the result's shape; the engine undoes a broadcast, but not one that it cannot see."""

    samples = (Sample(((2, 2), (2, 2))),)

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        by_x, by_y = super().vjp(emit, node, g)
        return lambda: emit(ReshapeOperator, by_x(), shape=[4]), by_y


#: Class -> the value whose gradient is wrong.
WRONG_GRADIENTS: dict[type[TensorOperator], str] = {
    OffInLeft: "x0",
    OffInRight: "x1",
    LostLeft: "x0",
    LostRight: "x1",
    LostOnly: "x0",
    SwappedProduct: "x0",
    SwappedDifference: "x0",
    WrongAxisInVjp: "x0",
    WrongAxisInReference: "x0",
}

# ------------------------------------------------------------------------------------------- wrong second orders only


class _SlopeOff(TwiceProduct):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        by_x, by_y = super().vjp(emit, node, g)
        return by_x, lambda: emit(MulOperator, by_y(), right_literal=1.0005)


class _SlopeLost(TwiceProduct):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return super().vjp(emit, node, g)[0], None


class _SlopeSwapped(TwiceProduct):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return super().vjp(emit, node, g)[::-1]


class SecondOrderOff(Square):
    slope = _SlopeOff


class SecondOrderLost(Square):
    slope = _SlopeLost


class SecondOrderSwapped(Square):
    slope = _SlopeSwapped


WRONG_SECOND_ORDERS = (SecondOrderOff, SecondOrderLost, SecondOrderSwapped)

# ------------------------------------------------------------------------------------------------------- wrong types


class DeclaresTransposed(Times):
    def result_type(self, symbols: Any, x: TensorType, y: TensorType, **op_params: Any) -> TensorType:
        return TensorType(x.dtype, x.shape[::-1])


class DeclaresExtraAxis(Times):
    def result_type(self, symbols: Any, x: TensorType, y: TensorType, **op_params: Any) -> TensorType:
        return TensorType(x.dtype, (1, *x.shape))


class DeclaresF64(Times):
    def result_type(self, symbols: Any, x: TensorType, y: TensorType, **op_params: Any) -> TensorType:
        return TensorType("f64", broadcast_shapes(x.shape, y.shape, symbols))


class ReturnsF64(Times):
    def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
        return x * y.astype("float64")


class ReducesTheOtherAxis(RowSums):
    samples = (Sample(((3, 2),)),)

    def reference(self, xp: Any, x: Any) -> Any:
        return xp.sum(x, axis=0)


#: Class -> the declared and the returned type of the first sample that shows it.
WRONG_TYPES: dict[type[TensorOperator], tuple[str, str]] = {
    DeclaresTransposed: ("f32[2, 3]", "f32[3, 2]"),
    DeclaresExtraAxis: ("f32[1, 3, 2]", "f32[3, 2]"),
    DeclaresF64: ("f64[3, 2]", "f32[3, 2]"),
    ReturnsF64: ("f32[3, 2]", "f64[3, 2]"),
    ReducesTheOtherAxis: ("f32[3]", "f32[2]"),
}

# ---------------------------------------------------------------------------------------------------- other mistakes


class WithoutSamples(Times):
    samples = ()


class WithoutVjp(Times):
    vjp = TensorOperator.vjp


class VjpRaises(Times):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        raise ZeroDivisionError("in the rule")


class VjpOfOneEntry(Times):
    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return (g,)


class ReferenceRaises(Times):
    def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
        raise KeyError("missing")


class ReferenceGivesNan(Times):
    samples = (Sample(((3, 2), (3, 2))),)

    def reference(self, xp: Any, x: Any, y: Any, **op_params: Any) -> Any:
        return x * y * xp.nan


class ParamsThatTextLoses(Times):
    """A tuple comes back as a list, so that an artifact that was stored is not the one that was made."""

    params = ("axes",)
    samples = (Sample(((2, 2), (2, 2)), {"axes": (0, 1)}),)


class GradientThatTextLoses(Square):
    samples = (Sample(((2, 2),)),)

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        """The right gradient by way of two transposes whose perm is a tuple."""
        (x,) = node.input_value_ids
        flipped = emit(TransposeOperator, emit(TwiceProduct, g, x), perm=(1, 0))
        return (emit(TransposeOperator, flipped, perm=(1, 0)),)


class ForeignParam(Times):
    samples = (Sample(((2, 2), (2, 2)), {"axes": [0]}),)


class WrongOperandCount(Times):
    samples = (Sample(((2, 2),)),)


#: Class -> a part of the message.
OTHER_MISTAKES: dict[type[TensorOperator], str] = {
    WithoutSamples: "has no samples",
    WithoutVjp: "has no VJP",
    VjpRaises: "ZeroDivisionError",
    VjpOfOneEntry: "one entry for each of 2 operands",
    ForgottenReduce: "does not broadcast to [4]",
    ReferenceRaises: "KeyError",
    ReferenceGivesNan: "nan",
    ParamsThatTextLoses: "read back from its text",
    GradientThatTextLoses: "read back from its text",
    ForeignParam: "'axes'",
    WrongOperandCount: "requires exactly two inputs",
}
