"""The bytes that the arrays of one step take at most, planned from the types and the order of its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.inspection.liveness import Operation, peak_live_bytes
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.types import ITEM_BYTES, resolve_shape


def step_bytes(step: CompiledTrainingStep, symbols: Mapping[str, int]) -> int | None:
    """The most bytes of inputs, parameters, state, captures, gradients and values alive; None for an unknown dim.

    A value of a program counts as an array of its own from the operation that makes it to its last reader; what a
    program reads, from its start to its end. What a backend takes within one operation comes on top of that; what its
    arrays share, such as a view, is counted twice.
    """
    try:
        forward, in_forward = _planned(step.forward, step.lowered_forward_graph.nodes, symbols)
        derivative, in_derivative = _planned(step.derivative, step.lowered_derivative_program.nodes, symbols)
        updates = {id(p.update): (p.update, p.lowered_update_graph.nodes) for p in step.parameters}
        planned = {key: _planned(program, nodes, symbols) for key, (program, nodes) in updates.items()}
        shared = step.gradient_inputs
        in_shared = 0 if shared is None else _planned(shared.program, shared.lowered_graph.nodes, symbols)[1]
    except AutodiffError:
        return None
    read = {
        name: planned[id(p.update)][0].get(p.update_input_value_ids[name], 0)
        for p in step.parameters
        for name in step.provenance.optimizer_input_names
    }
    held = sum(read.values()) + sum([forward[v.value_id] for v in step.forward.dependencies.required_inputs])
    held += sum([forward[p.value_id] * len(p.updated_state_value_ids) for p in step.parameters])
    captured = sum([forward[value_id] for value_id in step.forward.selected_outputs])
    peaks = [
        held + in_forward,
        held + captured + forward[step.loss_value_id] + in_derivative,
    ]  # the seed is as the loss
    held += sum([derivative[value_id] for value_id in step.derivative.selected_outputs])
    peaks.append(held + in_shared)
    last_reader = {p.gradient_value_id: p.name for p in step.parameters}
    for p in step.parameters:
        sizes, in_update = planned[id(p.update)]
        peaks.append(held + in_update)
        held += sum([sizes[value_id] for value_id in p.update.selected_outputs])
        held -= derivative[p.gradient_value_id] if last_reader[p.gradient_value_id] == p.name else 0
    return max(peaks)


def _planned(
    program: LoweredProgram, nodes: Sequence[TensorNodeRecord], symbols: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """The bytes of each value, and the most bytes of its own that the program holds at one time."""
    sizes = {}
    for value in program.dependencies.dependencies:
        if value.dtype is None or value.shape is None:
            raise AutodiffError("missing_shape_metadata", f"nothing is known of {value.value_id!r}")
        shape = resolve_shape(value.shape, symbols, label=f"value {value.value_id!r}")
        sizes[value.value_id] = prod(shape) * ITEM_BYTES[value.dtype]
    by_id = {node.node_id: node for node in nodes}
    operations = []
    for operation in program.operations:
        claimed = [by_id[node_id] for node_id in operation.source_node_ids]
        inner = {node.output_value_id for node in claimed}
        read = [operand for node in claimed for operand in node.input_value_ids if operand not in inner]
        operations.append(Operation(operation.output_value_id, read))
    inputs = [value.value_id for value in program.dependencies.required_inputs]
    kept = [*inputs, *program.selected_outputs]
    held = sum([sizes[value_id] for value_id in inputs])
    return sizes, peak_live_bytes(operations, sizes, inputs=inputs, kept=kept) - held
