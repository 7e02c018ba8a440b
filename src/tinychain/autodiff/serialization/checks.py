"""Whether an artifact is one that tracing and `generate` could have made: both ends of a file ask the same questions.

As everywhere, only the region that the outputs reach is judged by its references and types.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.serialization.faults import Fault
from tinychain.autodiff.types import Typespec, parse_dtype, parse_shape
from tinychain.autodiff.walks import declared_specs, first_duplicate, needed_by, post_order, producer_index


def check_graph(graph: TensorGraph) -> None:
    """A Fault for an id that stands twice, a cycle, a value of nowhere, or what an operator's own rules refuse."""
    declared = [value_id for value_id, _ in graph.inputs]
    _check_unique(declared, ".inputs[{}][0]", ())
    producers = _check_nodes(graph.nodes, declared)
    known = {*declared, *producers}
    for index, value_id in enumerate(graph.outputs):
        if value_id not in known:
            raise Fault(f".outputs[{index}]", "a value that a node produces or an input declares", quote(value_id))
    reached = _reached(graph, producers)
    for index, node in enumerate(graph.nodes):
        if node.output_value_id in reached:
            _check_operands(index, node, known)
    _check_rules(graph.nodes, declared_specs(graph), reached)


def check_program(program: DerivativeProgram) -> None:
    """`check_graph` for a derivative program, whose nodes may read any value of a forward graph that is typed."""
    producers = _check_nodes(program.nodes, ())
    known = {*producers, *program.value_typespecs}
    if program.value_typespecs:
        for index, node in enumerate(program.nodes):
            # Only typed operands make a node typed, and the table has every typed value.
            if node.output_typespec is not None:
                _check_operands(index, node, known)
    gradients = set(program.gradients.values())
    for index, gradient in enumerate(program.output_gradients):
        if gradient is not None and gradient not in gradients:
            raise Fault(f".output_gradients[{index}]", "None or a gradient in gradients", quote(gradient))
    specs: dict[str, Typespec | None] = {node.output_value_id: node.output_typespec for node in program.nodes}
    _check_rules(program.nodes, {**specs, **program.value_typespecs}, specs.keys())


def check_spec(spec: Typespec) -> None:
    """A Fault for a typespec with a dtype or a shape that is none; one without them is legal, and tells nothing."""
    try:
        if spec.get("dtype") is not None:
            parse_dtype(spec, label="the typespec")
        if spec.get("shape") is not None:
            parse_shape(spec["shape"], label="the typespec")
    except AutodiffError as error:
        raise Fault("", "a typespec", str(error)) from None


def _check_nodes(nodes: Sequence[TensorNodeRecord], declared: Sequence[str]) -> dict[str, TensorNodeRecord]:
    """The producer of every value of nodes that are no cycle and have ids of their own."""
    _check_unique([node.node_id for node in nodes], ".nodes[{}].node_id", ())
    _check_unique([node.output_value_id for node in nodes], ".nodes[{}].output_value_id", declared)
    producers = producer_index(nodes, category="malformed_derivative_ir")
    try:
        post_order(nodes, producers)
    except AutodiffError as error:
        raise Fault(".nodes", "no cycle", error.message) from None
    return producers


def _check_unique(ids: Sequence[str], path: str, taken: Sequence[str]) -> None:
    duplicate = first_duplicate([*taken, *ids])
    if duplicate is not None:
        last = len(ids) - 1 - ids[::-1].index(duplicate)
        raise Fault(path.format(last), "an id that nothing else has", quote(duplicate))


def _reached(graph: TensorGraph, producers: Mapping[str, TensorNodeRecord]) -> set[str]:
    """The values that the outputs need, by the nodes that produce them."""
    return {node.output_value_id for node in needed_by(graph.outputs, producers)}


def _check_operands(index: int, node: TensorNodeRecord, known: set[str]) -> None:
    for slot, operand in enumerate(node.input_value_ids):
        if operand not in known:
            raise Fault(
                f".nodes[{index}].input_value_ids[{slot}]",
                "a value that a node produces or an input or a typespec declares",
                quote(operand),
            )


def _check_rules(
    nodes: Sequence[TensorNodeRecord], specs: Mapping[str, Typespec | None], reached: Container[str]
) -> None:
    """Operand counts, params and declared types, in the order of the nodes, in which a trace binds symbols.

    A symbol whose size another artifact would tell decides nothing here.
    """
    rules = Emitter(specs=specs, mint_value=mint("", ()), mint_node=mint("", ()))
    for index, node in enumerate(nodes):
        try:
            rules.check(node)
        except Exception as error:  # a rule may be of a user's own
            if node.output_value_id in reached:
                _reject(index, error)


def _reject(index: int, error: Exception) -> None:
    if not isinstance(error, AutodiffError):
        raise Fault(f".nodes[{index}]", "a node that its operator's rules can judge", describe(error))
    if error.category != "unresolved_symbolic_shape":
        raise Fault(f".nodes[{index}]", "a node that its operator's rules accept", str(error))
