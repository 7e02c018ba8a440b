"""What a selection of outputs needs, where each value comes from, and in which order to compute it.

Lowering walks the order that is decided here; a backend binds the inputs that are listed here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import (
    DerivativeProgram,
    Record,
    TensorGraph,
    TensorNodeRecord,
    post_order,
    producer_index,
    slot_setters,
)
from tinychain.autodiff.types import Shape, Typespec, is_sequence, parse_type

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
        """Those of one group, in analysis order."""
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


Schedule = list[TensorNodeRecord]


def analyze_graph(graph: TensorGraph, outputs: Sequence[str] | None) -> tuple[DependencyAnalysis, Schedule]:
    """`analyze_graph_dependencies` together with the nodes in the order of the local values."""
    check_graph(graph, "graph")
    producers = producer_index(graph.nodes, category="ambiguous_producer")
    declared = [value_id for value_id, _ in graph.inputs]
    selected = _selected(graph.outputs if outputs is None else outputs, producers, declared, graph.nodes)
    discovered = post_order([producers[v] for v in selected if v in producers], producers)
    provenance = _classify(
        (DEPENDENCY_PROVENANCE_DECLARED_INPUT, declared), (DEPENDENCY_PROVENANCE_LOCAL_VALUE, producers)
    )
    free = _free_values(selected, discovered, producers, provenance)
    order = schedule(discovered)
    specs = _Specs(dict(graph.inputs), {node.output_value_id: node.output_typespec for node in discovered})
    ordered = [value_id for value_id in declared if value_id in free] + [node.output_value_id for node in order]
    return _analysis(selected, ordered, provenance, specs.required), order


def analyze_program(
    program: DerivativeProgram,
    forward_graph: TensorGraph,
    seed_value_ids: Sequence[str],
    outputs: Sequence[str] | None,
) -> tuple[DependencyAnalysis, Schedule]:
    """`analyze_derivative_dependencies` together with the nodes in the order of the local values."""
    check_program(program, "program")
    check_graph(forward_graph, "forward_graph")
    seeds = _distinct_ids(seed_value_ids, "seed_value_ids")
    forward_producers = producer_index(forward_graph.nodes, category="ambiguous_producer")
    producers = producer_index(program.nodes, category="ambiguous_producer")
    declared = [value_id for value_id, _ in forward_graph.inputs]
    selected = _selected(
        program.output_gradients if outputs is None else outputs,
        producers,
        {*declared, *seeds, *forward_producers},
        program.nodes,
    )
    discovered = post_order([producers[v] for v in selected if v in producers], producers)
    provenance = _classify(
        (DEPENDENCY_PROVENANCE_DECLARED_INPUT, declared),
        (DEPENDENCY_PROVENANCE_SEED_INPUT, seeds),
        (DEPENDENCY_PROVENANCE_FORWARD_CAPTURE, forward_producers),
        (DEPENDENCY_PROVENANCE_LOCAL_VALUE, producers),
    )
    free = _free_values(selected, discovered, producers, provenance)
    order = schedule(discovered)
    ordered = [value_id for value_id in [*declared, *seeds] if value_id in free]
    if any(provenance[value_id] == DEPENDENCY_PROVENANCE_FORWARD_CAPTURE for value_id in free):
        ordered += [v for v in _forward_schedule(forward_graph, forward_producers) if v in free]
    ordered += [node.output_value_id for node in order]
    specs = _Specs(
        dict(forward_graph.inputs),
        {node.output_value_id: node.output_typespec for node in forward_graph.nodes},
        {node.output_value_id: node.output_typespec for node in program.nodes},
        program.value_typespecs,
    )
    return _analysis(selected, ordered, provenance, specs.known), order


# --------------------------------------------------------------------------------------------------------- schedule


def schedule(discovered: Sequence[TensorNodeRecord]) -> Schedule:
    """The nodes in an order that places each as late as it may be, given them in discovery order (DFS post-order).

    Built backwards: of the nodes whose consumers are all placed, the one with the shortest producer chain goes last,
    and of equals the one that became ready last. So a long chain starts first, and a lone operation sits directly
    before its consumer.
    """
    by_value = {node.output_value_id: node for node in discovered}
    chain: dict[str, int] = {}
    reads = dict.fromkeys(by_value, 0)
    for node in discovered:
        length = 0
        for operand in node.input_value_ids:
            if operand in reads:
                reads[operand] += 1
                if chain[operand] >= length:
                    length = chain[operand] + 1
        chain[node.output_value_id] = length
    # Of equals the latest comes first: (chain, minus the turn in which it became ready, value id).
    unread = [value_id for value_id, count in reads.items() if count == 0]
    ready = [(chain[value_id], -turn, value_id) for turn, value_id in enumerate(unread)]
    heapify(ready)
    turn = -len(ready)
    backwards = []
    while ready:
        node = by_value[heappop(ready)[2]]
        backwards.append(node)
        for operand in reversed(node.input_value_ids):
            if operand in reads:
                reads[operand] -= 1
                if reads[operand] == 0:
                    heappush(ready, (chain[operand], turn, operand))
                    turn -= 1
    backwards.reverse()
    return backwards


def _order_reachable_nodes(nodes: Mapping[str, TensorNodeRecord]) -> Schedule:
    """The schedule of nodes by id, given in discovery order; one not after its producers is malformed_derivative_ir."""
    produced = {node.output_value_id for node in nodes.values()}
    seen: set[str] = set()
    for node in nodes.values():
        for operand in node.input_value_ids:
            if operand in produced and operand not in seen:
                raise AutodiffError(
                    "malformed_derivative_ir",
                    f"node {quote(node.node_id)} reads {quote(operand)} before it is produced: a cycle, or no"
                    " topological order",
                )
        seen.add(node.output_value_id)
    return schedule(list(nodes.values()))


def _forward_schedule(graph: TensorGraph, producers: Mapping[str, TensorNodeRecord]) -> list[str]:
    """The value ids of the whole forward graph in schedule order, discovered from its outputs, then its other nodes."""
    roots = [producers[v] for v in graph.outputs if v in producers]
    return [node.output_value_id for node in schedule(post_order([*roots, *graph.nodes], producers))]


# ------------------------------------------------------------------------------------------------- selection, origin


def _distinct_ids(ids: object, argument: str) -> list[str]:
    if not is_sequence(ids):
        raise AutodiffError("invalid_selected_output", f"{argument} must be a list of value ids, got {quote(ids)}")
    for value_id in ids:
        if not isinstance(value_id, str) or not value_id:
            raise AutodiffError(
                "invalid_selected_output", f"{argument} must hold non-empty str ids, got {quote(value_id)}"
            )
    return list(dict.fromkeys(ids))


def _selected(
    outputs: object,
    producers: Mapping[str, TensorNodeRecord],
    known: Collection[str],
    nodes: Iterable[TensorNodeRecord],
) -> list[str]:
    selected = _distinct_ids(outputs, "outputs")
    if not selected:
        raise AutodiffError("invalid_selected_output", "outputs is empty; select at least one value")
    unknown = {value_id for value_id in selected if value_id not in producers and value_id not in known}
    if unknown:
        for node in nodes:
            unknown.difference_update(node.input_value_ids)
    for value_id in selected:
        if value_id in unknown:
            raise AutodiffError(
                "invalid_selected_output", f"output {quote(value_id)} is neither produced, declared nor read here"
            )
    return selected


def _classify(*groups: tuple[str, Iterable[str]]) -> dict[str, str]:
    """Value id -> its one provenance; a second one, the same or another, raises ambiguous_producer."""
    provenance: dict[str, str] = {}
    for category, ids in groups:
        for value_id in ids:
            if value_id in provenance:
                raise AutodiffError(
                    "ambiguous_producer",
                    f"value {quote(value_id)} is a {category} and already a {provenance[value_id]}",
                )
            provenance[value_id] = category
    return provenance


def _free_values(
    selected: Sequence[str],
    discovered: Sequence[TensorNodeRecord],
    producers: Mapping[str, TensorNodeRecord],
    provenance: Mapping[str, str],
) -> set[str]:
    """The needed values that nothing reachable produces."""
    free = {value_id for value_id in selected if value_id not in producers}
    for node in discovered:
        for operand in node.input_value_ids:
            if operand not in producers:
                free.add(operand)
                if operand not in provenance:
                    raise AutodiffError(
                        "missing_dependency",
                        f"node {quote(node.node_id)} ({node.operator.name}) reads {quote(operand)}, which is neither"
                        " declared nor produced; declare it as an input",
                    )
    for value_id in selected:
        if value_id in free and value_id not in provenance:
            raise AutodiffError(
                "missing_dependency",
                f"output {quote(value_id)} is neither declared nor produced; declare it as an input",
            )
    return free


# ---------------------------------------------------------------------------------------------------------- metadata


class _Specs:
    """Typespecs by value id, later tables first; each typespec object is parsed once."""

    def __init__(self, *tables: Mapping[str, Typespec | None]) -> None:
        self._tables = tables[::-1]
        self._parsed: dict[int, tuple[str | None, Shape | None]] = {}
        self._alive: list[Typespec | None] = []  # so that no id in _parsed is given to another object

    def required(self, value_id: str) -> tuple[str | None, Shape | None]:
        """Dtype and shape, which must both be there."""
        spec = self._find(value_id)
        known = self._parsed.get(id(spec))
        if known is None:
            type_ = parse_type(spec, label=f"value {quote(value_id)}")
            self._alive.append(spec)
            known = self._parsed[id(spec)] = (type_.dtype, type_.shape)
        return known

    def known(self, value_id: str) -> tuple[str | None, Shape | None]:
        """Dtype and shape, or None and None where there is no typespec at all."""
        return (None, None) if self._find(value_id) is None else self.required(value_id)

    def _find(self, value_id: str) -> Typespec | None:
        for table in self._tables:
            spec = table.get(value_id)
            if spec is not None:
                return spec
        return None


def _analysis(
    selected: Sequence[str],
    ordered: Iterable[str],
    provenance: Mapping[str, str],
    metadata: Callable[[str], tuple[str | None, Shape | None]],
) -> DependencyAnalysis:
    return DependencyAnalysis(
        selected_outputs=tuple(selected),
        dependencies=tuple([ValueDependency(v, provenance[v], *metadata(v)) for v in ordered]),
    )
