"""Expansion passes planted into a compile, and what the compile says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from steps import failure
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.training import CompiledTrainingStep

KINDS = ("forward", "derivative", "update")

Pass: TypeAlias = Callable[[Any], Any]


def unchanged(artifact: Any) -> Any:
    return artifact


def planted(edit: Pass) -> Pass:
    """The edit as a pass with the label planted."""

    def expansion(artifact: Any) -> Any:
        return edit(artifact)

    expansion.__qualname__ = "planted"
    return expansion


def violation(kind: str, edit: Pass, **changes: Any) -> str:
    """What the compile says of a planted pass that follows a good one."""
    error = failure(**{f"{kind}_expansions": [unchanged, planted(edit)], **changes})
    where = f"expansion pass 'planted' at position 1 of the {kind} expansion sequence "
    assert error.category == "expansion_contract_violation"
    assert error.message.startswith(where)
    return error.message.removeprefix(where)


def artifacts(step: CompiledTrainingStep, which: str = "source") -> dict[str, Any]:
    """The source or the lowered artifacts by kind, the update being that of the first parameter."""
    return {
        "forward": getattr(step, f"{which}_forward_graph"),
        "derivative": getattr(step, f"{which}_derivative_program"),
        "update": getattr(step.parameters[0], f"{which}_update_graph"),
    }


def extra(value_id: Any, *operands: str, node_id: str = "extra") -> TensorNodeRecord:
    """A node that no artifact has; two operands make it valid."""
    return TensorNodeRecord(
        node_id=node_id,
        output_value_id=value_id,
        operator=AddOperator(),
        op_params={},
        input_value_ids=list(operands),
        output_typespec={"dtype": "f64", "shape": []},
    )


def adding(node: Any) -> Pass:
    """The pass that appends a node."""
    return lambda artifact: replace(artifact, nodes=[*artifact.nodes, node])


def dropping(*value_ids: str) -> Pass:
    """The pass that drops the producers of values."""

    def drop(artifact: Any) -> Any:
        return replace(artifact, nodes=[node for node in artifact.nodes if node.output_value_id not in value_ids])

    return drop


def changing(position: int, **changes: Any) -> Pass:
    """The pass that changes one node."""

    def change(artifact: Any) -> Any:
        nodes = list(artifact.nodes)
        nodes[position] = replace(nodes[position], **changes)
        return replace(artifact, nodes=nodes)

    return change


def setting(**fields: Any) -> Pass:
    """The pass that sets fields of the artifact."""
    return lambda artifact: replace(artifact, **fields)
