"""Which nodes a frame holds, and what it is called."""

from __future__ import annotations

from typing import Any

import pytest

from dags import chain, dag, op
from inspected import main_job
from steps import compiled
from tinychain.autodiff.expansion import (
    MeanExpansionRegion,
    expand_mean_derivative_program_detailed,
    expand_mean_graph,
    expand_mean_graph_detailed,
)
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.inspection import to_dot
from tinychain.autodiff.inspection.parts import parts
from tinychain.autodiff.inspection.regions import Region, given_regions, rewritten_regions


def test_the_regions_of_a_step_are_those_that_its_passes_report() -> None:
    step = main_job()
    forward, derivative, update = parts(step)
    reported = (
        *expand_mean_graph_detailed(step.source_forward_graph).regions,
        *expand_mean_derivative_program_detailed(step.source_derivative_program, reserved_id_prefix="gx").regions,
    )
    for region, expected in zip((*forward.regions, *derivative.regions), reported, strict=True):
        assert region.emitted_node_ids == expected.emitted_node_ids
        assert region.source_node_ids == expected.source_node_ids
        assert region.terminal_value_id == expected.terminal_value_id
    assert update.regions == ()


def test_a_region_is_named_by_its_passes_and_what_it_replaced() -> None:
    forward, derivative, _ = parts(main_job())
    assert [region.label for region in forward.regions] == ["expand_mean_graph: mean n3"]
    assert [region.label for region in derivative.regions] == ["partial: broadcast dn1, div dn2"]


def test_all_passes_of_a_sequence_are_named() -> None:
    forward, *_ = parts(compiled(forward_expansions=[expand_mean_graph, lambda graph: graph]))
    (region,) = forward.regions
    assert region.label.startswith("expand_mean_graph, ")


def test_two_regions_are_kept_apart() -> None:
    source = dag(op("a", "x"), op("b", "a"), op("c", "b"), outputs=["c"])
    lowered = dag(
        op("m", "x"), op("a", "m", node_id="new_a"), source.nodes[1], op("k", "b"), op("c", "k", node_id="new_c"),
        outputs=["c"],
    )  # fmt: skip
    first, second = rewritten_regions(source.nodes, lowered.nodes, ["p"])
    assert first == Region("p: AnyOperator n_a", ("n_a",), ("n_m", "new_a"), "a")
    assert second == Region("p: AnyOperator n_c", ("n_c",), ("n_k", "new_c"), "c")


def test_what_leads_to_two_terminals_belongs_to_the_first() -> None:
    source = dag(op("a", "x"), op("b", "x"), outputs=["a", "b"])
    lowered = dag(
        op("shared", "x"),
        op("a", "shared", node_id="new_a"),
        op("b", "shared", node_id="new_b"),
        outputs=["a", "b"],
    )
    emitted = [region.emitted_node_ids for region in rewritten_regions(source.nodes, lowered.nodes, ["p"])]
    assert emitted == [("n_shared", "new_a"), ("new_b",)]


def test_what_leads_to_no_terminal_is_in_no_region() -> None:
    source = dag(op("a", "x"), outputs=["a"])
    lowered = dag(source.nodes[0], op("extra", "a"), outputs=["a"])
    assert rewritten_regions(source.nodes, lowered.nodes, ["p"]) == ()


def test_many_sources_are_counted() -> None:
    source = chain(6)
    lowered = dag(op("c5", "x", node_id="all"), outputs=["c5"])
    (region,) = rewritten_regions(source.nodes, lowered.nodes, ["p"])
    assert region.label == "p: AnyOperator n_c0, AnyOperator n_c1, AnyOperator n_c2, 3 more"
    assert len(region.source_node_ids) == 6


# ------------------------------------------------------------------------------------------------------- given regions


def reported(*node_ids: str) -> MeanExpansionRegion:
    return MeanExpansionRegion("a_pass", ("gone",), node_ids, "c0", "tier")


def test_a_reported_region_is_named_by_its_pass_and_sources() -> None:
    assert given_regions([reported("n_c0")], chain(1).nodes) == (Region("a_pass: gone", ("gone",), ("n_c0",), "c0"),)


@pytest.mark.parametrize(
    ("regions", "error", "message"),
    [
        ("n_c0", TypeError, "regions must be a sequence of MeanExpansionRegion or LegalizedRegion records, got 'n_c0'"),
        (None, TypeError, "regions must be a sequence"),
        (["n_c0"], TypeError, "regions must hold MeanExpansionRegion or LegalizedRegion records, got 'n_c0' at 0"),
        ([reported("other")], ValueError, r"regions\[0\] has the node 'other', which the artifact lacks"),
        (
            [reported("n_c0"), reported("n_c1", "n_c0")],
            ValueError,
            r"node 'n_c0' is in regions\[0\] and in regions\[1\]",
        ),
    ],
)
def test_a_bad_region_is_refused(regions: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_dot(chain(2), regions=regions)


def test_a_step_takes_no_regions() -> None:
    with pytest.raises(ValueError, match="regions must be left out for a CompiledTrainingStep"):
        to_dot(main_job(), regions=[reported("n_c0")])


def test_an_expanded_graph_is_drawn_with_the_regions_of_its_pass() -> None:
    step = compiled()
    result = expand_mean_graph_detailed(step.source_forward_graph)
    assert isinstance(result.graph, TensorGraph)
    assert "mean_expansion_forward: n3" in to_dot(result.graph, regions=result.regions)
