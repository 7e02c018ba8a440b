"""Reductions over explicit axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Sample, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators.constant import FillOperator
from tinychain.autodiff.operators.contraction import MatmulOperator
from tinychain.autodiff.operators.elementwise import DivOperator, MulOperator
from tinychain.autodiff.operators.movement import BroadcastOperator, ReshapeOperator
from tinychain.autodiff.types import (
    Shape,
    Symbols,
    TensorType,
    check_floating,
    element_count,
    is_sequence,
    normalize_axes,
    reduced_shape,
)


class _Reduction(TensorOperator):
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

    def reference(self, xp: Any, x: Any, *, axes: Sequence[int], keepdims: bool) -> Any:
        reduction = getattr(xp, self.xp_name)
        return reduction(x, axis=tuple(axes), keepdims=keepdims)

    @property
    def xp_name(self) -> str:
        """The reduction's name in the array API."""
        return self.route_name


class SumOperator(_Reduction):
    """The sum over `axes`, which may be symbolic. x: f[..., n, ...] -> f[...]."""

    route_name = "sum"

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        return (lambda: _spread(emit, node, g),)


class MeanOperator(_Reduction):
    """The arithmetic mean over `axes`; their dims must be ints. The mean of no elements is NaN, as in NumPy."""

    route_name = "mean"

    def result_type(
        self, symbols: Symbols, x: TensorType, *, axes: object = None, keepdims: object = None
    ) -> TensorType:
        result = super().result_type(symbols, x, axes=axes, keepdims=keepdims)
        element_count(_reduced_dims(x.shape, axes))
        return result

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[Callable[[], str]]:
        (x,) = node.input_value_ids
        count = float_count(_reduced_dims(emit.shape(x), node.op_params.get("axes")))
        return (lambda: emit(DivOperator, _spread(emit, node, g), right_literal=count),)

    def as_matmuls(self, emit: Emitter, node: TensorNodeRecord) -> None:
        """The mean over both axes of a matrix as two matmuls against ones and a scale, into the node's own value.

        mean(x) = (ones[1, r] @ (x @ ones[c, 1])) * (1 / (r * c)), reshaped to a scalar unless `keepdims`.
        """
        (x,), out = node.input_value_ids, node.output_value_id
        type_ = emit.type(x)
        assert type_ is not None  # the pass refuses an untyped operand before it asks for an expansion
        rows, columns = type_.shape
        scale = 1.0 / float_count(type_.shape)

        def ones(shape: list[Any]) -> str:
            return emit(FillOperator, fill=1.0, dtype=type_.dtype, shape=shape)

        row_sums = emit(MatmulOperator, x, ones([columns, 1]))
        total = emit(MatmulOperator, ones([1, rows]), row_sums)
        if node.op_params["keepdims"]:
            emit(MulOperator, total, right_literal=scale, into=out)
        else:
            emit(ReshapeOperator, emit(MulOperator, total, right_literal=scale), shape=[], into=out)


class MaxOperator(_Reduction):
    """The largest element over `axes`. It has no derivative here."""

    route_name = "max"


class MinOperator(_Reduction):
    """The smallest element over `axes`. It has no derivative here."""

    route_name = "min"


class ProductOperator(_Reduction):
    """The product over `axes`. It has no derivative here."""

    route_name = "product"

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


def _reduced_dims(shape: Shape, axes: object) -> Shape:
    return tuple([shape[axis] for axis in explicit_axes(axes, shape)])


def _spread(emit: Emitter, node: TensorNodeRecord, g: str) -> str:
    """The cotangent of a sum: g repeated along the reduced axes."""
    (x,) = node.input_value_ids
    shape = emit.shape(x)
    if not node.op_params["keepdims"]:
        axes = explicit_axes(node.op_params.get("axes"), shape)
        g = emit(ReshapeOperator, g, shape=list(reduced_shape(shape, axes, keepdims=True)))
    return emit(BroadcastOperator, g, shape=list(shape))
