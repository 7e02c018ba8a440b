"""The front end: ordinary Tensor code, run once inside a builder, becomes a graph.

A `Tensor` has a type but no value. Every operation on one asks the active builder to record a node.
"""

from __future__ import annotations

from contextvars import ContextVar
from keyword import iskeyword
from numbers import Integral, Real
from types import TracebackType
from typing import Any, Final, Mapping, NoReturn, Sequence

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import (
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
    post_order,
    producer_index,
)
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    DivOperator,
    MatmulOperator,
    MeanOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.types import (
    Shape,
    TensorType,
    Typespec,
    check_floating,
    check_literal,
    infer_dim,
    is_sequence,
    normalize_axes,
    parse_shape,
    parse_type,
    typespec,
)

_ACTIVE: ContextVar[TensorGraphBuilder | None] = ContextVar("tinychain_autodiff_builder", default=None)

_CAPTURED: Final[frozenset[type[TensorOperator]]] = frozenset(
    {
        AddOperator,
        SubOperator,
        MulOperator,
        DivOperator,
        MatmulOperator,
        SumOperator,
        MeanOperator,
        ReshapeOperator,
        TransposeOperator,
        BroadcastOperator,
    }
)


def get_active_builder() -> TensorGraphBuilder | None:
    """The builder whose context is open here, or None."""
    return _ACTIVE.get()


def captured_operator_types() -> set[type[TensorOperator]]:
    """The operator classes that tracing records."""
    return set(_CAPTURED)


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

    def __init__(self, builder: TensorGraphBuilder | None = None, name: str | None = None) -> None:
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
        return _apply(operator, (self,), {"axes": given, "keepdims": keepdims})

    def reshape(self, shape: Any, *more: Any) -> Tensor:
        """The same elements in another shape, given as a sequence or as ints; one dim may be -1."""
        target = list(shape) if is_sequence(shape) and not more else [shape, *more]
        type_ = self._type()
        if type_ is not None:
            builder = self._traced_by()
            target = list(infer_dim(type_.shape, target, builder.symbols, label="the shape of reshape"))
        return _apply(ReshapeOperator, (self,), {"shape": target})

    def broadcast_to(self, shape: Any) -> Tensor:
        """The tensor repeated to `shape` by NumPy broadcasting."""
        target = list(parse_shape(shape, label="the shape of broadcast_to"))
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

    def _traced_by(self) -> TensorGraphBuilder:
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
            "a traced tensor has no value yet: it cannot be tested, converted, indexed, compared or iterated; run the"
            " lowered program for values"
        )

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _no_value
    __len__ = __iter__ = __getitem__ = __contains__ = __array__ = _no_value
    __lt__ = __le__ = __gt__ = __ge__ = _no_value


