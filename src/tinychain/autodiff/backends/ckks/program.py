"""A training step as one program of tensor operations: forward, derivative and updates, as often as they are run.

Which values are secret is known here, and what is plain and known beforehand is computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.declared import Inputs, declare, refused
from tinychain.autodiff.backends.ckks.handlers import Term
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record, TensorOperator
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.operators import MatmulOperator, MulOperator, SubOperator, TransposeOperator
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.training.execution import StepExecution
from tinychain.autodiff.training.interface import loss_type
from tinychain.autodiff.types import TensorType, as_int, swapped


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """One tensor. An input has no operator but a name. `label` says in messages what it is.

    `known` are the elements of a plain value that is known when a step is planned, as float64 and read-only; it has no
    operands. `uniform` is the number that all of them are, if they are one number.
    """

    position: int
    operator: TensorOperator | None
    op_params: Mapping[str, Any]
    operands: tuple[int, ...]
    type: TensorType
    secret: bool
    known: NDArray[Any] | None
    uniform: float | None
    name: str
    label: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the type: lowering has made sure that its dims are sizes."""
        return self.type.shape  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Program(Record):
    """Tensors in order, each after its operands; the inputs that are not known, and the results, by name.

    Results are the parameters by name and the states by `state_name`, after the last step; and "loss" of the last step
    if it is wanted. All results are secret.
    """

    operations: Sequence[Operation]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


def link(
    step: CompiledTrainingStep,
    *,
    secret: Collection[str],
    known: Mapping[str, Any],
    steps: int = 1,
    loss: bool = False,
) -> Program:
    """The step, run `steps` times on the same data, as one program with what its results need.

    `secret` names inputs and parameters. A state is secret where its parameter is; and what is trained is secret from
    the start where it is after a step. `known` has numbers or arrays of inputs and optimizer inputs.

    Raises invalid_training_declaration for a loss of several elements; invalid_encryption_plan for a wrong declaration,
    a result that depends on no secret, and a known value that is not finite; handler_contract_violation for a step that
    was not compiled with this backend's handlers.
    """
    if not isinstance(step, CompiledTrainingStep):
        raise TypeError(f"expected a CompiledTrainingStep, got {quote(step)}")
    count = as_int(steps)
    if count is None or count < 1:
        raise refused(f"steps: expected an int of at least 1, got {quote(steps)}")
    if step.twins is not None:
        raise refused("the step has twins, but a packed tensor is transposed for nothing; compile it with twins=False")
    replay = _Replay(step)  # which judges the handlers before anything is asked of the types
    inputs = declare(step, secret, known)
    if loss and "loss" in inputs.trained:
        raise refused("a parameter is called 'loss', as the loss would be; rename it, or leave the loss out")
    while True:
        trained, last = replay.run(inputs, 1)
        leaked = [name for name, value in trained.items() if value.secret and name not in inputs.secret]
        if not leaked:
            break
        inputs = replace(inputs, secret=inputs.secret | {*leaked})
    if count > 1:
        trained, last = replay.run(inputs, count)
    outputs = {**trained, "loss": last} if loss else trained
    for name, value in outputs.items():
        if not value.secret:
            what = "the loss" if name not in trained else f"the new {inputs.label(name)}"
            raise refused(f"{what} depends on no secret, so nothing needs encryption; secret are {sorted(secret)}")
    return _pruned(replay.operations, outputs)


class _Value:
    """An operation while a step is replayed, with all that `StepExecution` asks of an array."""

    __slots__ = ("operation", "replay")

    def __init__(self, replay: _Replay, operation: Operation) -> None:
        self.replay = replay
        self.operation = operation

    @property
    def mT(self) -> _Value:
        operation = self.operation
        *batch, rows, columns = range(len(operation.shape))
        type_ = TensorType(operation.type.dtype, swapped(operation.type.shape))
        params = {"perm": [*batch, columns, rows]}
        label = f"the transpose of {operation.label}"
        return _Value(self.replay, self.replay.append(TransposeOperator(), params, [operation], type_, label))


