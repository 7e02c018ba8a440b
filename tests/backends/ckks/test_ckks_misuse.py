"""What a clumsy or a hostile caller gets: an error that says what was expected, and no secret in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckks_sessions import LINEAR, RATE, Both, refusal, small_plan
from ckks_steps import compiled
from tinychain.autodiff import AutodiffError
from tinychain.autodiff.backends.ckks import (
    Client,
    EncryptedTrainer,
    Parameters,
    Server,
    connect,
    explain_plan,
    measure,
    plan_training,
    serve,
)
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys, SecretKeys
from tinychain.autodiff.backends.ckks.library import seal, to_bytes

STREAM = io.BytesIO()
WEIGHTS = np.full((2, 2), 71234.56789)

NO_PLANS: dict[str, Callable[[Any], object]] = {
    "client": Client,
    "server": Server,
    "connect": lambda plan: connect(plan, STREAM, STREAM),
    "serve": lambda plan: serve(plan, STREAM, STREAM),
    "trainer": lambda plan: EncryptedTrainer(plan, bytes, parameters={}),
}


@pytest.mark.parametrize("name", NO_PLANS)
@pytest.mark.parametrize("given", [None, "plan", WEIGHTS])
def test_what_is_no_plan_is_a_type_error_without_what_was_given(name: str, given: Any) -> None:
    with pytest.raises(TypeError, match=f"expected a TrainingPlan.*got a {type(given).__name__}") as caught:
        NO_PLANS[name](given)
    assert "71234" not in str(caught.value)


def test_an_exchange_that_is_no_function_is_not_quoted() -> None:
    with pytest.raises(TypeError, match="and a callable, got a TrainingPlan and a ndarray"):
        EncryptedTrainer(small_plan(), WEIGHTS, parameters={})  # type: ignore[arg-type]


@pytest.mark.parametrize("streams", [(3, STREAM), (STREAM, None), (io.StringIO(), STREAM), (STREAM, io.StringIO())])
def test_what_is_no_binary_stream_is_a_type_error(streams: tuple[Any, Any]) -> None:
    for function in (connect, serve):
        with pytest.raises(TypeError, match=r"expected a binary stream with (read|write), got a"):
            function(small_plan(), *streams)


def test_only_bytes_are_sent() -> None:
    with pytest.raises(TypeError, match="a message must be bytes, got a str"):
        connect(small_plan(), io.BytesIO(), io.BytesIO())("message")  # type: ignore[arg-type]


def test_what_is_no_calibration_and_no_parameters_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a Calibration, got 3"):
        explain_plan(small_plan(), 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected Parameters, got None"):
        measure(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ring_size": [1024]}, r"sizes, bits and depth must be ints, got \[1024\]"),
        ({"scale_bits": "30"}, "must be ints, got '30'"),
        ({"base_bits": 50}, "base_bits must be ints and secure a bool, got 50 and False"),
        ({"base_bits": (50.0,)}, "must be ints, got 50.0"),
        ({"depth": None}, "must be ints, got None"),
        ({"depth": 10**9}, "no ring has the bits for a depth of more than 44"),
        ({"special_bits": np.ones(2)}, "must be ints, got array"),
        ({"secure": np.ones(2)}, "secure a bool"),
    ],
)
def test_parameters_of_wrong_types_are_refused(changes: dict[str, Any], expected: str) -> None:
    given = {"ring_size": 1024, "scale_bits": 30, "base_bits": (50,), "depth": 2, "special_bits": 60, "secure": False}
    with pytest.raises(AutodiffError, match=expected) as caught:
        Parameters(**{**given, **changes})
    assert caught.value.category == "invalid_encryption_plan"


class Odd:
    """What cannot be compared or shown."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"secret": WEIGHTS}, "cannot be secret; expected names among"),
        ({"secret": ["x", Odd()]}, "cannot be secret; expected names among"),
        ({"ring_sizes": [Odd()]}, "ring_sizes: expected one or more of"),
    ],
)
def test_wrong_declarations_are_refused(changes: dict[str, Any], expected: str) -> None:
    error = refusal(plan_training, compiled(LINEAR), **{"secret": ["x", "y"], "ranges": {}, **changes})
    assert error.category == "invalid_encryption_plan"
    with pytest.raises(AutodiffError, match=expected):
        raise error


def test_a_late_reply_is_not_mistaken_for_that_to_a_newer_request() -> None:
    both = Both().start()
    late = both.server.handle(both.request())
    newer = both.client.request({**both.trained, "w": 0 * both.trained["w"]}, {"learning_rate": RATE})
    error = refusal(both.client.result, late)
    assert error.category == "invalid_message"
    assert "none is awaited" in error.message
    assert both.client.result(both.server.handle(newer)).trained.keys() == both.trained.keys()


def test_keys_with_an_encryption_of_zero_that_was_computed_with_are_refused() -> None:
    """It would do until a difference vanishes at a depth that is less."""
    parameters = Parameters(1024, 30, (50,), 2, 60, secure=False)
    keys = SecretKeys.generate(parameters, [1])
    lowered = seal.Ciphertext()
    evaluator = seal.Evaluator(keys.moduli.context)
    evaluator.mod_switch_to_next(EvaluationKeys(keys.moduli, keys.evaluation_keys).zero, lowered)
    last = to_bytes(lowered)
    kept = keys.evaluation_keys[: start_of_zero(keys.evaluation_keys)]
    damaged = kept + len(last).to_bytes(8, "little") + last
    error = refusal(EvaluationKeys.from_bytes, parameters, damaged)
    assert error.category == "invalid_message"
    assert "the encryption of zero in the evaluation keys is no fresh one" in error.message


def start_of_zero(keys: bytes) -> int:
    """Where the last part of evaluation keys begins, with its length."""
    at = 16
    for _ in range(3):
        at += 8 + int.from_bytes(keys[at : at + 8], "little")
    return at
