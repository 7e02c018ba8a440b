"""What a circuit costs: its counts, the memory it needs, and the seconds that a machine should take for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tinychain.autodiff.backends.ckks.calibration import DECRYPT, ENCRYPT, READ, WRITE, Calibration
from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind
from tinychain.autodiff.backends.ckks.evaluator import encoding_name
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plaintexts import CACHE_BYTES, plaintext_bytes
from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import Record
from tinychain.autodiff.inspection.table import Table, aligned


@dataclass(frozen=True)
class Cost(Record):
    """The figures of one run; `str` is a table of them.

    `seconds` are the server's for a run with the known plaintexts encoded, which takes `encoding_seconds` once, and
    `transfer_seconds` for reading what a request brings and writing what its reply takes along; `client_seconds` are
    for encrypting the one and decrypting the other. `peak_ciphertexts` and `ciphertext_bytes` are alive at once at
    most, the inputs all the time. `key_message_bytes` are those of the keys on their way.
    """

    counts: Mapping[str, int]
    levels: int
    input_ciphertexts: int
    output_ciphertexts: int
    peak_ciphertexts: int
    ciphertext_bytes: int
    key_bytes: int
    key_message_bytes: int
    plaintext_bytes: int
    seconds: float
    encoding_seconds: float
    transfer_seconds: float
    client_seconds: float

    @property
    def server_seconds(self) -> float:
        """Those of a request in all, after the first one."""
        return self.seconds + self.transfer_seconds

    @property
    def secret_multiplications(self) -> int:
        """Products and squares of ciphertexts."""
        return self._count(Kind.MULTIPLY, Kind.SQUARE)

    @property
    def plain_multiplications(self) -> int:
        """Products of a ciphertext with a plaintext or a number."""
        return self._count(Kind.MULTIPLY_PLAIN, Kind.MULTIPLY_NUMBER)

    @property
    def rotations(self) -> int:
        """Rotations of a ciphertext, each by one of the steps that there are keys for."""
        return self._count(Kind.ROTATE)

    @property
    def relinearizations(self) -> int:
        """How often a product, or a sum of them, is brought back to two polynomials."""
        return self._count(Kind.RELINEARIZE)

    @property
    def peak_bytes(self) -> int:
        """What the server's process needs beside what it has before the keys come; it gives back nothing meanwhile."""
        return self.key_bytes + self.key_message_bytes + self.ciphertext_bytes + self.plaintext_bytes

    def __str__(self) -> str:
        rows = (
            ("levels", f"{self.levels:,}"),
            ("encrypted inputs", f"{self.input_ciphertexts:,}"),
            ("encrypted outputs", f"{self.output_ciphertexts:,}"),
            ("ciphertexts at once", f"{self.peak_ciphertexts:,}"),
            ("secret multiplications", f"{self.secret_multiplications:,}"),
            ("plain multiplications", f"{self.plain_multiplications:,}"),
            ("rotations", f"{self.rotations:,}"),
            ("relinearizations", f"{self.relinearizations:,}"),
            ("peak MiB", f"{self.peak_bytes / 2**20:,.1f}"),
            ("of it keys", f"{self.key_bytes / 2**20:,.1f}"),
            ("seconds", f"{self.seconds:,.3f}"),
            ("and once, for encoding", f"{self.encoding_seconds:,.3f}"),
            ("and for reading and writing", f"{self.transfer_seconds:,.3f}"),
            ("of the client", f"{self.client_seconds:,.3f}"),
        )
        return aligned(Table(("cost", "predicted"), rows, 1))

    def _count(self, *kinds: Kind) -> int:
        return sum([self.counts.get(kind, 0) for kind in kinds])


