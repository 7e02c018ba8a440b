"""Which nodes came from which, by which rules, through any number of passes."""

from __future__ import annotations

from typing import Any

import pytest

from by_hand import OBJECT
from legalizing import RANK2, legal, mean_square, only
from tinychain.autodiff.expansion import (
    LegalizedRegion,
    MeanExpansionRegion,
    chain_regions,
    expand_mean_derivative_program_detailed,
    expand_mean_graph_detailed,
    legalize_detailed,
    origins,
)
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.operators import (
    FillOperator,
    MulOperator,
    SubOperator,
    SumOperator,
)
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import TensorGraphBuilder
from verifying import traced

FIRST = only(MulOperator, SubOperator, SumOperator)


def region(source: str, *emitted: str, rule: str = "rule", terminal: str = "t") -> LegalizedRegion:
    return LegalizedRegion((rule,), (source,), emitted, terminal)


def test_a_region_has_the_rules_in_the_order_of_their_use() -> None:
    result = legal(lambda x: x.mean([1]), [4, 3])
    (found,) = result.regions
    assert found.rules[:2] == ("MeanOperator.as_sum", "SumOperator.as_matmuls")
    assert found.source_node_ids == ("n0",)
    assert found.terminal_value_id == "v1"
    assert found.pass_name == "; ".join(found.rules)


def test_regions_stand_in_the_order_of_the_artifact() -> None:
    result = legal(mean_square, [4, 3], [4, 3])
    assert [found.source_node_ids for found in result.regions] == [("n0",), ("n1",), ("n3",)]


def test_a_shared_fill_belongs_to_the_first_region_that_reads_it() -> None:
    result = legal(lambda x, y: x.sum([1]) + y.sum([1]), [4, 3], [4, 3])
    fills = {node.node_id for node in result.artifact.nodes if node.operator == FillOperator()}
    first, second = [fills & set(found.emitted_node_ids) for found in result.regions[:2]]
    assert (first, second) == (fills, set())


def test_every_new_node_has_an_origin() -> None:
    result = legal(mean_square, [4, 3], [4, 3])
    found = origins(result.regions)
    assert [node.node_id for node in result.artifact.nodes if node.node_id not in found] == ["n2"]
    assert {found[node].source_node_ids for node in found} == {("n0",), ("n1",), ("n3",)}


def test_an_origin_leads_to_the_users_own_line() -> None:
    with TensorGraphBuilder(record_lines=True) as builder:
        x, y = (builder.input(name, dtype="f64", shape=[4, 3]) for name in "xy")
        loss = mean_square(x, y)
    result = legalize_detailed(builder.build(outputs=loss), RANK2)
    lines = {builder.source_lines[found.source_node_ids[0]] for found in origins(result.regions).values()}
    assert {line.file.rsplit("/", 1)[-1] for line in lines} == {"legalizing.py"}


def rounds() -> tuple[TensorGraph, Any, Any]:
    """A mean that becomes a sum and a scale, then matmuls."""
    before = traced(lambda x, y: (x - y).mean(), [4, 3], [4, 3])
    first = legalize_detailed(before, FIRST)
    return before, first, legalize_detailed(first.artifact, RANK2)


def test_two_rounds_are_chained_from_the_first_source_to_the_last_node() -> None:
    before, first, second = rounds()
    chained = origins(chain_regions(first.regions, second.regions))
    kept = {node.node_id for node in before.nodes}
    for node in second.artifact.nodes:
        assert node.node_id in chained or node.node_id in kept
        if node.node_id in chained:
            assert set(chained[node.node_id].source_node_ids) <= kept


def test_the_rules_of_both_rounds_are_told() -> None:
    _, first, second = rounds()
    subtraction, mean = chain_regions(first.regions, second.regions)[::-1]
    assert mean.rules[:2] == ("MeanOperator.as_sum", "SumOperator.as_matmuls")
    assert mean.source_node_ids == ("n1",)
    assert subtraction.source_node_ids == ("n0",)


def test_a_chain_ends_in_the_value_of_its_first_source() -> None:
    _, first, second = rounds()
    mean = chain_regions(first.regions, second.regions)[0]
    producers = {node.node_id: node.output_value_id for node in second.artifact.nodes}
    assert mean.terminal_value_id == first.regions[0].terminal_value_id == producers[mean.emitted_node_ids[-1]]


def test_emitted_nodes_stand_in_the_order_of_the_artifact() -> None:
    _, first, second = rounds()
    mean = chain_regions(first.regions, second.regions)[0]
    order = [node.node_id for node in second.artifact.nodes if node.node_id in mean.emitted_node_ids]
    assert list(mean.emitted_node_ids) == order


