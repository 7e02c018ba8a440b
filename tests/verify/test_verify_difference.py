"""What is said of a difference: where, from which seed, at which sizes, and which value differs first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import graph, producing, program
from running import trace
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_graph_detailed
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.verify import Difference, EquivalenceResult, verify_equivalent
from verifying import rescaled, verified

SPEC = {"dtype": "f64", "shape": [2]}


def difference(result: EquivalenceResult) -> Difference:
    assert not result.equivalent
    assert result.difference is not None
    return result.difference


def test_the_output_and_the_element() -> None:
    found = difference(verified(lambda x, y: (x + y, x * y), lambda x, y: (x + y, y * y), [2, 2], [2, 2]))
    assert (found.position, found.output, found.element) == (1, "v3", (0, 0))


def test_the_first_element_that_differs() -> None:
    found = difference(verified(lambda x: x, lambda x: x.reshape([4]).reshape([2, 2]).T, [2, 2]))
    assert found.element == (0, 1)


def test_the_seed_shows_it_again() -> None:
    first = verified(lambda x: x * x, lambda x: x + x, [3], seed=7)
    again = verified(lambda x: x * x, lambda x: x + x, [3], seed=difference(first).seed)
    assert difference(first).seed == 7
    assert again == first


@pytest.mark.parametrize("seed", [0, 1, 2**70])
def test_another_seed_is_another_point(seed: int) -> None:
    result = verified(lambda x: x * x, lambda x: x + x, [3], seed=seed)
    other = verified(lambda x: x * x, lambda x: x + x, [3], seed=seed + 1)
    assert difference(result).before != difference(other).before


def test_free_sizes_are_made_as_small_as_the_difference_allows() -> None:
    found = difference(verified(lambda x: x * x, lambda x: x + x, ["N", "M"]))
    assert found.sizes == {"N": 1, "M": 1}


def test_a_size_stays_that_the_difference_needs() -> None:
    result = verified(
        lambda x, y: (x @ y).sum(), lambda x, y: (x.T.sum([0]) * y.sum([1])).sum(), ["N", "N"], ["N", "M"]
    )
    assert result.exact.sizes == {"N": 2, "M": 3}
    assert difference(result).sizes == {"N": 2, "M": 1}


def test_given_sizes_stay() -> None:
    found = difference(verified(lambda x: x * x, lambda x: x + x, ["N", "M"], shape_bindings={"M": 5}))
    assert found.sizes == {"N": 1, "M": 5}


def test_the_first_value_that_differs() -> None:
    def before(x: Tensor) -> Any:
        return ((x * x) * 2.0 - x).sum()

    def after(x: Tensor) -> Any:
        return ((x * x) * 3.0 - x).sum()

    assert difference(verified(before, after, [3])).first_value_id == "v2"


def test_no_value_stands_for_both_where_ids_have_nothing_in_common() -> None:
    graph = trace(lambda x: x * 2.0, [3])
    node = replace(graph.nodes[0], output_value_id="other", op_params={"right_literal": 3.0})
    result = verify_equivalent(graph, replace(graph, nodes=[node], outputs=["other"]), points=())
    assert difference(result).first_value_id is None


def test_the_region_that_the_value_ends() -> None:
    graph = trace(lambda x, y: x.mean() + (y * y).mean(), [5, 3], [2, 2])
    expanded = expand_mean_graph_detailed(graph)
    literals = {node.node_id: node.op_params.get("right_literal") for node in expanded.graph.nodes}
    wrong = [
        replace(node, op_params={"right_literal": 0.2}) if literals[node.node_id] == 0.25 else node
        for node in expanded.graph.nodes
    ]
    result = verify_equivalent(graph, replace(expanded.graph, nodes=wrong), regions=expanded.regions)
    assert difference(result).region == expanded.regions[1]
    assert "which mean_expansion_forward rewrote from nodes n2" in str(result)


def test_raising_on_request() -> None:
    graph = trace(lambda x: x.mean(), [5, 3])
    expanded = expand_mean_graph_detailed(graph)
    wrong = rescaled(expanded.graph, lambda scale: 1 / 16)
    with pytest.raises(AutodiffError) as caught:
        verify_equivalent(graph, wrong, regions=expanded.regions, raise_on_difference=True)
    assert caught.value.category == "not_equivalent"
    assert caught.value.message == (
        "output 0 ('v1') differs at [] with seed 0; the first value that differs is 'v1', which"
        " mean_expansion_forward rewrote from nodes n0"
    )


def test_checking_afterwards() -> None:
    good = verified(lambda x: x + x, lambda x: x * 2.0, [3])
    assert good.check() is good
    bad = verified(lambda x: x + x, lambda x: x * 3.0, [3])
    with pytest.raises(AutodiffError, match=r"output 0 .* differs at") as caught:
        bad.check()
    assert caught.value.category == "not_equivalent"


def _thrice(operand: str, value_id: str) -> Any:
    return producing(value_id, MulOperator(), operand, typespec=SPEC, right_literal=3.0)


TWICE = [
    producing("y", MulOperator(), "x", typespec=SPEC, right_literal=2.0),
    producing("z", MulOperator(), "y", "x", typespec=SPEC),
]
#: It reads another value than y, which has the same fault.
BESIDE = [_thrice("x", "t"), _thrice("x", "y"), producing("z", MulOperator(), "t", "x", typespec=SPEC)]


def test_a_value_that_no_output_needs_any_more_may_differ_first() -> None:
    graphs = [graph(*nodes, inputs=[("x", SPEC)], outputs=["z"]) for nodes in (TWICE, BESIDE)]
    assert difference(verify_equivalent(*graphs, points=())).first_value_id == "y"


def test_so_it_may_in_a_program() -> None:
    programs = [program(nodes=nodes, output_gradients=["z"], value_typespecs={"x": SPEC}) for nodes in (TWICE, BESIDE)]
    assert difference(verify_equivalent(*programs, points=())).first_value_id == "y"
    forward = graph(inputs=[("x", SPEC)])
    assert difference(verify_equivalent(*programs, forward_graph=forward, points=())).first_value_id == "y"


def test_what_no_output_needs_is_not_judged() -> None:
    nodes = [BESIDE[0], producing("y", MulOperator(), "x", "elsewhere", typespec=SPEC), BESIDE[2]]
    wrong = graph(*nodes, inputs=[("x", SPEC)], outputs=["z"])
    before = graph(*TWICE, inputs=[("x", SPEC)], outputs=["z"])
    assert difference(verify_equivalent(before, wrong, points=())).first_value_id == "z"
