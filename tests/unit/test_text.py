"""Artifacts to text and back: exact, for whatever plain data, operators and order they have."""

from __future__ import annotations

import struct
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from by_hand import F32, graph, node, program
from strategies import OWN_OPERATORS, OwnOperator, TwinOfMulOperator, graphs, hostile_ids, programs, traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import (
    DerivativeProgram,
    TensorGraph,
    TensorOperator,
)
from tinychain.autodiff.operators import AddOperator, MulOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.text import format_text, parse_text


def round_trip(artifact: Any) -> Any:
    return parse_text(format_text(artifact), operators=OWN_OPERATORS)


def assert_same(got: Any, wanted: Any) -> None:
    """By repr, which tells -0.0 from 0.0 and True from 1, shows dict order, and for which nan is nan."""
    assert repr(got) == repr(wanted)


# ------------------------------------------------------------------------------------------------------- round trips


@given(graphs | programs())
def test_hand_built_artifact_round_trips(artifact: TensorGraph | DerivativeProgram) -> None:
    assert_same(round_trip(artifact), artifact)


@given(graphs | programs())
def test_text_is_printable_lines(artifact: TensorGraph | DerivativeProgram) -> None:
    lines = format_text(artifact).split("\n")
    assert lines[-1] == ""
    assert all(line.isprintable() for line in lines)


@given(traced_graphs())
def test_traced_graph_and_its_gradient_round_trip(traced: TensorGraph) -> None:
    derivative = generate(traced, traced.outputs[0], [value_id for value_id, _ in traced.inputs], "seed")
    assert round_trip(traced) == traced
    assert round_trip(derivative) == derivative
    assert list(round_trip(derivative).value_typespecs) == list(derivative.value_typespecs)


@given(hostile_ids)
def test_any_str_is_an_id(text: str) -> None:
    artifact = graph(node(node_id=text), inputs=[(text, None)], outputs=[text])
    assert_same(round_trip(artifact), artifact)


@pytest.mark.parametrize("text", ["x" * 1_000_000, '"\\\n\u2028' * 250_000, "\ud83d\ude00" * 500_000], ids="abc")
def test_id_of_a_million_characters_round_trips(text: str) -> None:
    parsed = round_trip(graph(outputs=[text]))
    assert parsed.outputs[0] == text, "the id changed"


@given(st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]))
def test_every_float_keeps_its_bits(literal: float) -> None:
    (parsed,) = round_trip(graph(node(right_literal=literal))).nodes
    got = parsed.op_params["right_literal"]
    assert got != got if literal != literal else struct.pack("<d", got) == struct.pack("<d", literal)


@pytest.mark.parametrize(
    "literal", [1, 1.0, True, None, "1", 10**5000, -(10**5000)], ids=lambda value: type(value).__name__
)
def test_kinds_of_values_stay_apart(literal: Any) -> None:
    (parsed,) = round_trip(graph(node(right_literal=literal))).nodes
    got = parsed.op_params["right_literal"]
    assert got == literal
    assert type(got) is type(literal)


def test_subclasses_and_tuples_become_plain() -> None:
    class Axis(IntEnum):
        ROW = 0

    params = round_trip(graph(node(axes=(Axis.ROW, 1), options=MappingProxyType({"a": 1})))).nodes[0].op_params
    assert_same(params, {"axes": [0, 1], "options": {"a": 1}})


def test_nodes_in_any_order_and_repeated_ids_round_trip() -> None:
    artifact = graph(node(), node(), node(node_id="other"), outputs=["v1", "v1"])
    assert round_trip(artifact) == artifact


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"v1": F32},
        {"v1": None},
        {"v1": {"dtype": "f64", "shape": [2]}},
        {"a": F32, "v1": F32},
        {"v1": F32, "a": F32},
        {"a": F32},
    ],
)
def test_value_table_keeps_its_entries_and_order(table: dict[str, Any]) -> None:
    artifact = program(nodes=[node(typespec=F32)], value_typespecs=table)
    assert_same(round_trip(artifact), artifact)


def test_table_that_follows_from_the_nodes_is_not_repeated() -> None:
    text = format_text(program(nodes=[node(typespec=F32)], value_typespecs={"seed": F32, "v1": F32}))
    assert "  value seed : f32[2]\n  value *\n" in text
    assert text.count("f32[2]") == 2


def test_equal_typespecs_become_one_object() -> None:
    text = 'graph {\n input a : f32[2]\n input b : f32 [ 2 ]\n x = add(a, b) : {shape: [2], dtype: "f32"} @n\n}'
    parsed = parse_text(text)
    assert isinstance(parsed, TensorGraph)
    assert parsed.inputs[0][1] is parsed.inputs[1][1] is parsed.nodes[0].output_typespec


def test_artifact_is_left_as_it_was() -> None:
    artifact = program(nodes=[node(TwinOfMulOperator(), typespec=F32, a=[1])], value_typespecs={"v1": F32})
    before = repr(artifact)
    format_text(artifact)
    assert repr(artifact) == before


def test_comments_blank_lines_spacing_and_statement_order_are_free() -> None:
    tidy = graph(node(right_literal=0.5), inputs=[("v0", F32)], outputs=["v1"])
    untidy = (
        "\r\n# a graph\r\ngraph{\r\n\r\noutput v1\r\n\tv1=mul( v0 ){right_literal:0.5}@n0\r\n"
        "  # its input\r\ninput v0:f32[2]\r\n}\r\n"
    )
    assert parse_text(untidy) == tidy


# --------------------------------------------------------------------------------------------------------- operators


def test_operator_that_shares_a_route_name_stays_itself() -> None:
    artifact = graph(node(MulOperator()), node(TwinOfMulOperator()))
    text = format_text(artifact)
    assert "v1 = mul(v0) @n0" in text
    assert "v1 = TwinOfMulOperator<mul>(v0) @n0" in text
    assert round_trip(artifact) == artifact


def test_route_name_of_an_instance_round_trips() -> None:
    artifact = graph(node(AddOperator("plus")), node(TensorOperator("bare")), node(OwnOperator("other")))
    assert round_trip(artifact) == artifact


def test_class_that_needs_arguments_is_refused() -> None:
    class Parametric(TensorOperator):
        route_name = "parametric"

        def __init__(self, power: int) -> None:
            super().__init__(f"power{power}")

    with pytest.raises(
        AutodiffError, match="class 'Parametric' makes no operator of the route name 'power3'"
    ) as caught:
        parse_text(format_text(graph(node(Parametric(3)))), operators=[Parametric])
    assert caught.value.category == "malformed_derivative_ir"


def test_unknown_operator_is_named_with_what_is_known() -> None:
    with pytest.raises(AutodiffError, match=r"line 2: unknown operator 'OwnOperator'.*matmul.*operators") as caught:
        parse_text(format_text(graph(node(OwnOperator()))))
    assert caught.value.category == "unsupported_operator"


def test_two_classes_of_one_name_have_no_text() -> None:
    def own(route: str) -> TensorOperator:
        class Twin(TensorOperator):
            route_name = route

        return Twin()

    with pytest.raises(AutodiffError, match="two operator classes have the name 'Twin'") as caught:
        format_text(graph(node(own("a")), node(own("b"))))
    assert caught.value.category == "malformed_derivative_ir"
    with pytest.raises(TypeError, match="operators holds two classes of the name 'Twin'"):
        parse_text("graph {\n}", operators=[type(own("a")), type(own("b"))])
