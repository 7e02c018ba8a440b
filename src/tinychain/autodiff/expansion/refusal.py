"""The text of a refusal: every operation that stands in the way, and every reason once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.planner import Impossible
from tinychain.autodiff.expansion.target import Target
from tinychain.autodiff.graph import TensorNodeRecord

_GROUPS_SHOWN: Final = 20
_NODES_SHOWN: Final = 10
_REASONS_SHOWN: Final = 4
_RULES_SHOWN: Final = 2


class Problem(NamedTuple):
    """A node that stands in the way, and why."""

    node: TensorNodeRecord
    reason: Impossible


def refused(target: Target, problems: Sequence[Problem]) -> AutodiffError:
    """The not_legalizable error for these problems; nodes of one operator with the same reasons are told together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, reason in problems:
        groups.setdefault((node.operator.name, *_lines(reason)), []).append(quote(node.node_id))
    count = f"{len(problems)} operations do" if len(problems) > 1 else "1 operation does"
    text = [f"{count} not fit the target {quote(target.name)}:"]
    for (operator, refusal, *reasons), nodes in list(groups.items())[:_GROUPS_SHOWN]:
        label = "nodes" if len(nodes) > 1 else "node"
        text.append(f"  {label} {_listed(nodes, _NODES_SHOWN)} ({operator}): {refusal}")
        text += [f"    {reason}" for reason in reasons]
    more = sum([len(nodes) for nodes in list(groups.values())[_GROUPS_SHOWN:]])
    if more:
        text.append(f"  and {more} more operations, for other reasons")
    return AutodiffError("not_legalizable", "\n".join(text))


def _lines(reason: Impossible) -> Iterable[str]:
    rules: dict[str, list[str]] = {}
    for objection in reason.told():
        rules.setdefault(objection.reason, []).append(objection.rule)
    yield reason.refusal
    yield from [f"{_listed(names, _RULES_SHOWN)}: {text}" for text, names in list(rules.items())[:_REASONS_SHOWN]]
    if len(rules) > _REASONS_SHOWN:
        yield f"and {len(rules) - _REASONS_SHOWN} more reasons; explain lists them all"


def _listed(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join([*names[:most], *([f"{more} more"] if more > 0 else [])])
