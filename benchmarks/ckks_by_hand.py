"""The encrypted step as a person writes it for the CKKS library, with everything simplified on paper.

The packing is that of the plan: sixteen columns of 512 rows in a ciphertext, weights and residuals repeated. The client
spares the server all work that it can: it encrypts data for the gradient once more at the lower modulus, leaves the
padding of everything zero, and scales velocities and weights to what the gradient comes in.
"""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import numpy as np

from benchmarks.ckks_session import MOMENTUM, RATE, ROWS, Array, Arrays, Session
from tinychain.autodiff.backends.ckks.library import Ciphertext, from_bytes, seal, to_bytes

_COLUMNS, _SLOT_ROWS = 16, 512
_BLOCKS: Final = (0, 1)
_OVER_COLUMNS: Final = (4096, 2048, 1024, 512)
_OVER_ROWS: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)


class _Trained(NamedTuple):
    """A parameter and its velocity, both in units of what the gradient comes in."""

    velocity: Ciphertext
    value: Ciphertext


class ByHand:
    """Computes the step of a session with its keys, on ciphertexts of its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._library = seal.Evaluator(session.keys.moduli.context)
        self._scales = session.keys.moduli.scales
        arrays = session.arrays
        x, w = arrays["x"], np.broadcast_to(arrays["w"].T, arrays["x"].shape)
        velocity = np.broadcast_to(arrays["w.velocity"].T, x.shape)
        self._x = [self._encrypt(x, block, 0) for block in _BLOCKS]
        self._x_again = [self._encrypt(x, block, 1) for block in _BLOCKS]
        self._w = [self._encrypt(w, block, 0) for block in _BLOCKS]
        self._labels = self._encrypt(np.repeat(arrays["y"], _COLUMNS, axis=1), 0, 1)
        self._w_trained = [self._trained(velocity, w, block, 1.0) for block in _BLOCKS]
        self._bias: Ciphertext | None = None
        if "b" in arrays:
            b, velocity = [np.full((ROWS, _COLUMNS), arrays[name]) for name in ("b", "b.velocity")]
            self._bias = self._encrypt(b, 0, 1)
            # Its gradient is never multiplied, and keeps the scale of the depth above.
            self._b_unit = self._scales[1] / self._scales[2]
            self._b_trained = self._trained(velocity, b, 0, self._b_unit)

    def step(self) -> dict[str, list[_Trained]]:
        """The new parameters and velocities, by the name of the parameter."""
        residual = self._residual()
        found = {"w": [self._w_step(block, residual) for block in _BLOCKS]}
        return found if self._bias is None else {**found, "b": [self._b_step(residual)]}

    def step_in_two_processes(self) -> dict[str, list[_Trained]]:
        """The same; half of the gradient is computed by a fork, which has the residual without being sent it."""
        residual = self._residual()
        fork = get_context("fork")
        receiver, sender = fork.Pipe(duplex=False)
        process = fork.Process(target=self._send_w_step, args=(sender, residual))
        process.start()
        found = {"w": [self._w_step(0, residual)]}
        if self._bias is not None:
            found["b"] = [self._b_step(residual)]
        context = self._session.keys.moduli.context
        received = [from_bytes("ciphertext", context, receiver.recv_bytes()) for _ in _Trained._fields]
        found["w"].append(_Trained(*received))
        process.join()
        return found

    def decrypted(self, found: dict[str, list[_Trained]]) -> Arrays:
        """The results by name."""
        velocity, w = self._values(found["w"], 1.0)
        columns = len(self._session.arrays["w"])
        arrays = {"w.velocity": velocity[:columns, None], "w": w[:columns, None]}
        if "b" in found:
            velocity, b = self._values(found["b"], self._b_unit)
            arrays |= {"b.velocity": velocity[:1], "b": b[:1]}
        return arrays

    # ------------------------------------------------------------------------------------------------------ the server

    def _residual(self) -> Ciphertext:
        """x w + b - y in all columns, at depth 1."""
        library, keys = self._library, self._session.keys
        found, other = seal.Ciphertext(), seal.Ciphertext()
        library.multiply(self._x[0], self._w[0], found)
        library.multiply(self._x[1], self._w[1], other)
        library.add_inplace(found, other)
        library.relinearize_inplace(found, keys.relinearization)  # the other order is too imprecise before a product
        library.rescale_to_next_inplace(found)
        self._sum(found, _OVER_COLUMNS)
        if self._bias is not None:
            library.add_inplace(found, self._bias)
        library.sub_inplace(found, self._labels)
        return found

    def _w_step(self, block: int, residual: Ciphertext) -> _Trained:
        library, gradient = self._library, seal.Ciphertext()
        library.multiply(self._x_again[block], residual, gradient)
        library.rescale_to_next_inplace(gradient)  # first, as switching keys is faster with a prime less
        library.relinearize_inplace(gradient, self._session.keys.relinearization)
        self._sum(gradient, _OVER_ROWS)
        return self._update(self._w_trained[block], gradient)

    def _b_step(self, residual: Ciphertext) -> _Trained:
        """Spoils the residual."""
        self._library.mod_switch_to_next_inplace(residual)
        self._sum(residual, _OVER_ROWS)
        residual.scale = self._scales[2]
        return self._update(self._b_trained, residual)

    def _update(self, trained: _Trained, gradient: Ciphertext) -> _Trained:
        """Spoils the gradient."""
        value = seal.Ciphertext()
        self._library.add_inplace(gradient, trained.velocity)
        self._library.sub(trained.value, gradient, value)
        return _Trained(gradient, value)

    def _sum(self, ciphertext: Ciphertext, steps: tuple[int, ...]) -> None:
        turned = seal.Ciphertext()
        for step in steps:
            self._library.rotate_vector(ciphertext, step, self._session.keys.galois, turned)
            self._library.add_inplace(ciphertext, turned)

    def _send_w_step(self, sender: Connection, residual: Ciphertext) -> None:
        for ciphertext in self._w_step(1, residual):
            sender.send_bytes(to_bytes(ciphertext))

    # ------------------------------------------------------------------------------------------------------ the client

    def _encrypt(self, matrix: Array, block: int, depth: int) -> Ciphertext:
        slots = np.zeros((_COLUMNS, _SLOT_ROWS))
        columns = matrix[:, _COLUMNS * block : _COLUMNS * (block + 1)].T
        slots[: len(columns), :ROWS] = columns
        return self._session.encrypt(slots.ravel(), depth)

    def _trained(self, velocity: Array, value: Array, block: int, unit: float) -> _Trained:
        unit *= ROWS / 2
        return _Trained(
            self._encrypt(velocity * (unit * MOMENTUM), block, 2), self._encrypt(value * (unit / RATE), block, 2)
        )

    def _values(self, trained: list[_Trained], unit: float) -> tuple[Array, Array]:
        unit *= ROWS / 2
        velocity, value = [
            np.concatenate([self._session.decrypt(ciphertext)[::_SLOT_ROWS] for ciphertext in ciphertexts])
            for ciphertexts in zip(*trained, strict=True)
        ]
        return velocity / unit, value * (RATE / unit)
