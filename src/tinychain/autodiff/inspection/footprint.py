"""The bytes that the arrays of one step take at most where a runner runs it, one lowered program after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.inspection.liveness import Operation
from tinychain.autodiff.inspection.parts import shared_updates
from tinychain.autodiff.inspection.schedule import Program, StepSchedule
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.types import ITEM_BYTES, resolve_shape


def step_bytes(step: CompiledTrainingStep, symbols: Mapping[str, int]) -> int | None:
    """The most bytes of inputs, parameters, state, captures, gradients and values alive; None for an unknown dim.

    The peak of `summarize` is that of the whole step as one program, in which every value is freed after its last
    reader. Here each program is a call of its own: what it reads lives to its end, what the caller binds to the end of
    the step, and of a fused operation only the result is a value. What a backend takes within one operation comes on
    top; what its arrays share, such as a view, is counted twice.
    """
    shared, run = step.gradient_inputs, step.twins or step
    programs = [
        (step.forward, step.lowered_forward_graph.nodes),
        (run.derivative, run.lowered_derivative_program.nodes),
        *([] if shared is None else [(shared.program, shared.lowered_graph.nodes)]),
        *[(sharing[0].update, sharing[0].lowered_update_graph.nodes) for sharing in shared_updates(step)],
    ]
    try:
        planned = [_planned(program, nodes, symbols) for program, nodes in programs]
    except AutodiffError:
        return None
    return StepSchedule(step, planned, by_program=True).peak_live_bytes()


def _planned(program: LoweredProgram, nodes: Sequence[TensorNodeRecord], symbols: Mapping[str, int]) -> Program:
    """The operations of a lowered program, and the bytes of each value."""
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
    return Program(operations, sizes)
