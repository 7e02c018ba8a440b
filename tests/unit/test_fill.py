"""fill_descriptor: what a fill node says, or the first thing that is wrong with it, by category and node."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import FILL_ROUTE_NAME, FillDescriptor, FillOperator, fill_descriptor
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.lowering import OperationContext
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.tracing import captured_operator_types

GOOD = {"fill": 1.5, "dtype": "f32", "shape": [2, 3]}


def node(op_params: Mapping[str, Any] = GOOD, *, operator: Any = None, operands: Any = (), spec: Any = None) -> Any:
    return TensorNodeRecord(
        node_id="exn7",
        output_value_id="exv7",
        operator=operator or FillOperator(),
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=spec,
    )


def params(**changes: Any) -> dict[str, Any]:
    """The good params with changes; one changed to ... is left out."""
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}


def failure(argument: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        fill_descriptor(argument)
    assert "node 'exn7'" in caught.value.message
    return caught.value


class Size(IntEnum):
    two = 2


class Hostile(dict[str, Any]):
    def get(self, *_: Any) -> NoReturn:
        raise KeyError("no")


# -------------------------------------------------------------------------------------------------------------- good


def test_reads_a_node() -> None:
    assert fill_descriptor(node()) == FillDescriptor(fill=1.5, dtype="f32", shape=(2, 3))


def test_reads_the_context_of_a_handler() -> None:
    context = OperationContext(
        node_id="exn7",
        operator=FillOperator(),
        op_params=MappingProxyType(GOOD),
        input_value_ids=(),
        inputs=(),
        input_provenance=(),
        output_value_id="exv7",
        output_typespec=MappingProxyType({"dtype": "f32", "shape": [2, 3]}),
    )
    assert fill_descriptor(context) == FillDescriptor(1.5, "f32", (2, 3))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"fill": -2}, FillDescriptor(-2.0, "f32", (2, 3))),
        ({"fill": float("inf")}, FillDescriptor(float("inf"), "f32", (2, 3))),
        ({"fill": np.float64(0.1)}, FillDescriptor(0.1, "f32", (2, 3))),
        ({"dtype": "i32"}, FillDescriptor(1.5, "i32", (2, 3))),
        ({"shape": []}, FillDescriptor(1.5, "f32", ())),
        ({"shape": (0, 2**70)}, FillDescriptor(1.5, "f32", (0, 2**70))),
        ({"shape": [Size.two, np.int64(3)]}, FillDescriptor(1.5, "f32", (2, 3))),
    ],
)
def test_reads_what_is_allowed(changes: dict[str, Any], wanted: FillDescriptor) -> None:
    descriptor = fill_descriptor(node(params(**changes)))
    assert descriptor == wanted
    assert type(descriptor.fill) is float
    assert {type(dim) for dim in descriptor.shape} <= {int}


@pytest.mark.parametrize("shape", [[2, 3], (2, 3)])
def test_a_typespec_may_have_a_list_or_a_tuple_and_other_keys(shape: Any) -> None:
    assert fill_descriptor(node(spec={"dtype": "f32", "shape": shape, "layout": "row"})).shape == (2, 3)


def test_a_descriptor_is_plain_data() -> None:
    assert fill_descriptor(node()).to_dict() == {"fill": 1.5, "dtype": "f32", "shape": [2, 3]}


def test_a_fill_is_named_and_not_traced() -> None:
    assert FillOperator().route_name == FILL_ROUTE_NAME == "fill"
    assert FillOperator not in captured_operator_types()


# --------------------------------------------------------------------------------------------------------------- bad


@pytest.mark.parametrize("argument", [None, GOOD, FillOperator(), "exn7"])
def test_refuses_another_argument(argument: Any) -> None:
    with pytest.raises(AutodiffError, match="expected a TensorNodeRecord or an OperationContext, got") as caught:
        fill_descriptor(argument)
    assert caught.value.category == "malformed_derivative_ir"


class OwnFillOperator(FillOperator):
    """A subclass is another operator."""


@pytest.mark.parametrize(
    ("bad", "category", "part"),
    [
        (node(operator=MulOperator()), "malformed_derivative_ir", "is a MulOperator; expected a FillOperator"),
        (node(operator=OwnFillOperator()), "malformed_derivative_ir", "is a OwnFillOperator; expected a FillOperator"),
        (node(operands=["v0"]), "malformed_derivative_ir", "has 1 operands; a fill has none"),
        (node({**GOOD, "axes": [0]}), "malformed_derivative_ir", "'axes'"),
        (node(params(fill=...)), "malformed_derivative_ir", "None"),
        (node(params(fill=True)), "malformed_derivative_ir", "True"),
        (node(params(fill="1")), "malformed_derivative_ir", "'1'"),
        (node(params(fill=1j)), "malformed_derivative_ir", "1j"),
        (node(params(fill=10**400)), "malformed_derivative_ir", "within a float's range"),
        (node(params(dtype=...)), "missing_dtype_metadata", "None"),
        (node(params(dtype="")), "missing_dtype_metadata", "''"),
        (node(params(dtype=32)), "missing_dtype_metadata", "32"),
        (node(params(shape=...)), "missing_shape_metadata", "None"),
        (node(params(shape="23")), "missing_shape_metadata", "'23'"),
        (node(params(shape=b"23")), "missing_shape_metadata", "b'23'"),
        (node(params(shape=6)), "missing_shape_metadata", "6"),
        (node(params(shape={2, 3})), "missing_shape_metadata", "{2, 3}"),
        (node(params(shape=[2, -1])), "missing_shape_metadata", "[2, -1]"),
        (node(params(shape=[True, 2])), "missing_shape_metadata", "[True, 2]"),
        (node(params(shape=["N"])), "missing_shape_metadata", "['N']"),
        (node(params(shape=[2.0])), "missing_shape_metadata", "[2.0]"),
        (node(spec=["f32"]), "malformed_derivative_ir", "['f32']"),
        (node(spec={"dtype": "f64", "shape": [2, 3]}), "malformed_derivative_ir", "its params give dtype 'f32'"),
        (node(spec={"dtype": "f32", "shape": [3, 2]}), "malformed_derivative_ir", "and shape [2, 3]"),
        (node(spec={"dtype": "f32"}), "malformed_derivative_ir", "declares {'dtype': 'f32'}"),
        (node(spec={"dtype": "f32", "shape": 6}), "malformed_derivative_ir", "6"),
        (node(spec={}), "malformed_derivative_ir", "declares {}"),
        (node(spec=Hostile(dtype="f32", shape=[2, 3])), "malformed_derivative_ir", "declares"),
    ],
)
def test_refuses(bad: TensorNodeRecord, category: str, part: str) -> None:
    error = failure(bad)
    assert error.category == category
    assert part in error.message


def test_reports_the_first_thing_that_is_wrong() -> None:
    """Everything is wrong; repairing the fill from the front lets each next reason show."""
    everything = {"axes": [0]}
    steps = [
        (node(everything, operator=MulOperator(), operands=["v0"], spec={}), "expected a FillOperator"),
        (node(everything, operands=["v0"], spec={}), "a fill has none"),
        (node(everything, spec={}), "'axes'"),
        (node({}, spec={}), "fill"),
        (node({"fill": 1.5}, spec={}), "dtype"),
        (node({"fill": 1.5, "dtype": "f32"}, spec={}), "shape"),
        (node(spec={}), "declares {}"),
    ]
    for bad, part in steps:
        assert part in failure(bad).message
