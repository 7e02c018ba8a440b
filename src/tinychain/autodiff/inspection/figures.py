"""One program in figures. What the program does not determine is None, and the reason is told: no figure is a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tinychain.autodiff.dependencies import analyze_graph
from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import Record, TensorGraph, TensorNodeRecord
from tinychain.autodiff.inspection.label import operator_label
from tinychain.autodiff.inspection.liveness import Operation, peak_live_bytes
from tinychain.autodiff.inspection.view import ROLES, View
from tinychain.autodiff.types import (
    ITEM_BYTES,
    TensorType,
    Typespec,
    as_int,
    check_floating,
    element_count,
    parse_type,
    resolve_shape,
)
from tinychain.autodiff.walks import needed_by, producer_index

_REASONS_SHOWN: Final = 3


@dataclass(frozen=True)
class Values(Record):
    """Some values: how many, and their bytes, each counted in full."""

    count: int
    bytes: int | None


@dataclass(frozen=True)
class Figures(Record):
    """What the outputs of a program need; `unneeded` counts the operations that they do not.

    `operators` counts by route name, and by class name for operators from outside the package. `reads` maps the roles
    input, parameter, capture and seed to the values that are read. `results` are those of all operations, `constants`
    those of operations without operands. `peak_live_bytes` is that of running the operations in the order in which
    lowering has them, every value freed after its last reader. `unknown` tells why a figure is None.
    """

    operations: int
    unneeded: int
    operators: Mapping[str, int]
    reads: Mapping[str, Values]
    constants: Values
    results: Values
    flops: int | None
    peak_live_bytes: int | None
    unknown: tuple[str, ...]


class Measured(NamedTuple):
    """The figures of a program, its operations in schedule order, and the bytes of its values where they are known."""

    figures: Figures
    operations: list[Operation[str]]
    sizes: dict[str, int]


def measure(view: View, symbols: Mapping[str, int]) -> Measured:
    """A program under the given sizes of its symbols. Raises malformed_derivative_ir for a cycle. Linear."""
    graph, reasons = view.graph, Reasons()
    nodes = _schedule(graph)
    read = {*graph.outputs, *[operand for node in nodes for operand in node.input_value_ids]}
    types = _Types(symbols, reasons)
    for value_id, spec in graph.inputs:
        if value_id in read:
            types.add(value_id, spec)
    for node in nodes:
        types.add(node.output_value_id, node.output_typespec)

    reads = {
        role: types.values(
            [value_id for value_id, _ in graph.inputs if value_id in read and view.roles[value_id] == role]
        )
        for role in ROLES
    }
    operations = [Operation(node.output_value_id, node.input_value_ids) for node in nodes]
    results = types.values([node.output_value_id for node in nodes])
    peak = None
    if len(types.sizes) == len(types.known):
        peak = peak_live_bytes(operations, types.sizes, inputs=dict(graph.inputs), kept=graph.outputs)
    figures = Figures(
        operations=len(nodes),
        unneeded=len(graph.nodes) - len(nodes),
        operators=ranked(Counter([operator_label(node.operator) for node in nodes])),
        reads=reads,
        constants=types.values([node.output_value_id for node in nodes if not node.input_value_ids]),
        results=results,
        flops=total([_flops(node, types.known, reasons) for node in nodes]),
        peak_live_bytes=peak,
        unknown=reasons.told(),
    )
    return Measured(figures, operations, types.sizes)


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum, which is unknown where one of the numbers is."""
    known = list(numbers)
    return None if None in known else sum([number for number in known if number is not None])


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts with the largest first, and equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class Reasons:
    """The reasons for unknown figures: one for all symbols, the first few others, and how many more there are."""

    def __init__(self) -> None:
        self._reasons: dict[str, None] = {}
        self._symbols: dict[str, None] = {}

    def add(self, reason: str) -> None:
        self._reasons[reason] = None

    def add_symbols(self, symbols: Iterable[str]) -> None:
        self._symbols |= dict.fromkeys(symbols)

    def told(self) -> tuple[str, ...]:
        reasons = [*([_unbound(self._symbols)] if self._symbols else []), *self._reasons]
        more = len(reasons) - _REASONS_SHOWN
        return (*reasons[:_REASONS_SHOWN], *([f"and {more} more of the kind"] if more > 0 else []))


def _unbound(symbols: Iterable[str]) -> str:
    names = [quote(symbol) for symbol in symbols]
    what = "size of the symbol" if len(names) == 1 else "sizes of the symbols"
    verb = "is" if len(names) == 1 else "are"
    bindings = ", ".join([f"{name}: ..." for name in names])
    return f"the {what} {', '.join(names)} {verb} not known; pass shape_bindings={{{bindings}}}"


def _schedule(graph: TensorGraph) -> list[TensorNodeRecord]:
    """The needed nodes in the order in which lowering has them; in any valid order where nothing could be lowered."""
    if not graph.outputs:
        return []
    try:
        return analyze_graph(graph, None)[1]
    except AutodiffError as error:
        if error.category not in ("missing_dtype_metadata", "missing_shape_metadata"):
            raise
    producers = producer_index(graph.nodes, category="ambiguous_producer")
    return needed_by(graph.outputs, producers)


class _Types:
    """The types of values, and their bytes; None where a dtype or a dim is not known, which `reasons` is told."""

    def __init__(self, symbols: Mapping[str, int], reasons: Reasons) -> None:
        self.known: dict[str, TensorType | None] = {}
        self.sizes: dict[str, int] = {}
        self._symbols = symbols
        self._reasons = reasons
        # Typespecs are shared by many values, so each is parsed once. Keyed by identity, which holds because the entry
        # keeps its typespec alive.
        self._parsed: dict[int, tuple[Typespec | None, TensorType]] = {}

    def add(self, value_id: str, spec: Typespec | None) -> None:
        entry = self._parsed.get(id(spec))
        if entry is None:
            label = f"value {quote(value_id)}"
            try:
                declared = parse_type(spec, label=label)
                unbound = [dim for dim in declared.shape if isinstance(dim, str) and dim not in self._symbols]
                if unbound:
                    self.known[value_id] = None
                    self._reasons.add_symbols(unbound)
                    return
                shape = resolve_shape(declared.shape, self._symbols, label=label)
                type_ = TensorType(check_floating(declared.dtype), shape)
            except AutodiffError as error:
                self.known[value_id] = None
                self._reasons.add(error.message)
                return
            entry = self._parsed[id(spec)] = spec, type_
        type_ = self.known[value_id] = entry[1]
        self.sizes[value_id] = element_count(type_.shape) * ITEM_BYTES[type_.dtype]

    def values(self, ids: Sequence[str]) -> Values:
        return Values(len(ids), total([self.sizes.get(value_id) for value_id in ids]))


def _flops(node: TensorNodeRecord, types: Mapping[str, TensorType | None], reasons: Reasons) -> int | None:
    operands = [types[operand] for operand in node.input_value_ids]
    result = types[node.output_value_id]
    if result is None or None in operands:
        return None  # whose reason is told already
    where = f"operator {node.operator.name} of node {quote(node.node_id)}"
    try:
        given = node.operator.flops(result, *operands, **node.op_params)
    except Exception as error:
        reasons.add(f"flops of {where} raised {describe(error)}")
        return None
    count = as_int(given)
    if given is None:
        reasons.add(f"{where} has no FLOP count; define flops on its class")
    elif count is None or count < 0:
        reasons.add(f"flops of {where} returned {quote(given)}; expected a non-negative int")
        return None
    return count
