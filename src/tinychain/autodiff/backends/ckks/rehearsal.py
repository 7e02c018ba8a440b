"""A plan executed on arrays, on sample data and with random errors in place of those of encryption.

What the errors come to is right for data like these: it has what worst cases must leave out, which errors cancel or
meet zeros, and how large the values are that they are multiplied by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isnan, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.axes import Indices
from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind, Plain
from tinychain.autodiff.backends.ckks.given import check_inputs, filled, named
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.noise import FreshErrors, is_alike, is_of_plaintext, leanings
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plain import plain_values
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.program import Program
from tinychain.autodiff.backends.ckks.ranges import Interval
from tinychain.autodiff.errors import quote

Slots = NDArray[Any]

#: How often a circuit is run with errors.
TRIALS: Final = 7

#: How much larger than in all trials errors may be. A single element is off by more than eight times the largest of
#: seven draws once in 6,000 times if it has a Laplace distribution, the widest that there is here, and once in 260,000
#: if it has a normal one; several elements are several draws. It also makes up for data that differ from the sample.
MARGIN: Final = 8.0

_SEED: Final = 1729


def rehearse(plan: TrainingPlan, sample: Mapping[str, Any]) -> Mapping[str, float]:
    """What encryption should add at most to an element of each result on data like these, by name.

    `sample` has an array of the declared type for every input that the plan reads, secret or plain, every parameter,
    and every state that is not zero. The figures are the largest of seven runs with random errors, always the same
    ones; in one run in a few, an error is somewhat larger.

    Raises invalid_training_data for other names, types and shapes and for what is not finite, value_out_of_range where
    the sample leaves the declared ranges, and TypeError for what is no plan.
    """
    if not isinstance(plan, TrainingPlan):
        raise TypeError(f"expected a TrainingPlan, got {quote(plan)}")
    arrays = checked_sample(sample, plan.program, plan.intervals, plan.state_names, plan.unread)
    return Rehearsal(plan.circuit, plan.program, plan.indices, plan.layout, arrays).errors(plan.parameters)


def checked_sample(
    sample: object,
    program: Program,
    intervals: Sequence[Interval],
    states: Sequence[str],
    unread: Sequence[str],
) -> dict[str, NDArray[Any]]:
    """The arrays of a program's inputs. States may be left out and are zeros then; what is unread may be there."""
    types = {name: program.operations[position].type for name, position in program.inputs.items()}
    ranges = {name: intervals[position] for name, position in program.inputs.items()}
    needed = [name for name in types if name not in states]
    given = named("the sample", sample, needed, [*states, *unread])
    zeros = {name: filled("the sample", name, 0.0, types[name]) for name in types if name not in given}
    return check_inputs("the sample", {name: given.get(name, zeros.get(name)) for name in types}, types, ranges)


