"""A compiled step on a backend: its programs, one after the other, on whatever the backend calls an array.

Nothing outlives its last reader: captures go when the derivative has run, a gradient when its last update has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion.transposing import dual_id, dual_source, transposed_name
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.training.records import CompiledTrainingStep, ParameterCompilation

#: Makes a function of a lowered program: from the arrays that it requires to its outputs, both by value id.
Backend: TypeAlias = Callable[[LoweredProgram], Callable[[dict[str, Any]], Mapping[str, Any]]]


def state_name(parameter: str, state: str) -> str:
    """How a state is called among the parameters, whose names have no dot."""
    return f"{parameter}.{state}"


def trained_names(record: ParameterCompilation) -> list[str]:
    """What becomes something else in a step: the parameter, by its name, and its states by `state_name`."""
    return [record.name, *[state_name(record.name, state) for state in record.updated_state_value_ids]]


class StepExecution:
    """The programs of a step on a backend, which is called once for each of them.

    What a program reads transposed may be given under its `transposed_name`, as the twins of a step always are, or it
    is transposed here. Raises handler_contract_violation when the backend does not return what a program selects.
    """

    def __init__(self, step: CompiledTrainingStep, backend: Backend) -> None:
        self._step = step
        self._derivative = (step.twins or step).derivative
        self._updates = step.with_twins()
        records = [record for pair in self._updates for record in pair]
        self._value_ids = _with_duals(step.input_value_ids)
        self._given_ids = {record.name: _with_duals(record.update_input_value_ids) for record in records}
        self._functions: dict[int, tuple[Callable[[dict[str, Any]], Mapping[str, Any]], list[str]]] = {}
        shared = () if step.gradient_inputs is None else (step.gradient_inputs.program,)
        for program in (step.forward, self._derivative, *shared, *[record.update for record in records]):
            if id(program) not in self._functions:
                required = [value.value_id for value in program.dependencies.required_inputs]
                self._functions[id(program)] = (backend(program), required)
        self._last_reader = {record.gradient_value_id: pair for pair in self._updates for record in pair}

    def forward(self, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The loss at the inputs, by name and parameters among them; and the values that the derivative may read."""
        values = {self._value_ids[name]: array for name, array in inputs.items()}
        values |= self._run(self._step.forward, values)
        return values[self._step.loss_value_id], values

    def train(
        self, inputs: Mapping[str, Any], trained: Mapping[str, Any], optimizer_inputs: Mapping[str, Any], seed: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The loss before the update, and what becomes of `trained`: parameters by name, states by `state_name`.

        The twins of a step are among them, like parameters.
        """
        step = self._step
        parameters = {record.name: trained[record.name] for pair in self._updates for record in pair}
        loss, values = self.forward({**inputs, **parameters})
        gradients = self._run(self._derivative, {**values, step.seed_value_ids[0]: seed})
        del values
        given = {**optimizer_inputs, **self._from_gradients(gradients)}
        updated = {}
        for pair in self._updates:
            values = {}
            for record in pair:
                ids = record.update_input_value_ids
                values |= {ids["parameter"]: trained[record.name], ids["gradient"]: gradients[record.gradient_value_id]}
                values |= {ids[key]: trained[state_name(record.name, key)] for key in record.updated_state_value_ids}
                values |= {self._given_ids[record.name][key]: array for key, array in given.items()}
            for record in pair:
                if self._last_reader[record.gradient_value_id] is pair:
                    del gradients[record.gradient_value_id]
            bound = {record.name: self._required(record.update, values) for record in pair}
            del values
            for record in pair:
                name, results = record.name, self._call(record.update, bound.pop(record.name))
                updated[name] = results[record.updated_parameter_value_id]
                updated |= {state_name(name, key): results[i] for key, i in record.updated_state_value_ids.items()}
        return loss, updated

    def _from_gradients(self, gradients: Mapping[str, Any]) -> dict[str, Any]:
        shared = self._step.gradient_inputs
        if shared is None:
            return {}
        given = {}
        for record, *twins in self._updates:
            value_id = shared.input_value_ids[record.name]
            given[value_id] = gradients[record.gradient_value_id]
            given |= {dual_id(value_id): gradients[twin.gradient_value_id] for twin in twins}
        results = self._run(shared.program, given)
        return {name: results[value_id] for name, value_id in shared.output_value_ids.items()}

    def _run(self, program: LoweredProgram, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._call(program, self._required(program, values))

    def _required(self, program: LoweredProgram, values: Mapping[str, Any]) -> dict[str, Any]:
        return {value_id: _bound(values, value_id) for value_id in self._functions[id(program)][1]}

    def _call(self, program: LoweredProgram, bound: dict[str, Any]) -> dict[str, Any]:
        results = self._functions[id(program)][0](bound)
        try:
            return {value_id: results[value_id] for value_id in program.selected_outputs}
        except (KeyError, TypeError, IndexError) as error:
            message = f"the backend must return arrays by value id for {list(program.selected_outputs)}"
            raise AutodiffError("handler_contract_violation", message) from error


def _with_duals(value_ids: Mapping[str, str]) -> dict[str, str]:
    """Value ids by name, and those of the transposes by what they are called."""
    return {**value_ids, **{transposed_name(name): dual_id(value_id) for name, value_id in value_ids.items()}}


def _bound(values: Mapping[str, Any], value_id: str) -> Any:
    """A value; for a dual that is not there the transpose of its source."""
    source = dual_source(value_id)
    return values[value_id] if value_id in values or source is None else values[source].mT
