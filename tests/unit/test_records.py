"""The records of graphs and programs: frozen, structural, copied as promised, and plain JSON on request."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given

from by_hand import METADATA, graph, node, program
from strategies import graphs, programs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import (
    AutodiffRequest,
    AutodiffResult,
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.operators import OPERATORS, AddOperator, MeanOperator, MulOperator
from tinychain.autodiff.types import Typespec

F32 = {"dtype": "f32", "shape": [2]}
NODE = node(MeanOperator(), typespec=F32, axes=[0], keepdims=False)
GRAPH = graph(NODE, inputs=[("v0", F32), ("free", None)], outputs=["v1"])
PROGRAM = program(nodes=[NODE], gradients={"w": "v1"}, output_gradients=["v1", None], value_typespecs={"v1": F32})
REQUEST = AutodiffRequest(graph=GRAPH.to_dict(), output_value_id=["v1"], wrt=["v0"], seed_value_id="seed")
RESULT = AutodiffResult(gradients=[1.0, None], metadata=METADATA)
RECORDS = [NODE, GRAPH, PROGRAM, METADATA, REQUEST, RESULT]

TABLE = {
    "AddOperator": "add",
    "SubOperator": "sub",
    "MulOperator": "mul",
    "DivOperator": "div",
    "MaximumOperator": "maximum",
    "MinimumOperator": "minimum",
    "SqrtOperator": "sqrt",
    "ExpOperator": "exp",
    "LogOperator": "log",
    "SignOperator": "sign",
    "MatmulOperator": "matmul",
    "SumOperator": "sum",
    "MeanOperator": "mean",
    "MaxOperator": "max",
    "MinOperator": "min",
    "ProductOperator": "product",
    "ReshapeOperator": "reshape",
    "BroadcastOperator": "broadcast",
    "BroadcastReduceOperator": "broadcast_reduce",
    "TransposeOperator": "transpose",
    "FillOperator": "fill",
    "ConstantOperator": "constant",
}


class Squared(TensorOperator):
    route_name = "squared"


class OtherAdd(TensorOperator):
    route_name = "add"


class FinerAdd(AddOperator):
    pass


class Nameless(TensorOperator):
    pass


def _clones() -> list[Callable[[Any], Any]]:
    return [copy.copy, copy.deepcopy, dataclasses.replace, lambda record: pickle.loads(pickle.dumps(record))]


# ---------------------------------------------------------------------------------------------------------- operators


def test_operators_are_named_by_class_and_route() -> None:
    assert {operator.__name__: operator().route_name for operator in OPERATORS} == TABLE


def test_an_operator_is_equal_by_class_and_route_name() -> None:
    assert AddOperator() == AddOperator()
    assert hash(AddOperator()) == hash(AddOperator())
    for other in (OtherAdd(), FinerAdd(), MulOperator(), AddOperator(route_name="plus")):
        assert AddOperator() != other


def test_an_operator_serialises_as_type_and_route_name() -> None:
    assert Squared().to_dict() == {"type": "Squared", "route_name": "squared"}
    assert AddOperator("plus").to_dict() == {"type": "AddOperator", "route_name": "plus"}


def test_an_operator_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        AddOperator().route_name = "sub"


@pytest.mark.parametrize("build", [Nameless, TensorOperator, lambda: AddOperator(route_name=3)])  # type: ignore[arg-type]
def test_an_operator_without_route_name_says_what_to_set(build: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="route_name"):
        build()


@pytest.mark.parametrize("clone", _clones())
def test_a_copied_operator_is_equal(clone: Callable[[Any], Any]) -> None:
    assert clone(Squared()) == Squared()
    assert clone(AddOperator("plus")) == AddOperator("plus")


# ------------------------------------------------------------------------------------------------------------ records


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (NODE, "node_id output_value_id operator op_params input_value_ids output_typespec"),
        (GRAPH, "nodes inputs outputs"),
        (PROGRAM, "nodes gradients output_gradients metadata value_typespecs"),
        (METADATA, "source_graph_id transform_version tensor_op_contract_version wrt_signature seed_contract"),
        (REQUEST, "graph output_value_id wrt seed_value_id tensor_op_contract_version transform_version"),
        (RESULT, "gradients metadata"),
    ],
)
def test_the_fields_and_their_order(record: Any, names: str) -> None:
    assert [field.name for field in dataclasses.fields(record)] == names.split()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_frozen(record: Any) -> None:
    for field in dataclasses.fields(record):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(record, field.name)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("clone", _clones())
def test_a_copied_record_is_equal(record: Any, clone: Callable[[Any], Any]) -> None:
    copied = clone(record)
    assert copied is not record
    assert copied == record
    assert type(copied) is type(record)


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (NODE, {"node_id": "n9"}),
        (NODE, {"output_value_id": "v9"}),
        (NODE, {"operator": AddOperator()}),
        (NODE, {"op_params": {}}),
        (NODE, {"input_value_ids": ["v0", "v0"]}),
        (NODE, {"output_typespec": None}),
        (GRAPH, {"nodes": []}),
        (GRAPH, {"inputs": []}),
        (GRAPH, {"outputs": []}),
        (PROGRAM, {"nodes": []}),
        (PROGRAM, {"gradients": {}}),
        (PROGRAM, {"output_gradients": []}),
        (PROGRAM, {"metadata": dataclasses.replace(METADATA, source_graph_id="")}),
        (PROGRAM, {"value_typespecs": {}}),
        (METADATA, {"wrt_signature": ()}),
    ],
)
def test_a_record_differs_in_every_field(record: Any, changes: dict[str, Any]) -> None:
    changed = dataclasses.replace(record, **changes)
    assert changed != record
    for name, value in changes.items():
        assert getattr(changed, name) == value


@given(graphs)
def test_graphs_survive_pickling_and_deepcopy(artifact: TensorGraph) -> None:
    # NaN is equal to itself only where it stays the same object, hence the repr.
    assert repr(pickle.loads(pickle.dumps(artifact))) == repr(artifact)
    assert repr(copy.deepcopy(artifact)) == repr(artifact)


@given(programs())
def test_programs_survive_pickling_and_deepcopy(artifact: DerivativeProgram) -> None:
    assert repr(pickle.loads(pickle.dumps(artifact))) == repr(artifact)
    assert repr(copy.deepcopy(artifact)) == repr(artifact)


# ---------------------------------------------------------------------------------------------------------- containers


def test_a_node_copies_params_and_operands_and_keeps_the_typespec() -> None:
    axes = [0]
    op_params, operands, spec = {"axes": axes}, ["v0"], {"dtype": "f32", "shape": [2]}
    record = TensorNodeRecord(
        node_id="n0",
        output_value_id="v1",
        operator=MeanOperator(),
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=spec,
    )
    op_params["more"] = []
    operands.append("v9")
    assert record.op_params == {"axes": [0]}
    assert record.op_params["axes"] is axes
    assert record.input_value_ids == ["v0"]
    assert record.output_typespec is spec


def test_a_node_holds_an_ordinary_dict_and_list() -> None:
    record = dataclasses.replace(NODE, op_params=MappingProxyType({"axes": [0]}), input_value_ids=("v0",))
    assert type(record.op_params) is dict
    assert type(record.input_value_ids) is list


def test_the_typespec_of_a_node_may_be_left_out() -> None:
    bare = TensorNodeRecord(
        node_id="n0", output_value_id="v1", operator=AddOperator(), op_params={}, input_value_ids=["v0", "v0"]
    )
    assert bare.output_typespec is None


def test_a_node_takes_keywords_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        TensorNodeRecord("n0", "v1", AddOperator(), {}, [])  # type: ignore[call-arg]


@pytest.mark.parametrize("operator", [AddOperator, "add", None, {"type": "AddOperator"}])
def test_the_operator_of_a_node_must_be_an_instance(operator: Any) -> None:
    with pytest.raises(TypeError, match="operator of node 'n0' must be a TensorOperator instance") as caught:
        dataclasses.replace(NODE, operator=operator)
    assert repr(operator) in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"op_params": None}, {"op_params": 3}, {"op_params": "ab"}, {"input_value_ids": 3}, {"input_value_ids": "v0"}],
)
def test_a_wrong_container_of_a_node_is_a_type_error_that_shows_it(changes: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="node 'n0'") as caught:
        dataclasses.replace(NODE, **changes)
    ((name, given_),) = changes.items()
    assert name in str(caught.value)
    assert repr(given_) in str(caught.value)


def test_a_graph_copies_its_containers() -> None:
    nodes: list[TensorNodeRecord] = [NODE]
    inputs: list[tuple[str, Typespec | None]] = [("v0", F32)]
    outputs = ["v1"]
    made = TensorGraph(nodes, inputs, outputs)
    nodes.clear()
    inputs.clear()
    outputs.clear()
    assert made == TensorGraph([NODE], [("v0", F32)], ["v1"])
    assert TensorGraph((NODE,), (("v0", F32),), ("v1",)) == made  # type: ignore[arg-type]
    assert type(TensorGraph((), (), ()).outputs) is list  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nodes", "inputs", "outputs"])
@pytest.mark.parametrize("container", [None, 3, "v0", b"v0", NODE])
def test_a_wrong_container_of_a_graph_is_a_type_error_that_shows_it(name: str, container: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} of a TensorGraph must be a list") as caught:
        dataclasses.replace(GRAPH, **{name: container})
    assert repr(container)[:100] in str(caught.value)


def test_a_program_copies_nothing() -> None:
    nodes: list[TensorNodeRecord] = [NODE]
    gradients = {"w": "v1"}
    outputs: list[str | None] = ["v1"]
    specs: dict[str, Typespec] = {"v1": F32}
    made = DerivativeProgram(nodes, gradients, outputs, METADATA, specs)
    assert made.nodes is nodes
    assert made.gradients is gradients
    assert made.output_gradients is outputs
    assert made.value_typespecs is specs
    assert DerivativeProgram([], {}, [], METADATA).value_typespecs == {}


# --------------------------------------------------------------------------------------------------------------- JSON


def test_the_json_of_a_graph_is_field_by_field() -> None:
    assert GRAPH.to_dict() == {
        "nodes": [
            {
                "node_id": "n0",
                "output_value_id": "v1",
                "operator": {"type": "MeanOperator", "route_name": "mean"},
                "op_params": {"axes": [0], "keepdims": False},
                "input_value_ids": ["v0"],
                "output_typespec": {"dtype": "f32", "shape": [2]},
            }
        ],
        "inputs": [["v0", {"dtype": "f32", "shape": [2]}], ["free", None]],
        "outputs": ["v1"],
    }


def test_the_json_of_a_program_leaves_the_typespec_table_out() -> None:
    data = PROGRAM.to_dict()
    assert list(data) == ["nodes", "gradients", "output_gradients", "metadata"]
    assert data["output_gradients"] == ["v1", None]
    assert data["metadata"] == METADATA.to_dict()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_json_is_plain_and_new(record: Any) -> None:
    data = record.to_dict()
    assert json.loads(json.dumps(data)) == data
    for value in data.values():
        if isinstance(value, (list, dict)):
            value.clear()
    assert record.to_dict() == copy.deepcopy(record).to_dict() != data


def test_tuples_and_mappings_become_lists_and_dicts() -> None:
    record = node(MeanOperator(), axes=(0, (1,)), nested=MappingProxyType({"a": (1,)}))
    assert record.to_dict()["op_params"] == {"axes": [0, [1]], "nested": {"a": [1]}}
    assert METADATA.to_dict()["wrt_signature"] == ["w"]


@pytest.mark.parametrize("record", [METADATA, REQUEST, RESULT], ids=lambda record: type(record).__name__)
def test_from_dict_is_the_inverse(record: Any) -> None:
    assert type(record).from_dict(json.loads(json.dumps(record.to_dict()))) == record


@pytest.mark.parametrize("record", [DerivativeMetadata, AutodiffRequest, AutodiffResult])
@pytest.mark.parametrize("data", [{}, {"more": 1}])
def test_from_dict_names_the_keys_that_it_takes(record: Any, data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{record.__name__}.from_dict takes the keys") as caught:
        record.from_dict(data)
    assert dataclasses.fields(record)[0].name in str(caught.value)


@pytest.mark.parametrize("record", [DerivativeMetadata, AutodiffRequest, AutodiffResult])
@pytest.mark.parametrize("data", [None, 3, "text", [("graph", {})]])
def test_from_dict_of_no_mapping_is_a_type_error(record: Any, data: Any) -> None:
    with pytest.raises(TypeError, match=f"{record.__name__}.from_dict takes a mapping"):
        record.from_dict(data)


def test_from_dict_judges_the_lists() -> None:
    with pytest.raises(TypeError, match="wrt_signature must be a list"):
        DerivativeMetadata.from_dict({**METADATA.to_dict(), "wrt_signature": "w"})
    with pytest.raises(TypeError, match="gradients must be a list"):
        AutodiffResult.from_dict({**RESULT.to_dict(), "gradients": 3})
    with pytest.raises(TypeError, match="takes a mapping"):
        AutodiffResult.from_dict({**RESULT.to_dict(), "metadata": None})


def _circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("build", [_circular, _deep])
def test_data_without_json_form_is_malformed(build: Callable[[], Any]) -> None:
    for record in (node(key=build()), graph(node(key=build()))):
        with pytest.raises(AutodiffError, match="contains itself or nests too deeply") as caught:
            record.to_dict()
        assert caught.value.category == "malformed_derivative_ir"
