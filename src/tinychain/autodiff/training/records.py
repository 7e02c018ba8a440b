"""What a compiled training step consists of, as records.

They stand apart from the compile, because what takes part in it, such as the twins, is made of them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.transposing import transposed_name
from tinychain.autodiff.graph import DerivativeProgram, Record, TensorGraph
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.training.gradient_inputs import GradientInputs


@dataclass(frozen=True)
class TrainingStepProvenance(Record):
    """Where a compiled step comes from: versions, names in order, and the labels of what was applied."""

    source_graph_id: str
    transform_version: str
    tensor_op_contract_version: str
    wrt_signature: tuple[str, ...]
    parameter_names: tuple[str, ...]
    input_names: tuple[str, ...]
    seed_value_ids: tuple[str, ...]
    seed_label: str
    optimizer_label: str
    optimizer_input_names: tuple[str, ...]
    forward_expansions: tuple[str, ...]
    derivative_expansions: tuple[str, ...]
    update_expansions: tuple[str, ...]


@dataclass(frozen=True)
class ParameterCompilation(Record):
    """One parameter and its update. Parameters of one type share one traced, expanded and lowered update.

    `update_input_value_ids` maps parameter, gradient, optimizer inputs and states to value ids of the update graph;
    `updated_state_value_ids` maps each state to its new value.
    """

    name: str
    value_id: str
    gradient_value_id: str
    source_update_graph: TensorGraph
    lowered_update_graph: TensorGraph
    update: LoweredProgram
    update_input_value_ids: Mapping[str, str]
    updated_parameter_value_id: str
    updated_state_value_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def shared_by(self, name: str, value_id: str, gradient_value_id: str) -> ParameterCompilation:
        """The record of another parameter of the same type, with this one's update."""
        return replace(self, name=name, value_id=value_id, gradient_value_id=gradient_value_id)


@dataclass(frozen=True)
class Twins(Record):
    """What keeps the transposes of parameters up to date where nothing outside the programs can transpose them.

    `derivative` is run instead of the step's: it gives the same gradients and behind them those of `parameters`,
    transposed. Those are the twins, each named by `transposed_name`; its update takes what that of its parameter takes,
    and the transposes of the parameter, the gradient and the states under the ids in `update_input_value_ids`.
    """

    source_derivative_program: DerivativeProgram
    lowered_derivative_program: DerivativeProgram
    derivative: LoweredProgram
    parameters: tuple[ParameterCompilation, ...]


@dataclass(frozen=True)
class CompiledTrainingStep(Record):
    """Everything that one training step needs. The lowered artifacts are the sources after the expansion passes.

    Run `forward` for the loss and the captures, `derivative` with the captures and the seeds for the gradients in
    parameter order, `gradient_inputs` if there are any, then each parameter's `update`. With `twins`, run their
    `derivative` instead, and their updates too.
    """

    source_forward_graph: TensorGraph
    source_derivative_program: DerivativeProgram
    lowered_forward_graph: TensorGraph
    lowered_derivative_program: DerivativeProgram
    forward: LoweredProgram
    derivative: LoweredProgram
    input_value_ids: Mapping[str, str]
    loss_value_id: str
    forward_capture_value_ids: tuple[str, ...]
    seed_value_ids: tuple[str, ...]
    parameters: tuple[ParameterCompilation, ...]
    provenance: TrainingStepProvenance
    gradient_inputs: GradientInputs | None = None
    twins: Twins | None = None

    def __repr__(self) -> str:
        """Short: the fields are whole programs."""
        parameters, inputs = [", ".join(of) for of in (self.provenance.parameter_names, self.provenance.input_names)]
        return f"<CompiledTrainingStep of {parameters} by {self.provenance.optimizer_label}, inputs {inputs}>"

    def parameter(self, name: str) -> ParameterCompilation:
        """The record of a parameter by name; invalid_training_declaration for another name."""
        for record in self.parameters:
            if record.name == name:
                return record
        raise AutodiffError(
            "invalid_training_declaration",
            f"no parameter {quote(name)}; the parameters are {[record.name for record in self.parameters]}",
        )

    def with_twins(self) -> list[tuple[ParameterCompilation, ...]]:
        """The record of each parameter, in order, and behind it that of its twin if it has one."""
        twins = {} if self.twins is None else {twin.name: twin for twin in self.twins.parameters}
        found = [(record, twins.get(transposed_name(record.name))) for record in self.parameters]
        return [(record,) if twin is None else (record, twin) for record, twin in found]
