"""Executes a circuit on ciphertexts, without any key that decrypts.

The circuit says the depth and the scale of every result. The library computes scales too, in floating point, and they
drift; here each result is given the exact one, so that additions always find equal scales.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys
from tinychain.autodiff.backends.ckks.layout import Block, Layout
from tinychain.autodiff.backends.ckks.library import LIBRARY_ERRORS, Ciphertext, Plaintext, is_transparent, seal
from tinychain.autodiff.backends.ckks.plaintexts import CACHE_BYTES, Plaintexts
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record

#: An input as the client encrypts it: its name, its block, the depth, and the number that it is multiplied by.
InputKey: TypeAlias = tuple[str, Block, int, float]

#: The names of encoding plaintexts among the seconds by kind, whose own do not contain it: of many numbers, of one.
ENCODE: Final = "encode"
ENCODE_NUMBER: Final = "encode_number"

_WITH_PLAINTEXT: Final = (Kind.ADD_PLAIN, Kind.MULTIPLY_PLAIN, Kind.MULTIPLY_NUMBER)

_NO_TENSORS: Final[Mapping[int, NDArray[Any]]] = {}


@dataclass(frozen=True)
class Measured(Record):
    """What a run took: seconds by kind of operation, and of encoding; and the most ciphertexts that were alive at once.

    The inputs are alive all the time.
    """

    seconds: Mapping[str, float]
    peak_ciphertexts: int
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class Execution:
    """The ciphertexts of the outputs, by name and block, and what the run took."""

    outputs: Mapping[str, Mapping[Block, Ciphertext]]
    measured: Measured


def input_key(instruction: Instruction) -> InputKey:
    """The key of an INPUT among those that `Evaluator.run` takes."""
    name, block = instruction.source or ("", 0)
    return name, block, instruction.depth, instruction.number


def encoding_name(instruction: Instruction) -> str | None:
    """ENCODE, or ENCODE_NUMBER where all slots of the plaintext are alike; None for operations that read none."""
    if instruction.kind not in _WITH_PLAINTEXT:
        return None
    return ENCODE_NUMBER if instruction.plain is None or instruction.plain.is_number else ENCODE


class Evaluator:
    """One circuit, ready to be run as often as wanted.

    `known` are the plain tensors, by position in the program, that are the same in every run; they are encoded once, as
    far as `cache_bytes` reach. Raises invalid_encryption_key where a rotation has no key, and invalid_encryption_plan
    where circuit or layout do not fit the keys.
    """

    def __init__(
        self,
        keys: EvaluationKeys,
        circuit: Circuit,
        layout: Layout,
        known: Mapping[int, NDArray[Any]] = _NO_TENSORS,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        parameters = keys.moduli.parameters
        if layout.slot_bits != parameters.slot_bits or circuit.depth > parameters.depth:
            raise AutodiffError(
                "invalid_encryption_plan",
                f"a circuit of depth {circuit.depth} with {layout.slots} slots does not fit keys of depth "
                f"{parameters.depth} with {parameters.ring_size // 2} slots; make the keys from the same plan",
            )
        keys.require(circuit.rotations)
        self._keys = keys
        self._circuit = circuit
        self._plaintexts = Plaintexts(keys.moduli, layout, known, cache_bytes)
        self._library = seal.Evaluator(keys.moduli.context)

    def run(
        self, inputs: Mapping[InputKey, Ciphertext], tensors: Mapping[int, NDArray[Any]] = _NO_TENSORS
    ) -> Execution:
        """Executes the circuit. `tensors` are the plain ones of this run alone, by position in the program.

        Raises invalid_message for an input that is missing or is not fresh at its depth, value_out_of_range for a plain
        tensor that is not finite or too large to be encoded, and invalid_encryption_plan for an operation that the
        library refuses.
        """
        self._check_inputs(inputs)
        values: dict[int, Ciphertext] = {}
        seconds: defaultdict[str, float] = defaultdict(float)
        memory = _Memory(inputs.values())
        for position, instruction in enumerate(self._circuit.instructions):
            if instruction.kind is Kind.INPUT:
                values[position] = inputs[input_key(instruction)]
            else:
                operands = [values[operand] for operand in instruction.operands]
                values[position] = self._execute(position, operands, tensors, seconds)
                memory.take(position, values[position])
            for dead in self._circuit.last_uses[position]:
                del values[dead]
                memory.release(dead)
        outputs = {
            name: {block: values[position] for block, position in output.blocks.items()}
            for name, output in self._circuit.outputs.items()
        }
        return Execution(outputs, Measured(dict(seconds), memory.peak_ciphertexts, memory.peak_bytes))

    def _check_inputs(self, inputs: Mapping[InputKey, Ciphertext]) -> None:
        for instruction in self._circuit.instructions:
            if instruction.kind is not Kind.INPUT:
                continue
            key = input_key(instruction)
            name = f"block {key[1]} of the encrypted input {quote(key[0])}"
            if key not in inputs:
                raise AutodiffError(
                    "invalid_message",
                    f"{name}, at depth {key[2]} and times {key[3]!r}, is missing; send all of the plan",
                )
            self._keys.moduli.check_fresh(inputs[key], instruction.depth, name)

    def _execute(
        self,
        position: int,
        operands: Sequence[Ciphertext],
        tensors: Mapping[int, NDArray[Any]],
        seconds: defaultdict[str, float],
    ) -> Ciphertext:
        """The result of one operation, with its exact scale; adds what it took to the seconds."""
        instruction = self._circuit.instructions[position]
        depth, kind = instruction.depth, instruction.kind
        scale = self._keys.moduli.scales[depth]
        started = perf_counter()
        plaintext = None
        if (encoding := encoding_name(instruction)) is not None:
            other = operands[0].scale
            plaintext = self._plaintexts.encode(
                instruction, other if kind is Kind.ADD_PLAIN else scale**2 / other, tensors
            )
            encoded = perf_counter()
            seconds[encoding] += encoded - started
            started = encoded
        call = _Call(self._library, self._keys, instruction, operands, plaintext, seal.Ciphertext())
        hides_nothing = False
        try:
            _OPERATIONS[kind](call)
        except LIBRARY_ERRORS as error:
            hides_nothing = is_transparent(error)
            if not hides_nothing:
                raise AutodiffError(
                    "invalid_encryption_plan",
                    f"operation {position} of the circuit, {kind} at depth {depth}: the library refuses it: {error}",
                ) from None
        if kind is Kind.SWITCH:
            scale = operands[0].scale
        elif instruction.pending:
            scale = scale**2
        call.result.scale = scale
        if hides_nothing:
            self._library.add_inplace(call.result, self._zero(depth, scale))
        seconds[kind] += perf_counter() - started
        return call.result

    def _zero(self, depth: int, scale: float) -> Ciphertext:
        """An encryption of zero. A zero has every scale."""
        zero = seal.Ciphertext()
        self._library.mod_switch_to(self._keys.zero, self._keys.moduli.parms_ids[depth], zero)
        zero.scale = scale
        return zero


class _Memory:
    """How many ciphertexts are alive, and their bytes."""

    def __init__(self, inputs: Iterable[Ciphertext]) -> None:
        sizes = [_bytes(ciphertext) for ciphertext in inputs]
        self._sizes: dict[int, int] = {}
        self._inputs = len(sizes)
        self._bytes = self.peak_bytes = sum(sizes)
        self.peak_ciphertexts = len(sizes)

    def take(self, position: int, ciphertext: Ciphertext) -> None:
        self._sizes[position] = _bytes(ciphertext)
        self._bytes += self._sizes[position]
        self.peak_bytes = max(self.peak_bytes, self._bytes)
        self.peak_ciphertexts = max(self.peak_ciphertexts, self._inputs + len(self._sizes))

    def release(self, position: int) -> None:
        """Does nothing for an input, which is alive as long as the run."""
        self._bytes -= self._sizes.pop(position, 0)


def _bytes(ciphertext: Ciphertext) -> int:
    return 8 * int(ciphertext.size() * ciphertext.coeff_modulus_size() * ciphertext.poly_modulus_degree())


class _Call(NamedTuple):
    """All that an operation of the library needs; it writes into `result`."""

    library: Any
    keys: EvaluationKeys
    instruction: Instruction
    operands: Sequence[Ciphertext]
    plaintext: Plaintext | None
    result: Ciphertext

    def rotate(self) -> None:
        slots = 1 << self.keys.moduli.parameters.slot_bits
        self.library.rotate_vector(self.operands[0], self.instruction.steps % slots, self.keys.galois, self.result)

    def switch(self) -> None:
        parms_id = self.keys.moduli.parms_ids[self.instruction.depth]
        self.library.mod_switch_to(self.operands[0], parms_id, self.result)


_OPERATIONS: Final[Mapping[Kind, Callable[[_Call], object]]] = {
    Kind.ADD: lambda call: call.library.add(*call.operands, call.result),
    Kind.SUB: lambda call: call.library.sub(*call.operands, call.result),
    Kind.NEGATE: lambda call: call.library.negate(*call.operands, call.result),
    Kind.ADD_PLAIN: lambda call: call.library.add_plain(*call.operands, call.plaintext, call.result),
    Kind.MULTIPLY: lambda call: call.library.multiply(*call.operands, call.result),
    Kind.SQUARE: lambda call: call.library.square(*call.operands, call.result),
    Kind.MULTIPLY_PLAIN: lambda call: call.library.multiply_plain(*call.operands, call.plaintext, call.result),
    Kind.MULTIPLY_NUMBER: lambda call: call.library.multiply_plain(*call.operands, call.plaintext, call.result),
    Kind.RELINEARIZE: lambda call: call.library.relinearize(*call.operands, call.keys.relinearization, call.result),
    Kind.RESCALE: lambda call: call.library.rescale_to_next(*call.operands, call.result),
    Kind.SWITCH: _Call.switch,
    Kind.ROTATE: _Call.rotate,
}
