"""A client and a server: what they compute together, and what each refuses of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckks_sessions import LINEAR, RATE, Both, close, refusal, small_plan, with_range
from ckks_steps import MODELS, arrays_for, trained_on_numpy
from tinychain.autodiff.backends.ckks.client import Client
from tinychain.autodiff.backends.ckks.keys import SecretKeys
from tinychain.autodiff.backends.ckks.messages import Form, Message, MessageKind, Part, pack_message, unpack_message
from tinychain.autodiff.backends.ckks.session import most_bytes
from tinychain.autodiff.errors import AutodiffError


def changed(data: bytes, **fields: Any) -> bytes:
    """The same message with other fields, and with the right sum."""
    return pack_message(replace(unpack_message(data, is_reply=bool(data[7])), **fields))


def refused(reply: bytes) -> AutodiffError:
    """What a server has refused with, whichever client asked."""
    message = unpack_message(reply, is_reply=True)
    assert message.kind is MessageKind.REFUSAL
    category, text = [bytes(contents).decode() for contents in message.parts.values()]
    return AutodiffError(category, text)


# ------------------------------------------------------------------------------------------------- what they compute


@pytest.mark.parametrize("name", MODELS)
def test_steps_come_to_what_they_do_on_numpy(name: str) -> None:
    both = Both(small_plan(name), MODELS[name]).start()
    expected = trained_on_numpy(MODELS[name], arrays_for(MODELS[name]), RATE, 1)
    result = both.client.result(both.server.handle(both.request()))
    assert {*result.trained, "loss"} == {*expected}
    assert close(result.trained, expected)
    assert result.loss == pytest.approx(float(expected["loss"]), abs=1e-4)
    assert result.seconds > 0
    assert 0 < sum(result.measured.seconds.values()) < result.seconds


def test_two_steps_between_refreshes_and_then_two_more() -> None:
    both = Both(small_plan(steps=2)).start()
    for _ in range(2):
        result = both.client.result(both.server.handle(both.request()))
        both.trained = {**result.trained}
    assert close(both.trained, trained_on_numpy(LINEAR, arrays_for(LINEAR), RATE, 4))


def test_other_data_may_be_sent_later() -> None:
    both = Both().start()
    arrays = {**arrays_for(LINEAR), "y": np.ones((12, 1))}
    both.client.accept(both.server.handle(both.client.data({**both.data, "y": arrays["y"]})))
    result = both.client.result(both.server.handle(both.request()))
    assert close(result.trained, trained_on_numpy(LINEAR, arrays, RATE, 1))


def test_f32_parameters_stay_f32() -> None:
    both = Both(small_plan(dtype="f32"))
    both.data = {name: array.astype(np.float32) for name, array in both.data.items()}
    both.trained = {name: array.astype(np.float32) for name, array in both.trained.items()}
    both.start()
    result = both.client.result(both.server.handle(both.request()))
    assert {array.dtype for array in result.trained.values()} == {np.dtype(np.float32)}


def test_no_message_is_longer_than_the_plan_says() -> None:
    both = Both()
    messages = [both.client.keys(), both.client.data(both.data), both.request()]
    messages += [both.server.handle(message) for message in messages]
    assert max(map(len, messages)) < most_bytes(both.plan) < 8 * max(map(len, messages))


# ------------------------------------------------------------------------------------------- what the server refuses


def test_keys_come_first() -> None:
    both = Both()
    for message in (both.client.data(both.data), both.request()):
        error = refused(both.server.handle(message))
        assert (error.category, error.message[:22]) == ("invalid_encryption_key", "the server has no keys")
    assert both.start().works()


def test_data_come_before_a_request() -> None:
    both = Both()
    both.server.handle(both.client.keys())
    error = refused(both.server.handle(both.request()))
    assert error.category == "invalid_message"
    assert "the server has no data; send them before the first request" in error.message


def test_keys_come_once() -> None:
    both, other = Both().start(), Both()
    error = refused(both.server.handle(both.client.keys()))
    assert (error.category, "it takes keys once" in error.message) == ("invalid_encryption_key", True)
    error = refused(both.server.handle(other.client.keys()))
    assert (error.category, "of another session" in error.message) == ("invalid_encryption_key", True)
    assert both.works()


def test_replays_are_refused() -> None:
    both = Both()
    messages = [both.client.keys(), both.client.data(both.data), both.request(), both.request()]
    for message in messages:
        both.server.handle(message)
    for number, message in enumerate(messages[1:], 1):
        error = refused(both.server.handle(message))
        assert error.category == "invalid_message"
        assert f"has number {number} and was there before: the last was 3" in error.message
    assert both.works()


@pytest.mark.parametrize("make", [lambda other: other.client.data(other.data), Both.request])
def test_messages_of_another_session_are_refused(make: Callable[[Both], bytes]) -> None:
    both, other = Both().start(), Both()
    error = refused(both.server.handle(changed(make(other), number=9)))
    assert (error.category, "of another session" in error.message) == ("invalid_message", True)
    assert both.works()


@pytest.mark.parametrize("make", [lambda other: other.client.keys(), Both.request])
def test_messages_of_another_plan_are_refused(make: Callable[[Both], bytes]) -> None:
    error = refused(Both().server.handle(make(Both(small_plan(loss=False)))))
    assert (error.category, "of another plan" in error.message) == ("invalid_message", True)


def test_replies_and_refusals_are_no_requests() -> None:
    both = Both().start()
    assert "a request is expected" in refused(both.server.handle(changed(both.request(), is_reply=True))).message
    error = refused(both.server.handle(changed(both.request(), kind=MessageKind.REFUSAL, parts={})))
    assert "a client has nothing to refuse" in error.message
    assert both.works()


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_a_flipped_bit_is_refused_and_changes_nothing(number: int) -> None:
    message = bytearray(_STARTED.request())
    bit = number % (8 * len(message))
    message[bit // 8] ^= 1 << bit % 8
    assert refused(_STARTED.server.handle(bytes(message))).category == "invalid_message"
    assert _STARTED.works()


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_message_that_is_cut_off_is_refused_and_changes_nothing(number: int) -> None:
    message = _STARTED.request()
    cut = message[: number % len(message)]
    assert refused(_STARTED.server.handle(cut)).category == "invalid_message"
    assert _STARTED.works()


@given(st.binary(max_size=200) | st.integers(0, 10_000))
@settings(max_examples=50)
def test_contents_that_are_no_ciphertext_are_refused_though_the_sum_is_right(contents: bytes | int) -> None:
    message = unpack_message(_STARTED.request(), is_reply=False)
    part = next(part for part in message.parts if part.form is Form.CIPHERTEXT)
    whole = bytes(message.parts[part])
    damaged = contents if isinstance(contents, bytes) else whole[: contents % len(whole)]
    reply = _STARTED.server.handle(pack_message(replace(message, parts={**message.parts, part: damaged})))
    assert refused(reply).category == "invalid_message"
    assert _STARTED.works()


def test_parts_that_are_missing_or_too_many_are_refused() -> None:
    both = Both().start()
    message = unpack_message(both.request(), is_reply=False)
    for part in message.parts:
        parts = {other: contents for other, contents in message.parts.items() if other != part}
        error = refused(both.server.handle(pack_message(replace(message, parts=parts))))
        assert f"lacks {part.form.name.lower()} {part.name!r}, {part.place}" in error.message
    parts = {**message.parts, Part(Form.NUMBERS, "more"): b""}
    assert "unknown numbers 'more'" in refused(both.server.handle(pack_message(replace(message, parts=parts)))).message
    assert both.works()


def test_what_was_not_refreshed_is_refused() -> None:
    """The server's own results are deeper than what a client encrypts."""
    both = Both().start()
    result = unpack_message(both.server.handle(both.request()), is_reply=True)
    message = unpack_message(both.request(), is_reply=False)
    part = next(part for part in message.parts if part.name == "w.velocity")
    (used,) = [contents for part, contents in result.parts.items() if part.name == "w.velocity"]
    error = refused(both.server.handle(pack_message(replace(message, parts={**message.parts, part: used}))))
    assert (error.category, "block 0 of 'w.velocity'" in error.message) == ("invalid_message", True)
    assert both.works()


