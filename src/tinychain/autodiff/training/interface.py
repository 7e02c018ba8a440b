"""What a compiled step takes from outside, by name and type, and by what two steps are known to be the same."""

from __future__ import annotations

import hashlib
import json

from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.training.step import CompiledTrainingStep
from tinychain.autodiff.types import TensorType, parse_type


def input_types(step: CompiledTrainingStep) -> dict[str, TensorType]:
    """The types of the inputs that the programs read, the parameters among them.

    Raises invalid_training_declaration for one that an expansion pass has declared, as it has no name.
    """
    names = {value_id: name for name, value_id in step.input_value_ids.items()}
    types = {}
    for value in (*step.forward.dependencies.declared_inputs, *step.derivative.dependencies.declared_inputs):
        if value.value_id not in names:
            raise AutodiffError(
                "invalid_training_declaration",
                f"a program reads the input {quote(value.value_id)}, which an expansion pass added without a name",
            )
        types[names[value.value_id]] = _type(value)
    return types


def optimizer_input_types(step: CompiledTrainingStep) -> dict[str, TensorType]:
    """The types of those optimizer inputs that an update reads and that no program computes from the gradients."""
    computed = () if step.gradient_inputs is None else step.gradient_inputs.output_value_ids
    types = {}
    for record in step.parameters:
        required = {value.value_id: value for value in record.update.dependencies.required_inputs}
        for name in step.provenance.optimizer_input_names:
            value = required.get(record.update_input_value_ids[name])
            if value is not None and name not in computed:
                types[name] = _type(value)
    return types


def loss_type(step: CompiledTrainingStep) -> TensorType:
    """The type of the loss, which is that of the seed."""
    (loss,) = [value for value in step.forward.dependencies.dependencies if value.value_id == step.loss_value_id]
    return _type(loss)


def step_digest(step: CompiledTrainingStep) -> str:
    """The hex SHA-256 of the source graphs and the provenance: equal for equal declarations, in every process."""
    updates = {id(record.source_update_graph): record.source_update_graph for record in step.parameters}
    shared = () if step.gradient_inputs is None else (step.gradient_inputs.source_graph,)
    hashes = [content_hash(graph) for graph in (step.source_forward_graph, *updates.values(), *shared)]
    text = json.dumps([hashes, step.provenance.to_dict()], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _type(value: ValueDependency) -> TensorType:
    return parse_type({"dtype": value.dtype, "shape": value.shape}, label=f"value {quote(value.value_id)}")
