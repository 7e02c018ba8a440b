"""The records that every stage reads and writes.

Artifacts are plain data: frozen records around ordinary lists and dicts. No stage changes one; each makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.types import Symbols, TensorType, Typespec, check_literal, is_sequence

if TYPE_CHECKING:
    from tinychain.autodiff.emitter import Emitter

# The version of the rules by which `generate` emits, and of the operator set that it emits.
TRANSFORM_VERSION: Final = "1"
TENSOR_OP_CONTRACT_VERSION: Final = "1"


# -------------------------------------------------------------------------------------------------------- operators


class Sample(NamedTuple):
    """One example of an operator for the test suite: operand shapes, params, and the range of the operands' values."""

    shapes: tuple[tuple[int, ...], ...]
    op_params: Mapping[str, Any] = {}
    domain: tuple[float, float] = (-2.0, 2.0)


class Decline(NamedTuple):
    """The answer of a rule that does not apply, with the reason that the user reads.

    `concerns` is false where the rule is for other forms of the operator, so that a reader learns nothing from it.
    """

    reason: str
    concerns: bool = True


#: An exact rewrite of one node: emits a region that ends in the node's own value, or declines.
ExpansionRule: TypeAlias = "Callable[[Emitter, TensorNodeRecord], Decline | None]"

_Method = TypeVar("_Method", bound=Callable[..., "Decline | None"])


def expansion(method: _Method) -> _Method:
    """Marks a method `(self, emit, node)` of an operator class as a rule that legalization may apply."""
    method.is_expansion = True  # type: ignore[attr-defined]  # functions take attributes
    return method


@dataclass(frozen=True, init=False)
class TensorOperator:
    """What a node computes. A subclass names itself in `route_name` and is constructed with no argument.

    Everything that the package knows of an operator is in its class; the methods below are its facts, and a subclass
    of your own defines those that it needs. Equal when class and `route_name` are.
    """

    route_name: str

    #: The keys that `op_params` may have.
    params: ClassVar[tuple[str, ...]] = ()
    #: The category under which a declared output shape that the operands contradict is reported.
    shape_category: ClassVar[str] = "malformed_derivative_ir"
    #: The array function, such as "add", that computes it from the operands and the right_literal, into new memory.
    ufunc: ClassVar[str | None] = None
    #: Why no rule can rewrite what it computes; what the user reads of an operator that has no rule.
    inexact: ClassVar[str] = "there is no rule for it"
    #: How the result multiplies, for counting multiplicative depth: "never" (operands are moved and added up), "scale"
    #: (so too, then once by a number of its own), "product" (of two operands, or of one and the right_literal),
    #: "quotient" (a product with the reciprocal of the second). None: it is no polynomial, or nobody says.
    multiplies: ClassVar[str | None] = None
    #: Examples that `tinychain.autodiff.testing.check_operator` runs through every check.
    samples: ClassVar[Sequence[Sample]] = ()

    def __init__(self, route_name: str | None = None) -> None:
        if route_name is not None:
            object.__setattr__(self, "route_name", route_name)
        if not isinstance(getattr(self, "route_name", None), str):
            raise TypeError(f"{type(self).__name__} has no route_name; set the class attribute route_name to a str")

    def operand_count(self, op_params: Mapping[str, Any]) -> int | None:
        """How many operands a node with these params has; None means any number."""
        return None

    def result_type(self, symbols: Symbols, *operands: Any, **op_params: Any) -> TensorType:
        """The type of the result, the one place that knows the shape rule. May bind symbols; raises AutodiffError."""
        raise AutodiffError(
            "autodiff_not_implemented", f"operator {self.name} has no type rule; define result_type on its class"
        )

    def vjp(self, emit: Emitter, node: TensorNodeRecord, g: str) -> Sequence[str | Callable[[], str] | None]:
        """The vector-Jacobian product: one entry per operand, given the id `g` of the result's cotangent.

        An entry is a value id, None (no gradient flows), or a function of no argument that emits and returns the id;
        it is called only when somebody needs that gradient. Undoing a broadcast and adding up is the engine's.
        """
        raise AutodiffError(
            "missing_derivative_behavior",
            f"operator {self.name} of node {quote(node.node_id)} has no VJP; define vjp on its class, or keep it off"
            " the path from wrt to output",
        )

    def reference(self, xp: Any, *operands: Any, **op_params: Any) -> Any:
        """What it computes, in terms of an array namespace `xp` such as numpy; its `ufunc`, where it has one."""
        if self.ufunc is not None:
            return getattr(xp, self.ufunc)(*operands, *map(check_literal, op_params.values()))
        raise AutodiffError(
            "unsupported_operator", f"operator {self.name} has no reference meaning; define reference on its class"
        )

    def flops(self, result: TensorType, *operands: Any, **op_params: Any) -> int | None:
        """The floating-point operations of one execution, given types without symbols; None where nobody says.

        One per element of an elementwise result, one per element that is reduced, 2 m n k of a matmul, none of a move.
        """
        return None

    def transposed(self, emit: Emitter, node: TensorNodeRecord, of: Callable[[str], str]) -> str | Decline:
        """Emits the result with its last two axes swapped, from operands that are so swapped: their ids by `of`.

        A vector operand comes as a column, a scalar as it is. Asked for results of rank 2 and more only.
        """
        return Decline(f"{self.name} has no transposed form")

    def expansion_level(self, result: TensorType, *operands: TensorType, **op_params: Any) -> int:
        """Where a node stands in the order that makes rewriting end: its rules emit nodes of lower levels only."""
        return 0

    @property
    def expansions(self) -> tuple[ExpansionRule, ...]:
        """The rules of the class and of those that it extends, in the order of their definition, its own first."""
        names = dict.fromkeys(
            [name for cls in type(self).__mro__ for name, item in vars(cls).items() if hasattr(item, "is_expansion")]
        )
        return tuple([getattr(self, name) for name in names])

    @property
    def name(self) -> str:
        return type(self).__name__

    def to_dict(self) -> dict[str, str]:
        return {"type": self.name, "route_name": self.route_name}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.route_name == self.route_name

    def __hash__(self) -> int:
        return hash((type(self), self.route_name))


