"""The engine of the passes: reserved ids, collisions, rewriting in place, provenance.

A pass decides which nodes to rewrite and what to emit. What every pass must get right is here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record, TensorNodeRecord
from tinychain.autodiff.types import Typespec
from tinychain.autodiff.walks import first_duplicate

DEFAULT_PREFIX: Final = "ex"
EXPANSION_NODE_ID_PREFIX: Final = f"{DEFAULT_PREFIX}n"
EXPANSION_VALUE_ID_PREFIX: Final = f"{DEFAULT_PREFIX}v"

_FOREIGN_NAMESPACES: Final = ("v", "n", "d")


@dataclass(frozen=True)
class MeanExpansionRegion(Record):
    """What became of one rewritten group of nodes; `terminal_value_id` carries the rewritten value."""

    pass_name: str
    source_node_ids: tuple[str, ...]
    emitted_node_ids: tuple[str, ...]
    terminal_value_id: str
    tier: str


def check_prefix(prefix: object) -> str:
    """The id prefix that a caller asked for; malformed_derivative_ir for one that tracing or `generate` may mint."""
    if prefix is None:
        return DEFAULT_PREFIX
    if not isinstance(prefix, str) or not prefix.strip() or prefix.startswith(_FOREIGN_NAMESPACES):
        raise AutodiffError(
            "malformed_derivative_ir",
            f"reserved_id_prefix is {quote(prefix)}; expected a non-blank str that starts with none of"
            f" {', '.join(_FOREIGN_NAMESPACES)}",
        )
    return prefix


class Rewriter:
    """Copies the nodes of one artifact in order, replacing some by emitted regions.

    Raises malformed_derivative_ir for a mentioned id that is no str, duplicate node ids, duplicate values among
    `declared` and node outputs, and for a minted id that the artifact mentions anywhere, in its nodes, in `declared` or
    in `mentioned`.
    """

    def __init__(
        self, nodes: Sequence[TensorNodeRecord], *, declared: Collection[str], mentioned: Collection[str], prefix: str
    ) -> None:
        self._prefix = prefix
        self._nodes = nodes
        node_ids = [node.node_id for node in nodes]
        produced = [node.output_value_id for node in nodes]
        read = [operand for node in nodes for operand in node.input_value_ids]
        self._mentioned = [*declared, *mentioned, *node_ids, *produced, *read]
        for id_ in mentioned:
            if not isinstance(id_, str):
                raise AutodiffError("malformed_derivative_ir", f"an id must be a str, got {quote(id_)}")
        self._check_unique("node", node_ids)
        self._check_unique("value", [*declared, *produced])
        self.regions: list[MeanExpansionRegion] = []

    def run(
        self,
        matches: dict[str, tuple[TensorNodeRecord, ...]],
        expand: Callable[[Emitter, tuple[TensorNodeRecord, ...]], None],
        *,
        specs: Mapping[str, Typespec | None],
        pass_name: str,
        tier: Callable[[TensorNodeRecord], str],
    ) -> list[TensorNodeRecord]:
        """The new node list. `matches` maps the id of a match's last node to all of its nodes, last one last.

        `expand` emits a region that ends in the value of the last node; the other nodes of the match are dropped.
        """
        taken = {id_ for id_ in self._mentioned if id_.startswith(self._prefix)}
        emit = Emitter(
            specs=specs,
            mint_value=_mint_fresh(f"{self._prefix}v", taken),
            mint_node=_mint_fresh(f"{self._prefix}n", taken),
        )
        dropped = {node.node_id for match in matches.values() for node in match[:-1]}
        for node in self._nodes:
            match = matches.get(node.node_id)
            if match is None:
                if node.node_id not in dropped:
                    emit.nodes.append(node)
                continue
            start = len(emit.nodes)
            expand(emit, match)
            emitted = emit.nodes[start:]
            self.regions.append(
                MeanExpansionRegion(
                    pass_name=pass_name,
                    source_node_ids=tuple([source.node_id for source in match]),
                    emitted_node_ids=tuple([new.node_id for new in emitted]),
                    terminal_value_id=emitted[-1].output_value_id,
                    tier=tier(node),
                )
            )
        return emit.nodes

    @staticmethod
    def _check_unique(kind: str, ids: list[str]) -> None:
        duplicate = first_duplicate(ids)
        if duplicate is not None:
            raise AutodiffError("malformed_derivative_ir", f"duplicate {kind} id {quote(duplicate)}")


def _mint_fresh(prefix: str, taken: set[str]) -> Callable[[], str]:
    """Ids prefix0, prefix1, ...; a taken one is refused, so that equal artifacts give equal ids."""
    next_id = mint(prefix, ())

    def fresh_id() -> str:
        new = next_id()
        if new in taken:
            raise AutodiffError(
                "malformed_derivative_ir",
                f"the minted id {quote(new)} is already used in the artifact; pass another reserved_id_prefix",
            )
        return new

    return fresh_id
