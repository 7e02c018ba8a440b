"""A plan of encrypted training: all that client and server agree on before there is a key.

Both make it themselves, from the same compiled step and the same declarations; equal plans have equal fingerprints.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.axes import Indices
from tinychain.autodiff.backends.ckks.calibration import Calibration
from tinychain.autodiff.backends.ckks.chooser import DEVIATIONS
from tinychain.autodiff.backends.ckks.circuit import Circuit
from tinychain.autodiff.backends.ckks.costs import Cost, predict
from tinychain.autodiff.backends.ckks.layout import Axes, Layout
from tinychain.autodiff.backends.ckks.noise import output_noise
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.program import Program
from tinychain.autodiff.backends.ckks.ranges import Interval
from tinychain.autodiff.backends.ckks.search import nominal_seconds
from tinychain.autodiff.graph import Record
from tinychain.autodiff.types import TensorType


@dataclass(frozen=True)
class TrainingPlan(Record):
    """So many steps on encrypted data, from fresh parameters to new ones that are decrypted.

    `intervals` bound the tensors of the program, by position. The outputs of the circuit are the new parameters, the
    new states (by `state_name`), and the loss before the last update where it is wanted. `fixed` are the
    inputs whose values the plan has, `unread` those that no result needs, and `unproven` the tensors that could be
    larger than the caller said.
    """

    program: Program
    indices: Indices
    layout: Layout
    circuit: Circuit
    parameters: Parameters
    intervals: Sequence[Interval]
    parameter_names: tuple[str, ...]
    state_names: tuple[str, ...]
    steps_per_refresh: int
    precision: float
    loss: bool
    fixed: tuple[str, ...]
    unread: tuple[str, ...]
    unproven: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"<TrainingPlan of {', '.join(self.parameter_names)}: {count_steps(self.steps_per_refresh)} between"
            f" refreshes, {self.circuit.depth} levels, ring {self.parameters.ring_size}>"
        )

    @cached_property
    def nominal_seconds(self) -> float:
        """The time of all steps on a nominal machine; `cost` predicts that on a real one."""
        return nominal_seconds(self.circuit, self.parameters.ring_size, len(self.parameters.base_bits))

    @cached_property
    def noise(self) -> Mapping[str, float]:
        """The predicted standard deviation of what encryption adds to each result."""
        return output_noise(self.circuit, self.parameters, self.intervals)

    @cached_property
    def error_bounds(self) -> Mapping[str, float]:
        """What encryption adds to an element of each result at most, but for one element in a billion."""
        return {name: DEVIATIONS * deviation for name, deviation in self.noise.items()}

    @cached_property
    def known(self) -> Mapping[int, NDArray[Any]]:
        """The plain tensors that are the same in every run, by position in the program."""
        return {o.position: o.known for o in self.program.operations if o.known is not None}

    def cost(self, calibration: Calibration) -> Cost:
        """What is spent between two refreshes. Raises invalid_encryption_plan for another ring's figures."""
        data = [name for name in self.secret_inputs if name not in self.parameter_names + self.state_names]
        return predict(self.circuit, self.parameters, calibration, self.known, sent_once=data)

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """The types of the inputs of the program, by name."""
        return {name: self.program.operations[position].type for name, position in self.program.inputs.items()}

    @cached_property
    def ranges(self) -> Mapping[str, Interval]:
        """The declared ranges of the inputs of the program, by name."""
        return {name: self.intervals[position] for name, position in self.program.inputs.items()}

    @cached_property
    def secret_inputs(self) -> Mapping[str, Axes]:
        """What the client encrypts: data, parameters and states by name, with the indices of their axes."""
        return {
            name: self.indices.axes[position]
            for name, position in self.program.inputs.items()
            if self.program.operations[position].secret
        }

    @cached_property
    def plain_inputs(self) -> tuple[str, ...]:
        """What the server is told in the clear, with every request."""
        return tuple([name for name in self.program.inputs if name not in self.secret_inputs])

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that equal plans share: the SHA-256 of the circuit, the parameters and all declarations."""
        plain = [
            (operation.name, operation.type, type(operation.operator).__name__, dict(operation.op_params),
             operation.operands, None if operation.known is None else operation.known.tolist())
            for operation in self.program.operations
            if not operation.secret
        ]  # fmt: skip
        layout = (self.layout.slot_bits, sorted(self.layout.places.items()), sorted(self.layout.sizes.items()))
        outputs = [(name, sorted(output.blocks.items()), *output[1:]) for name, output in self.circuit.outputs.items()]
        declared = [sorted(self.ranges.items()), sorted(self.secret_inputs.items()), self.fixed, self.unread]
        trained = [self.parameter_names, self.state_names, self.steps_per_refresh, self.loss]
        content = [plain, layout, self.circuit.instructions, outputs, self.parameters.to_dict(), declared, trained]
        return hashlib.sha256(json.dumps(content).encode()).digest()


def count_steps(count: int) -> str:
    """So many steps, in words."""
    return f"{count} step{'s' if count > 1 else ''}"
