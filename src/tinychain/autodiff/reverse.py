"""Reverse-mode differentiation: a graph becomes the program of its gradients.

The operators' VJPs do the maths. This file keeps the books: which values need a gradient, in which order, under which
ids, how contributions add up, and how an implicit broadcast is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import (
    TENSOR_OP_CONTRACT_VERSION,
    TRANSFORM_VERSION,
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
)
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.operators import AddOperator, BroadcastReduceOperator
from tinychain.autodiff.types import (
    Symbols,
    Typespec,
    broadcast_plan,
    check_floating,
    is_sequence,
    parse_dtype,
    parse_shape,
    spec_field,
    unify_shapes,
)
from tinychain.autodiff.walks import declared_specs, first_duplicate, needed_by, post_order, producer_index


def generate(
    graph: TensorGraph,
    output_value_id: str | Sequence[str],
    wrt: Sequence[str],
    seed: str | Sequence[str],
    *,
    seed_typespec: Typespec | Sequence[Typespec | None] | None = None,
    graph_id: str | None = None,
) -> DerivativeProgram:
    """The program that computes, from one seed (cotangent) per output, the gradient of each `wrt` value.

    It reads forward values by id; what it reads of them are its captures. New values are d0, d1, ..., new nodes dn0,
    dn1, .... `graph_id` goes into the metadata as it is; without one the content hash of the graph does. On an untyped
    graph an implicit broadcast cannot be seen and is not undone.

    Raises TypeError or ValueError for malformed arguments; AutodiffError for a bad seed (seed_shape_mismatch,
    dtype_mismatch ...), a cycle or colliding ids (malformed_derivative_ir), a needed operator without VJP or a `wrt`
    that no output depends on (missing_derivative_behavior), and what the operators' rules raise.
    """
    check_graph(graph, "graph")
    outputs = _ids(output_value_id, "output_value_id")
    seeds = _ids(seed, "seed")
    targets = _ids(wrt, "wrt", allow_str=False)
    if len(outputs) != len(seeds):
        raise TypeError(f"expected one seed value id per output, got {len(seeds)} for {len(outputs)} outputs")
    if graph_id is not None and not isinstance(graph_id, str):
        raise TypeError(f"graph_id must be a str or None, got {quote(graph_id)}")

    producers = producer_index(graph.nodes, category="malformed_derivative_ir")
    _check_node_ids(graph.nodes)
    _check_inputs(graph, producers)
    specs = declared_specs(graph)
    taken = {*specs, *_ids(graph.outputs, "outputs of graph", allow_str=False)}
    for node in graph.nodes:
        taken.update(node.input_value_ids)
    unknown = [output for output in outputs if output not in taken]
    taken.update([node.node_id for node in graph.nodes], seeds, targets, outputs)
    emit = Emitter(specs=specs, mint_value=mint("d", taken), mint_node=mint("dn", taken))
    _bind_symbols(emit, specs, graph.nodes)
    given = _seed_specs(seed_typespec, len(seeds))
    for output, seed_id, spec in zip(outputs, seeds, given, strict=True):
        known, own = specs.get(output), specs.get(seed_id)
        # A seed that is a value of the graph, or of another output too, has a typespec of its own to match.
        for claim in (spec, own if known is not None else None):
            if claim is not None:
                label, owner = f"seed {quote(seed_id)}", f"output {quote(output)}"
                _check_seed(claim, known, emit.symbols, label=label, output=owner)
        if own is None:
            specs[seed_id] = known if spec is None else spec
    if unknown:
        raise AutodiffError(
            "missing_derivative_behavior", f"output {quote(unknown[0])} is no value of the graph, so it has no gradient"
        )

    reverse = _Reverse(emit, targets)
    for output, seed_id in zip(outputs, seeds, strict=True):
        reverse.contribute(output, seed_id)
    order = post_order(graph.nodes, producers)
    reverse.mark_flow(order)
    while order:
        reverse.visit(order.pop())
    gradients = {target: reverse.gradient_of(target) for target in targets}

    specs.update([(node.output_value_id, node.output_typespec) for node in emit.nodes])
    _check_known(emit.nodes, gradients, specs.keys(), taken)
    return DerivativeProgram(
        nodes=emit.nodes,
        gradients=gradients,
        output_gradients=[gradients[target] for target in targets],
        metadata=DerivativeMetadata(
            source_graph_id=content_hash(graph) if graph_id is None else graph_id,
            transform_version=TRANSFORM_VERSION,
            tensor_op_contract_version=TENSOR_OP_CONTRACT_VERSION,
            wrt_signature=tuple(targets),
            seed_contract="; ".join(f"{s} matches {o}" for o, s in zip(outputs, seeds, strict=True)),
        ),
        value_typespecs={value_id: spec for value_id in sorted(specs) if (spec := specs[value_id]) is not None},
    )


def joint_graph(program: DerivativeProgram, *, forward_graph: TensorGraph) -> TensorGraph:
    """The derivative program and the forward values that it captures as one ordinary graph.

    Its inputs are those of the forward graph and then the seeds, with their typespecs; its outputs are the gradients.
    It can be lowered, or differentiated again: `generate` on it gives second derivatives. Raises
    missing_derivative_ir where `output_gradients` has a None, malformed_derivative_ir where ids collide.
    """
    check_program(program, "program")
    check_graph(forward_graph, "forward_graph")
    if is_sequence(program.output_gradients) and None in program.output_gradients:
        raise AutodiffError("missing_derivative_ir", "output_gradients has a None entry, which is no value of a graph")
    outputs = _ids(program.output_gradients, "output_gradients of program", allow_str=False)
    nodes = [*forward_graph.nodes, *program.nodes]
    _check_node_ids(nodes)
    producers = producer_index(nodes, category="malformed_derivative_ir")
    reachable = needed_by(outputs, producers)
    _check_inputs(forward_graph, producers)
    declared = dict(forward_graph.inputs)
    read = [*[v for node in reachable for v in node.input_value_ids], *outputs]
    seeds = dict.fromkeys([v for v in read if v not in producers and v not in declared])
    inputs = [*forward_graph.inputs, *[(v, program.value_typespecs.get(v)) for v in seeds]]
    return TensorGraph(reachable, inputs, outputs)


class _Reverse:
    """The state of one reverse sweep."""

    def __init__(self, emit: Emitter, targets: Sequence[str]) -> None:
        self._emit = emit
        self._targets = frozenset(targets)
        self._flowing = set(targets)  # the values that some target flows into
        self._contributions: dict[str, list[str]] = {}  # of values whose gradient is not yet added up
        self._gradients: dict[str, str] = {}  # of targets that a node produces

    def contribute(self, value_id: str, gradient: str) -> None:
        self._contributions.setdefault(value_id, []).append(gradient)

    def mark_flow(self, order: Sequence[TensorNodeRecord]) -> None:
        flowing = self._flowing
        for node in order:
            for operand in node.input_value_ids:
                if operand in flowing:
                    flowing.add(node.output_value_id)
                    break

    def visit(self, node: TensorNodeRecord) -> None:
        """Hands the cotangent of the node's value on to the operands that need one."""
        value_id = node.output_value_id
        contributions = self._contributions.pop(value_id, None)
        if contributions is None:
            return
        upstream = contributions[0] if len(contributions) == 1 else self._add_up(contributions)
        if value_id in self._targets:
            self._gradients[value_id] = upstream
        if self._flowing.isdisjoint(node.input_value_ids):
            return
        try:
            self._emit.check(node)
            self._hand_on(node, node.operator.vjp(self._emit, node, upstream))
        except AutodiffError as error:
            where = f"differentiating node {quote(node.node_id)} ({node.operator.name})"
            raise AutodiffError(error.category, f"{where}: {error.message}") from error
        except Exception as error:
            raise AutodiffError(
                "missing_derivative_behavior",
                f"the VJP of operator {node.operator.name} failed on node {quote(node.node_id)}: {describe(error)}",
            ) from error

    def gradient_of(self, target: str) -> str:
        """The id of a target's gradient, added up now if no node did so."""
        if target not in self._gradients:
            contributions = self._contributions.get(target)
            if contributions is None:
                raise AutodiffError(
                    "missing_derivative_behavior",
                    f"no output depends on the wrt value {quote(target)}, so it has no gradient",
                )
            self._gradients[target] = self._add_up(contributions)
        return self._gradients[target]

    def _hand_on(self, node: TensorNodeRecord, entries: Sequence[str | Callable[[], str] | None]) -> None:
        operands = node.input_value_ids
        if not isinstance(entries, (tuple, list)) or len(entries) != len(operands):
            raise AutodiffError(
                "missing_derivative_behavior",
                f"the VJP returned {quote(entries)}; expected one entry for each of {len(operands)} operands",
            )
        joined: dict[str, str] = {}  # an operand may fill several slots, and each counts
        for operand, entry in zip(operands, entries, strict=True):
            if operand not in self._flowing:
                continue
            gradient = entry() if callable(entry) else entry
            if gradient is None:
                continue
            if not isinstance(gradient, str):
                raise AutodiffError(
                    "missing_derivative_behavior",
                    f"the VJP returned {quote(gradient)} for operand {quote(operand)}; expected a value id",
                )
            gradient = self._undo_broadcast(gradient, operand)
            joined[operand] = self._emit(AddOperator, joined[operand], gradient) if operand in joined else gradient
        for operand, gradient in joined.items():
            self.contribute(operand, gradient)

    def _add_up(self, gradients: Sequence[str]) -> str:
        """The left fold of the contributions in their order of creation."""
        total = gradients[0]
        for gradient in gradients[1:]:
            total = self._emit(AddOperator, total, gradient)
        return total

    def _undo_broadcast(self, gradient: str, operand: str) -> str:
        """Sums a gradient over the axes along which its operand was repeated."""
        source, target = self._emit.type(operand), self._emit.type(gradient)
        if source is None or target is None or source == target:
            return gradient
        if source.dtype != target.dtype:
            raise AutodiffError(
                "dtype_mismatch", f"the gradient of operand {quote(operand)} is {target}, the operand {source}"
            )
        if not broadcast_plan(source.shape, target.shape, self._emit.symbols):
            return gradient
        return self._emit(BroadcastReduceOperator, gradient, target_shape=list(source.shape))


