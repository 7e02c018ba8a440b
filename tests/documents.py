"""Saved artifacts edited by hand: their payload changed, and every hash made right again if asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.serialization import loads


def document_of(data: bytes) -> Any:
    return json.loads(data)


def spelled(document: Any) -> bytes:
    """The document in its canonical spelling, as the docs describe it."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def rehashed(document: Any) -> bytes:
    """The document with the hash that its payload has."""
    payload = json.dumps(document["payload"], sort_keys=True, separators=(",", ":"))
    return spelled({**document, "sha256": hashlib.sha256(payload.encode()).hexdigest()})


def edited(data: bytes, edit: Callable[[Any], None]) -> bytes:
    """A saved artifact whose payload `edit` has changed in place, with the right hash."""
    document = document_of(data)
    edit(document["payload"])
    return rehashed(document)


def outcome(read: Callable[[bytes], Any], data: bytes) -> tuple[Any, AutodiffError | None]:
    """What was read, or the error with which it was refused."""
    try:
        return read(data), None
    except AutodiffError as error:
        return None, error


def refusal(data: bytes | str, **options: Any) -> str:
    """The message with which a document is refused."""
    with pytest.raises(AutodiffError) as caught:
        loads(data, **options)
    assert caught.value.category == "invalid_artifact_file"
    return caught.value.message
