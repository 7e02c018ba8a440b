"""Reading text back into an artifact, one statement a line; nothing in a text is ever evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import itemgetter
from typing import Any, Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.text.classes import make_operator, operator_classes
from tinychain.autodiff.text.line import Line
from tinychain.autodiff.text.notation import PACKAGE_OPERATORS

_METADATA: Final = tuple(field.name for field in fields(DerivativeMetadata))


def parse_text(text: str, *, operators: Iterable[type[TensorOperator]] = ()) -> TensorGraph | DerivativeProgram:
    """The artifact that `format_text` wrote as `text`; equal typespecs share one object.

    `operators` are your own operator classes that the text may name; one hides a class of the package of its name.
    Bad text raises malformed_derivative_ir, an unknown operator unsupported_operator; the message has the line's
    number, what was expected and what stands there. Whether the artifact is valid (arity, types, producers) is not
    judged. A bad argument raises TypeError. Linear in the text's length.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {quote(text)}")
    line = Line()
    known = _Operators(line, operators)
    statements: _GraphStatements | _ProgramStatements | None = None
    closed = False
    for row in text.split("\n"):
        first = line.read(row)
        if first in ("", "#"):
            continue
        if closed:
            line.fail("the end of the text")
        if statements is None:
            statements = _opened(line, known)
        elif line.accept("}"):
            closed = True
        else:
            statements.readers.get(first, statements.node)()
        line.end()
    if statements is None:
        line.fail('"graph {" or "program {"')
    if not closed:
        line.fail('a statement or the closing "}"')
    return statements.artifact()


def _opened(line: Line, operators: _Operators) -> _GraphStatements | _ProgramStatements:
    statements: _GraphStatements | _ProgramStatements
    if line.accept("graph"):
        statements = _GraphStatements(line, operators)
    elif line.accept("program"):
        statements = _ProgramStatements(line, operators)
    else:
        line.fail('"graph {" or "program {"')
    line.expect("{")
    return statements


class _Operators:
    """The operator instances that a text names, one for all nodes of a spelling."""

    def __init__(self, line: Line, own: Iterable[type[TensorOperator]]) -> None:
        self._line = line
        self._instances: dict[tuple[str, str | None], TensorOperator] = {}
        self._classes = operator_classes(own)

    def read(self) -> TensorOperator:
        """`route` for an operator of the package, `Class<route>` for any."""
        name = self._line.string("an operator")
        route = None
        if self._line.accept("<"):
            route = self._line.string("a route name")
            self._line.expect(">")
        operator = self._instances.get((name, route))
        if operator is None:
            operator = self._instances[name, route] = self._made(name, route)
        return operator

    def _made(self, name: str, route: str | None) -> TensorOperator:
        class_ = PACKAGE_OPERATORS.get(name) if route is None else self._classes.get(name)
        if class_ is None:
            self._line.reject(
                f"unknown operator {quote(name)}; expected a route name ({', '.join(PACKAGE_OPERATORS)}), or"
                " ClassName<route_name> with the class passed in operators",
                category="unsupported_operator",
            )
        operator = make_operator(class_, route)
        if operator is None:
            self._line.reject(f"class {quote(name)} makes no operator of the route name {quote(route)}")
        return operator


class _Statements:
    """What the statements of one artifact have said so far, and a reader for each kind but the node's."""

    def __init__(self, line: Line, operators: _Operators) -> None:
        self.line = line
        self.operators = operators
        self.nodes: list[TensorNodeRecord] = []
        self.readers: dict[str, Callable[[], None]] = {}

    def node(self) -> None:
        """`value = operator(operands) {op_params} : typespec @node_id`"""
        line = self.line
        value_id = line.string("a statement")
        line.expect("=")
        operator = self.operators.read()
        line.expect("(")
        operands = line.strings("an operand", until=")")
        op_params = line.mapping() if line.at("{") else {}
        spec = line.typespec(before=2)
        line.expect("@")
        self.nodes.append(
            TensorNodeRecord(
                node_id=line.string("a node id"),
                output_value_id=value_id,
                operator=operator,
                op_params=op_params,
                input_value_ids=operands,
                output_typespec=spec,
            )
        )


class _GraphStatements(_Statements):
    def __init__(self, line: Line, operators: _Operators) -> None:
        super().__init__(line, operators)
        self.inputs: list[tuple[str, Any]] = []
        self.outputs: list[str] = []
        self.readers = {"input": self._input, "output": self._output}

    def artifact(self) -> TensorGraph:
        return TensorGraph(nodes=self.nodes, inputs=self.inputs, outputs=self.outputs)

    def _input(self) -> None:
        self.line.expect("input")
        value_id = self.line.string("a value id")
        self.inputs.append((value_id, self.line.typespec()))

    def _output(self) -> None:
        self.line.expect("output")
        self.outputs.append(self.line.string("a value id"))


class _ProgramStatements(_Statements):
    def __init__(self, line: Line, operators: _Operators) -> None:
        super().__init__(line, operators)
        self.metadata: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.values_follow_nodes = False
        self.values_absent: list[str] = []
        self.gradients: dict[str, str] = {}
        self.output_gradients: list[str | None] = []
        self.readers = {
            "metadata": self._metadata,
            "value": self._value,
            "gradient": self._gradient,
            "output": self._output,
        }

    def artifact(self) -> DerivativeProgram:
        missing = [name for name in _METADATA if name not in self.metadata]
        if missing:
            self.line.reject(f"the program has no line 'metadata {missing[0]} = ...'")
        return DerivativeProgram(
            nodes=self.nodes,
            gradients=self.gradients,
            output_gradients=self.output_gradients,
            metadata=DerivativeMetadata(**self.metadata),
            value_typespecs=self._value_typespecs(),
        )

    def _value_typespecs(self) -> dict[str, Any]:
        if not self.values_follow_nodes:
            return self.values
        stated = {node.output_value_id: node.output_typespec for node in self.nodes if node.output_typespec is not None}
        for value_id in self.values_absent:
            if stated.pop(value_id, None) is None:
                self.line.reject(f"value {quote(value_id)} is excepted though no node states its typespec")
        twice = min(self.values.keys() & stated.keys(), default=None)
        if twice is not None:
            self.line.reject(f"value {quote(twice)} has a value line beside 'value *' and its node's typespec")
        return dict(sorted({**self.values, **stated}.items(), key=itemgetter(0)))

    def _metadata(self) -> None:
        self.line.expect("metadata")
        name = self.line.string("a field of the metadata")
        if name not in _METADATA or name in self.metadata:
            self.line.reject(f"expected each of {', '.join(_METADATA)} once, found {quote(name)}")
        self.line.expect("=")
        value = self.line.value()
        self.metadata[name] = tuple(value) if isinstance(value, list) else value

    def _value(self) -> None:
        self.line.expect("value")
        if self.line.accept("*"):
            self.values_follow_nodes = True
            if self.line.accept("except"):
                self.values_absent += self.line.strings("a value id")
            return
        value_id = self.line.string('a value id or "*"')
        if value_id in self.values:
            self.line.reject(f"value {quote(value_id)} is listed a second time")
        self.values[value_id] = self.line.typespec()

    def _gradient(self) -> None:
        self.line.expect("gradient")
        wrt = self.line.string("a value id")
        if wrt in self.gradients:
            self.line.reject(f"the gradient of {quote(wrt)} is stated a second time")
        self.line.expect("=")
        self.gradients[wrt] = self.line.string("a value id")

    def _output(self) -> None:
        self.line.expect("output")
        self.output_gradients.append(None if self.line.accept("null") else self.line.string("a value id or null"))