def test_keys_without_the_rotations_of_the_plan_are_refused() -> None:
    both = Both()
    lesser = SecretKeys.generate(both.plan.parameters, both.plan.circuit.rotations[:-1])
    keys = {Part(Form.KEYS, "evaluation keys"): lesser.evaluation_keys}
    error = refused(both.server.handle(changed(both.client.keys(), session=lesser.session, parts=keys)))
    assert error.category == "invalid_encryption_key"
    assert "no Galois key" in error.message
    assert both.start().works()


def test_keys_of_another_session_than_their_message_are_refused() -> None:
    both = Both()
    error = refused(both.server.handle(changed(both.client.keys(), session=bytes(16))))
    assert (error.category, "of another session" in error.message) == ("invalid_encryption_key", True)


def test_plain_inputs_beyond_all_bounds_are_refused() -> None:
    both = Both().start()
    message = unpack_message(both.request(), is_reply=False)
    for number in (1e300, np.inf):
        parts = {**message.parts, Part(Form.NUMBERS, "learning_rate"): np.array(number).tobytes()}
        error = refused(both.server.handle(pack_message(replace(message, parts=parts))))
        assert error.category in ("value_out_of_range", "invalid_message")
    assert both.works()


def test_what_is_no_bytes_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="must be bytes, got a NoneType"):
        Both().server.handle(None)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- what the client refuses


