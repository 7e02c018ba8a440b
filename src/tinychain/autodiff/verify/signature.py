"""Whether two artifacts can be compared at all: the same inputs by id, the same outputs by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import dual_source
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import TransposeOperator
from tinychain.autodiff.reverse import joint_graph
from tinychain.autodiff.types import bind, parse_type, resolve_shape, swapped
from tinychain.autodiff.verify.plan import Typed
from tinychain.autodiff.walks import needed_by, producer_index

Artifact = TensorGraph | DerivativeProgram


def typed_pair(before: Artifact, after: Artifact, forward_graph: TensorGraph | None) -> tuple[Typed, Typed]:
    """Both as typed graphs. Raises TypeError for other arguments and invalid_verification where they do not match.

    A program is joined with `forward_graph`; without one, every value that it reads and does not compute is an input.
    """
    if not any(isinstance(before, kind) and isinstance(after, kind) for kind in (TensorGraph, DerivativeProgram)):
        kinds = f"{type(before).__name__} and {type(after).__name__}"
        raise TypeError(f"expected two TensorGraphs or two DerivativePrograms, got {kinds}; steps go to verify_step")
    if isinstance(before, TensorGraph) and isinstance(after, TensorGraph):
        if forward_graph is not None:
            raise TypeError("forward_graph goes with two DerivativePrograms; before and after are TensorGraphs")
        check_graph(before, "before")
        check_graph(after, "after")
        known: Mapping[str, Any] = dict(before.inputs)
        graphs = before, _without_duals(after, known)
        _match_inputs(*graphs)
    else:
        check_program(before, "before")
        check_program(after, "after")
        assert isinstance(before, DerivativeProgram)
        assert isinstance(after, DerivativeProgram)
        _match_gradients(before, after)
        source = _as_graph(before, forward_graph)
        known = {**before.value_typespecs, **dict(source.inputs)}
        graphs = source, _without_duals(_with_unneeded(_as_graph(after, forward_graph), after), known)
    typed = _typed(graphs[0], "before"), _typed(graphs[1], "after")
    for value_id in typed[1].inputs:
        if value_id not in known:
            _mismatch(f"after reads {quote(value_id)}, which before does not know")
    return typed


def common_sizes(before: Typed, after: Typed, shape_bindings: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """The size of every symbol, and the symbols whose size was free to choose.

    Checks the outputs' types at these sizes. A free symbol gets a size that no other has. Raises
    symbolic_shape_mismatch where the artifacts bind a symbol to two sizes, invalid_verification for types that differ.
    """
    sizes = dict(shape_bindings)
    for typed in (before, after):
        for symbol, size in typed.symbols.items():
            bind(sizes, symbol, size)
    free = [symbol for symbol in dict.fromkeys([*before.free_symbols(), *after.free_symbols()]) if symbol not in sizes]
    taken = set(sizes.values())
    size = 2
    for symbol in free:
        while size in taken:
            size += 1
        taken.add(size)
        sizes[symbol] = size
    _match_types(before, after, sizes)
    return sizes, free


def _as_graph(program: DerivativeProgram, forward_graph: TensorGraph | None) -> TensorGraph:
    if forward_graph is not None:
        return joint_graph(program, forward_graph=forward_graph)
    producers = producer_index(program.nodes, category="ambiguous_producer")
    outputs = [gradient for gradient in program.output_gradients if gradient is not None]
    nodes = needed_by(outputs, producers)
    read = dict.fromkeys([*[operand for node in nodes for operand in node.input_value_ids], *outputs])
    inputs = [(value_id, program.value_typespecs.get(value_id)) for value_id in read if value_id not in producers]
    return TensorGraph(nodes, inputs, outputs)


def _with_unneeded(graph: TensorGraph, program: DerivativeProgram) -> TensorGraph:
    """The graph with what no output needs, if that reads nothing else: a difference may show there first."""
    known = {*dict(graph.inputs), *[node.output_value_id for node in graph.nodes]}
    nodes = list(graph.nodes)
    for node in program.nodes:
        if node.output_value_id not in known and known.issuperset(node.input_value_ids):
            known.add(node.output_value_id)
            nodes.append(node)
    return replace(graph, nodes=nodes)


def _without_duals(graph: TensorGraph, known: Mapping[str, Any]) -> TensorGraph:
    """The graph with each dual that is not known computed from what it is the transpose of."""
    inputs, nodes = dict(graph.inputs), []
    for value_id, spec in graph.inputs:
        source = dual_source(value_id)
        if source is None or source not in known or value_id in known:
            continue
        shape = parse_type(spec, label=f"input {quote(value_id)}").shape
        if len(shape) < 2:
            continue
        del inputs[value_id]
        inputs.setdefault(source, known[source])
        nodes.append(
            TensorNodeRecord(
                node_id=f"transpose {value_id}",
                output_value_id=value_id,
                operator=TransposeOperator(),
                op_params={"perm": list(swapped(range(len(shape))))},
                input_value_ids=[source],
                output_typespec=spec,
            )
        )
    return replace(graph, nodes=[*nodes, *graph.nodes], inputs=list(inputs.items())) if nodes else graph


def _typed(graph: TensorGraph, name: str) -> Typed:
    try:
        return Typed(graph)
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{name}: {error.message}") from None


def _match_inputs(before: TensorGraph, after: TensorGraph) -> None:
    old, new = dict(before.inputs), dict(after.inputs)
    for value_id in [*old, *new]:
        if value_id not in new or value_id not in old:
            only = "before" if value_id in old else "after"
            _mismatch(f"only {only} declares the input {quote(value_id)}; inputs are matched by id")


def _match_gradients(before: DerivativeProgram, after: DerivativeProgram) -> None:
    old_targets, new_targets = list(before.gradients), list(after.gradients)
    if old_targets != new_targets:
        _mismatch(f"before has the gradients of {quote(old_targets)}, after of {quote(new_targets)}")
    old, new = [[gradient is None for gradient in program.output_gradients] for program in (before, after)]
    if len(old) == len(new) and old != new:
        _mismatch(f"output gradient {[x == y for x, y in zip(old, new, strict=True)].index(False)} is None in only one")


def _match_types(before: Typed, after: Typed, sizes: Mapping[str, int]) -> None:
    if len(before.outputs) != len(after.outputs):
        _mismatch(f"before has {len(before.outputs)} outputs, after has {len(after.outputs)}")
    pairs = [(f"input {quote(value_id)}", value_id, value_id) for value_id in before.inputs if value_id in after.inputs]
    for position, (old, new) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        pairs.append((f"output {position}, {quote(old)} and {quote(new)},", old, new))
    for label, old, new in pairs:
        x, y = before.types[old], after.types[new]
        shape, other = [resolve_shape(type_.shape, sizes, label=label) for type_ in (x, y)]
        if x.dtype != y.dtype or shape != other:
            _mismatch(f"{label} is {x} in before and {y} in after")


def _mismatch(message: str) -> NoReturn:
    raise AutodiffError("invalid_verification", message)
