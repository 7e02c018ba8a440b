"""The listing: what it says, and that its programs can be read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from dags import dag, op
from inspected import main_job, three_layer_step
from steps import compiled, spec
from strategies import traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.inspection import describe
from tinychain.autodiff.text import format_text, parse_text
from tinychain.autodiff.training import Momentum


@given(traced_graphs())
def test_a_graph_is_listed_as_its_text_and_its_figures(graph: TensorGraph) -> None:
    listing = describe(graph)
    text, _, figures = listing.partition("\n\n")
    assert parse_text(f"{text}\n") == graph
    assert "FLOPs" in figures
    assert listing.endswith("\n")


def test_the_main_job_in_words() -> None:
    step = main_job()
    listing = describe(step)
    header = listing.partition("\n\n")[0]
    assert header.splitlines() == [
        "training step of w by SGD",
        "  inputs      x = v0, y = v1, w = v2",
        "  optimizer   learning_rate",
        "  loss        v6",
        "  captures    v4",
        "  seed        tsv0 (seed)",
        "  gradients   w -> d7",
        "  passes      forward: expand_mean_graph",
        "  passes      derivative: partial",
    ]
    assert format_text(step.lowered_forward_graph) in listing
    assert format_text(step.lowered_derivative_program) in listing
    assert "# expand_mean_graph: mean n3 became exn0, exn1, exn2, exn3, exn4, exn5, which ends in v6\n" in listing


def test_the_table_has_source_and_lowered_side_by_side() -> None:
    rows = [line.split() for line in describe(main_job()).splitlines()]
    forward = next(index for index, row in enumerate(rows) if row[:2] == ["forward", "source"])
    assert rows[forward][2:5] == ["1", "4", "29,575"]
    assert rows[forward + 1][:3] == ["lowered", "9", "30,941"]
    total = next(index for index, row in enumerate(rows) if row[:2] == ["total", "source"])
    assert rows[total][2:5] == ["1", "14", "59,667"]
    assert rows[total + 1][:3] == ["lowered", "22", "62,853"]


def test_the_columns_line_up() -> None:
    listing = describe(three_layer_step())
    table = listing[listing.index("part  ") :].partition("\n\n")[0].splitlines()
    rule = table[1]
    edges = [position for position, char in enumerate(rule) if char == " "]
    assert all(len(line) <= len(rule) for line in table)
    assert all(line[position : position + 1] in (" ", "") for line in table[2:] for position in edges)


def test_a_shared_update_is_listed_once() -> None:
    listing = describe(three_layer_step())
    assert listing.count("update of b1, b2 (used 2 times)") == 1


def test_updates_that_differ_in_shapes_alone_are_listed_as_one() -> None:
    listing = describe(three_layer_step())
    assert listing.count("\ngraph {\n") == 1 + 1
    assert listing.partition("\nupdate of w1\n")[2].splitlines()[:3] == [
        "# alike but for shapes: update of b1, b2 (used 2 times) : f64[1, 6]",
        "# alike but for shapes: update of w2 : f64[6, 6]",
        "# alike but for shapes: update of w3 : f64[6, 1]",
    ]


def sgd_but_for(shape: list[int], factor: float) -> Any:
    def rule(parameter: Any, gradient: Any, learning_rate: Any) -> Any:
        scaled = gradient * (factor if list(parameter.shape) == shape else 1.0)
        return parameter - scaled * learning_rate

    return rule


@pytest.mark.parametrize(("factor", "listed"), [(1.0, 1), (0.5, 2)])
def test_an_update_of_another_number_is_listed_in_full(factor: float, listed: int) -> None:
    listing = describe(three_layer_step(optimizer=sgd_but_for([6, 6], factor)))
    assert listing.count("\ngraph {\n") == 1 + listed


def test_inputs_and_outputs_of_each_program_are_named() -> None:
    lines = describe(compiled(optimizer=Momentum())).splitlines()
    assert "# inputs: parameter = v0, gradient = v1, learning_rate = v2, velocity = v3" in lines
    assert "# outputs: new parameter = v7, new velocity = v5" in lines
    assert "# outputs: loss = v6, captured = v4" in lines
    assert "# outputs: gradient of w = d7" in lines


def test_one_note_tells_of_a_symbol_of_several_programs() -> None:
    def loss(x: Any, y: Any, w: Any) -> Any:
        residual = x @ w - y
        return (residual * residual).sum()

    listing = describe(compiled(loss=loss, inputs={"x": spec("N", 3), "y": spec("N", 1), "w": spec(3, 1)}))
    assert listing.splitlines()[-1] == (
        "note: forward, derivative: unknown because the size of the symbol 'N' is not known;"
        " pass shape_bindings={'N': ...}"
    )


def test_further_reasons_are_counted_in_the_same_note() -> None:
    nodes = [op(f"v{i}", f"v{i - 1}" if i else "x") for i in range(6)]
    (note,) = [line for line in describe(dag(*nodes, outputs=["v5"])).splitlines() if "unknown because" in line]
    assert note.endswith("; and 3 more of the kind")


def test_what_is_not_known_and_not_needed_is_noted() -> None:
    graph = dag(op("z", "x", typespec=spec("N")), op("extra", "x"), outputs=["z"], inputs=[("x", spec("N"))])
    listing = describe(graph)
    assert "unknown" in listing
    assert "note: graph: 1 operations that no output needs are not counted" in listing
    assert "note: graph: unknown because the size of the symbol 'N' is not known" in listing
    assert "symbol" not in describe(graph, shape_bindings={"N": 3})


def test_a_name_that_cannot_be_seen_is_escaped() -> None:
    step = compiled(seed_label="a\x1b[31m\nb")
    assert '  seed        tsv0 ("a\\u{1b}[31m\\nb")' in describe(step)


def test_many_sharing_parameters_are_counted() -> None:
    names = [f"w{i}" for i in range(7)]

    def loss(**weights: Any) -> Any:
        total = weights["w0"]
        for name in names[1:]:
            total = total * weights[name]
        return total.sum()

    step = compiled(loss=loss, inputs={name: spec(3) for name in names}, parameters=names)
    assert "update of w0, w1, w2, w3 and 3 more (used 7 times)" in describe(step)


def test_what_has_no_text_is_refused_with_its_place() -> None:
    with pytest.raises(AutodiffError) as caught:
        describe(dag(op("z", "x", key=object()), outputs=["z"]))
    assert caught.value.category == "malformed_derivative_ir"
    assert "node 'n_z': op_params['key'] has no text form" in caught.value.message


def test_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match="artifact must be a TensorGraph"):
        describe("graph")  # type: ignore[arg-type]