def test_a_refusal_is_raised_with_its_category() -> None:
    both = Both()
    error = refusal(both.client.accept, both.server.handle(both.client.data(both.data)))
    assert error.category == "invalid_encryption_key"
    assert error.message.startswith("the server refused: the server has no keys")


@pytest.mark.parametrize(
    ("category", "text", "expected"),
    [
        ("no_such", "so", "invalid_message: the server refused: so"),
        ("invalid_message", "a\x1b[2J", r"invalid_message: the server refused: 'a\x1b[2J'"),
        ("invalid_message", "a" * 10_000, "invalid_message: the server refused: " + "a" * 4096),
    ],
)
def test_a_refusal_of_a_hostile_server_is_harmless(category: str, text: str, expected: str) -> None:
    parts = {Part(Form.TEXT, "category"): category.encode(), Part(Form.TEXT, "text"): text.encode()}
    reply = pack_message(Message(MessageKind.REFUSAL, True, bytes(16), bytes(32), 0, parts))
    assert str(refusal(Both().client.result, reply)) == expected


def test_a_reply_counts_once_and_only_for_its_request() -> None:
    both = Both()
    accepted = both.server.handle(both.client.keys())
    assert "is about keys with number 0" in refusal(both.client.result, accepted).message
    both.client.accept(accepted)
    both.client.accept(both.server.handle(both.client.data(both.data)))
    reply = both.server.handle(both.request())
    assert "is about steps with number 2" in refusal(both.client.accept, reply).message
    assert "with number 7" in refusal(both.client.result, changed(reply, number=7)).message
    both.client.result(reply)
    error = refusal(both.client.result, reply)
    assert (error.category, "a reply counts once" in error.message) == ("invalid_message", True)


def test_replies_of_another_session_or_plan_are_refused() -> None:
    both = Both().start()
    reply = both.server.handle(both.request())
    for fields in ({"session": bytes(16)}, {"fingerprint": bytes(32)}):
        error = refusal(both.client.result, changed(reply, **fields))
        assert (error.category, "of another session or plan" in error.message) == ("invalid_message", True)
    assert both.client.result(reply).loss is not None


def test_a_request_is_no_reply() -> None:
    both = Both()
    assert "a reply is expected" in refusal(both.client.result, both.request()).message


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_a_flipped_bit_in_a_reply_is_refused(number: int) -> None:
    reply = _STARTED.server.handle(_STARTED.request())
    flipped = bytearray(reply)
    bit = number % (8 * len(reply))
    flipped[bit // 8] ^= 1 << bit % 8
    assert refusal(_STARTED.client.result, bytes(flipped)).category == "invalid_message"
    assert _STARTED.client.result(reply).loss is not None


def test_parameters_that_leave_their_range_are_refused() -> None:
    both = Both(with_range(small_plan(), "w", 0.0, 1.0))
    both.trained["w"] = np.abs(both.trained["w"])
    reply = both.start().server.handle(both.request())
    error = refusal(both.client.result, reply)
    assert error.category == "value_out_of_range"
    assert error.message.startswith("'w', as decrypted: ")
    assert "of 5 elements are outside of the declared range from 0 to 1" in error.message


def test_reprs_say_what_is_there() -> None:
    both = Both()
    assert repr(both.client) == "<Client of w, b>"
    assert repr(both.server) == "<Server of w, b with no keys>"
    both.server.handle(both.client.keys())
    assert repr(both.server) == "<Server of w, b with keys>"
    both.server.handle(both.client.data(both.data))
    assert repr(both.server) == "<Server of w, b with keys and data>"


def test_every_client_has_a_session_of_its_own() -> None:
    first, second = [Client(small_plan()).keys()[8:24] for _ in range(2)]
    assert first != second


_STARTED = Both().start()
