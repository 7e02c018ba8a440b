"""Emitting plans into an artifact: constants once for all, and no reshape of a reshape.

A plan is made for a form; what can be shared between the nodes of an artifact is seen only here.
"""

from __future__ import annotations

from collections.abc import Collection

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.expansion.merging import Step
from tinychain.autodiff.expansion.planner import CONSTANTS, Plan
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.hashing import params_text
from tinychain.autodiff.operators import ReshapeOperator
from tinychain.autodiff.types import Shape


class Placer:
    """Appends to the nodes of `emit`. `lasting` are the values that stay whoever reads them, those of the artifact.

    `constants` gets the values that are fills or constants.
    """

    def __init__(self, emit: Emitter, *, constants: set[str], lasting: Collection[str]) -> None:
        self._emit = emit
        self._constants = constants
        self._lasting = lasting
        self._shared: dict[object, str] = {}  # the constants that were emitted, by their plans' nodes and their params
        self._reshaped: dict[str, tuple[str, Shape]] = {}  # what a lasting reshape was made of, and its shape
        self._reshapes: dict[tuple[str, Shape], str] = {}

    def keep(self, node: TensorNodeRecord) -> None:
        """A node that the machine has."""
        if type(node.operator) is ReshapeOperator:
            (x,) = node.input_value_ids
            type_ = self._emit.type(x)
            self._note(node.output_value_id, *self._origin(x, type_ and type_.shape))
        self._emit.nodes.append(node)

    def place(self, source: TensorNodeRecord, plan: Plan) -> None:
        """The nodes of a plan for a node, which end in the node's value."""
        if not plan.rules:
            self.keep(source)
            return
        if plan.is_constant:
            self._constants.add(source.output_value_id)
        emit, operands = self._emit, source.input_value_ids
        values: list[str] = []
        last = len(plan.steps) - 1
        for position, step in enumerate(plan.steps):
            node = step.node
            given = [values[place] if place >= 0 else operands[-1 - place] for place in step.operands]
            if type(node.operator) is ReshapeOperator:
                place = step.operands[0]
                type_ = emit.type(given[0])
                shape = plan.steps[place].shape if place >= 0 else type_ and type_.shape
                origin, shape = self._origin(given[0], shape)
                if position == last:
                    self._note(source.output_value_id, origin, shape)
                    emit.repeat(node, [origin], source.output_value_id, source.output_typespec)
                else:
                    values.append(origin if shape == step.shape else self._reshape(step, origin))
            elif position == last:
                emit.repeat(node, given, source.output_value_id, source.output_typespec)
            elif isinstance(node.operator, CONSTANTS):
                values.append(self.constant(node))
            else:
                values.append(emit.repeat(node, given))

    def constant(self, node: TensorNodeRecord) -> str:
        """The one constant of its numbers and type in the artifact; `node` has to outlive the placer."""
        shared = self._shared
        known = shared.get(id(node))
        if known is None:
            key = type(node.operator), params_text(node.op_params)
            if key not in shared:
                shared[key] = self._emit.repeat(node, ())
            known = shared[id(node)] = shared[key]
        return known

    def _origin(self, value_id: str, shape: Shape | None) -> tuple[str, Shape | None]:
        """What a value of this shape, if it is known, is a reshape of, and that one's; itself where it is none."""
        return self._reshaped.get(value_id) or (value_id, shape)

    def _note(self, value_id: str, origin: str, shape: Shape | None) -> None:
        if value_id in self._lasting and shape is not None:
            self._reshaped[value_id] = origin, shape

    def _reshape(self, step: Step, operand: str) -> str:
        """The one reshape of the operand to this shape."""
        key = operand, step.shape
        if key not in self._reshapes:
            self._reshapes[key] = self._emit.repeat(step.node, [operand])
        return self._reshapes[key]
