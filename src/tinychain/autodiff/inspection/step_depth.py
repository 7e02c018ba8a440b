"""The multiplicative depth of one whole training step: from its inputs to the new parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tinychain.autodiff.errors import quote
from tinychain.autodiff.expansion.depth_walk import PLAIN, Chain, DepthWalk, deepest_of
from tinychain.autodiff.expansion.target import Target
from tinychain.autodiff.expansion.transposing import dual_id, dual_source
from tinychain.autodiff.graph import Record
from tinychain.autodiff.training import CompiledTrainingStep, ParameterCompilation


@dataclass(frozen=True)
class StepDepth(Record):
    """The levels of the loss, and by parameter those of its gradient, of its new value and of its new states.
    Twins are among the parameters, by their own names.

    `levels` is the most of all new values and states, and `path` the nodes that cost them, each as (program, node id),
    first to last. A depth that is not known is None, and `unknown` says why.
    """

    levels: int | None
    loss: int | None
    gradients: Mapping[str, int | None]
    parameters: Mapping[str, int | None]
    states: Mapping[str, Mapping[str, int | None]]
    path: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]


def step_depth(
    step: CompiledTrainingStep,
    target: Target | None = None,
    *,
    secret: Collection[str] | None = None,
    lowered: bool = True,
) -> StepDepth:
    """The depth of one step from fresh inputs, forward, derivative and updates in a row.

    `secret` names inputs of the loss and of the optimizer; None stands for all inputs of the loss. Seeds are plain, and
    states are secret where the parameter or its gradient is. `lowered` takes the programs after the expansion passes,
    otherwise as they were before. Levels are those of `multiplicative_depth`, and what it raises is raised here;
    TypeError or ValueError for bad arguments. Linear in the programs, each update as often as it is used.
    """
    if not isinstance(step, CompiledTrainingStep):
        raise TypeError(f"step must be a CompiledTrainingStep, got {quote(step)}")
    if target is not None and not isinstance(target, Target):
        raise TypeError(f"target must be a Target or None, got {quote(target)}")
    if not isinstance(lowered, bool):
        raise TypeError(f"lowered must be a bool, got {quote(lowered)}")
    names = _check_names(secret, step)
    walk = DepthWalk(target)
    values = {value_id: Chain(0) for name, value_id in step.input_value_ids.items() if name in names}
    forward = step.lowered_forward_graph if lowered else step.source_forward_graph
    run, pairs = step.twins or step, step.with_twins()
    derivative = run.lowered_derivative_program if lowered else run.source_derivative_program
    gradients = {record.name: record.gradient_value_id for pair in pairs for record in pair}
    walk.run(forward.nodes, [step.loss_value_id, *step.forward_capture_value_ids], values, "forward")
    walk.run(derivative.nodes, gradients.values(), values, "derivative")

    given = {name: Chain(0) for name in step.provenance.optimizer_input_names if name in names}
    if step.gradient_inputs is not None:
        inputs = step.gradient_inputs
        local: dict[str, Chain] = {}
        for record, *twins in pairs:
            value_id = inputs.input_value_ids[record.name]
            ids = {value_id: record.gradient_value_id, **{dual_id(value_id): twin.gradient_value_id for twin in twins}}
            local |= {id_: values[gradient] for id_, gradient in ids.items() if gradient in values}
        graph = inputs.lowered_graph if lowered else inputs.source_graph
        walk.run(graph.nodes, inputs.output_value_ids.values(), local, "gradient inputs")
        given |= {name: local[value_id] for name, value_id in inputs.output_value_ids.items() if value_id in local}

    parameters, states = {}, {}
    for record, both in [(record, pair) for pair in pairs for record in pair]:
        local = {value_id: chain for item in both for value_id, chain in _update_inputs(item, values, given).items()}
        graph = record.lowered_update_graph if lowered else record.source_update_graph
        outputs = {"": record.updated_parameter_value_id, **record.updated_state_value_ids}
        walk.run(graph.nodes, outputs.values(), local, f"update of {record.name}")
        chains = {name: local.get(value_id, PLAIN) for name, value_id in outputs.items()}
        parameters[record.name] = chains.pop("")
        states[record.name] = chains
    deepest = deepest_of([*parameters.values(), *[chain for chains in states.values() for chain in chains.values()]])
    return StepDepth(
        levels=deepest.levels,
        loss=values.get(step.loss_value_id, PLAIN).levels,
        gradients={name: values.get(value_id, PLAIN).levels for name, value_id in gradients.items()},
        parameters=_levels(parameters),
        states={name: _levels(chains) for name, chains in states.items()},
        path=tuple(deepest.path()),
        unknown=tuple(walk.unknown),
    )


def _update_inputs(
    record: ParameterCompilation, values: Mapping[str, Chain], given: Mapping[str, Chain]
) -> dict[str, Chain]:
    """What an update is given that is secret, by value id."""
    parameter = values.get(record.value_id, values.get(dual_source(record.value_id) or ""))
    sources = {"parameter": parameter, "gradient": values.get(record.gradient_value_id), **given}
    if sources["parameter"] is not None or sources["gradient"] is not None:
        sources |= dict.fromkeys(record.updated_state_value_ids, Chain(0))
    found = {value_id: sources.get(name) for name, value_id in record.update_input_value_ids.items()}
    return {value_id: chain for value_id, chain in found.items() if chain is not None}


def _levels(chains: Mapping[str, Chain]) -> dict[str, int | None]:
    return {name: chain.levels for name, chain in chains.items()}


def _check_names(secret: object, step: CompiledTrainingStep) -> Collection[str]:
    if secret is None:
        return step.input_value_ids.keys()
    if isinstance(secret, (str, bytes)) or not isinstance(secret, Collection):
        raise TypeError(f"secret must be a collection of input names, got {quote(secret)}")
    known = (*step.input_value_ids, *step.provenance.optimizer_input_names)
    for name in secret:
        if name not in known:
            raise ValueError(f"secret has {quote(name)}, which is no input of the step; its inputs are {list(known)}")
    return secret
