"""The encrypted step as a person writes it with the tensor API of the same package: the rows are in the slots, so every
column is a ciphertext. It is the fastest way there that gives right results, and it uses all cores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tenseal

from benchmarks.ckks_session import MOMENTUM, RATE, RING_SIZE, Array, Arrays
from tinychain.autodiff.backends.ckks import Parameters


class _Trained(NamedTuple):
    """A parameter and its velocity, both in units of what the gradient comes in."""

    velocity: Any
    value: Any


class ByTensors:
    """Computes the step on these arrays, in a context of its own with moduli of the bits of these parameters."""

    def __init__(self, parameters: Parameters, arrays: Arrays) -> None:
        bits = [*parameters.modulus_bits]
        self._context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, RING_SIZE, coeff_mod_bit_sizes=bits)
        self._context.global_scale = 2.0**parameters.scale_bits
        self._context.generate_galois_keys()
        x = arrays["x"]
        self._columns, self._unit = x.shape[1], len(x) / 2
        self._x = self._encrypted(x, batch=True)
        self._w = self._encrypted(np.broadcast_to(arrays["w"].T, x.shape), batch=True)
        # It has no axis but the rows, as sums along an inner axis of size 1 are wrong.
        self._target = self._encrypted((arrays["y"] - arrays.get("b", 0.0))[:, 0], batch=True)
        self._trained = {name: self._in_units(name, arrays) for name in ("w", "b") if name in arrays}

    def step(self) -> dict[str, _Trained]:
        """The new parameters and velocities, by the name of the parameter, in the first slot of their ciphertexts: no
        other is right after `sum_batch`.
        """
        residual = (self._x * self._w).sum(1)
        residual -= self._target
        products = residual.reshape([1]).broadcast([self._columns])
        products *= self._x
        found = {"w": self._updated("w", products.sum_batch())}
        if "b" in self._trained:
            found["b"] = self._updated("b", residual.sum_batch().reshape([1]))
        return found

    def decrypted(self, found: dict[str, _Trained]) -> Arrays:
        """The results by name."""
        arrays = {}
        for name, trained in found.items():
            velocity, value = [np.array(tensor.decrypt().tolist()) for tensor in trained]
            shape = (self._columns, 1) if name == "w" else (1,)
            arrays[f"{name}.velocity"] = velocity.reshape(shape) / self._unit
            arrays[name] = value.reshape(shape) * (RATE / self._unit)
        return arrays

    def _updated(self, name: str, gradient: Any) -> _Trained:
        velocity = gradient + self._trained[name].velocity
        return _Trained(velocity, self._trained[name].value - velocity)

    def _in_units(self, name: str, arrays: Arrays) -> _Trained:
        velocity = arrays[f"{name}.velocity"] * (self._unit * MOMENTUM)
        value = arrays[name] * (self._unit / RATE)
        return _Trained(self._encrypted(velocity.ravel()), self._encrypted(value.ravel()))

    def _encrypted(self, array: Array, batch: bool = False) -> Any:
        plain = tenseal.plain_tensor(array.ravel().tolist(), list(array.shape))
        return tenseal.ckks_tensor(self._context, plain, batch=batch)
