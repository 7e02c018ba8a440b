"""Which of several faults an analysis reports, and what it does with artifacts of the wrong form."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given

from analysed import derivative, ids, refused
from by_hand import F32, OBJECT, graph, program
from dags import dag, dags, gradient, op
from tinychain.autodiff.dependencies import analyze_graph_dependencies
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph

# ----------------------------------------------------------------------------------------------------- order of checks

#: One fault for each check, in their order, as what it adds to a sound derivative analysis.
FAULTS: list[tuple[str, str, dict[str, list[Any]]]] = [
    ("invalid_selected_output", "seed_value_ids must hold", {"seeds": [""]}),
    ("ambiguous_producer", "'f' has two producers", {"forward": [op("f", "x"), op("f", "x")]}),
    ("ambiguous_producer", "'d' has two producers", {"nodes": [op("d", "x"), op("d", "x")]}),
    ("invalid_selected_output", "'nix'", {"outputs": ["nix"]}),
    ("malformed_derivative_ir", "cycle", {"nodes": [op("p", "q"), op("q", "p")], "outputs": ["p"]}),
    ("ambiguous_producer", "'x' is a declared_input and already", {"inputs": ["x"]}),
    ("missing_dependency", "'nowhere'", {"nodes": [op("m", "nowhere")], "outputs": ["m"]}),
    ("missing_dtype_metadata", "value 'u'", {"nodes": [op("u", "x", typespec={"shape": "N"})], "outputs": ["u"]}),
]


@pytest.mark.parametrize(("earlier", "later"), list(combinations(range(len(FAULTS)), 2)))
def test_the_earlier_of_two_faults_is_reported(earlier: int, later: int) -> None:
    parts: dict[str, list[Any]] = {"nodes": [], "forward": [], "inputs": ["x"], "seeds": ["seed"], "outputs": ["x"]}
    for _, _, added in (FAULTS[later], FAULTS[earlier]):
        parts = {key: [*part, *added.get(key, [])] for key, part in parts.items()}
    refused(
        FAULTS[earlier][0],
        derivative,
        gradient(*parts["nodes"], outputs=parts["outputs"]),
        dag(*parts["forward"], inputs=parts["inputs"], outputs=[]),
        parts["seeds"],
        saying=FAULTS[earlier][1],
    )


# ------------------------------------------------------------------------------------------------------- bad artifacts


@pytest.mark.parametrize("bad", [None, "graph", OBJECT, program()])
def test_an_argument_of_another_class_is_a_type_error(bad: Any) -> None:
    wrong: Any = graph()
    with pytest.raises(TypeError, match="graph must be a TensorGraph"):
        analyze_graph_dependencies(bad)
    with pytest.raises(TypeError, match="forward_graph must be a TensorGraph"):
        derivative(forward=bad)
    with pytest.raises(TypeError, match="program must be a DerivativeProgram"):
        derivative(bad if bad != program() else wrong)


@pytest.mark.parametrize("bad", [None, 3, "node", {}, OBJECT])
def test_a_node_that_is_no_record_is_a_type_error(bad: Any) -> None:
    with pytest.raises(TypeError, match="nodes of graph must hold TensorNodeRecords"):
        analyze_graph_dependencies(TensorGraph([bad], [], ["a"]))
    with pytest.raises(TypeError, match="nodes of program must hold TensorNodeRecords"):
        derivative(gradient(bad, outputs=["a"]))


@pytest.mark.parametrize("bad", ["x", 3, ("x",), ("x", F32, F32), None])
def test_an_input_that_is_no_pair_is_a_type_error(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"inputs of graph must hold \(value id, typespec\) pairs"):
        analyze_graph_dependencies(TensorGraph([], [bad], ["x"]))


@pytest.mark.parametrize(
    "fields", [{"nodes": None}, {"nodes": 3}, {"nodes": "abc"}, {"value_typespecs": None}, {"value_typespecs": [1]}]
)
def test_a_program_of_wrong_containers_is_a_type_error(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(TypeError, match=f"{name} of program must be a"):
        derivative(program(**{"output_gradients": ["seed"], **fields}))


@pytest.mark.parametrize("bad", [None, 3, ["a"], {"a": 1}])
def test_an_id_that_is_no_str_is_malformed(bad: Any) -> None:
    for node in (op("a", bad), op(bad, "x"), op("a", "x", node_id=bad if bad is not None else 0)):
        refused("malformed_derivative_ir", analyze_graph_dependencies, dag(node, outputs=["a"]), saying="must be a str")
    declares = dag(inputs=[(bad, F32)], outputs=["a"])
    refused("malformed_derivative_ir", analyze_graph_dependencies, declares, saying="must be a str")


def test_any_str_is_an_id() -> None:
    ids_ = ["", "\ud800", "é", "e\u0301", "v" * 1_000_000, "\n", '"']
    nodes = [op(after, before) for before, after in pairwise(ids_)]
    analysis = analyze_graph_dependencies(dag(*nodes, inputs=[""], outputs=['"']))
    assert ids(analysis.dependencies) == ids_


def test_a_message_cuts_a_huge_id() -> None:
    with pytest.raises(AutodiffError) as caught:
        analyze_graph_dependencies(dag(op("a", "v" * 1_000_000), outputs=["a"]))
    assert len(str(caught.value)) < 1000


@given(dags())
def test_the_artifact_is_as_it_was(graph: TensorGraph) -> None:
    before = graph.to_dict()
    analyze_graph_dependencies(graph)
    assert graph.to_dict() == before
