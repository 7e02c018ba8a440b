"""Rehearsed errors against those of encrypted runs, and the plans that are made with a sample."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.ckks.test_chooser import RANGES, planned
from ckks_sessions import RATE, Both, refusal, small_plan, with_range
from ckks_steps import MODELS, Arrays, arrays_for, outputs, trained_on_numpy
from tinychain.autodiff.backends.ckks.noise import FreshErrors
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.rehearsal import MARGIN, Rehearsal, checked_sample, rehearse

LINEAR = MODELS["linear"]
TESTS = Path(__file__).parents[2]

#: How many sessions are measured, each with keys of its own.
SESSIONS = 3


def sample_for(name: str = "linear") -> dict[str, NDArray[Any]]:
    return {**arrays_for(MODELS[name]), "learning_rate": np.array(RATE)}


def without_rate(sample: Arrays) -> dict[str, NDArray[Any]]:
    return {name: array for name, array in sample.items() if name != "learning_rate"}


# ---------------------------------------------------------------------------------------------- against encrypted runs


def errors_of_a_session(name: str, plan: TrainingPlan, exact: Arrays) -> dict[str, float]:
    both = Both(plan, MODELS[name]).start()
    result = both.client.result(both.server.handle(both.request()))
    found = {**result.trained, "loss": result.loss}
    return {result: float(np.max(np.abs(found[result] - exact[result]))) for result in exact}


@pytest.mark.parametrize(
    ("name", "steps"),
    [("linear", 1), ("linear", 3), ("logistic", 1), ("logistic", 3), ("network", 1), ("network", 2)],
)
def test_encrypted_runs_have_the_errors_that_were_rehearsed(name: str, steps: int) -> None:
    """Of every result the largest in some sessions: within the margin, and not far below."""
    plan, sample = small_plan(name, steps), sample_for(name)
    rehearsed, exact = rehearse(plan, sample), outputs(plan.program, sample)
    runs = [errors_of_a_session(name, plan, exact) for _ in range(SESSIONS)]
    largest = {result: max([run[result] for run in runs]) for result in exact}
    assert {*rehearsed} == {*exact}
    assert all(rehearsed[result] / 50 < largest[result] < MARGIN * rehearsed[result] for result in exact)


def test_what_is_rehearsed_is_far_below_the_worst_case_of_several_steps() -> None:
    plan = small_plan("linear", 3)
    rehearsed = rehearse(plan, sample_for())
    assert all(rehearsed[result] < plan.error_bounds[result] / 1e6 for result in rehearsed)


def test_without_errors_the_results_are_those_of_the_program() -> None:
    plan, sample = small_plan("network", 1), sample_for("network")
    rehearsal = Rehearsal(plan.circuit, plan.program, plan.indices, plan.layout, sample)
    found = rehearsal.results([*rehearsal.values()])
    for result, expected in outputs(plan.program, sample).items():
        np.testing.assert_allclose(found[result], expected, rtol=0, atol=1e-12)


def test_the_first_of_the_runs_has_no_errors() -> None:
    plan, sample = small_plan("linear", 1), sample_for()
    rehearsal = Rehearsal(plan.circuit, plan.program, plan.indices, plan.layout, sample)
    for exact, rows in zip(rehearsal.values(), rehearsal.values(FreshErrors(plan.parameters)), strict=True):
        np.testing.assert_array_equal(np.broadcast_to(rows, (8, rows.shape[-1]))[0], exact)


def test_errors_that_overflow_are_infinite() -> None:
    plan = small_plan("logistic", 3)
    coarse = Parameters(1024, 20, (60,), plan.circuit.depth, 60, secure=False)
    rehearsal = Rehearsal(plan.circuit, plan.program, plan.indices, plan.layout, sample_for("logistic"))
    assert rehearsal.errors(coarse)["w"] > 1e-3
    huge = {name: array * 1e60 for name, array in sample_for("logistic").items()}
    rehearsal = Rehearsal(plan.circuit, plan.program, plan.indices, plan.layout, huge)
    assert rehearsal.errors(coarse) == {"w": float("inf"), "loss": float("inf")}


# ------------------------------------------------------------------------------------------------------ plans


def sampled(**changes: Any) -> TrainingPlan:
    options = {"precision": 1e-6, "steps_per_refresh": 3, "ring_sizes": [16384], **changes}
    return planned("linear", **{"sample": without_rate(sample_for()), **options})


def test_a_sample_makes_a_plan_where_the_worst_case_is_refused() -> None:
    message = refusal(sampled, sample=None).message
    assert "2 would fit: set steps_per_refresh=2." in message
    assert "What helps: a sample of data, without which precision is for the worst within the ranges; " in message
    plan = sampled()
    assert plan.parameters.secure
    assert max(rehearse(plan, without_rate(sample_for())).values()) * MARGIN <= plan.precision


def test_a_scale_of_one_bit_less_would_not_be_precise() -> None:
    plan, sample = sampled(), without_rate(sample_for())
    less = sampled(sample=None, scale_bits=plan.parameters.scale_bits - 1)
    assert max(rehearse(less, sample).values()) * MARGIN > plan.precision


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "ring_size"), [(3, 16384), (4, 32768)])
def test_encrypted_runs_of_such_plans_are_precise_enough(steps: int, ring_size: int) -> None:
    """On other data than those of the sample."""
    plan = sampled(steps_per_refresh=steps, ring_sizes=[ring_size])
    both = Both(plan)
    arrays = without_rate(arrays_for(LINEAR, seed=1))
    data = {name: arrays[name] for name in both.data}
    trained = {name: arrays[name] for name in both.trained}
    for message in (both.client.keys(), both.client.data(data)):
        both.client.accept(both.server.handle(message))
    result = both.client.result(both.server.handle(both.client.request(trained, {})))
    exact = trained_on_numpy(LINEAR, arrays, RANGES["linear"]["learning_rate"], steps)
    assert max([np.max(np.abs(result.trained[name] - exact[name])) for name in trained]) <= plan.precision


def test_a_refusal_with_a_sample_does_not_name_it() -> None:
    message = refusal(sampled, steps_per_refresh=9).message
    assert "sample" not in message
    assert int(message.split("set steps_per_refresh=")[1].split(".")[0]) >= 3


def test_the_parameters_of_a_plan_make_an_equal_one_without_the_sample() -> None:
    plan = sampled()
    other = sampled(sample=None, parameters=plan.parameters, ring_sizes=[8192, 16384, 32768])
    assert other.fingerprint == plan.fingerprint
    told = Parameters(**plan.parameters.to_dict())
    assert told == plan.parameters
    assert sampled(sample=None, parameters=told).fingerprint == plan.fingerprint


def test_equal_samples_make_equal_plans_and_others_may_not() -> None:
    plan = sampled()
    assert sampled().fingerprint == plan.fingerprint
    small_values = {name: array / 1e3 for name, array in without_rate(sample_for()).items()}
    assert sampled(sample=small_values).fingerprint != plan.fingerprint


def test_other_processes_come_to_the_same_plan() -> None:
    code = (
        "from backends.ckks.test_rehearsal import *\n"
        "print(sampled().fingerprint.hex(), *rehearse(small_plan('linear', 3), sample_for()).values())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert printed[0].split()[0] == sampled().fingerprint.hex()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scale_bits": 40}, "parameters: expected neither sample nor scale_bits beside them"),
        ({"sample": {}}, "parameters: expected neither sample nor scale_bits beside them"),
        (
            {"parameters": 40},
            "parameters: expected None or secure Parameters of a ring of [8192, 16384, 32768], got 40",
        ),
        (
            {"parameters": Parameters(8192, 40, (50,), 2, 60, secure=False)},
            "parameters: expected None or secure Parameters",
        ),
        ({"steps_per_refresh": 2}, "parameters: they have a depth of 8, and this plan one of 5"),
        (
            {"parameters": Parameters(16384, 39, (40,), 8, 60)},
            "parameters: their base has 40 bits, and values within the declared ranges need ",
        ),
    ],
)
def test_parameters_that_do_not_fit(changes: Mapping[str, Any], expected: str) -> None:
    options = {"sample": None, "parameters": Parameters(16384, 39, (55,), 8, 60), **changes}
    error = refusal(sampled, **options)
    assert error.category == "invalid_encryption_plan"
    assert expected in error.message


# ------------------------------------------------------------------------------------------------------ wrong samples

SECRET = 0.8675309


def changed(**changes: Any) -> dict[str, Any]:
    sample = {**sample_for(), **changes}
    return {name: array for name, array in sample.items() if array is not None}


@pytest.mark.parametrize(
    ("sample", "category", "expected"),
    [
        (
            [SECRET],
            "invalid_training_data",
            "the sample: expected a mapping with ['x', 'y', 'w', 'b', 'learning_rate']",
        ),
        (changed(x=None), "invalid_training_data", "the sample: expected ["),
        (changed(x=None), "invalid_training_data", "missing are ['x']"),
        (changed(z=np.array(SECRET)), "invalid_training_data", "unknown ['z']"),
        (changed(x=np.full((11, 5), SECRET)), "invalid_training_data", "it has 11 rows, and 12 are planned"),
        (changed(w=np.full((5, 2), SECRET)), "invalid_training_data", "'w' of the sample: expected f64[5, 1], got"),
        (changed(w=np.full((5, 1), SECRET, np.float32)), "invalid_training_data", "nothing is cast or reshaped"),
        (changed(w=np.full((5, 1), np.nan)), "invalid_training_data", "5 of 5 elements are NaN or infinite"),
        (
            changed(y=np.full((12, 1), 100 * SECRET)),
            "value_out_of_range",
            "'y' of the sample: 12 of 12 elements are outside of the declared range from -16 to 16",
        ),
        (changed(learning_rate=np.array(-SECRET)), "value_out_of_range", "'learning_rate' of the sample: 1 of 1"),
    ],
)
def test_wrong_samples(sample: Any, category: str, expected: str) -> None:
    error = refusal(rehearse, small_plan("linear", 1), sample)
    assert error.category == category
    assert expected in error.message
    assert "675" not in error.message


def test_a_plan_judges_its_sample_likewise() -> None:
    error = refusal(sampled, sample={"x": np.full((12, 5), SECRET)})
    assert error.category == "invalid_training_data"
    assert "missing are ['y', 'w', 'b']" in error.message
    outside = {**without_rate(sample_for()), "x": np.full((12, 5), 10 * SECRET)}
    assert refusal(sampled, sample=outside).category == "value_out_of_range"


def test_a_state_that_is_left_out_is_zero() -> None:
    plan, sample = small_plan("linear", 1), sample_for()
    states = {name: np.zeros_like(sample[name]) for name in plan.state_names}
    left_out = {name: array for name, array in sample.items() if name not in states}
    assert rehearse(plan, left_out) == rehearse(plan, {**sample, **states})


def test_zeros_are_held_to_the_range_as_well() -> None:
    plan = with_range(small_plan("linear", 1), "w.velocity", 1.0, 2.0)
    left_out = {name: array for name, array in sample_for().items() if name != "w.velocity"}
    assert "'w.velocity' of the sample: 5 of 5 elements" in refusal(rehearse, plan, left_out).message


def test_what_the_plan_does_not_read_may_be_in_the_sample() -> None:
    plan, sample = small_plan("linear", 1), sample_for()
    given = {**sample, "idle": np.array("anything")}
    checked = checked_sample(given, plan.program, plan.intervals, plan.state_names, ["idle"])
    assert {*checked} == {*sample}


def test_what_is_a_number_of_the_plan_may_not_be_in_the_sample() -> None:
    assert "unknown ['learning_rate']" in refusal(sampled, sample=sample_for()).message


def test_rehearsing_what_is_no_plan() -> None:
    with pytest.raises(TypeError, match="expected a TrainingPlan, got 1"):
        rehearse(1, {})  # type: ignore[arg-type]


def test_no_value_of_the_sample_is_kept_by_the_plan() -> None:
    sample = {name: np.full_like(array, SECRET) for name, array in without_rate(sample_for()).items()}
    plan = sampled(sample=sample)
    assert "8675" not in repr(plan)
    assert "8675" not in str(plan.parameters.to_dict())
    held = [operation.known for operation in plan.program.operations if operation.known is not None]
    assert not any((array == SECRET).any() for array in held)
