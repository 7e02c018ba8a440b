"""Writing an artifact as text: one statement a line, each value in the one form that parses back to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from operator import lt
from types import MappingProxyType
from typing import Any, Final, NoReturn

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.text.notation import MAX_DEPTH, PACKAGE_OPERATORS, format_string

# From here on decimal is slow (quadratic), and refused by the interpreter a little later.
_HEX_FROM: Final = 1 << 2048

_MAPPINGS: Final = (dict, MappingProxyType)
_LISTS: Final = (list, tuple)


def format_text(artifact: TensorGraph | DerivativeProgram) -> str:
    """The text of a graph or program; `parse_text` gives an equal artifact back.

    Tuples become lists, and subclasses of int, float, str and dict the plain type. What has no text form (an object
    that is no plain data, a key or id that is no str, nesting deeper than 100, two operator classes of one name) raises
    malformed_derivative_ir with the place. Anything but an artifact raises TypeError. Linear in the artifact's size.
    """
    writer = _Writer()
    if isinstance(artifact, TensorGraph):
        lines = ["graph {", *writer.graph(artifact)]
    elif isinstance(artifact, DerivativeProgram):
        lines = ["program {", *writer.program(artifact)]
    else:
        raise TypeError(f"artifact must be a TensorGraph or a DerivativeProgram, got {quote(artifact)}")
    lines.append("}\n")
    return "\n".join(lines)


class NoText(Exception):
    """A value without a text form: why, and the keys that lead to it from outside in."""

    def __init__(self, why: str, path: str = "") -> None:
        self.why = why
        self.path = path

    def at(self, place: str) -> AutodiffError:
        return AutodiffError("malformed_derivative_ir", f"{place}{self.path} has no text form: {self.why}")


# ----------------------------------------------------------------------------------------------------------- values


def format_value(value: Any, depth: int = 0) -> str:
    """Plain data as text; raises NoText."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, int):
        return int.__repr__(value) if -_HEX_FROM < value < _HEX_FROM else hex(value)
    if isinstance(value, str):
        text = format_string(str.__str__(value))
        return text if text[0] == '"' else f'"{text}"'
    if not isinstance(value, (*_LISTS, *_MAPPINGS)):
        raise NoText(f"got {quote(value)}; expected numbers, strings, None, lists and mappings of these")
    if depth == MAX_DEPTH:
        raise NoText(f"lists and mappings nest deeper than {MAX_DEPTH}")
    if isinstance(value, _MAPPINGS):
        return format_mapping(value, depth)
    parts: list[str] = []
    try:
        for item in value:
            parts.append(format_value(item, depth + 1))
    except NoText as error:
        raise NoText(error.why, f"[{len(parts)}]{error.path}") from None
    return f"[{', '.join(parts)}]"


def format_mapping(value: Mapping[Any, Any], depth: int = 0) -> str:
    parts: list[str] = []
    key: object = None
    try:
        for key, item in value.items():
            if not isinstance(key, str):
                raise NoText("a key must be a str")
            parts.append(f"{format_string(key)}: {format_value(item, depth + 1)}")
    except NoText as error:
        raise NoText(error.why, f"[{quote(key)}]{error.path}") from None
    return f"{{{', '.join(parts)}}}"


def format_typespec(spec: Any) -> str:
    """`f32[4, N]` for exactly a dtype and a shape of ints and strings, the general form for anything else."""
    if isinstance(spec, _MAPPINGS) and len(spec) == 2 and "dtype" in spec and "shape" in spec:
        dtype, shape = spec["dtype"], spec["shape"]
        if isinstance(dtype, str) and isinstance(shape, _LISTS) and all(map(_is_dim, shape)):
            name = format_string(dtype)
            if not name.startswith('"'):
                dims = [format_string(dim) if isinstance(dim, str) else format_value(dim) for dim in shape]
                return f"{name}[{', '.join(dims)}]"
    return format_value(spec)


def _is_dim(dim: object) -> bool:
    return isinstance(dim, (int, str)) and not isinstance(dim, bool)


# ------------------------------------------------------------------------------------------------------- statements


