"""When values die, against a plain simulation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strategies import traced_graphs
from tinychain.autodiff.dependencies import analyze_graph_dependencies
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.inspection import Operation, deaths, peak_live_bytes, summarize
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.types import ITEM_BYTES, element_count


def test_a_value_dies_with_its_last_reader() -> None:
    operations = [Operation("a", ["x"]), Operation("b", ["a", "x"]), Operation("c", ["a", "a"])]
    assert deaths(operations, kept=["c"]) == [[], ["x", "b"], ["a"]]


def test_the_peak_counts_operands_and_result_together() -> None:
    operations = [Operation("a", ["x"]), Operation("b", ["a"]), Operation("c", ["b"])]
    sizes = {"x": 1, "a": 10, "b": 100, "c": 1}
    assert peak_live_bytes(operations, sizes, inputs=["x"], kept=["c"]) == 110


def test_a_kept_value_stays() -> None:
    operations = [Operation("a", ["x"]), Operation("b", ["a"]), Operation("c", ["b"])]
    sizes = {"x": 5, "a": 10, "b": 100, "c": 1000}
    assert peak_live_bytes(operations, sizes, inputs=["x"], kept=["a", "c"]) == 10 + 100 + 1000
    assert peak_live_bytes(operations, sizes, inputs=["x"], kept=["x", "c"]) == 5 + 100 + 1000


def test_an_input_that_nobody_reads_takes_nothing() -> None:
    assert peak_live_bytes([Operation("a", ["x"])], {"x": 1, "y": 99, "a": 1}, inputs=["x", "y"], kept=["a"]) == 2


def test_nothing_runs_nothing_lives() -> None:
    assert deaths([], kept=[]) == []
    assert peak_live_bytes([], {"x": 7}, inputs=["x"], kept=["x"]) == 7


def simulated_peak(graph: TensorGraph) -> int:
    """Holds a set of live values, and looks at all later operations to see whether a value may go."""
    analysis = analyze_graph_dependencies(graph)
    sizes = {
        value.value_id: element_count(value.shape) * ITEM_BYTES[value.dtype]
        for value in analysis.dependencies
        if value.shape is not None and value.dtype is not None
    }
    operands = {node.output_value_id: node.input_value_ids for node in graph.nodes}
    order = [value.value_id for value in analysis.local_values]
    live = {value.value_id for value in analysis.required_inputs}
    peak = sum(sizes[value] for value in live)
    for position, result in enumerate(order):
        live.add(result)
        peak = max(peak, sum(sizes[value] for value in live))
        later = {operand for other in order[position + 1 :] for operand in operands[other]}
        live &= later | set(graph.outputs)
    return peak


@given(traced_graphs())
def test_the_peak_of_a_traced_graph_is_the_simulated_one(graph: TensorGraph) -> None:
    assert summarize(graph).total.source.peak_live_bytes == simulated_peak(graph)


@given(traced_graphs(), st.data())
def test_the_peak_of_its_gradient_is_the_simulated_one(graph: TensorGraph, data: st.DataObject) -> None:
    wrt = data.draw(st.sampled_from([value_id for value_id, _ in graph.inputs]))
    program = generate(graph, graph.outputs[0], [wrt], "seed")
    produced = {node.output_value_id for node in program.nodes}
    read = [*[operand for node in program.nodes for operand in node.input_value_ids], *program.gradients.values()]
    free = [value_id for value_id in dict.fromkeys(read) if value_id not in produced]
    as_graph = TensorGraph(
        program.nodes, [(value_id, program.value_typespecs[value_id]) for value_id in free], [program.gradients[wrt]]
    )
    assert summarize(program).total.source.peak_live_bytes == simulated_peak(as_graph)
