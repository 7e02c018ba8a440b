"""A small graph to lower, and what a handler, a binder or a hook may raise meanwhile."""

from __future__ import annotations

from typing import Any

from dags import dag, op

#: Two operands, one of them twice, and a parameter.
GRAPH = dag(op("a", "x"), op("b", "a", "y", "a", axes=[0, 1]), inputs=["x", "y"], outputs=["b"])


class CustomError(Exception):
    """A consumer's own."""


class MuteError(Exception):
    """Raises even where it is asked for its text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


#: Failures of consumers; each has the text "odd".
FAILURES: list[Exception] = [
    CustomError("odd"),
    KeyError("odd"),
    RecursionError("odd"),
    StopIteration("odd"),
    AssertionError("odd"),
]

#: What is no failure of anybody and ends a program.
OUTCRIES: list[BaseException] = [KeyboardInterrupt(), SystemExit(3), GeneratorExit()]


def raising(error: BaseException) -> Any:
    """A function of one argument that raises it."""

    def fail(_argument: Any) -> Any:
        raise error

    return fail
