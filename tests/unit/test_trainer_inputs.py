"""What the inputs of an optimizer are bound to, and the inputs that nobody can bind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steps import spec
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import Optimizer
from trainers import RATE, any_rows, by_hand, data, four_rows, refusal, trainer

# ---------------------------------------------------------------------------------------------------- optimizer inputs


def test_an_optimizer_input_may_be_a_function_of_the_step() -> None:
    arrays, step = data(), any_rows()
    seen = []

    def rate(number: int) -> float:
        seen.append(number)
        return RATE / number

    training = trainer(step, optimizer_inputs={"learning_rate": rate})
    training.fit(arrays, epochs=3)
    assert seen == [1, 2, 3]
    _, parameters, _ = by_hand(step, [arrays] * 3, rate=lambda number: RATE / number)
    np.testing.assert_array_equal(training.parameters["w"], parameters["w"])


def descend(*, parameter: Tensor, gradient: Tensor, rates: Tensor, unread: Tensor) -> Tensor:
    return parameter - rates * gradient


def test_a_number_fills_the_declared_shape_and_an_array_is_cast() -> None:
    inputs = {"rates": spec(3, 1), "unread": spec()}
    step = any_rows(optimizer=descend, optimizer_inputs=inputs)
    given: list[Any] = [RATE, np.full((3, 1), RATE), [[RATE]] * 3, np.float32(RATE), lambda number: [[RATE]] * 3]
    results = []
    for rates in given:
        training = trainer(step, optimizer_inputs={"rates": rates})
        training.fit(data(), epochs=1)
        results.append(training.parameters["w"])
    for result in results:
        np.testing.assert_allclose(result, results[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (None, ["optimizer_inputs", "missing are ['learning_rate']", "**optimizer.step_inputs"]),
        ({"learning_rate": 1.0, "rate": 2.0}, ["unknown ['rate']"]),
        ({"learning_rate": "fast"}, ["'learning_rate'", "f64[]", "'fast'"]),
        ({"learning_rate": np.nan}, ["'learning_rate'", "finite", "nan"]),
        ({"learning_rate": True}, ["'learning_rate'", "True"]),
        ({"learning_rate": [0.1]}, ["'learning_rate'", "f64[]", "[0.1]"]),
        ({"learning_rate": [[1.0], [2.0, 3.0]]}, ["'learning_rate'", "f64[]", "[[1.0], [2.0, 3.0]]", "inhomogeneous"]),
    ],
)
def test_refuses_other_optimizer_inputs(given: Any, parts: list[str]) -> None:
    error = refusal(trainer, optimizer_inputs=given)
    assert error.category == "invalid_training_data"
    for part in parts:
        assert part in error.message


def test_a_function_that_gives_no_number_is_refused_with_its_step() -> None:
    training = trainer(optimizer_inputs={"learning_rate": lambda number: 0.1 if number < 3 else None})
    error = refusal(training.fit, data(), epochs=5)
    assert error.category == "invalid_training_data"
    assert "'learning_rate' of step 3 (epoch 3)" in error.message


class Scaled(Optimizer):
    """Divides the gradients by the sum of all their squares."""

    required_optimizer_inputs = ("learning_rate", "total")
    gradient_inputs = ("total",)

    def from_gradients(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {
            "total": sum([(g * g).sum() for g in gradients.values()], start=next(iter(gradients.values())).sum() * 0)
        }

    def update(  # type: ignore[override]  # a rule names its inputs
        self, *, parameter: Tensor, gradient: Tensor, learning_rate: Tensor, total: Tensor
    ) -> Tensor:
        return parameter - learning_rate * (gradient / total)


def test_inputs_that_follow_from_the_gradients_are_not_the_caller_s() -> None:
    step = any_rows(optimizer=Scaled(), optimizer_inputs={"learning_rate": spec(), "total": spec()})
    arrays = data()
    training = trainer(step)
    training.fit(arrays, epochs=1)
    w = np.full((3, 1), 0.25)
    gradient = 2 * arrays["x"].T @ (arrays["x"] @ w - arrays["y"])
    np.testing.assert_allclose(training.parameters["w"], w - RATE * gradient / np.sum(gradient**2), rtol=1e-12)


# ------------------------------------------------------------------------------------- inputs that a pass has added


def test_refuses_an_input_that_has_no_name() -> None:
    def one_more(graph: TensorGraph) -> TensorGraph:
        nodes = [
            replace(node, node_id="own", input_value_ids=["v4", "more"]) if node.node_id == "n2" else node
            for node in graph.nodes
        ]
        return replace(graph, nodes=nodes, inputs=[*graph.inputs, ("more", spec(4, 1))])

    error = refusal(trainer, four_rows(forward_expansions=[one_more]))
    assert error.category == "invalid_training_declaration"
    assert "'more'" in error.message
    assert "expansion pass" in error.message


def reads_one_more(graph: TensorGraph) -> TensorGraph:
    """A pass that adds an input, of the type of the first, to the first node."""
    first, *others = graph.nodes
    x, *operands = first.input_value_ids
    replaced = replace(first, node_id="own", input_value_ids=["more"] * (1 + len(operands)))
    spec_of = dict(graph.inputs)
    return replace(graph, nodes=[replaced, *others], inputs=[*graph.inputs, ("more", spec_of[x])])


def adds_an_unread_input(graph: TensorGraph) -> TensorGraph:
    return replace(graph, inputs=[*graph.inputs, ("more", spec(3, 1))])


def square(*, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
    return parameter * parameter - gradient * learning_rate


def only_over(operator: str, expansion: Callable[[TensorGraph], TensorGraph]) -> Callable[[TensorGraph], TensorGraph]:
    """The pass where the last node is of this operator, and none elsewhere."""
    return lambda graph: expansion(graph) if graph.nodes[-1].operator.route_name == operator else graph


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": square, "update_expansions": [reads_one_more]},
        {
            "optimizer": Scaled(),
            "optimizer_inputs": {"learning_rate": spec(), "total": spec()},
            "update_expansions": [only_over("add", reads_one_more)],
        },
    ],
    ids=["update", "gradient inputs"],
)
def test_refuses_an_input_of_an_update_that_has_no_name(changes: dict[str, Any]) -> None:
    error = refusal(trainer, any_rows(**changes))
    assert error.category == "invalid_training_declaration"
    assert "reads the input 'more', which an expansion pass added without a name" in error.message


def test_an_input_that_a_pass_adds_and_nothing_reads_may_be() -> None:
    step = any_rows(update_expansions=[adds_an_unread_input])
    assert trainer(step).fit(data(), epochs=1).losses == trainer().fit(data(), epochs=1).losses