# ---------------------------------------------------------------------------------------------------------- records


class Record:
    """`to_dict` for the records below: plain JSON values, field by field, tuples as lists."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Raises malformed_derivative_ir for data that contains itself or nests too deeply."""
        try:
            return {name.name: plain(getattr(self, name.name)) for name in fields(self)}  # type: ignore[arg-type]
        except RecursionError:
            raise AutodiffError(
                "malformed_derivative_ir",
                f"a {type(self).__name__} holds data that contains itself or nests too deeply",
            ) from None


def _named_fields(record: Any, data: object) -> dict[str, Any]:
    """`data` as the keyword arguments of `record`; TypeError or ValueError where it is none."""
    if not isinstance(data, Mapping):
        raise TypeError(f"{record.__name__}.from_dict takes a mapping, got {quote(data)}")
    names = {field_.name: field_.default is MISSING for field_ in fields(record)}
    if not names.keys() >= data.keys() or any(required and name not in data for name, required in names.items()):
        raise ValueError(f"{record.__name__}.from_dict takes the keys {list(names)}, got {quote(list(data))}")
    return dict(data)


def slot_setters(record: type) -> tuple[Callable[[Any, Any], None], ...]:
    """The setters of a slotted record's fields, in field order.

    They fill a frozen record at half the price of object.__setattr__, for those records that are made by the million.
    """
    return tuple([getattr(record, field_.name).__set__ for field_ in fields(record)])


def plain(value: Any) -> Any:
    """`value` as plain JSON data: records by their `to_dict`, tuples as lists, mappings as dicts.

    Anything else, such as a backend's target value, stays as it is and is not looked into.
    """
    kind = type(value)
    if issubclass(kind, (Record, TensorOperator)):
        return value.to_dict()
    if issubclass(kind, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if issubclass(kind, (list, tuple)):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, init=False)
class TensorNodeRecord(Record):
    """One operation. Raises TypeError when `operator` is not a TensorOperator instance, or for a wrong container.

    `op_params` and `input_value_ids` are copied into a new dict and a new list; the typespec is kept by reference.
    """

    node_id: str
    output_value_id: str
    operator: TensorOperator
    op_params: dict[str, Any]
    input_value_ids: list[str]
    output_typespec: Typespec | None

    def __init__(
        self,
        *,
        node_id: str,
        output_value_id: str,
        operator: TensorOperator,
        op_params: Mapping[str, Any],
        input_value_ids: Iterable[str],
        output_typespec: Typespec | None = None,
    ) -> None:
        if not isinstance(operator, TensorOperator):
            raise TypeError(
                f"operator of node {quote(node_id)} must be a TensorOperator instance, got {quote(operator)}"
            )
        _set_node_id(self, node_id)
        _set_output(self, output_value_id)
        _set_operator(self, operator)
        try:
            _set_params(self, dict(op_params))
            _set_inputs(self, list(input_value_ids))
        except (TypeError, ValueError):
            raise TypeError(
                f"node {quote(node_id)} takes op_params as a mapping and input_value_ids as a list, got"
                f" {quote(op_params)} and {quote(input_value_ids)}"
            ) from None
        if type(input_value_ids) is str:
            raise TypeError(f"input_value_ids of node {quote(node_id)} must be a list, got {quote(input_value_ids)}")
        _set_typespec(self, output_typespec)


