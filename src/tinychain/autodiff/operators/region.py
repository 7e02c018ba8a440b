"""What the rules of the operators write with: the node to replace, its types, and the emissions that many need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeAlias

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Decline, TensorNodeRecord, TensorOperator, expansion
from tinychain.autodiff.operators.constant import ConstantOperator, FillOperator
from tinychain.autodiff.operators.reshape import ReshapeOperator
from tinychain.autodiff.types import Dim, TensorType, resolve_shape

#: The most numbers that a rule writes out in one constant.
MAX_CONSTANT: Final = 2**20


@dataclass(frozen=True)
class Region:
    """The nodes that replace `node`, which end in its value; `emit` appends to them."""

    emit: Emitter
    node: TensorNodeRecord
    operands: tuple[TensorType, ...]
    result: TensorType

    @property
    def x(self) -> str:
        """The id of the first operand."""
        return self.node.input_value_ids[0]

    def ones(self, *shape: int) -> str:
        return self.emit(FillOperator, fill=1.0, dtype=self.result.dtype, shape=list(shape))

    def filled(self, number: float) -> str:
        """A fill of the result's type, whose dims must be ints."""
        return self.emit(FillOperator, fill=number, dtype=self.result.dtype, shape=list(self.result.shape))

    def constant(self, values: Sequence[float], *shape: int) -> str:
        return self.emit(ConstantOperator, values=list(values), dtype=self.result.dtype, shape=list(shape))

    def reshaped(self, x: str, *shape: Dim) -> str:
        """x in this shape; x itself where it has it already."""
        return x if self.emit.shape(x) == shape else self.emit(ReshapeOperator, x, shape=list(shape))

    def finish(self, operator: type[TensorOperator], *operands: str, **op_params: Any) -> None:
        """Emits the last operation into the node's value, with a reshape behind it where its shape is another."""
        types = [self.emit.type(operand) for operand in operands]
        if operator().result_type({}, *types, **op_params).shape == self.result.shape:
            self.emit(operator, *operands, into=self.node.output_value_id, **op_params)
        else:
            last = self.emit(operator, *operands, **op_params)
            self.emit(ReshapeOperator, last, shape=list(self.result.shape), into=self.node.output_value_id)


@dataclass(frozen=True)
class SizedRegion(Region):
    """One whose shapes are all ints: `shapes` of the operands, `shape` of the result."""

    shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


def region_of(emit: Emitter, node: TensorNodeRecord) -> Region | Decline:
    """The region of a node; a Decline where a type is not known."""
    operands = [type_ for type_ in map(emit.type, node.input_value_ids) if type_ is not None]
    result = emit.derive(node)
    if result is None or len(operands) < len(node.input_value_ids):
        return Decline("the types of its operands are not known; give them typespecs")
    return Region(emit, node, tuple(operands), result)


def sized_region_of(emit: Emitter, node: TensorNodeRecord) -> SizedRegion | Decline:
    """The region of a node; a Decline where a type is not known or a dim is a symbol."""
    region = region_of(emit, node)
    if isinstance(region, Decline):
        return region
    try:
        shapes = [resolve_shape(type_.shape, {}, label="an operand") for type_ in region.operands]
        shape = resolve_shape(region.result.shape, {}, label="the result")
    except AutodiffError as error:
        return Decline(error.message)
    return SizedRegion(emit, node, region.operands, region.result, tuple(shapes), shape)


def too_large(numbers: int) -> Decline:
    """The reason against a rule that would have to write out more numbers than it may."""
    return Decline(f"it takes {numbers} elements of constants; at most {MAX_CONSTANT} are written out")


Rule: TypeAlias = Callable[[Any, Emitter, TensorNodeRecord], Decline | None]


def typed_rule(method: Callable[[Any, Region], Decline | None]) -> Rule:
    """Marks a method `(self, region)` of an operator class as a rule, which declines where there is no region."""

    @expansion
    @wraps(method)
    def rule(self: Any, emit: Emitter, node: TensorNodeRecord) -> Decline | None:
        region = region_of(emit, node)
        return region if isinstance(region, Decline) else method(self, region)

    return rule


def sized_rule(method: Callable[[Any, SizedRegion], Decline | None]) -> Rule:
    """The same for one that needs an int for every dim."""

    @expansion
    @wraps(method)
    def rule(self: Any, emit: Emitter, node: TensorNodeRecord) -> Decline | None:
        region = sized_region_of(emit, node)
        return region if isinstance(region, Decline) else method(self, region)

    return rule


def rule_of(operator: type[TensorOperator]) -> Callable[[Callable[[Any, SizedRegion], Decline | None]], Rule]:
    """Makes a function `(operator, region)` a sized rule of a class that stands below what the rule emits."""

    def added(function: Callable[[Any, SizedRegion], Decline | None]) -> Rule:
        rule = sized_rule(function)
        rule.__qualname__ = f"{operator.__name__}.{function.__name__}"
        setattr(operator, function.__name__, rule)
        return rule

    return added
