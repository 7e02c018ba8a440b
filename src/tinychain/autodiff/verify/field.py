"""A prime field of random size-`bits` order, its tensors (NumPy arrays of elements), and random functions over it.

python-flint does the modular arithmetic; NumPy moves and broadcasts the elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from hashlib import shake_256
from math import prod
from random import Random
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

try:
    from flint import fmpz, fmpz_mod_ctx, fmpz_mod_mat
except ImportError as error:
    raise ImportError(
        f"tinychain.autodiff.verify needs python-flint: pip install 'tinychain-autodiff[verify]' ({error})"
    ) from error

Elements: TypeAlias = NDArray[Any]


class Field:
    """The integers modulo a prime that `random` draws, uniformly, from those of exactly `bits` bits.

    Elements do +, -, * and / themselves; division by zero raises ZeroDivisionError.
    """

    def __init__(self, bits: int, random: Random) -> None:
        self._random = random
        self.prime = _draw_prime(bits, random)
        self._element = fmpz_mod_ctx(self.prime)
        self._key = random.randbytes(32)
        self._digest_size = bits // 8 + 32  # long enough that the remainder is uniform

    def constant(self, number: Fraction) -> Any:
        """The element for a fraction; ZeroDivisionError where the prime divides its denominator."""
        return self._element(number.numerator) / self._element(number.denominator)

    def draw(self, shape: Sequence[int]) -> Elements:
        """A tensor of independent, uniformly random elements."""
        return self.tensor([self._random.randrange(self.prime) for _ in range(prod(shape))], shape)

    def tensor(self, numbers: Iterable[Any], shape: Sequence[int]) -> Elements:
        """A tensor of ints or elements, given in row-major order."""
        result = np.empty(prod(shape), dtype=object)
        result[:] = [self._element(number) for number in numbers]
        return result.reshape(shape)

    def random_function(self, name: str, arguments: Iterable[int]) -> Any:
        """The value of the random function `name` at a point: the same for the same arguments, else independent."""
        text = f"{name}({','.join(map(hex, arguments))})"
        digest = shake_256(self._key + text.encode("utf-8", "surrogatepass")).digest(self._digest_size)
        return self._element(int.from_bytes(digest, "big"))

    def matmul(self, x: Elements, y: Elements) -> Elements:
        """[..., m, k] @ [..., k, n] with broadcast batch dims."""
        (rows, inner), columns = x.shape[-2:], y.shape[-1]
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        xs = np.broadcast_to(x, (*batch, rows, inner)).reshape(prod(batch), rows * inner)
        ys = np.broadcast_to(y, (*batch, inner, columns)).reshape(prod(batch), inner * columns)
        products: list[Any] = []
        for a, b in zip(xs, ys, strict=True):
            left = fmpz_mod_mat(rows, inner, a.tolist(), self._element)
            right = fmpz_mod_mat(inner, columns, b.tolist(), self._element)
            products += (left * right).entries()
        return self.tensor(products, (*batch, rows, columns))


def integers(elements: Elements) -> list[int]:
    """The elements as ints from 0 to prime - 1, in row-major order."""
    return list(map(int, elements.ravel().tolist()))


def _draw_prime(bits: int, random: Random) -> int:
    # Baillie-PSW decides: a proof below 64 bits, and no exception is known above.
    while True:
        number = random.getrandbits(bits) | 1 << (bits - 1) | 1
        if fmpz(number).is_probable_prime():
            return number
