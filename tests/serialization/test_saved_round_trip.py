"""Artifacts to bytes and back: to the last bit, for whatever data, ids and operators they have."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from by_hand import F32, graph, node, producing, program
from documents import document_of, spelled
from strategies import OwnOperator, hostile_ids, op_params, traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorOperator
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.serialization import dumps, loads
from tinychain.autodiff.tracing import TensorGraphBuilder


def round_trip(artifact: Any) -> Any:
    return loads(dumps(artifact), operators=[OwnOperator])


def assert_kept(artifact: TensorGraph | DerivativeProgram) -> None:
    data = dumps(artifact)
    loaded = loads(data, operators=[OwnOperator])
    assert type(loaded) is type(artifact)
    assert loaded == artifact
    assert dumps(loaded) == data


def kept(value: Any) -> Any:
    """A value that went through a file as a param."""
    return (
        round_trip(graph(node(OwnOperator(), value=value), outputs=["v1"], inputs=[("v0", None)]))
        .nodes[0]
        .op_params["value"]
    )


def bits(value: Any) -> Any:
    """The value with each float as its bits, and every type spelled out."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, (list, tuple)):
        return (type(value), [bits(item) for item in value])
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return (type(value), value)


# --------------------------------------------------------------------------------------------------------- artifacts


@given(traced_graphs())
def test_traced_graph_and_its_derivatives_are_kept(traced: TensorGraph) -> None:
    derivative = generate(traced, traced.outputs[0], [value_id for value_id, _ in traced.inputs], "seed")
    for artifact in (traced, derivative, joint_graph(derivative, forward_graph=traced)):
        assert_kept(artifact)


@given(traced_graphs())
def test_expanded_artifacts_are_kept(traced: TensorGraph) -> None:
    derivative = generate(traced, traced.outputs[0], [value_id for value_id, _ in traced.inputs], "seed")
    try:
        expanded = expand_mean_graph(traced)
    except AutodiffError:  # a mean over an axis of a symbol or a case that the pass declines
        expanded = traced
    assert_kept(expanded)
    assert_kept(expand_mean_derivative_program(derivative))


def test_symbolic_and_untyped_artifacts_are_kept() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=("N", 3))
        w = builder.input("w", dtype="f32", shape=(3, "M"))
        loss = ((x @ w) * 2.0 + 1.0).sum()
    traced = builder.build(outputs=loss)
    for artifact in (traced, builder.vjp(loss, wrt=[x, w]), builder.build()):
        assert_kept(artifact)


def test_derivative_of_a_graph_whose_inputs_have_no_typespec_is_kept() -> None:
    with TensorGraphBuilder() as builder:
        x, y = (builder.input(name, dtype="f32", shape=[2]) for name in "xy")
        builder.mark_output(x * y * x)
    untyped = builder.build()
    assert_kept(untyped)
    derivative = generate(untyped, untyped.outputs, ["v0", *untyped.outputs], ["seed"])
    assert derivative.gradients["v3"] == "seed"
    assert_kept(derivative)


def test_nodes_that_no_output_needs_are_kept_with_what_they_read() -> None:
    with TensorGraphBuilder() as builder:
        x, y = (builder.input(name, dtype="f32", shape=[2]) for name in "xy")
        loss = x.sum()
        _unused = y * y
    traced = builder.build(outputs=loss)
    assert [value_id for value_id, _ in traced.inputs] == ["v0"]
    assert_kept(traced)


def test_gradients_come_back_in_the_order_of_wrt() -> None:
    with TensorGraphBuilder() as builder:
        x, y = (builder.input(name, dtype="f32", shape=[2]) for name in "xy")
        loss = (x * y).sum()
    derivative = builder.vjp(loss, wrt=[y, x])
    loaded = round_trip(derivative)
    assert list(loaded.gradients) == list(derivative.gradients) == ["v1", "v0"]
    assert list(loaded.value_typespecs) == list(derivative.value_typespecs)


def test_program_with_an_absent_gradient_is_kept() -> None:
    assert_kept(program(nodes=[node(OwnOperator())], gradients={"w": "v1"}, output_gradients=["v1", None]))


def test_equal_strings_and_typespecs_become_one_object() -> None:
    two = graph(
        producing("b", AddOperator(), "a", "a", typespec=dict(F32)),
        producing("c", AddOperator(), "b", "b", typespec=dict(F32)),
        inputs=[("a", dict(F32))],
        outputs=["c"],
    )
    first, second = round_trip(two).nodes
    assert first.output_typespec is second.output_typespec
    assert first.output_value_id is second.input_value_ids[0]
    assert first.operator is second.operator


# --------------------------------------------------------------------------------------------------------- plain data


@given(op_params)
def test_params_keep_every_bit_and_type(params: dict[str, Any]) -> None:
    artifact = graph(producing("v1", OwnOperator(), value=params), outputs=["v1"])
    assert bits(round_trip(artifact).nodes[0].op_params) == bits({"value": params})


