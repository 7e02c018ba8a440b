"""Hypothesis strategies that several test files draw from: hostile ids, hand-built artifacts, traced graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from hypothesis import strategies as st

from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.operators import OPERATORS
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

# ---------------------------------------------------------------------------------------------- hand-built artifacts


class TwinOfMulOperator(TensorOperator):
    """An operator of a user's own that shares its route name with one of the package."""

    route_name = "mul"


class OwnOperator(TensorOperator):
    """An operator of a user's own."""

    route_name = "my own"


OWN_OPERATORS = (TwinOfMulOperator, OwnOperator)

_AWKWARD = ["", "v0", "v1", "n0", "input", "null", "nan", "*", "a b", "1x", "a.b", "/w:0", '"', "\\", "\n", "\r\n", "#"]
_AWKWARD += [
    "\\n",
    "é",
    "e\u0301",
    "π",
    "²",
    "\ud800",
    "\ud83d\ude00",
    "\U0001f600",
    "\u2028",
    "\x00",
    "\u202e",
    "v" * 300,
]

#: Any str is an id.
hostile_ids = st.sampled_from(_AWKWARD) | st.text(st.characters(), max_size=6)

_scalars = st.none() | st.booleans() | st.integers() | st.integers(2**2000, 2**2100) | st.floats() | hostile_ids


def _containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3) | st.dictionaries(hostile_ids, items, max_size=3)


#: What op_params may hold: JSON data, with every float.
plain_values = st.recursive(_scalars, _containers, max_leaves=8)

op_params = st.dictionaries(
    st.sampled_from(["right_literal", "axes", "keepdims"]) | hostile_ids, plain_values, max_size=3
)

_dims = st.integers(0, 2**70) | st.sampled_from(["N", "batch"])
_complete_typespecs = st.builds(
    lambda dtype, shape: {"dtype": dtype, "shape": shape},
    st.sampled_from(["f32", "f64"]),
    st.lists(_dims, max_size=3),
)
# Keys are in order because the short form of a typespec keeps none.
_odd_typespecs = st.dictionaries(st.sampled_from(["dtype", "shape", "layout"]), plain_values, max_size=3).map(
    lambda spec: dict(sorted(spec.items()))
)

#: None, complete, partial, malformed and with extra keys.
typespecs: st.SearchStrategy[Any] = st.none() | _complete_typespecs | _odd_typespecs

_operators = st.sampled_from([operator() for operator in (*OPERATORS, *OWN_OPERATORS)])

#: Records that need not make sense: any operator, ids, params, number of operands and typespec.
node_records = st.builds(
    TensorNodeRecord,
    node_id=hostile_ids,
    output_value_id=hostile_ids,
    operator=_operators,
    op_params=op_params,
    input_value_ids=st.lists(hostile_ids, max_size=3),
    output_typespec=typespecs,
)
_node_lists = st.lists(node_records, max_size=4)

graphs = st.builds(
    TensorGraph,
    nodes=_node_lists,
    inputs=st.lists(st.tuples(hostile_ids, typespecs), max_size=3),
    outputs=st.lists(hostile_ids, max_size=3),
)

_metadata = st.builds(
    DerivativeMetadata,
    source_graph_id=hostile_ids,
    transform_version=hostile_ids,
    tensor_op_contract_version=hostile_ids,
    wrt_signature=st.lists(hostile_ids, max_size=3).map(tuple),
    seed_contract=hostile_ids,
)


@st.composite
def programs(draw: st.DrawFn) -> DerivativeProgram:
    """Hand-built programs; the typespec table is now the sorted one of `generate`, now any other."""
    nodes = draw(_node_lists)
    table = draw(st.dictionaries(hostile_ids, typespecs, max_size=3))
    if draw(st.booleans()):
        table.update({node.output_value_id: node.output_typespec for node in nodes})
        table = dict(sorted(table.items(), key=lambda item: item[0]))
    return DerivativeProgram(
        nodes=nodes,
        gradients=draw(st.dictionaries(hostile_ids, hostile_ids, max_size=3)),
        output_gradients=draw(st.lists(st.none() | hostile_ids, max_size=3)),
        metadata=draw(_metadata),
        value_typespecs=table,
    )


# ----------------------------------------------------------------------------------------------------- traced graphs

