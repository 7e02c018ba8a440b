"""Following secrets through programs: what each value costs in levels, and through which nodes.

Only what depends on a secret counts: the rest is computed in the clear. A factor of 1 or -1 costs nothing, as a product
with it adds up or negates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.expansion.transposing import dual_source
from tinychain.autodiff.graph import TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import (
    BroadcastOperator,
    FillOperator,
    MulOperator,
    ReshapeOperator,
    TransposeOperator,
)
from tinychain.autodiff.types import check_literal
from tinychain.autodiff.walks import needed_by, producer_index

#: Their results hold the elements of the operand and no others.
_MOVES: Final = (ReshapeOperator, BroadcastOperator, TransposeOperator)

_UNSAID: Final = "nobody says how it multiplies; define multiplies on its class"


class Chain(NamedTuple):
    """The levels of a value, None if they are not known, and the last node that cost some, after which chain."""

    levels: int | None
    node_id: str = ""
    program: str = ""
    before: Chain | None = None

    def path(self) -> list[tuple[str, str]]:
        """The nodes that cost a level, each as (program, node id), first to last."""
        found: list[tuple[str, str]] = []
        chain = self
        while chain.before is not None:
            found.append((chain.program, chain.node_id))
            chain = chain.before
        return found[::-1]


PLAIN: Final = Chain(0)
_UNKNOWN: Final = Chain(None)


def deepest_of(chains: Iterable[Chain]) -> Chain:
    """The first of those with the most levels; an unknown one is deeper than all others."""
    deepest, most = PLAIN, 0
    for chain in chains:
        if chain.levels is None:
            return _UNKNOWN
        if chain.levels > most:
            deepest, most = chain, chain.levels
    return deepest


class DepthWalk:
    """`unknown` says why depths are unknown, in the order of the walk."""

    def __init__(self, target: Target | None) -> None:
        self._operators: Mapping[type[TensorOperator], Limits] = {} if target is None else target.operators
        self.unknown: list[str] = []

    def run(
        self, nodes: Sequence[TensorNodeRecord], outputs: Iterable[str], values: dict[str, Chain], program: str = ""
    ) -> None:
        """Adds to the secret `values` what depends on them, among what the outputs need of a program."""
        producers = producer_index(nodes, category="malformed_derivative_ir")
        outputs = list(outputs)
        order = needed_by(outputs, producers)
        for value_id in [*outputs, *[operand for node in order for operand in node.input_value_ids]]:
            source = dual_source(value_id)
            if source in values and value_id not in values and value_id not in producers:
                values[value_id] = values[source]
        signs: set[str] = set()  # plain values whose elements are all 1, or all -1
        for node in order:
            operands = [values[operand] for operand in node.input_value_ids if operand in values]
            if not operands:
                if _has_signs(node, signs):
                    signs.add(node.output_value_id)
                continue
            chain = deepest_of(operands)
            cost = self._cost(node, values, signs)
            if isinstance(cost, str):
                where = f"{program}: node" if program else "node"
                self.unknown.append(f"{where} {quote(node.node_id)} ({node.operator.name}): {cost}")
                chain = _UNKNOWN
            elif cost and chain.levels is not None:
                chain = Chain(chain.levels + cost, node.node_id, program, chain)
            values[node.output_value_id] = chain

    def _cost(self, node: TensorNodeRecord, secret: Mapping[str, Chain], signs: Collection[str]) -> int | str:
        """The levels that a node with a secret operand costs, or why nobody knows."""
        operator, operands = node.operator, node.input_value_ids
        if operator.multiplies == "never":
            return 0
        limits = self._operators.get(type(operator)) or self._operators.get(MulOperator) or Limits()
        if operator.multiplies == "scale":
            return limits.plain_levels
        divisors = operands[1:] if operator.multiplies == "quotient" else []
        if operator.multiplies not in ("product", "quotient") or any(divisor in secret for divisor in divisors):
            return _UNSAID if operator.inexact == TensorOperator.inexact else operator.inexact
        plain = [operand for operand in operands if operand not in secret]
        if len(operands) - len(plain) > 1:
            return limits.secret_levels
        literal = node.op_params.get("right_literal", 1.0)
        return 0 if _is_sign(literal) and all(operand in signs for operand in plain) else limits.plain_levels


def _has_signs(node: TensorNodeRecord, signs: Collection[str]) -> bool:
    """Whether all elements of a plain value are 1, or all -1, as far as fills say."""
    if type(node.operator) is FillOperator:
        return _is_sign(node.op_params.get("fill"))
    return type(node.operator) in _MOVES and all(operand in signs for operand in node.input_value_ids)


def _is_sign(number: object) -> bool:
    return abs(check_literal(number)) == 1.0
