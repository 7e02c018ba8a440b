"""The NumPy reference backend: every operator, programs by each way to run them, and what a function checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from running import compiled, only, trace
from strategies import traced_graphs
from tinychain.autodiff.backends.numpy import (
    Array,
    NumpyFunction,
    ReferenceHandler,
    bind_input,
    compute,
    reference_dispatch,
    reference_registry,
)
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import Sample, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.lowering import OperationHandlerRegistry, lower_derivative_program
from tinychain.autodiff.operators import OPERATORS, FillOperator, MulOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.scheduler import ExecutionScheduler
from tinychain.autodiff.text import format_text, parse_text
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

DTYPES: dict[str, Any] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def failure(function: NumpyFunction, arrays: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        function(arrays)
    return caught.value


# ---------------------------------------------------------------------------------------------------- every operator


def test_the_reference_backend_owns_every_operator() -> None:
    assert reference_registry().supported_types() == OPERATORS


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("operator", "sample"),
    [
        pytest.param(operator, sample, id=f"{operator.__name__}")
        for operator in OPERATORS
        for sample in operator.samples
    ],
)
def test_an_operator_computes_what_its_class_says(operator: type[TensorOperator], sample: Sample, dtype: str) -> None:
    op_params = {**sample.op_params, "dtype": dtype} if "dtype" in sample.op_params else dict(sample.op_params)
    inputs = {f"v{i}": {"dtype": dtype, "shape": list(shape)} for i, shape in enumerate(sample.shapes)}
    arrays = [np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(DTYPES[dtype]) for shape in sample.shapes]
    wanted = np.asarray(operator().reference(np, *arrays, **op_params))
    node = TensorNodeRecord(
        node_id="n0",
        output_value_id="out",
        operator=operator(),
        op_params=op_params,
        input_value_ids=list(inputs),
        output_typespec={"dtype": dtype, "shape": list(wanted.shape)},
    )
    got = compiled(TensorGraph([node], list(inputs.items()), ["out"]))(dict(zip(inputs, arrays, strict=True)))["out"]
    assert (got.dtype, got.shape) == (DTYPES[dtype], wanted.shape)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(reference_dispatch(node, arrays), wanted)


class Cube(TensorOperator):
    """An operator of a user's own."""

    route_name = "cube"

    def result_type(self, symbols: Any, *operands: Any, **op_params: Any) -> Any:
        return operands[0]

    def reference(self, xp: Any, *operands: Any, **op_params: Any) -> Any:
        return operands[0] ** 3


def test_an_operator_of_your_own_is_registered_on_top() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[2])
        y = builder.apply(Cube, [x], {}) + x
    registry = reference_registry()
    registry.register(ReferenceHandler(Cube))
    assert only(compiled(builder.build(outputs=[y]), registry)({"v0": np.array([1.0, 2.0])})).tolist() == [2.0, 10.0]


# --------------------------------------------------------------------------------------------- programs, three ways


def gradients_three_ways(graph: TensorGraph, size: int) -> list[list[NDArray[Any]]]:
    """The gradients of a graph's output: lowered with its captures, as a joint graph, and by the scheduler."""
    wrt = [value_id for value_id, _ in graph.inputs]
    (output,) = graph.outputs
    outputs, seeds = [output, *wrt], ["seed", *[f"seed_{value_id}" for value_id in wrt]]
    program = generate(graph, outputs, wrt, seeds)
    values = {}
    for number, value_id in enumerate([*wrt, *seeds]):
        shape = [size if isinstance(dim, str) else dim for dim in program.value_typespecs[value_id]["shape"]]
        values[value_id] = np.random.default_rng(number).uniform(0.5, 1.0, shape)

    lowered = lower_derivative_program(
        program, forward_graph=graph, seed_value_ids=seeds, handlers=reference_registry(), bind_input=bind_input
    )
    captures = [capture.value_id for capture in lowered.dependencies.forward_captures]
    forward = values | (compiled(TensorGraph(graph.nodes, graph.inputs, captures))(values) if captures else {})
    by_program = NumpyFunction(lowered)(forward)
    by_graph = compiled(joint_graph(program, forward_graph=graph))(values)
    scheduled = ExecutionScheduler(reference_dispatch).execute(program, values=forward)
    ids = [str(gradient) for gradient in program.output_gradients]
    return [[by_program[i] for i in ids], [by_graph[i] for i in ids], scheduled.gradients]


