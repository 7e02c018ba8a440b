"""Targets as TOML: what is read, and that anything else is refused with its place."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arch.source import ROOT
from running import trace
from targeting import form, outcome, raised_by
from tinychain.autodiff.expansion.legalize import legalize
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.expansion.target_file import MAX_LENGTH, load_target, parse_target
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    BroadcastReduceOperator,
    FillOperator,
    MatmulOperator,
    MeanOperator,
    MulOperator,
    SumOperator,
)
from tinychain.autodiff.verify import verify_equivalent

TEXT = """
name = "chip"  # a comment

[operators.matmul]
min_rank = 2
max_rank = 2
broadcasts = false

[operators.MulOperator]
dtypes = ["f32"]
right = "constant"
literals = false

[operators]
fill = { fills = [1, 0.0], max_dim = 64, max_elements = 4096, symbols = false }
add = {}
"""

CHIP = Target(
    "chip",
    {
        MatmulOperator: Limits(min_rank=2, max_rank=2, broadcasts=False),
        MulOperator: Limits(dtypes=("f32",), right="constant", literals=False),
        FillOperator: Limits(fills=(1, 0.0), max_dim=64, max_elements=4096, symbols=False),
        AddOperator: Limits(),
    },
)


class Relu(TensorOperator):
    """An operator of a user's own."""

    route_name = "relu"


class FastAdd(TensorOperator):
    """One that takes the route name of one of the package."""

    route_name = "add"


def test_a_text_is_the_target_that_it_describes() -> None:
    assert parse_target(TEXT) == CHIP


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_is_read_as_its_text(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "chip.toml"
    path.write_text(TEXT, encoding="utf-8", newline=newline)
    assert load_target(path) == load_target(str(path)) == CHIP


def test_operators_of_your_own_are_known_by_class_and_route() -> None:
    target = Target("chip", {Relu: Limits()})
    for name in ("relu", "Relu"):
        assert parse_target(f'name = "chip"\noperators.{name} = {{}}', operators=[Relu]) == target


def test_operators_of_your_own_hide_those_of_the_package() -> None:
    text = 'name = "chip"\n[operators]\nadd = {}\nAddOperator = {}'
    assert list(parse_target(text, operators=[FastAdd]).operators) == [FastAdd, AddOperator]


def test_the_example_lacks_reductions() -> None:
    npu = load_target(ROOT / "examples/npu.toml")
    mean = form(MeanOperator, "f32 4 3", axes=[0, 1], keepdims=False)
    assert npu.refusal(mean) == "npu has no MeanOperator"
    assert not {SumOperator, BroadcastReduceOperator} & npu.operators.keys()
    assert npu.refusal(form(MatmulOperator, "f32 8 4 3", "f32 8 3 2")) is None


def test_a_loss_with_reductions_fits_the_example() -> None:
    npu = load_target(ROOT / "examples/npu.toml")
    graph = trace(lambda x, y: (x * y - 0.5).mean(axis=1).sum() / 3.0, [2, 3, 4], [2, 3, 4], dtype="f32")
    legal = legalize(graph, npu)
    assert {type(node.operator) for node in legal.nodes} <= npu.operators.keys()
    verify_equivalent(graph, legal, raise_on_difference=True)


# ------------------------------------------------------------------------------------------------------ round trips

_dims = st.none() | st.integers(1, 2**40)


@st.composite
def _limits(draw: st.DrawFn, operator: type[TensorOperator]) -> Limits:
    least = draw(st.integers(0, 4))
    literals = draw(st.booleans())
    rights = ["any", "constant"]
    if literals and "right_literal" in operator.params:
        rights.append("literal")
    numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False)
    return Limits(
        dtypes=draw(st.sampled_from([("f32",), ("f64",), ("f64", "f32")])),
        min_rank=least,
        max_rank=draw(st.none() | st.integers(max(least, 2), 9)),
        broadcasts=draw(st.booleans()),
        literals=literals,
        right=draw(st.sampled_from(rights)),
        fills=draw(st.none() | st.lists(numbers, min_size=1, max_size=3).map(tuple))
        if operator is FillOperator
        else None,
        symbols=draw(st.booleans()),
        max_dim=draw(_dims),
        max_elements=draw(_dims),
    )


