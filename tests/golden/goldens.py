"""The artifacts whose texts are kept: one idea a function, its golden is `<function name>.txt` beside this file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.operators import AddOperator, BroadcastReduceOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

Artifact = TensorGraph | DerivativeProgram

GOLDENS: dict[str, Callable[[], Artifact]] = {}


def golden(build: Callable[[], Artifact]) -> Callable[[], Artifact]:
    """Registers a builder; its name is the golden's."""
    GOLDENS[build.__name__] = build
    return build


# ------------------------------------------------------------------------------------------------------ the notation


class OwnMulOperator(TensorOperator):
    """A user's operator whose route name the package has too."""

    route_name = "mul"


def node(
    number: int, operator: TensorOperator, *operands: str, shape: Sequence[int | str] | None = None, **op_params: Any
) -> TensorNodeRecord:
    """Node n<number> with the value v<number>."""
    return TensorNodeRecord(
        node_id=f"n{number}",
        output_value_id=f"v{number}",
        operator=operator,
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=None if shape is None else {"dtype": "f32", "shape": list(shape)},
    )


@golden
def empty_graph() -> Artifact:
    return TensorGraph(nodes=[], inputs=[], outputs=[])


@golden
def notation_of_ids() -> Artifact:
    """Bare where that is unambiguous, quoted and escaped elsewhere."""
    ids = ["layer.0", "π", "input", "", "a b", '"\\\n', "\u2028", "\ud83d\ude00", "\U0001f600"]
    return TensorGraph(nodes=[], inputs=[(value_id, None) for value_id in ids], outputs=ids[:1])


@golden
def notation_of_values() -> Artifact:
    """Every kind of value keeps its kind."""
    numbers = [0, -1, 2**64, True, None, 0.1, -0.0, 1e300, 5e-324, float("nan"), float("inf"), float("-inf")]
    params: dict[str, Any] = {"numbers": numbers, "text": "mul", "a key": {"nested": [[], {}]}}
    return TensorGraph(nodes=[node(1, OwnMulOperator(), "v0", **params)], inputs=[("v0", None)], outputs=["v1"])


@golden
def notation_of_typespecs() -> Artifact:
    """Dtype and shape alone are short, anything else is spelled out."""
    specs: list[Any] = [
        {"dtype": "f32", "shape": []},
        {"dtype": "f64", "shape": [4, "N"]},
        {"shape": [2]},
        {"dtype": "f32", "shape": None},
        {"dtype": "f32", "shape": [2], "layout": "rows"},
        {},
        None,
    ]
    return TensorGraph(nodes=[], inputs=[(f"v{i}", spec) for i, spec in enumerate(specs)], outputs=[])


@golden
def program_with_its_own_value_table() -> Artifact:
    """A table that does not follow from the nodes is listed in its order; None stands for a gradient that is absent."""
    return DerivativeProgram(
        nodes=[node(1, AddOperator(), "seed", "seed", shape=[2])],
        gradients={"w": "v1"},
        output_gradients=["v1", None],
        metadata=DerivativeMetadata("by hand", "1", "1", ("w", "b"), "seed matches loss"),
        value_typespecs={"w": {"dtype": "f32", "shape": [2]}, "seed": {"dtype": "f32", "shape": [2]}},
    )


# ------------------------------------------------------------------------------------------------------- derivatives


def trace(function: Callable[..., Tensor], *shapes: Sequence[int | str]) -> TensorGraph:
    """The typed graph of a function of inputs of these shapes."""
    with TensorGraphBuilder() as builder:
        inputs = [builder.input(f"x{i}", dtype="f32", shape=shape) for i, shape in enumerate(shapes)]
        return builder.build(outputs=[function(*inputs)])


def gradient(graph: TensorGraph, *wrt: str) -> DerivativeProgram:
    """The gradient of the graph's output, with respect to all its inputs if none is named."""
    targets = list(wrt) or [value_id for value_id, _ in graph.inputs]
    return generate(graph, graph.outputs[0], targets, "seed", graph_id="golden")


