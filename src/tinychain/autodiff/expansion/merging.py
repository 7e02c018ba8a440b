"""A reshape of a reshape is one reshape; rules that each stand between reshapes leave many of them in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.operators import ReshapeOperator
from tinychain.autodiff.types import Shape


class Step(NamedTuple):
    """One node of a plan. Operand i >= 0 is the result of the plan's step i, and -1 - i the source's operand i."""

    node: TensorNodeRecord
    operands: tuple[int, ...]

    @property
    def is_reshape(self) -> bool:
        return type(self.node.operator) is ReshapeOperator

    @property
    def shape(self) -> Shape:
        """The shape of the result; a node of a plan has a typespec."""
        assert self.node.output_typespec is not None
        return tuple(self.node.output_typespec["shape"])


def merged(steps: Sequence[Step], shapes: Sequence[Shape]) -> list[Step]:
    """The steps without the reshapes that only reshapes read, and those to the shape that a value has already.

    `shapes` are those of the source's operands. The last step stays, whatever it is.
    """
    origins: dict[int, int] = {}  # the place of what a reshape was made of, or of the value that it is
    idle: set[int] = set()
    rewired: list[Step] = []
    last = len(steps) - 1
    for i, step in enumerate(steps):
        places = [origins[place] if place in idle else place for place in step.operands]
        if step.is_reshape:
            place = origins[i] = origins.get(places[0], places[0])
            places = [place]
            if i < last and step.shape == (steps[place].shape if place >= 0 else shapes[-1 - place]):
                idle.add(i)
        rewired.append(Step(step.node, tuple(places)))
    read = {place for step in rewired for place in step.operands}
    kept = [i for i, step in enumerate(rewired) if i == last or i in read or not step.is_reshape]
    position = {old: new for new, old in enumerate(kept)}
    return [Step(rewired[i].node, tuple([position.get(p, p) for p in rewired[i].operands])) for i in kept]