class Rehearsal:
    """Runs a circuit on arrays of slots, from the inputs of its program by name."""

    def __init__(
        self,
        circuit: Circuit,
        program: Program,
        indices: Indices,
        layout: Layout,
        inputs: Mapping[str, NDArray[Any]],
    ) -> None:
        self._circuit = circuit
        self._layout = layout
        self._inputs = {name: (inputs[name], indices.axes[at]) for name, at in program.inputs.items()}
        self._plain = plain_values(program, inputs)
        self._packed: dict[Plain, Slots] = {}
        firsts: dict[object, int] = {}
        #: The position of the first operation with the same plaintext, which has the same error, or the own one.
        self._firsts = [
            firsts.setdefault((i.plain, i.number, i.depth) if i.plain or is_of_plaintext(i) else position, position)
            for position, i in enumerate(circuit.instructions)
        ]
        random = np.random.Generator(np.random.PCG64(_SEED))
        uniform = random.random((TRIALS + 1, layout.slots))
        #: The secret, in every slot, by which roundings are multiplied: its square is exponentially distributed.
        self._secret = np.sqrt(-np.log1p(-uniform))
        self._keys: dict[int, Slots] = {}
        self._leanings = np.array(leanings(2 * layout.slots))

    def errors(self, parameters: Parameters) -> dict[str, float]:
        """The largest error in an element of each output, over some trials with errors as these parameters make."""
        circuit, wanted = self._circuit, {at for o in self._circuit.outputs.values() for at in o.blocks.values()}
        with np.errstate(all="ignore"):  # errors so large that values overflow
            found = {
                position: slots[1:] - slots[0]
                for position, slots in enumerate(self.values(FreshErrors(parameters)))
                if position in wanted
            }
            trials = [self.results({at: slots[trial] for at, slots in found.items()}) for trial in range(TRIALS)]
            largest = {
                name: float(np.max([np.max(np.abs(trial[name]), initial=0.0) for trial in trials]))
                for name in circuit.outputs
            }
        return {name: inf if isnan(error) else error for name, error in largest.items()}

    def bound(self, parameters: Parameters) -> float:
        """What no error on data like these should exceed."""
        return MARGIN * max(self.errors(parameters).values(), default=0.0)

    def values(self, fresh: FreshErrors | None = None) -> Iterator[Slots]:
        """The slots of every operation, in order; with errors in rows, of which the first has none."""
        live: dict[int, Slots] = {}
        for position, instruction in enumerate(self._circuit.instructions):
            operands = [live[operand] for operand in instruction.operands]
            slots = self._result(instruction, operands)
            if fresh is not None and fresh.deviation(instruction):
                errors = self._errors(position, fresh)
                slots = slots + (errors * operands[0] if is_of_plaintext(instruction) else errors)
            live[position] = slots
            yield slots
            for dead in self._circuit.last_uses[position]:
                del live[dead]

    def results(self, values: Mapping[int, Slots] | Sequence[Slots]) -> dict[str, NDArray[Any]]:
        """The outputs by name, from the slots of their operations."""
        return {
            name: output.factor
            * self._layout.unpack({block: values[at] for block, at in output.blocks.items()}, output.axes, output.owned)
            for name, output in self._circuit.outputs.items()
        }

    def _result(self, instruction: Instruction, operands: Sequence[Slots]) -> Slots:
        """Without an error of its own."""
        match instruction.kind:
            case Kind.INPUT if instruction.source is not None:
                name, block = instruction.source
                return self._layout.pack(*self._inputs[name], block) * instruction.number
            case Kind.ADD:
                return operands[0] + operands[1]
            case Kind.SUB:
                return operands[0] - operands[1]
            case Kind.MULTIPLY:
                return operands[0] * operands[1]
            case Kind.SQUARE:
                return operands[0] * operands[0]
            case Kind.NEGATE:
                return -operands[0]
            case Kind.ADD_PLAIN if instruction.plain is not None:
                return operands[0] + self._pack(instruction.plain)
            case Kind.MULTIPLY_PLAIN if instruction.plain is not None:
                return operands[0] * self._pack(instruction.plain)
            case Kind.MULTIPLY_NUMBER:
                return operands[0] * instruction.number
            case Kind.ROTATE:
                return np.roll(operands[0], -instruction.steps, axis=-1)
        return operands[0]

    def _pack(self, plain: Plain) -> Slots:
        if plain not in self._packed:
            array = np.ones(()) if plain.value is None else self._plain[plain.value]
            self._packed[plain] = self._layout.pack(
                array * plain.factor, plain.axes, plain.block, zero_bits=plain.zero_bits, inside=plain.inside
            )
        return self._packed[plain]

    def _errors(self, position: int, fresh: FreshErrors) -> Slots:
        """What an operation adds itself, in rows."""
        instruction = self._circuit.instructions[position]
        own = self._drawn(self._firsts[position], 1 if is_alike(instruction) else self._layout.slots)
        own *= fresh.even(instruction)
        if instruction.kind in (Kind.RESCALE, Kind.RELINEARIZE, Kind.ROTATE):
            own *= self._secret
        if leaning := fresh.leaning(instruction):
            own += self._of_key(instruction.steps) * leaning
        return own

    def _of_key(self, steps: int) -> Slots:
        """What the mean of digits makes of the errors in a key, which is the same whenever that is used."""
        if steps not in self._keys:
            number = len(self._firsts) + steps % self._layout.slots
            self._keys[steps] = self._drawn(number, self._layout.slots) * self._leanings
        return self._keys[steps]

    def _drawn(self, number: int, slots: int) -> Slots:
        """Errors of the deviation 1. They are uniform, as sums of many are normal all the same, and soon drawn."""
        random = np.random.Generator(np.random.PCG64([_SEED, number]))
        drawn = random.random((TRIALS + 1, slots))
        drawn -= 0.5
        drawn *= sqrt(12)
        drawn[0] = 0.0
        return drawn
