"""A small runner: trains a compiled step on a backend, with batches, callbacks and checkpoints."""

from __future__ import annotations

from tinychain.autodiff.runner.callbacks import EarlyStopping, Progress
from tinychain.autodiff.runner.checkpoint import Checkpoint
from tinychain.autodiff.runner.trainer import Report, StepRecord, Trainer

__all__ = ["Checkpoint", "EarlyStopping", "Progress", "Report", "StepRecord", "Trainer"]
