"""Messages over binary streams, such as pipes or a socket's files: each with its length, 8 bytes, before it.

What has no end, or is longer than agreed, breaks the connection, as nobody knows where the next message starts.
"""

from __future__ import annotations

from collections.abc import Callable
from io import TextIOBase
from struct import Struct
from typing import Final, Protocol

from tinychain.autodiff.backends.ckks.messages import invalid
from tinychain.autodiff.errors import describe, quote
from tinychain.autodiff.types import as_int

_LENGTH: Final = Struct("<Q")
_CHUNK: Final = 2**20  # so that a length alone makes nobody allocate


class Reader(Protocol):
    """A binary stream that is read, buffered or not."""

    def read(self, size: int, /) -> bytes | None: ...


class Writer(Protocol):
    """A binary stream that is written, buffered or not."""

    def write(self, data: bytes | memoryview, /) -> int | None: ...

    def flush(self) -> object: ...


def answer(handle: Callable[[bytes], bytes], reader: Reader, writer: Writer, *, max_bytes: int) -> None:
    """Answers every message with `handle` until the stream ends between two; raises as `send` and `receive` do, and
    TypeError for what is no binary stream.
    """
    _check_streams(reader, writer)
    while (message := receive(reader, max_bytes=max_bytes)) is not None:
        send(writer, handle(message))


def ask(reader: Reader, writer: Writer, *, max_bytes: int) -> Callable[[bytes], bytes]:
    """The function that sends a message and waits for its reply; raises as `send` and `receive` do, and TypeError for
    what is no binary stream.
    """
    _check_streams(reader, writer)

    def exchange(message: bytes) -> bytes:
        send(writer, message)
        reply = receive(reader, max_bytes=max_bytes)
        if reply is None:
            raise invalid("the server has closed the connection instead of answering")
        return reply

    return exchange


def send(writer: Writer, message: bytes) -> None:
    """Writes a message; a broken stream is an invalid_message. Raises TypeError for what is no bytes."""
    if not isinstance(message, bytes):
        raise TypeError(f"a message must be bytes, got a {type(message).__name__}")
    try:
        for data in (_LENGTH.pack(len(message)), message):
            rest = memoryview(data)
            while rest:
                if not (written := writer.write(rest)):
                    raise OSError("it takes no bytes now, and must be one that waits")
                rest = rest[written:]
        writer.flush()
    except (OSError, ValueError) as error:
        raise invalid(f"the connection broke while a message was sent: {describe(error)}") from error


def receive(reader: Reader, *, max_bytes: int) -> bytes | None:
    """The next message; None where the stream ends before it.

    Raises invalid_message for a stream that ends within a message or breaks, and for a length above `max_bytes`, of
    which nothing is read.
    """
    limit = as_int(max_bytes)
    if limit is None or limit < 0:
        raise ValueError(f"max_bytes must be a non-negative int, got {quote(max_bytes)}")
    head = _read(reader, _LENGTH.size)
    if not head:
        return None
    _check_whole(head, _LENGTH.size)
    (length,) = _LENGTH.unpack(head)
    if length > limit:
        raise invalid(f"a message of {length} bytes is announced; the plan has none above {limit}")
    message = _read(reader, length)
    _check_whole(message, length)
    return message


def _check_streams(reader: object, writer: object) -> None:
    for stream, method in ((reader, "read"), (writer, "write")):
        if isinstance(stream, TextIOBase) or not callable(getattr(stream, method, None)):
            raise TypeError(f"expected a binary stream with {method}, got a {type(stream).__name__}")


def _check_whole(data: bytes, length: int) -> None:
    if len(data) < length:
        raise invalid(f"the connection ended within a message, after {len(data)} of {length} bytes")


def _read(reader: Reader, length: int) -> bytes:
    """As many bytes, or fewer where the stream ends."""
    data = bytearray()
    try:
        while len(data) < length:
            chunk = reader.read(min(_CHUNK, length - len(data)))
            if not chunk:
                break
            data += chunk
    except (OSError, ValueError) as error:
        raise invalid(f"the connection broke while a message was received: {describe(error)}") from error
    return bytes(data)
