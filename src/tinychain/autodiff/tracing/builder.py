"""The builder: one trace, its ids and types, and the artifacts that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from keyword import iskeyword
from types import TracebackType
from typing import Any, Self

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.form import check_nodes
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing.source import SourceLine, calling_line
from tinychain.autodiff.tracing.tensor import ACTIVE, CAPTURED, Tensor
from tinychain.autodiff.types import (
    FLOATING_DTYPES,
    TensorType,
    Typespec,
    is_sequence,
    parse_shape,
    parse_type,
    typespec,
)
from tinychain.autodiff.walks import needed_by, producer_index


def get_active_builder() -> TensorGraphBuilder | None:
    """The builder whose context is open here, or None."""
    active = ACTIVE.get()
    # A context that was copied during a trace, for a thread or a task, outlives it.
    return active if isinstance(active, TensorGraphBuilder) and active._state == "active" else None


def captured_operator_types() -> set[type[TensorOperator]]:
    """The operator classes that tracing records."""
    return set(CAPTURED)


class TensorGraphBuilder:
    """Records the Tensor operations that run inside its context. A builder traces once.

    Values are v0, v1, ... and nodes n0, n1, ...; symbol bindings hold for the whole trace. An operation that fails
    records nothing and binds nothing. With `record_lines`, which raises TypeError unless it is a bool, `source_lines`
    tells where each node was written; artifacts and their hashes are the same with and without.
    """

    def __init__(self, *, record_lines: bool = False) -> None:
        if not isinstance(record_lines, bool):
            raise TypeError(f"record_lines must be a bool, got {quote(record_lines)}")
        self._lines: dict[str, SourceLine] | None = {} if record_lines else None
        self._specs: dict[str, Typespec | None] = {}
        self._recorded_ids: set[str] = set()
        self._emit = Emitter(
            specs=self._specs, mint_value=mint("v", self._specs), mint_node=mint("n", self._recorded_ids)
        )
        # id(object) -> value id; the objects are kept, so that no id is used again.
        self._value_ids: dict[int, str] = {}
        self._objects: list[object] = []
        self._inputs: dict[str, str] = {}
        self._marked: dict[str, None] = {}
        self._state = "new"

    # ----------------------------------------------------------------------------------------------------- context

    def __enter__(self) -> Self:
        if get_active_builder() is not None:
            raise RuntimeError("Nested traces are not supported; close the active TensorGraphBuilder first")
        if self._state != "new":
            raise RuntimeError("a TensorGraphBuilder is single-trace; make a new one")
        self._state = "active"
        ACTIVE.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if ACTIVE.get() is self:
            ACTIVE.set(None)
        self._state = "done" if kind is None else "failed"

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols that the trace has bound so far, as a copy."""
        return dict(self._emit.symbols)

    @property
    def input_ids(self) -> dict[str, str]:
        """The value id of every declared input by name, in declaration order, as a copy."""
        return dict(self._inputs)

    @property
    def source_lines(self) -> dict[str, SourceLine]:
        """Node id -> the file and the line outside of this package that made the node; empty unless recorded."""
        return dict(self._lines or {})

    # ---------------------------------------------------------------------------------------------------- recording

    def input(self, name: str, *, dtype: str, shape: Sequence[int | str]) -> Tensor:
        """Declares an input and returns its tensor.

        Raises RuntimeError outside the active trace, TypeError for a name that is no str or empty, ValueError for one
        that is no identifier or is taken and for a malformed shape, dtype_not_differentiable for another dtype.
        """
        if get_active_builder() is not self:
            raise RuntimeError(f"input {quote(name)} must be declared inside the builder's active trace")
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of an input must be a non-empty str, got {quote(name)}")
        if not name.isidentifier() or iskeyword(name):
            raise ValueError(f"the name of an input must be an identifier and no keyword, got {quote(name)}")
        if name in self._inputs:
            raise ValueError(f"duplicate input name {quote(name)}")
        if not isinstance(dtype, str) or dtype not in FLOATING_DTYPES:
            raise AutodiffError(
                "dtype_not_differentiable",
                f"input {quote(name)} has the dtype {quote(dtype)}; expected one of {', '.join(FLOATING_DTYPES)}",
            )
        try:
            dims = parse_shape(shape, label=f"input {quote(name)}")
        except AutodiffError as error:
            raise ValueError(error.message) from None
        tensor = Tensor(self, name)
        value_id = self._adopt(tensor)
        self._specs[value_id] = self._emit.spec(TensorType(dtype, dims))
        self._inputs[name] = value_id
        return tensor

    def register_value(self, obj: object, value_id: str | None = None) -> str:
        """The value id of `obj`, by identity; a new object gets the next id, or `value_id`.

        Raises TypeError for a bad id, ValueError where the object already has another.
        """
        if value_id is not None:
            _check_id(value_id, "value_id")
        known = self._value_ids.get(id(obj))
        if known is not None:
            if value_id is not None and value_id != known:
                raise ValueError(f"the object is already registered as {quote(known)}, not {quote(value_id)}")
            return known
        return self._adopt(obj, value_id)

    def value_id(self, obj: object) -> str:
        """The id under which `obj` was traced; ValueError for an object of no or another trace."""
        known = self._value_ids.get(id(obj))
        if known is None:
            name = f" (input {quote(obj._name)})" if isinstance(obj, Tensor) and obj._name is not None else ""
            raise ValueError(f"{quote(obj)}{name} was not traced by this builder")
        return known

    def type_of(self, obj: object) -> TensorType | None:
        """The type of a traced object, None if it is untyped; ValueError as for `value_id`."""
        return self._emit.type(self.value_id(obj))

    def record(self, node: TensorNodeRecord) -> None:
        """Appends a node that was built by hand; its types are not checked.

        Raises TypeError for another kind of object, malformed_derivative_ir for an id in it that is no str.
        """
        check_nodes([node], "the trace")
        self._emit.nodes.append(node)
        self._recorded_ids.add(node.node_id)
        for operand in node.input_value_ids:
            self._specs.setdefault(operand, None)
        self._specs[node.output_value_id] = node.output_typespec
        if self._lines is not None:
            self._note_line(self._lines)

    def mark_output(self, obj: object) -> None:
        """Makes a traced object an output of `build()`; marking again changes nothing."""
        self._marked.setdefault(self.value_id(obj))

    def mark_output_value(self, value_id: str) -> None:
        """`mark_output` by id; TypeError for a bad one."""
        self._marked.setdefault(_check_id(value_id, "value_id"))

    def apply(self, operator: type[TensorOperator], operands: Sequence[Tensor], op_params: Mapping[str, Any]) -> Tensor:
        """Records one operation and returns its result: how an operator of your own gets into a trace.

        Raises RuntimeError outside the active trace, and as the operations of Tensor do.
        """
        if self._state != "active":
            raise RuntimeError(f"{quote(operator)} must be applied inside the builder's active trace")
        known = self._value_ids
        operand_ids = [known.get(id(operand)) or self._operand_id(operand) for operand in operands]
        value_id = self._emit.emit(operator, operand_ids, op_params)
        if self._lines is not None:
            self._note_line(self._lines)
        result = Tensor(self)
        known[id(result)] = value_id
        self._objects.append(result)
        return result

    def _note_line(self, lines: dict[str, SourceLine]) -> None:
        line = calling_line()
        if line is not None:
            lines[self._emit.nodes[-1].node_id] = line

    def _operand_id(self, operand: Tensor) -> str:
        """The id of an operand at its first use: a tensor of no trace becomes a free, untyped value of this one."""
        if not isinstance(operand, Tensor):
            raise TypeError(f"an operand must be a Tensor, got {quote(operand)}")
        return self._adopt(operand) if operand._builder is None else self.value_id(operand)

    def _adopt(self, obj: object, value_id: str | None = None) -> str:
        if value_id is None:
            value_id = self._emit.mint_value()
        self._specs.setdefault(value_id, None)
        self._value_ids[id(obj)] = value_id
        self._objects.append(obj)
        if isinstance(obj, Tensor) and obj._builder is None:
            obj._builder = self
        return value_id

    # ----------------------------------------------------------------------------------------------------- artifacts

    def build(self, outputs: object = None) -> TensorGraph:
        """The graph of what was recorded so far.

        With `outputs` (a traced object or a sequence of them) the graph is typed: its inputs are the reachable ones,
        declared ones first, and every reachable value has a complete typespec, or missing_dtype_metadata or
        missing_shape_metadata is raised. Without, nothing is checked and inputs carry no typespec.
        """
        nodes = self._emit.nodes
        if outputs is None:
            marked = list(self._marked) or [node.output_value_id for node in nodes[-1:]]
            return TensorGraph(nodes, [(value_id, None) for value_id in _free_values(nodes)], marked)
        requested = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if not requested:
            raise ValueError("build needs at least one output")
        output_ids = list(dict.fromkeys([self.value_id(output) for output in requested]))
        producers = producer_index(nodes, category="malformed_derivative_ir")
        reachable = needed_by(output_ids, producers)
        free = dict.fromkeys(_free_values(reachable))
        free.update(dict.fromkeys([v for v in output_ids if v not in producers]))
        declared = [value_id for value_id in self._inputs.values() if value_id in free]
        ordered = dict.fromkeys([*declared, *free])
        self._check_typed(sorted(free), reachable)
        return TensorGraph(nodes, [(value_id, self._specs.get(value_id)) for value_id in ordered], output_ids)

    def _check_typed(self, free: list[str], reachable: list[TensorNodeRecord]) -> None:
        for value_id in free:
            if self._emit.type(value_id) is None:
                parse_type(self._specs.get(value_id), label=f"input value {quote(value_id)}")
        for node in reachable:
            if self._emit.type(node.output_value_id) is None:
                parse_type(node.output_typespec, label=f"value {quote(node.output_value_id)}")

    def vjp(
        self, output: object, *, wrt: Sequence[object], seed: str = "seed", graph_id: str | None = None
    ) -> DerivativeProgram:
        """The derivative program of one traced output with respect to traced tensors.

        The seed has the output's type. Raises RuntimeError before the trace has ended well, TypeError or ValueError for
        a wrong `wrt`, and what `generate` raises. May be called again.
        """
        if self._state != "done":
            raise RuntimeError("vjp is available after the trace context has exited successfully")
        if not is_sequence(wrt):
            raise TypeError(f"wrt must be a sequence of traced tensors, got {quote(wrt)}")
        if not wrt:
            raise ValueError("wrt must name at least one tensor")
        wrt_ids: dict[str, None] = {}
        for target in wrt:
            value_id = self.value_id(target)
            if value_id in wrt_ids:
                raise ValueError(f"wrt has a duplicate: {quote(target)} with the value id {quote(value_id)}")
            wrt_ids[value_id] = None
        graph = self.build(outputs=[output])
        (output_id,) = graph.outputs
        type_ = self._emit.type(output_id)
        assert type_ is not None  # a typed build has no untyped output
        return generate(graph, output_id, list(wrt_ids), seed, seed_typespec=typespec(type_), graph_id=graph_id)


def _free_values(nodes: Sequence[TensorNodeRecord]) -> list[str]:
    """The operands that no node produces, in the order of their first use."""
    produced = {node.output_value_id for node in nodes}
    return list(dict.fromkeys([v for node in nodes for v in node.input_value_ids if v not in produced]))


def _check_id(value_id: object, argument: str) -> str:
    if not isinstance(value_id, str) or not value_id:
        raise TypeError(f"{argument} must be a non-empty str, got {quote(value_id)}")
    return value_id
