"""Optimizers and their traced updates."""

from __future__ import annotations

from tinychain.autodiff.training.optimizers import SGD, Momentum, Optimizer, sgd_update
from tinychain.autodiff.training.update import TracedUpdate, trace_parameter_update

__all__ = ["SGD", "Momentum", "Optimizer", "TracedUpdate", "sgd_update", "trace_parameter_update"]
