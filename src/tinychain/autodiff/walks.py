"""Walks over the nodes of an artifact that several stages share, each iterative and linear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.types import Typespec


def declared_specs(graph: TensorGraph) -> dict[str, Typespec | None]:
    """The typespec, if any, that the graph declares for each input and each node's result."""
    specs: dict[str, Typespec | None] = dict(graph.inputs)
    for node in graph.nodes:  # a list of pairs would be a million objects for the collector
        specs[node.output_value_id] = node.output_typespec
    return specs


def first_duplicate(ids: Sequence[str]) -> str | None:
    """The first id that has stood before, or None."""
    if len(set(ids)) == len(ids):  # nearly always, and far faster to see
        return None
    seen: set[str] = set()
    for id_ in ids:
        if id_ in seen:
            return id_
        seen.add(id_)
    return None


def producer_index(nodes: Iterable[TensorNodeRecord], *, category: str) -> dict[str, TensorNodeRecord]:
    """Value id -> the node that produces it; two producers of a value raise `category`."""
    producers: dict[str, TensorNodeRecord] = {}
    for node in nodes:
        value_id = node.output_value_id
        if value_id in producers:
            raise AutodiffError(
                category,
                f"value {quote(value_id)} has two producers: nodes {quote(producers[value_id].node_id)} and"
                f" {quote(node.node_id)}",
            )
        producers[value_id] = node
    return producers


_ON_PATH: Final = object()


def post_order(roots: Iterable[TensorNodeRecord], producers: Mapping[str, TensorNodeRecord]) -> list[TensorNodeRecord]:
    """Depth-first post-order from the roots, operands left to right: every node after its producers.

    `producers` holds the roots and bounds the walk: a value outside it is free. A cycle raises malformed_derivative_ir.
    """
    order: list[TensorNodeRecord] = []
    # Value id -> its node until the walk reaches it, _ON_PATH while it is on the path from the root, then None.
    states: dict[str, Any] = dict(producers)
    for root in roots:
        stack = [root]
        while stack:
            node = stack[-1]
            value_id = node.output_value_id
            state = states[value_id]
            if state is node:
                states[value_id] = state = _ON_PATH
                for operand in reversed(node.input_value_ids):
                    producer = states.get(operand)
                    if producer is _ON_PATH:
                        raise AutodiffError(
                            "malformed_derivative_ir",
                            f"cycle: value {quote(operand)} of node {quote(producers[operand].node_id)} depends on"
                            f" itself through node {quote(node.node_id)}",
                        )
                    if producer is not None:
                        stack.append(producer)
                if stack[-1] is not node:
                    continue
            stack.pop()
            if state is _ON_PATH:
                states[value_id] = None
                order.append(node)
    return order


def needed_by(value_ids: Iterable[str], producers: Mapping[str, TensorNodeRecord]) -> list[TensorNodeRecord]:
    """The nodes that these values need, every one after its producers; values that nothing produces need none."""
    return post_order([producers[value_id] for value_id in value_ids if value_id in producers], producers)
