"""Callbacks for `Trainer.fit`: any function of a `StepRecord`. It stops the run by returning True.

What a callback keeps in a list of floats called `history` is saved in checkpoints and comes back when a run resumes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf
from typing import IO

from tinychain.autodiff.errors import quote
from tinychain.autodiff.runner.trainer import StepRecord, Trainer
from tinychain.autodiff.types import as_int


class EarlyStopping:
    """Stops when `evaluate(trainer)`, taken every so many steps, was `patience` times in a row no better than the best.

    Better is lower by more than `min_improvement`. `history` has every value so far.
    """

    def __init__(
        self, evaluate: Callable[[Trainer], float], *, every: int, patience: int, min_improvement: float = 0.0
    ) -> None:
        if (
            not callable(evaluate)
            or (as_int(every) or 0) < 1
            or (as_int(patience) or 0) < 1
            or not min_improvement >= 0
        ):
            given = quote((evaluate, every, patience, min_improvement))
            raise ValueError(f"expected a function, two ints of at least 1 and a number of at least 0, got {given}")
        self._evaluate, self._every, self._patience, self._least = evaluate, every, patience, min_improvement
        self.history: list[float] = []

    def __call__(self, record: StepRecord) -> bool:
        if record.step % self._every:
            return False
        self.history.append(float(self._evaluate(record.trainer)))
        best, waited = inf, 0
        for value in self.history:
            best, waited = (value, 0) if value < best - self._least else (best, waited + 1)
        return waited >= self._patience


class Progress:
    """Prints a line every so many steps, to standard error unless another stream is given."""

    def __init__(self, every: int = 1, stream: IO[str] | None = None) -> None:
        if (as_int(every) or 0) < 1:
            raise ValueError(f"every must be a number of steps of at least 1, got {quote(every)}")
        self._every, self._stream = every, stream

    def __call__(self, record: StepRecord) -> None:
        if record.step % self._every == 0:
            line = f"epoch {record.epoch}, step {record.step}: loss {record.loss:.6g}, {record.seconds:.1f} s\n"
            (sys.stderr if self._stream is None else self._stream).write(line)