def _check_inputs(graph: TensorGraph, producers: Mapping[str, TensorNodeRecord]) -> None:
    """An input that is declared twice, or produced too, is malformed."""
    declared = [value_id for value_id, _ in graph.inputs]
    duplicate = first_duplicate(declared)
    if duplicate is not None:
        raise AutodiffError("malformed_derivative_ir", f"input {quote(duplicate)} is declared twice")
    for value_id in declared:
        if value_id in producers:
            raise AutodiffError(
                "malformed_derivative_ir",
                f"value {quote(value_id)} is a declared input, and node {quote(producers[value_id].node_id)} produces"
                " it",
            )


def _bind_symbols(emit: Emitter, specs: Mapping[str, Typespec | None], nodes: Sequence[TensorNodeRecord]) -> None:
    """Binds the symbols as the trace did: rules of later nodes rely on what earlier ones have bound.

    A node that its rule refuses binds nothing here; it is judged when its gradient is needed.
    """
    distinct = {id(spec): spec_field(spec, "shape") for spec in specs.values()}
    if any(isinstance(dim, str) for shape in distinct.values() if is_sequence(shape) for dim in shape):
        for node in nodes:
            with suppress(AutodiffError):
                emit.derive(node)


def _check_known(
    nodes: Sequence[TensorNodeRecord], gradients: Mapping[str, str], specs: Container[str], taken: Container[str]
) -> None:
    """Refuses a program that reads a value of nowhere, which only the VJP of an operator of a user's own can name."""
    for node in nodes:
        for operand in node.input_value_ids:
            if operand not in specs and operand not in taken:
                raise AutodiffError(
                    "missing_derivative_behavior",
                    f"a VJP emitted node {quote(node.node_id)} ({node.operator.name}), which reads"
                    f" {quote(operand)}; no node produces that value and no input declares it",
                )
    for target, gradient in gradients.items():
        if gradient not in specs and gradient not in taken:
            raise AutodiffError(
                "missing_derivative_behavior",
                f"a VJP returned {quote(gradient)} as the gradient of {quote(target)}; no node produces that value",
            )


