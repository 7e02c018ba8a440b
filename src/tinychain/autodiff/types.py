"""The typespec algebra: dtypes, dims, shapes, symbols, axes and broadcasting.

A typespec is the mapping `{"dtype": str, "shape": list}` at every boundary; inside it is a `TensorType`. A dim is a
non-negative int or an identifier string, a symbol; `symbols` is the table symbol -> int of one program.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from operator import index
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from tinychain.autodiff.errors import AutodiffError, quote

FLOATING_DTYPES: Final[tuple[str, ...]] = ("f32", "f64")

#: The bytes of one element.
ITEM_BYTES: Final[Mapping[str, int]] = {"f32": 4, "f64": 8}

Dim: TypeAlias = int | str
Shape: TypeAlias = tuple[Dim, ...]
Symbols: TypeAlias = MutableMapping[str, int]
Typespec: TypeAlias = Mapping[str, Any]


class TensorType(NamedTuple):
    """A complete typespec: the dtype and the shape of one value."""

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join([dim if isinstance(dim, str) else quote(dim) for dim in self.shape])}]"


# ---------------------------------------------------------------------------------------------------------- parsing


def as_int(value: object) -> int | None:
    """`value` as a plain int if it is an integer other than a bool (IntEnum and NumPy integers are), else None."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except Exception:
        return None


def parse_dim(dim: object, *, label: str) -> Dim:
    """A non-negative int or an identifier; anything else raises missing_shape_metadata."""
    if isinstance(dim, str):
        if dim.isidentifier():
            return str(dim)
    elif (size := as_int(dim)) is not None and size >= 0:
        return size
    raise AutodiffError(
        "missing_shape_metadata",
        f"{label} has the dim {quote(dim)}; a dim is a non-negative int or an identifier string",
    )


def parse_shape(shape: object, *, label: str) -> Shape:
    """A tuple of dims; None, a str, a non-sequence or a bad dim raises missing_shape_metadata."""
    if not is_sequence(shape):
        raise AutodiffError(
            "missing_shape_metadata", f"{label} declares no ranked shape; expected a list of dims, got {quote(shape)}"
        )
    return tuple([parse_dim(dim, label=label) for dim in shape])


def spec_field(spec: object, name: str) -> Any:
    """`spec[name]`, or None where `spec` is no mapping, lacks the key or raises on the way."""
    if type(spec) is not dict and not isinstance(spec, Mapping):
        return None
    try:
        return spec.get(name)
    except Exception:
        return None


def parse_dtype(spec: object, *, label: str) -> str:
    """The dtype of a typespec; absent or no str raises missing_dtype_metadata."""
    dtype = spec_field(spec, "dtype")
    if not isinstance(dtype, str) or not dtype:
        raise AutodiffError(
            "missing_dtype_metadata",
            f'{label} declares no dtype; expected {{"dtype": "f32" or "f64", "shape": [...]}}, got {quote(spec)}',
        )
    return dtype


def parse_type(spec: object, *, label: str) -> TensorType:
    """A complete typespec, the dtype judged first; see `parse_dtype` and `parse_shape`."""
    return TensorType(parse_dtype(spec, label=label), parse_shape(spec_field(spec, "shape"), label=label))


def typespec(type_: TensorType) -> dict[str, Any]:
    """The boundary form of a type, in a new dict."""
    return {"dtype": type_.dtype, "shape": list(type_.shape)}


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """A sequence that is not text."""
    if type(value) is list or type(value) is tuple:  # asking an abstract class is ten times slower
        return True
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


# ----------------------------------------------------------------------------------------------------------- dtypes


def check_floating(dtype: str) -> str:
    """`dtype` itself; one that has no gradient raises dtype_not_differentiable."""
    if dtype not in FLOATING_DTYPES:
        raise AutodiffError(
            "dtype_not_differentiable", f"the dtype is {quote(dtype)}; expected one of {', '.join(FLOATING_DTYPES)}"
        )
    return dtype