def _literal(sign: str, value: object) -> int | float:
    """A real number as a plain int or float."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"an operand of {sign} must be a Tensor or a real number, got {quote(value)}; declare an array as an input"
        )
    number = int(value) if isinstance(value, Integral) else float(value)
    check_literal(number)
    return number


def _apply(operator: type[TensorOperator], operands: tuple[Tensor, ...], op_params: dict[str, Any]) -> Tensor:
    builder = _ACTIVE.get()
    if builder is None:
        raise RuntimeError(
            f"{operator.__name__} outside of an active trace; run Tensor code inside `with TensorGraphBuilder()`"
        )
    return builder.apply(operator, operands, op_params)


class TensorGraphBuilder:
    """Records the Tensor operations that run inside its context. A builder traces once.

    Values are v0, v1, ... and nodes n0, n1, ...; symbol bindings hold for the whole trace. An operation that fails
    records nothing and binds nothing.
    """

    def __init__(self) -> None:
        self._specs: dict[str, Typespec | None] = {}
        self._recorded_ids: set[str] = set()
        self._emit = Emitter(
            specs=self._specs, mint_value=mint("v", self._specs), mint_node=mint("n", self._recorded_ids)
        )
        # id(object) -> value id; the objects are kept, so that no id is used again.
        self._value_ids: dict[int, str] = {}
        self._objects: list[object] = []
        self._inputs: dict[str, str] = {}
        self._marked: dict[str, None] = {}
        self._state = "new"

    # ----------------------------------------------------------------------------------------------------- context

    def __enter__(self) -> TensorGraphBuilder:
        if _ACTIVE.get() is not None:
            raise RuntimeError("Nested traces are not supported; close the active TensorGraphBuilder first")
        if self._state != "new":
            raise RuntimeError("a TensorGraphBuilder is single-trace; make a new one")
        self._state = "active"
        _ACTIVE.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _ACTIVE.set(None)
        self._state = "done" if kind is None else "failed"

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols that the trace has bound so far, as a copy."""
        return dict(self._emit.symbols)

    # ---------------------------------------------------------------------------------------------------- recording

    def input(self, name: str, *, dtype: str, shape: Sequence[int | str]) -> Tensor:
        """Declares an input and returns its tensor.

        Raises RuntimeError outside the active trace, TypeError for a name that is no str or empty, ValueError for one
        that is no identifier or is taken and for a malformed shape, dtype_not_differentiable for another dtype.
        """
        if _ACTIVE.get() is not self:
            raise RuntimeError(f"input {quote(name)} must be declared inside the builder's active trace")
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of an input must be a non-empty str, got {quote(name)}")
        if not name.isidentifier() or iskeyword(name):
            raise ValueError(f"the name of an input must be an identifier and no keyword, got {quote(name)}")
        if name in self._inputs:
            raise ValueError(f"duplicate input name {quote(name)}")
        if not isinstance(dtype, str):
            raise AutodiffError("dtype_not_differentiable", f"input {quote(name)} has the dtype {quote(dtype)}")
        check_floating(dtype)
        try:
            dims = parse_shape(shape, label=f"input {quote(name)}")
        except AutodiffError as error:
            raise ValueError(error.message) from None
        tensor = Tensor(self, name)
        value_id = self._adopt(tensor)
        self._specs[value_id] = typespec(TensorType(dtype, dims))
        self._inputs[name] = value_id
        return tensor

    def register_value(self, obj: object, value_id: str | None = None) -> str:
        """The value id of `obj`, by identity; a new object gets the next id, or `value_id`.

        Raises TypeError for a bad id, ValueError where the object already has another.
        """
        if value_id is not None:
            _check_id(value_id, "value_id")
        known = self._value_ids.get(id(obj))
        if known is not None:
            if value_id is not None and value_id != known:
                raise ValueError(f"the object is already registered as {quote(known)}, not {quote(value_id)}")
            return known
        return self._adopt(obj, value_id)

    def value_id(self, obj: object) -> str:
        """The id under which `obj` was traced; ValueError for an object of no or another trace."""
        known = self._value_ids.get(id(obj))
        if known is None:
            name = f" (input {quote(obj._name)})" if isinstance(obj, Tensor) and obj._name is not None else ""
            raise ValueError(f"{quote(obj)}{name} was not traced by this builder")
        return known

    def type_of(self, obj: object) -> TensorType | None:
        """The type of a traced object, None if it is untyped; ValueError as for `value_id`."""
        return self._emit.type(self.value_id(obj))

    def record(self, node: TensorNodeRecord) -> None:
        """Appends a node that was built by hand, unchecked. Raises TypeError for another kind of object."""
        if not isinstance(node, TensorNodeRecord):
            raise TypeError(f"record takes a TensorNodeRecord, got {quote(node)}")
        self._emit.nodes.append(node)
        self._recorded_ids.add(node.node_id)
        for operand in node.input_value_ids:
            self._specs.setdefault(operand, None)
        self._specs[node.output_value_id] = node.output_typespec

    def mark_output(self, obj: object) -> None:
        """Makes a traced object an output of `build()`; marking again changes nothing."""
        self._marked.setdefault(self.value_id(obj))

    def mark_output_value(self, value_id: str) -> None:
        """`mark_output` by id; TypeError for a bad one."""
        self._marked.setdefault(_check_id(value_id, "value_id"))

    def apply(self, operator: type[TensorOperator], operands: Sequence[Tensor], op_params: Mapping[str, Any]) -> Tensor:
        """Records one operation and returns its result: how an operator of your own gets into a trace."""
        known = self._value_ids
        operand_ids = [known.get(id(operand)) or self._operand_id(operand) for operand in operands]
        value_id = self._emit.emit(operator, operand_ids, op_params)
        result = Tensor(self)
        known[id(result)] = value_id
        self._objects.append(result)
        return result

    def _operand_id(self, operand: Tensor) -> str:
        """The id of an operand at its first use: a tensor of no trace becomes a free, untyped value of this one."""
        return self._adopt(operand) if operand._builder is None else self.value_id(operand)

    def _adopt(self, obj: object, value_id: str | None = None) -> str:
        if value_id is None:
            value_id = self._emit.mint_value()
        self._specs.setdefault(value_id, None)
        self._value_ids[id(obj)] = value_id
        self._objects.append(obj)
        if isinstance(obj, Tensor):
            obj._builder = self
        return value_id

    # ----------------------------------------------------------------------------------------------------- artifacts

    def build(self, outputs: object = None) -> TensorGraph:
        """The graph of what was recorded so far.

        With `outputs` (a traced object or a sequence of them) the graph is typed: its inputs are the reachable ones,
        declared ones first, and every reachable value has a complete typespec, or missing_dtype_metadata or
        missing_shape_metadata is raised. Without, nothing is checked and inputs carry no typespec.
        """
        nodes = self._emit.nodes
        if outputs is None:
            marked = list(self._marked) or [node.output_value_id for node in nodes[-1:]]
            return TensorGraph(nodes, [(value_id, None) for value_id in _free_values(nodes)], marked)
        requested = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if not requested:
            raise ValueError("build needs at least one output")
        output_ids = list(dict.fromkeys([self.value_id(output) for output in requested]))
        producers = producer_index(nodes, category="malformed_derivative_ir")
        reachable = post_order([producers[v] for v in output_ids if v in producers], producers)
        free = dict.fromkeys(_free_values(reachable))
        free.update(dict.fromkeys([v for v in output_ids if v not in producers]))
        declared = [value_id for value_id in self._inputs.values() if value_id in free]
        ordered = dict.fromkeys([*declared, *free])
        self._check_typed(sorted(free), reachable)
        return TensorGraph(nodes, [(value_id, self._specs.get(value_id)) for value_id in ordered], output_ids)

    def _check_typed(self, free: list[str], reachable: list[TensorNodeRecord]) -> None:
        for value_id in free:
            if self._emit.type(value_id) is None:
                parse_type(self._specs.get(value_id), label=f"input value {quote(value_id)}")
        for node in reachable:
            if self._emit.type(node.output_value_id) is None:
                parse_type(node.output_typespec, label=f"value {quote(node.output_value_id)}")

    def vjp(
        self, output: object, *, wrt: Sequence[object], seed: str = "seed", graph_id: str | None = None
    ) -> DerivativeProgram:
        """The derivative program of one traced output with respect to traced tensors.

        The seed has the output's type. Raises RuntimeError before the trace has ended well, TypeError or ValueError for
        a wrong `wrt`, and what `generate` raises. May be called again.
        """
        if self._state != "done":
            raise RuntimeError("vjp is available after the trace context has exited successfully")
        if not is_sequence(wrt):
            raise TypeError(f"wrt must be a sequence of traced tensors, got {quote(wrt)}")
        if not wrt:
            raise ValueError("wrt must name at least one tensor")
        wrt_ids: dict[str, None] = {}
        for target in wrt:
            value_id = self.value_id(target)
            if value_id in wrt_ids:
                raise ValueError(f"wrt has a duplicate: {quote(target)} with the value id {quote(value_id)}")
            wrt_ids[value_id] = None
        graph = self.build(outputs=[output])
        (output_id,) = graph.outputs
        type_ = self._emit.type(output_id)
        assert type_ is not None  # a typed build has no untyped output
        return generate(graph, output_id, list(wrt_ids), seed, seed_typespec=typespec(type_), graph_id=graph_id)


def _free_values(nodes: Sequence[TensorNodeRecord]) -> list[str]:
    """The operands that no node produces, in the order of their first use."""
    produced = {node.output_value_id for node in nodes}
    return list(dict.fromkeys([v for node in nodes for v in node.input_value_ids if v not in produced]))


def _check_id(value_id: object, argument: str) -> str:
    if not isinstance(value_id, str) or not value_id:
        raise TypeError(f"{argument} must be a non-empty str, got {quote(value_id)}")
    return value_id
