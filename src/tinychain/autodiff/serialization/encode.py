"""Graphs and programs as JSON data: the `to_dict` forms of the records, with values that JSON holds exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.serialization.checks import check_graph, check_program, check_spec
from tinychain.autodiff.serialization.faults import Fault, step, within
from tinychain.autodiff.serialization.values import encode_text, encode_value
from tinychain.autodiff.text.classes import make_operator, operator_classes
from tinychain.autodiff.types import is_sequence


class Encoder:
    """Encodes the artifacts of one document. Typespecs are cached by identity, which holds while the artifacts live.

    A Fault says what cannot be kept exactly, or is not valid.
    """

    def __init__(self) -> None:
        self._specs: dict[int, Any] = {}
        self._operators: dict[int, tuple[TensorOperator, dict[str, str]]] = {}
        self._classes = operator_classes(())

    def graph(self, graph: TensorGraph) -> dict[str, Any]:
        data = {
            "inputs": [self._input(index, entry) for index, entry in enumerate(graph.inputs)],
            "nodes": self._nodes(graph.nodes),
            "outputs": encode_ids(graph.outputs, ".outputs"),
        }
        check_graph(graph)
        return {**data, "content_hash": content_hash(graph)}

    def program(self, program: DerivativeProgram) -> dict[str, Any]:
        for name in ("nodes", "output_gradients"):
            if not is_sequence(getattr(program, name)):
                raise Fault(f".{name}", "a list", quote(getattr(program, name)))
        data = {
            "gradients": encode_id_table(program.gradients, ".gradients"),
            "metadata": encode_fields(program.metadata, ".metadata", DerivativeMetadata),
            "nodes": self._nodes(program.nodes),
            "output_gradients": encode_ids(program.output_gradients, ".output_gradients", absent=True),
            "value_typespecs": encode_table(program.value_typespecs, ".value_typespecs", self._spec),
        }
        check_program(program)
        return data

    def _input(self, index: int, entry: Any) -> list[Any]:
        with within(f".inputs[{index}]"):
            if not is_sequence(entry) or len(entry) != 2:
                raise Fault("", "a (value id, typespec) pair", quote(entry))
            return [_below("[0]", encode_text, entry[0]), _below("[1]", self._spec, entry[1])]

    def _nodes(self, nodes: Iterable[Any]) -> list[Any]:
        encoded: list[Any] = []
        try:
            for node in nodes:
                encoded.append(self._node(node))
        except Fault as fault:
            raise fault.below(f".nodes[{len(encoded)}]") from None
        return encoded

    def _node(self, node: Any) -> dict[str, Any]:
        if not isinstance(node, TensorNodeRecord):
            raise Fault("", "a TensorNodeRecord", quote(node))
        return {
            "input_value_ids": encode_ids(node.input_value_ids, ".input_value_ids"),
            "node_id": _below(".node_id", encode_text, node.node_id),
            "op_params": _below(".op_params", encode_value, node.op_params) if node.op_params else {},
            "operator": self._operator(node.operator),
            "output_typespec": _below(".output_typespec", self._spec, node.output_typespec),
            "output_value_id": _below(".output_value_id", encode_text, node.output_value_id),
        }

    def _spec(self, spec: Any) -> Any:
        encoded = self._specs.get(id(spec))
        if encoded is None and spec is not None:
            if type(spec) is not dict:
                raise Fault("", "a typespec that is a dict itself, or None", quote(spec))
            encoded = self._specs[id(spec)] = encode_value(spec)
            check_spec(spec)
        return encoded

    def _operator(self, operator: TensorOperator) -> dict[str, str]:
        entry = self._operators.get(id(operator))
        if entry is None:
            with within(".operator"):
                entry = self._operators[id(operator)] = (operator, self._checked_operator(operator))
        return entry[1]

    def _checked_operator(self, operator: TensorOperator) -> dict[str, str]:
        """An operator that its class makes again from nothing but the route name."""
        class_, route_name = type(operator), operator.route_name
        data = {
            "route_name": _below(".route_name", encode_text, route_name),
            "type": _below(".type", encode_text, class_.__name__),
        }
        known = self._classes.setdefault(class_.__name__, class_)
        if known is not class_:
            raise Fault(".type", "one operator class of each name", f"{quote(known)} and {quote(class_)}", "rename one")
        made = make_operator(class_, route_name)
        if made is None or not _is_same(made, operator):
            raise Fault(
                "",
                f"what {quote(class_.__name__)} makes for the route name {quote(route_name)}",
                f"{quote(operator)} with attributes of its own",
                "put them into op_params",
            )
        return data


def _is_same(made: TensorOperator, operator: TensorOperator) -> bool:
    try:
        return made == operator and {**vars(made), "route_name": ""} == {**vars(operator), "route_name": ""}
    except Exception:  # attributes that cannot be compared are no plain data either
        return False


def _below(path: str, encode: Callable[[Any], Any], value: Any) -> Any:
    try:
        return encode(value)
    except Fault as fault:
        raise fault.below(path) from None


def encode_ids(ids: Any, path: str, *, absent: bool = False) -> list[Any]:
    """A list of ids; with `absent`, None may stand for one."""
    encoded: list[Any] = []
    try:
        for value_id in ids:
            encoded.append(None if absent and value_id is None else encode_text(value_id))
    except Fault as fault:
        raise fault.below(f"{path}[{len(encoded)}]") from None
    return encoded


def encode_table(table: Any, path: str, encode: Callable[[Any], Any]) -> dict[str, Any]:
    """A mapping from ids."""
    if not isinstance(table, Mapping):
        raise Fault(path, "a mapping", quote(table))
    encoded: dict[str, Any] = {}
    key: object = None
    try:
        for key, value in table.items():
            encoded[encode_text(key, "a key that is a str")] = encode(value)
    except Fault as fault:
        raise fault.below(path + step(key)) from None
    return encoded


def encode_id_table(table: Any, path: str) -> dict[str, str]:
    return encode_table(table, path, encode_text)


def encode_fields(record: Any, path: str, kind: type[Any]) -> dict[str, Any]:
    """A record of a `kind` whose fields are strs and tuples of strs."""
    if type(record) is not kind:
        raise Fault(path, f"a {kind.__name__}", quote(record))
    data: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if type(value) is tuple:
            data[field.name] = encode_ids(value, f"{path}.{field.name}")
        elif type(value) is str:
            data[field.name] = _below(f"{path}.{field.name}", encode_text, value)
        else:
            raise Fault(f"{path}.{field.name}", "a str or a tuple of strs", quote(value))
    return data
