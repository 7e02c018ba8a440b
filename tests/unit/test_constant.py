"""A constant whose numbers are written out: reading it, and every stage that carries it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from running import compiled
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import ConstantDescriptor, ConstantOperator, FillOperator, constant_descriptor
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.inspection import summarize
from tinychain.autodiff.lowering import OperationContext
from tinychain.autodiff.operators import MatmulOperator
from tinychain.autodiff.serialization import load, save
from tinychain.autodiff.text import format_text, parse_text
from tinychain.autodiff.tracing import captured_operator_types

VALUES = [1.0, -0.5, 0.0, 3, 1e30, 0.1]
GOOD = {"values": VALUES, "dtype": "f32", "shape": [2, 3]}
SPEC = {"dtype": "f32", "shape": [2, 3]}


def node(op_params: Mapping[str, Any] = GOOD, *, operator: Any = None, operands: Any = (), spec: Any = None) -> Any:
    return TensorNodeRecord(
        node_id="n7",
        output_value_id="v7",
        operator=operator or ConstantOperator(),
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=spec,
    )


def params(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}


# ------------------------------------------------------------------------------------------------------------- reading


def test_reads_a_node() -> None:
    descriptor = constant_descriptor(node(spec=SPEC))
    assert descriptor == ConstantDescriptor((1.0, -0.5, 0.0, 3.0, 1e30, 0.1), "f32", (2, 3))
    assert {type(value) for value in descriptor.values} == {float}


def test_reads_the_context_of_a_handler() -> None:
    context = OperationContext(
        node_id="n7",
        operator=ConstantOperator(),
        op_params=MappingProxyType(GOOD),
        input_value_ids=(),
        inputs=(),
        input_provenance=(),
        output_value_id="v7",
        output_typespec=MappingProxyType(SPEC),
    )
    assert constant_descriptor(context) == constant_descriptor(node())


@pytest.mark.parametrize(
    ("changes", "values", "shape"),
    [
        ({"values": (1.0, 2.0), "shape": (2,)}, (1.0, 2.0), (2,)),
        ({"values": [np.float64(0.1)], "shape": []}, (0.1,), ()),
        ({"values": [float("inf")], "shape": [1, 1]}, (float("inf"),), (1, 1)),
        ({"values": [], "shape": [0, 2**70]}, (), (0, 2**70)),
    ],
)
def test_reads_what_is_allowed(changes: dict[str, Any], values: tuple[float, ...], shape: tuple[int, ...]) -> None:
    assert constant_descriptor(node(params(**changes))) == ConstantDescriptor(values, "f32", shape)


def test_a_descriptor_is_plain_data() -> None:
    assert constant_descriptor(node(params(values=[1, 2], shape=[2]))).to_dict() == {
        "values": [1.0, 2.0],
        "dtype": "f32",
        "shape": [2],
    }


@pytest.mark.parametrize(
    ("bad", "category", "part"),
    [
        (node(operator=FillOperator()), "malformed_derivative_ir", "is a FillOperator; expected a ConstantOperator"),
        (node(operands=["v0"]), "malformed_derivative_ir", "has 1 operands; a constant has none"),
        (
            node({**GOOD, "fill": 1.0}),
            "malformed_derivative_ir",
            "the op_params key 'fill'; a constant has only values",
        ),
        (node(params(values=...)), "malformed_derivative_ir", "has the values None; expected a list"),
        (node(params(values="123456")), "malformed_derivative_ir", "has the values '123456'"),
        (
            node(params(values=[[1.0, 2.0]])),
            "malformed_derivative_ir",
            "has a bad value at 0: the literal is [1.0, 2.0]",
        ),
        (node(params(values=[1.0, True])), "malformed_derivative_ir", "has a bad value at 1: the literal is True"),
        (node(params(values=[1.0, None])), "malformed_derivative_ir", "has a bad value at 1: the literal is None"),
        (node(params(values=[10**400])), "malformed_derivative_ir", "within a float's range"),
        (node(params(dtype=32)), "missing_dtype_metadata", "has the dtype 32"),
        (node(params(shape=["N", 3])), "missing_shape_metadata", "has the shape ['N', 3]"),
        (node(params(shape=[2, -3])), "missing_shape_metadata", "[2, -3]"),
        (node(params(shape=[2, 2])), "shape_mismatch", "has 6 values; the shape [2, 2] takes 4"),
        (node(params(values=[])), "shape_mismatch", "has 0 values; the shape [2, 3] takes 6"),
        (node(spec={"dtype": "f32", "shape": [3, 2]}), "malformed_derivative_ir", "and shape [2, 3]"),
    ],
)
def test_refuses(bad: TensorNodeRecord, category: str, part: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        constant_descriptor(bad)
    assert caught.value.category == category
    assert "node 'n7'" in caught.value.message
    assert part in caught.value.message


def test_refuses_another_argument() -> None:
    with pytest.raises(AutodiffError, match="expected a TensorNodeRecord or an OperationContext, got"):
        constant_descriptor(GOOD)  # type: ignore[arg-type]


def test_a_constant_is_not_traced() -> None:
    assert ConstantOperator not in captured_operator_types()


# -------------------------------------------------------------------------------------------------------- every stage


@pytest.fixture
def graph() -> TensorGraph:
    """x: [4, 2] times a constant [2, 3]."""
    product = TensorNodeRecord(
        node_id="n8",
        output_value_id="v8",
        operator=MatmulOperator(),
        op_params={},
        input_value_ids=["x", "v7"],
        output_typespec={"dtype": "f32", "shape": [4, 3]},
    )
    return TensorGraph([node(spec=SPEC), product], [("x", {"dtype": "f32", "shape": [4, 2]})], ["v8"])


def test_the_reference_backend_has_it(graph: TensorGraph) -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    got = compiled(graph)({"x": x})["v8"]
    np.testing.assert_array_equal(got, x @ np.array(VALUES, np.float32).reshape(2, 3))


def test_its_text_is_read_back(graph: TensorGraph) -> None:
    text = format_text(graph)
    assert 'v7 = constant() {values: [1.0, -0.5, 0.0, 3, 1e+30, 0.1], dtype: "f32", shape: [2, 3]}' in text
    assert parse_text(text) == graph


def test_its_numbers_are_part_of_the_content_hash(graph: TensorGraph) -> None:
    other = TensorGraph([node(params(values=[*VALUES[:-1], 0.2]), spec=SPEC), graph.nodes[1]], graph.inputs, ["v8"])
    assert content_hash(other) != content_hash(graph)


def test_it_is_saved_and_loaded(graph: TensorGraph, tmp_path: Any) -> None:
    save(graph, tmp_path / "graph.json")
    assert load(tmp_path / "graph.json") == graph


def test_a_summary_counts_its_bytes(graph: TensorGraph) -> None:
    figures = summarize(graph).total.source
    assert (figures.constants.count, figures.constants.bytes) == (1, 24)
    assert figures.flops == 2 * 4 * 2 * 3
