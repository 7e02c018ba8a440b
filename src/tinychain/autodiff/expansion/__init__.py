"""Opt-in passes that rewrite what a backend lacks into what it has. Nothing is expanded unless the caller asks."""

from __future__ import annotations

from tinychain.autodiff.expansion.constants import constant_descriptor, fill_descriptor
from tinychain.autodiff.expansion.legalize import Legalization, Legalize, declare_duals, legalize, legalize_detailed
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
from tinychain.autodiff.expansion.provenance import LegalizedRegion, chain_regions, origins
from tinychain.autodiff.expansion.rewriter import (
    EXPANSION_NODE_ID_PREFIX,
    EXPANSION_VALUE_ID_PREFIX,
    MeanExpansionRegion,
)
from tinychain.autodiff.expansion.target import Form, Limits, Target
from tinychain.autodiff.expansion.target_file import load_target, parse_target
from tinychain.autodiff.expansion.targets import READY_TARGETS, ready_target
from tinychain.autodiff.expansion.transpose_constants import transpose_by_constants
from tinychain.autodiff.expansion.transposing import dual_id, dual_source
from tinychain.autodiff.operators.constant import (
    FILL_ROUTE_NAME,
    ConstantDescriptor,
    ConstantOperator,
    FillDescriptor,
    FillOperator,
)

__all__ = [
    "BROADCAST_SCALE_EXPANSION",
    "ConstantDescriptor",
    "ConstantOperator",
    "EXPANSION_NODE_ID_PREFIX",
    "EXPANSION_VALUE_ID_PREFIX",
    "FILL_ROUTE_NAME",
    "FillDescriptor",
    "FillOperator",
    "Form",
    "Legalization",
    "Legalize",
    "LegalizedRegion",
    "Limits",
    "MEAN_EXPANSION_FORWARD",
    "MeanDerivativeExpansionResult",
    "MeanExpansionRegion",
    "MeanGraphExpansionResult",
    "READY_TARGETS",
    "Target",
    "chain_regions",
    "constant_descriptor",
    "declare_duals",
    "dual_id",
    "dual_source",
    "expand_mean_derivative_program",
    "expand_mean_derivative_program_detailed",
    "expand_mean_graph",
    "expand_mean_graph_detailed",
    "fill_descriptor",
    "legalize",
    "legalize_detailed",
    "load_target",
    "origins",
    "parse_target",
    "ready_target",
    "transpose_by_constants",
]
