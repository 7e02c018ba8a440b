"""Operations without meaning, graphs and programs of them, and a registry that writes down what it lowers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from by_hand import F32, METADATA
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.lowering import OperationContext, OperationHandlerRegistry


class AnyOperator(TensorOperator):
    """Takes any number of operands."""

    route_name = "any"


class OtherOperator(AnyOperator):
    """A subclass with the route name of its base: another operator all the same."""


def op(
    value_id: Any,
    *operands: Any,
    node_id: Any = None,
    operator: TensorOperator | None = None,
    typespec: Any = F32,
    **op_params: Any,
) -> TensorNodeRecord:
    """A node whose id is its value's with an n in front, unless given."""
    return TensorNodeRecord(
        node_id=f"n_{value_id}" if node_id is None else node_id,
        output_value_id=value_id,
        operator=operator or AnyOperator(),
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=typespec,
    )


def dag(*nodes: TensorNodeRecord, outputs: Any, inputs: Sequence[Any] = ("x",)) -> TensorGraph:
    """A graph whose inputs, where they are given as bare ids, are of the type F32."""
    return TensorGraph(list(nodes), [(entry, F32) if isinstance(entry, str) else entry for entry in inputs], outputs)


def gradient(*nodes: Any, outputs: Any, specs: Any = ()) -> DerivativeProgram:
    """A derivative program; `outputs` are its output gradients."""
    return DerivativeProgram(
        nodes=list(nodes), gradients={}, output_gradients=outputs, metadata=METADATA, value_typespecs=dict(specs)
    )


def chain(length: int) -> TensorGraph:
    """x -> c0 -> c1 -> ..."""
    nodes = [op(f"c{i}", f"c{i - 1}" if i else "x") for i in range(length)]
    return dag(*nodes, outputs=[f"c{length - 1}"])


def fan_in(width: int) -> TensorGraph:
    """`width` independent terms of x, all read by one node."""
    terms = [f"t{i}" for i in range(width)]
    return dag(*[op(term, "x") for term in terms], op("out", *terms), outputs=["out"])


def fan_out(width: int) -> TensorGraph:
    """A value with `width` consumers, each an output."""
    ends = [f"e{i}" for i in range(width)]
    return dag(op("shared", "x"), *[op(end, "shared") for end in ends], outputs=ends)


@st.composite
def dags(draw: st.DrawFn, most: int = 12) -> TensorGraph:
    """Random graphs: shared, repeated and unread values, nodes listed in any order, several outputs."""
    count = draw(st.integers(1, most))
    nodes = []
    known = ["x", "y"]
    for index in range(count):
        operands = draw(st.lists(st.sampled_from(known[-6:]) | st.sampled_from(known), max_size=4))
        nodes.append(op(f"v{index}", *operands))
        known.append(f"v{index}")
    outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    return dag(*draw(st.permutations(nodes)), inputs=["x", "y"], outputs=outputs)


class Recorder:
    """A registry for some operator classes that keeps what its handlers were given.

    A result is the text value(operands) unless `lower` says otherwise.
    """

    def __init__(
        self, *operator_types: type[TensorOperator], lower: Callable[[OperationContext], Any] | None = None
    ) -> None:
        self.contexts: list[OperationContext] = []
        self.registry = OperationHandlerRegistry()
        recorder = self

        class Handler:
            def __init__(self, operator_type: type[TensorOperator]) -> None:
                self.operator_type = operator_type

            def lower(self, context: OperationContext) -> Any:
                recorder.contexts.append(context)
                if lower is not None:
                    return lower(context)
                return f"{context.output_value_id}({', '.join(map(str, context.inputs))})"

        for operator_type in operator_types or (AnyOperator,):
            self.registry.register(Handler(operator_type))

    @property
    def node_ids(self) -> list[str]:
        """The lowered nodes in the order of the calls."""
        return [context.node_id for context in self.contexts]


class Counting:
    """A handler that lowers an operation to its number of operands and keeps nothing, for graphs of any size."""

    def __init__(self, operator_type: type[TensorOperator]) -> None:
        self.operator_type = operator_type

    def lower(self, context: OperationContext) -> int:
        return len(context.inputs)


def counting(*operator_types: type[TensorOperator]) -> OperationHandlerRegistry:
    """A registry of counting handlers."""
    registry = OperationHandlerRegistry()
    for operator_type in operator_types:
        registry.register(Counting(operator_type))
    return registry


def bind_text(dependency: Any) -> Any:
    """A binder whose target values are the value ids."""
    return dependency.value_id
