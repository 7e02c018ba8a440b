"""Fusion: a hook is offered each unclaimed operation with some that follow, and may claim several as one value."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import chain
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
    nodes: list[TensorNodeRecord]


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
    """Offers the operations of one schedule to one hook and checks its answers.

    A region that passes the checks is an unbroken run of the schedule. All of it leads to its one output, so while
    any of it is left, the schedule, built backwards, takes nothing that was ready with the output: that has no shorter
    chain. Whatever else lies between was made ready by the region, which makes it an operand that is not bound.
    """

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
        self._reads = Counter(chain.from_iterable([node.input_value_ids for node in order]))
        # Copies, so that a hook cannot reach the artifact, of the run of nodes that begins at _window_start.
        self._window: deque[TensorNodeRecord] = deque()
        self._window_start = 0

    def offer(self, position: int) -> Fused | None:
        """The hook's checked answer for the operation at `position`; None where it declines.

        The positions only grow: the next one, or the first after a fused run.
        """
        offered = self._order[position].node_id
        context = FusionContext(self._candidates(position), self._value_of)
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
        candidates = self._order[position : position + len(context.candidates)]
        consumed = self._consumed(offered, result.consumed_node_ids, candidates)
        self._check_operands(offered, consumed)
        return Fused(self._escaping(offered, consumed), result.value, consumed)

    def _candidates(self, position: int) -> tuple[TensorNodeRecord, ...]:
        """The offered operation and those that follow, at most `lookahead` in all."""
        window, order = self._window, self._order
        while self._window_start < position:
            window.popleft()
            self._window_start += 1
        end = min(position + self._lookahead, len(order))
        window.extend([copy_node(node) for node in order[position + len(window) : end]])
        return tuple(window)

    def _value_of(self, value_id: str) -> TargetValue:
        try:
            return self._values[value_id]
        except (KeyError, TypeError):
            raise violation(
                f"the fusion hook {self._name} asked for value {quote(value_id)}, which is not bound yet"
            ) from None

    def _consumed(self, offered: str, ids: Any, candidates: Schedule) -> list[TensorNodeRecord]:
        """The consumed nodes, in schedule order."""
        try:
            listed = list(ids) if is_sequence(ids) else []
        except Exception as error:
            raise raised(f"the ids consumed by the fusion hook {self._name}", error) from error
        if not listed:
            raise self._violation(offered, f"consumed {quote(ids)}; expected a non-empty sequence of node ids")
        allowed = {node.node_id for node in candidates}
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
        return [node for node in candidates if node.node_id in seen]

    def _check_operands(self, offered: str, consumed: Schedule) -> None:
        """Every operand of the region is bound already or produced inside it."""
        inside = {node.output_value_id for node in consumed}
        for node in consumed:
            for operand in node.input_value_ids:
                if operand not in inside and operand not in self._values:
                    raise self._violation(
                        offered,
                        f"consumed node {quote(node.node_id)}, whose operand {quote(operand)} is neither bound yet nor"
                        " produced by a consumed node",
                    )

    def _escaping(self, offered: str, consumed: Schedule) -> str:
        """The one consumed value that is selected or read from outside the region."""
        inside = Counter(chain.from_iterable([node.input_value_ids for node in consumed]))
        values = [node.output_value_id for node in consumed]
        escaping = [v for v in values if v in self._selected or inside[v] != self._reads[v]]
        if len(escaping) != 1:
            raise self._violation(
                offered,
                f"consumed a region from which {len(escaping)} values escape"
                f" ({', '.join(map(quote, escaping)) or 'none'}); exactly one may",
            )
        return escaping[0]

    def _violation(self, offered: str, what: str) -> AutodiffError:
        return violation(f"the fusion hook {self._name}, offered node {quote(offered)}, {what}")
