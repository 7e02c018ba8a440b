"""What a selection of outputs needs, where each value comes from, and in which order to compute it.

Lowering walks the order that is decided here; a backend binds the inputs that are listed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, TypeAlias

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import DerivativeProgram, Record, TensorGraph, TensorNodeRecord, slot_setters
from tinychain.autodiff.types import Shape, TensorType, Typespec, is_sequence, parse_type
from tinychain.autodiff.walks import needed_by, post_order, producer_index

DEPENDENCY_PROVENANCE_DECLARED_INPUT: Final = "declared_input"
DEPENDENCY_PROVENANCE_SEED_INPUT: Final = "seed_input"
DEPENDENCY_PROVENANCE_FORWARD_CAPTURE: Final = "forward_capture"
DEPENDENCY_PROVENANCE_LOCAL_VALUE: Final = "local_value"
DEPENDENCY_PROVENANCE_ORDER: Final = (
    DEPENDENCY_PROVENANCE_DECLARED_INPUT,
    DEPENDENCY_PROVENANCE_SEED_INPUT,
    DEPENDENCY_PROVENANCE_FORWARD_CAPTURE,
    DEPENDENCY_PROVENANCE_LOCAL_VALUE,
)


@dataclass(frozen=True, slots=True, init=False)
class ValueDependency(Record):
    """One needed value: where it comes from, and its dtype and shape, or None where nothing is known."""

    value_id: str
    provenance: str
    dtype: str | None
    shape: Shape | None

    def __init__(self, value_id: str, provenance: str, dtype: str | None, shape: Shape | None) -> None:
        _set_value_id(self, value_id)
        _set_provenance(self, provenance)
        _set_dtype(self, dtype)
        _set_shape(self, shape)


_set_value_id, _set_provenance, _set_dtype, _set_shape = slot_setters(ValueDependency)


@dataclass(frozen=True)
class DependencyAnalysis(Record):
    """The selected outputs and every value that they need, grouped in the order of DEPENDENCY_PROVENANCE_ORDER."""

    selected_outputs: tuple[str, ...]
    dependencies: tuple[ValueDependency, ...]

    def with_provenance(self, provenance: str) -> tuple[ValueDependency, ...]:
        """Those of one group, in analysis order. Raises ValueError for what is no provenance."""
        if provenance not in DEPENDENCY_PROVENANCE_ORDER:
            raise ValueError(
                f"unknown provenance {quote(provenance)}; expected one of {', '.join(DEPENDENCY_PROVENANCE_ORDER)}"
            )
        return tuple([value for value in self.dependencies if value.provenance == provenance])

    @property
    def declared_inputs(self) -> tuple[ValueDependency, ...]:
        return self.with_provenance(DEPENDENCY_PROVENANCE_DECLARED_INPUT)

    @property
    def seed_inputs(self) -> tuple[ValueDependency, ...]:
        return self.with_provenance(DEPENDENCY_PROVENANCE_SEED_INPUT)

    @property
    def forward_captures(self) -> tuple[ValueDependency, ...]:
        return self.with_provenance(DEPENDENCY_PROVENANCE_FORWARD_CAPTURE)

    @property
    def local_values(self) -> tuple[ValueDependency, ...]:
        """What the artifact itself computes, in the order to compute it."""
        return self.with_provenance(DEPENDENCY_PROVENANCE_LOCAL_VALUE)

    @property
    def required_inputs(self) -> tuple[ValueDependency, ...]:
        """What must be bound before anything is computed."""
        return tuple([v for v in self.dependencies if v.provenance != DEPENDENCY_PROVENANCE_LOCAL_VALUE])


def analyze_graph_dependencies(graph: TensorGraph, *, outputs: Sequence[str] | None = None) -> DependencyAnalysis:
    """What `outputs` (the graph's own by default) need of a graph.

    Every needed value must have a complete typespec. Raises invalid_selected_output, ambiguous_producer,
    missing_dependency, missing_dtype_metadata, missing_shape_metadata, and malformed_derivative_ir for a cycle.
    """
    return analyze_graph(graph, outputs)[0]


def analyze_derivative_dependencies(
    program: DerivativeProgram,
    *,
    forward_graph: TensorGraph,
    seed_value_ids: Sequence[str],
    outputs: Sequence[str] | None = None,
) -> DependencyAnalysis:
    """What `outputs` (the program's gradients by default) need of a derivative program.

    A value is a declared input or a capture of the forward graph, a seed, or computed by the program. Raises as
    `analyze_graph_dependencies` does, but a value of which nothing is known is legal and has dtype and shape None.
    """
    return analyze_program(program, forward_graph, seed_value_ids, outputs)[0]


Schedule: TypeAlias = list[TensorNodeRecord]


def analyze_graph(graph: TensorGraph, outputs: Sequence[str] | None) -> tuple[DependencyAnalysis, Schedule]:
    """`analyze_graph_dependencies` together with the nodes in the order of the local values."""
    check_graph(graph, "graph")
    inputs = graph.inputs
    producers = producer_index(graph.nodes, category="ambiguous_producer")
    selected = _selected(graph.outputs if outputs is None else outputs, producers, dict(inputs), nodes=graph.nodes)
    order, free = _schedule(needed_by(selected, producers))
    _check_one_origin(
        (DEPENDENCY_PROVENANCE_DECLARED_INPUT, [value_id for value_id, _ in inputs]),
        (DEPENDENCY_PROVENANCE_LOCAL_VALUE, producers),
    )
    free.update([(value_id, None) for value_id in selected if value_id not in producers and value_id not in free])
    _check_all_known(free, dict(inputs))
    types = _Types({}, complete=True)
    return DependencyAnalysis(
        selected_outputs=tuple(selected),
        dependencies=(
            *types.describe(DEPENDENCY_PROVENANCE_DECLARED_INPUT, [item for item in inputs if item[0] in free]),
            *types.describe(DEPENDENCY_PROVENANCE_LOCAL_VALUE, _results(order)),
        ),
    ), order


def analyze_program(
    program: DerivativeProgram,
    forward_graph: TensorGraph,
    seed_value_ids: Sequence[str],
    outputs: Sequence[str] | None,
) -> tuple[DependencyAnalysis, Schedule]:
    """`analyze_derivative_dependencies` together with the nodes in the order of the local values."""
    check_program(program, "program")
    check_graph(forward_graph, "forward_graph")
    seeds = distinct_ids(seed_value_ids, "seed_value_ids")
    inputs = forward_graph.inputs
    captures = producer_index(forward_graph.nodes, category="ambiguous_producer")
    producers = producer_index(program.nodes, category="ambiguous_producer")
    sources = (dict(inputs), seeds, captures)
    selected = _selected(
        program.output_gradients if outputs is None else outputs, producers, *sources, nodes=program.nodes
    )
    order, free = _schedule(needed_by(selected, producers))
    _check_one_origin(
        (DEPENDENCY_PROVENANCE_DECLARED_INPUT, [value_id for value_id, _ in inputs]),
        (DEPENDENCY_PROVENANCE_SEED_INPUT, seeds),
        (DEPENDENCY_PROVENANCE_FORWARD_CAPTURE, captures),
        (DEPENDENCY_PROVENANCE_LOCAL_VALUE, producers),
    )
    free.update([(value_id, None) for value_id in selected if value_id not in producers and value_id not in free])
    _check_all_known(free, *sources)
    captured: list[TensorNodeRecord] = []
    if not captures.keys().isdisjoint(free):
        captured = [node for node in _schedule_all(forward_graph, captures) if node.output_value_id in free]
    types = _Types(program.value_typespecs, complete=False)
    return DependencyAnalysis(
        selected_outputs=tuple(selected),
        dependencies=(
            *types.describe(DEPENDENCY_PROVENANCE_DECLARED_INPUT, [item for item in inputs if item[0] in free]),
            *types.describe(DEPENDENCY_PROVENANCE_SEED_INPUT, [(seed, None) for seed in seeds if seed in free]),
            *types.describe(DEPENDENCY_PROVENANCE_FORWARD_CAPTURE, _results(captured)),
            *types.describe(DEPENDENCY_PROVENANCE_LOCAL_VALUE, _results(order)),
        ),
    ), order


# --------------------------------------------------------------------------------------------------------- schedule


def _schedule(discovered: Sequence[TensorNodeRecord]) -> tuple[Schedule, dict[str, TensorNodeRecord | None]]:
    """The nodes, given in discovery order, each as late as it may be; and the free values with their first readers.

    Built backwards: of the nodes whose consumers are all placed, the one with the shortest producer chain goes next,
    and of equals the one that became ready last. So a long chain starts first, and a lone operation sits directly
    before its consumer.
    """
    # Nodes are positions in `discovered` here: lists of ints cost far less than tables of a million ids.
    position: dict[str, int] = {}
    free: dict[str, TensorNodeRecord | None] = {}
    chain: list[int] = []
    unplaced = [0] * len(discovered)  # the operand slots that still wait for this node's consumers
    reads: list[int] = []
    first_read = [0]  # node i reads reads[first_read[i] : first_read[i + 1]]
    for index, node in enumerate(discovered):
        longest = 0
        for operand in node.input_value_ids:
            producer = position.get(operand)
            if producer is None:
                free.setdefault(operand, node)
                continue
            reads.append(producer)
            unplaced[producer] += 1
            if chain[producer] > longest:
                longest = chain[producer]
        first_read.append(len(reads))
        position[node.output_value_id] = index
        chain.append(longest + 1)

    # All that a placed node makes ready has a shorter chain than it, and it had the shortest: what is sorted once stays
    # sorted, with the next node at the end.
    ready = sorted([i for i, count in enumerate(unplaced) if not count], key=chain.__getitem__, reverse=True)
    backwards = []
    while ready:
        index = ready.pop()
        backwards.append(discovered[index])
        start = len(ready)
        for slot in range(first_read[index + 1] - 1, first_read[index] - 1, -1):
            producer = reads[slot]
            unplaced[producer] -= 1
            if not unplaced[producer]:
                ready.append(producer)
        if len(ready) > start + 1:
            ready[start:] = sorted(ready[start:], key=chain.__getitem__, reverse=True)
    backwards.reverse()
    return backwards, free


def _order_reachable_nodes(nodes: Mapping[str, TensorNodeRecord]) -> Schedule:
    """The schedule of nodes by id, given in discovery order; one not after its producers is malformed_derivative_ir."""
    discovered = list(nodes.values())
    producers = producer_index(discovered, category="ambiguous_producer")
    order, free = _schedule(discovered)
    for value_id, reader in free.items():
        if value_id in producers and reader is not None:
            raise AutodiffError(
                "malformed_derivative_ir",
                f"node {quote(reader.node_id)} reads {quote(value_id)} before it is produced: a cycle, or no"
                " topological order",
            )
    return order


def _schedule_all(graph: TensorGraph, producers: Mapping[str, TensorNodeRecord]) -> Schedule:
    """The schedule of a whole graph, discovered from its outputs and then from each node not yet reached."""
    roots = [producers[v] for v in graph.outputs if isinstance(v, str) and v in producers]
    return _schedule(post_order([*roots, *graph.nodes], producers))[0]


def _results(nodes: Iterable[TensorNodeRecord]) -> Iterator[tuple[str, Typespec | None]]:
    return ((node.output_value_id, node.output_typespec) for node in nodes)


# ------------------------------------------------------------------------------------------------- selection, origin


def distinct_ids(ids: object, argument: str) -> dict[str, None]:
    """The ids in their order, each once; invalid_selected_output for what is no list of non-empty strs."""
    if not is_sequence(ids):
        raise AutodiffError("invalid_selected_output", f"{argument} must be a list of value ids, got {quote(ids)}")
    for value_id in ids:
        if not isinstance(value_id, str) or not value_id:
            raise AutodiffError(
                "invalid_selected_output", f"{argument} must hold non-empty str ids, got {quote(value_id)}"
            )
    return dict.fromkeys(ids)


def _selected(outputs: object, *known: Collection[str], nodes: Iterable[TensorNodeRecord]) -> dict[str, None]:
    selected = distinct_ids(outputs, "outputs")
    if not selected:
        raise AutodiffError("invalid_selected_output", "outputs is empty; select at least one value")
    unknown = [value_id for value_id in selected if not any(value_id in ids for ids in known)]
    if unknown:
        read = {operand for node in nodes for operand in node.input_value_ids}
        for value_id in unknown:
            if value_id not in read:
                raise AutodiffError(
                    "invalid_selected_output", f"output {quote(value_id)} is neither produced, declared nor read here"
                )
    return selected


def _check_one_origin(*groups: tuple[str, Collection[str]]) -> None:
    """No value id stands twice, in one group or in two: ambiguous_producer."""
    distinct: list[AbstractSet[str]] = [ids.keys() if isinstance(ids, dict) else set(ids) for _, ids in groups]
    repeats = any(len(unique) < len(ids) for unique, (_, ids) in zip(distinct, groups, strict=True))
    if not repeats and all(x.isdisjoint(y) for x, y in combinations(distinct, 2)):
        return
    origins: dict[str, str] = {}
    for provenance, ids in groups:
        for value_id in ids:
            if value_id in origins:
                raise AutodiffError(
                    "ambiguous_producer",
                    f"value {quote(value_id)} is a {provenance} and already a {origins[value_id]}; give one another id,"
                    " for two expansion passes by another reserved_id_prefix",
                )
            origins[value_id] = provenance


def _check_all_known(free: Mapping[str, TensorNodeRecord | None], *sources: Collection[str]) -> None:
    """Every free value comes from one of the sources: missing_dependency."""
    for value_id, reader in free.items():
        if not any(value_id in ids for ids in sources):
            who = "the selection" if reader is None else f"node {quote(reader.node_id)} ({reader.operator.name})"
            raise AutodiffError(
                "missing_dependency",
                f"{who} reads {quote(value_id)}, which is neither declared nor produced; declare it as an input",
            )


# ---------------------------------------------------------------------------------------------------------- metadata


class _Types:
    """What is known of values: by the program's own table first, then by the records that declare or produce them."""

    def __init__(self, table: Mapping[str, Typespec], *, complete: bool) -> None:
        self._table = table
        self._complete = complete
        # Typespecs are shared by many values, so each is parsed once. Keyed by identity, which holds because the entry
        # keeps its typespec alive.
        self._parsed: dict[int, tuple[Typespec, TensorType]] = {}

    def describe(self, provenance: str, values: Iterable[tuple[str, Any]]) -> Iterator[ValueDependency]:
        """One record per (value id, own typespec). Raises missing_*_metadata."""
        table, parsed = self._table, self._parsed
        for value_id, own in values:
            spec = table.get(value_id) if table else None
            if spec is None:
                spec = own
            entry = parsed.get(id(spec))
            if entry is None:
                if spec is None and not self._complete:
                    yield ValueDependency(value_id, provenance, None, None)
                    continue
                entry = parsed[id(spec)] = (spec, parse_type(spec, label=f"value {quote(value_id)}"))
            dtype, shape = entry[1]
            yield ValueDependency(value_id, provenance, dtype, shape)
