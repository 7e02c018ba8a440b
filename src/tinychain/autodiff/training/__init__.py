"""Optimizers, their traced updates, and the training step as one compiled artifact."""

from __future__ import annotations

from tinychain.autodiff.training.adam import Adam, AdamW
from tinychain.autodiff.training.clipping import ClipByGlobalNorm, ClipByValue
from tinychain.autodiff.training.gradient_inputs import GradientInputs
from tinychain.autodiff.training.optimizers import SGD, Momentum, Nesterov, Optimizer, sgd_update
from tinychain.autodiff.training.records import (
    CompiledTrainingStep,
    ParameterCompilation,
    TrainingStepProvenance,
    Twins,
)
from tinychain.autodiff.training.step import compile_training_step
from tinychain.autodiff.training.update import TracedUpdate, trace_parameter_update

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "ClipByGlobalNorm",
    "ClipByValue",
    "CompiledTrainingStep",
    "GradientInputs",
    "Momentum",
    "Nesterov",
    "Optimizer",
    "ParameterCompilation",
    "TracedUpdate",
    "TrainingStepProvenance",
    "Twins",
    "compile_training_step",
    "sgd_update",
    "trace_parameter_update",
]
