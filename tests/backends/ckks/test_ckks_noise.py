"""Predicted noise against measured: within a factor of 1.5 above, and as close below as the bounds of values are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ckks_circuits import SMALL, Building, Session, Slots, session
from tinychain.autodiff.backends.ckks.circuit import Circuit
from tinychain.autodiff.backends.ckks.noise import output_noise
from tinychain.autodiff.backends.ckks.parameters import Parameters

#: The base is as large as the special prime, so that the noise of rotations depends on the slot.
UNBALANCED = Parameters(2048, 40, (60,), 1, 60, secure=False)


def slots(seed: int, ring_size: int = 2048) -> Slots:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, ring_size // 2)


def measured_over_predicted(build: Callable[[Building], int], parameters: Parameters, sides: Session) -> float:
    building = Building()
    position = build(building)
    building.output(position)
    error = sides.run(building)["result"] - building.slots[position]
    return float(np.std(error)) / output_noise(building.circuit, parameters, building.intervals)["result"]


def squares(b: Building, x: int, times: int) -> int:
    for _ in range(times):
        x = b.settle(b.square(x))
    return x


def summed(b: Building, x: int) -> int:
    for steps in (1, 2, 4):
        x = b.add(x, b.rotate(x, steps))
    return x


#: Each with the least part of the prediction that is measured: products enter with the bounds of values.
CIRCUITS: dict[str, tuple[Callable[[Building], int], float]] = {
    "encryption": (lambda b: b.input("x", slots(1)), 0.85),
    "encryption at a depth": (lambda b: b.input("x", slots(1), 3), 0.85),
    "independent sum": (lambda b: b.add(b.input("x", slots(1)), b.input("y", slots(2))), 0.85),
    "sum of the same": (lambda b: b.add(b.input("x", slots(1)), 0), 0.85),
    "plain sum": (lambda b: b.add_plain(b.input("x", slots(1)), slots(2)), 0.85),
    "rescaling": (lambda b: b.settle(b.multiply_number(b.input("x", slots(1)), 0.5)), 0.8),
    "rescaling of three polynomials": (lambda b: b.rescale(b.square(b.input("x", slots(1)))), 0.6),
    "after a change of depth": (
        lambda b: b.settle(b.multiply_plain(b.switch(b.input("x", slots(1)), 3), slots(2))),
        0.75,
    ),
    "rotation": (lambda b: b.rotate(b.input("x", slots(1)), 4), 0.75),
    "rotations and sums": (lambda b: summed(b, b.input("x", slots(1))), 0.6),
    "product before relinearization": (lambda b: b.multiply(b.input("x", slots(1)), b.input("y", slots(2))), 0.4),
    "product": (lambda b: b.settle(b.multiply(b.input("x", slots(1)), b.input("y", slots(2)))), 0.7),
    "product by a large number": (lambda b: b.settle(b.multiply_number(b.input("x", slots(1)), 1000.0)), 0.8),
    "product with a plain tensor": (lambda b: b.settle(b.multiply_plain(b.input("x", slots(1)), slots(2), 50.0)), 0.4),
    "squares of squares": (lambda b: squares(b, b.input("x", slots(1)), 4), 1 / 30),
}


@pytest.mark.parametrize("name", CIRCUITS)
def test_prediction(name: str) -> None:
    build, least = CIRCUITS[name]
    assert least < measured_over_predicted(build, SMALL, session()) < 1.5


def test_the_first_slot_is_the_one_predicted_where_rotations_spare_it_least() -> None:
    """Its error is the same in every rotation by a key, so that only many keys would show its deviation."""
    sides = session(UNBALANCED)
    building = Building()
    building.output(building.rotate(building.input("x", slots(1)), 4))
    predicted = output_noise(building.circuit, UNBALANCED, ())["result"]
    errors = np.abs(sides.run(building)["result"] - building.slots[1])
    assert errors[0] < 5 * predicted
    assert np.median(errors[8:]) < predicted / 20


def test_a_larger_special_prime_spares_the_first_slot() -> None:
    building = Building()
    building.output(building.rotate(building.input("x", slots(1)), 4))
    noise = {
        special: output_noise(building.circuit, Parameters(2048, 40, (48,), 1, special, secure=False), ())["result"]
        for special in (48, 58)
    }
    assert noise[58] < noise[48] / 20


def test_errors_of_one_origin_add_up_and_others_do_so_in_quadrature() -> None:
    building = Building()
    x, y = building.input("x", slots(1)), building.input("y", slots(2))
    building.output(x, "one")
    building.output(building.add(x, y), "two")
    building.output(building.sub(building.negate(x), x), "twice")
    noise = output_noise(building.circuit, SMALL, ())
    assert noise["two"] == pytest.approx(2**0.5 * noise["one"])
    assert noise["twice"] == pytest.approx(2 * noise["one"])


def test_an_output_has_the_noise_of_its_worst_block_times_its_factor() -> None:
    building = Building()
    x = building.input("x", slots(1))
    building.output(x, "fresh")
    building.output(building.rotate(x, 1), "rotated")
    building.output(x, "scaled", factor=-3.0)
    rotated, fresh = building.outputs["rotated"], building.outputs["fresh"]
    building.outputs["both"] = fresh._replace(blocks={0: x, 1: x + 1})
    noise = output_noise(building.circuit, SMALL, ())
    assert noise["scaled"] == pytest.approx(3 * noise["fresh"])
    assert noise["both"] == noise["rotated"] > noise["fresh"]
    assert rotated.factor == 1.0


def test_a_circuit_without_outputs_has_no_noise() -> None:
    assert output_noise(Circuit((), {}), SMALL, ()) == {}