def common_dtype(x: str, y: str) -> str:
    """The dtype of both operands: there is no promotion (dtype_mismatch), and it is a floating one."""
    if x != y:
        raise AutodiffError(
            "dtype_mismatch",
            f"operand dtypes are {quote(x)} and {quote(y)}; there is no promotion, so declare both alike",
        )
    return check_floating(x)


# ------------------------------------------------------------------------------------------------- symbols and dims


def bind(symbols: Symbols, symbol: str, size: int) -> None:
    """Binds a symbol; a conflicting rebinding raises symbolic_shape_mismatch."""
    if symbols.setdefault(symbol, size) != size:
        raise AutodiffError(
            "symbolic_shape_mismatch",
            f"symbol {quote(symbol)} is bound to {quote(symbols[symbol])} and now meets {quote(size)}",
        )


def unify_dims(x: Dim, y: Dim, symbols: Symbols, *, category: str = "symbolic_shape_mismatch") -> Dim:
    """The dim that both are. A symbol binds an int; two different symbols raise unresolved_symbolic_shape."""
    if x == y:
        return x
    if isinstance(x, str):
        if isinstance(y, str):
            raise AutodiffError(
                "unresolved_symbolic_shape", f"symbols {quote(x)} and {quote(y)} are not known to be equal"
            )
        bind(symbols, x, y)
        return y
    if isinstance(y, str):
        bind(symbols, y, x)
        return x
    raise AutodiffError(category, f"dims {quote(x)} and {quote(y)} differ")


def unify_shapes(x: Shape, y: Shape, symbols: Symbols, *, category: str) -> Shape:
    """Dim by dim as `unify_dims`; a failure of any kind is raised under `category`."""
    try:
        return tuple([unify_dims(a, b, symbols) for a, b in zip(x, y, strict=True)])
    except (ValueError, AutodiffError) as error:
        why = error.message if isinstance(error, AutodiffError) else f"ranks {len(x)} and {len(y)} differ"
        raise AutodiffError(category, f"shapes {quote(list(x))} and {quote(list(y))} are not the same: {why}") from None


def resolve_shape(
    shape: Shape, symbols: Mapping[str, int], *, label: str, remedy: str = "declare an int"
) -> tuple[int, ...]:
    """The shape with every symbol replaced; an unbound one raises unresolved_symbolic_shape."""
    sizes = []
    for dim in shape:
        size = symbols.get(dim) if isinstance(dim, str) else dim
        if size is None:
            raise AutodiffError(
                "unresolved_symbolic_shape",
                f"{label} has the symbol {quote(dim)}, whose size is not known; {remedy}",
            )
        sizes.append(size)
    return tuple(sizes)


def element_count(shape: Shape) -> int:
    """The number of elements; a symbol raises unresolved_symbolic_shape."""
    return math.prod(resolve_shape(shape, {}, label=f"shape {quote(list(shape))}"))


def parse_bindings(bindings: object) -> dict[str, int]:
    """Caller-given sizes of symbols, None meaning none; TypeError or ValueError for what is no such thing."""
    if bindings is None:
        return {}
    if not isinstance(bindings, Mapping):
        raise TypeError(f"shape_bindings must be a mapping from symbol to size, got {quote(bindings)}")
    sizes = {symbol: as_int(size) for symbol, size in bindings.items()}
    known = {symbol: size for symbol, size in sizes.items() if size is not None and size >= 0}
    for symbol in sizes.keys() - known.keys():
        raise ValueError(
            f"shape_bindings binds {quote(symbol)} to {quote(bindings[symbol])}; expected a non-negative int"
        )
    return known


def bind_shape(declared: Shape, actual: Sequence[int], symbols: Symbols) -> bool:
    """Whether a real shape has the declared rank and ints; if so, the declared symbols are bound to its dims."""
    if len(declared) != len(actual):
        return False
    pairs = list(zip(declared, actual, strict=True))
    if any(isinstance(dim, int) and dim != size for dim, size in pairs):
        return False
    for dim, size in pairs:
        if isinstance(dim, str):
            bind(symbols, dim, size)
    return True


