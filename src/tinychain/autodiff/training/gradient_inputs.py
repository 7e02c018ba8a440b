"""The optimizer inputs that follow from all gradients together, compiled as one program of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record, TensorGraph
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder
from tinychain.autodiff.training.declaration import Declaration
from tinychain.autodiff.training.optimizers import Optimizer
from tinychain.autodiff.training.passes import Obligations, PassSequence, run_passes
from tinychain.autodiff.training.update import check_result, gradient_input_names, rule_name


@dataclass(frozen=True)
class GradientInputs(Record):
    """A program from all gradients to those optimizer inputs, to run between the derivative and the updates.

    `input_value_ids` maps each parameter to the value id of its gradient here; the program requires those that the
    rule reads. `output_value_ids` maps each optimizer input to its value id.
    """

    source_graph: TensorGraph
    lowered_graph: TensorGraph
    program: LoweredProgram
    input_value_ids: Mapping[str, str]
    output_value_ids: Mapping[str, str]


def compile_gradient_inputs(
    declaration: Declaration, passes: PassSequence, lower: Callable[..., LoweredProgram]
) -> GradientInputs | None:
    """The program of the optimizer's `from_gradients`, traced once; None for a rule without `gradient_inputs`.

    Raises invalid_update_output for a result that is not one tensor of the declared type for each name, and what
    tracing, the passes and lowering raise.
    """
    optimizer = declaration.optimizer
    names = gradient_input_names(optimizer)
    if not isinstance(optimizer, Optimizer) or not names:
        return None
    with TensorGraphBuilder() as builder:
        gradients = {}
        for parameter in declaration.parameters:
            type_ = declaration.inputs[parameter]
            gradients[parameter] = builder.input(parameter, dtype=type_.dtype, shape=type_.shape)
        result = optimizer.from_gradients(MappingProxyType(gradients))
    label = f"{rule_name(optimizer)}.from_gradients"
    if not isinstance(result, Mapping) or set(result) != set(names):
        raise AutodiffError(
            "invalid_update_output", f"{label} must return a mapping with the names {list(names)}, got {quote(result)}"
        )
    for name in names:
        if not isinstance(result[name], Tensor):
            raise AutodiffError(
                "invalid_update_output", f"{label} must return a Tensor as {name!r}, got {quote(result[name])}"
            )
        check_result(
            builder, f"{name} of {label}", result[name], declaration.optimizer_inputs[name], of="the declared type"
        )
    graph = builder.build(outputs=[result[name] for name in names])
    declared = [value_id for value_id, _ in graph.inputs]
    lowered_graph = run_passes(graph, passes, Obligations(declared, graph.outputs))
    return GradientInputs(
        source_graph=graph,
        lowered_graph=lowered_graph,
        program=lower(lowered_graph, outputs=graph.outputs),
        input_value_ids=MappingProxyType({name: builder.value_id(tensor) for name, tensor in gradients.items()}),
        output_value_ids=MappingProxyType({name: builder.value_id(result[name]) for name in names}),
    )
