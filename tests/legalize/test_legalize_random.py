"""Random programs for random machines: legalized and the same function, or refused with reasons that are true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from by_reference import Values, draw, run
from legalizing import ANY_RANK, RANK2, check_regions, needed_values, targets, unfit
from strategies import traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import (
    Legalization,
    Target,
    declare_duals,
    dual_source,
    legalize_detailed,
    transpose_by_constants,
)
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import TransposeOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.verify import verify_equivalent

machines = st.sampled_from([RANK2, ANY_RANK]) | targets()


def outcome(artifact: TensorGraph | DerivativeProgram, target: Target, **options: Any) -> Legalization[Any] | None:
    """None for a refusal, which names every node that it says it counts."""
    refusal, result = caught(artifact, target, **options)
    if refusal is not None:
        assert refusal.category == "not_legalizable"
        named = {node.node_id for node in artifact.nodes if repr(node.node_id) in refusal.message}
        count = int(refusal.message.split()[0])
        assert len(named) == count or count > 10
    return result


def caught(artifact: Any, target: Target, **options: Any) -> tuple[AutodiffError | None, Legalization[Any] | None]:
    try:
        return None, legalize_detailed(artifact, target, **options)
    except AutodiffError as error:
        return error, None


def with_duals(graph: TensorGraph, values: Values) -> Values:
    sources = {value_id: dual_source(value_id) for value_id, _ in graph.inputs}
    return values | {dual: values[source].mT for dual, source in sources.items() if source is not None}


@given(traced_graphs(), machines)
def test_a_graph_fits_and_is_the_same_function(graph: TensorGraph, target: Target) -> None:
    result = outcome(graph, target)
    if result is None:
        assert unfit(graph, target)
        return
    legal = result.artifact
    assert isinstance(legal, TensorGraph)
    assert unfit(legal, target) == []
    check_regions(graph, result)
    assert verify_equivalent(graph, legal, points=())
    values = draw(graph)
    (output,) = graph.outputs
    expected, got = run(graph, values)[output], run(legal, with_duals(legal, values))[output]
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@given(traced_graphs(max_operations=6), machines)
def test_gradients_fit_beside_their_forward_graph(graph: TensorGraph, target: Target) -> None:
    (loss,) = graph.outputs
    wrt = [value_id for value_id, _ in graph.inputs]
    program = generate(graph, loss, wrt, "seed")
    forward = outcome(graph, target)
    if forward is None:
        return
    assert isinstance(forward.artifact, TensorGraph)
    declared = declare_duals(forward.artifact)
    result = outcome(program, target, forward_graph=declared)
    if result is None:
        return
    legal = result.artifact
    assert isinstance(legal, DerivativeProgram)
    assert result.duals == ()
    check_regions(program, result)
    before, after = joint_graph(program, forward_graph=graph), joint_graph(legal, forward_graph=declared)
    assert unfit(after, target) == []
    assert verify_equivalent(before, after, points=())
    values = draw(before)
    expected, got = run(before, values), run(after, with_duals(after, values))
    for value_id in before.outputs:
        np.testing.assert_allclose(got[value_id], expected[value_id], rtol=1e-10, atol=1e-10)


@given(traced_graphs(max_operations=6), machines)
def test_gradients_fit_without_a_forward_graph(graph: TensorGraph, target: Target) -> None:
    program = generate(graph, graph.outputs[0], [value_id for value_id, _ in graph.inputs], "seed")
    result = outcome(program, target)
    if result is not None:
        assert isinstance(result.artifact, DerivativeProgram)
        assert verify_equivalent(program, result.artifact, points=())
        assert set(result.duals) == result.artifact.value_typespecs.keys() - program.value_typespecs.keys()


@given(traced_graphs(), machines)
def test_no_transposed_input_is_read_where_they_are_forbidden(graph: TensorGraph, target: Target) -> None:
    result = outcome(graph, target, duals=False, rules={TransposeOperator: [transpose_by_constants]})
    if result is not None:
        legal = result.artifact
        assert isinstance(legal, TensorGraph)
        assert legal.inputs == graph.inputs
        assert unfit(legal, target) == []
        assert verify_equivalent(graph, legal, points=())


@given(traced_graphs(), machines)
def test_it_is_deterministic_and_changes_nothing_that_it_is_given(graph: TensorGraph, target: Target) -> None:
    text = repr(graph)
    first, second = outcome(graph, target), outcome(graph, target)
    assert first == second
    assert repr(graph) == text


@given(traced_graphs(), machines)
def test_what_is_legal_stays_as_it_is(graph: TensorGraph, target: Target) -> None:
    result = outcome(graph, target)
    if result is not None:
        again = legalize_detailed(result.artifact, target)
        assert again.artifact is result.artifact
        assert again.regions == ()


@given(traced_graphs(), machines, st.data())
def test_what_no_output_needs_is_not_judged(graph: TensorGraph, target: Target, data: st.DataObject) -> None:
    outputs = [data.draw(st.sampled_from([value_id for value_id, _ in graph.inputs] + graph.outputs))]
    part = replace(graph, outputs=outputs)
    needed = needed_values(part)
    result = outcome(part, target)
    if result is not None:
        kept = {node.node_id: node for node in result.artifact.nodes}
        for node in graph.nodes:
            if node.output_value_id not in needed:
                assert kept[node.node_id] is node
