"""What is read is refused with the JSON path of the fault: every field, and every way that a file goes bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from by_hand import graph, node
from documents import document_of, edited, refusal, spelled
from strategies import OwnOperator
from tinychain.autodiff.graph import TensorGraph, TensorOperator
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.operators import AddOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.serialization import dumps, loads
from tinychain.autodiff.tracing import TensorGraphBuilder

with TensorGraphBuilder() as builder:
    _x, _y = (builder.input(name, dtype="f32", shape=[2, 3]) for name in "xy")
    _loss = (_x * _y * 0.5).mean()

GRAPH = builder.build(outputs=_loss)
DATA = dumps(GRAPH)
PROGRAM = dumps(generate(GRAPH, GRAPH.outputs, ["v0", "v1"], ["seed"]))

Edit = Callable[[Any], None]


def put(*way: Any) -> Edit:
    """The edit that sets the value at the end of a way of keys and indexes, given last."""
    *keys, last, value = way

    def edit(payload: Any) -> None:
        for key in keys:
            payload = payload[key]
        payload[last] = value

    return edit


def drop(*way: Any) -> Edit:
    *keys, last = way

    def edit(payload: Any) -> None:
        for key in keys:
            payload = payload[key]
        del payload[last]

    return edit


def both(*edits: Edit) -> Edit:
    def edit(payload: Any) -> None:
        for one in edits:
            one(payload)

    return edit


# ------------------------------------------------------------------------------------------------------- the envelope


def test_truncated_data_is_refused_at_every_length() -> None:
    for length in range(len(DATA) - 2):
        assert refusal(DATA[:length]).startswith("data: at $: expected JSON, got none at line 1 column")


def test_message_has_the_place_what_was_expected_what_came_and_what_to_do() -> None:
    assert refusal(DATA[:40]) == (
        "data: at $: expected JSON, got none at line 1 column 39 of 40 characters: Unterminated string starting at; the"
        " file is truncated, damaged or edited, so get it again or write it again"
    )


@pytest.mark.parametrize("data", [b"", b"x", b"[1]", b"null", b"1", b'"text"'])
def test_data_that_is_no_object_is_refused(data: bytes) -> None:
    assert "at $: expected" in refusal(data)


def test_data_that_is_not_utf8_is_refused_with_the_byte() -> None:
    assert "at $: expected UTF-8, got the byte 0xff at offset 5" in refusal(DATA[:5] + b"\xff" + DATA[6:])
    assert "expected UTF-8" in refusal(DATA.decode().encode("utf-16"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "$.format: expected 'tinychain.autodiff', got 'other'; this is no file of"),
        ({"format": None}, "$.format: expected 'tinychain.autodiff', got None"),
        ({"version": 2}, "$.version: expected an int from 1 to 1, got 2; update tinychain-autodiff to read it"),
        ({"version": 0}, "$.version: expected an int from 1 to 1, got 0"),
        ({"version": True}, "$.version: expected an int from 1 to 1, got True"),
        ({"version": 1.0}, "$.version: expected an int from 1 to 1, got 1.0"),
        ({"version": "1"}, "$.version: expected an int from 1 to 1, got '1'"),
        ({"kind": "picture"}, "$.kind: expected 'graph' or 'derivative_program', got 'picture'"),
        ({"kind": []}, "$.kind: expected 'graph' or 'derivative_program', got an array of 0"),
        ({"kind": "training_step"}, "read a training step with load_training_step"),
        ({"sha256": "0" * 64}, "$.sha256: expected "),
        ({"sha256": None}, "the hash of the payload, got None; the file is truncated, damaged or edited"),
        ({"payload": []}, "$.sha256: expected "),
        ({"comment": "mine"}, "$.comment: expected no other keys than format, kind, payload, sha256, version, got it"),
        ({"a b": "mine"}, "$['a b']: expected no other keys"),
    ],
    ids=repr,
)
def test_field_of_the_envelope_is_refused(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(spelled({**document_of(DATA), **changes}))


@pytest.mark.parametrize("name", ["format", "kind", "payload", "sha256", "version"])
def test_missing_field_of_the_envelope_is_refused(name: str) -> None:
    document = document_of(DATA)
    del document[name]
    assert f"at $.{name}: expected " in refusal(spelled(document))
    assert "got none" in refusal(spelled(document))


def test_newer_version_is_told_before_its_new_fields() -> None:
    assert "update tinychain-autodiff" in refusal(spelled({"format": "tinychain.autodiff", "version": 7, "new": 1}))


def test_any_edit_without_a_new_hash_is_seen() -> None:
    assert "at $.sha256: expected" in refusal(DATA.replace(b'"shape":[2,3]', b'"shape":[3,2]', 1))


# ------------------------------------------------------------------------------------------------------- strict JSON


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("NaN", "expected JSON, in which such a float is written as its bits, got NaN"),
        ("-Infinity", "got -Infinity"),
        ("1e999", "expected a number that a float can hold, got '1e999'"),
        ("9" * 641, "expected an int of at most 640 digits, got one of 641"),
        ("-" + "9" * 641, "got one of 641"),
        ("1" * 100_000, "got one of 100000"),
        ('{"a":1,"a":1}', "expected each key once, got 'a' twice"),
    ],
    ids=lambda value: value[:12],
)
def test_what_strict_json_does_not_allow_is_refused_with_its_path(value: str, message: str) -> None:
    text = DATA.decode().replace('"right_literal":0.5', f'"right_literal":{value}')
    got = refusal(text)
    assert "at $.payload.nodes[1].op_params.right_literal: expected" in got
    assert message in got


def test_key_that_stands_twice_in_the_envelope_is_refused() -> None:
    assert "at $: expected each key once, got 'kind' twice" in refusal(DATA.replace(b"{", b'{"kind":"graph",', 1))


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "at $: expected arrays and objects that nest as an artifact does, got far deeper ones" in refusal(text)


def test_nesting_beyond_a_hundred_is_refused_with_its_path() -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    message = refusal(edited(DATA, put("nodes", 0, "op_params", {"a": value})))
    assert f"at $.payload.nodes[0].op_params.a{'[0]' * 99}: expected lists and mappings that nest" in message


# --------------------------------------------------------------------------------------------------------- the graph


@pytest.mark.parametrize(
    ("edit", "path", "message"),
    [
        (put("nodes", {}), ".nodes", "expected an array, got an object of 0"),
        (put("nodes", 1, None), ".nodes[1]", "expected an object, got None"),
        (put("nodes", 1, []), ".nodes[1]", "expected an object, got an array of 0"),
        (drop("nodes", 1, "node_id"), ".nodes[1].node_id", "expected a value, got none"),
        (put("nodes", 1, "mine", 1), ".nodes[1].mine", "expected no other keys than input_value_ids, node_id"),
        (put("nodes", 1, "node_id", 7), ".nodes[1].node_id", "expected a string, got 7"),
        (put("nodes", 1, "output_value_id", None), ".nodes[1].output_value_id", "expected a string, got None"),
        (put("nodes", 1, "input_value_ids", "v0"), ".nodes[1].input_value_ids", "expected an array, got 'v0'"),
        (put("nodes", 1, "input_value_ids", 0, []), ".nodes[1].input_value_ids[0]", "expected a string, got an array"),
        (put("nodes", 1, "op_params", []), ".nodes[1].op_params", "op_params, which are a mapping, got an array"),
        (put("nodes", 1, "op_params", {"$tuple": []}), ".nodes[1].op_params", "which are a mapping, got ()"),
        (put("nodes", 1, "op_params", {"$x": 1}), ".nodes[1].op_params['$x']", "begins with $$"),
        (put("nodes", 1, "op_params", {"a": {"$tuple": 1}}), ".nodes[1].op_params.a.$tuple", "expected an array"),
        (put("nodes", 1, "op_params", {"a": {"$float": "x"}}), ".nodes[1].op_params.a.$float", "16 hex digits"),
        (
            put("nodes", 1, "op_params", {"a": {"$float": "3ff0000000000000"}}),
            ".nodes[1].op_params.a.$float",
            "the 16 hex digits of an infinity or a NaN, got '3ff0000000000000'",
        ),
        (put("nodes", 1, "op_params", {"a": "\ufffd12"}), ".nodes[1].op_params.a", "expected U+FFFD and the four"),
        (put("nodes", 1, "node_id", "\ud800"), ".nodes[1].node_id", "expected U+FFFD and the four hex digits"),
        (put("nodes", 1, "output_typespec", 4), ".nodes[1].output_typespec", "a typespec, which is an object or null"),
        (put("nodes", 1, "operator", "mul"), ".nodes[1].operator", "expected an object, got 'mul'"),
        (drop("nodes", 1, "operator", "type"), ".nodes[1].operator.type", "expected a value, got none"),
        (put("nodes", 1, "operator", "type", 3), ".nodes[1].operator.type", "expected a string, got 3"),
        (put("inputs", 0, ["v0"]), ".inputs[0]", "expected an array of a value id and a typespec, got an array of 1"),
        (put("inputs", 0, 0, 1), ".inputs[0][0]", "expected a string, got 1"),
        (put("inputs", 0, 1, [1]), ".inputs[0][1]", "a typespec, which is an object or null, got an array of 1"),
        (put("outputs", 0, 1), ".outputs[0]", "expected a string, got 1"),
        (drop("outputs"), ".outputs", "expected a value, got none"),
        (put("content_hash", "0" * 64), ".content_hash", "the content hash of the graph, got '000"),
        (put("content_hash", None), ".content_hash", "the content hash of the graph, got None"),
    ],
)
def test_field_of_a_graph_is_refused(edit: Edit, path: str, message: str) -> None:
    got = refusal(edited(DATA, edit))
    assert f"at $.payload{path}" in got
    assert message in got


@pytest.mark.parametrize(
    ("edit", "path", "message"),
    [
        (put("outputs", ["gone"]), ".outputs[0]", "expected a value that a node produces or an input declares"),
        (put("nodes", 1, "input_value_ids", ["gone"]), ".nodes[1].input_value_ids[0]", "got 'gone'"),
        (drop("inputs", 0), ".nodes[0].input_value_ids[0]", "got 'v0'"),
        (put("nodes", 1, "node_id", "n0"), ".nodes[1].node_id", "an id that nothing else has, got 'n0'"),
        (put("nodes", 1, "output_value_id", "v2"), ".nodes[1].output_value_id", "got 'v2'"),
        (put("nodes", 1, "output_value_id", "v1"), ".nodes[1].output_value_id", "got 'v1'"),
        (put("inputs", 1, 0, "v0"), ".inputs[1][0]", "an id that nothing else has, got 'v0'"),
        (put("nodes", 0, "input_value_ids", ["v3", "v1"]), ".nodes", "expected no cycle, got cycle: value"),
        (put("nodes", 0, "input_value_ids", ["v0"]), ".nodes[0]", "requires exactly two inputs"),
        (put("nodes", 2, "op_params", "axes", [5]), ".nodes[2]", "axes are [5]"),
        (put("nodes", 2, "op_params", "scale", 2), ".nodes[2]", "has the op_params key 'scale'"),
        (put("nodes", 1, "op_params", {"right_literal": "1"}), ".nodes[1]", "the literal is '1'"),
        (
            put("nodes", 1, "output_typespec", {"dtype": "f32", "shape": [9]}),
            ".nodes[1]",
            "its operands give f32[2, 3]",
        ),
        (put("nodes", 1, "output_typespec", {"dtype": "f64", "shape": [2, 3]}), ".nodes[1]", "dtype_mismatch"),
        (
            put("nodes", 1, "output_typespec", {"dtype": "f32", "shape": "no"}),
            ".nodes[1].output_typespec",
            "no ranked shape",
        ),
        (put("nodes", 1, "output_typespec", {"dtype": 3}), ".nodes[1].output_typespec", "declares no dtype"),
        (put("nodes", 1, "output_typespec", {"dtype": ""}), ".nodes[1].output_typespec", "declares no dtype"),
        (put("inputs", 0, 1, {"dtype": "f32", "shape": [-1]}), ".inputs[0][1]", "has the dim -1"),
    ],
)
def test_graph_that_could_not_be_traced_is_refused(edit: Edit, path: str, message: str) -> None:
    got = refusal(edited(DATA, edit))
    assert f"at $.payload{path}: " in got
    assert message in got


def test_graph_that_is_valid_but_another_one_is_refused_by_its_content_hash() -> None:
    edit = put("nodes", 1, "op_params", {"right_literal": 0.25})
    assert "at $.payload.content_hash: expected" in refusal(edited(DATA, edit))
    wanted = TensorGraph(GRAPH.nodes, GRAPH.inputs, GRAPH.outputs[:0])
    assert loads(edited(DATA, both(put("outputs", []), put("content_hash", content_hash(wanted))))) == wanted


# --------------------------------------------------------------------------------------------------------- operators


def test_unknown_operator_is_refused_with_what_is_known() -> None:
    data = dumps(graph(node(OwnOperator()), inputs=[("v0", None)], outputs=["v1"]))
    message = refusal(data)
    assert "at $.payload.nodes[0].operator.type: expected one of TensorOperator, AddOperator" in message
    assert "got 'OwnOperator'; pass its class in operators, if you trust it" in message


def test_route_name_that_a_class_does_not_make_is_refused() -> None:
    class Fixed(TensorOperator):
        route_name = "fixed"

        def __init__(self) -> None:
            super().__init__()

    data = dumps(graph(node(Fixed()), inputs=[("v0", None)], outputs=["v1"]))
    message = refusal(edited(data, put("nodes", 0, "operator", "route_name", "other")), operators=[Fixed])
    assert "at $.payload.nodes[0].operator.route_name: expected one for which Fixed makes an operator" in message


def test_own_class_with_a_name_of_the_package_is_a_type_error() -> None:
    own = type("MulOperator", (TensorOperator,), {"route_name": "mul"})
    with pytest.raises(TypeError, match="operators holds a class of the package's name 'MulOperator'; rename it"):
        loads(DATA, operators=[own])


@pytest.mark.parametrize("operators", [None, [3], [AddOperator()], 5])
def test_operators_that_are_no_classes_are_a_type_error(operators: Any) -> None:
    with pytest.raises(TypeError, match="operators must"):
        loads(DATA, operators=operators)


def test_rule_of_an_own_operator_that_raises_is_told_with_the_node() -> None:
    class Broken(TensorOperator):
        route_name = "broken"

        def operand_count(self, op_params: Any) -> int:
            return int(op_params["count"])

    data = dumps(graph(node(Broken(), count=1), inputs=[("v0", None)], outputs=["v1"]))
    message = refusal(edited(data, put("nodes", 0, "op_params", {})), operators=[Broken])
    assert (
        "at $.payload.nodes[0]: expected a node that its operator's rules can judge, got KeyError: 'count'" in message
    )


# -------------------------------------------------------------------------------------------------------- the program


@pytest.mark.parametrize(
    ("edit", "path", "message"),
    [
        (drop("metadata"), ".metadata", "expected a value, got none"),
        (put("metadata", []), ".metadata", "expected an object, got an array of 0"),
        (drop("metadata", "seed_contract"), ".metadata.seed_contract", "expected a value, got none"),
        (put("metadata", "seed_contract", 1), ".metadata.seed_contract", "expected a string, got 1"),
        (put("metadata", "wrt_signature", "v0"), ".metadata.wrt_signature", "expected an array, got 'v0'"),
        (put("metadata", "wrt_signature", 0, 1), ".metadata.wrt_signature[0]", "expected a string, got 1"),
        (put("gradients", []), ".gradients", "expected an object, got an array of 0"),
        (put("gradients", "v0", 1), ".gradients.v0", "expected a string, got 1"),
        (put("gradients", "a b", None), ".gradients['a b']", "expected a string, got None"),
        (put("output_gradients", 0, 1), ".output_gradients[0]", "expected a string, got 1"),
        (put("output_gradients", 0, "gone"), ".output_gradients[0]", "None or a gradient in gradients, got 'gone'"),
        (put("value_typespecs", None), ".value_typespecs", "expected an object, got None"),
        (put("value_typespecs", "v0", 1), ".value_typespecs.v0", "a typespec, which is an object or null, got 1"),
        (drop("value_typespecs", "seed"), ".nodes[0].input_value_ids[0]", "got 'seed'"),
        (put("nodes", 2, "input_value_ids", 0, "gone"), ".nodes[2].input_value_ids[0]", "got 'gone'"),
        (put("nodes", 1, "node_id", "dn0"), ".nodes[1].node_id", "an id that nothing else has"),
        (put("value_typespecs", "d0", {"dtype": "f64", "shape": []}), ".nodes[", "rules accept"),
    ],
)
def test_field_of_a_program_is_refused(edit: Edit, path: str, message: str) -> None:
    got = refusal(edited(PROGRAM, edit))
    assert f"at $.payload{path}" in got
    assert message in got


# ------------------------------------------------------------------------------------------------------ bad arguments


@pytest.mark.parametrize("data", [None, 5, bytearray(DATA), ["x"]])
def test_data_of_another_type_is_a_type_error(data: Any) -> None:
    with pytest.raises(TypeError, match="data must be bytes or a str"):
        loads(data)


@pytest.mark.parametrize("max_bytes", [-1, None, "1", 1.5, True])
def test_bad_limit_is_a_value_error(max_bytes: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes must be a non-negative int"):
        loads(DATA, max_bytes=max_bytes)


def test_data_over_the_limit_is_refused_before_it_is_read() -> None:
    assert f"expected at most 4 bytes, got {len(DATA)}; raise max_bytes" in refusal(DATA, max_bytes=4)
    assert loads(DATA, max_bytes=len(DATA)) == GRAPH
