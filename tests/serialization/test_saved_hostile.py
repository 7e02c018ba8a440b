"""Files that mean harm or met some: nothing but the right refusal or an equal artifact, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents import document_of, outcome, rehashed, spelled
from steps import HANDLERS, several
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.serialization import dumps, loads, loads_training_step
from tinychain.autodiff.serialization.values import decode_value
from tinychain.autodiff.training import Momentum

STEP = several(optimizer=Momentum())
SAVED = {
    "graph": dumps(STEP.source_forward_graph),
    "program": dumps(STEP.source_derivative_program),
    "step": dumps(STEP),
}
ARTIFACTS = {"graph": STEP.source_forward_graph, "program": STEP.source_derivative_program, "step": STEP}


READERS: dict[str, Callable[[bytes], Any]] = {
    "graph": loads,
    "program": loads,
    "step": partial(loads_training_step, handlers=HANDLERS),
}


# ------------------------------------------------------------------------------------------------------------ damage


@given(st.data())
def test_damaged_bytes_give_an_equal_artifact_or_a_refusal(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(SAVED)))
    damaged = bytearray(SAVED[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(damaged)))
        length = data.draw(st.sampled_from([0, 1, 1, 2, 20]))
        damaged[start : start + length] = data.draw(st.binary(max_size=3) | st.sampled_from([b"{", b"]", b'"', b"0"]))
    loaded, error = outcome(READERS[kind], bytes(damaged))
    if error is None:
        assert loaded == ARTIFACTS[kind]
    else:
        assert error.category == "invalid_artifact_file"
        assert error.message.startswith("data: at $")
        assert ": expected " in error.message


def _leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *[leaf for key, child in children for leaf in _leaves(child, (*way, key))]]


WAYS = {kind: _leaves(document_of(data)["payload"])[1:] for kind, data in SAVED.items()}

_PLANTED: list[Any] = [None, True, 0, -1, 1.5, 10**30, "", "v0", "d1", "gone", "\ufffd", [], ["v0"], {}, {"v0": "v0"}]
_PLANTED += [{"$tuple": []}, {"$float": "7ff8000000000000"}, [[]], [None], {"dtype": "f32", "shape": ["N"]}]


@given(st.data())
def test_planted_value_with_the_right_hash_is_refused_or_a_valid_artifact(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(SAVED)))
    document = document_of(SAVED[kind])
    place = document["payload"]
    *keys, last = data.draw(st.sampled_from(WAYS[kind]))
    for key in keys:
        place = place[key]
    place[last] = data.draw(st.sampled_from(_PLANTED))
    loaded, error = outcome(READERS[kind], rehashed(document))
    if error is None:
        data_again = dumps(loaded)
        assert dumps(READERS[kind](data_again)) == data_again
    else:
        assert error.category == "invalid_artifact_file"


# ------------------------------------------------------------------------------------------------------------- memory

#: What the docs promise: no more than this many bytes for a byte of the file, and a constant.
MULTIPLE = 80
CONSTANT = 1 << 18

_N = 12_000
_HOSTILE = {
    "empty lists": "[" + "[]," * _N + "0]",
    "small ints": "[" + "0," * _N + "0]",
    "large ints": "[" + "12345," * _N + "0]",
    "floats": "[" + "1.5," * _N + "0]",
    "strings": "[" + '"ab",' * _N + "0]",
    "wide strings": "[" + '"\u0100",' * _N + "0]",
    "lists in lists": "[" + "[[]]," * _N + "0]",
    "objects in lists": "[" + "[{}]," * _N + "0]",
    "objects in objects": "[" + '{"":{}},' * _N + "0]",
    "many keys": "{" + ",".join(f'"{i:x}":0' for i in range(_N)) + "}",
    "tuples": "[" + '{"$tuple":[]},' * _N + "0]",
    "escaped keys": "[" + '{"$$":[]},' * _N + "0]",
    "bits of floats": "[" + '{"$float":"7ff0000000000000"},' * _N + "0]",
    "escaped characters": '["' + "\ufffdd800" * _N + '"]',
    "a wide character": '["\U0001f600",' + "[{}]," * _N + "0]",
}
_REFUSED = {
    "one key many times": "{" + '"":0,' * _N + '"":0}',
    "one key twice, many times": "[" + '{"":0,"":0},' * _N + "0]",
    "no numbers": "[" + "NaN," * _N + "0]",
    "infinite numbers": "[" + "1e999," * _N + "0]",
    "a long int": "1" * _N,
    "many long ints": "[" + ("1" * 700 + ",") * 500 + "0]",
    "deep lists": "[" * _N + "]" * _N,
    "lists without an end": "[" * _N,
    "objects without an end": '{"":' * _N,
    "a string without an end": '"' + "a" * _N,
}
_EMPTY = TensorGraph([], [("v0", None)], ["v0"])


def peak_multiple(data: bytes) -> float:
    """The most memory that reading took beyond the constant, by bytes of the data; the data are read or refused."""
    tracemalloc.start()
    _, error = outcome(loads, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error is None or error.category == "invalid_artifact_file"
    return (peak - CONSTANT) / len(data)


@pytest.mark.parametrize("body", _HOSTILE.values(), ids=_HOSTILE)
def test_memory_is_bounded_where_the_payload_is_hostile(body: str) -> None:
    document = {**document_of(dumps(_EMPTY)), "payload": document_of(body.encode())}
    assert peak_multiple(rehashed(document)) < MULTIPLE
    text = spelled({**document, "payload": 0}).decode().replace('"payload":0', f'"payload":{body}')
    assert peak_multiple(text.encode()) < MULTIPLE


@pytest.mark.parametrize("body", _HOSTILE.values(), ids=_HOSTILE)
def test_memory_is_bounded_where_the_params_of_a_valid_graph_are_hostile(body: str) -> None:
    node = TensorNodeRecord(
        node_id="n0",
        output_value_id="v0",
        operator=TensorOperator("own"),
        op_params={"a": decode_value(document_of(body.encode()))},
        input_value_ids=[],
    )
    graph = TensorGraph([node], [], ["v0"])
    data = dumps(graph)
    assert loads(data) == graph
    assert peak_multiple(data) < MULTIPLE


@pytest.mark.parametrize("body", _REFUSED.values(), ids=_REFUSED)
def test_memory_is_bounded_where_the_json_is_not_strict(body: str) -> None:
    for data in (body, dumps(_EMPTY).decode().replace('"nodes":[]', f'"nodes":{body}')):
        assert peak_multiple(data.encode()) < MULTIPLE


def test_memory_is_bounded_for_an_ordinary_graph() -> None:
    for data in (SAVED["graph"], SAVED["program"]):
        assert peak_multiple(data) < MULTIPLE


# ------------------------------------------------------------------------------------------------------ other processes

_SCRIPT = """
import hashlib, sys
sys.path[:0] = {path!r}
from serialization.test_saved_hostile import SAVED
print({{kind: hashlib.sha256(data).hexdigest() for kind, data in SAVED.items()}})
"""


def test_bytes_are_the_same_in_every_process_and_hash_seed() -> None:
    script = _SCRIPT.format(path=[entry for entry in sys.path if entry])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "271828")
    }
    assert len(outputs) == 1
    assert "graph" in outputs.pop()


def test_nothing_is_imported_by_the_names_in_a_file() -> None:
    document = document_of(SAVED["graph"])
    document["payload"]["nodes"][0]["operator"] = {"type": "antigravity.Operator", "route_name": "os.system"}
    with pytest.raises(AutodiffError, match="pass its class in operators, if you trust it"):
        loads(rehashed(document))
    assert "antigravity" not in sys.modules
