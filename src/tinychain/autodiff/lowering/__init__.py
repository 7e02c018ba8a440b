"""From artifacts to target programs: handlers by operator class, optional fusion, everything claimed exactly once."""

from __future__ import annotations

from tinychain.autodiff.lowering.records import (
    LOWERING_CLAIM_FUSION,
    LOWERING_CLAIM_HANDLER,
    FusionContext,
    FusionHook,
    FusionResult,
    LoweredOperation,
    LoweredProgram,
    OperationContext,
    OperationHandler,
)
from tinychain.autodiff.lowering.registry import OperationHandlerRegistry
from tinychain.autodiff.lowering.walk import lower_derivative_program, lower_graph

__all__ = [
    "LOWERING_CLAIM_FUSION",
    "LOWERING_CLAIM_HANDLER",
    "FusionContext",
    "FusionHook",
    "FusionResult",
    "LoweredOperation",
    "LoweredProgram",
    "OperationContext",
    "OperationHandler",
    "OperationHandlerRegistry",
    "lower_derivative_program",
    "lower_graph",
]
