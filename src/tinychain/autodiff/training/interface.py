"""What a compiled step takes from outside, by name and type, and by what two steps are known to be the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import dual_source
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.training.records import CompiledTrainingStep
from tinychain.autodiff.types import TensorType, parse_type, swapped


def input_types(step: CompiledTrainingStep) -> dict[str, TensorType]:
    """The types of the inputs that the programs read, as they are or transposed, the parameters among them.

    Raises invalid_training_declaration for one that an expansion pass has declared, as it has no name.
    """
    names = {value_id: name for name, value_id in step.input_value_ids.items()}
    types = {}
    for value in _declared_inputs(step):
        source = _source(value, names)
        types[names[source]] = _type_of(value, source)
    return types


def _source(value: ValueDependency, named: Collection[str]) -> str:
    """Which of the named inputs the value is, or is the transpose of."""
    for value_id in (value.value_id, dual_source(value.value_id)):
        if value_id is not None and value_id in named:
            return value_id
    raise AutodiffError(
        "invalid_training_declaration",
        f"a program reads the input {quote(value.value_id)}, which an expansion pass added without a name",
    )


def _declared_inputs(step: CompiledTrainingStep) -> list[ValueDependency]:
    derivative = (step.twins or step).derivative
    return [*step.forward.dependencies.declared_inputs, *derivative.dependencies.declared_inputs]


def optimizer_input_types(step: CompiledTrainingStep) -> dict[str, TensorType]:
    """The types of those optimizer inputs that an update reads and that no program computes from the gradients.

    Raises invalid_training_declaration for an input that an expansion pass has added to one of these programs.
    """
    shared = step.gradient_inputs
    computed = () if shared is None else shared.output_value_ids
    if shared is not None:
        gradients = set(shared.input_value_ids.values())
        for value in shared.program.dependencies.required_inputs:
            _source(value, gradients)
    types = {}
    for record in [record for pair in step.with_twins() for record in pair]:
        ids = record.update_input_value_ids
        named = {value_id for id_ in ids.values() for value_id in (id_, dual_source(id_)) if value_id is not None}
        required = {_source(value, named): value for value in record.update.dependencies.required_inputs}
        for name in step.provenance.optimizer_input_names:
            read = required.get(ids[name])
            if read is not None and name not in computed:
                types[name] = _type_of(read, ids[name])
    return types


def loss_type(step: CompiledTrainingStep) -> TensorType:
    """The type of the loss, which is that of the seed; invalid_training_declaration for one of several elements."""
    (loss,) = [value for value in step.forward.dependencies.dependencies if value.value_id == step.loss_value_id]
    type_ = _type(loss)
    if any(dim != 1 for dim in type_.shape):
        raise AutodiffError("invalid_training_declaration", f"the loss is {type_}; it must have a single element")
    return type_


def step_digest(step: CompiledTrainingStep) -> str:
    """The hex SHA-256 of the source graphs and the provenance: equal for equal declarations, in every process.

    It tells by name which parameters have twins.
    """
    updates = {id(record.source_update_graph): record.source_update_graph for record in step.parameters}
    shared = () if step.gradient_inputs is None else (step.gradient_inputs.source_graph,)
    hashes = [content_hash(graph) for graph in (step.source_forward_graph, *updates.values(), *shared)]
    twins = [] if step.twins is None else [twin.name for twin in step.twins.parameters]
    text = json.dumps([hashes, step.provenance.to_dict(), *twins], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _type(value: ValueDependency) -> TensorType:
    return parse_type({"dtype": value.dtype, "shape": value.shape}, label=f"value {quote(value.value_id)}")


def _type_of(value: ValueDependency, source: str) -> TensorType:
    """The type of the input that the value is, or is the transpose of."""
    type_ = _type(value)
    return type_ if value.value_id == source else type_._replace(shape=swapped(type_.shape))
