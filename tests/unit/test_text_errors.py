"""Some artifacts have no text and most texts are no artifact: each is refused with its place and what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from by_hand import F32, METADATA, OBJECT, graph, node, program
from strategies import OWN_OPERATORS, graphs, programs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import AddOperator, MulOperator
from tinychain.autodiff.text import format_text, parse_text

# ----------------------------------------------------------------------------------------- what has no text form


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: node(key={"a": [0, object()]}), ["node 'n0'", "op_params['key']['a'][1]", "<object"]),
        (lambda: node(key={1: 2}), ["node 'n0'", "op_params['key'][1]", "a key must be a str"]),
        (lambda: node(key=b"raw"), ["node 'n0'", "op_params['key']", "b'raw'", "expected numbers"]),
        (lambda: node(key=_circular()), ["node 'n0'", "op_params['key']", "nest deeper than 100"]),
        (lambda: node(key=_nested(100_000)), ["node 'n0'", "op_params['key']", "nest deeper than 100"]),
        (lambda: node(typespec={"dtype": object()}), ["value 'v1'", "typespec['dtype']", "<object"]),
        (lambda: node(node_id=7), ["a node id must be a str", "7"]),
        (lambda: replace(node(), output_value_id=None), ["a node's output must be a str", "None"]),
        (lambda: replace(node(), input_value_ids=[b"v0"]), ["an operand must be a str", "b'v0'"]),
        (lambda: "no node", ["must be a TensorNodeRecord", "'no node'"]),
    ],
)
def test_node_without_text_form_is_named(build: Callable[[], Any], parts: list[str]) -> None:
    for artifact in (graph(build()), program(nodes=[build()])):
        with pytest.raises(AutodiffError) as caught:
            format_text(artifact)
        assert caught.value.category == "malformed_derivative_ir"
        for part in parts:
            assert part in caught.value.message


@pytest.mark.parametrize(
    ("artifact", "part"),
    [
        (graph(inputs=["v0"]), "pair, got 'v0'"),
        (graph(inputs=[(0, None)]), "a graph input must be a str, got 0"),
        (graph(outputs=[None]), "a graph output must be a str, got None"),
        (program(nodes=None), "nodes of the program must be a list, got None"),
        (program(gradients=["d0"]), "gradients of the program must be a dict"),
        (program(gradients={"w": None}), "an entry of gradients must be a str"),
        (program(gradients={0: "d0"}), "a key of gradients must be a str"),
        (program(output_gradients="d0"), "output_gradients of the program must be a list"),
        (program(output_gradients=[0]), "an output gradient must be a str"),
        (program(value_typespecs=[]), "value_typespecs of the program must be a dict"),
        (program(value_typespecs={0: F32}), "a key of value_typespecs must be a str"),
        (program(value_typespecs={"w": {0: 1}}), "value 'w': typespec[0] has no text form: a key must be a str"),
        (program(metadata=None), "metadata of the program must be a DerivativeMetadata"),
        (program(metadata=replace(METADATA, seed_contract=OBJECT)), "metadata seed_contract has no text form"),
    ],
)
def test_container_of_the_wrong_kind_is_named(artifact: Any, part: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        format_text(artifact)
    assert caught.value.category == "malformed_derivative_ir"
    assert part in caught.value.message


@pytest.mark.parametrize(
    ("call", "arguments", "part"),
    [
        (format_text, {"artifact": None}, "artifact must be a TensorGraph or a DerivativeProgram, got None"),
        (parse_text, {"text": b"graph {\n}"}, "text must be a str"),
        (parse_text, {"text": "", "operators": ["mul"]}, "operators must hold TensorOperator subclasses, got 'mul'"),
        (parse_text, {"text": "", "operators": [MulOperator()]}, "operators must hold TensorOperator subclasses"),
        (parse_text, {"text": "", "operators": None}, "operators must be an iterable"),
    ],
)
def test_bad_argument_is_named(call: Callable[..., Any], arguments: dict[str, Any], part: str) -> None:
    with pytest.raises(TypeError, match=part):
        call(**arguments)


# ---------------------------------------------------------------------------------------------------------- bad text

WHOLE = format_text(
    program(
        nodes=[node(typespec=F32, right_literal=-0.5, axes=[0, 1], name='a "b"'), node(AddOperator())],
        gradients={"w": "v1"},
        output_gradients=["v1", None],
        value_typespecs={"seed": {"dtype": "f32", "shape": ["N"], "x": {}}, "v1": F32},
    )
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["line 1", 'expected "graph {" or "program {"', "the end of the line"]),
        ("module {\n}", ["line 1", 'expected "graph {" or "program {"', "found 'module'"]),
        ("graph\n}", ["line 1", 'expected "{"', "the end of the line"]),
        ("graph {\n  output v0", ["line 2", 'the closing "}"']),
        ("graph {\n}\n}", ["line 3", "expected the end of the text", "found '}'"]),
        ("graph {\n  input input\n}", ["line 2", "expected a value id", "found 'input'"]),
        ("graph {\n  output null\n}", ["line 2", "expected a value id", "found 'null'"]),
        ("graph {\n  gradient w = v1\n}", ["line 2", "expected a statement", "found 'gradient'"]),
        ("graph {\n  v1 = add(v0 v0) @n0\n}", ["line 2", 'expected "," or ")"', "found 'v0'", "v1 = add(v0 v0) @n0"]),
        ("graph {\n  v1 = add(v0, ) @n0\n}", ["line 2", "expected an operand", "found ')'"]),
        ("graph {\n  v1 = add(v0)\n}", ["line 2", 'expected "@"', "the end of the line"]),
        ("graph {\n  v1 = add(v0) @n0 @n1\n}", ["line 2", "expected the end of the line", "found '@'"]),
        ("graph {\n  v1 = add(v0) : f32[2 @n0\n}", ["line 2", 'expected "," or "]"', "found '@'"]),
        ("graph {\n  v1 = add(v0) : f32[2] f32[2] @n0\n}", ["line 2", 'expected "@"', "found 'f32'"]),
        ("graph {\n  input v0 : f32[0.5]\n}", ["line 2", "expected an int or a symbol", "found '0.5'"]),
        ("graph {\n  input v0 : f32\n}", ["line 2", "expected a number, quoted string", "found 'f32'"]),
        ("graph {\n  v1 = add(v0) {a: 1, a: 2} @n0\n}", ["line 2", "a key that was not there yet", "found 'a'"]),
        ("graph {\n  v1 = add(v0) {a: word} @n0\n}", ["line 2", "expected a number, quoted string", "found 'word'"]),
        ("graph {\n  v1 = add(v0) {a: 1e999} @n0\n}", ["line 2", "a number that a float can hold", "'1e999'"]),
        ("graph {\n  v1 = add(v0) {a: 0xfg} @n0\n}", ["line 2", 'expected "," or "}"', "found 'g'"]),
        ('graph {\n  input "v0\n}', ["line 2", "expected a value id", "found '\"v0'"]),
        ('graph {\n  input "\\x"\n}', ["line 2", "no escapes but", "found"]),
        ('graph {\n  input "\\u{110000}"\n}', ["line 2", "no escapes but", "110000"]),
        ("program {\n}", ["line 2", "has no line 'metadata source_graph_id = ...'"]),
        (WHOLE.replace("transform_version", "seed_contract"), ["expected each of", "once, found 'seed_contract'"]),
        (WHOLE.replace("transform_version", "other"), ["expected each of", "once, found 'other'"]),
        (WHOLE.replace("value *", "value seed"), ["value 'seed' is listed a second time"]),
        (WHOLE.replace("value *", "value *\n  value v1"), ["value 'v1' has a value line beside"]),
        (WHOLE.replace("value *", "value * except seed"), ["value 'seed' is excepted though no node states"]),
        (WHOLE.replace("output null", "gradient w = v0"), ["the gradient of 'w' is stated a second time"]),
    ],
)
def test_bad_text_is_located(text: str, parts: list[str]) -> None:
    with pytest.raises(AutodiffError) as caught:
        parse_text(text)
    assert caught.value.category == "malformed_derivative_ir"
    for part in parts:
        assert part in caught.value.message


@pytest.mark.parametrize(
    "row",
    [
        "v1 = add(v0) {a: " + "[" * 1_000_000,
        "v1 = add(v0) " + "{a: " * 300_000,
        "v1 = add(v0) : " + "[" * 101 + "]" * 101 + " @n0",
        'input "' + '\\"' * 1_000_000,
        "input " + '"' * 1_000_001,
        "v1 = add(v0) {a: " + "9" * 1_000_000 + "} @n0",
        "v1 = add(v0) {a: " + "-" * 1_000_000 + "1} @n0",
    ],
    ids=["lists", "mappings", "typespec", "unclosed", "quotes", "digits", "signs"],
)
def test_bomb_is_refused_with_a_short_message(row: str) -> None:
    with pytest.raises(AutodiffError, match="line 2: expected") as caught:
        parse_text(f"graph {{\n{row}\n}}")
    assert caught.value.category == "malformed_derivative_ir"
    assert len(caught.value.message) < 500


def test_every_truncation_is_refused() -> None:
    for length in range(len(WHOLE.rstrip())):
        with pytest.raises(AutodiffError):
            parse_text(WHOLE[:length])


_EDITS = st.sampled_from(
    ['"', "\\", "[", "]", "{", "}", "(", ")", ",", ":", "@", "<", ">", "*", "\n", " ", "0", "-", "e", "x"]
)
_EDITS |= st.sampled_from(["null", "value", "output", "except", "nan", "\x00", "\ud800"]) | st.text(max_size=3)


@given(artifact=graphs | programs(), data=st.data())
def test_edited_text_parses_or_is_refused(artifact: TensorGraph | DerivativeProgram, data: st.DataObject) -> None:
    text = format_text(artifact)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(start + 4, len(text))))
        text = text[:start] + data.draw(_EDITS) + text[stop:]
    try:
        parsed = parse_text(text, operators=OWN_OPERATORS)
    except AutodiffError as error:
        refusal = error
    else:
        assert repr(parse_text(format_text(parsed), operators=OWN_OPERATORS)) == repr(parsed)
        return
    assert refusal.category in ("malformed_derivative_ir", "unsupported_operator")
    assert refusal.message.startswith("line ")


@given(st.text(max_size=40))
def test_any_text_at_all_parses_or_is_refused(text: str) -> None:
    with pytest.raises(AutodiffError):
        parse_text(text)
