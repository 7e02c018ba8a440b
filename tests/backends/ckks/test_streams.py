"""Messages over pipes, sockets and streams that give and take little at a time."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinychain.autodiff.backends.ckks.streams import Reader, answer, ask, receive, send
from tinychain.autodiff.errors import AutodiffError

LIMIT = 1000


class Dripping(io.RawIOBase):
    """A stream that takes and gives at most three bytes at a time."""

    def __init__(self, data: bytes = b"") -> None:
        self.data, self.at = bytearray(data), 0

    def read(self, size: int = -1, /) -> bytes:
        self.at += (chunk := min(3, size, len(self.data) - self.at))
        return bytes(self.data[self.at - chunk : self.at])

    def write(self, data: bytes | memoryview, /) -> int:  # type: ignore[override]  # of the data a view is enough
        self.data += data[:3]
        return min(3, len(data))


def sent(*messages: bytes) -> bytes:
    stream = io.BytesIO()
    for message in messages:
        send(stream, message)
    return stream.getvalue()


def refusal(reader: Reader) -> str:
    with pytest.raises(AutodiffError) as caught:
        receive(reader, max_bytes=LIMIT)
    assert caught.value.category == "invalid_message"
    return caught.value.message


@given(st.lists(st.binary(max_size=50), max_size=3))
def test_messages_come_as_they_were_sent_however_little_fits_at_a_time(messages: list[bytes]) -> None:
    stream = Dripping()
    for message in messages:
        send(stream, message)
    reader = Dripping(bytes(stream.data))
    assert [receive(reader, max_bytes=LIMIT) for _ in messages] == messages
    assert receive(reader, max_bytes=LIMIT) is None


@given(st.binary(max_size=20), st.data())
def test_an_end_within_a_message_is_an_error(message: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(1, len(message) + 7))
    assert "ended within a message" in refusal(io.BytesIO(sent(message)[:cut]))


def test_a_length_above_the_limit_is_refused_before_anything_is_read() -> None:
    reader = io.BytesIO(b"\xff" * 8 + bytes(2 * LIMIT))
    assert f"none above {LIMIT}" in refusal(reader)
    assert reader.tell() == 8


def test_a_limit_that_is_none_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="max_bytes must be a non-negative int"):
        receive(io.BytesIO(), max_bytes=-1)


def test_broken_streams_are_reported_as_such() -> None:
    closed = io.BytesIO()
    closed.close()
    assert "the connection broke while a message was received" in refusal(closed)
    with pytest.raises(AutodiffError, match="the connection broke while a message was sent"):
        send(closed, b"message")


def test_a_stream_that_takes_nothing_is_refused() -> None:
    class Full(Dripping):
        def write(self, data: bytes | memoryview, /) -> int:  # type: ignore[override]
            return 0

    with pytest.raises(AutodiffError, match="must be one that waits"):
        send(Full(), b"message")


def test_a_server_that_hangs_up_is_reported_as_such() -> None:
    with pytest.raises(AutodiffError, match="closed the connection instead of answering"):
        ask(io.BytesIO(), io.BytesIO(), max_bytes=LIMIT)(b"message")


@pytest.mark.parametrize("buffering", [-1, 0])
def test_messages_larger_than_buffers_go_over_a_socket(buffering: int) -> None:
    near, far = socket.socketpair()
    with near, far, near.makefile("rwb", buffering) as mine, far.makefile("rwb", buffering) as other:
        server = Thread(target=answer, args=(bytes.swapcase, other, other), kwargs={"max_bytes": 2**23})
        server.start()
        exchange = ask(mine, mine, max_bytes=2**23)
        assert [exchange(b"a" * size) for size in (0, 1, 2**22)] == [b"A" * size for size in (0, 1, 2**22)]
        near.shutdown(socket.SHUT_WR)
        server.join()


_ECHO = """
import sys
from tinychain.autodiff.backends.ckks.streams import answer
answer(bytes.swapcase, sys.stdin.buffer, sys.stdout.buffer, max_bytes=10**7)
"""


def test_messages_go_to_another_process_over_pipes() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _ECHO], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        exchange = ask(process.stdout, process.stdin, max_bytes=10**7)
        assert [exchange(b"a" * size) for size in (1, 2**20)] == [b"A" * size for size in (1, 2**20)]
        process.stdin.close()
        assert process.wait() == 0
