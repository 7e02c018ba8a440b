"""The names that consumers import, and that `__all__` says what there is."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest

import tinychain.autodiff as autodiff
from arch.source import read_modules

EXPORTS = """
    ExecutionScheduler TensorOperator TensorGraph TensorGraphBuilder TensorNodeRecord get_active_builder
    AddOperator SubOperator MulOperator DivOperator MatmulOperator SumOperator MeanOperator MaxOperator MinOperator
    ProductOperator ReshapeOperator BroadcastOperator BroadcastReduceOperator TransposeOperator
    AUTODIFF_ERROR_CATEGORIES AutodiffError AutodiffRequest AutodiffResult DerivativeMetadata DerivativeProgram
    generate captured_operator_types
    DEPENDENCY_PROVENANCE_DECLARED_INPUT DEPENDENCY_PROVENANCE_SEED_INPUT DEPENDENCY_PROVENANCE_FORWARD_CAPTURE
    DEPENDENCY_PROVENANCE_LOCAL_VALUE DEPENDENCY_PROVENANCE_ORDER DependencyAnalysis ValueDependency
    analyze_derivative_dependencies analyze_graph_dependencies
    BROADCAST_SCALE_EXPANSION FillDescriptor FillOperator MEAN_EXPANSION_FORWARD MeanDerivativeExpansionResult
    MeanExpansionRegion MeanGraphExpansionResult expand_mean_derivative_program
    expand_mean_derivative_program_detailed expand_mean_graph expand_mean_graph_detailed fill_descriptor
    LOWERING_CLAIM_HANDLER LOWERING_CLAIM_FUSION FusionContext FusionHook FusionResult LoweredOperation LoweredProgram
    OperationContext OperationHandler OperationHandlerRegistry lower_derivative_program lower_graph
    SGD Optimizer TracedUpdate sgd_update trace_parameter_update
    MaximumOperator MinimumOperator SqrtOperator ExpOperator LogOperator SignOperator
    ConstantDescriptor ConstantOperator constant_descriptor transpose_by_constants
    legalize Legalize Target ready_target
    Momentum Nesterov Adam AdamW ClipByValue ClipByGlobalNorm GradientInputs Twins
""".split()

SUBMODULE_EXPORTS = {
    "dependencies": ["analyze_derivative_dependencies", "analyze_graph_dependencies", "DependencyAnalysis"],
    "expansion": ["EXPANSION_NODE_ID_PREFIX", "EXPANSION_VALUE_ID_PREFIX", "FILL_ROUTE_NAME", "expand_mean_graph"],
    "graph": ["TensorGraph", "TensorNodeRecord", "TensorOperator", "DerivativeProgram"],
    "lowering": ["OperationHandlerRegistry", "lower_derivative_program", "lower_graph"],
    "training": ["SGD", "Optimizer", "TracedUpdate", "sgd_update", "trace_parameter_update"],
}


def all_violations(module: ModuleType) -> list[str]:
    """Entries of `__all__` that stand twice or name nothing."""
    names = list(module.__all__)
    twice = [f"{name} stands {names.count(name)} times" for name in sorted({n for n in names if names.count(n) > 1})]
    return twice + [f"{name} does not resolve" for name in names if not hasattr(module, name)]


def test_every_promised_name_is_exported() -> None:
    assert set(EXPORTS) - set(autodiff.__all__) == set()


@pytest.mark.parametrize("name", SUBMODULE_EXPORTS)
def test_every_promised_name_of_a_submodule_is_importable(name: str) -> None:
    submodule = import_module(f"tinychain.autodiff.{name}")
    assert [export for export in SUBMODULE_EXPORTS[name] if not hasattr(submodule, export)] == []


@pytest.mark.parametrize("name", [name for name, module in read_modules().items() if module.is_package])
def test_all_lists_each_name_once_and_every_one_resolves(name: str) -> None:
    module = import_module(name)
    if hasattr(module, "__all__"):
        assert all_violations(module) == []


def test_generate_is_the_function() -> None:
    assert callable(autodiff.generate)


def test_finds_a_bad_entry_of_all() -> None:
    module = ModuleType("planted")
    module.__all__ = ["x", "x", "y"]  # type: ignore[attr-defined]
    module.x = 1  # type: ignore[attr-defined]
    assert all_violations(module) == ["x stands 2 times", "y does not resolve"]
