"""Encryption parameters: what is refused, before a key is made, and what is read off them."""

from __future__ import annotations

from typing import Any

import pytest

from tinychain.autodiff.backends.ckks.library import seal
from tinychain.autodiff.backends.ckks.parameters import SECURE_BITS, Parameters
from tinychain.autodiff.errors import AutodiffError

GOOD: dict[str, Any] = {"ring_size": 8192, "scale_bits": 40, "base_bits": (50,), "depth": 2, "special_bits": 60}


def test_the_primes_are_in_the_order_in_which_they_are_dropped() -> None:
    parameters = Parameters(**{**GOOD, "base_bits": (25, 25)})
    assert parameters.modulus_bits == (25, 25, 40, 40, 60)
    assert parameters.total_bits == 190
    assert parameters.slot_bits == 12
    assert [parameters.primes_at(depth) for depth in (0, 1, 2)] == [4, 3, 2]


@pytest.mark.parametrize("ring_size", SECURE_BITS)
def test_the_limits_are_those_of_the_library(ring_size: int) -> None:
    assert SECURE_BITS[ring_size] == seal.CoeffModulus.MaxBitCount(ring_size, seal.SEC_LEVEL_TYPE.TC128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ring_size": 5000}, "ring_size must be one of [1024, 2048, 4096, 8192, 16384, 32768], got 5000"),
        ({"depth": -1}, "the depth is at least 0"),
        ({"base_bits": ()}, "the base needs a prime"),
        ({"scale_bits": 19}, "every modulus must have 20 to 60 bits, got [50, 19, 19, 60]"),
        ({"special_bits": 61}, "every modulus must have 20 to 60 bits"),
        ({"special_bits": 49}, "special_bits must be the most"),
        ({"base_bits": (40,)}, "scale_bits must be less than the base has, got 40 and 40"),
        ({"depth": 3}, "230 bits of moduli in a ring of 8192 are more than the 218 that have 128-bit security"),
    ],
)
def test_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        Parameters(**{**GOOD, **change})
    assert caught.value.category == "invalid_encryption_plan"
    assert message in caught.value.message


def test_the_limit_of_security_can_be_lifted_for_tests() -> None:
    assert Parameters(**{**GOOD, "depth": 9, "secure": False}).total_bits == 470