class _Replay:
    """Runs a step on operations, which it appends to a list."""

    def __init__(self, step: CompiledTrainingStep) -> None:
        self._step = step
        self._places = {id(step.forward): "the forward program", id(step.derivative): "the derivative program"}
        if step.gradient_inputs is not None:
            self._places[id(step.gradient_inputs.program)] = "the program of the gradient inputs"
        for record in step.parameters:  # those of one type share an update
            before = self._places.get(id(record.update))
            name = quote(record.name)
            self._places[id(record.update)] = f"the update of {name}" if before is None else f"{before} and {name}"
        self._execution = StepExecution(step, self._function)
        self._number = 0
        self.operations: list[Operation] = []

    def run(self, inputs: Inputs, steps: int) -> tuple[dict[str, Operation], Operation]:
        """The trained operations by name after some steps from the start, and the loss of the last of them."""
        self.operations = []
        data, trained, optimizer = [
            {name: self._input(inputs, name, type_) for name, type_ in types.items()}
            for types in (inputs.data, inputs.trained, inputs.optimizer)
        ]
        type_ = loss_type(self._step)
        seed = self._known(None, type_, np.ones(type_.shape), label="the seed")  # type: ignore[arg-type]  # has sizes
        for self._number in range(1, steps + 1):
            loss, trained = self._execution.train(data, trained, optimizer, _Value(self, seed))
        return {name: trained[name].operation for name in inputs.trained}, loss.operation

    def append(
        self,
        operator: TensorOperator,
        op_params: Mapping[str, Any],
        operands: Sequence[Operation],
        type_: TensorType,
        label: str,
    ) -> Operation:
        """The result of an operation: known where that is possible."""
        if _is_zero(operator, op_params, operands):
            return self._known(operator, type_, np.zeros(type_.shape), label=label)  # type: ignore[arg-type]
        arrays = [operand.known for operand in operands if operand.known is not None]
        if len(arrays) == len(operands):
            with np.errstate(all="ignore"):  # what is not finite is refused below
                array = operator.reference(np, *arrays, **op_params)
            return self._known(operator, type_, array, label=label)
        secret = any(operand.secret for operand in operands)
        positions = tuple([operand.position for operand in operands])
        return self._add(operator, op_params, positions, type_, secret=secret, label=label)

    def _input(self, inputs: Inputs, name: str, type_: TensorType) -> _Value:
        label = inputs.label(name)
        if name in inputs.known:
            return _Value(self, self._known(None, type_, inputs.known[name], name, label))
        return _Value(self, self._add(None, {}, (), type_, secret=name in inputs.secret, name=name, label=label))

    def _known(
        self, operator: TensorOperator | None, type_: TensorType, array: NDArray[Any], name: str = "", label: str = ""
    ) -> Operation:
        known = np.array(array, np.float64)
        known.flags.writeable = False
        if not np.isfinite(known).all():
            raise refused(f"{label} is known when the step is planned, and not finite; no ciphertext can take it")
        return self._add(operator, {}, (), type_, secret=False, known=known, name=name, label=label)

    def _add(
        self,
        operator: TensorOperator | None,
        op_params: Mapping[str, Any],
        operands: tuple[int, ...],
        type_: TensorType,
        *,
        secret: bool,
        known: NDArray[Any] | None = None,
        name: str = "",
        label: str,
    ) -> Operation:
        position = len(self.operations)
        operation = Operation(
            position, operator, op_params, operands, type_, secret, known, _uniform(known), name, label
        )
        self.operations.append(operation)
        return operation

    def _function(self, program: LoweredProgram) -> Callable[[dict[str, Any]], Mapping[str, _Value]]:
        _check_terms(program)
        place = self._places[id(program)]

        def function(given: dict[str, Any]) -> Mapping[str, _Value]:
            found: dict[Term, Operation] = {
                program.values[value_id]: value.operation for value_id, value in given.items()
            }
            for lowered in program.operations:
                term: Term = lowered.value
                if term in found or term.operator is None:  # only inputs have none
                    continue  # the handler passed an operand on
                label = f"{term.operator.route_name} {quote(lowered.output_value_id)} of {place} in step {self._number}"
                operands = [found[operand] for operand in term.operands]
                found[term] = self.append(term.operator, term.op_params, operands, term.type, label)
            return {value_id: _Value(self, found[program.values[value_id]]) for value_id in program.selected_outputs}

        return function


def _check_terms(program: LoweredProgram) -> None:
    """Every value is a Term of its own on earlier ones, or an earlier one."""
    required = [value.value_id for value in program.dependencies.required_inputs]
    seen: set[Any] = set()
    for value_id in (*required, *[operation.output_value_id for operation in program.operations]):
        value = program.values[value_id]
        if not isinstance(value, Term):
            raise AutodiffError(
                "handler_contract_violation",
                f"value {quote(value_id)} was lowered to {quote(value)}; compile the step with ckks_registry() and its"
                " bind_input",
            )
        if value not in seen and not seen.issuperset(value.operands):
            raise AutodiffError(
                "handler_contract_violation",
                f"value {quote(value_id)} was lowered to a Term on others than the values before it",
            )
        seen.add(value)
    if len({program.values[value_id] for value_id in required}) != len(required):
        raise AutodiffError("handler_contract_violation", "two inputs were bound to the same Term; make one each")


def _is_zero(operator: TensorOperator, op_params: Mapping[str, Any], operands: Sequence[Operation]) -> bool:
    """Whether the result is zero whatever the secrets are."""
    if type(operator) is SubOperator:
        return len(operands) == 2 and operands[0] is operands[1]
    if type(operator) in (MulOperator, MatmulOperator):
        return op_params.get("right_literal") == 0 or any(operand.uniform == 0 for operand in operands)
    return False


def _uniform(known: NDArray[Any] | None) -> float | None:
    if known is None or not known.size:
        return None
    first = known.flat[0]
    return float(first) if bool((known == first).all()) else None


def _pruned(operations: Sequence[Operation], outputs: Mapping[str, Operation]) -> Program:
    """What the outputs need, in order."""
    needed = {operation.position for operation in outputs.values()}
    for operation in reversed(operations):
        if operation.position in needed:
            needed.update(operation.operands)
    kept: dict[int, Operation] = {}
    for position in sorted(needed):
        operation = operations[position]
        operands = tuple([kept[operand].position for operand in operation.operands])
        kept[position] = replace(operation, position=len(kept), operands=operands)
    inputs = {o.name: o.position for o in kept.values() if o.operator is None and o.name and o.known is None}
    return Program([*kept.values()], inputs, {name: kept[o.position].position for name, o in outputs.items()})
