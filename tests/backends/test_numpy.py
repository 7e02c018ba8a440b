"""The NumPy backends: every operator on the reference one, what a compiled function checks, owns and forgets."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

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
from tinychain.autodiff.lowering import OperationHandlerRegistry, lower_derivative_program, lower_graph
from tinychain.autodiff.operators import OPERATORS, FillOperator, MulOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.scheduler import ExecutionScheduler
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

DTYPES = {"f32": np.float32, "f64": np.float64}


def trace(function: Callable[..., Any], *shapes: list[int | str], dtype: str = "f64") -> TensorGraph:
    """The graph of a function of tensors v0, v1, ... with one result or several."""
    with TensorGraphBuilder() as builder:
        result = function(*[builder.input(f"x{i}", dtype=dtype, shape=shape) for i, shape in enumerate(shapes)])
    return builder.build(outputs=result)


def compiled(graph: TensorGraph, handlers: OperationHandlerRegistry | None = None) -> NumpyFunction:
    return NumpyFunction(lower_graph(graph, handlers=handlers or reference_registry(), bind_input=bind_input))


def only(results: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    (result,) = results.values()
    return result


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


# ------------------------------------------------------------------------------------------- programs, three ways to run


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

    everything = TensorGraph(graph.nodes, graph.inputs, [node.output_value_id for node in graph.nodes])
    forward = {**values, **compiled(everything)(values)} if graph.nodes else values
    lowered = lower_derivative_program(
        program, forward_graph=graph, seed_value_ids=seeds, handlers=reference_registry(), bind_input=bind_input
    )
    by_program = NumpyFunction(lowered)(forward)
    by_graph = compiled(joint_graph(program, forward_graph=graph))(values)
    scheduled = ExecutionScheduler(reference_dispatch).execute(program, values=forward)
    ids = [str(gradient) for gradient in program.output_gradients]
    return [[by_program[i] for i in ids], [by_graph[i] for i in ids], scheduled.gradients]


@given(traced_graphs())
def test_lowered_joint_and_scheduled_gradients_are_the_same(graph: TensorGraph) -> None:
    for one, other, third in zip(*gradients_three_ways(graph, 3), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


def test_symbolic_gradients_are_the_same_three_ways() -> None:
    graph = trace(lambda x, w: (x @ w).sum(axes=[0]), ["N", 3], [3, 1])
    for one, other, third in zip(*gradients_three_ways(graph, 5), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


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


# ------------------------------------------------------------------------------------------------------------ results


def results_of(*functions: Callable[[Any], Any]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """An input array and the results of several functions of it, in one program."""
    x = np.ones((2, 2))
    graph = trace(lambda tensor: [function(tensor) for function in functions], [2, 2])
    results = compiled(graph)({"v0": x})
    return x, [results[output] for output in graph.outputs]


def test_results_are_nobody_else_s_arrays() -> None:
    x, results = results_of(lambda x: x, lambda x: x.T, lambda x: x.reshape(4), lambda x: x.broadcast_to([2, 2]))
    for result in results:
        result += 1.0
        result *= 2.0
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert [float(result.ravel()[0]) for result in results] == [4.0] * 4


def test_a_result_and_a_view_of_it_are_apart() -> None:
    def product_and_view(x: Tensor) -> list[Tensor]:
        product = x * 2.0
        return [product, product.T]

    results = compiled(trace(product_and_view, [2, 2]))({"v0": np.ones((2, 2))})
    first, second = results.values()
    first += 1.0
    assert second.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_scalar_result_is_an_array() -> None:
    _, (total,) = results_of(lambda x: x.sum())
    assert isinstance(total, np.ndarray)
    assert (total.shape, float(total)) == ((), 4.0)


def test_results_are_by_id_in_the_order_of_the_outputs() -> None:
    graph = trace(lambda x: [x * 3.0, x, x * 2.0], [1])
    assert {name: result.tolist() for name, result in compiled(graph)({"v0": np.ones(1)}).items()} == {
        "v1": [3.0],
        "v0": [1.0],
        "v2": [2.0],
    }
    assert list(compiled(graph)({"v0": np.ones(1)})) == graph.outputs


def test_inputs_are_not_written_to() -> None:
    x = np.ones((2, 2))
    x.flags.writeable = False
    graph = trace(lambda x: ((x @ x.T) * x - x / 2.0).mean(), [2, 2])
    compiled(graph)({"v0": x})


# ----------------------------------------------------------------------------------------------------------- liveness


def largest_number_alive(graph: TensorGraph) -> int:
    """How many results of multiplications are alive at most when another one has been computed."""
    made: list[weakref.ref[NDArray[Any]]] = []
    alive = []

    def times(x: NDArray[Any], y: NDArray[Any] | None = None) -> NDArray[Any]:
        result = x * (2.0 if y is None else y)
        made.append(weakref.ref(result))
        alive.append(sum(array() is not None for array in made))
        return result

    registry = reference_registry()
    counting = OperationHandlerRegistry()
    for operator in registry.supported_types():
        if operator is not MulOperator:
            counting.register(registry.lookup(operator))

    @counting.handler(MulOperator)
    class Mul:
        def lower(self, context: Any) -> Array:
            return compute(context, times)

    compiled(graph, counting)({"v0": np.ones(2)})
    assert len(alive) == len(graph.nodes)
    return max(alive)


def test_an_intermediate_is_forgotten_after_its_last_use() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(50):
            x = x * 2.0
        return x

    assert largest_number_alive(trace(chain, [2])) == 2


def test_an_intermediate_lives_until_its_last_use() -> None:
    def late(x: Tensor) -> Tensor:
        first = y = x * 2.0
        for _ in range(10):
            y = y * 2.0
        return y * first

    assert largest_number_alive(trace(late, [2])) == 3


def test_outputs_live() -> None:
    def outputs(x: Tensor) -> list[Tensor]:
        made = [x]
        for _ in range(5):
            made.append(made[-1] * 2.0)
        return made

    assert largest_number_alive(trace(outputs, [2])) == 5


def test_what_nobody_reads_is_not_computed() -> None:
    graph = trace(lambda x: [x * 2.0, x * 3.0], [2])
    assert len(compiled(TensorGraph(graph.nodes, graph.inputs, graph.outputs[:1]))({"v0": np.ones(2)})) == 1


# ------------------------------------------------------------------------------------------------ handlers of your own


def with_mul(lower: Callable[[Any], Any]) -> OperationHandlerRegistry:
    registry = OperationHandlerRegistry()

    @registry.handler(MulOperator)
    class Mul:
        def lower(self, context: Any) -> Any:
            return lower(context)

    return registry


def test_a_handler_may_pass_an_operand_on() -> None:
    graph = trace(lambda x: [x, x * 1.0, (x * 1.0) * 1.0], [2])
    x = np.ones(2)
    results = compiled(graph, with_mul(lambda context: context.inputs[0]))({"v0": x})
    for result in results.values():
        result += 1.0
    assert x.tolist() == [1.0, 1.0]
    assert [result.tolist() for result in results.values()] == [[2.0, 2.0]] * 3


def test_a_function_may_return_its_operand() -> None:
    x = np.ones(2)
    result = only(compiled(trace(lambda x: x * 1.0, [2]), with_mul(lambda c: compute(c, lambda x: x)))({"v0": x}))
    result += 1.0
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("lower", "part"),
    [
        (lambda context: 3, "was lowered to 3; lower with this backend's handlers"),
        (lambda context: Array(None), "is not a function of values computed before it"),
        (lambda context: Array(None, np.negative, [Array(None)]), "is not a function of values computed before it"),
    ],
)
def test_refuses_a_target_value_that_it_cannot_run(lower: Callable[[Any], Any], part: str) -> None:
    graph = trace(lambda x: x * 2.0, [2])
    with pytest.raises(AutodiffError, match="value 'v1'") as caught:
        compiled(graph, with_mul(lower))
    assert caught.value.category == "handler_contract_violation"
    assert part in caught.value.message


def test_refuses_inputs_that_another_binder_bound() -> None:
    program = lower_graph(trace(lambda x: x * 2.0, [2]), handlers=reference_registry())
    with pytest.raises(AutodiffError, match="value 'v0' was lowered to ValueDependency") as caught:
        NumpyFunction(program)
    assert caught.value.category == "handler_contract_violation"


def test_refuses_one_array_for_two_inputs() -> None:
    shared = Array(None)
    program = lower_graph(
        trace(lambda x, y: x + y, [2], [2]), handlers=reference_registry(), bind_input=lambda dependency: shared
    )
    with pytest.raises(AutodiffError, match="two inputs were bound to the same Array"):
        NumpyFunction(program)


def test_refuses_what_is_no_lowered_program() -> None:
    with pytest.raises(TypeError, match="expected a LoweredProgram, got"):
        NumpyFunction(trace(lambda x: x * 2.0, [2]))  # type: ignore[arg-type]


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
