"""Inputs that are bound transposed as well: verification computes them, and trusts no other input that is new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import READY_TARGETS
from tinychain.autodiff.expansion.legalize import legalize, legalize_detailed
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import ReshapeOperator
from tinychain.autodiff.tracing import TensorGraphBuilder
from tinychain.autodiff.verify import verify_equivalent
from verifying import edited, traced

MACHINE = READY_TARGETS["add-mul-matmul-rank2"]
GRAPH = traced(lambda x, y: (x * y).T, [3, 4], [3, 4])


def product() -> tuple[TensorGraph, DerivativeProgram]:
    with TensorGraphBuilder() as builder:
        x, w = [builder.input(name, dtype="f64", shape=shape) for name, shape in (("x", [4, 3]), ("w", [3, 2]))]
        loss = (x @ w).mean()
    return builder.build(outputs=loss), builder.vjp(loss, wrt=[w])


def test_a_graph_that_reads_duals() -> None:
    legal = legalize(GRAPH, MACHINE)
    assert sorted([value_id for value_id, _ in legal.inputs]) == ["v0", "v0.mT", "v1", "v1.mT"]
    assert verify_equivalent(GRAPH, legal)


def test_a_program_that_reads_duals_with_and_without_its_forward_graph() -> None:
    graph, program = product()
    legal = legalize(program, MACHINE)
    assert "v0.mT" in legal.value_typespecs
    assert verify_equivalent(program, legal)
    assert verify_equivalent(program, legal, forward_graph=graph)


def test_the_dual_of_the_wrong_input_is_found_with_its_region() -> None:
    legal = legalize_detailed(GRAPH, MACHINE)
    nodes = [
        replace(node, input_value_ids=["v0.mT", "v0.mT"]) if len(node.input_value_ids) == 2 else node
        for node in legal.artifact.nodes
    ]
    wrong = replace(legal.artifact, nodes=nodes)
    result = verify_equivalent(GRAPH, wrong, regions=legal.regions)
    assert result.difference is not None
    assert result.difference.region == legal.regions[0]
    assert "which transpose by duals rewrote from nodes n1" in str(result.difference)


def test_an_input_that_only_looks_like_a_dual_has_to_be_known() -> None:
    graph = traced(lambda x: x + x, [3, 3])
    for value_id, shape in (("other.mT", [3, 3]), ("v0.mT", [3]), ("v0 mT", [3, 3])):
        spec = {"dtype": "f64", "shape": shape}
        with pytest.raises(AutodiffError, match="only after declares the input") as caught:
            verify_equivalent(graph, replace(graph, inputs=[*graph.inputs, (value_id, spec)]))
        assert caught.value.category == "invalid_verification"


def test_a_dual_of_the_wrong_shape_is_refused() -> None:
    graph = traced(lambda x: x.T, [3, 4])
    legal = legalize(graph, MACHINE)
    inputs = [legal.inputs[0], ("v0.mT", {"dtype": "f64", "shape": [3, 4]})]
    with pytest.raises(AutodiffError, match=r"transpose v0\.mT"):
        verify_equivalent(graph, replace(legal, inputs=inputs))


def test_an_input_that_before_declares_too_is_anything() -> None:
    """An artifact of a user's own may have inputs with such names; then they mean nothing."""
    graph = traced(lambda x: x.T, [3, 3])
    spec = {"dtype": "f64", "shape": [3, 3]}
    before = replace(graph, inputs=[*graph.inputs, ("v0.mT", spec)])
    after = edited(legalize(graph, MACHINE), ReshapeOperator, input_value_ids=["v0.mT"])
    assert not verify_equivalent(before, after)
