"""The traced tensor: ordinary arithmetic that asks the active trace to record it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any, Final, NoReturn, Protocol

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    DivOperator,
    ExpOperator,
    LogOperator,
    MatmulOperator,
    MaximumOperator,
    MeanOperator,
    MinimumOperator,
    MulOperator,
    ReshapeOperator,
    SignOperator,
    SqrtOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.types import (
    Shape,
    TensorType,
    check_literal,
    infer_dim,
    is_sequence,
    normalize_axes,
    parse_shape,
)


class Trace(Protocol):
    """What a tensor needs of the builder that traces it."""

    @property
    def symbols(self) -> dict[str, int]: ...

    def apply(
        self, operator: type[TensorOperator], operands: Sequence[Tensor], op_params: Mapping[str, Any]
    ) -> Tensor: ...

    def type_of(self, obj: object) -> TensorType | None: ...


ACTIVE: ContextVar[Trace | None] = ContextVar("tinychain_autodiff_trace", default=None)

CAPTURED: Final[frozenset[type[TensorOperator]]] = frozenset(
    {
        AddOperator,
        SubOperator,
        MulOperator,
        DivOperator,
        MaximumOperator,
        MinimumOperator,
        SqrtOperator,
        ExpOperator,
        LogOperator,
        SignOperator,
        MatmulOperator,
        SumOperator,
        MeanOperator,
        ReshapeOperator,
        TransposeOperator,
        BroadcastOperator,
    }
)


class Tensor:
    """A symbolic tensor of one trace: it has a shape and a dtype, and no value.

    Arithmetic with another tensor broadcasts as in NumPy; a real number on either side is a literal. There is no
    promotion. Two spellings are rewritten: `2 + x` and `x + 2` are `x - (-2)`; `2 - x` is `(x * -1.0) - (-2)`. And
    `2 / x` is `(x * 0.0 - (-2)) / x`, so that an infinite `x` gives NaN.

    Operations raise AutodiffError as the operator's type rule does, TypeError for an operand that is neither a tensor
    nor a real number, ValueError for a tensor of another trace, RuntimeError where no trace is active.
    """

    __slots__ = ("_builder", "_name")

    # NumPy then leaves `array * tensor` to the reflected method, which says what is wrong.
    __array_ufunc__: Final = None

    def __init__(self, builder: Trace | None = None, name: str | None = None) -> None:
        self._builder = builder
        self._name = name

    # ------------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return _apply(AddOperator, (self, other), {})
        return _apply(SubOperator, (self,), {"right_literal": -_literal("+", other)})

    __radd__ = __add__

    def __sub__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return _apply(SubOperator, (self, other), {})
        return _apply(SubOperator, (self,), {"right_literal": _literal("-", other)})

    def __rsub__(self, other: float) -> Tensor:
        literal = _literal("-", other)
        return _apply(SubOperator, (-self,), {"right_literal": -literal})

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return _apply(MulOperator, (self, other), {})
        return _apply(MulOperator, (self,), {"right_literal": _literal("*", other)})

    __rmul__ = __mul__

    def __truediv__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return _apply(DivOperator, (self, other), {})
        return _apply(DivOperator, (self,), {"right_literal": _literal("/", other)})

    def __rtruediv__(self, other: float) -> Tensor:
        literal = _literal("/", other)
        return (self * 0.0 + literal) / self

    def __neg__(self) -> Tensor:
        return _apply(MulOperator, (self,), {"right_literal": -1.0})

    def __pos__(self) -> Tensor:
        return self

    def __matmul__(self, other: Tensor) -> Tensor:
        if not isinstance(other, Tensor):
            raise TypeError(f"an operand of @ must be a Tensor, got {quote(other)}; declare an array as an input")
        return _apply(MatmulOperator, (self, other), {})

    def __rmatmul__(self, other: object) -> NoReturn:
        raise TypeError(f"an operand of @ must be a Tensor, got {quote(other)}; declare an array as an input")

    def matmul(self, other: Tensor) -> Tensor:
        """`self @ other`: both of rank 2 or more, batch axes broadcast."""
        return self @ other

    # ------------------------------------------------------------------------------------------ element by element

    def sqrt(self) -> Tensor:
        """The square root; what a backend makes of a negative number is its own, NaN on NumPy."""
        return _apply(SqrtOperator, (self,), {})

    def exp(self) -> Tensor:
        """The exponential e ** x."""
        return _apply(ExpOperator, (self,), {})

    def log(self) -> Tensor:
        """The natural logarithm."""
        return _apply(LogOperator, (self,), {})

    def sign(self) -> Tensor:
        """-1, 0 or 1 by the sign of each element. Its gradient is zero."""
        return _apply(SignOperator, (self,), {})

    def maximum(self, other: Tensor | float) -> Tensor:
        """The larger of both, element by element; a number is a literal. Where they are equal, each gets half of the
        gradient."""
        return self._extremum(MaximumOperator, "maximum", other)

    def minimum(self, other: Tensor | float) -> Tensor:
        """The smaller of both, as in `maximum`."""
        return self._extremum(MinimumOperator, "minimum", other)

    def clip(self, low: Tensor | float | None = None, high: Tensor | float | None = None) -> Tensor:
        """`maximum(low)`, then `minimum(high)`; None is no bound. As in NumPy, `high` wins where `low` exceeds it."""
        raised = self if low is None else self._extremum(MaximumOperator, "clip", low)
        return raised if high is None else raised._extremum(MinimumOperator, "clip", high)

    def _extremum(self, operator: type[TensorOperator], name: str, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return _apply(operator, (self, other), {})
        return _apply(operator, (self,), {"right_literal": _literal(name, other)})

    # ------------------------------------------------------------------------------------- reductions and movement

    def sum(self, axes: Any = None, keepdims: bool = False, *, axis: Any = None) -> Tensor:
        """The sum over `axes` (or `axis`): an int, a sequence of ints, negatives allowed; None means all axes."""
        return self._reduce(SumOperator, axes, keepdims, axis)

    def mean(self, axes: Any = None, keepdims: bool = False, *, axis: Any = None) -> Tensor:
        """The mean over `axes`, as in `sum`. The reduced dims must be ints (unresolved_symbolic_shape)."""
        return self._reduce(MeanOperator, axes, keepdims, axis)

    def _reduce(self, operator: type[TensorOperator], axes: Any, keepdims: bool, axis: Any) -> Tensor:
        if axes is not None and axis is not None:
            raise TypeError("axes and axis mean the same; give one of them")
        given = axis if axes is None else axes
        type_ = self._type()
        if type_ is not None:
            rank = len(type_.shape)
            given = list(range(rank) if given is None else normalize_axes(given, rank))
        elif is_sequence(given):
            given = list(given)
        return _apply(operator, (self,), {"axes": given, "keepdims": keepdims})

    def reshape(self, shape: Any, *more: Any) -> Tensor:
        """The same elements in another shape, given as a sequence or as ints; one dim may be -1."""
        target = list(shape) if is_sequence(shape) and not more else [shape, *more]
        type_ = self._type()
        if type_ is not None:
            builder = self._traced_by()
            target = list(infer_dim(type_.shape, target, builder.symbols, label="the shape of reshape"))
        return _apply(ReshapeOperator, (self,), {"shape": target})

    def broadcast_to(self, shape: Any, *more: Any) -> Tensor:
        """The tensor repeated by NumPy broadcasting to a shape, given as a sequence or as ints."""
        target = list(parse_shape([shape, *more] if more else shape, label="the shape of broadcast_to"))
        return _apply(BroadcastOperator, (self,), {"shape": target})

    def transpose(self, permutation: Any = None, *more: Any) -> Tensor:
        """Axis i of the result is axis permutation[i]; None reverses the axes."""
        perm = (permutation, *more) if more else permutation
        type_ = self._type()
        if perm is None and type_ is not None:
            perm = range(len(type_.shape))[::-1]
        return _apply(TransposeOperator, (self,), {"perm": list(perm) if is_sequence(perm) else perm})

    @property
    def T(self) -> Tensor:
        """The transpose of a matrix; another rank raises invalid_permutation."""
        if self.ndim != 2:
            raise AutodiffError("invalid_permutation", f".T needs rank 2, got {self.ndim}; use transpose or .mT")
        return self.transpose()

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped; rank below 2 raises invalid_permutation."""
        if self.ndim < 2:
            raise AutodiffError("invalid_permutation", f".mT needs rank 2 or more, got {self.ndim}")
        *batch, row, column = range(self.ndim)
        return self.transpose([*batch, column, row])

    # ------------------------------------------------------------------------------------------------------- type

    @property
    def shape(self) -> Shape:
        """A tuple of ints and symbols. An untyped tensor raises missing_shape_metadata, as for `dtype` and `ndim`."""
        return self._known_type().shape

    @property
    def dtype(self) -> str:
        """ "f32" or "f64"."""
        return self._known_type().dtype

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    def _traced_by(self) -> Trace:
        builder = self._builder
        if builder is None:
            raise RuntimeError("this tensor belongs to no trace yet")
        return builder

    def _type(self) -> TensorType | None:
        return None if self._builder is None else self._builder.type_of(self)

    def _known_type(self) -> TensorType:
        type_ = self._type()
        if type_ is None:
            raise AutodiffError("missing_shape_metadata", f"{self!r} is untyped; declare it with builder.input")
        return type_

    def __repr__(self) -> str:
        name = "" if self._name is None else f" {self._name}"
        return f"<Tensor{name} {self._type() or 'untyped'}>"

    # ------------------------------------------------------------------------------------------------ no value yet

    def _no_value(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "a traced tensor has no value yet: it cannot be tested, converted, compared or iterated; run the lowered"
            " program for values"
        )

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _no_value
    __len__ = __iter__ = __contains__ = __array__ = _no_value
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_value
    __hash__ = object.__hash__  # by identity, as a builder knows its tensors

    def _not_traced(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "powers, //, %, abs and indexing have no operator here: write x * x for a square, reshape or matmul for a"
            " selection, or give an operator of your own to builder.apply"
        )

    __pow__ = __rpow__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _not_traced
    __abs__ = __getitem__ = _not_traced

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        """NumPy asks this before it takes a tensor apart."""
        name = getattr(function, "__name__", "this function")
        raise TypeError(f"numpy.{name} does not trace: use the tensor's own operations, such as x.mean() or x @ y")


def _literal(sign: str, value: object) -> int | float:
    """A real number as a plain int or float."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"an operand of {sign} must be a Tensor or a real number, got {quote(value)}; declare an array as an input"
        )
    number: Any = value
    with suppress(OverflowError):  # such a value is refused below, as it is
        number = int(value) if isinstance(value, Integral) else float(value)
    check_literal(number)
    return number  # type: ignore[no-any-return]


def _apply(operator: type[TensorOperator], operands: tuple[Tensor, ...], op_params: dict[str, Any]) -> Tensor:
    builder = ACTIVE.get()
    if builder is None:
        raise RuntimeError(
            f"{operator.__name__} outside of an active trace; run Tensor code inside `with TensorGraphBuilder()`"
        )
    return builder.apply(operator, operands, op_params)