_set_node_id, _set_output, _set_operator, _set_params, _set_inputs, _set_typespec = slot_setters(TensorNodeRecord)


@dataclass(frozen=True)
class TensorGraph(Record):
    """Nodes, the declared inputs as (value id, typespec or None), and the output value ids.

    The containers are copied, and not looked into; TypeError for one that is no list or other iterable.
    """

    nodes: list[TensorNodeRecord]
    inputs: list[tuple[str, Typespec | None]]
    outputs: list[str]

    def __post_init__(self) -> None:
        for name in ("nodes", "inputs", "outputs"):
            given = getattr(self, name)
            if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
                raise TypeError(f"{name} of a TensorGraph must be a list, got {quote(given)}")
            object.__setattr__(self, name, list(given))


@dataclass(frozen=True)
class DerivativeMetadata(Record):
    """Where a derivative program comes from."""

    source_graph_id: str
    transform_version: str
    tensor_op_contract_version: str
    wrt_signature: tuple[str, ...]
    seed_contract: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DerivativeMetadata:
        """The inverse of `to_dict`; TypeError or ValueError for other data."""
        values = _named_fields(cls, data)
        signature = values["wrt_signature"]
        if not is_sequence(signature):
            raise TypeError(f"wrt_signature must be a list of value ids, got {quote(signature)}")
        return cls(**{**values, "wrt_signature": tuple(signature)})


@dataclass(frozen=True)
class DerivativeProgram(Record):
    """The nodes that compute gradients from seeds and captured forward values. Nothing is copied.

    `gradients` maps a wrt id to its gradient's id, `output_gradients` lists those in wrt order, `value_typespecs` holds
    the typespec of every known value, forward ones and seeds included.
    """

    nodes: list[TensorNodeRecord]
    gradients: dict[str, str]
    output_gradients: list[str | None]
    metadata: DerivativeMetadata
    value_typespecs: dict[str, Typespec] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        data = Record.to_dict(self)
        del data["value_typespecs"]
        return data


@dataclass(frozen=True)
class AutodiffRequest(Record):
    """What `generate` is asked, as data."""

    graph: dict[str, Any]
    output_value_id: str | list[str]
    wrt: list[str]
    seed_value_id: str | list[str]
    tensor_op_contract_version: str = TENSOR_OP_CONTRACT_VERSION
    transform_version: str = TRANSFORM_VERSION

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AutodiffRequest:
        """The inverse of `to_dict`; TypeError or ValueError for other data."""
        return cls(**_named_fields(cls, data))


@dataclass(frozen=True)
class AutodiffResult(Record):
    """The gradients that an execution produced, in the program's `output_gradients` order."""

    gradients: list[Any]
    metadata: DerivativeMetadata

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AutodiffResult:
        """The inverse of `to_dict`; TypeError or ValueError for other data."""
        values = _named_fields(cls, data)
        if not is_sequence(values["gradients"]):
            raise TypeError(f"gradients must be a list, got {quote(values['gradients'])}")
        return cls(gradients=list(values["gradients"]), metadata=DerivativeMetadata.from_dict(values["metadata"]))


def copied(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose containers are new too, at any depth, so that whoever gets it cannot reach the artifact.

    Nesting beyond the interpreter's recursion limit raises malformed_derivative_ir.
    """
    copy = dict(mapping)
    for key, value in copy.items():
        if type(value) in _ATOMS:
            continue
        if type(value) is list and _ATOMS.issuperset(map(type, value)):
            copy[key] = list(value)  # a shape or axes, as nearly all of them are
        elif isinstance(value, (list, dict, tuple)):
            try:
                copy[key] = deepcopy(value)
            except RecursionError:
                raise AutodiffError(
                    "malformed_derivative_ir", f"{quote(key)} holds data that is nested too deep"
                ) from None
    return copy


_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def copy_spec(spec: Any) -> Any:
    """A typespec that whoever gets it may spoil without reaching this one; what is no mapping stays as it is."""
    return copied(spec) if isinstance(spec, Mapping) else spec


def copy_node(node: TensorNodeRecord, copy: Callable[[Any], Any] = copy_spec) -> TensorNodeRecord:
    """The same for a record; `copy` copies its typespec."""
    return TensorNodeRecord(
        node_id=node.node_id,
        output_value_id=node.output_value_id,
        operator=node.operator,
        op_params=copied(node.op_params),
        input_value_ids=node.input_value_ids,
        output_typespec=copy(node.output_typespec),
    )