class _Writer:
    """The statements of one artifact. Typespec texts are cached by identity, which holds while the artifact lives."""

    def __init__(self) -> None:
        self._spec_texts: dict[int, str] = {}
        self._operator_texts: dict[tuple[type[TensorOperator], str], str] = {}
        self._class_names: dict[str, type[TensorOperator]] = {}

    def graph(self, graph: TensorGraph) -> Iterator[str]:
        for entry in graph.inputs:
            if not isinstance(entry, _LISTS) or len(entry) != 2:
                _malformed(f"an entry of the graph's inputs must be a (value id, typespec) pair, got {quote(entry)}")
            yield f"  input {_id(entry[0], 'a graph input')}{self._typespec(entry[1], entry[0])}"
        yield from map(self._node, graph.nodes)
        for value_id in graph.outputs:
            yield f"  output {_id(value_id, 'a graph output')}"

    def program(self, program: DerivativeProgram) -> Iterator[str]:
        _check(program, "metadata", DerivativeMetadata)
        _check(program, "nodes", list, tuple)
        _check(program, "value_typespecs", *_MAPPINGS)
        _check(program, "gradients", *_MAPPINGS)
        _check(program, "output_gradients", list, tuple)
        for field in fields(DerivativeMetadata):
            try:
                yield f"  metadata {field.name} = {format_value(getattr(program.metadata, field.name))}"
            except NoText as error:
                raise error.at(f"metadata {field.name}") from None
        statements = [self._node(node) for node in program.nodes]
        yield from self._values(program.value_typespecs, program.nodes)
        yield from statements
        for wrt, gradient in program.gradients.items():
            yield f"  gradient {_id(wrt, 'a key of gradients')} = {_id(gradient, 'an entry of gradients')}"
        for value_id in program.output_gradients:
            yield "  output null" if value_id is None else f"  output {_id(value_id, 'an output gradient')}"

    def _node(self, node: TensorNodeRecord) -> str:
        if not isinstance(node, TensorNodeRecord):
            _malformed(f"an entry of nodes must be a TensorNodeRecord, got {quote(node)}")
        operator = node.operator
        key = (type(operator), operator.route_name)
        name = self._operator_texts.get(key)
        if name is None:
            name = self._operator_texts[key] = self._operator(*key)
        operands = ", ".join([_id(operand, "an operand") for operand in node.input_value_ids])
        params = ""
        if node.op_params:
            try:
                params = f" {format_mapping(node.op_params)}"
            except NoText as error:
                raise error.at(f"node {quote(node.node_id)}: op_params") from None
        typespec = self._typespec(node.output_typespec, node.output_value_id)
        value_id = _id(node.output_value_id, "a node's output")
        return f"  {value_id} = {name}({operands}){params}{typespec} @{_id(node.node_id, 'a node id')}"

    def _operator(self, operator: type[TensorOperator], route_name: str) -> str:
        if PACKAGE_OPERATORS.get(route_name) is operator:
            return format_string(route_name)
        known = self._class_names.setdefault(operator.__name__, operator)
        if known is not operator:
            _malformed(
                f"two operator classes have the name {quote(operator.__name__)}: {quote(known)} and {quote(operator)};"
                " text tells them apart by name, so rename one"
            )
        return f"{format_string(operator.__name__)}<{format_string(route_name)}>"

    def _values(self, table: Mapping[str, Any], nodes: Sequence[TensorNodeRecord]) -> Iterator[str]:
        ids = {value_id: _id(value_id, "a key of value_typespecs") for value_id in table}
        stated = {node.output_value_id: node for node in nodes if node.output_typespec is not None}
        absent = [_id(value_id, "a node's output") for value_id in stated if value_id not in table]
        follows = 2 * len(absent) < len(stated) and self._follows(table, nodes)
        for value_id, spec in table.items():
            if not (follows and value_id in stated):
                yield f"  value {ids[value_id]}{self._typespec(spec, value_id)}"
        if follows:
            yield f"  value * except {', '.join(absent)}" if absent else "  value *"

    def _follows(self, table: Mapping[str, Any], nodes: Sequence[TensorNodeRecord]) -> bool:
        """Whether the table is sorted and has no other typespec for a value than its node states."""
        for node in nodes:
            spec, value_id = node.output_typespec, node.output_value_id
            if spec is None or value_id not in table:
                continue
            if self._typespec(spec, value_id) != self._typespec(table[value_id], value_id):
                return False
        return all(map(lt, table, list(table)[1:]))

    def _typespec(self, spec: Any, value_id: str) -> str:
        if spec is None:
            return ""
        text = self._spec_texts.get(id(spec))
        if text is None:
            try:
                text = self._spec_texts[id(spec)] = f" : {format_typespec(spec)}"
            except NoText as error:
                raise error.at(f"value {quote(value_id)}: typespec") from None
        return text


def _id(value: object, role: str) -> str:
    if not isinstance(value, str):
        _malformed(f"{role} must be a str, got {quote(value)}")
    return format_string(value)


def _check(program: DerivativeProgram, name: str, *types: type) -> None:
    value = getattr(program, name)
    if not isinstance(value, types):
        _malformed(f"{name} of the program must be a {types[0].__name__}, got {quote(value)}")


def _malformed(message: str) -> NoReturn:
    raise AutodiffError("malformed_derivative_ir", message)
