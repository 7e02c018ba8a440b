"""Fusion: a hook is offered each unclaimed operation with some that follow, and may claim several as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tinychain.autodiff.dependencies import Schedule
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import TensorNodeRecord, copy_node
from tinychain.autodiff.lowering.records import (
    FusionContext,
    FusionHook,
    FusionResult,
    TargetValue,
    raised,
    violation,
)
from tinychain.autodiff.types import as_int, is_sequence


class Fused(NamedTuple):
    """A checked answer of a hook: the nodes in schedule order, and the one value that leaves them."""

    output_value_id: str
    value: TargetValue
    nodes: tuple[TensorNodeRecord, ...]


def check_hook(hook: Any) -> int:
    """The hook's `lookahead`; handler_contract_violation if it is no positive int, or without a callable `fuse`."""
    name = f"the fusion hook {type(hook).__name__}"
    try:
        lookahead, fuse = getattr(hook, "lookahead", None), getattr(hook, "fuse", None)
    except Exception as error:
        raise raised(f"{name}, asked for lookahead and fuse,", error) from error
    number = as_int(lookahead)
    if number is None or number < 1:
        raise violation(f"the lookahead of {name} is {quote(lookahead)}; expected an int of 1 or more")
    if not callable(fuse):
        raise violation(f"{name} has no callable fuse(context), next to its lookahead")
    return number


class Fuser:
    """Offers the operations of one schedule to one hook and checks its answers."""

    def __init__(
        self,
        hook: FusionHook,
        lookahead: int,
        order: Schedule,
        selected: Sequence[str],
        values: Mapping[str, TargetValue],
    ) -> None:
        self._hook = hook
        self._name = type(hook).__name__
        self._lookahead = lookahead
        self._order = order
        self._selected = frozenset(selected)
        self._values = values
        self._position = {node.node_id: position for position, node in enumerate(order)}
        # The next unclaimed position at or after each, shortened as it is followed: a claimed run is skipped at once.
        self._next = list(range(len(order) + 1))
        self._consumers: dict[str, list[int]] = {}
        for position, node in enumerate(order):
            for operand in node.input_value_ids:
                self._consumers.setdefault(operand, []).append(position)
        self._copies: dict[int, TensorNodeRecord] = {}

    def is_claimed(self, position: int) -> bool:
        return self._next[position] != position

    def claim(self, position: int) -> None:
        self._next[position] = position + 1
        self._copies.pop(position, None)

    def offer(self, position: int) -> Fused | None:
        """The hook's checked answer for the operation at `position`, claimed; None where it declines."""
        candidates = self._candidates(position)
        offered = self._order[position].node_id
        context = FusionContext(tuple([self._copy(candidate) for candidate in candidates]), self._value_of)
        try:
            result = self._hook.fuse(context)
        except AutodiffError:
            raise
        except Exception as error:
            raise raised(f"the fusion hook {self._name}, offered node {quote(offered)},", error) from error
        if result is None:
            return None
        # isinstance would ask a target value, which a mistaken hook may return, for its __class__.
        if not issubclass(type(result), FusionResult):
            raise self._violation(offered, f"returned {quote(result)}; expected a FusionResult or None")
        if result.value is None:
            raise self._violation(offered, "returned a FusionResult whose value is None")
        consumed = self._consumed(offered, result.consumed_node_ids, candidates)
        self._check_operands(offered, consumed)
        output = self._escaping(offered, consumed)
        for claimed in consumed:
            self.claim(claimed)
        return Fused(output, result.value, tuple([self._order[claimed] for claimed in consumed]))

    def _candidates(self, position: int) -> list[int]:
        """The offered position and the next unclaimed ones, at most `lookahead` in all."""
        found: list[int] = []
        while position < len(self._order) and len(found) < self._lookahead:
            found.append(position)
            position = self._next_unclaimed(position + 1)
        return found

    def _next_unclaimed(self, position: int) -> int:
        links = self._next
        root = position
        while links[root] != root:
            root = links[root]
        while links[position] != root:
            links[position], position = root, links[position]
        return root

    def _copy(self, position: int) -> TensorNodeRecord:
        """The record that the hook sees, one that it may spoil."""
        copy = self._copies.get(position)
        if copy is None:
            copy = self._copies[position] = copy_node(self._order[position])
        return copy

    def _value_of(self, value_id: str) -> TargetValue:
        try:
            return self._values[value_id]
        except (KeyError, TypeError):
            raise violation(
                f"the fusion hook {self._name} asked for value {quote(value_id)}, which is not bound yet"
            ) from None

    def _consumed(self, offered: str, ids: Any, candidates: Sequence[int]) -> list[int]:
        """The consumed positions, ascending."""
        try:
            listed = list(ids) if is_sequence(ids) else []
        except Exception as error:
            raise raised(f"the ids consumed by the fusion hook {self._name}", error) from error
        if not listed:
            raise self._violation(offered, f"consumed {quote(ids)}; expected a non-empty sequence of node ids")
        allowed = {self._order[candidate].node_id for candidate in candidates}
        seen: set[str] = set()
        for node_id in listed:
            if not isinstance(node_id, str) or not node_id:
                raise self._violation(offered, f"consumed {quote(node_id)}; expected a non-empty str node id")
            if node_id in seen:
                raise self._violation(offered, f"consumed node {quote(node_id)} twice")
            if node_id not in allowed:
                raise self._violation(offered, f"consumed node {quote(node_id)}, which is not among the candidates")
            seen.add(node_id)
        if offered not in seen:
            raise self._violation(offered, "did not consume the offered node; return None to decline it")
        return sorted([self._position[node_id] for node_id in seen])

    def _check_operands(self, offered: str, consumed: Sequence[int]) -> None:
        """Every operand of the region is bound already or produced inside it."""
        inside = {self._order[position].output_value_id for position in consumed}
        for position in consumed:
            node = self._order[position]
            for operand in node.input_value_ids:
                if operand not in inside and operand not in self._values:
                    raise self._violation(
                        offered,
                        f"consumed node {quote(node.node_id)}, whose operand {quote(operand)} is neither bound yet nor"
                        " produced by a consumed node",
                    )

    def _escaping(self, offered: str, consumed: Sequence[int]) -> str:
        """The one consumed value that is selected or read from outside the region."""
        region = set(consumed)
        escaping = []
        for position in consumed:
            value_id = self._order[position].output_value_id
            if value_id in self._selected or not region.issuperset(self._consumers.get(value_id, ())):
                escaping.append(value_id)
        if len(escaping) != 1:
            raise self._violation(
                offered,
                f"consumed a region from which {len(escaping)} values escape"
                f" ({', '.join(map(quote, escaping)) or 'none'}); exactly one may",
            )
        return escaping[0]

    def _violation(self, offered: str, what: str) -> AutodiffError:
        return violation(f"the fusion hook {self._name}, offered node {quote(offered)}, {what}")
