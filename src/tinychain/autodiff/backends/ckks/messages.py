"""The bytes that a client and a server exchange. All of a message is checked before anything is done with it.

Numbers are little-endian, and the payload is parts, one after the other::

    offset  bytes  a message                            offset  bytes  a part
    0       4      b"TCAE"                              0       1      form: of its contents, see Form
    4       2      version, 1                           1       2      m, the length of the name
    6       1      kind, see MessageKind                3       m      name, in UTF-8
    7       1      direction: 0 to the server, 1 back   3 + m   8      place
    8       16     session: random, one for each key    11 + m  8      k, the length of the contents
    24      32     fingerprint of the plan              19 + m  k      contents
    56      8      number: a request's is greater than all before it, its reply repeats it
    64      8      n, the length of the payload
    72      n      payload
    72 + n  32     SHA-256 of all bytes before

The sum is there for accidents. Everybody can make one, so it does not say who a message is from: use a transport that
does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.errors import AutodiffError, quote

VERSION: Final = 1
SESSION_BYTES: Final = 16
FINGERPRINT_BYTES: Final = 32
_MAGIC: Final = b"TCAE"
_HEADER: Final = Struct(f"<4sHBB{SESSION_BYTES}s{FINGERPRINT_BYTES}sQQ")
_SUM_BYTES: Final = sha256().digest_size
_NAME: Final = Struct("<BH")
_CONTENTS: Final = Struct("<QQ")
_MOST_PARTS: Final = 2**16  # so that a message of many empty ones does not become many times larger in memory
_FLOATS: Final = np.dtype("<f8")

#: The bytes of a message without parts, and those that a part has beside its name and its contents.
MESSAGE_OVERHEAD: Final = _HEADER.size + _SUM_BYTES
PART_OVERHEAD: Final = _NAME.size + _CONTENTS.size


class MessageKind(IntEnum):
    """What a message is about. A reply is of its request's kind, or a REFUSAL."""

    KEYS = 1
    DATA = 2
    STEPS = 3
    REFUSAL = 4


class Form(IntEnum):
    """What the contents of a part are: the library's own bytes, float64 numbers, or text in UTF-8."""

    KEYS = 1
    CIPHERTEXT = 2
    NUMBERS = 3
    TEXT = 4


class Part(NamedTuple):
    """Where contents belong: `place` tells the ciphertexts of one tensor apart."""

    form: Form
    name: str
    place: int = 0


@dataclass(frozen=True, eq=False)
class Message:
    """A message; `parts` has the contents, which are bytes or a view of them. The repr leaves them out."""

    kind: MessageKind
    is_reply: bool
    session: bytes
    fingerprint: bytes
    number: int
    parts: Mapping[Part, bytes | memoryview] = field(default_factory=dict, repr=False)


def invalid(why: str) -> AutodiffError:
    return AutodiffError("invalid_message", why)


def pack_message(message: Message) -> bytes:
    """The bytes of a message; the contents are copied once."""
    chunks: list[bytes | memoryview] = []
    for part, contents in message.parts.items():
        name = part.name.encode("utf-8", "surrogatepass")
        chunks += [_NAME.pack(part.form, len(name)), name, _CONTENTS.pack(part.place, len(contents)), contents]
    head = (_MAGIC, VERSION, message.kind, message.is_reply, message.session, message.fingerprint, message.number)
    chunks.insert(0, _HEADER.pack(*head, sum(map(len, chunks))))
    total = sha256()
    for chunk in chunks:
        total.update(chunk)
    return b"".join([*chunks, total.digest()])


def unpack_message(data: bytes, *, is_reply: bool) -> Message:
    """The inverse of `pack_message`; contents are views of `data`. What it did not make is an invalid_message."""
    if not isinstance(data, bytes):
        raise TypeError(f"a message must be bytes, got a {type(data).__name__}")
    if len(data) < MESSAGE_OVERHEAD:
        raise invalid(f"{len(data)} bytes are no message; it has at least {MESSAGE_OVERHEAD}, so it was cut off")
    magic, version, kind, direction, session, fingerprint, number, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise invalid(f"these bytes are no message of this package: they start with {quote(magic)}")
    if version != VERSION:
        raise invalid(f"the message has version {version}; this package reads version {VERSION}")
    if len(data) != MESSAGE_OVERHEAD + length:
        raise invalid(f"the message should have {MESSAGE_OVERHEAD + length} bytes, and has {len(data)}")
    view = memoryview(data)
    if sha256(view[:-_SUM_BYTES]).digest() != view[-_SUM_BYTES:]:
        raise invalid("the message was changed on its way: its SHA-256 is another")
    if kind not in list(MessageKind):
        raise invalid(f"the message is of the unknown kind {kind}")
    if direction != is_reply:
        raise invalid("the message goes the other way: " + ("a reply" if is_reply else "a request") + " is expected")
    parts = _parts(view[_HEADER.size : -_SUM_BYTES])
    return Message(MessageKind(kind), is_reply, session, fingerprint, number, parts)


def _parts(payload: memoryview) -> dict[Part, memoryview]:
    parts: dict[Part, memoryview] = {}
    rest = payload
    while rest:
        if len(parts) == _MOST_PARTS:
            raise invalid(f"the message has more than {_MOST_PARTS} parts")
        (form, name_length), rest = _NAME.unpack(_cut(rest, _NAME.size)), rest[_NAME.size :]
        name, rest = bytes(_cut(rest, name_length)), rest[name_length:]
        (place, length), rest = _CONTENTS.unpack(_cut(rest, _CONTENTS.size)), rest[_CONTENTS.size :]
        contents, rest = _cut(rest, length), rest[length:]
        if form not in list(Form):
            raise invalid(f"part {len(parts)} of the message has the unknown form {form}")
        try:
            part = Part(Form(form), name.decode("utf-8", "surrogatepass"), place)
        except UnicodeDecodeError:
            raise invalid(f"part {len(parts)} of the message has a name that is no UTF-8") from None
        if part in parts:
            raise invalid(f"the message has {quote(part.name)}, {place}, twice")
        parts[part] = contents
    return parts


def _cut(rest: memoryview, length: int) -> memoryview:
    if length > len(rest):
        raise invalid(f"a part of the message should have {length} more bytes, and {len(rest)} are left")
    return rest[:length]


# ---------------------------------------------------------------------------------------------------------- contents


def check_parts(message: Message, expected: Collection[Part]) -> None:
    """Raises invalid_message unless the message has exactly these parts."""
    for part in [*expected, *message.parts]:
        if part not in message.parts or part not in expected:
            fault = "lacks" if part in expected else "has the unknown"
            what = f"{fault} {part.form.name.lower()} {quote(part.name)}, {part.place}"
            raise invalid(f"the message {what}; it must have exactly what the plan says")


def pack_numbers(array: NDArray[Any]) -> bytes:
    return array.astype(_FLOATS).tobytes()


def unpack_numbers(name: str, contents: bytes | memoryview, shape: tuple[int, ...]) -> NDArray[Any]:
    """A new float64 array of finite numbers of this shape; an invalid_message otherwise."""
    size = int(np.prod(shape, dtype=object))
    if len(contents) != size * _FLOATS.itemsize:
        raise invalid(f"{quote(name)} should be {size} numbers, and has {len(contents)} bytes")
    array = np.frombuffer(contents, _FLOATS).astype(np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise invalid(f"{quote(name)} must be finite numbers")
    return array
