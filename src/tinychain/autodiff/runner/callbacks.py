"""Callbacks for `Trainer.fit`: any function of a `StepRecord`. It stops the run by returning True.

What a callback keeps in a list of floats called `history` is saved in checkpoints and comes back when a run resumes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from math import inf
from typing import IO

import numpy as np

from tinychain.autodiff.errors import quote
from tinychain.autodiff.runner.batches import positive
from tinychain.autodiff.runner.checkpoint import check_path
from tinychain.autodiff.runner.trainer import StepRecord, Trainer


class EarlyStopping:
    """Stops when `evaluate(trainer)`, taken every so many steps, was `patience` times in a row no better than the best.

    Better is lower by more than `min_improvement`. `history` has every value so far. With `best`, a path, the run is
    saved there at each better value, and `trainer.restore(best)` goes back to it.
    """

    def __init__(
        self,
        evaluate: Callable[[Trainer], float],
        *,
        every: int,
        patience: int,
        min_improvement: float = 0.0,
        best: str | os.PathLike[str] | None = None,
    ) -> None:
        if not callable(evaluate):
            raise TypeError(f"evaluate must be a function of a Trainer, got {quote(evaluate)}")
        if not isinstance(min_improvement, (int, float, np.number)) or not min_improvement >= 0:
            raise ValueError(f"min_improvement must be a number of at least 0, got {quote(min_improvement)}")
        self._evaluate, self._least = evaluate, min_improvement
        self._every, self._patience = positive("every", every), positive("patience", patience)
        self._best = None if best is None else check_path("best", best)
        self.history: list[float] = []

    def __call__(self, record: StepRecord) -> bool:
        if record.step % self._every:
            return False
        self.history.append(float(self._evaluate(record.trainer)))
        best, waited = inf, 0
        for value in self.history:
            best, waited = (value, 0) if value < best - self._least else (best, waited + 1)
        if self._best is not None and not waited:
            record.trainer.save(self._best)
        return waited >= self._patience


class Progress:
    """Prints a line every so many steps, to standard error unless another stream is given."""

    def __init__(self, every: int = 1, stream: IO[str] | None = None) -> None:
        if stream is not None and not callable(getattr(stream, "write", None)):
            raise TypeError(f"stream must be None or a text stream, got {quote(stream)}")
        self._every, self._stream = positive("every", every), stream

    def __call__(self, record: StepRecord) -> None:
        if record.step % self._every == 0:
            line = f"epoch {record.epoch}, step {record.step}: loss {record.loss:.6g}, {record.seconds:.1f} s\n"
            (sys.stderr if self._stream is None else self._stream).write(line)
