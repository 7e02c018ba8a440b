"""How long each operation takes on this machine, measured once, from which the seconds of every circuit follow.

What is measured is what a server does: a small circuit that has every operation, run with real keys.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np

from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind, Plain
from tinychain.autodiff.backends.ckks.evaluator import ENCODE, ENCODE_NUMBER, Evaluator, encoding_name, input_key
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys, SecretKeys
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.library import Ciphertext, from_bytes, to_bytes
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record

#: The names of what is done beside the operations and encoding: by a client, from and to bytes, and by a server, which
#: reads what a message brings and writes what it takes along, both with a sum over the bytes.
ENCRYPT: Final = "encrypt"
DECRYPT: Final = "decrypt"
READ: Final = "read"
WRITE: Final = "write"

_NAMES: Final = (
    *[kind.value for kind in Kind if kind is not Kind.INPUT],
    *(ENCODE, ENCODE_NUMBER, ENCRYPT, DECRYPT, READ, WRITE),
)

_RUNS: Final = 5
_REPETITIONS: Final = 3
_DEPTHS: Final = 4


@dataclass(frozen=True)
class Calibration(Record):
    """Seconds in a ring: by the name of what is done, for numbers of primes in ascending order."""

    ring_size: int
    seconds: Mapping[str, Sequence[tuple[int, float]]]

    def at(self, name: str, primes: int) -> float:
        """Between the numbers of primes that were measured on the line, beyond them in proportion to the nearest."""
        counts = [count for count, _ in self.seconds[name]]
        seconds = [value for _, value in self.seconds[name]]
        nearest = min(max(primes, counts[0]), counts[-1])
        return float(np.interp(nearest, counts, seconds)) * primes / nearest

    def check_ring(self, parameters: Parameters) -> None:
        """Raises invalid_encryption_plan for parameters of another ring."""
        if parameters.ring_size != self.ring_size:
            raise AutodiffError(
                "invalid_encryption_plan",
                f"the calibration is of a ring of {self.ring_size} and predicts nothing for one of "
                f"{parameters.ring_size}; measure that",
            )

    def to_json(self) -> str:
        """A document that `from_json` reads."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The calibration of a document. Raises invalid_artifact_file for a text that is none."""
        try:
            return _read(json.loads(text))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise AutodiffError("invalid_artifact_file", f"this is no calibration: {quote(error)}") from None


def measure(parameters: Parameters) -> Calibration:
    """Medians of a few runs, at up to four depths of these parameters; takes some seconds in a large ring.

    Raises TypeError for what are no parameters, and invalid_encryption_plan for those of depth 0, where nothing can be
    multiplied.
    """
    if not isinstance(parameters, Parameters):
        raise TypeError(f"expected Parameters, got {quote(parameters)}")
    if not parameters.depth:
        raise AutodiffError("invalid_encryption_plan", "a calibration needs parameters of depth 1 at least, got 0")
    secret = SecretKeys.generate(parameters, [1])
    keys = EvaluationKeys(secret.moduli, secret.evaluation_keys)
    depths = {round(step * parameters.depth / (_DEPTHS - 1)) for step in range(_DEPTHS)}
    columns: dict[str, list[tuple[int, float]]] = {name: [] for name in _NAMES}
    for depth in sorted(depths, reverse=True):
        for name, seconds in _measure_depth(secret, keys, depth).items():
            columns[name].append((parameters.primes_at(depth), seconds))
    return Calibration(parameters.ring_size, {name: tuple(column) for name, column in columns.items()})


def _read(data: Any) -> Calibration:
    seconds = {
        name: tuple(sorted([(int(primes), float(value)) for primes, value in data["seconds"][name]])) for name in _NAMES
    }
    for name, column in seconds.items():
        if not column or not all(primes > 0 and 0 <= value < inf for primes, value in column):
            raise ValueError(f"{name} needs numbers of primes, each with seconds")
    return Calibration(int(data["ring_size"]), seconds)


def _measure_depth(secret: SecretKeys, keys: EvaluationKeys, depth: int) -> Mapping[str, float]:
    """The median seconds of everything that can be done at this depth, by name."""
    parameters = secret.moduli.parameters
    layout = Layout(parameters.slot_bits, {0: tuple(range(parameters.slot_bits))}, {0: 1 << parameters.slot_bits})
    slots = np.linspace(-1.0, 1.0, layout.slots)
    circuit = _circuit(depth, is_lowest=depth == parameters.depth)
    evaluator = Evaluator(keys, circuit, layout)
    times = Counter([instruction.kind.value for instruction in circuit.instructions])
    times.update([name for name in map(encoding_name, circuit.instructions) if name])
    found: defaultdict[str, list[float]] = defaultdict(list)

    def timed(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        started = perf_counter()
        result = function(*arguments)
        found[name].append(perf_counter() - started)
        return result

    def read(data: bytes) -> Ciphertext:
        sha256(data)
        return from_bytes("ciphertext", secret.moduli.context, data)

    def write(ciphertext: Ciphertext) -> bytes:
        data = to_bytes(ciphertext)
        sha256(data)
        return data

    for _ in range(_RUNS):
        data = timed(ENCRYPT, secret.encrypt, slots, depth)
        ciphertext = timed(READ, read, data)
        timed(DECRYPT, secret.decrypt, timed(WRITE, write, ciphertext))
        inputs = {input_key(circuit.instructions[0]): ciphertext}
        for name, seconds in evaluator.run(inputs, {0: slots}).measured.seconds.items():
            found[name].append(seconds / times[name])
    return {name: median(column) for name, column in found.items()}


def _circuit(depth: int, *, is_lowest: bool) -> Circuit:
    """Every operation a few times, on ciphertexts of this depth; at the lowest one there are no products."""
    instructions = [Instruction(Kind.INPUT, (), depth, False, 2, 1.0, source=("x", 0))]

    def emit(kind: Kind, *operands: int, lower: int = 0, pending: bool = False, size: int = 2, **more: Any) -> int:
        instructions.append(Instruction(kind, operands, depth + lower, pending, size, 2.0, **more))
        return len(instructions) - 1

    plain = Plain(0, 1.0, ((0,),))
    for _ in range(_REPETITIONS):
        total = emit(Kind.ADD, 0, 0)
        emit(Kind.SUB, total, 0)
        emit(Kind.NEGATE, 0)
        emit(Kind.ADD_PLAIN, 0, plain=plain)
        emit(Kind.ROTATE, 0, steps=1)
        if is_lowest:
            continue
        emit(Kind.SQUARE, 0, pending=True, size=3)
        product = emit(Kind.MULTIPLY, 0, total, pending=True, size=3)
        relinearized = emit(Kind.RELINEARIZE, product, pending=True)
        emit(Kind.MULTIPLY_PLAIN, 0, pending=True, plain=plain)
        emit(Kind.MULTIPLY_NUMBER, 0, pending=True, number=0.5)
        emit(Kind.RESCALE, relinearized, lower=1)
        emit(Kind.SWITCH, 0, lower=1)
    return Circuit(tuple(instructions), {})
