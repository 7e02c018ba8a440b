"""The plaintexts of a circuit, encoded as its operations need them; those that are known are encoded once.

Encoding takes several times as long as multiplying with the result, and most plain tensors never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.circuit import Instruction, Plain
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.library import Plaintext
from tinychain.autodiff.backends.ckks.moduli import Moduli
from tinychain.autodiff.backends.ckks.parameters import Parameters

#: How many bytes of encoded plaintexts are kept from run to run, unless told otherwise.
CACHE_BYTES: Final = 512 << 20

_ONE: Final = np.ones(())


def plaintext_bytes(parameters: Parameters, depth: int) -> int:
    """The memory of a plaintext that is encoded at this depth, and of each polynomial of a ciphertext there."""
    return 8 * parameters.ring_size * parameters.primes_at(depth)


class Plaintexts:
    """Encodes for the operations of one circuit. `known` are the plain tensors, by position, of every run.

    What no longer fits into `cache_bytes` is encoded anew in each run: runs ask in the same order, where keeping what
    came first serves best.
    """

    def __init__(
        self, moduli: Moduli, layout: Layout, known: Mapping[int, NDArray[Any]], cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._moduli = moduli
        self._layout = layout
        self._known = known
        self._bytes_left = cache_bytes
        self._kept: dict[tuple[Plain, int, float], Plaintext] = {}

    def encode(self, instruction: Instruction, scale: float, tensors: Mapping[int, NDArray[Any]]) -> Plaintext:
        """What an operation reads beside its ciphertext, at its depth and this scale. `tensors` are those of the run.

        Raises value_out_of_range for what is not finite or too large for the modulus of the depth.
        """
        plain, depth = instruction.plain, instruction.depth
        if plain is None:
            return self._moduli.encode(instruction.number, depth, scale, "a factor")
        if plain.value is not None and plain.value not in self._known:
            return self._encode(plain, depth, scale, tensors[plain.value])
        key = plain, depth, scale
        found = self._kept.get(key)
        if found is None:
            tensor = _ONE if plain.value is None else self._known[plain.value]
            found = self._encode(plain, depth, scale, tensor)
            size = plaintext_bytes(self._moduli.parameters, depth)
            if size <= self._bytes_left:
                self._bytes_left -= size
                self._kept[key] = found
        return found

    def _encode(self, plain: Plain, depth: int, scale: float, tensor: NDArray[Any]) -> Plaintext:
        what = f"a plain tensor of shape {list(tensor.shape)}"
        if plain.is_number:
            return self._moduli.encode(plain.factor * float(tensor.item()), depth, scale, what)
        slots = self._layout.pack(
            plain.factor * tensor, plain.axes, plain.block, zero_bits=plain.zero_bits, inside=plain.inside
        )
        return self._moduli.encode(slots.tolist(), depth, scale, what)
