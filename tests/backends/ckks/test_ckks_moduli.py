"""Primes and scales: scales stay where they began, and what is declared is not exceeded."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tinychain.autodiff.backends.ckks.moduli import Moduli
from tinychain.autodiff.backends.ckks.parameters import SECURE_BITS, Parameters
from tinychain.autodiff.errors import AutodiffError

DEEP = Parameters(16384, 30, (40,), 11, 60)
SHALLOW = Parameters(2048, 40, (50,), 2, 60, secure=False)


@pytest.mark.parametrize(("parameters", "drift"), [(DEEP, 1e-2), (SHALLOW, 1e-6)])
def test_the_scale_of_every_depth_is_near_that_of_the_first(parameters: Parameters, drift: float) -> None:
    scales = np.array(Moduli(parameters).scales)
    assert scales[0] == 2.0**parameters.scale_bits
    assert len(scales) == parameters.depth + 1
    assert np.max(np.abs(scales / scales[0] - 1)) < drift


def test_a_scale_is_the_square_of_the_last_one_over_the_prime_that_is_dropped() -> None:
    moduli = Moduli(SHALLOW)
    base, dropped_second, dropped_first, special = moduli.primes
    assert moduli.scales[1] == moduli.scales[0] ** 2 / dropped_first
    assert moduli.scales[2] == moduli.scales[1] ** 2 / dropped_second
    assert (base.bit_length(), special.bit_length()) == (50, 60)


def test_all_primes_are_different_and_suit_the_ring() -> None:
    primes = Moduli(DEEP).primes
    assert len({*primes}) == len(primes) == 13
    assert {prime % (2 * DEEP.ring_size) for prime in primes} == {1}


def test_the_product_has_no_more_bits_than_were_declared() -> None:
    full = Parameters(8192, 40, (38, 60), 1, 60, secure=False)
    assert full.total_bits == 198
    exact = Parameters(8192, 49, (60,), 1, 60)
    assert exact.total_bits < SECURE_BITS[8192]
    for parameters in (full, exact, DEEP):
        assert prod(Moduli(parameters).primes).bit_length() <= parameters.total_bits


def test_equal_parameters_give_equal_moduli() -> None:
    assert Moduli(DEEP).primes == Moduli(DEEP).primes


def test_a_ring_with_too_few_primes_is_refused() -> None:
    with pytest.raises(AutodiffError, match="too few primes of 20 bits; take more bits or a smaller ring") as caught:
        Moduli(Parameters(32768, 20, (40,), 20, 40))
    assert caught.value.category == "invalid_encryption_plan"


@pytest.mark.parametrize(
    ("values", "reason"),
    [([float("nan")], "finite"), (float("inf"), "finite"), ([1e9], "too large"), (1e9, "too large")],
)
def test_what_cannot_be_encoded_is_refused_without_its_value(values: list[float] | float, reason: str) -> None:
    moduli = Moduli(SHALLOW)
    with pytest.raises(AutodiffError) as caught:
        moduli.encode(values, 2, moduli.scales[2], "a weight")
    assert caught.value.category == "value_out_of_range"
    assert caught.value.message.startswith("encoding a weight at depth 2: ")
    assert reason in caught.value.message
    assert "e+09" not in caught.value.message