@st.composite
def _targets(draw: st.DrawFn) -> Target:
    classes = draw(st.lists(st.sampled_from(OPERATORS), unique=True, max_size=6))
    return Target(draw(st.text("aé \"'\\\n#", min_size=1)), {cls: draw(_limits(cls)) for cls in classes})


def _toml(value: Any) -> str:
    # JSON's texts, numbers, lists and booleans are TOML's, up to these floats and escapes that are not drawn.
    return json.dumps(value).replace("Infinity", "inf")


def _written(target: Target, *, by_route: bool) -> str:
    lines = [f"name = {_toml(target.name)}", "[operators]"]
    for cls, limits in target.operators.items():
        lines.append(f"[operators.{cls().route_name if by_route else cls.__name__}]")
        values = {field.name: getattr(limits, field.name) for field in fields(limits)}
        lines += [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines)


@given(_targets(), st.booleans())
def test_what_is_written_out_in_full_is_read_back(target: Target, by_route: bool) -> None:
    assert parse_target(_written(target, by_route=by_route)) == target


# ------------------------------------------------------------------------------------------------- texts that are none

HEAD = 'name = "chip"\n'

FAULTS: list[tuple[str, str]] = [
    ("", "name: expected a value, got none"),
    (HEAD, "operators: expected a value, got none"),
    ("[operators]", "name: expected a value, got none"),
    ("name = 3\n[operators]", "name: expected a non-empty str, got 3"),
    ('name = ""\n[operators]', "name: expected a non-empty str, got ''"),
    (HEAD + "operators = []", "operators: expected a table, got []"),
    (HEAD + "version = 1\n[operators]", "version: expected no other keys than name, operators, got it"),
    (HEAD + "[operators.relu]", "operators.relu: expected the name of an operator: add, sub, mul, "),
    (HEAD + "[operators.'a b']", "operators.'a b': expected the name of an operator: "),
    (HEAD + "operators.add = true", "operators.add: expected a table, got True"),
    (HEAD + "[[operators.add]]", "operators.add: expected a table, got [{}]"),
    (
        HEAD + "[operators]\nadd = {}\nAddOperator = {}",
        "operators.AddOperator: expected one table for AddOperator, got a second one",
    ),
    (HEAD + "[operators.matmul]\nrank = 2", "operators.matmul.rank: expected no other keys than dtypes, min_rank, "),
    (HEAD + "[operators.matmul]\nmax_rank = 1", "operators.matmul.max_rank: expected 2 or more for a matmul, got 1"),
    (HEAD + "[operators.matmul]\nmax_rank = '2'", "operators.matmul.max_rank: expected an int of at least 0, got '2'"),
    (HEAD + "[operators.matmul]\nmax_rank = 2.0", "operators.matmul.max_rank: expected an int of at least 0, got 2.0"),
    (HEAD + "[operators.mul]\nmax_dim = 0", "operators.mul.max_dim: expected an int of at least 1, got 0"),
    (HEAD + "[operators.mul]\nmax_elements = 1979-05-27", "operators.mul.max_elements: expected an int of at least 1"),
    (HEAD + "[operators.mul]\nbroadcasts = 0", "operators.mul.broadcasts: expected a bool, got 0"),
    (HEAD + "[operators.mul]\ndtypes = 'f32'", "operators.mul.dtypes: expected one or more of f32, f64, got 'f32'"),
    (HEAD + "[operators.mul]\ndtypes = []", "operators.mul.dtypes: expected one or more of f32, f64, got ()"),
    (HEAD + "[operators.mul]\ndtypes = [['f32']]", "operators.mul.dtypes: expected one or more of f32, f64"),
    (
        HEAD + "[operators.mul]\nright = 'left'",
        "operators.mul.right: expected one of any, constant, literal, got 'left'",
    ),
    (
        HEAD + "[operators.add]\nright = 'literal'",
        "operators.add.right: expected any or constant, as AddOperator has no",
    ),
    (HEAD + "[operators.fill]\nfills = [nan]", "operators.fill.fills: expected one or more numbers"),
    (HEAD + "[operators.fill]\nfills = 1", "operators.fill.fills: expected one or more numbers"),
    (HEAD + "[operators.constant]\nfills = [1]", "operators.constant.fills: expected to be left out"),
    (
        HEAD + "[operators.mul]\nmin_rank = 3\nmax_rank = 2",
        "operators.mul.max_rank: expected an int of at least 3, got 2",
    ),
    (
        HEAD + "[operators.mul]\nright = 'literal'\nliterals = false",
        "operators.mul.right: expected any or constant, as literals is false, got 'literal'",
    ),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[text.removeprefix(HEAD) for text, _ in FAULTS])
