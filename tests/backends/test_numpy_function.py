"""What a compiled NumPy function returns and forgets, and what it makes of the handlers of a user."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from running import compiled, only, trace
from tinychain.autodiff.backends.numpy import Array, NumpyFunction, compute, reference_registry
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.lowering import OperationHandlerRegistry, lower_graph
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.tracing import Tensor

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