_LITERALS = st.sampled_from([-1.5, -1, 0.5, 2, 3.0])
_MAX_RANK = 3


@st.composite
def traced_graphs(draw: st.DrawFn, *, dtype: str = "f64", max_operations: int = 8) -> TensorGraph:
    """The typed graph of a random trace, with one output and dims of at most 3.

    Every smooth operation that tracing records may occur, on one tensor twice and on shared ones too; a kink could lie
    between two points of a difference. A divisor, a radicand and what a logarithm is taken of are at least 1 and an
    exponent at most 1, so that inputs of about 1 give values and gradients that floats hold well.
    """
    with TensorGraphBuilder() as builder:
        shapes = draw(st.lists(st.lists(st.integers(1, 3), max_size=_MAX_RANK), min_size=1, max_size=3))
        tensors = [builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)]
        for _ in range(draw(st.integers(1, max_operations))):
            x = tensors[-1] if draw(st.booleans()) else draw(st.sampled_from(tensors))
            operation = draw(st.sampled_from(_OPERATIONS))
            tensors.append(operation(draw, x, tensors))
        return builder.build(outputs=[tensors[-1]])


def _partner(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """A tensor that broadcasts with x, which may be x itself."""
    return draw(st.sampled_from([y for y in tensors if _broadcasts(x.shape, y.shape)]))


def _broadcasts(x: Sequence[int | str], y: Sequence[int | str]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip_longest(reversed(x), reversed(y), fillvalue=1))


def _add(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    return x + _partner(draw, x, tensors)


def _sub(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    return x - _partner(draw, x, tensors)


def _mul(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    return x * _partner(draw, x, tensors)


def _div(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    y = _partner(draw, x, tensors)
    return x / (y * y + 1.0)


def _neg(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    return -x


def _right_literal(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    literal = draw(_LITERALS)
    forms: list[Callable[[], Tensor]] = [lambda: x + literal, lambda: x - literal, lambda: x * literal]
    forms.append(lambda: x / literal)
    return draw(st.sampled_from(forms))()


def _left_literal(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    literal = draw(_LITERALS)
    forms: list[Callable[[], Tensor]] = [lambda: literal + x, lambda: literal - x, lambda: literal * x]
    forms.append(lambda: literal / (x * x + 1.0))
    return draw(st.sampled_from(forms))()


def _unary(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    at_least_1 = x * x + 1.0
    forms: list[Callable[[], Tensor]] = [at_least_1.sqrt, at_least_1.log, (x / at_least_1).exp]
    return draw(st.sampled_from(forms))()


def _matmul(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    if x.ndim < 2:
        x = x.reshape([1, -1])
    others = [
        y for y in tensors if y.ndim >= 2 and x.shape[-1] == y.shape[-2] and _broadcasts(x.shape[:-2], y.shape[:-2])
    ]
    return x @ draw(st.sampled_from([*others, x.mT]))


def _reduce(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    chosen = draw(st.none() | st.sets(st.integers(0, max(x.ndim - 1, 0)), max_size=x.ndim))
    axes = None if chosen is None else [axis - x.ndim if draw(st.booleans()) else axis for axis in sorted(chosen)]
    keepdims = draw(st.booleans())
    return x.sum(axes, keepdims) if draw(st.booleans()) else x.mean(axes, keepdims)


def _reshape(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    shapes: list[list[int | str]] = [[-1], [*x.shape[:-1], -1], list(x.shape[::-1])]
    if x.ndim < _MAX_RANK:
        shapes.append([1, *x.shape])
    return x.reshape(draw(st.sampled_from(shapes)))


def _transpose(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    return x.transpose(draw(st.none() | st.permutations(range(x.ndim))))


def _broadcast(draw: st.DrawFn, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    shape = [draw(st.integers(1, 3)) if dim == 1 else dim for dim in x.shape]
    if x.ndim < _MAX_RANK and draw(st.booleans()):
        shape.insert(0, draw(st.integers(1, 3)))
    return x.broadcast_to(shape)


_OPERATIONS: list[Callable[[st.DrawFn, Tensor, Sequence[Tensor]], Tensor]] = [
    _add,
    _sub,
    _mul,
    _div,
    _neg,
    _right_literal,
    _left_literal,
    _unary,
    _matmul,
    _reduce,
    _reshape,
    _transpose,
    _broadcast,
]
