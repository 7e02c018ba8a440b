"""The chosen parameters, against all others, and the plans that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import inf, log2, nan
from typing import Any

import pytest

from ckks_steps import MODELS, compiled
from tinychain.autodiff import AutodiffError
from tinychain.autodiff.backends.ckks.chooser import DEVIATIONS, SCALE_BITS, Chooser, Misfit
from tinychain.autodiff.backends.ckks.circuit import Circuit
from tinychain.autodiff.backends.ckks.noise import output_noise
from tinychain.autodiff.backends.ckks.parameters import SECURE_BITS, Parameters
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.planning import plan_training

RANGES: Mapping[str, Mapping[str, Any]] = {
    "linear": {
        **dict.fromkeys(["x", "y", "w", "b"], (-1.0, 1.0)),
        **dict.fromkeys(["w.velocity", "b.velocity"], (-4.0, 4.0)),
        "learning_rate": 0.1,
    },
    "logistic": {**dict.fromkeys(["x", "w"], (-1.0, 1.0)), "y": (0.0, 1.0), "learning_rate": (0.0, 1.0)},
    "network": {
        **dict.fromkeys(["x", "y", "w1", "b1", "w2"], (-1.0, 1.0)),
        **dict.fromkeys(["w1.velocity", "b1.velocity", "w2.velocity"], (-4.0, 4.0)),
        "learning_rate": 0.1,
    },
}


def planned(name: str, **changes: object) -> TrainingPlan:
    options = {"secret": MODELS[name].shapes, "ranges": RANGES[name], "precision": 1e-3, **changes}
    return plan_training(compiled(MODELS[name]), **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ brute force


def every_choice(circuit: Circuit, ring_size: int) -> Iterator[Parameters]:
    """All parameters that are secure, whose base is split evenly, in whole bits of each part."""
    for scale_bits, primes, margin in product(SCALE_BITS, (1, 2, 3), (0, 4, 8, 12)):
        for part in range(20, 61):
            special = min(60, max(part, scale_bits) + margin)
            base = (part,) * primes
            if sum(base) + circuit.depth * scale_bits + special <= SECURE_BITS[ring_size] and scale_bits < sum(base):
                yield Parameters(ring_size, scale_bits, base, circuit.depth, special)


def is_wide(circuit: Circuit, parameters: Parameters) -> bool:
    """Whether every value, at its scale and with its sign, is smaller than the modulus of its depth."""
    for instruction in circuit.instructions:
        modulus = sum(parameters.base_bits) + (circuit.depth - instruction.depth) * parameters.scale_bits
        scale = parameters.scale_bits * (2 if instruction.pending else 1)
        if instruction.reach and log2(instruction.reach) + scale + 1 > modulus - 1:
            return False
    return True


@pytest.mark.parametrize(("name", "precision"), [("linear", 1e-3), ("linear", 1e-7), ("network", 1e-2)])
def test_no_other_parameters_have_fewer_primes(name: str, precision: float) -> None:
    plan = planned(name, precision=precision)
    circuit, chosen, ring_size = plan.circuit, plan.parameters, plan.parameters.ring_size
    chooser = Chooser(circuit, plan.intervals, ring_size)
    assert is_wide(circuit, chosen)
    assert chooser.is_precise(chosen, precision)
    wide = [parameters for parameters in every_choice(circuit, ring_size) if is_wide(circuit, parameters)]
    fewer = [parameters for parameters in wide if len(parameters.base_bits) < len(chosen.base_bits)]
    assert not any(chooser.is_precise(parameters, precision) for parameters in fewer)
    smaller = [parameters for parameters in wide if parameters.total_bits < chosen.total_bits - len(chosen.base_bits)]
    equal = [parameters for parameters in smaller if len(parameters.base_bits) == len(chosen.base_bits)]
    assert not any(chooser.is_precise(parameters, precision) for parameters in equal)


def test_noise_falls_with_every_bit_of_the_scale() -> None:
    """What the bisection relies on."""
    plan = planned("network")
    noises = []
    for scale_bits in SCALE_BITS:
        parameters = replace(plan.parameters, scale_bits=scale_bits, special_bits=60, base_bits=(40, 40), secure=False)
        noises.append(max(output_noise(plan.circuit, parameters, plan.intervals).values()))
    assert noises == sorted(noises, reverse=True)


@pytest.mark.parametrize("exponent", range(-8, 0))
def test_the_least_scale_is_found_for_any_error_that_falls_with_it(exponent: int) -> None:
    plan, precision = planned("network"), 10.0**exponent

    def expected(parameters: Parameters) -> float:
        return 3e5 * 1.7**-parameters.scale_bits

    chosen = Chooser(plan.circuit, plan.intervals, 32768, expected).choose(precision)
    assert isinstance(chosen, Parameters)
    scales = [scale for scale in SCALE_BITS if 3e5 * 1.7**-scale <= precision]
    assert chosen.scale_bits == scales[0]


@pytest.mark.parametrize("error", [inf, nan, 1.0])
def test_what_is_precise_with_no_scale_does_not_fit(error: float) -> None:
    plan = planned("linear")
    misfit = Chooser(plan.circuit, plan.intervals, 16384, lambda _: error).choose(1e-3)
    assert str(misfit) == "ring 16384: no scale of up to 60 bits is precise enough"


def test_a_scale_may_be_given() -> None:
    plan = planned("network", scale_bits=33, precision=1e-12)
    assert plan.parameters.scale_bits == 33
    assert max(plan.noise.values()) * DEVIATIONS > 1e-12


def test_a_misfit_says_what_is_missing() -> None:
    plan = planned("network")
    chooser = Chooser(plan.circuit, plan.intervals, 8192)
    misfit = chooser.choose(1e-3, 60)
    assert isinstance(misfit, Misfit)
    assert str(misfit) == f"ring 8192: needs at least {misfit.bits} bits of moduli, and 218 are secure"
    assert misfit.depth == plan.circuit.depth


# ------------------------------------------------------------------------------------------------------------ plans


def test_equal_declarations_make_equal_plans() -> None:
    one, other = planned("linear"), planned("linear")
    assert one.fingerprint == other.fingerprint
    assert one.parameters == other.parameters


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": True},
        {"steps_per_refresh": 2},
        {"precision": 1e-6},
        {"ranges": {**RANGES["linear"], "x": (-1.0, 1.5)}},
        {"ranges": {**RANGES["linear"], "learning_rate": 0.2}},
        {"ring_sizes": [32768]},
    ],
)
def test_other_declarations_make_other_plans(changes: dict[str, object]) -> None:
    assert planned("linear").fingerprint != planned("linear", **changes).fingerprint


def test_what_is_known_beforehand_costs_no_level() -> None:
    known = planned("linear")
    told = planned("linear", ranges={**RANGES["linear"], "learning_rate": (0.0, 1.0)})
    assert (known.circuit.depth, told.circuit.depth) == (2, 3)
    assert (known.plain_inputs, told.plain_inputs) == ((), ("learning_rate",))


def test_only_the_needed_rotations_have_keys() -> None:
    plan = planned("linear")
    assert plan.circuit.rotations
    assert all(abs(steps).bit_count() == 1 for steps in plan.circuit.rotations)
    assert len(plan.circuit.rotations) <= sum(len(places) for places in plan.layout.places.values())


def test_a_plan_says_little_of_itself() -> None:
    assert repr(planned("linear")).startswith("<TrainingPlan of w, b: 1 step between refreshes, 2 levels, ring ")


def test_largest_value_takes_the_place_of_proof() -> None:
    proven = planned("linear", scale_bits=35, steps_per_refresh=3)
    vouched = planned("linear", scale_bits=35, steps_per_refresh=3, largest_value=2.0)
    assert proven.unproven == ()
    assert any("matmul" in label for label in vouched.unproven)
    assert sum(vouched.parameters.base_bits) < sum(proven.parameters.base_bits)


def refusal(name: str, **changes: object) -> str:
    with pytest.raises(AutodiffError) as caught:
        planned(name, **changes)
    assert caught.value.category == "invalid_encryption_plan"
    return caught.value.message


def test_too_many_steps_are_refused_with_how_many_fit() -> None:
    message = refusal("linear", steps_per_refresh=9)
    assert message.startswith("9 steps between refreshes: ")
    fitting = int(message.split("set steps_per_refresh=")[1].split(".")[0])
    assert 1 <= fitting < 9
    assert planned("linear", steps_per_refresh=fitting).steps_per_refresh == fitting
    assert "ring 32768" in message
    assert re.search(r"The largest value is within [\d.e+]+, \w+ 'v\d+' of the update of 'w' in step 9\.", message)
    refusal("linear", steps_per_refresh=fitting + 1)


def test_one_step_that_does_not_fit_says_so() -> None:
    assert "Not even one step fits." in refusal("network", precision=1e-15)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"precision": 0}, "precision: expected a positive number below 1, got 0"),
        ({"precision": "fine"}, "precision: expected a positive number below 1, got 'fine'"),
        ({"precision": float("nan")}, "precision: expected a positive number below 1, got nan"),
        ({"loss": 1}, "loss: expected a bool, got 1"),
        ({"ring_sizes": [4096]}, "ring_sizes: expected one or more of [8192, 16384, 32768], got [4096]"),
        ({"ring_sizes": []}, "ring_sizes: expected one or more of [8192, 16384, 32768], got []"),
        ({"ring_sizes": [[8192]]}, "ring_sizes: expected one or more of [8192, 16384, 32768], got [[8192]]"),
        ({"steps_per_refresh": 0}, "steps_per_refresh: expected an int from 1 to 64, got 0"),
        ({"steps_per_refresh": True}, "steps_per_refresh: expected an int from 1 to 64, got True"),
        ({"scale_bits": 61}, "scale_bits: expected an int from 25 to 60 or None, got 61"),
        ({"largest_value": -1}, "largest_value: expected a positive number or None, got -1"),
        ({"ranges": [1]}, "ranges: expected a mapping of names to pairs or numbers, got [1]"),
        ({"ranges": {"x": (-1, 1)}}, "ranges: missing are"),
        ({"secret": ["z"]}, "'z' cannot be secret"),
        (
            {"secret": ["x", "y"], "ranges": {**RANGES["linear"], "w": 1.0}},
            "the range of 'w': expected two finite numbers (low, high), got 1.0",
        ),
        (
            {"ranges": {**RANGES["linear"], "W": (0, 1)}},
            "ranges: unknown are ['W']; expected names among ['x', 'y', 'w'",
        ),
        ({"ranges": {**RANGES["linear"], "learning_rate": [0, 1]}}, "a range is a tuple, (low, high)"),
    ],
)
def test_wrong_declarations(changes: dict[str, object], expected: str) -> None:
    assert expected in refusal("linear", **changes)
