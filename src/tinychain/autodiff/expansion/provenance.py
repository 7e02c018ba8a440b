"""What became of which nodes: the regions that legalization reports, chained through the passes before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.rewriter import MeanExpansionRegion
from tinychain.autodiff.graph import Record
from tinychain.autodiff.types import is_sequence


@dataclass(frozen=True, slots=True)
class LegalizedRegion(Record):
    """What became of one node: the rules in the order of their use, and the nodes that now compute its value.

    A node that several regions read, such as a fill, is emitted by the first of them.
    """

    rules: tuple[str, ...]
    source_node_ids: tuple[str, ...]
    emitted_node_ids: tuple[str, ...]
    terminal_value_id: str

    @property
    def pass_name(self) -> str:
        return "; ".join(self.rules)


Region: TypeAlias = LegalizedRegion | MeanExpansionRegion


def origins(regions: Sequence[Region]) -> dict[str, Region]:
    """The region of every emitted node, by the node's id: which nodes and rules it comes from. Others are as given.

    Raises TypeError for what is no sequence of regions.
    """
    _check_round("regions", regions)
    return {node_id: region for region in regions for node_id in region.emitted_node_ids}


def _check_round(label: str, regions: object) -> None:
    if not is_sequence(regions):
        raise TypeError(f"{label} must be a sequence of regions, got {quote(regions)}")
    for region in regions:
        if not isinstance(region, (LegalizedRegion, MeanExpansionRegion)) or not region.source_node_ids:
            raise TypeError(f"{label} must hold regions of a detailed pass, got {quote(region)}")


def chain_regions(*rounds: Sequence[Region]) -> tuple[LegalizedRegion, ...]:
    """The regions of several detailed passes, each over what the one before has made, as those of one pass.

    A region leads from nodes of the first artifact to nodes of the last one; regions whose nodes a later one rewrites
    together become one. Raises TypeError for a round that is no sequence of regions. Linear.
    """
    chains: list[_Chain] = []
    emitted: dict[str, tuple[_Chain, _Node]] = {}  # what the rounds so far have emitted and not rewritten
    for number, regions in enumerate(rounds):
        _check_round(f"rounds[{number}]", regions)
        for region in regions:
            _extend(chains, emitted, region)
    return tuple([chain.region() for chain in chains if chain.successor is None])


@dataclass(slots=True)
class _Node:
    """A node that a round has emitted, and what a later round has made of it."""

    node_id: str
    became: list[_Node] | None = None


@dataclass(slots=True)
class _Chain:
    """A region in the making. `successor` is the one that it has become part of."""

    terminal_value_id: str
    rules: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    emitted: list[_Node] = field(default_factory=list)
    successor: _Chain | None = None

    def latest(self) -> _Chain:
        chain = self
        while chain.successor is not None:
            chain = chain.successor
        return chain

    def region(self) -> LegalizedRegion:
        node_ids = []
        pending = self.emitted[::-1]
        while pending:
            node = pending.pop()
            if node.became is None:
                node_ids.append(node.node_id)
            else:
                pending += node.became[::-1]
        return LegalizedRegion(
            rules=tuple(dict.fromkeys(self.rules)),
            source_node_ids=tuple(self.sources),
            emitted_node_ids=tuple(node_ids),
            terminal_value_id=self.terminal_value_id,
        )


def _extend(chains: list[_Chain], emitted: dict[str, tuple[_Chain, _Node]], region: Region) -> None:
    rewritten = {id_: emitted.pop(id_) for id_ in region.source_node_ids if id_ in emitted}
    parts = list({id(chain.latest()): chain.latest() for chain, _ in rewritten.values()}.values())
    chain = parts[-1] if parts else _Chain(region.terminal_value_id)
    if not parts:
        chains.append(chain)
    for part in parts[:-1]:
        part.successor = chain
        chain.rules += part.rules
        chain.sources += part.sources
        chain.emitted += part.emitted
    chain.rules += region.rules if isinstance(region, LegalizedRegion) else [region.pass_name]
    chain.sources += [id_ for id_ in region.source_node_ids if id_ not in rewritten]
    made = [_Node(id_) for id_ in region.emitted_node_ids]
    for _, node in rewritten.values():
        node.became = []
    if region.source_node_ids[-1] in rewritten:
        rewritten[region.source_node_ids[-1]][1].became = made
    else:
        chain.emitted += made
        chain.terminal_value_id = region.terminal_value_id
    emitted.update([(node.node_id, (chain, node)) for node in made])
