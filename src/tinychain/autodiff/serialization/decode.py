"""JSON data as graphs and programs: every field is looked at, and what is not exactly as written is a Fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, Final, TypeVar

from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.serialization.checks import check_graph, check_program, check_spec
from tinychain.autodiff.serialization.faults import Fault, found, step, within
from tinychain.autodiff.serialization.values import decode_text, decode_value
from tinychain.autodiff.text.classes import make_operator, operator_classes

AnyRecord = TypeVar("AnyRecord")

_GRAPH: Final = frozenset({"content_hash", "inputs", "nodes", "outputs"})
_PROGRAM: Final = frozenset({field.name for field in fields(DerivativeProgram)})
_NODE: Final = frozenset({field.name for field in fields(TensorNodeRecord)})
_OPERATOR: Final = frozenset({"route_name", "type"})
_SPEC: Final = frozenset({"dtype", "shape"})
_DIMS: Final = frozenset({int, str})


class Decoder:
    """Decodes the artifacts of one document; equal strings, typespecs and operators share one object.

    `operators` are the caller's own operator classes: TypeError for anything else, and for one that has the name of a
    class of the package.
    """

    def __init__(self, operators: Iterable[type[TensorOperator]]) -> None:
        self._classes = operator_classes(operators)
        for name, class_ in operator_classes(()).items():
            if self._classes[name] is not class_:
                raise TypeError(f"operators holds a class of the package's name {name!r}; rename it")
        self._operators: dict[tuple[str, str], TensorOperator] = {}
        self._strings: dict[str, str] = {}
        self._specs: dict[tuple[int | str, ...], Any] = {}  # by the data of dtype and shape

    # ------------------------------------------------------------------------------------------------------ records

    def graph(self, data: Any) -> TensorGraph:
        check_keys(data, _GRAPH)
        graph = TensorGraph(
            nodes=self._nodes(data["nodes"]),
            inputs=decode_each(data["inputs"], ".inputs", self._input),
            outputs=self.ids(data["outputs"], ".outputs"),
        )
        check_graph(graph)
        digest = content_hash(graph)
        if data["content_hash"] != digest:
            raise Fault(".content_hash", f"{digest}, the content hash of the graph", found(data["content_hash"]))
        return graph

    def program(self, data: Any) -> DerivativeProgram:
        check_keys(data, _PROGRAM)
        metadata = self.fields(data["metadata"], ".metadata", DerivativeMetadata)
        program = DerivativeProgram(
            nodes=self._nodes(data["nodes"]),
            gradients=self.table(data["gradients"], ".gradients", self.id, order=metadata.wrt_signature),
            output_gradients=decode_each(data["output_gradients"], ".output_gradients", self._id_or_none),
            metadata=metadata,
            value_typespecs=self.table(data["value_typespecs"], ".value_typespecs", self._spec),
        )
        check_program(program)
        return program

    def _nodes(self, data: Any) -> list[TensorNodeRecord]:
        return decode_each(data, ".nodes", self._node)

    def _node(self, data: Any) -> TensorNodeRecord:
        check_keys(data, _NODE)
        where = "op_params"
        try:
            params = self._params(data[where])
            node_id = self.id(data[where := "node_id"])
            value_id = self.id(data[where := "output_value_id"])
            operator = self._operator(data[where := "operator"])
            spec = self._spec(data[where := "output_typespec"])
        except Fault as fault:
            raise fault.below(f".{where}") from None
        return TensorNodeRecord(
            node_id=node_id,
            output_value_id=value_id,
            operator=operator,
            op_params=params,
            input_value_ids=self.ids(data["input_value_ids"], ".input_value_ids"),
            output_typespec=spec,
        )

    def _params(self, data: Any) -> dict[str, Any]:
        params = decode_value(data) if data else data
        if type(params) is not dict:
            raise Fault("", "op_params, which are a mapping", found(params))
        return params

    def _input(self, data: Any) -> tuple[str, Any]:
        if type(data) is not list or len(data) != 2:
            raise Fault("", "an array of a value id and a typespec", found(data))
        return _below("[0]", self.id, data[0]), _below("[1]", self._spec, data[1])

    def _spec(self, data: Any) -> Any:
        """A typespec. One of dtype and shape alone is the same object wherever it stands."""
        if data is None:
            return None
        if type(data) is not dict:
            raise Fault("", "a typespec, which is an object or null", found(data))
        key = None
        if data.keys() == _SPEC:
            dtype, shape = data["dtype"], data["shape"]
            if type(dtype) is str and type(shape) is list and _DIMS.issuperset(map(type, shape)):
                key = (dtype, *shape)
                known = self._specs.get(key)
                if known is not None:
                    return known
        spec = decode_value(data)
        if type(spec) is not dict:
            raise Fault("", "a typespec, which is a mapping or null", found(spec))
        check_spec(spec)
        if key is not None:
            self._specs[key] = spec
        return spec

    # ---------------------------------------------------------------------------------------------------- operators

    def _operator(self, data: Any) -> TensorOperator:
        check_keys(data, _OPERATOR)
        key = (_below(".type", self.id, data["type"]), _below(".route_name", self.id, data["route_name"]))
        operator = self._operators.get(key)
        if operator is None:
            operator = self._operators[key] = self._made(*key)
        return operator

    def _made(self, name: str, route_name: str) -> TensorOperator:
        class_ = self._classes.get(name)
        if class_ is None:
            known = ", ".join(self._classes)
            raise Fault(".type", f"one of {known}", found(name), "pass its class in operators, if you trust it")
        operator = make_operator(class_, route_name)
        if operator is None:
            raise Fault(".route_name", f"one for which {name} makes an operator", found(route_name))
        return operator

    # -------------------------------------------------------------------------------------------------- ids, tables

    def id(self, data: Any) -> str:
        text = decode_text(data)
        return self._strings.setdefault(text, text)

    def _id_or_none(self, data: Any) -> str | None:
        return None if data is None else self.id(data)

    def ids(self, data: Any, path: str) -> list[str]:
        return decode_each(data, path, self.id)

    def table(self, data: Any, path: str, decode: Callable[[Any], Any], order: Iterable[str] = ()) -> dict[str, Any]:
        """A mapping from ids. Those in `order` come first, and in that order; the others are sorted."""
        if type(data) is not dict:
            raise Fault(path, "an object", found(data))
        decoded: dict[str, Any] = {}
        key = ""
        try:
            for key, value in data.items():
                decoded[self.id(key)] = decode(value)
        except Fault as fault:
            raise fault.below(path + step(key)) from None
        first = [key for key in dict.fromkeys(order) if key in decoded]
        return {key: decoded[key] for key in dict.fromkeys([*first, *sorted(decoded)])}

    def fields(self, data: Any, path: str, record: type[AnyRecord]) -> AnyRecord:
        """A record whose fields are strs and tuples of strs."""
        kinds = {field.name: field.type for field in fields(record)}  # type: ignore[arg-type]
        with within(path):
            check_keys(data, kinds.keys())
            return record(
                **{
                    name: _below(f".{name}", self.id, data[name])
                    if kind == "str"
                    else tuple(self.ids(data[name], f".{name}"))
                    for name, kind in kinds.items()
                }
            )


def check_keys(data: Any, keys: Any) -> None:
    """An object with exactly these keys."""
    if type(data) is not dict:
        raise Fault("", "an object", found(data))
    if data.keys() != keys:
        for key in sorted(keys - data.keys()):
            raise Fault(step(key), "a value", "none")
        for key in sorted(data.keys() - keys):
            raise Fault(step(key), f"no other keys than {', '.join(sorted(keys))}", "it")


def decode_each(data: Any, path: str, decode: Callable[[Any], Any]) -> list[Any]:
    """An array, which is emptied on the way, so that its items are not held twice."""
    if type(data) is not list:
        raise Fault(path, "an array", found(data))
    index = 0
    try:
        for index, item in enumerate(data):
            data[index] = decode(item)
    except Fault as fault:
        raise fault.below(f"{path}[{index}]") from None
    return data


def _below(path: str, decode: Callable[[Any], Any], data: Any) -> Any:
    try:
        return decode(data)
    except Fault as fault:
        raise fault.below(path) from None
