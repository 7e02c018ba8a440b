"""Reductions over explicit axes: what they share, and those that have no derivative; `contraction` has the sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Decline, Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators.levels import Level
from tinychain.autodiff.types import (
    Shape,
    Symbols,
    TensorType,
    check_floating,
    element_count,
    is_sequence,
    normalize_axes,
    reduced_shape,
    swapped,
)


class Reduction(TensorOperator):
    """The arity, the params and the type rule that they all share."""

    params = ("axes", "keepdims")
    shape_category = "reduction_shape_mismatch"
    samples = (
        Sample(((4, 3),), {"axes": [0, 1], "keepdims": False}),
        Sample(((4, 3),), {"axes": [0, 1], "keepdims": True}),
        Sample(((4, 3),), {"axes": [1], "keepdims": False}),
        Sample(((2, 3, 4),), {"axes": [0, 2], "keepdims": True}),
        Sample(((2, 3, 4),), {"axes": [1], "keepdims": False}),
        Sample(((3,),), {"axes": [], "keepdims": False}),
    )

    def operand_count(self, op_params: Mapping[str, Any]) -> int:
        return 1

    def result_type(
        self, symbols: Symbols, x: TensorType, *, axes: object = None, keepdims: object = None
    ) -> TensorType:
        if not isinstance(keepdims, bool):
            raise AutodiffError("reduction_shape_mismatch", f"keepdims is {quote(keepdims)}; expected a bool")
        shape = reduced_shape(x.shape, explicit_axes(axes, x.shape), keepdims=keepdims)
        return TensorType(check_floating(x.dtype), shape)

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        raise AutodiffError(
            "unsupported_reduction",
            f"operator {self.name} of node {quote(node.node_id)} has no derivative here; use sum or mean",
        )

    def flops(self, result: TensorType, x: TensorType, **op_params: Any) -> int:
        return element_count(x.shape)

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        return Level.FUNCTION

    def reference(self, xp: Any, x: Any, *, axes: Sequence[int], keepdims: bool) -> Any:
        reduction = getattr(xp, self.xp_name)
        return reduction(x, axis=tuple(axes), keepdims=keepdims)

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str | Decline:
        (x,) = node.input_value_ids
        shape = emit.shape(x)
        axes, keepdims, rank = explicit_axes(node.op_params["axes"], shape), node.op_params["keepdims"], len(shape)
        if not keepdims and any(axis >= rank - 2 for axis in axes):
            return Decline(f"{self.name} over axes {list(axes)} of rank {rank} drops one that would be swapped")
        order = swapped(range(rank))  # where each axis goes, as the swap is its own inverse
        return emit(type(self), of(x), axes=sorted([order[axis] for axis in axes]), keepdims=keepdims)

    @property
    def xp_name(self) -> str:
        """The reduction's name in the array API."""
        return self.route_name


class MaxOperator(Reduction):
    """The largest element over `axes`. It has no derivative here."""

    route_name = "max"
    inexact = "the largest of several numbers is no polynomial; no exact form exists"


class MinOperator(Reduction):
    """The smallest element over `axes`. It has no derivative here."""

    route_name = "min"
    inexact = "the smallest of several numbers is no polynomial; no exact form exists"


class ProductOperator(Reduction):
    """The product over `axes`. It has no derivative here."""

    route_name = "product"
    inexact = "there is no rule for a product over axes; keep the factors in tensors of their own and multiply those"

    @property
    def xp_name(self) -> str:
        return "prod"


def explicit_axes(axes: object, shape: Shape) -> tuple[int, ...]:
    """The normalised axes of a record, which must list them; None or an int raises reduction_shape_mismatch."""
    if not is_sequence(axes):
        raise AutodiffError("reduction_shape_mismatch", f"axes are {quote(axes)}; a record lists every axis")
    return normalize_axes(axes, len(shape))


def float_count(shape: Shape) -> float:
    """The element count as a float; one beyond a float's range raises unsupported_reduction."""
    count = element_count(shape)
    try:
        return float(count)
    except OverflowError:
        digits = Decimal(count)  # its str has no limit, unlike that of an int
        raise AutodiffError(
            "unsupported_reduction", f"the element count {digits} is beyond the range of a float"
        ) from None


def reduced_dims(shape: Shape, axes: object) -> Shape:
    """The dims that go."""
    return tuple([shape[axis] for axis in explicit_axes(axes, shape)])