def check_the_same(graph: TensorGraph, size: int) -> None:
    """The three ways agree, but for the last bits: of a view with a stride of zero BLAS adds in another order than of a
    contiguous copy, and a capture is such a copy of what the joint graph reads as a view."""
    for position, (one, *others) in enumerate(zip(*gradients_three_ways(graph, size), strict=True)):
        for way, other in zip(("joint", "scheduled"), others, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            # The absolute part is for what cancels: numbers of about 1 that are not quite zero afterwards.
            apart = np.max(np.abs(one - other) / (1.0 + np.abs(one)), initial=0.0)
            assert apart < 1e-13, f"gradient {position}, {way}"


@given(traced_graphs().map(format_text))
def test_lowered_joint_and_scheduled_gradients_are_the_same(text: str) -> None:
    graph = parse_text(text)
    assert isinstance(graph, TensorGraph)
    check_the_same(graph, 3)


def test_a_repeated_operand_of_matmul_gives_the_same_gradients_three_ways() -> None:
    def product(x: Tensor) -> Tensor:
        m = x.mean(axes=[0], keepdims=True).reshape([1, 1])
        return (m @ m.broadcast_to([1, 3])).sum()

    check_the_same(trace(product, [2]), 2)


def test_symbolic_gradients_are_the_same_three_ways() -> None:
    check_the_same(trace(lambda x, w: (x @ w).sum(axes=[0]), ["N", 3], [3, 1]), 5)


def test_the_dispatch_passes_a_refusal_of_its_operator_on() -> None:
    class Mute(TensorOperator):
        route_name = "mute"

    node = TensorNodeRecord(node_id="n0", output_value_id="v1", operator=Mute(), op_params={}, input_value_ids=["v0"])
    with pytest.raises(AutodiffError, match="Mute has no reference meaning") as caught:
        reference_dispatch(node, [np.ones(2)])
    assert caught.value.category == "unsupported_operator"


# ------------------------------------------------------------------------------------------------------------- inputs


def test_runs_again_with_other_arrays() -> None:
    function = compiled(trace(lambda x: x * 2.0, [2]))
    assert only(function({"v0": np.array([1.0, 2.0])})).tolist() == [2.0, 4.0]
    assert only(function({"v0": np.array([3.0, 4.0])})).tolist() == [6.0, 8.0]


def test_takes_lists_and_ignores_what_it_does_not_need() -> None:
    assert only(compiled(trace(lambda x: x * 2.0, [2]))({"v0": [1.0, 2.0], "other": None})).tolist() == [2.0, 4.0]


def test_an_input_that_no_output_needs_need_not_be_given() -> None:
    with TensorGraphBuilder() as builder:
        x, _ = [builder.input(name, dtype="f64", shape=[2]) for name in ("x", "idle")]
        y = x * 2.0
    graph = builder.build(outputs=[y])
    graph = TensorGraph(graph.nodes, [*graph.inputs, ("v1", None)], graph.outputs)
    assert only(compiled(graph)({"v0": np.ones(2)})).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("arrays", [{}, {"v0": None}, {"x": np.ones(2)}])
def test_refuses_a_missing_array(arrays: dict[str, Any]) -> None:
    error = failure(compiled(trace(lambda x: x * 2.0, [2])), arrays)
    assert error.category == "missing_dependency"
    assert "no array for the declared_input 'v0'" in error.message


@pytest.mark.parametrize("arrays", [None, [np.ones(2)], np.ones(2)])
def test_refuses_arrays_without_ids(arrays: Any) -> None:
    with pytest.raises(TypeError, match="expected a mapping from value id to array"):
        compiled(trace(lambda x: x * 2.0, [2]))(arrays)


@pytest.mark.parametrize(("declared", "given"), [("f32", "float64"), ("f64", "float32"), ("f64", "int64")])
def test_refuses_another_dtype(declared: str, given: str) -> None:
    error = failure(compiled(trace(lambda x: x * 2.0, [2], dtype=declared)), {"v0": np.ones(2, given)})
    assert error.category == "dtype_mismatch"
    assert f"the array for 'v0' has dtype {given}; expected {declared}" in error.message


@pytest.mark.parametrize("shape", [(), (3,), (2, 1), (0,)])
def test_refuses_another_shape(shape: tuple[int, ...]) -> None:
    error = failure(compiled(trace(lambda x: x * 2.0, [2])), {"v0": np.ones(shape)})
    assert error.category == "shape_mismatch"
    assert f"the array for 'v0' has shape {list(shape)}; expected [2]" in error.message


@pytest.mark.parametrize("size", [1, 4])
def test_a_symbolic_dim_takes_the_size_of_the_arrays(size: int) -> None:
    function = compiled(trace(lambda x: (x * x).sum(), ["N", 2]))
    assert only(function({"v0": np.ones((size, 2))})) == 2.0 * size


def test_symbolic_params_are_resolved() -> None:
    function = compiled(trace(lambda x, y: x.broadcast_to(["N", 3]) + y, [3], ["N", 3]))
    assert only(function({"v0": np.ones(3), "v1": np.ones((2, 3))})).tolist() == [[2.0] * 3] * 2


def test_refuses_two_sizes_of_one_symbol() -> None:
    error = failure(compiled(trace(lambda x, y: x + y, ["N"], ["N"])), {"v0": np.ones(2), "v1": np.ones(3)})
    assert error.category == "symbolic_shape_mismatch"
    assert "the array for 'v1' has shape [3]; expected ['N']" in error.message


def test_checks_every_input_before_it_computes() -> None:
    calls = []
    registry = OperationHandlerRegistry()

    @registry.handler(MulOperator)
    class Mul:
        def lower(self, context: Any) -> Array:
            return compute(context, lambda *operands: calls.append(operands))

    function = compiled(trace(lambda x, y: (x * x) * y, [2], [2]), registry)
    failure(function, {"v0": np.ones(2), "v1": np.ones(3)})
    assert calls == []


def test_what_numpy_raises_passes_through() -> None:
    function = compiled(trace(lambda x: 1.0 / x, [2]))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        function({"v0": np.zeros(2)})


# --------------------------------------------------------------------------------------------------------- odd numbers


@pytest.mark.parametrize(
    ("op_params", "category"),
    [
        ({"fill": 10**400, "dtype": "f64", "shape": []}, "malformed_derivative_ir"),
        ({"fill": 1.0, "dtype": "i32", "shape": []}, "dtype_not_differentiable"),
    ],
)
def test_a_fill_that_cannot_be_made_is_refused_by_category(op_params: dict[str, Any], category: str) -> None:
    fill = TensorNodeRecord(
        node_id="n0",
        output_value_id="v0",
        operator=FillOperator(),
        op_params=op_params,
        input_value_ids=(),
        output_typespec={"dtype": op_params["dtype"], "shape": []},
    )
    with pytest.raises(AutodiffError) as caught:
        compiled(TensorGraph([fill], [], ["v0"]))({})
    assert caught.value.category == category


@given(st.sampled_from(["+", "-", "*", "/"]), st.sampled_from([float("nan"), float("inf"), -0.0, 5e-324, 2**60]))
def test_odd_literals_compute_what_numpy_computes(sign: str, literal: float) -> None:
    operations: dict[str, Callable[[Any], Any]] = {
        "+": lambda x: x + literal,
        "-": lambda x: x - literal,
        "*": lambda x: x * literal,
        "/": lambda x: x / literal,
    }
    x = np.array([0.0, -1.5, 3.0])
    with np.errstate(all="ignore"):
        got = only(compiled(trace(operations[sign], [3]))({"v0": x}))
        np.testing.assert_array_equal(got, operations[sign](x))
