"""The front end: ordinary Tensor code, run once inside a builder, becomes a graph."""

from __future__ import annotations

from tinychain.autodiff.tracing.builder import TensorGraphBuilder, captured_operator_types, get_active_builder
from tinychain.autodiff.tracing.source import SourceLine
from tinychain.autodiff.tracing.tensor import Tensor

__all__ = ["SourceLine", "Tensor", "TensorGraphBuilder", "captured_operator_types", "get_active_builder"]