def test_a_fault_is_named_by_its_place(text: str, message: str) -> None:
    error = raised_by(parse_target, text)
    assert error.category == "invalid_target"
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("name = ", "of which the parser says 'Invalid value (at end of document)'"),
        ('name = "a"\nname = "b"', "Cannot overwrite a value"),
        ('name = "\x00"', "line 1, column 9"),
        (f"name = {'1' * 9000}", "4300 digits"),
        (f"name = {'[' * 9000}", "a text that nests too deeply"),
        (f"name = {'{a=' * 5000}", "a text that nests too deeply"),
    ],
)
def test_what_is_no_toml_is_refused(text: str, part: str) -> None:
    error = raised_by(parse_target, text)
    assert error.category == "invalid_target"
    assert error.message.startswith("expected TOML, got a text")
    assert part in error.message


def test_a_table_that_nests_deeply_is_refused() -> None:
    error = raised_by(parse_target, HEAD + f"operators.add{'.a' * 1000} = 1")
    assert error.message.startswith("operators.add.a: expected no other keys than")
    assert raised_by(parse_target, f"name{'.a' * 3000} = 1\n[operators]").category == "invalid_target"


def test_a_text_of_the_greatest_length_is_read_and_a_longer_one_is_not() -> None:
    text = HEAD + "[operators]\n#"
    assert parse_target(text.ljust(MAX_LENGTH, "#")) == Target("chip")
    error = raised_by(parse_target, text.ljust(MAX_LENGTH + 1, "#"))
    assert (error.category, error.message) == (
        "invalid_target",
        f"expected a length of at most {MAX_LENGTH}, got a longer one",
    )


@given(st.text(max_size=40) | st.text("name=operatsdd.[]{}'\"\n1", max_size=40).map(HEAD.__add__))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    result = outcome(parse_target, text)
    assert isinstance(result, Target) or result.category == "invalid_target"


# ------------------------------------------------------------------------------------------------- files that are none


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    error = raised_by(load_target, missing)
    assert error.category == "invalid_target"
    assert error.message.startswith(f"{str(missing)!r}: expected a file that can be read, got the error No such file")
    assert "Not a directory" in raised_by(load_target, Path(__file__) / "below").message
    assert "embedded null byte" in raised_by(load_target, "a\0b").message


@pytest.mark.parametrize("kind", ["folder", "fifo", "/dev/zero"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    error = raised_by(load_target, path)
    assert error.category == "invalid_target"
    assert error.message == f"{str(path)!r}: expected a regular file, got a folder or a device"


def test_a_fault_of_a_file_names_the_file_and_the_place(tmp_path: Path) -> None:
    path = tmp_path / "chip.toml"
    path.write_text(HEAD + "[operators.matmul]\nmax_rank = 1")
    message = raised_by(load_target, path).message
    assert message == f"{str(path)!r}: operators.matmul.max_rank: expected 2 or more for a matmul, got 1"


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"#" * (MAX_LENGTH + 1), f"expected a length of at most {MAX_LENGTH}"),
        (b'name = "\xff"', "expected UTF-8, got the byte 0xff at offset 8"),
        (b"\x00", "expected TOML"),
    ],
)
def test_a_file_of_other_bytes_is_refused(tmp_path: Path, data: bytes, part: str) -> None:
    path = tmp_path / "chip.toml"
    path.write_bytes(data)
    error = raised_by(load_target, path)
    assert error.category == "invalid_target"
    assert part in error.message


@pytest.mark.parametrize("path", [None, 3, b"chip.toml", ["chip.toml"]])
def test_another_path_is_a_type_error(path: Any) -> None:
    with pytest.raises(TypeError, match=r"path must be a str or an os\.PathLike"):
        load_target(path)


@pytest.mark.parametrize("text", [None, TEXT.encode(), Path("chip.toml"), {"name": "chip"}])
def test_another_text_is_a_type_error(text: Any) -> None:
    with pytest.raises(TypeError, match="text must be a str"):
        parse_target(text)


@pytest.mark.parametrize("operators", [3, [int], [Relu()]])
def test_other_operators_are_a_type_error(operators: Any) -> None:
    with pytest.raises(TypeError, match="operators must"):
        parse_target(TEXT, operators=operators)