def predict(
    circuit: Circuit,
    parameters: Parameters,
    calibration: Calibration,
    known: Collection[int] = (),
    sent_once: Collection[str] = (),
    cache_bytes: int = CACHE_BYTES,
) -> Cost:
    """What a run of the circuit costs. `known` are the plain tensors, by position, that are the same in every run, and
    `sent_once` the names of encrypted inputs that are.

    Raises TypeError for what is no calibration, and invalid_encryption_plan for one of another ring.
    """
    if not isinstance(calibration, Calibration):
        raise TypeError(f"expected a Calibration, got {quote(calibration)}")
    calibration.check_ring(parameters)
    encoding = _encoding(circuit, parameters, calibration, known, cache_bytes)
    memory = _memory(circuit, parameters)
    inputs = [i for i in circuit.instructions if i.kind is Kind.INPUT]
    sent = [parameters.primes_at(i.depth) for i in inputs if i.source is None or i.source[0] not in sent_once]
    outputs = [
        parameters.primes_at(circuit.instructions[position].depth)
        for output in circuit.outputs.values()
        for position in output.blocks.values()
    ]
    return Cost(
        counts={kind.value: count for kind, count in circuit.counts.items()},
        levels=circuit.depth,
        input_ciphertexts=len(inputs),
        output_ciphertexts=len(outputs),
        peak_ciphertexts=memory.ciphertexts,
        ciphertext_bytes=memory.bytes,
        key_bytes=key_bytes(parameters, len(circuit.rotations)),
        key_message_bytes=_key_message_bytes(parameters, len(circuit.rotations)),
        plaintext_bytes=encoding.bytes,
        seconds=_seconds(circuit, parameters, calibration) + encoding.each_run,
        encoding_seconds=encoding.once,
        transfer_seconds=sum([calibration.at(READ, primes) for primes in sent])
        + sum([calibration.at(WRITE, primes) for primes in outputs]),
        client_seconds=sum([calibration.at(ENCRYPT, primes) for primes in sent])
        + sum([calibration.at(DECRYPT, primes) for primes in outputs]),
    )


def key_bytes(parameters: Parameters, rotations: int) -> int:
    """The memory of the key for relinearization and of one for each rotation."""
    primes = parameters.primes_at(0)
    return (1 + rotations) * primes * 2 * 8 * parameters.ring_size * (primes + 1)


def _key_message_bytes(parameters: Parameters, rotations: int) -> int:
    """The bytes of the message with the keys: a polynomial for each digit, and a seed in place of the other one.

    Coefficients have as many random bits as their prime; what the library writes was measured to be a quarter longer.
    """
    bits = parameters.ring_size * parameters.total_bits
    return (1 + rotations) * parameters.primes_at(0) * bits // 8 * 5 // 4


def _seconds(circuit: Circuit, parameters: Parameters, calibration: Calibration) -> float:
    """Of all operations, without encoding."""
    total = 0.0
    for instruction in circuit.instructions:
        if instruction.kind is not Kind.INPUT:
            operand = circuit.instructions[instruction.operands[0]]
            # A calibration has operands of two polynomials, and for relinearization of three.
            polynomials = 1.0 if instruction.kind is Kind.RELINEARIZE else operand.size / 2
            total += polynomials * calibration.at(instruction.kind, parameters.primes_at(operand.depth))
    return total


class _Encoding(NamedTuple):
    """Seconds of encoding in each run, and once, and the bytes that are kept."""

    each_run: float
    once: float
    bytes: int


def _encoding(
    circuit: Circuit, parameters: Parameters, calibration: Calibration, known: Collection[int], cache_bytes: int
) -> _Encoding:
    each_run = once = 0.0
    kept: set[object] = set()
    kept_bytes = 0
    for instruction in circuit.instructions:
        if (name := encoding_name(instruction)) is None:
            continue
        seconds = calibration.at(name, parameters.primes_at(instruction.depth))
        plain = instruction.plain
        if plain is None or not (plain.value is None or plain.value in known):
            each_run += seconds
            continue
        key = plain, instruction.depth, instruction.kind, _unswitched_depth(circuit, instruction)
        if key in kept:
            continue
        size = plaintext_bytes(parameters, instruction.depth)
        if kept_bytes + size > cache_bytes:
            each_run += seconds
            continue
        kept.add(key)
        kept_bytes += size
        once += seconds
    return _Encoding(each_run, once, kept_bytes)


def _unswitched_depth(circuit: Circuit, instruction: Instruction) -> int:
    """The depth that the operand has its scale from, on which that of the plaintext depends."""
    operand = circuit.instructions[instruction.operands[0]]
    while operand.kind is Kind.SWITCH:
        operand = circuit.instructions[operand.operands[0]]
    return operand.depth


class _Memory(NamedTuple):
    """The ciphertexts that are alive at once at most, and the bytes of them."""

    ciphertexts: int
    bytes: int


def _memory(circuit: Circuit, parameters: Parameters) -> _Memory:
    """What a run measures."""
    sizes = [i.size * plaintext_bytes(parameters, i.depth) for i in circuit.instructions]
    is_input = [i.kind is Kind.INPUT for i in circuit.instructions]
    alive = most_alive = sum(is_input)
    held = most_held = sum([size for size, given in zip(sizes, is_input, strict=True) if given])
    for position, dead in enumerate(circuit.last_uses):
        if not is_input[position]:
            alive, held = alive + 1, held + sizes[position]
        most_alive, most_held = max(most_alive, alive), max(most_held, held)
        freed = [sizes[gone] for gone in dead if not is_input[gone]]
        alive, held = alive - len(freed), held - sum(freed)
    return _Memory(most_alive, most_held)