def mse(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    residual = x @ w - y
    return (residual * residual).mean()


@golden
def mse_graph() -> Artifact:
    return trace(mse, [4, 3], [4, 1], [3, 1])


@golden
def mse_gradient() -> Artifact:
    """One repeated operand, so two contributions to the residual; the matmul's other operand gets no gradient."""
    return gradient(trace(mse, [4, 3], [4, 1], [3, 1]), "v2")


@golden
def gradient_with_a_symbolic_dim() -> Artifact:
    return gradient(trace(lambda x, w: (x @ w).sum(), ["N", 3], [3, 1]))


@golden
def add_gradient_of_equal_shapes() -> Artifact:
    """Nothing is emitted: both gradients are the seed."""
    return gradient(trace(lambda x, y: x + y, [4, 3], [4, 3]))


@golden
def add_gradient() -> Artifact:
    return gradient(trace(lambda x, y: x + y, [4, 1], [3]))


@golden
def sub_gradient() -> Artifact:
    return gradient(trace(lambda x, y: x - y, [4, 1], [3]))


@golden
def mul_gradient() -> Artifact:
    return gradient(trace(lambda x, y: x * y, [4, 1], [3]))


@golden
def div_gradient() -> Artifact:
    return gradient(trace(lambda x, y: x / y, [4, 1], [3]))


@golden
def div_gradient_of_equal_shapes() -> Artifact:
    return gradient(trace(lambda x, y: x / y, [2], [2]))


@golden
def matmul_gradient() -> Artifact:
    return gradient(trace(lambda x, y: x @ y, [4, 3], [3, 2]))


@golden
def matmul_gradient_of_a_broadcast_batch() -> Artifact:
    return gradient(trace(lambda x, y: x @ y, [5, 4, 3], [3, 2]))


@golden
def sum_gradient() -> Artifact:
    return gradient(trace(lambda x: x.sum(1), [4, 3]))


@golden
def sum_gradient_with_keepdims() -> Artifact:
    return gradient(trace(lambda x: x.sum(1, keepdims=True), [4, 3]))


@golden
def mean_gradient() -> Artifact:
    return gradient(trace(lambda x: x.mean(), [4, 3]))


@golden
def mean_gradient_with_keepdims() -> Artifact:
    return gradient(trace(lambda x: x.mean(keepdims=True), [4, 3]))


@golden
def reshape_gradient() -> Artifact:
    return gradient(trace(lambda x: x.reshape([2, 6]), [4, 3]))


@golden
def transpose_gradient() -> Artifact:
    """The inverse permutation, which is another one."""
    return gradient(trace(lambda x: x.transpose([1, 2, 0]), [4, 3, 2]))


@golden
def broadcast_gradient() -> Artifact:
    return gradient(trace(lambda x: x.broadcast_to([2, 4, 3]), [4, 1]))


@golden
def broadcast_reduce_gradient() -> Artifact:
    x = {"dtype": "f32", "shape": [2, 4, 3]}
    reduction = node(1, BroadcastReduceOperator(), "v0", shape=[4, 1], target_shape=[4, 1])
    return gradient(TensorGraph(nodes=[reduction], inputs=[("v0", x)], outputs=["v1"]))


@golden
def gradient_of_an_expanded_mean() -> Artifact:
    """The gradient flows past the fills, which have no operands."""
    return gradient(expand_mean_graph(trace(lambda x: x.mean(keepdims=True), [4, 3])))


@golden
def sub_literal_gradient() -> Artifact:
    """The gradient is the seed itself."""
    return gradient(trace(lambda x: x - 2.5, [4]))


@golden
def mul_literal_gradient() -> Artifact:
    return gradient(trace(lambda x: x * 2.5, [4]))


@golden
def div_literal_gradient() -> Artifact:
    return gradient(trace(lambda x: x / 2.5, [4]))


@golden
def maximum_gradient() -> Artifact:
    """One sign for both operands."""
    return gradient(trace(lambda x, y: x.maximum(y), [4, 1], [3]))


@golden
def minimum_gradient_of_one_operand() -> Artifact:
    return gradient(trace(lambda x, y: x.minimum(y), [4, 1], [3]), "v1")


@golden
def clip_gradient() -> Artifact:
    """The literal forms of both."""
    return gradient(trace(lambda x: x.clip(-1.0, 1.0), [4]))


@golden
def sqrt_gradient() -> Artifact:
    """It reads the result, as does that of exp."""
    return gradient(trace(lambda x: x.sqrt(), [4]))


@golden
def exp_gradient() -> Artifact:
    return gradient(trace(lambda x: x.exp(), [4]))


@golden
def log_gradient() -> Artifact:
    return gradient(trace(lambda x: x.log(), [4]))


@golden
def sign_gradient() -> Artifact:
    """Zero, and no refusal."""
    return gradient(trace(lambda x: x.sign(), [4]))


@golden
def left_literals() -> Artifact:
    return trace(lambda x: (2.0 - x) + 3.0 / x, [4])


@golden
def square_gradient() -> Artifact:
    """x * x: a contribution from each slot, then one add."""
    return gradient(trace(lambda x: x * x, [4]))


@golden
def accumulation() -> Artifact:
    """Four contributions in creation order, folded from the left."""
    return gradient(trace(lambda x: (x + x * 2.0) + (x * 3.0 + x * 4.0), [4]))


@golden
def two_outputs_two_seeds() -> Artifact:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[4])
        graph = builder.build(outputs=[x * 2.0, x * 3.0])
    return generate(graph, graph.outputs, ["v0"], ["s", "t"], graph_id="golden")


# -------------------------------------------------------------------------------------------------------- expansions


@golden
def mean_expanded() -> Artifact:
    return expand_mean_graph(trace(lambda x: x.mean(), [4, 3]))


@golden
def mean_expanded_with_keepdims() -> Artifact:
    return expand_mean_graph(trace(lambda x: x.mean(keepdims=True), [4, 3]))


@golden
def mse_expanded() -> Artifact:
    return expand_mean_graph(trace(mse, [4, 3], [4, 1], [3, 1]))


@golden
def mean_gradient_expanded() -> Artifact:
    """The reshape before the broadcast stays."""
    return expand_mean_derivative_program(gradient(trace(lambda x: x.mean(), [4, 3])))


@golden
def mean_gradient_expanded_with_keepdims() -> Artifact:
    return expand_mean_derivative_program(gradient(trace(lambda x: x.mean(keepdims=True), [4, 3])))


@golden
def mse_gradient_expanded() -> Artifact:
    return expand_mean_derivative_program(gradient(trace(mse, [4, 3], [4, 1], [3, 1]), "v2"))


@golden
def mse_gradient_expanded_under_another_prefix() -> Artifact:
    program = gradient(trace(mse, [4, 3], [4, 1], [3, 1]), "v2")
    return expand_mean_derivative_program(program, reserved_id_prefix="gx")
