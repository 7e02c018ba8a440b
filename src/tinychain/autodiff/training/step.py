"""A whole training step in one call: forward, derivative and updates, expanded as asked and lowered.

This file composes tracing, differentiation, expansion and lowering; it dispatches nothing and evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any

from tinychain.autodiff.dependencies import DependencyAnalysis, ValueDependency, analyze_program
from tinychain.autodiff.errors import AutodiffError, qualified_name, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.lowering import (
    FusionHook,
    LoweredProgram,
    OperationHandlerRegistry,
    lower_graph,
)
from tinychain.autodiff.lowering.records import BindInput
from tinychain.autodiff.lowering.walk import lower_analysed
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder
from tinychain.autodiff.training.declaration import Declaration, Loss, declare
from tinychain.autodiff.training.gradient_inputs import compile_gradient_inputs
from tinychain.autodiff.training.optimizers import Optimizer
from tinychain.autodiff.training.passes import ExpansionPass, Obligations, PassSequence, is_unchanged, run_passes
from tinychain.autodiff.training.records import CompiledTrainingStep, ParameterCompilation, TrainingStepProvenance
from tinychain.autodiff.training.twins import compile_twins
from tinychain.autodiff.training.update import (
    UpdateRule,
    rule_name,
    trace_parameter_update,
)
from tinychain.autodiff.types import TensorType, typespec


def compile_training_step(
    loss: Loss,
    *,
    inputs: Mapping[str, Mapping[str, Any]],
    parameters: Sequence[str],
    optimizer: UpdateRule,
    optimizer_inputs: Mapping[str, Mapping[str, Any]] | None = None,
    handlers: OperationHandlerRegistry,
    fusion: FusionHook | None = None,
    bind_input: BindInput | None = None,
    seed_label: str = "seed",
    forward_expansions: Sequence[ExpansionPass] = (),
    derivative_expansions: Sequence[ExpansionPass] = (),
    update_expansions: Sequence[ExpansionPass] = (),
    twins: bool = False,
) -> CompiledTrainingStep:
    """Compiles one step of training `parameters`, which are some of the named `inputs`, to lower `loss`.

    `inputs` and `optimizer_inputs` map names to typespecs; `loss` is called once, with one Tensor per input by keyword.
    Expansion passes are plain callables from artifact to artifact and run in order; nothing is expanded unless asked.
    With `twins`, the step also computes the transposes of those new parameters that its programs read transposed.

    Raises AutodiffError: invalid_training_declaration, missing_*_metadata, invalid_update_signature and
    invalid_loss_signature before the loss runs; invalid_loss_output; expansion_contract_violation for a pass that
    breaks its contract; not_legalizable for a twin that cannot be computed; and what tracing, `generate`, the analysis
    and lowering raise. What the loss raises passes unchanged. TypeError for `twins` that is no bool.
    """
    if not isinstance(twins, bool):
        raise TypeError(f"twins must be a bool, got {quote(twins)}")
    declaration = declare(loss, inputs, parameters, optimizer, optimizer_inputs, seed_label)
    passes = {
        "forward": PassSequence.declared("forward", forward_expansions),
        "derivative": PassSequence.declared("derivative", derivative_expansions),
        "update": PassSequence.declared("update", update_expansions),
    }
    graph, ids, loss_id = _trace_loss(declaration)
    program, seed = _differentiate(graph, loss_id, [ids[name] for name in declaration.parameters])

    analysis, order = analyze_program(program, graph, [seed], None)
    captures = tuple([value.value_id for value in analysis.forward_captures if value.value_id != loss_id])

    declared = [value_id for value_id, _ in graph.inputs]
    lowered_graph = run_passes(graph, passes["forward"], Obligations(declared, (loss_id, *captures)))
    derivative_passes = passes["derivative"].for_forward_graph(lowered_graph, graph)
    lowered_program = run_passes(program, derivative_passes, Obligations(seed=seed))
    if not (is_unchanged(lowered_graph, graph) and is_unchanged(lowered_program, program)):
        needs = _needs(analysis)
        del analysis, order  # they are larger than the program, and nobody needs them beside the new ones
        analysis, order = analyze_program(lowered_program, lowered_graph, [seed], None)
        _check_same_needs(needs, _needs(analysis), passes["forward"], passes["derivative"])

    lower = partial(lower_graph, handlers=handlers, fusion=fusion, bind_input=bind_input)
    forward = lower(lowered_graph, outputs=[loss_id, *captures])
    # The program's own gradients are those of the parameters, in their order, so this analysis is the one to lower by.
    lower_again = partial(lower_analysed, handlers=handlers, fusion=fusion, bind_input=bind_input)
    derivative = lower_again(analysis, order)
    gradient_inputs = compile_gradient_inputs(declaration, passes["update"], lower)
    first: dict[TensorType, ParameterCompilation] = {}  # of each type, whose update the others share
    records = []
    for name in declaration.parameters:
        type_, value_id, gradient = declaration.inputs[name], ids[name], program.gradients[ids[name]]
        if type_ in first:
            record = first[type_].shared_by(name, value_id, gradient)
        else:
            record = first[type_] = _compile_update(declaration, name, value_id, gradient, passes["update"], lower)
        records.append(record)

    step = CompiledTrainingStep(
        source_forward_graph=graph,
        source_derivative_program=program,
        lowered_forward_graph=lowered_graph,
        lowered_derivative_program=lowered_program,
        forward=forward,
        derivative=derivative,
        input_value_ids=MappingProxyType(ids),
        loss_value_id=loss_id,
        forward_capture_value_ids=captures,
        seed_value_ids=(seed,),
        parameters=tuple(records),
        provenance=_provenance(declaration, program, seed, passes),
        gradient_inputs=gradient_inputs,
    )
    return replace(step, twins=compile_twins(step, derivative_passes, passes["update"], lower_again)) if twins else step


def _trace_loss(declaration: Declaration) -> tuple[TensorGraph, dict[str, str], str]:
    """The typed graph of the loss, the value id of every declared input, and that of the loss."""
    with TensorGraphBuilder() as builder:
        tensors = {
            name: builder.input(name, dtype=type_.dtype, shape=type_.shape)
            for name, type_ in declaration.inputs.items()
        }
        result = declaration.loss(**tensors)
    loss = qualified_name(declaration.loss)
    if not isinstance(result, Tensor):
        raise AutodiffError(
            "invalid_loss_output",
            f"{loss} must return a Tensor traced from its arguments, got a {type(result).__name__}: {quote(result)}",
        )
    try:
        loss_id = builder.value_id(result)
    except ValueError as error:
        raise AutodiffError("invalid_loss_output", f"{loss} returned a Tensor of another trace: {error}") from error
    ids = {name: builder.value_id(tensor) for name, tensor in tensors.items()}
    return builder.build(outputs=[result]), ids, loss_id


def _differentiate(graph: TensorGraph, loss_id: str, wrt: list[str]) -> tuple[DerivativeProgram, str]:
    """The derivative program and the id of its seed, which no value of the graph has."""
    used = {*wrt, *graph.outputs, *[node.output_value_id for node in graph.nodes]}
    for node in graph.nodes:
        used.update(node.input_value_ids)
    seed = next(candidate for candidate in map("tsv{}".format, count()) if candidate not in used)
    program = generate(graph, loss_id, wrt, seed)
    for node in program.nodes:
        if seed in (node.node_id, node.output_value_id):
            raise AutodiffError("ambiguous_producer", f"the derivative program produces the seed {quote(seed)} itself")
    return program, seed


def _needs(analysis: DependencyAnalysis) -> set[ValueDependency]:
    """What a derivative program captures and is seeded with."""
    return {*analysis.forward_captures, *analysis.seed_inputs}


def _check_same_needs(before: set[ValueDependency], after: set[ValueDependency], *sequences: PassSequence) -> None:
    """Expansion must not change what a derivative program needs from outside, unless it computes some of it again."""
    may_shrink = any(sequence.recomputes_captures for sequence in sequences)
    if not (after <= before if may_shrink else after == before):
        differing = sorted({value.value_id for value in before ^ after})
        applied = [sequence.where(position) for sequence in sequences for position in range(len(sequence.passes))]
        raise AutodiffError(
            "expansion_contract_violation",
            f"captures and seeds differ after expansion in {', '.join(map(quote, differing))}; applied were:"
            f" {'; '.join(applied)}",
        )


def _compile_update(
    declaration: Declaration,
    name: str,
    value_id: str,
    gradient: str,
    passes: PassSequence,
    lower: Callable[..., LoweredProgram],
) -> ParameterCompilation:
    type_ = declaration.inputs[name]
    traced = trace_parameter_update(
        declaration.optimizer,
        parameter=typespec(type_),
        gradient=typespec(type_),
        optimizer_inputs={key: typespec(input_) for key, input_ in declaration.optimizer_inputs.items()},
    )
    outputs = list(dict.fromkeys([traced.updated_parameter_id, *traced.updated_state_ids.values()]))
    declared = [value_id for value_id, _ in traced.graph.inputs]
    lowered_graph = run_passes(traced.graph, passes, Obligations(declared, outputs))
    return ParameterCompilation(
        name=name,
        value_id=value_id,
        gradient_value_id=gradient,
        source_update_graph=traced.graph,
        lowered_update_graph=lowered_graph,
        update=lower(lowered_graph, outputs=outputs),
        update_input_value_ids=MappingProxyType(traced.input_value_ids),
        updated_parameter_value_id=traced.updated_parameter_id,
        updated_state_value_ids=MappingProxyType(traced.updated_state_ids),
    )


def _provenance(
    declaration: Declaration, program: DerivativeProgram, seed: str, passes: Mapping[str, PassSequence]
) -> TrainingStepProvenance:
    optimizer = declaration.optimizer
    required = optimizer.required_optimizer_inputs if isinstance(optimizer, Optimizer) else None
    # A set has no order that another process would repeat.
    ordered = declaration.optimizer_inputs if required is None or isinstance(required, (set, frozenset)) else required
    return TrainingStepProvenance(
        source_graph_id=program.metadata.source_graph_id,
        transform_version=program.metadata.transform_version,
        tensor_op_contract_version=program.metadata.tensor_op_contract_version,
        wrt_signature=program.metadata.wrt_signature,
        parameter_names=declaration.parameters,
        input_names=tuple(declaration.inputs),
        seed_value_ids=(seed,),
        seed_label=declaration.seed_label,
        optimizer_label=rule_name(optimizer),
        optimizer_input_names=tuple(ordered),
        forward_expansions=passes["forward"].labels,
        derivative_expansions=passes["derivative"].labels,
        update_expansions=passes["update"].labels,
    )
