"""The form of artifacts that come in from outside, judged once at the door.

Records are open to be built by hand, so a list may hold anything; behind these checks every walk may trust it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.types import is_sequence


def check_graph(graph: object, argument: str) -> None:
    """Refuses what is no graph, naming the `argument`.

    Raises TypeError for another class, a node that is no TensorNodeRecord or an input that is no (value id, typespec)
    pair, malformed_derivative_ir for an id that is no str. The outputs are judged where they are selected.
    """
    if not isinstance(graph, TensorGraph):
        raise TypeError(f"{argument} must be a TensorGraph, got {quote(graph)}")
    check_nodes(graph.nodes, argument)
    for declared in graph.inputs:
        if not is_sequence(declared) or len(declared) != 2:
            raise TypeError(f"inputs of {argument} must hold (value id, typespec) pairs, got {quote(declared)}")
        if not isinstance(declared[0], str):
            raise _no_id(declared[0], argument)


def check_program(program: object, argument: str) -> None:
    """`check_graph` for a derivative program; TypeError also for tables that are no mappings."""
    if not isinstance(program, DerivativeProgram):
        raise TypeError(f"{argument} must be a DerivativeProgram, got {quote(program)}")
    if not is_sequence(program.nodes):
        raise TypeError(f"nodes of {argument} must be a list, got {quote(program.nodes)}")
    for name in ("gradients", "value_typespecs"):
        if not isinstance(getattr(program, name), Mapping):
            raise TypeError(f"{name} of {argument} must be a mapping, got {quote(getattr(program, name))}")
    check_nodes(program.nodes, argument)


def check_nodes(nodes: Sequence[Any], argument: str) -> None:
    """`check_graph` for nodes alone."""
    for node in nodes:
        if not isinstance(node, TensorNodeRecord):
            raise TypeError(f"nodes of {argument} must hold TensorNodeRecords, got {quote(node)}")
        if not isinstance(node.node_id, str):
            raise _no_id(node.node_id, argument)
        if not isinstance(node.output_value_id, str):
            raise _no_id(node.output_value_id, argument)
        for operand in node.input_value_ids:
            if not isinstance(operand, str):
                raise _no_id(operand, argument)


def _no_id(id_: object, argument: str) -> AutodiffError:
    return AutodiffError("malformed_derivative_ir", f"an id in {argument} must be a str, got {quote(id_)}")
