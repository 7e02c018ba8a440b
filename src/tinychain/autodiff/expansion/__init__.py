"""Opt-in passes that rewrite what a backend lacks into what it has. Nothing is expanded unless the caller asks."""

from __future__ import annotations

from tinychain.autodiff.expansion.fill import fill_descriptor
from tinychain.autodiff.expansion.mean import (
    BROADCAST_SCALE_EXPANSION,
    MEAN_EXPANSION_FORWARD,
    MeanDerivativeExpansionResult,
    MeanGraphExpansionResult,
    expand_mean_derivative_program,
    expand_mean_derivative_program_detailed,
    expand_mean_graph,
    expand_mean_graph_detailed,
)
from tinychain.autodiff.expansion.rewriter import (
    EXPANSION_NODE_ID_PREFIX,
    EXPANSION_VALUE_ID_PREFIX,
    MeanExpansionRegion,
)
from tinychain.autodiff.operators.constant import FILL_ROUTE_NAME, FillDescriptor, FillOperator

__all__ = [
    "BROADCAST_SCALE_EXPANSION",
    "EXPANSION_NODE_ID_PREFIX",
    "EXPANSION_VALUE_ID_PREFIX",
    "FILL_ROUTE_NAME",
    "FillDescriptor",
    "FillOperator",
    "MEAN_EXPANSION_FORWARD",
    "MeanDerivativeExpansionResult",
    "MeanExpansionRegion",
    "MeanGraphExpansionResult",
    "expand_mean_derivative_program",
    "expand_mean_derivative_program_detailed",
    "expand_mean_graph",
    "expand_mean_graph_detailed",
    "fill_descriptor",
]
