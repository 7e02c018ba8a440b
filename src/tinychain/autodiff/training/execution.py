"""A compiled step on a backend: its programs, one after the other, on whatever the backend calls an array.

Nothing outlives its last reader: captures go when the derivative has run, a gradient when its last update has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion.transposing import dual_source
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.training.step import CompiledTrainingStep

#: Makes a function of a lowered program: from the arrays that it requires to its outputs, both by value id.
Backend: TypeAlias = Callable[[LoweredProgram], Callable[[dict[str, Any]], Mapping[str, Any]]]


def state_name(parameter: str, state: str) -> str:
    """How a state is called among the parameters, whose names have no dot."""
    return f"{parameter}.{state}"


class StepExecution:
    """The programs of a step on a backend, which is called once for each of them.

    Raises handler_contract_violation when the backend does not return what a program selects.
    """

    def __init__(self, step: CompiledTrainingStep, backend: Backend) -> None:
        self._step = step
        self._functions: dict[int, tuple[Callable[[dict[str, Any]], Mapping[str, Any]], list[str]]] = {}
        shared = () if step.gradient_inputs is None else (step.gradient_inputs.program,)
        for program in (step.forward, step.derivative, *shared, *[record.update for record in step.parameters]):
            if id(program) not in self._functions:
                required = [value.value_id for value in program.dependencies.required_inputs]
                self._functions[id(program)] = (backend(program), required)
        self._last_reader = {record.gradient_value_id: record.name for record in step.parameters}

    def forward(self, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The loss at the inputs, by name and parameters among them; and the values that the derivative may read."""
        values = {self._step.input_value_ids[name]: array for name, array in inputs.items()}
        values |= self._run(self._step.forward, values)
        return values[self._step.loss_value_id], values

    def train(
        self, inputs: Mapping[str, Any], trained: Mapping[str, Any], optimizer_inputs: Mapping[str, Any], seed: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The loss before the update, and what becomes of `trained`: parameters by name, states by `state_name`."""
        step = self._step
        loss, values = self.forward({**inputs, **{record.name: trained[record.name] for record in step.parameters}})
        gradients = self._run(step.derivative, {**values, step.seed_value_ids[0]: seed})
        del values
        given = {**optimizer_inputs, **self._from_gradients(gradients)}
        updated = {}
        for record in step.parameters:
            name, gradient_id = record.name, record.gradient_value_id
            arrays = {"parameter": trained[name], "gradient": gradients[gradient_id], **given}
            arrays |= {state: trained[state_name(name, state)] for state in record.updated_state_value_ids}
            if self._last_reader[gradient_id] == name:
                del gradients[gradient_id]
            ids = record.update_input_value_ids
            results = self._run(record.update, {ids[key]: array for key, array in arrays.items()})
            updated[name] = results[record.updated_parameter_value_id]
            updated |= {state_name(name, key): results[i] for key, i in record.updated_state_value_ids.items()}
        return loss, updated

    def _from_gradients(self, gradients: Mapping[str, Any]) -> dict[str, Any]:
        shared = self._step.gradient_inputs
        if shared is None:
            return {}
        given = {
            shared.input_value_ids[record.name]: gradients[record.gradient_value_id] for record in self._step.parameters
        }
        results = self._run(shared.program, given)
        return {name: results[value_id] for name, value_id in shared.output_value_ids.items()}

    def _run(self, program: LoweredProgram, values: Mapping[str, Any]) -> dict[str, Any]:
        function, required = self._functions[id(program)]
        results = function({value_id: _bound(values, value_id) for value_id in required})
        try:
            return {value_id: results[value_id] for value_id in program.selected_outputs}
        except (KeyError, TypeError, IndexError) as error:
            message = f"the backend must return arrays by value id for {list(program.selected_outputs)}"
            raise AutodiffError("handler_contract_violation", message) from error


def _bound(values: Mapping[str, Any], value_id: str) -> Any:
    """A value; for a dual that is not there the transpose of its source."""
    source = dual_source(value_id)
    return values[value_id] if value_id in values or source is None else values[source].mT
