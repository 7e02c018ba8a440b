"""What was made to fit a machine: its inputs that are bound transposed have names, and its regions are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from dags import dag, op
from steps import compiled
from tinychain.autodiff.backends.numpy import rank2_registry
from tinychain.autodiff.expansion.legalize import Legalize, legalize_detailed
from tinychain.autodiff.expansion.targets import ready_target
from tinychain.autodiff.inspection import describe, summarize, to_dot, to_svg
from tinychain.autodiff.inspection.parts import parts
from tinychain.autodiff.tracing import TensorGraphBuilder
from tinychain.autodiff.training import CompiledTrainingStep

TARGET = ready_target("add-mul-matmul-rank2")


@pytest.fixture(scope="module")
def step() -> CompiledTrainingStep:
    passes: Any = [Legalize(TARGET)]
    return compiled(
        handlers=rank2_registry(), forward_expansions=passes, derivative_expansions=passes, update_expansions=passes
    )


def test_a_transposed_input_is_named_after_the_input(step: CompiledTrainingStep) -> None:
    forward, derivative, *_ = parts(step)
    assert forward.drawn.names["v0.mT"] == derivative.drawn.names["v0.mT"] == "x transposed"
    assert "x transposed = v0.mT" in describe(step)
    assert ">x transposed<" in to_svg(step)
    assert "x transposed" in to_dot(step)


def test_its_figures_are_known(step: CompiledTrainingStep) -> None:
    summary = summarize(step)
    assert all(part.lowered is not None and part.lowered.unknown == () for part in summary.parts)
    assert summary.total.lowered is not None
    assert summary.total.lowered.flops is not None


def test_a_transposed_input_of_a_graph_is_named_by_its_id() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=(4, 3))
        graph = builder.build(outputs=x.mT @ x)
    legal = legalize_detailed(graph, TARGET).artifact
    (part,) = parts(legal)
    assert part.source.names == {"v0.mT": "v0 transposed"}


def test_an_id_that_only_looks_like_a_transposed_input_has_no_name() -> None:
    (part,) = parts(dag(op("z", "x.mT"), outputs=["z"], inputs=["x.mT"]))
    assert part.source.names == {}


def test_regions_of_legalize_are_framed() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=(4, 3))
        graph = builder.build(outputs=(x - 1.0).mean() / 2.0)
    result = legalize_detailed(graph, TARGET)
    assert len(result.regions) > 1
    svg = to_svg(result.artifact, regions=result.regions)
    assert all(region.pass_name.partition(";")[0] in svg for region in result.regions)
