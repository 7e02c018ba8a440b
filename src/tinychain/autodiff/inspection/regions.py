"""Which nodes a pass emitted for which others: the regions that a drawing frames and names.

A detailed pass reports its regions. A compiled step keeps the artifacts before and after its passes, and the regions
follow from those: a value that stays and has another producer ends one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion import MeanExpansionRegion
from tinychain.autodiff.expansion.provenance import LegalizedRegion
from tinychain.autodiff.graph import Record, TensorNodeRecord
from tinychain.autodiff.inspection.label import id_label, operator_label, printable
from tinychain.autodiff.types import is_sequence

_SOURCES_SHOWN: Final = 3


@dataclass(frozen=True)
class Region(Record):
    """Nodes that stand for others; `label` names the passes and what was replaced."""

    label: str
    source_node_ids: tuple[str, ...]
    emitted_node_ids: tuple[str, ...]
    terminal_value_id: str


def given_regions(regions: object, nodes: Sequence[TensorNodeRecord]) -> tuple[Region, ...]:
    """The regions that a pass reported of these nodes.

    Raises TypeError for another kind of record, ValueError for a node that is not there or is in two regions.
    """
    if not is_sequence(regions):
        raise TypeError(
            f"regions must be a sequence of MeanExpansionRegion or LegalizedRegion records, got {quote(regions)}"
        )
    known = {node.node_id for node in nodes}
    owners: dict[str, int] = {}
    found = []
    for position, region in enumerate(regions):
        if not isinstance(region, (MeanExpansionRegion, LegalizedRegion)):
            raise TypeError(
                f"regions must hold MeanExpansionRegion or LegalizedRegion records, got {quote(region)} at {position}"
            )
        for node_id in region.emitted_node_ids:
            if node_id not in known:
                raise ValueError(f"regions[{position}] has the node {quote(node_id)}, which the artifact lacks")
            if owners.setdefault(node_id, position) != position:
                raise ValueError(f"node {quote(node_id)} is in regions[{owners[node_id]}] and in regions[{position}]")
        sources = [id_label(node_id) for node_id in region.source_node_ids]
        found.append(
            Region(
                _label(region.pass_name, sources),
                tuple(region.source_node_ids),
                tuple(region.emitted_node_ids),
                region.terminal_value_id,
            )
        )
    return tuple(found)


def rewritten_regions(
    source: Sequence[TensorNodeRecord], lowered: Sequence[TensorNodeRecord], labels: Sequence[str]
) -> tuple[Region, ...]:
    """The regions by which `lowered` differs from `source`, in the order of their terminals; `labels` are the passes'.

    A region is what was emitted and leads to its terminal and to no earlier one. Its sources are found alike among the
    nodes that are gone.
    """
    kept = {node.node_id for node in source} & {node.node_id for node in lowered}
    before = {node.output_value_id: node for node in source}
    emitted = {node.output_value_id: node for node in lowered if node.node_id not in kept}
    terminals = [value_id for value_id in emitted if value_id in before]
    gone = {value_id: node for value_id, node in before.items() if node.node_id not in kept}
    new_groups = _groups(terminals, emitted)
    old_groups = _groups([value_id for value_id in terminals if value_id in gone], gone)
    found = []
    for terminal in terminals:
        sources = old_groups.get(terminal, [])
        found.append(
            Region(
                label=_label(
                    ", ".join(labels),
                    [f"{operator_label(node.operator)} {id_label(node.node_id)}" for node in sources],
                ),
                source_node_ids=tuple([node.node_id for node in sources]),
                emitted_node_ids=tuple([node.node_id for node in new_groups[terminal]]),
                terminal_value_id=terminal,
            )
        )
    return tuple(found)


def _groups(terminals: Sequence[str], producers: Mapping[str, TensorNodeRecord]) -> dict[str, list[TensorNodeRecord]]:
    """Terminal -> its producer and what leads to it among `producers`, in their order, up to the other terminals."""
    owner: dict[str, str] = {}
    for terminal in terminals:
        owner[terminal] = terminal
    for terminal in terminals:
        stack = [terminal]
        while stack:
            for operand in producers[stack.pop()].input_value_ids:
                if operand in producers and operand not in owner:
                    owner[operand] = terminal
                    stack.append(operand)
    groups: dict[str, list[TensorNodeRecord]] = {terminal: [] for terminal in terminals}
    for value_id, node in producers.items():
        if value_id in owner:
            groups[owner[value_id]].append(node)
    return groups


def _label(passes: str, sources: Sequence[str]) -> str:
    more = len(sources) - _SOURCES_SHOWN
    shown = [*sources[:_SOURCES_SHOWN], *([f"{more} more"] if more > 0 else [])]
    return printable(f"{passes}: {', '.join(shown)}" if shown else passes)
