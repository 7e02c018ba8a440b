"""The envelope: strict JSON with a format, a version, a kind, and a hash over the canonical bytes of the payload."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from math import isinf
from typing import Any, Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.serialization.faults import Fault, found, step
from tinychain.autodiff.serialization.values import MAX_DIGITS

FORMAT: Final = "tinychain.autodiff"
VERSION: Final = 1

_DAMAGED: Final = "the file is truncated, damaged or edited, so get it again or write it again"

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def write_document(kind: str, payload: Any) -> bytes:
    """The canonical bytes: ASCII, keys sorted, no blanks, and a line feed at the end."""
    text = _canonical(payload)
    digest = hashlib.sha256(text.encode()).hexdigest()
    head = f'{{"format":"{FORMAT}","kind":"{kind}","payload":'
    return f'{head}{text},"sha256":"{digest}","version":{VERSION}}}\n'.encode()


def read_document(data: bytes | str) -> tuple[str, Any]:
    """The kind and the payload of any spelling of the JSON that has the right hash; a Fault for anything else."""
    document = _parse(_decoded(data))
    if type(document) is not dict:
        raise Fault("$", "an object", found(document))
    if document.get("format") != FORMAT:
        raise Fault("$.format", quote(FORMAT), _field(document, "format"), "this is no file of tinychain.autodiff")
    _check_version(document)
    names = {"format", "version", "kind", "sha256", "payload"}
    for name in sorted(names ^ document.keys()):
        if name in names:
            raise Fault(f"${step(name)}", "a value", "none")
        raise Fault(f"${step(name)}", f"no other keys than {', '.join(sorted(names))}", "it")
    payload = document["payload"]
    _check_hash(payload, document["sha256"])
    return document["kind"], payload


def _decoded(data: bytes | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fault("$", "UTF-8", f"the byte 0x{data[error.start]:02x} at offset {error.start}", _DAMAGED) from None


def _check_version(document: dict[str, Any]) -> None:
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Fault("$.version", f"an int from 1 to {VERSION}", _field(document, "version"))
    if version > VERSION:
        raise Fault("$.version", f"an int from 1 to {VERSION}", found(version), "update tinychain-autodiff to read it")


def _field(document: dict[str, Any], name: str) -> str:
    return found(document[name]) if name in document else "none"


def _check_hash(payload: Any, stated: object) -> None:
    digest = hashlib.sha256(_canonical(payload).encode()).hexdigest()
    if stated != digest:
        raise Fault("$.sha256", f"{digest}, the hash of the payload", found(stated), _DAMAGED)


# ---------------------------------------------------------------------------------------------------------- parsing


class _Refused:
    """Stands in the parsed data for what strict JSON does not allow: the parser knows why, and only later where."""

    __slots__ = ("expected", "got")

    def __init__(self, expected: str, got: str) -> None:
        self.expected = expected
        self.got = got


def _parse(text: str) -> Any:
    refused: list[_Refused] = []

    def refuse(expected: str, got: str) -> _Refused:
        refused.append(_Refused(expected, got))
        return refused[-1]

    def parse_object(pairs: list[tuple[str, Any]]) -> Any:
        data = dict(pairs)
        if len(data) == len(pairs):
            return data
        return refuse("each key once", f"{quote(_first_repeated(pairs))} twice")

    def parse_int(token: str) -> Any:
        digits = len(token) - token.startswith("-")
        return (
            refuse(f"an int of at most {MAX_DIGITS} digits", f"one of {digits}") if digits > MAX_DIGITS else int(token)
        )

    def parse_float(token: str) -> Any:
        value = float(token)
        return refuse("a number that a float can hold", quote(token)) if isinf(value) else value

    def parse_constant(token: str) -> Any:
        return refuse("JSON, in which such a float is written as its bits", token)

    try:
        data = json.loads(
            text,
            object_pairs_hook=parse_object,
            parse_int=parse_int,
            parse_float=parse_float,
            parse_constant=parse_constant,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno} of {len(text)} characters: {error.msg}"
        raise Fault("$", "JSON", f"none at {where}", _DAMAGED) from None
    if refused:
        for path, item in _walk(data):
            if isinstance(item, _Refused):
                raise Fault(path, item.expected, item.got)
    return data


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    counts = Counter([key for key, _ in pairs])
    return next(key for key, count in counts.items() if count > 1)


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Every value below `root` with its path, holding only the way to the current one."""
    yield "$", root
    way: list[str] = ["$"]
    pending = [_children(root)]
    while pending:
        child = next(pending[-1], None)
        if child is None:
            pending.pop()
            way.pop()
            continue
        way.append(step(child[0]))
        pending.append(_children(child[1]))
        yield "".join(way), child[1]


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list) else iter(())