def test_one_round_is_itself() -> None:
    result = legal(mean_square, [4, 3], [4, 3])
    assert chain_regions(result.regions) == result.regions


def test_no_rounds() -> None:
    assert chain_regions() == ()
    assert chain_regions([], ()) == ()


def test_a_round_that_touches_another_part_stands_beside() -> None:
    assert chain_regions([region("a", "b")], [region("c", "d")]) == (region("a", "b"), region("c", "d"))


def test_a_node_that_is_rewritten_twice() -> None:
    chained = chain_regions([region("a", "b", "c")], [region("b", "d", "e", rule="second")], [region("e", "f")])
    assert chained == (LegalizedRegion(("rule", "second"), ("a",), ("d", "f", "c"), "t"),)


def test_an_id_that_is_minted_again_is_another_node() -> None:
    """Once `b` is gone nothing keeps a later round from using the id."""
    chained = chain_regions([region("a", "b")], [region("b", "c")], [region("x", "b")], [region("b", "d", rule="last")])
    assert [(found.source_node_ids, found.emitted_node_ids) for found in chained] == [
        (("a",), ("c",)),
        (("x",), ("d",)),
    ]


def test_a_mean_expansion_can_be_a_round() -> None:
    before = traced(lambda x, y: (x - y).mean(), [4, 3], [4, 3])
    expanded = expand_mean_graph_detailed(before)
    result = legalize_detailed(expanded.graph, RANK2)
    chained = origins(chain_regions(expanded.regions, result.regions))
    new = {node.node_id for node in result.artifact.nodes}
    assert new <= chained.keys()
    assert {found.source_node_ids for found in chained.values()} == {("n0",), ("n1",)}


def test_nodes_that_a_later_round_rewrites_together_become_one_region() -> None:
    """The broadcast and the division of a mean's gradient come from two nodes and end as one region."""
    graph = traced(lambda x: x.mean(), [4, 3])
    program = generate(graph, graph.outputs[0], ["v0"], "seed")
    second = expand_mean_derivative_program_detailed(program)
    (found,) = second.regions
    broadcast, division = found.source_node_ids
    first = [region("a", broadcast, terminal="one"), region("b", "lp9", division, terminal="two")]
    (chained,) = chain_regions(first, second.regions)
    assert chained.source_node_ids == ("b", "a")
    assert chained.emitted_node_ids == ("lp9", *found.emitted_node_ids)
    assert chained.terminal_value_id == "two"
    assert chained.rules == ("rule", "broadcast_scale_expansion")


def test_a_region_that_absorbs_a_node_of_an_earlier_one() -> None:
    second = MeanExpansionRegion("pass", ("b", "x"), ("c",), "end", "tier")
    (chained,) = chain_regions([region("a", "b")], [second])
    assert chained == LegalizedRegion(("rule", "pass"), ("a", "x"), ("c",), "end")


def test_long_chains_are_no_matter() -> None:
    rounds = [[region(f"n{i}", f"n{i + 1}")] for i in range(3000)]
    assert chain_regions(*rounds) == (region("n0", "n3000"),)


@pytest.mark.parametrize("junk", [3, "regions", OBJECT])
def test_refuses_a_round_that_is_no_sequence(junk: Any) -> None:
    with pytest.raises(TypeError, match=r"rounds\[1\] must be a sequence of regions, got"):
        chain_regions([], junk)


def test_refuses_what_is_no_region() -> None:
    with pytest.raises(TypeError, match=r"rounds\[0\] must hold regions of a detailed pass, got 3"):
        chain_regions([3])  # type: ignore[list-item]


def test_a_region_as_data() -> None:
    assert region("a", "b").to_dict() == {
        "rules": ["rule"],
        "source_node_ids": ["a"],
        "emitted_node_ids": ["b"],
        "terminal_value_id": "t",
    }


def test_the_result_as_data() -> None:
    result = legalize_detailed(traced(lambda x: x.T, [3, 2]), RANK2)
    assert result.to_dict()["duals"] == ["v0.mT"]


@pytest.mark.parametrize("regions", [None, [1], [LegalizedRegion((), (), (), "v")]])
def test_what_are_no_regions(regions: Any) -> None:
    with pytest.raises(TypeError, match="regions"):
        origins(regions)
    with pytest.raises(TypeError, match=r"rounds\[0\]"):
        chain_regions(regions)
