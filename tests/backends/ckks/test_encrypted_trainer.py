"""Training on a server that never sees the data, in one process and in two."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from ckks_sessions import LINEAR, RATE, close, refusal, small_plan, split, with_range
from ckks_steps import arrays_for, trained_on_numpy
from tinychain.autodiff.backends.ckks.client import connect
from tinychain.autodiff.backends.ckks.messages import MessageKind, unpack_message
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.server import Server, serve
from tinychain.autodiff.backends.ckks.trainer import EncryptedTrainer

DATA, TRAINED = split(small_plan(), arrays_for(LINEAR))
PARAMETERS = {name: TRAINED[name] for name in ("w", "b")}
STATE = {name: {"velocity": TRAINED[f"{name}.velocity"]} for name in ("w", "b")}


def trainer(plan: TrainingPlan | None = None, exchange: Any = None, **changes: Any) -> EncryptedTrainer:
    plan = small_plan() if plan is None else plan
    given = {"parameters": PARAMETERS, "state": STATE, "optimizer_inputs": {"learning_rate": RATE}}
    return EncryptedTrainer(plan, exchange or Server(plan).handle, **{**given, **changes})


def trained(training: EncryptedTrainer) -> dict[str, Any]:
    states = {f"{p}.{name}": array for p, of in training.state.items() for name, array in of.items()}
    return {**training.parameters, **states}


class Recorded:
    """An exchange that keeps what goes through it."""

    def __init__(self, plan: TrainingPlan | None = None) -> None:
        self._handle = Server(small_plan() if plan is None else plan).handle
        self.sent: list[bytes] = []
        self.received: list[bytes] = []

    def __call__(self, message: bytes) -> bytes:
        self.sent.append(message)
        self.received.append(self._handle(message))
        return self.received[-1]

    @property
    def kinds(self) -> list[MessageKind]:
        return [unpack_message(message, is_reply=False).kind for message in self.sent]


# -------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("each", [1, 2])
def test_a_run_comes_to_what_it_does_on_numpy(each: int) -> None:
    training = trainer(small_plan(steps=each))
    report = training.fit(DATA, steps=4)
    assert training.steps == report.steps == 4
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 4))
    losses = [float(trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, step)["loss"]) for step in range(each, 5, each)]
    assert report.losses == pytest.approx(losses, abs=1e-4)


def test_a_second_fit_goes_on_and_sends_no_keys_again() -> None:
    exchange = Recorded()
    training = trainer(exchange=exchange)
    training.fit(DATA, steps=1)
    training.fit(DATA, steps=2)
    keys, data, steps = MessageKind.KEYS, MessageKind.DATA, MessageKind.STEPS
    assert exchange.kinds == [keys, data, steps, data, steps, steps]
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 3))


def test_states_are_zero_unless_given() -> None:
    arrays = {name: array * ("." not in name) for name, array in arrays_for(LINEAR).items()}
    training = trainer(state=None)
    training.fit(DATA, steps=1)
    assert close(trained(training), trained_on_numpy(LINEAR, arrays, RATE, 1))


def test_a_learning_rate_may_follow_from_the_number_of_the_step() -> None:
    asked: list[int] = []

    def rate(step: int) -> float:
        asked.append(step)
        return RATE

    training = trainer(optimizer_inputs={"learning_rate": rate})
    training.fit(DATA, steps=2)
    training.fit(DATA, steps=1)
    assert asked == [1, 2, 3]
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 3))


def test_plain_inputs_may_come_with_the_data() -> None:
    training = trainer(optimizer_inputs=None)
    training.fit({**DATA, "learning_rate": np.array(RATE)}, steps=1)
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 1))


def test_a_plan_without_the_loss_reports_none() -> None:
    assert trainer(small_plan(loss=False)).fit(DATA, steps=2).losses == ()


def test_the_report_counts_bytes_and_seconds() -> None:
    exchange = Recorded()
    report = trainer(exchange=exchange).fit(DATA, steps=2)
    assert report.bytes_sent == sum(map(len, exchange.sent))
    assert report.bytes_received == sum(map(len, exchange.received))
    phases = (report.encrypt_seconds, report.exchange_seconds, report.decrypt_seconds)
    assert min(phases) > 0
    assert sum(phases) <= report.seconds
    assert 0 < sum(report.operation_seconds.values()) < report.server_seconds < report.exchange_seconds
    assert report.server_peak_bytes > 0


def test_arrays_are_copied_and_read_only() -> None:
    w = PARAMETERS["w"].copy()
    training = trainer(parameters={**PARAMETERS, "w": w})
    w += 1
    before = training.parameters
    assert np.array_equal(before["w"], PARAMETERS["w"])
    training.fit(DATA, steps=1)
    assert np.array_equal(before["w"], PARAMETERS["w"])
    assert not any(array.flags.writeable for array in trained(training).values())


def test_the_repr_says_how_far_it_is() -> None:
    assert repr(trainer()) == "<EncryptedTrainer of w, b after 0 steps>"


# ------------------------------------------------------------------------------------------------------ two processes

_SERVER = """
import sys
from ckks_sessions import small_plan
from tinychain.autodiff.backends.ckks.server import serve
serve(small_plan(), sys.stdin.buffer, sys.stdout.buffer)
"""


def test_the_server_may_be_another_process() -> None:
    paths = [str(Path(__file__).parents[2]), *[path for path in sys.path if path]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        training = trainer(exchange=connect(small_plan(), process.stdout, process.stdin))
        training.fit(DATA, steps=2)
        process.stdin.close()
        assert process.wait() == 0
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 2))


def test_the_server_may_be_behind_a_socket() -> None:
    near, far = socket.socketpair()
    with near, far, near.makefile("rwb") as mine, far.makefile("rwb") as other:
        server = Thread(target=serve, args=(small_plan(), other, other))
        server.start()
        training = trainer(exchange=connect(small_plan(), mine, mine))
        training.fit(DATA, steps=1)
        near.shutdown(socket.SHUT_WR)
        server.join()
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 1))


# ----------------------------------------------------------------------------------------------------------- refusals


def test_steps_that_are_no_multiple_are_refused_before_anything_is_sent() -> None:
    exchange = Recorded(small_plan(steps=2))
    error = refusal(trainer(small_plan(steps=2), exchange).fit, DATA, steps=3)
    assert error.category == "invalid_encryption_plan"
    assert "3 steps are no multiple of the 2 between refreshes that the plan has; run 4" in error.message
    assert exchange.sent == []


@pytest.mark.parametrize("steps", [0, -1, True, 1.0, "3", None])
def test_steps_must_be_a_positive_int(steps: Any) -> None:
    with pytest.raises(ValueError, match="steps must be an int of at least 1"):
        trainer().fit(DATA, steps=steps)


def test_a_function_of_the_step_needs_a_refresh_at_every_step() -> None:
    error = refusal(trainer, small_plan(steps=2), optimizer_inputs={"learning_rate": lambda step: RATE})
    assert error.category == "invalid_encryption_plan"
    assert "'learning_rate' of optimizer_inputs is a function of the step, but one value serves all 2" in error.message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: {**data, "x": np.zeros((20, 5))}, "it has 20 rows, and 12 are planned; make a plan for 20"),
        (lambda data: {**data, "x": np.zeros((11, 5))}, "it has 11 rows, and 12 are planned"),
        (lambda data: {**data, "x": np.zeros((12, 4))}, "expected f64[12, 5], got float64[12, 4]"),
        (lambda data: {**data, "x": np.zeros((12, 5), np.float32)}, "got float32[12, 5]; nothing is cast"),
        (lambda data: {**data, "x": np.full((12, 5), np.nan)}, "60 of 60 elements are NaN or infinite"),
        (lambda data: {"x": data["x"]}, "expected ['x', 'y']; missing are ['y'], unknown []"),
        (lambda data: {**data, "z": 1}, "missing are [], unknown ['z']"),
        (lambda data: [*data.values()], "expected a mapping with ['x', 'y'], got a list"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_anything_is_sent(
    change: Callable[[Mapping[str, Any]], Any], text: str
) -> None:
    exchange = Recorded()
    error = refusal(trainer(exchange=exchange).fit, change(DATA), steps=1)
    assert error.category == "invalid_training_data"
    assert text in error.message
    assert exchange.sent == []


def test_data_out_of_range_are_refused_with_their_number() -> None:
    exchange = Recorded()
    x = DATA["x"].copy()
    x[3, :2] = (17.0, -16.5)
    error = refusal(trainer(exchange=exchange).fit, {**DATA, "x": x}, steps=1)
    assert error.category == "value_out_of_range"
    assert "'x' of the data: 2 of 60 elements are outside of the declared range from -16 to 16" in error.message
    assert exchange.sent == []


@pytest.mark.parametrize(
    ("changes", "category", "text"),
    [
        ({"parameters": {"w": PARAMETERS["w"]}}, "invalid_training_data", "parameters: expected ['w', 'b']; missing"),
        ({"parameters": {**PARAMETERS, "b": np.array([99.0])}}, "value_out_of_range", "'b' of parameters: 1 of 1"),
        ({"parameters": {**PARAMETERS, "b": 1.0}}, "invalid_training_data", "'b' of parameters: expected f64[1]"),
        ({"state": {"w": {}}}, "invalid_training_data", "the state of 'w': expected ['velocity']; missing are"),
        ({"state": {"u": {}}}, "invalid_training_data", "state: expected [] and perhaps ['w', 'b']"),
        ({"state": 3}, "invalid_training_data", "state: expected a mapping with ['w', 'b'], got a int"),
        ({"optimizer_inputs": {"rate": 1}}, "invalid_training_data", "and perhaps ['learning_rate']; missing are []"),
        ({"optimizer_inputs": {"learning_rate": "1"}}, "invalid_training_data", "expected a finite number or an array"),
        ({"optimizer_inputs": {"learning_rate": np.nan}}, "invalid_training_data", "1 of 1 elements are NaN"),
    ],
)
def test_what_a_trainer_is_made_with_is_judged(changes: Mapping[str, Any], category: str, text: str) -> None:
    error = refusal(trainer, **changes)
    assert error.category == category
    assert text in error.message


def test_a_plain_input_that_is_missing_is_named_with_the_places_that_it_may_come_from() -> None:
    error = refusal(trainer(optimizer_inputs=None).fit, DATA, steps=1)
    assert "missing are ['learning_rate']" in error.message
    assert "may be optimizer_inputs instead" in error.message


def test_plain_inputs_keep_to_their_ranges_too() -> None:
    training = trainer(optimizer_inputs={"learning_rate": lambda step: 0.5 * step})
    error = refusal(training.fit, DATA, steps=3)
    assert error.category == "value_out_of_range"
    assert "'learning_rate' of the plain inputs: 1 of 1" in error.message
    assert training.steps == 2


def test_parameters_that_leave_their_range_stay_as_they_were_before_the_request() -> None:
    training = trainer(with_range(small_plan(), "b.velocity", -3.0, 3.0))
    error = refusal(training.fit, DATA, steps=20)
    assert error.category == "value_out_of_range"
    assert "'b.velocity', as decrypted: 1 of 1" in error.message
    expected = trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, training.steps)
    assert 0 < training.steps < 20
    assert close(trained(training), expected)


def test_what_is_no_plan_or_no_exchange_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a TrainingPlan and a callable"):
        EncryptedTrainer("plan", print, parameters={})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="exchange must return the bytes of a reply, got a NoneType"):
        trainer(exchange=lambda message: None).fit(DATA, steps=1)


def test_what_an_exchange_raises_passes_and_the_run_goes_on_afterwards() -> None:
    handle = Server(small_plan()).handle
    calls: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        calls.append(message)
        if len(calls) == 4:
            raise ConnectionError("down")
        return handle(message)

    training = trainer(exchange=exchange)
    with pytest.raises(ConnectionError, match="down"):
        training.fit(DATA, steps=2)
    assert training.steps == 1
    training.fit(DATA, steps=1)
    assert close(trained(training), trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 2))
