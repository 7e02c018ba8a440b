"""What cannot be kept exactly, or could not be loaded, is not saved either."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from by_hand import F32, OBJECT, graph, node, producing, program
from strategies import OwnOperator, TwinOfMulOperator
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorOperator
from tinychain.autodiff.operators import AddOperator, MulOperator
from tinychain.autodiff.serialization import dumps


def refusal(artifact: Any) -> str:
    with pytest.raises(AutodiffError) as caught:
        dumps(artifact)
    assert caught.value.category == "malformed_derivative_ir"
    return caught.value.message


def of(*nodes: Any, **fields: Any) -> TensorGraph:
    return graph(*nodes, **{"inputs": [("v0", F32)], "outputs": ["v1"], **fields})


class Axis(IntEnum):
    ROW = 0


class Pair(NamedTuple):
    x: int


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [Axis.ROW, np.float64(1.0), np.int64(1), Text("a"), Pair(1), OrderedDict(), MappingProxyType({}), {1}, OBJECT, b""],
    ids=lambda value: type(value).__name__,
)
def test_value_that_would_come_back_as_another_type_is_refused(value: Any) -> None:
    message = refusal(of(node(OwnOperator(), a=[0, {"b": value}])))
    assert message.startswith("$.payload.nodes[0].op_params.a[1].b cannot be saved: expected an int, float, bool, str,")
    assert message.endswith("; convert it first")


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({1: 2}, ".a", "a key that is a str, got 1"),
        ({"a": [10**640]}, ".a.a[0]", "an int of at most 640 digits"),
        ((1, (-(10**640),)), ".a[1][0]", "an int of at most 640 digits"),
    ],
)
def test_key_or_int_that_json_cannot_hold_is_refused(value: Any, path: str, expected: str) -> None:
    message = refusal(of(node(OwnOperator(), a=value)))
    assert message.startswith(f"$.payload.nodes[0].op_params{path} cannot be saved: expected {expected}")


def test_data_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "expected lists and mappings that nest no deeper than 100" in refusal(of(node(OwnOperator(), a=loop)))


@pytest.mark.parametrize(
    ("artifact", "path"),
    [
        (of(node(node_id=3)), ".nodes[0].node_id"),
        (of(producing("v1", OwnOperator(), "v0", 4)), ".nodes[0].input_value_ids[1]"),
        (of(node(), OBJECT), ".nodes["),
        (of(node(OwnOperator()), inputs=[("v0", F32), ("x",)]), ".inputs[1]"),
        (of(node(OwnOperator()), inputs=[("v0", F32), (1, None)]), ".inputs[1][0]"),
        (of(node(OwnOperator()), inputs=[("v0", 7)]), ".inputs[0][1]"),
        (of(node(OwnOperator(), typespec={"dtype": OBJECT})), ".nodes[0].output_typespec.dtype"),
        (of(node(OwnOperator()), outputs=[None]), ".outputs[0]"),
        (program(nodes=5), ".nodes"),
        (program(gradients=[]), ".gradients"),
        (program(gradients={"w": 1}), ".gradients.w"),
        (program(gradients={1: "w"}), ".gradients[1]"),
        (program(output_gradients=3), ".output_gradients"),
        (program(output_gradients=[3]), ".output_gradients[0]"),
        (program(value_typespecs={"w": []}), ".value_typespecs.w"),
        (program(value_typespecs=3), ".value_typespecs"),
        (program(metadata=OBJECT), ".metadata"),
    ],
)
def test_record_with_a_field_of_another_type_is_refused(artifact: Any, path: str) -> None:
    assert refusal(artifact).startswith(f"$.payload{path}")


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        (
            of(node(OwnOperator()), outputs=["gone"]),
            ".outputs[0] cannot be saved: expected a value that a node produces",
        ),
        (of(node(OwnOperator()), inputs=[]), ".nodes[0].input_value_ids[0] cannot be saved"),
        (of(node(OwnOperator()), node(OwnOperator())), ".nodes[1].node_id cannot be saved"),
        (of(node(MulOperator())), "got malformed_derivative_ir: mul VJP requires exactly two inputs"),
        (of(producing("v1", AddOperator(), "v0", "v0", typespec={"dtype": "f32", "shape": [3]})), "give f32[2]"),
    ],
)
def test_graph_that_could_not_be_loaded_is_refused(artifact: Any, message: str) -> None:
    got = refusal(artifact)
    assert message in got
    assert got.endswith("; mend what built the artifact")


# --------------------------------------------------------------------------------------------------------- operators


def test_two_classes_of_one_name_are_refused() -> None:
    def own(route: str) -> TensorOperator:
        return type("Twin", (TensorOperator,), {"route_name": route})()  # type: ignore[no-any-return]

    artifact = of(producing("a", own("a"), "v0"), producing("v1", own("b"), "a"))
    assert ".nodes[1].operator.type cannot be saved: expected one operator class of each name" in refusal(artifact)


def test_own_class_with_a_name_of_the_package_is_refused() -> None:
    own = type("MulOperator", (TensorOperator,), {"route_name": "mul"})
    assert refusal(of(node(own()))).endswith("; rename one")
    assert b"TwinOfMulOperator" in dumps(of(node(TwinOfMulOperator())))


def test_operator_that_its_class_does_not_make_again_is_refused() -> None:
    class Parametric(TensorOperator):
        route_name = "parametric"

        def __init__(self, power: int = 2) -> None:
            super().__init__()
            object.__setattr__(self, "power", power)

    assert dumps(of(node(Parametric())))
    message = refusal(of(node(Parametric(3))))
    assert ".nodes[0].operator cannot be saved: expected what 'Parametric' makes" in message
    assert message.endswith("with attributes of its own; put them into op_params")


@pytest.mark.parametrize("artifact", [None, 3, "graph {\n}", {"nodes": []}])
def test_what_is_no_artifact_is_a_type_error(artifact: Any) -> None:
    with pytest.raises(
        TypeError, match="artifact must be a TensorGraph, a DerivativeProgram or a CompiledTrainingStep"
    ):
        dumps(artifact)
