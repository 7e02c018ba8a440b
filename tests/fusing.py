"""A fusion hook that answers what a test says and keeps what it was offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dags import Recorder, bind_text
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.lowering import FusionContext, FusionResult, LoweredProgram, lower_graph


def decline(context: FusionContext) -> None:
    """Leaves every operation to its handler."""


class Hook:
    """`answer` is what `fuse` does."""

    def __init__(self, answer: Callable[[FusionContext], Any] = decline, lookahead: Any = 3) -> None:
        self.lookahead = lookahead
        self.offers: list[list[str]] = []
        self._answer = answer

    def fuse(self, context: FusionContext) -> Any:
        self.offers.append([node.node_id for node in context.candidates])
        return self._answer(context)


def claiming(*regions: str) -> Callable[[FusionContext], FusionResult | None]:
    """Claims the regions, each a text of value ids, where their first one is offered; the value is that text."""

    def answer(context: FusionContext) -> FusionResult | None:
        offered = context.candidates[0].output_value_id
        for region in regions:
            if region.split()[0] == offered:
                return FusionResult(region, [f"n_{value_id}" for value_id in region.split()])
        return None

    return answer


def lower(graph: TensorGraph, hook: Any, recorder: Recorder | None = None, **arguments: Any) -> LoweredProgram:
    """Lowers with the hook; inputs are bound to their ids, and handlers answer in text."""
    arguments = {"bind_input": bind_text, **arguments}
    return lower_graph(graph, handlers=(recorder or Recorder()).registry, fusion=hook, **arguments)
