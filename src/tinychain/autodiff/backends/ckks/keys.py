"""The keys of a session: the client's, which alone decrypt, and those that a server evaluates with.

The secret key stays inside the library's objects that encrypt and decrypt: no bytes, no file and no repr holds it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from secrets import token_bytes
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.library import Ciphertext, from_bytes, library_errors, seal, to_bytes
from tinychain.autodiff.backends.ckks.messages import SESSION_BYTES
from tinychain.autodiff.backends.ckks.moduli import Moduli
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.errors import AutodiffError

_STEPS: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<Q")


class SecretKeys:
    """What a client keeps to itself. `session` names the keys; `evaluation_keys` are the bytes of `EvaluationKeys`."""

    def __init__(self, moduli: Moduli, rotations: Iterable[int]) -> None:
        self.moduli = moduli
        self.session = token_bytes(SESSION_BYTES)
        generator = seal.KeyGenerator(moduli.context)
        secret = generator.secret_key()
        self._encryptor = seal.Encryptor(moduli.context, secret)
        self._decryptor = seal.Decryptor(moduli.context, secret)
        steps = _distinct(moduli.parameters, rotations)
        elements = [_element(moduli.parameters, step) for step in steps]
        # What the library makes for serialization alone has a seed in place of every random polynomial: half the bytes.
        self.evaluation_keys = b"".join(
            [
                self.session,
                _framed(b"".join([_STEPS.pack(step) for step in steps])),
                _framed(to_bytes(generator.create_relin_keys())),
                _framed(to_bytes(generator.create_galois_keys(elements))),
                _framed(to_bytes(self._encryptor.encrypt_zero_symmetric())),
            ]
        )

    @classmethod
    def generate(cls, parameters: Parameters, rotations: Iterable[int]) -> SecretKeys:
        """New keys, drawn by the library's own generator, with Galois keys for exactly these rotations.

        Raises invalid_encryption_plan where the library cannot make them.
        """
        moduli = Moduli(parameters)
        with library_errors("invalid_encryption_plan", f"making keys for {parameters}"):
            return cls(moduli, rotations)

    def __repr__(self) -> str:
        return f"SecretKeys(ring_size={self.moduli.parameters.ring_size})"

    def encrypt(self, slots: NDArray[np.floating], depth: int = 0) -> bytes:
        """A fresh ciphertext, as bytes, of at most ring_size / 2 numbers; slots that are left are zero.

        Raises value_out_of_range for numbers that are not finite or too large for the modulus of this depth.
        """
        plaintext = self.moduli.encode(slots.tolist(), depth, self.moduli.scales[depth], f"{slots.size} slots")
        return to_bytes(self._encryptor.encrypt_symmetric(plaintext))

    def decrypt(self, data: bytes | memoryview) -> NDArray[np.float64]:
        """All slots of a ciphertext. Raises invalid_message for bytes that are no ciphertext of these parameters."""
        ciphertext = from_bytes("ciphertext", self.moduli.context, data)
        plaintext = seal.Plaintext()
        with library_errors("invalid_message", "decrypting a ciphertext"):
            self._decryptor.decrypt(ciphertext, plaintext)
            return np.array(self.moduli.encoder.decode_double(plaintext))


class EvaluationKeys:
    """What a server has: nothing here can decrypt. `rotations` are the steps, ascending, that it can rotate by.

    `zero` is an encryption of zero, which hides what a computation would otherwise lay open, such as x - x.
    """

    def __init__(self, moduli: Moduli, data: bytes | memoryview) -> None:
        self.moduli = moduli
        self.session = bytes(data[:SESSION_BYTES])
        steps, relinearization, galois, zero = _unframed(data, SESSION_BYTES, 4)
        self.rotations = _read_steps(steps)
        self.relinearization = from_bytes("relinearization keys", moduli.context, relinearization)
        self.galois = from_bytes("rotation keys", moduli.context, galois)
        self.zero: Ciphertext = from_bytes("ciphertext", moduli.context, zero)
        if self.zero.parms_id() != moduli.parms_ids[0] or self.zero.size() != 2:
            raise AutodiffError("invalid_message", "the encryption of zero in the evaluation keys is no fresh one")
        if not self.relinearization.has_key(2):
            raise AutodiffError("invalid_encryption_key", "the evaluation keys have no key for relinearization")
        self._check_rotations()

    @classmethod
    def from_bytes(cls, parameters: Parameters, data: bytes | memoryview) -> EvaluationKeys:
        """The keys that `SecretKeys.evaluation_keys` are the bytes of.

        Raises invalid_message for bytes that are none of these parameters, invalid_encryption_key for keys that lack
        what they announce.
        """
        return cls(Moduli(parameters), memoryview(data))

    def __repr__(self) -> str:
        return f"EvaluationKeys(ring_size={self.moduli.parameters.ring_size}, rotations={len(self.rotations)})"

    def require(self, rotations: Iterable[int]) -> None:
        """Raises invalid_encryption_key, with the steps, where rotations that a circuit needs have no key."""
        missing = sorted({*_distinct(self.moduli.parameters, rotations)} - {*self.rotations})
        if missing:
            raise AutodiffError(
                "invalid_encryption_key",
                f"no Galois key for {len(missing)} rotations that the plan needs, by {missing[:8]} slots; make the "
                "keys from the same plan",
            )

    def _check_rotations(self) -> None:
        elements = {_element(self.moduli.parameters, step) for step in self.rotations}
        lacking = [element for element in elements if not self.galois.has_key(element)]
        if lacking or len(elements) != self.galois.size():
            raise AutodiffError(
                "invalid_encryption_key",
                f"the evaluation keys announce {len(self.rotations)} rotations and have {self.galois.size()} Galois "
                f"keys; {len(lacking)} are missing",
            )


def _distinct(parameters: Parameters, rotations: Iterable[int]) -> list[int]:
    """The steps to the left that these rotations are; one by nothing needs no key."""
    return sorted({step % (1 << parameters.slot_bits) for step in rotations} - {0})


def _element(parameters: Parameters, step: int) -> int:
    """The power of X that a rotation by this step puts in the place of X: 3 generates the slots' cyclic group."""
    return pow(3, step, 2 * parameters.ring_size)


def _framed(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def _unframed(data: bytes | memoryview, at: int, count: int) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    for _ in range(count):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack(data[at:start])[0] if start <= len(data) else start
        if at > len(data):
            raise AutodiffError("invalid_message", f"evaluation keys end after {len(data)} bytes, too early")
        parts.append(data[start:at])
    if at != len(data):
        raise AutodiffError("invalid_message", f"evaluation keys have {len(data) - at} bytes too many")
    return parts


def _read_steps(data: bytes | memoryview) -> tuple[int, ...]:
    if len(data) % _STEPS.size:
        raise AutodiffError("invalid_message", f"the rotations of evaluation keys have {len(data)} bytes")
    return tuple([step for (step,) in _STEPS.iter_unpack(data)])
