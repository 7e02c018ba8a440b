"""Plain data as JSON values and back, bit for bit.

What JSON has no form for is an object with one key: `{"$float": "7ff8000000000000"}` holds the bits of a float that is
not finite, `{"$tuple": [...]}` a tuple. A key that begins with `$` gets another `$` in front. In every string a
surrogate code point, and U+FFFD itself, is U+FFFD and four hex digits: JSON would join two surrogates to one character.
"""

from __future__ import annotations

import re
import struct
from math import isfinite
from typing import Any, Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.serialization.faults import Fault, found, step
from tinychain.autodiff.text.notation import MAX_DEPTH

#: The interpreter can be told to read no longer ints than this.
MAX_DIGITS: Final = 640
_INT_LIMIT: Final = 10**MAX_DIGITS

PLAIN: Final = "an int, float, bool, str, None, list, tuple or dict itself, and no subclass of one"
_SHORTER: Final = f"an int of at most {MAX_DIGITS} digits"
_DEPTH: Final = f"lists and mappings that nest no deeper than {MAX_DEPTH}"
_CAST: Final = "convert it first"

_ATOMS: Final = frozenset({str, int, bool, type(None)})

_odd_characters = re.compile("[\ud800-\udfff\ufffd]")
_escapes = re.compile("\ufffd(?=(d[89a-f][0-9a-f]{2}|fffd|))[0-9a-f]{0,4}|[\ud800-\udfff]")
_is_bits = re.compile("[0-9a-f]{16}").fullmatch


# ---------------------------------------------------------------------------------------------------------- strings


def encode_text(text: object, what: str = "a str") -> str:
    """A str as JSON may hold it; a Fault for another object."""
    if type(text) is not str:
        raise Fault("", what, quote(text), _CAST)
    return text if text.isascii() else _odd_characters.sub(lambda match: f"\ufffd{ord(match[0]):04x}", text)


def decode_text(text: object, what: str = "a string") -> str:
    """The inverse of `encode_text`."""
    if type(text) is not str:
        raise Fault("", what, found(text))
    return text if text.isascii() else _escapes.sub(_decoded, text)


def _decoded(match: re.Match[str]) -> str:
    if not match[1]:
        raise Fault("", "U+FFFD and the four hex digits of a surrogate or of U+FFFD", quote(match[0]))
    return chr(int(match[1], 16))


# ----------------------------------------------------------------------------------------------------------- values


def encode_value(value: Any, depth: int = 0) -> Any:
    """Plain data as data that JSON can hold exactly; a Fault for anything else."""
    kind = type(value)
    if kind is str:
        return encode_text(value)
    if kind is float:
        return value if isfinite(value) else {"$float": struct.pack(">d", value).hex()}
    if kind is int:
        return _checked_int(value)
    if value is None or kind is bool:
        return value
    if kind not in (list, tuple, dict):
        raise Fault("", PLAIN, quote(value), _CAST)
    _check_depth(depth)
    if kind is dict:
        return {_encode_key(key): _below(encode_value, key, item, depth) for key, item in value.items()}
    items = [_below(encode_value, index, item, depth) for index, item in enumerate(value)]
    return items if kind is list else {"$tuple": items}


def _encode_key(key: object) -> str:
    text = encode_text(key, "a key that is a str")
    return f"${text}" if text.startswith("$") else text


def decode_value(data: Any, depth: int = 0) -> Any:
    """The inverse of `encode_value`, for data as `document` parses it: floats are finite, and ints are not too long.

    Lists and dicts are changed in place where they can be, so that they are held only once.
    """
    kind = type(data)
    if kind is str:
        return decode_text(data)
    if kind is list:
        _check_depth(depth)
        for index, item in enumerate(data):
            if type(item) not in _ATOMS or type(item) is str:
                data[index] = _below(decode_value, index, item, depth)
        return data
    if kind is dict:
        if len(data) == 1:
            ((key, content),) = data.items()
            if key in _TAGS:
                return _TAGS[key](content, depth)
        _check_depth(depth)
        return _decode_mapping(data, depth)
    return data


def _decode_mapping(data: dict[str, Any], depth: int) -> dict[str, Any]:
    renamed = False
    for key, item in data.items():
        data[key] = _below(decode_value, key, item, depth)
        renamed = renamed or key.startswith("$") or not key.isascii()
    return {_decode_key(key): item for key, item in data.items()} if renamed else data


def _decode_key(key: str) -> str:
    if key.startswith("$") and not key.startswith("$$"):
        raise Fault(step(key), f"a key that begins with $$, or one of {', '.join(_TAGS)} alone", quote(key))
    return decode_text(key.removeprefix("$"))


def _decode_float(bits: object, depth: int) -> float:
    if isinstance(bits, str) and _is_bits(bits):
        value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
        if not isfinite(value):
            return value
    raise Fault(".$float", "the 16 hex digits of an infinity or a NaN", found(bits))


def _decode_tuple(items: object, depth: int) -> tuple[Any, ...]:
    if type(items) is not list:
        raise Fault(".$tuple", "an array", found(items))
    try:
        return tuple(decode_value(items, depth))
    except Fault as fault:
        raise fault.below(".$tuple") from None


_TAGS: Final = {"$float": _decode_float, "$tuple": _decode_tuple}


def _below(convert: Any, key: object, item: Any, depth: int) -> Any:
    try:
        return convert(item, depth + 1)
    except Fault as fault:
        raise fault.below(step(key)) from None


def _checked_int(value: int) -> int:
    if not -_INT_LIMIT < value < _INT_LIMIT:
        raise Fault("", _SHORTER, "a longer one", "no size or literal needs it")
    return value


def _check_depth(depth: int) -> None:
    if depth == MAX_DEPTH:
        raise Fault("", _DEPTH, "deeper ones", "flatten it")