@given(st.integers(0, 2**64 - 1))
def test_every_float_keeps_its_bits(pattern: int) -> None:
    value = struct.unpack("<d", struct.pack("<Q", pattern))[0]
    assert bits(kept(value)) == bits(value)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -0.0,
        True,
        1,
        1.0,
        None,
        "1",
        10**640 - 1,
        -(10**640) + 1,
        [],
        {},
        (),
        (1, [2, (3.0,)], {"a": (None,)}),
        {"$float": 1},
        {"$tuple": [1]},
        {"$": {"$$": "$"}},
        {"$float": "7ff8000000000000"},
        float("-inf"),
        struct.unpack(">d", bytes.fromhex("fff0dead0000beef"))[0],
    ],
    ids=repr,
)
def test_kinds_of_values_stay_apart(value: Any) -> None:
    assert bits(kept(value)) == bits(value)


@given(hostile_ids)
def test_any_str_is_an_id_a_key_and_a_symbol(text: str) -> None:
    spec = {"dtype": "f32", "shape": ["N"], text: {text: text}}
    artifact = program(
        nodes=[producing(text, OwnOperator(), text + "x", typespec=None, a={text: [text]})],
        gradients={text: text},
        output_gradients=[text],
        value_typespecs={text: spec},
    )
    loaded = round_trip(artifact)
    assert loaded == artifact
    assert loaded.nodes[0].output_value_id == text


@pytest.mark.parametrize("text", ["\ud83d\ude00", "\U0001f600", "\ufffd", "\ufffdd800", "\udc00\ud800\x00é"])
def test_surrogates_and_what_escapes_them_stay_apart(text: str) -> None:
    data = dumps(graph(outputs=[text], inputs=[(text, None)]))
    assert data.isascii()
    loaded = loads(data)
    assert isinstance(loaded, TensorGraph)
    assert loaded.outputs == [text]


def test_nesting_of_a_hundred_is_kept() -> None:
    value: Any = 1
    for _ in range(99):
        value = [value]
    assert kept(value) == value


# --------------------------------------------------------------------------------------------------------- operators


def test_own_operator_and_route_names_of_instances_are_kept() -> None:
    operators = [OwnOperator(), OwnOperator("other"), AddOperator("plus"), TensorOperator("bare")]
    nodes = [producing(f"v{i}", operator, "x", "x") for i, operator in enumerate(operators)]
    loaded = round_trip(graph(*nodes, inputs=[("x", None)], outputs=["v3"]))
    assert [node.operator for node in loaded.nodes] == operators


# ------------------------------------------------------------------------------------------------------------- spelling


def test_any_spelling_of_the_json_is_read() -> None:
    artifact = graph(node(OwnOperator(), a=[1.5, "π"]), inputs=[("v0", F32)], outputs=["v1"])
    data = dumps(artifact)
    pretty = json.dumps(dict(reversed(document_of(data).items())), indent=2, ensure_ascii=False)
    for spelling in (data.decode(), pretty, pretty.encode()):
        assert loads(spelling, operators=[OwnOperator]) == artifact


def test_bytes_are_the_canonical_spelling_of_their_json() -> None:
    data = dumps(graph(node(OwnOperator(), b=1, a=(-0.0,)), inputs=[("v0", F32)], outputs=["v1"]))
    assert data == spelled(document_of(data))


VERSION_1 = (
    '{"format":"tinychain.autodiff","kind":"graph","payload":{'
    '"content_hash":"3c9ea5b2ea1c09ed41fa4b69b8bee3f62bb3947b5ac2f5b41d4f70bd9d1ac938",'
    '"inputs":[["x",{"dtype":"f32","shape":["N",2]}],["free",null]],'
    '"nodes":[{"input_value_ids":["x"],"node_id":"n\\u00e9","op_params":{"$$key":[1,1.0,true,null,"\\ufffdd800"],'
    '"bits":{"$float":"7ff8000000000001"},"right_literal":-0.0,"shape":{"$tuple":[2]}},'
    '"operator":{"route_name":"my own","type":"OwnOperator"},"output_typespec":null,"output_value_id":"v1"}],'
    '"outputs":["v1","free"]},"sha256":"93a32cb7aad04155aae744c2b633d13fd75dfd37cf70c7c8edc4c0ee1ced4fe5","version":1}\n'
)


def test_version_1_is_written_and_read_as_ever() -> None:
    artifact = graph(
        node(
            OwnOperator(),
            node_id="né",
            **{
                "$key": [1, 1.0, True, None, "\ud800"],
                "bits": struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0],
                "right_literal": -0.0,
                "shape": (2,),
            },
        ),
        inputs=[("x", {"dtype": "f32", "shape": ["N", 2]}), ("free", None)],
        outputs=["v1", "free"],
    )
    artifact.nodes[0].input_value_ids[:] = ["x"]
    assert dumps(artifact).decode() == VERSION_1
    loaded = loads(VERSION_1, operators=[OwnOperator])
    assert dumps(loaded).decode() == VERSION_1