# ----------------------------------------------------------------------------------------------------- broadcasting


def broadcast_dims(x: Dim, y: Dim, symbols: Symbols) -> Dim:
    """A literal 1 yields the other dim; otherwise both are unified."""
    if x == 1:
        return y
    if y == 1:
        return x
    return unify_dims(x, y, symbols, category="broadcast_shape_mismatch")


def broadcast_shapes(x: Shape, y: Shape, symbols: Symbols) -> Shape:
    """NumPy broadcasting, right aligned; unequal ints raise broadcast_shape_mismatch."""
    if x == y:
        return x
    longer, shorter = (x, y) if len(x) >= len(y) else (y, x)
    lead = len(longer) - len(shorter)
    try:
        tail = [broadcast_dims(a, b, symbols) for a, b in zip(longer[lead:], shorter, strict=True)]
    except AutodiffError as error:
        raise AutodiffError(
            error.category, f"shapes {quote(list(x))} and {quote(list(y))} do not broadcast together: {error.message}"
        ) from None
    return (*longer[:lead], *tail)


def broadcast_plan(source: Shape, target: Shape, symbols: Symbols) -> tuple[int, ...]:
    """The axes of `target` along which `source` was repeated to get there, ascending.

    A symbol that meets an int is bound to it, except that a target dim of 1 tells nothing. A rank or dim that cannot
    broadcast raises broadcast_shape_mismatch, two different symbols raise unresolved_symbolic_shape.
    """
    if source == target:
        return ()
    lead = len(target) - len(source)
    if lead < 0:
        raise _cannot_broadcast(source, target, f"rank {len(source)} exceeds rank {len(target)}")
    axes = list(range(lead))
    for axis, (dim, wanted) in enumerate(zip(source, target[lead:], strict=True), start=lead):
        if dim == wanted:
            continue
        if dim == 1:
            axes.append(axis)
        elif not (isinstance(dim, str) and wanted == 1):
            try:
                unify_dims(dim, wanted, symbols, category="broadcast_shape_mismatch")
            except AutodiffError as error:
                raise _cannot_broadcast(source, target, error.message, error.category) from None
    return tuple(axes)


def _cannot_broadcast(
    source: Shape, target: Shape, why: str, category: str = "broadcast_shape_mismatch"
) -> AutodiffError:
    return AutodiffError(category, f"shape {quote(list(source))} does not broadcast to {quote(list(target))}: {why}")


# ------------------------------------------------------------------------------------------ shapes of the operators


def matmul_shape(x: Shape, y: Shape, symbols: Symbols) -> Shape:
    """`[..., m, k] @ [..., k, n] -> [..., m, n]` with broadcast batch dims; ranks below 2 are refused."""
    if len(x) < 2 or len(y) < 2:
        raise AutodiffError(
            "matmul_shape_mismatch",
            f"matmul needs two operands of rank 2 or more, got shapes {quote(list(x))} and {quote(list(y))}; reshape a"
            " vector to a matrix with one row or column",
        )
    unify_dims(x[-1], y[-2], symbols, category="matmul_shape_mismatch")
    try:
        batch = broadcast_shapes(x[:-2], y[:-2], symbols)
    except AutodiffError as error:
        if error.category != "broadcast_shape_mismatch":
            raise
        raise AutodiffError(
            "matmul_shape_mismatch", f"batch dims of {quote(list(x))} @ {quote(list(y))} conflict: {error.message}"
        ) from None
    return (*batch, x[-2], y[-1])


