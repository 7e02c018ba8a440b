"""The facts of the notation that the writer and the parser must agree on."""

from __future__ import annotations

import re
from typing import Final

from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import OPERATORS

#: Route name -> the package's own operator class.
PACKAGE_OPERATORS: Final[dict[str, type[TensorOperator]]] = {operator().route_name: operator for operator in OPERATORS}

#: How deep lists and mappings may nest in op_params, typespecs and metadata.
MAX_DEPTH: Final = 100

#: Words with a meaning of their own; a string that is one is written quoted.
RESERVED: Final = frozenset({"input", "output", "gradient", "value", "metadata", "true", "false", "null", "nan", "inf"})

# Possessive quantifiers keep every match linear, whatever the text.
WORD: Final = r"[^\W\d][\w.]*+"
NUMBER: Final = r"-inf\b|-?(?:0x[0-9a-f]++|[0-9]++(?:\.[0-9]++)?(?:e[+-]?[0-9]++)?)"
STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'

_is_word = re.compile(WORD).fullmatch


def format_string(text: str) -> str:
    """A bare word, or a quoted string of printable characters and escapes."""
    if (text.isascii() and text.isidentifier()) or _is_word(text):
        return text if text not in RESERVED else f'"{text}"'
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join([_escaped(char) for char in text]) + '"'


def _escaped(char: str) -> str:
    if char == "\n":
        return "\\n"
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


_ESCAPE: Final = re.compile(r"\\(?:(?P<char>[\"\\])|(?P<newline>n)|u\{(?P<code>[0-9a-f]{1,6})\}|)")


def parse_string(token: str) -> str:
    """The inverse of `format_string` for a quoted string; ValueError for an escape that is none."""
    return _ESCAPE.sub(_unescaped, token[1:-1]) if "\\" in token else token[1:-1]


def _unescaped(match: re.Match[str]) -> str:
    if match["newline"]:
        return "\n"
    if match["code"]:
        return chr(int(match["code"], 16))
    if match["char"]:
        return match["char"]
    raise ValueError("not an escape")
