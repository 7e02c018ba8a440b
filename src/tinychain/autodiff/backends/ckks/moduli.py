"""The primes of a ring, and the exact scale of every depth.

A rescaling divides the scale by a prime and not by a power of two, and what is left over doubles from depth to depth.
So the prime of each depth is the one that brings the scale closest to where it began.
"""

from __future__ import annotations

from collections.abc import Collection
from math import log2, prod

from tinychain.autodiff.backends.ckks.library import Ciphertext, Plaintext, library_errors, seal
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.errors import AutodiffError


class Moduli:
    """The library's context and its `primes`, in the library's order; `scales` and `parms_ids` by depth.

    Equal parameters give equal moduli. Raises invalid_encryption_plan where a ring has too few primes of a size.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.primes, self.scales = _choose(parameters)
        encryption = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        encryption.set_poly_modulus_degree(parameters.ring_size)
        encryption.set_coeff_modulus([seal.Modulus(prime) for prime in self.primes])
        level = seal.SEC_LEVEL_TYPE.TC128 if parameters.secure else seal.SEC_LEVEL_TYPE.NONE
        self.context = seal.SEALContext(encryption, True, level)
        if not self.context.parameters_set():
            reason = self.context.parameters_error_message()
            raise AutodiffError("invalid_encryption_plan", f"the library refuses {parameters}: {reason}")
        self.encoder = seal.CKKSEncoder(self.context)
        at = self.context.first_context_data()
        self.parms_ids = [at.parms_id()]
        for _ in range(parameters.depth):
            at = at.next_context_data()
            self.parms_ids.append(at.parms_id())

    def __repr__(self) -> str:
        return f"Moduli({self.parameters})"

    def encode(self, values: list[float] | float, depth: int, scale: float, what: str) -> Plaintext:
        """A number for each slot, or one for all, as a plaintext. `what` is for messages, which quote no value.

        Raises value_out_of_range for what is not finite or too large for the modulus of this depth.
        """
        plaintext = seal.Plaintext()
        with library_errors("value_out_of_range", f"encoding {what} at depth {depth}"):
            self.encoder.encode(values, self.parms_ids[depth], scale, plaintext)
        return plaintext

    def check_fresh(self, ciphertext: Ciphertext, depth: int, what: str) -> None:
        """Raises invalid_message for a ciphertext that is not one as a client encrypts at this depth."""
        if (
            ciphertext.parms_id() != self.parms_ids[depth]
            or ciphertext.scale != self.scales[depth]
            or ciphertext.size() != 2
        ):
            raise AutodiffError("invalid_message", f"{what} is no ciphertext as a client encrypts at depth {depth}")


def _choose(parameters: Parameters) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The primes, in the library's order, and the scales by depth."""
    step = 2 * parameters.ring_size
    ideal = 1 << parameters.scale_bits
    scales = [float(ideal)]
    dropped: list[int] = []
    for _ in range(parameters.depth):
        prime = _nearest(round(scales[-1] ** 2 / ideal), step, dropped)
        dropped.append(prime)
        scales.append(scales[-1] ** 2 / prime)
    base: list[int] = []
    for bits in parameters.base_bits:
        base.append(_largest(1 << bits, step, [*dropped, *base]))
    kept = [*base, *dropped[::-1]]
    # Primes above the ideal must not make the product longer than the bits that are declared, and that were judged.
    special = _largest(min(1 << parameters.special_bits, (1 << parameters.total_bits) // prod(kept)), step, kept)
    return (*kept, special), tuple(scales)


def _nearest(target: int, step: int, taken: Collection[int]) -> int:
    """The prime of the form 1 + k * step that is closest to the target."""
    below = target - (target - 1) % step
    above = below + step
    for _ in range(target // (2 * step)):
        if target - below <= above - target:
            candidate, below = below, below - step
        else:
            candidate, above = above, above + step
        if candidate not in taken and seal.Modulus(candidate).is_prime():
            return candidate
    raise _none_left(target, step)


def _largest(bound: int, step: int, taken: Collection[int]) -> int:
    """The greatest prime of the form 1 + k * step that is at most the bound, and more than half of it."""
    first = bound - (bound - 1) % step
    for candidate in range(first, bound // 2, -step):
        if candidate not in taken and seal.Modulus(candidate).is_prime():
            return candidate
    raise _none_left(bound, step)


def _none_left(target: int, step: int) -> AutodiffError:
    return AutodiffError(
        "invalid_encryption_plan",
        f"a ring of {step // 2} has too few primes of {round(log2(target))} bits; take more bits or a smaller ring",
    )
