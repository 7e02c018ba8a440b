"""Which layout: the one whose circuit should take the least time, of the orders in which indices can share an address.

Low bits go to the index that is first in an order, and what is above the slots selects ciphertexts. The best order
depends on everything: summing over ciphertexts is free, summing over the highest slots leaves repetitions, which the
next product may need, and all other sums leave garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import Final

from tinychain.autodiff.backends.ckks.circuit import Circuit, Kind
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.errors import AutodiffError

#: With more indices than this, only the first and the last one of an order are tried out, and only the largest ones.
_ALL_ORDERS: Final = 4

#: What a signed integer of 64 bits holds.
_MOST_ADDRESS_BITS: Final = 62

#: Nanoseconds for each coefficient and prime, measured once with the library on a common server core. A key switch,
#: which relinearizing and rotating are, takes them for each coefficient and pair of primes, and a plaintext of many
#: numbers once more for each coefficient. They compare circuits; a calibration predicts seconds.
_LINEAR: Final[Mapping[Kind, float]] = {
    Kind.ADD: 2.6,
    Kind.SUB: 2.6,
    Kind.NEGATE: 1.5,
    Kind.ADD_PLAIN: 3.0,
    Kind.MULTIPLY: 14.0,
    Kind.SQUARE: 10.0,
    Kind.MULTIPLY_PLAIN: 6.5,
    Kind.MULTIPLY_NUMBER: 6.5,
    Kind.RESCALE: 26.0,
}
_KEY_SWITCH: Final = 22.0
_ENCODE: Final = 90.0


def nominal_seconds(circuit: Circuit, ring_size: int, base_primes: int) -> float:
    """The time of a circuit on a nominal machine, to compare layouts and rings with."""
    total = 0.0
    for instruction in circuit.instructions:
        primes = base_primes + circuit.depth - instruction.depth
        if instruction.kind in (Kind.ROTATE, Kind.RELINEARIZE):
            total += _KEY_SWITCH * primes * (primes + 1)
        total += _LINEAR.get(instruction.kind, 0.0) * primes * instruction.size / 2
        if instruction.plain is not None and not instruction.plain.is_number:
            total += _ENCODE
    return total * ring_size * 1e-9


def layouts(sizes: Mapping[int, int], slot_bits: int) -> Iterator[Layout]:
    """The layouts that are worth a try, for indices of these sizes.

    Raises unsupported_layout where these need more address bits together than a machine integer has.
    """
    needed = sum([(size - 1).bit_length() for size in sizes.values()])
    if needed > _MOST_ADDRESS_BITS:
        raise AutodiffError(
            "unsupported_layout",
            f"{len(sizes)} indices of the tensors need {needed} address bits together, and a packed layout has"
            f" {_MOST_ADDRESS_BITS}: each has bits of its own; take fewer or shorter axes",
        )
    for order in _orders(sizes):
        places, bit = {}, 0
        for index in order:
            bits = (sizes[index] - 1).bit_length()
            places[index] = tuple(range(bit, bit + bits))
            bit += bits
        yield Layout(slot_bits, places, dict(sizes))


def cheapest(
    circuits: Callable[[Layout], Circuit], candidates: Iterator[Layout], ring_size: int
) -> tuple[Layout, Circuit]:
    """The layout whose circuit takes the least nominal time, the first of equals, and the circuit.

    A layout may have no circuit, such as one of too many operations. Where none has, raises what the first one did.
    """
    best: tuple[float, Layout, Circuit] | None = None
    refusal: AutodiffError | None = None
    for layout in candidates:
        try:
            circuit = circuits(layout)
        except AutodiffError as error:
            refusal = refusal or error
            continue
        seconds = nominal_seconds(circuit, ring_size, base_primes=2)
        if best is None or seconds < best[0]:
            best = seconds, layout, circuit
    if best is None:
        assert refusal is not None  # there is always an order
        raise refusal
    return best[1:]


def _orders(sizes: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
    if len(sizes) <= _ALL_ORDERS:
        yield from permutations(sizes)
        return
    largest = sorted(sizes, key=lambda index: -sizes[index])[:_ALL_ORDERS]
    for first, last in permutations(largest, 2):
        yield (first, *[index for index in sizes if index not in (first, last)], last)