def normalize_axes(axes: object, rank: int) -> tuple[int, ...]:
    """Non-negative, ascending axes from an int or a sequence; anything else raises reduction_shape_mismatch."""
    listed: Iterable[object] = axes if is_sequence(axes) else (axes,)
    normal = []
    for axis in listed:
        number = as_int(axis)
        if number is None or not -rank <= number < rank:
            raise AutodiffError(
                "reduction_shape_mismatch",
                f"axes are {quote(axes)}; expected distinct ints from {-rank} to {rank - 1}, for rank {rank}",
            )
        normal.append(number % rank)
    if len(set(normal)) != len(normal):
        raise AutodiffError("reduction_shape_mismatch", f"axes {quote(axes)} name an axis of rank {rank} twice")
    return tuple(sorted(normal))


def reduced_shape(shape: Shape, axes: Collection[int], *, keepdims: bool) -> Shape:
    """The shape after reducing `axes` (normalised), which stay as 1s with `keepdims`."""
    if keepdims:
        return tuple([1 if axis in axes else dim for axis, dim in enumerate(shape)])
    return tuple([dim for axis, dim in enumerate(shape) if axis not in axes])


def swapped(shape: Sequence[Dim]) -> Shape:
    """The shape, of rank 2 at least, with its last two dims swapped."""
    *batch, rows, columns = shape
    return (*batch, columns, rows)


def parse_permutation(perm: object, rank: int) -> tuple[int, ...]:
    """A permutation of `range(rank)`; negatives, bools, floats, text and None raise invalid_permutation."""
    if is_sequence(perm):
        axes = [axis for axis in map(as_int, perm) if axis is not None]
        if len(perm) == rank and sorted(axes) == list(range(rank)):
            return tuple(axes)
    raise AutodiffError(
        "invalid_permutation", f"perm is {quote(perm)}; expected each of 0 to {rank - 1} once for rank {rank}"
    )


def check_same_count(source: Shape, target: Shape, symbols: Symbols) -> None:
    """Both shapes hold the same number of elements, else shape_mismatch; unresolved_symbolic_shape if undecided."""
    (count, free), (wanted, wanted_free) = _monomial(source, symbols), _monomial(target, symbols)
    if (count, free) != (wanted, wanted_free):
        raise AutodiffError(
            "shape_mismatch" if free == wanted_free else "unresolved_symbolic_shape",
            f"a tensor of shape {quote(list(source))} is not known to have the element count of shape"
            f" {quote(list(target))}",
        )


def infer_dim(source: Shape, target: Sequence[object], symbols: Symbols, *, label: str) -> Shape:
    """`target` with its one -1 replaced by what the element count of `source` leaves for it."""
    unknown = [axis for axis, dim in enumerate(target) if as_int(dim) == -1]
    if not unknown:
        return parse_shape(target, label=label)
    if len(unknown) > 1:
        raise AutodiffError("shape_mismatch", f"{label} is {quote(target)}; at most one dim may be -1")
    (axis,) = unknown
    known = parse_shape([*target[:axis], *target[axis + 1 :]], label=label)
    total, total_symbols = _monomial(source, symbols)
    given, given_symbols = _monomial(known, symbols)
    if total_symbols != given_symbols:
        raise AutodiffError(
            "unresolved_symbolic_shape", f"{label} is {quote(target)}; -1 is not an int for shape {quote(list(source))}"
        )
    if given == 0 or total % given:
        raise AutodiffError("shape_mismatch", f"shape {quote(list(source))} does not divide into {quote(target)}")
    return (*known[:axis], total // given, *known[axis:])


def _monomial(shape: Shape, symbols: Symbols) -> tuple[int, Counter[str]]:
    """The element count as an int times a product of unbound symbols; zero absorbs them."""
    dims = [symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in shape]
    count = math.prod([dim for dim in dims if not isinstance(dim, str)])
    return count, Counter([dim for dim in dims if isinstance(dim, str)] if count else ())


def check_literal(literal: object) -> float:
    """A number that a float can hold, as that float; anything else raises malformed_derivative_ir."""
    if isinstance(literal, (int, float)) and not isinstance(literal, bool):
        try:
            return float(literal)
        except OverflowError:
            pass
    raise AutodiffError(
        "malformed_derivative_ir", f"the literal is {quote(literal)}; expected an int or a float within a float's range"
    )
