"""Costs: counts and bytes exactly, seconds from a calibration, and calibrations as documents."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ckks_circuits import ROTATIONS, SMALL, Building, Slots, session
from tinychain.autodiff.backends.ckks.calibration import DECRYPT, ENCRYPT, READ, WRITE, Calibration, measure
from tinychain.autodiff.backends.ckks.circuit import Kind
from tinychain.autodiff.backends.ckks.costs import key_bytes, predict
from tinychain.autodiff.backends.ckks.evaluator import ENCODE, ENCODE_NUMBER
from tinychain.autodiff.backends.ckks.keys import SecretKeys
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.errors import AutodiffError

#: What a step of training might use, and what it takes to be timed without the noise of a small one.
SECURE = Parameters(8192, 36, (46,), 3, 56)

OTHERS = [ENCODE, ENCODE_NUMBER, ENCRYPT, DECRYPT, READ, WRITE]
NAMES = [*[kind.value for kind in Kind if kind is not Kind.INPUT], *OTHERS]


def seconds_of(ring_size: int = 2048, **names: float) -> Calibration:
    """So many seconds for each prime, and none for what is not named."""
    return Calibration(ring_size, {name: ((1, names.get(name, 0.0)),) for name in NAMES})


def slots(seed: int, ring_size: int) -> Slots:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, ring_size // 2)


def regression(ring_size: int) -> Building:
    """Some fifty operations: predictions of a linear model, and products of what they miss with the data."""
    building = Building()
    columns = [building.input(f"x{at}", slots(at, ring_size)) for at in range(4)]
    weights = [building.input(f"w{at}", slots(10 + at, ring_size)) for at in range(4)]
    total = building.multiply(columns[0], weights[0])
    for column, weight in zip(columns[1:], weights[1:], strict=True):
        total = building.add(total, building.multiply(column, weight))
    predicted = building.settle(total)
    for steps in ROTATIONS:
        predicted = building.add(predicted, building.rotate(predicted, steps))
    missed = building.settle(building.square(building.add_plain(predicted, slots(20, ring_size))))
    for at, column in enumerate(columns[:3]):
        change = building.settle(building.multiply_plain(building.switch(column, 2), slots(21 + at, ring_size), 0.5))
        change = building.sub(change, building.rescale(building.multiply_number(missed, 0.25)))
        building.output(building.add(change, building.rotate(change, 2)), f"w{at}")
    return building


def test_the_counts_are_those_of_the_circuit() -> None:
    cost = predict(regression(2048).circuit, SMALL, seconds_of())
    assert cost.counts["add"] == 12
    assert cost.levels == 3
    assert (cost.input_ciphertexts, cost.output_ciphertexts) == (8, 3)
    assert (cost.secret_multiplications, cost.plain_multiplications) == (5, 6)
    assert (cost.rotations, cost.relinearizations) == (9, 2)


def test_the_bytes_of_ciphertexts_are_those_that_a_run_measures() -> None:
    building = regression(2048)
    cost = predict(building.circuit, SMALL, seconds_of())
    measured = session().execute(building).measured
    assert (cost.peak_ciphertexts, cost.ciphertext_bytes) == (measured.peak_ciphertexts, measured.peak_bytes)


def test_the_bytes_of_keys_are_two_polynomials_for_each_digit() -> None:
    assert key_bytes(SMALL, 3) == 4 * 5 * 2 * 8 * 2048 * 6
    cost = predict(regression(2048).circuit, SMALL, seconds_of())
    assert cost.key_bytes == key_bytes(SMALL, len(ROTATIONS))
    assert cost.peak_bytes == cost.key_bytes + cost.ciphertext_bytes + cost.key_message_bytes


@pytest.mark.parametrize("parameters", [SMALL, SECURE, Parameters(4096, 30, (40, 40), 3, 60, secure=False)])
def test_the_message_with_the_keys_is_as_long_as_predicted(parameters: Parameters) -> None:
    building = Building()
    x = building.input("x", slots(1, parameters.ring_size))
    building.output(building.rotate(building.rotate(x, 1), 2))
    message = SecretKeys.generate(parameters, [1, 2]).evaluation_keys
    predicted = predict(building.circuit, parameters, seconds_of(parameters.ring_size)).key_message_bytes
    assert len(message) == pytest.approx(predicted, rel=0.2)


def test_seconds_are_by_the_primes_and_polynomials_of_the_operand() -> None:
    building = Building()
    x = building.input("x", slots(1, 2048), 1)
    product = building.multiply(x, x)
    building.output(building.settle(building.add(product, product)))
    calibration = seconds_of(multiply=1.0, add=10.0, relinearize=100.0, rescale=1000.0, encrypt=0.5, decrypt=0.25)
    cost = predict(building.circuit, SMALL, calibration)
    assert cost.seconds == pytest.approx(4 * (1.0 + 15.0 + 100.0 + 1000.0))
    assert cost.client_seconds == pytest.approx(4 * 0.5 + 3 * 0.25)


def test_what_is_sent_once_is_not_read_again() -> None:
    building = Building()
    product = building.multiply(building.input("x", slots(1, 2048), 1), building.input("w", slots(2, 2048), 1))
    building.output(building.settle(product))
    calibration = seconds_of(read=1.0, write=10.0, encrypt=0.5, multiply=100.0)
    cost = predict(building.circuit, SMALL, calibration, sent_once=["x"])
    assert cost.transfer_seconds == pytest.approx(4 * 1.0 + 3 * 10.0)
    assert cost.server_seconds == pytest.approx(4 * 101.0 + 3 * 10.0)
    assert cost.client_seconds == pytest.approx(4 * 0.5)


def test_known_plaintexts_are_encoded_once_and_kept_as_far_as_there_is_room() -> None:
    building = Building()
    x = building.input("x", slots(1, 2048))
    for tensor in (slots(2, 2048), slots(3, 2048)):
        building.output(building.settle(building.multiply_plain(x, tensor)))
    calibration = seconds_of(encode=1.0)
    unknown = predict(building.circuit, SMALL, calibration)
    assert (unknown.seconds, unknown.encoding_seconds, unknown.plaintext_bytes) == (10.0, 0.0, 0)
    known = predict(building.circuit, SMALL, calibration, known=(0, 1))
    assert (known.seconds, known.encoding_seconds, known.plaintext_bytes) == (0.0, 10.0, 2 * 5 * 8 * 2048)
    full = predict(building.circuit, SMALL, calibration, known=(0, 1), cache_bytes=5 * 8 * 2048)
    assert (full.seconds, full.encoding_seconds, full.plaintext_bytes) == (5.0, 5.0, 5 * 8 * 2048)


def test_the_table_has_the_figures() -> None:
    cost = predict(regression(2048).circuit, SMALL, seconds_of(rotate=0.1))
    rows = [line.split() for line in str(cost).splitlines()]
    assert ["cost", "predicted"] in rows
    assert ["rotations", "9"] in rows
    assert ["peak", "MiB", f"{cost.peak_bytes / 2**20:.1f}"] in rows
    assert ["seconds", "3.000"] in rows


def test_a_calibration_is_read_between_and_beyond_what_was_measured() -> None:
    calibration = Calibration(2048, {"rotate": ((2, 1.0), (4, 3.0))})
    assert [calibration.at("rotate", primes) for primes in (1, 2, 3, 4, 8)] == [0.5, 1.0, 2.0, 3.0, 6.0]


def test_a_calibration_has_everything_and_comes_back_from_its_document() -> None:
    calibration = measure(Parameters(1024, 30, (40,), 2, 50, secure=False))
    assert list(calibration.seconds) == NAMES
    assert [primes for primes, _ in calibration.seconds["rotate"]] == [1, 2, 3]
    assert all(seconds > 0 for column in calibration.seconds.values() for _, seconds in column)
    assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"ring_size": 8, "seconds": {}}', "[" * 100_000, '{"ring_size": 8, "seconds": 1}']
)
def test_a_text_that_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(AutodiffError, match="this is no calibration") as caught:
        Calibration.from_json(text)
    assert caught.value.category == "invalid_artifact_file"


@pytest.mark.parametrize("column", [[], [[0, 1.0]], [[1, -1.0]], [[1, float("nan")]], [[1]], ["x"], [[1, 1e999]]])
def test_a_calibration_with_bad_figures_is_refused(column: list[object]) -> None:
    data = json.loads(seconds_of().to_json())
    data["seconds"]["add"] = column
    with pytest.raises(AutodiffError, match="this is no calibration"):
        Calibration.from_json(json.dumps(data))


def test_a_calibration_predicts_for_its_ring_alone_and_needs_a_depth() -> None:
    with pytest.raises(AutodiffError, match="of a ring of 2048 and predicts nothing for one of 8192") as caught:
        predict(regression(2048).circuit, SECURE, seconds_of())
    assert caught.value.category == "invalid_encryption_plan"
    with pytest.raises(AutodiffError, match="a calibration needs parameters of depth 1 at least"):
        measure(Parameters(2048, 20, (30,), 0, 40, secure=False))
