"""A cursor over the tokens of one line of text: strings, values and typespecs, and what to say when one is missing."""

from __future__ import annotations

import re
from math import isinf
from typing import Any, Final, NoReturn

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.text.notation import MAX_DEPTH, NUMBER, RESERVED, STRING, WORD, parse_string
from tinychain.autodiff.text.write import format_typespec

# The last alternatives keep a stray character, and all that follows an unclosed quote, as one token each.
_tokens = re.compile(rf'{STRING}|{WORD}|{NUMBER}|[^\s"]|".*').findall
_is_string = re.compile(STRING).fullmatch
_is_word = re.compile(WORD).fullmatch
_is_number = re.compile(NUMBER).fullmatch

_CONSTANTS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "nan": float("nan"),
    "inf": float("inf"),
}

# How much of a line or token a message shows.
_SHOWN: Final = 100


class Line:
    """The current line. Strings and typespecs that are equal share one object across lines."""

    def __init__(self) -> None:
        self.number = 0
        self._text = ""
        self._tokens: list[str] = [""]
        self._at = 0
        self._strings: dict[str, str] = {}
        self._typespecs: dict[tuple[str, ...] | str, Any] = {}

    def read(self, text: str) -> str:
        """Makes `text` the current line; its first token, which is "" for an empty line."""
        self.number += 1
        self._text = text
        self._tokens = _tokens(text)
        self._tokens.append("")
        self._at = 0
        return self._tokens[0]

    def fail(self, expected: str) -> NoReturn:
        """Raises malformed_derivative_ir: the current token is not what was expected."""
        token = self._tokens[self._at]
        found = quote(token[:_SHOWN]) if token else "the end of the line"
        self.reject(f"expected {expected}, found {found} in {quote(self._text[:_SHOWN])}")

    def reject(self, message: str, *, category: str = "malformed_derivative_ir") -> NoReturn:
        """Raises `category` with the line's number."""
        raise AutodiffError(category, f"line {self.number}: {message}")

    def at(self, token: str) -> bool:
        """Whether the current token is this one."""
        return self._tokens[self._at] == token

    def accept(self, token: str) -> bool:
        """Whether the current token is this one, which is then passed."""
        found = self.at(token)
        self._at += found
        return found

    def expect(self, token: str) -> None:
        """Passes this token."""
        if not self.at(token):
            self.fail(f'"{token}"')
        self._at += 1

    def end(self) -> None:
        """The line ends here."""
        if self._tokens[self._at]:
            self.fail("the end of the line")

    def string(self, role: str) -> str:
        """A word or a quoted string."""
        token = self._tokens[self._at]
        text = self._strings.get(token)
        if text is None:
            if _is_string(token):
                text = self._unquoted(token)
            elif _is_word(token) and token not in RESERVED:
                text = token
            else:
                self.fail(role)
            self._strings[token] = text
        self._at += 1
        return text

    def _unquoted(self, token: str) -> str:
        try:
            return parse_string(token)
        except ValueError:
            self.fail(r"a string with no escapes but \\, \", \n and \u{hex}")

    def value(self, depth: int = 0) -> Any:
        """A number, quoted string, true, false, null, list or mapping."""
        token = self._tokens[self._at]
        if token == "[":
            return self._list(depth)
        if token == "{":
            return self.mapping(depth)
        if token in _CONSTANTS:
            value = _CONSTANTS[token]
        elif _is_string(token):
            value = self._unquoted(token)
        elif _is_number(token):
            value = self._parsed_number(token)
        else:
            self.fail("a number, quoted string, true, false, null, list or mapping")
        self._at += 1
        return value

    def _parsed_number(self, token: str) -> int | float:
        if "x" in token:
            return int(token, 16)
        if token.lstrip("-").isdigit():
            try:
                return int(token)
            except ValueError:
                self.fail("an int of fewer digits; write so long a one in hex")
        value = float(token)
        if isinf(value) and token != "-inf":
            self.fail("a number that a float can hold")
        return value

    def _list(self, depth: int) -> list[Any]:
        self._open("[", depth)
        items: list[Any] = []
        while not self.accept("]"):
            if items:
                self._separator("]")
            items.append(self.value(depth + 1))
        return items

    def mapping(self, depth: int = 0) -> dict[str, Any]:
        """A mapping from strings to values."""
        self._open("{", depth)
        items: dict[str, Any] = {}
        while not self.accept("}"):
            if items:
                self._separator("}")
            key = self.string("a key")
            if key in items:
                self._at -= 1
                self.fail("a key that was not there yet")
            self.expect(":")
            items[key] = self.value(depth + 1)
        return items

    def _open(self, bracket: str, depth: int) -> None:
        if depth == MAX_DEPTH:
            self.fail(f"lists and mappings that nest no deeper than {MAX_DEPTH}")
        self.expect(bracket)

    def _separator(self, end: str) -> None:
        if not self.accept(","):
            self.fail(f'"," or "{end}"' if end else '"," or the end of the line')

    def strings(self, role: str, *, until: str = "") -> list[str]:
        """Strings between commas up to `until`, which is passed unless it is the line's end."""
        strings: list[str] = []
        while not self.at(until):
            if strings:
                self._separator(until)
            strings.append(self.string(role))
        self._at += bool(until)
        return strings

    def typespec(self, *, before: int = 0) -> Any:
        """The typespec after a colon, or None; `before` tokens of the statement stand between it and the line's end."""
        if not self.accept(":"):
            return None
        start, stop = self._at, len(self._tokens) - 1 - before
        key = tuple(self._tokens[start:stop])
        if key in self._typespecs:
            self._at = stop
            return self._typespecs[key]
        spec = self._typespec()
        if spec is not None:
            spec = self._typespecs.setdefault(format_typespec(spec), spec)
        if self._at == stop:
            self._typespecs[key] = spec
        return spec

    def _typespec(self) -> Any:
        dtype = self._tokens[self._at]
        if not _is_word(dtype) or self._tokens[self._at + 1] != "[":
            return self.value()
        dtype = self.string("a dtype")
        self.expect("[")
        shape: list[Any] = []
        while not self.accept("]"):
            if shape:
                self._separator("]")
            shape.append(self._dim())
        return {"dtype": dtype, "shape": shape}

    def _dim(self) -> int | str:
        token = self._tokens[self._at]
        if not _is_number(token):
            return self.string("an int or a symbol")
        value = self._parsed_number(token)
        if not isinstance(value, int):
            self.fail("an int or a symbol")
        self._at += 1
        return value
