"""Messages: what is packed is read again, and everything else is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinychain.autodiff.backends.ckks.messages import (
    MESSAGE_OVERHEAD,
    PART_OVERHEAD,
    Form,
    Message,
    MessageKind,
    Part,
    check_parts,
    pack_message,
    pack_numbers,
    unpack_message,
    unpack_numbers,
)
from tinychain.autodiff.errors import AutodiffError

u64 = st.integers(0, 2**64 - 1)
parts = st.builds(Part, st.sampled_from(Form), st.text(max_size=9), u64)
messages = st.builds(
    Message,
    kind=st.sampled_from(MessageKind),
    is_reply=st.booleans(),
    session=st.binary(min_size=16, max_size=16),
    fingerprint=st.binary(min_size=32, max_size=32),
    number=u64,
    parts=st.dictionaries(parts, st.binary(max_size=40), max_size=4),
)

SMALL = Message(
    MessageKind.STEPS,
    False,
    bytes(range(16)),
    bytes(range(32)),
    7,
    {Part(Form.NUMBERS, "rate"): pack_numbers(np.ones(2))},
)


def refused(data: bytes, is_reply: bool = False) -> str:
    with pytest.raises(AutodiffError) as caught:
        unpack_message(data, is_reply=is_reply)
    assert caught.value.category == "invalid_message"
    return caught.value.message


def summed(data: bytes) -> bytes:
    """The bytes, which have no sum yet, with the right one."""
    return data + sha256(data).digest()


def with_payload(payload: bytes) -> bytes:
    head = pack_message(replace(SMALL, parts={}))[:64]
    return summed(head + len(payload).to_bytes(8, "little") + payload)


@given(messages)
def test_what_is_packed_is_read_again(message: Message) -> None:
    read = unpack_message(pack_message(message), is_reply=message.is_reply)
    assert (read.kind, read.is_reply, read.number) == (message.kind, message.is_reply, message.number)
    assert (read.session, read.fingerprint) == (message.session, message.fingerprint)
    assert {part: bytes(contents) for part, contents in read.parts.items()} == message.parts


@given(messages)
def test_the_length_is_that_of_the_parts_and_the_overheads(message: Message) -> None:
    contents = sum(len(part.name.encode()) + len(contents) for part, contents in message.parts.items())
    assert len(pack_message(message)) == MESSAGE_OVERHEAD + PART_OVERHEAD * len(message.parts) + contents


@given(messages, st.data())
def test_a_flipped_bit_anywhere_is_refused(message: Message, draw: Any) -> None:
    data = bytearray(pack_message(message))
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    data[bit // 8] ^= 1 << bit % 8
    refused(bytes(data), message.is_reply)


@given(messages, st.data())
def test_a_message_that_is_cut_off_anywhere_is_refused(message: Message, draw: Any) -> None:
    data = pack_message(message)
    refused(data[: draw.draw(st.integers(0, len(data) - 1))], message.is_reply)


@given(messages, st.binary(min_size=1, max_size=9))
def test_a_message_that_is_too_long_is_refused(message: Message, more: bytes) -> None:
    assert f"should have {len(pack_message(message))} bytes" in refused(pack_message(message) + more, message.is_reply)


@given(st.binary(max_size=200))
def test_a_payload_of_any_bytes_is_read_or_refused(payload: bytes) -> None:
    with suppress(AutodiffError):
        assert pack_message(unpack_message(with_payload(payload), is_reply=False)) == with_payload(payload)


def test_each_fault_has_its_text() -> None:
    data, body = pack_message(SMALL), pack_message(SMALL)[:-32]
    assert "these bytes are no message of this package" in refused(b"HTTP" + data[4:])
    assert "has version 2; this package reads version 1" in refused(summed(body[:4] + b"\2" + body[5:]))
    assert "unknown kind 9" in refused(summed(body[:6] + b"\x09" + body[7:]))
    assert "a reply is expected" in refused(data, is_reply=True)
    assert "a request is expected" in refused(pack_message(replace(SMALL, is_reply=True)))
    assert "its SHA-256 is another" in refused(data[:-1] + b"?")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"\1", "should have 3 more bytes, and 1 are left"),
        (b"\1\5\0ab", "should have 5 more bytes, and 2 are left"),
        (b"\2\0\0" + bytes(8) + b"\xff" * 8, "should have 18446744073709551615 more bytes, and 0 are left"),
        (b"\7\0\0" + bytes(16), "unknown form 7"),
        (b"\1\1\0\xff" + bytes(16), "no UTF-8"),
        (2 * (b"\1\1\0a" + bytes(16)), "has 'a', 0, twice"),
    ],
)
def test_each_fault_of_a_part_has_its_text(payload: bytes, text: str) -> None:
    assert text in refused(with_payload(payload))


def test_parts_without_end_are_refused() -> None:
    payload = b"".join(b"\1\0\0" + place.to_bytes(8, "little") + bytes(8) for place in range(2**16 + 1))
    assert "more than 65536 parts" in refused(with_payload(payload))


def test_what_is_no_bytes_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="must be bytes, got a str"):
        unpack_message("text", is_reply=False)  # type: ignore[arg-type]


def test_parts_that_are_missing_or_unknown_are_named() -> None:
    rate, w = Part(Form.NUMBERS, "rate"), Part(Form.CIPHERTEXT, "w", 3)
    check_parts(SMALL, [rate])
    with pytest.raises(AutodiffError, match="lacks ciphertext 'w', 3"):
        check_parts(SMALL, [rate, w])
    with pytest.raises(AutodiffError, match="has the unknown numbers 'rate', 0"):
        check_parts(SMALL, [])


def test_numbers_come_back_with_their_shape() -> None:
    array = np.random.default_rng(0).normal(size=(2, 0, 3)[::2])
    assert np.array_equal(unpack_numbers("x", pack_numbers(array), (2, 3)), array)


@pytest.mark.parametrize("contents", [b"", bytes(7), bytes(16)])
def test_numbers_of_another_shape_are_refused(contents: bytes) -> None:
    with pytest.raises(AutodiffError, match=f"'x' should be 1 numbers, and has {len(contents)} bytes"):
        unpack_numbers("x", contents, ())


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(AutodiffError, match="'x' must be finite numbers"):
        unpack_numbers("x", pack_numbers(np.array([np.nan])), (1,))


def test_the_repr_shows_no_contents() -> None:
    assert "rate" not in repr(SMALL)
