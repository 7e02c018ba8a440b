"""The figures of artifacts, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dags import chain
from inspected import EXPANSIONS, main_job, three_layer_step
from steps import compiled, spec
from strategies import OwnOperator, TwinOfMulOperator
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.inspection import Figures, Summary, Values, describe, summarize
from tinychain.autodiff.operators import AddOperator, MulOperator
from tinychain.autodiff.tracing import TensorGraphBuilder
from tinychain.autodiff.training import SGD, ClipByGlobalNorm, Momentum


def mse_graph(rows: int | str = 4) -> TensorGraph:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=(rows, 3))
        w = builder.input("w", dtype="f64", shape=(3, 1))
        residual = x @ w
        return builder.build(outputs=(residual * residual).sum())


def node(value_id: str, *operands: str, operator: TensorOperator | None = None, **changes: Any) -> TensorNodeRecord:
    given = {
        "node_id": f"n_{value_id}",
        "output_value_id": value_id,
        "operator": operator or AddOperator(),
        "op_params": {},
        "input_value_ids": operands,
        "output_typespec": spec(4),
    }
    return TensorNodeRecord(**{**given, **changes})


def graph_of(*nodes: TensorNodeRecord, output: str = "z", inputs: Any = None) -> TensorGraph:
    return TensorGraph(list(nodes), inputs or [("x", spec(4))], [output])


def only(summary: Summary) -> Figures:
    (part,) = summary.parts
    assert summary.total == part
    assert part.lowered is None
    return part.source


# ------------------------------------------------------------------------------------------------------------ a graph


def test_the_figures_of_a_graph() -> None:
    summary = summarize(mse_graph())
    assert summary.artifact == "TensorGraph"
    assert only(summary) == Figures(
        operations=3,
        unneeded=0,
        operators={"matmul": 1, "mul": 1, "sum": 1},
        reads={
            "input": Values(2, 8 * (12 + 3)),
            "parameter": Values(0, 0),
            "capture": Values(0, 0),
            "seed": Values(0, 0),
        },
        constants=Values(0, 0),
        results=Values(3, 8 * (4 + 4 + 1)),
        flops=2 * 4 * 3 * 1 + 4 + 4,
        peak_live_bytes=8 * (12 + 3 + 4),
        unknown=(),
    )


def test_what_no_output_needs_is_counted_apart() -> None:
    figures = only(summarize(graph_of(node("z", "x", "x"), node("unused", "x", "x"))))
    assert (figures.operations, figures.unneeded, figures.flops) == (1, 1, 4)


def test_a_declared_input_that_nobody_reads_is_not_counted() -> None:
    figures = only(summarize(graph_of(node("z", "x", "x"), inputs=[("x", spec(4)), ("y", spec(9))])))
    assert figures.reads["input"] == Values(1, 32)


def test_a_value_that_is_read_and_not_declared_is_an_input_of_unknown_size() -> None:
    figures = only(summarize(graph_of(node("z", "x", "y"))))
    assert figures.reads["input"] == Values(2, None)
    assert figures.flops is None
    assert "'y' declares no dtype" in figures.unknown[0]


def test_constants_are_what_is_made_of_nothing() -> None:
    lowered = summarize(main_job()).parts[0].lowered
    assert lowered is not None
    assert lowered.constants == Values(2, 4 * (1 + 455))


def test_an_operator_from_outside_goes_by_its_class() -> None:
    graph = graph_of(node("y", "x", operator=TwinOfMulOperator()), node("z", "y", "y", operator=MulOperator()))
    assert only(summarize(graph)).operators == {"TwinOfMulOperator": 1, "mul": 1}


def test_a_graph_without_outputs_needs_nothing() -> None:
    figures = only(summarize(TensorGraph([node("z", "x", "x")], [("x", spec(4))], [])))
    assert (figures.operations, figures.unneeded, figures.flops, figures.peak_live_bytes) == (0, 1, 0, 0)


# ------------------------------------------------------------------------------------------------- symbols, unknowns


def test_a_symbol_makes_the_figures_unknown_and_says_how_to_know() -> None:
    figures = only(summarize(mse_graph("N")))
    assert (figures.flops, figures.peak_live_bytes, figures.results) == (None, None, Values(3, None))
    assert figures.reads["input"] == Values(2, None)
    assert figures.unknown == ("the size of the symbol 'N' is not known; pass shape_bindings={'N': ...}",)


def test_all_unknown_symbols_are_told_at_once() -> None:
    graph = graph_of(node("z", "x", "y"), inputs=[("x", spec("N", "M")), ("y", spec("N"))])
    (reason,) = only(summarize(graph)).unknown
    assert reason == "the sizes of the symbols 'N', 'M' are not known; pass shape_bindings={'N': ..., 'M': ...}"


def test_a_bound_symbol_gives_the_figures_of_the_concrete_graph() -> None:
    assert summarize(mse_graph("N"), shape_bindings={"N": 4}) == summarize(mse_graph(4))


def test_an_operator_without_a_count_is_named() -> None:
    figures = only(summarize(graph_of(node("z", "x", operator=OwnOperator()))))
    assert figures.flops is None
    assert figures.results == Values(1, 32)
    assert figures.peak_live_bytes == 64
    assert figures.unknown == ("operator OwnOperator of node 'n_z' has no FLOP count; define flops on its class",)


class Miscounting(OwnOperator):
    route_name = "miscounting"

    def flops(self, result: Any, *operands: Any, **op_params: Any) -> Any:
        return op_params["count"]


@pytest.mark.parametrize("count", [-1, 2.5, "4", True])
def test_a_count_that_is_none_is_told(count: Any) -> None:
    figures = only(summarize(graph_of(node("z", "x", operator=Miscounting(), op_params={"count": count}))))
    assert figures.flops is None
    assert f"returned {count!r}; expected a non-negative int" in figures.unknown[0]


def test_a_count_that_raises_is_told() -> None:
    figures = only(summarize(graph_of(node("z", "x", operator=Miscounting()))))
    assert figures.flops is None
    assert "flops of operator Miscounting of node 'n_z' raised KeyError" in figures.unknown[0]


def test_the_first_reasons_are_told_and_the_others_counted() -> None:
    nodes = [node(f"v{i}", f"v{i - 1}" if i else "x", operator=OwnOperator()) for i in range(10)]
    figures = only(summarize(graph_of(*nodes, output="v9")))
    assert len(figures.unknown) == 4
    assert figures.unknown[-1] == "and 7 more of the kind"


def test_a_dtype_without_a_size_is_told() -> None:
    figures = only(summarize(graph_of(node("z", "x", output_typespec=spec(4, dtype="int8")))))
    assert figures.results == Values(1, None)
    assert "'int8'" in figures.unknown[0]


# ------------------------------------------------------------------------------------------------------------- a step


def test_the_figures_of_the_main_job() -> None:
    summary = summarize(main_job())
    assert [(part.name, part.uses) for part in summary.parts] == [("forward", 1), ("derivative", 1), ("update of w", 1)]
    forward, derivative, update = summary.parts
    assert forward.lowered is not None
    assert derivative.lowered is not None
    matmul, elements = 2 * 455 * 31, 455
    assert forward.source.flops == matmul + 3 * elements
    assert forward.lowered.flops == matmul + 2 * elements + 2 * elements + 2 * elements + 1
    assert forward.lowered.operators == {"matmul": 3, "fill": 2, "mul": 2, "reshape": 1, "sub": 1}
    assert derivative.source.reads["capture"] == Values(1, 4 * 455)
    assert derivative.source.reads["seed"] == Values(1, 4)
    assert derivative.source.flops == matmul + 4 * elements
    assert derivative.lowered.flops == matmul + 2 * elements + 2 * elements + elements + 3 * elements
    assert update.source == update.lowered
    assert update.source.flops == 62
    assert update.source.reads["parameter"] == Values(1, 4 * 31)


def test_the_total_of_a_step_binds_each_input_once() -> None:
    total = summarize(main_job()).total
    assert total.lowered is not None
    for figures in (total.source, total.lowered):
        assert figures.reads == {
            "input": Values(3, 4 * (455 * 31 + 455 + 1)),
            "parameter": Values(1, 4 * 31),
            "capture": Values(1, 4 * 455),
            "seed": Values(1, 4),
        }
    # The transposed x is the largest: x, its transpose, the gradient of the residual, w, loss and learning rate live.
    assert total.source.peak_live_bytes == 4 * (2 * 455 * 31 + 455 + 31 + 1 + 1)


def test_a_shared_update_counts_as_often_as_it_is_used() -> None:
    summary = summarize(three_layer_step())
    shared = {part.name: part.uses for part in summary.parts if part.name.startswith("update")}
    assert shared == {"update of w1": 1, "update of b1, b2": 2, "update of w2": 1, "update of w3": 1}
    expected = sum([part.uses * (part.source.flops or 0) for part in summary.parts])
    assert summary.total.source.flops == expected
    assert summary.total.source.operations == sum([part.uses * part.source.operations for part in summary.parts])


def test_state_is_bound_for_each_parameter_and_an_optimizer_input_once() -> None:
    total = summarize(three_layer_step(optimizer=Momentum())).total.source
    assert total.reads["parameter"].count == 10
    assert total.reads["input"].count == 3


def test_gradient_inputs_are_a_part_that_the_updates_read() -> None:
    rule = ClipByGlobalNorm(SGD(), 1.0)
    inputs = {name: spec() for name in rule.required_optimizer_inputs}
    summary = summarize(compiled(optimizer=rule, optimizer_inputs=inputs))
    assert [part.name for part in summary.parts][2] == "gradient inputs: gradient_norm"
    assert summary.total.source.reads["input"].count == 3  # x, y and the learning rate, not the norm


def test_a_step_without_passes_is_its_own_lowering() -> None:
    for part in summarize(compiled()).parts:
        assert part.source == part.lowered


def test_a_symbolic_batch_is_bound_for_all_programs() -> None:
    inputs = {"x": spec("N", 3), "y": spec("N", 1), "w": spec(3, 1)}

    def loss(x: Any, y: Any, w: Any) -> Any:
        residual = x @ w - y
        return (residual * residual).sum()

    step = compiled(loss=loss, inputs=inputs)
    unknown = summarize(step).total.source
    assert unknown.flops is None
    assert unknown.peak_live_bytes is None
    assert "'N'" in unknown.unknown[0]
    bound = summarize(step, shape_bindings={"N": 4})
    assert bound == summarize(compiled(loss=loss, inputs={**inputs, "x": spec(4, 3), "y": spec(4, 1)}))
    assert bound.total.source.flops is not None


def test_a_summary_is_plain_data() -> None:
    data = summarize(compiled(**EXPANSIONS)).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["parts"][0]["lowered"]["operators"]["matmul"] == 3


def test_a_summary_reads_as_its_tables_and_shows_as_one_line() -> None:
    summary = summarize(three_layer_step())
    text = str(summary)
    assert text in describe(three_layer_step())
    assert text.startswith("part  ")
    figures = summary.total.lowered
    assert figures is not None
    assert repr(summary) == (
        "<Summary of a CompiledTrainingStep (forward, derivative, update of w1 and 3 more):"
        f" {figures.operations} operations, {figures.flops:,} FLOPs>"
    )


@pytest.mark.slow
def test_a_million_operations_are_summed_up() -> None:
    figures = only(summarize(chain(1_000_000)))
    assert (figures.operations, figures.peak_live_bytes) == (1_000_000, 2 * 8)


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("artifact", [None, "graph", 3, [], mse_graph])
def test_anything_else_is_refused(artifact: Any) -> None:
    with pytest.raises(
        TypeError, match="artifact must be a TensorGraph, a DerivativeProgram or a CompiledTrainingStep"
    ):
        summarize(artifact)


@pytest.mark.parametrize(
    ("bindings", "error"), [([("N", 4)], TypeError), ({"N": -1}, ValueError), ({"N": 2.5}, ValueError)]
)
def test_bad_bindings_are_refused(bindings: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="shape_bindings"):
        summarize(mse_graph("N"), shape_bindings=bindings)


@pytest.mark.parametrize(
    ("graph", "category", "part"),
    [
        (graph_of(node("z", "z2"), node("z2", "z")), "malformed_derivative_ir", "cycle"),
        (graph_of(node("z", "x"), node("z", "x", node_id="other")), "ambiguous_producer", "'z' has two producers"),
        (graph_of(node("x", "x")), "ambiguous_producer", "'x' is a declared input and produced by node 'n_x'"),
        (graph_of(node("z", "x"), node("y", "x", node_id="n_z")), "malformed_derivative_ir", "two nodes have the id"),
        (graph_of(node("z", "x"), output=3), "invalid_selected_output", "an output must be a non-empty str id, got 3"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_run_is_refused(graph: TensorGraph, category: str, part: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        summarize(graph)
    assert caught.value.category == category
    assert part in caught.value.message