def _check_seed(spec: Typespec, known: Typespec | None, symbols: Symbols, *, label: str, output: str) -> None:
    seed_dtype = parse_dtype(spec, label=label)
    output_dtype = parse_dtype(known, label=output)
    for dtype, owner in ((seed_dtype, label), (output_dtype, output)):
        try:
            check_floating(dtype)
        except AutodiffError as error:
            raise AutodiffError(error.category, f"{owner}: {error.message}") from None
    seed_shape = parse_shape(spec_field(spec, "shape"), label=label)
    output_shape = parse_shape(spec_field(known, "shape"), label=output)
    try:
        unify_shapes(seed_shape, output_shape, symbols, category="seed_shape_mismatch")
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{label} and {output}: {error.message}") from None
    if seed_dtype != output_dtype:
        raise AutodiffError("dtype_mismatch", f"{label} has dtype {seed_dtype}, {output} has {output_dtype}")


def _seed_specs(given: Any, count: int) -> list[Any]:
    """One seed typespec, or None, per output; a single one stands for a single output."""
    specs = list(given) if is_sequence(given) else [given] * (count if given is None else 1)
    if len(specs) != count:
        raise TypeError(f"expected one seed typespec per output, got {len(specs)} for {count} outputs")
    return specs


def _ids(given: object, argument: str, *, allow_str: bool = True) -> list[str]:
    if isinstance(given, str) and allow_str:
        return [given]
    if not is_sequence(given):
        raise TypeError(f"{argument} must be a list of value ids, got {quote(given)}")
    listed: list[str] = list(given)
    for value_id in listed:
        if not isinstance(value_id, str):
            raise TypeError(f"{argument} must hold value ids, which are str; got {quote(value_id)}")
    return listed


def _check_node_ids(nodes: Sequence[TensorNodeRecord]) -> None:
    duplicate = first_duplicate([node.node_id for node in nodes])
    if duplicate is not None:
        raise AutodiffError("malformed_derivative_ir", f"duplicate node id {quote(duplicate)}")
