"""Which parameters have twins, what is refused, and that a wrong twin is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from steps import declaration, failure
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Legalize
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.inspection import describe, step_depth, summarize, to_html, to_svg
from tinychain.autodiff.operators import MulOperator
from tinychain.autodiff.training import Momentum, Optimizer, compile_training_step
from tinychain.autodiff.verify import verify_step
from twinning import RANK2, SQUARE, compiled, line, names


def test_there_are_none_where_nothing_is_read_transposed() -> None:
    assert compiled(target=None).twins is None
    assert compiled(lambda x, w1: (x * x).mean() + (w1 * w1).mean(), {"x": (8, 5), "w1": (5, 4)}).twins is None


def test_there_are_none_unless_they_are_asked_for() -> None:
    assert compiled(twins=False).twins is None


def test_a_parameter_that_nobody_reads_transposed_has_none() -> None:
    def beside(x: Any, y: Any, w1: Any, w2: Any) -> Any:
        return line(x, y, w1) + (w2.reshape([8]) * w2.reshape([8])).sum()

    def turned(x: Any, y: Any, w1: Any, w2: Any) -> Any:
        return beside(x, y, w1, w2) + (w1.mT @ w1).mean()

    shapes = {**SQUARE, "w2": (4, 2)}
    assert names(compiled(turned, shapes)) == ["w1 transposed"]
    assert compiled(beside, shapes).twins is None


@pytest.mark.parametrize("length", [2, 9])
def test_a_twin_may_need_others_that_nothing_else_needs(length: int) -> None:
    """The gradient of each parameter is the sum of its neighbours, so its transpose is that of theirs."""

    def chain(x: Any, **parameters: Any) -> Any:
        own = list(parameters.values())
        total = (x @ own[0].mT).mean()
        for one, next_ in pairwise(own):
            total = total + (one * next_).sum()
        return total

    shapes = {f"p{index}": (3, 5) for index in range(length)}
    step = compiled(chain, {"x": (8, 5), **shapes})
    assert names(step) == [f"{name} transposed" for name in shapes]
    assert all(verify_step(step, points=()).values())


def test_the_derivative_with_twins_gives_the_same_gradients_and_then_theirs() -> None:
    step = compiled()
    assert step.twins is not None
    gradients = step.derivative.selected_outputs
    assert step.twins.derivative.selected_outputs[: len(gradients)] == gradients
    assert step.lowered_derivative_program == compiled(twins=False).lowered_derivative_program
    for record, *having in step.with_twins():
        for twin in having:
            assert twin.name == f"{record.name} transposed"
            assert twin.gradient_value_id in step.twins.derivative.selected_outputs


# ----------------------------------------------------------------------------------------------------------- refusals


def test_a_twin_that_has_no_exact_form_is_refused_with_the_reason() -> None:
    def reshaped(x: Any, y: Any, w1: Any, w2: Any) -> Any:
        mixed = w1.reshape([2, 5])
        return line(x, y, w1) + (w1.mT @ w1).mean() + (mixed * mixed * w2).sum()

    shapes = {**SQUARE, "w2": (2, 5)}
    assert compiled(reshaped, shapes, twins=False).twins is None
    with pytest.raises(AutodiffError) as caught:
        compiled(reshaped, shapes)
    assert caught.value.category == "not_legalizable"
    assert "the step cannot keep the transposes of 'w1' up to date" in caught.value.message
    assert "transpose by duals" in caught.value.message


class Mixed(Optimizer):
    """Mixes the rows of a parameter by a matrix that is made of its gradient."""

    required_optimizer_inputs = ("mixing",)
    gradient_inputs = ("mixing",)

    def from_gradients(self, gradients: Mapping[str, Any]) -> Any:
        return {"mixing": gradients["w1"] @ gradients["w1"].mT}

    def update(self, *, parameter: Any, gradient: Any, **tensors: Any) -> Any:
        return parameter - tensors["mixing"] @ gradient


def test_what_the_step_computes_for_an_update_and_nobody_transposes_is_refused() -> None:
    with pytest.raises(AutodiffError) as caught:
        compiled(line, SQUARE, optimizer=Mixed(), given={"mixing": (5, 5)})
    assert caught.value.category == "not_legalizable"
    assert "the update of 'w1 transposed' reads the optimizer input 'mixing' transposed" in caught.value.message


def test_a_pass_that_captures_more_for_the_twins_is_named() -> None:
    legal = Legalize(RANK2)

    class Greedy:
        recomputes_captures = True

        def for_forward_graph(self, lowered: TensorGraph, source: TensorGraph) -> Any:
            return lambda program: self.more(legal.for_forward_graph(lowered, source)(program), lowered)

        def more(self, program: DerivativeProgram, forward: TensorGraph) -> DerivativeProgram:
            last = next(node for node in program.nodes if node.output_value_id == program.output_gradients[-1])
            if last.output_value_id in program.gradients.values() and "twin" not in last.output_value_id:
                return program
            first, *_ = forward.nodes
            extra = replace(
                last,
                node_id="more",
                output_value_id="more",
                operator=MulOperator(),
                op_params={},
                input_value_ids=[first.output_value_id] * 2,
                output_typespec=first.output_typespec,
            )
            nodes = [node for node in program.nodes if node is not last]
            return replace(program, nodes=[*nodes, extra, replace(last, input_value_ids=["more"])])

        def __call__(self, program: DerivativeProgram) -> DerivativeProgram:
            return program

    with pytest.raises(AutodiffError) as caught:
        compiled(derivative_expansions=[Greedy()])
    assert caught.value.category == "expansion_contract_violation"
    assert "the gradients of the twins capture 'v" in caught.value.message


def test_twins_is_a_bool() -> None:
    with pytest.raises(TypeError, match="twins must be a bool, got 'yes'"):
        compile_training_step(**declaration(twins="yes"))
    assert failure(twins=True, parameters=[]).category == "invalid_training_declaration"


# -------------------------------------------------------------------------------------------------------- verification


def test_a_step_is_verified_with_its_twins() -> None:
    results = verify_step(compiled(optimizer=Momentum(0.9)), points=())
    assert list(results)[-3:] == ["gradients with twins", "update of w1 transposed", "update of w2 transposed"]
    assert all(results.values())


def test_twins_are_verified_against_a_step_that_has_none() -> None:
    results = verify_step(compiled(target=None), compiled(), points=())
    assert "update of w2 transposed" in results
    assert all(results.values())


def planted(graph: Any) -> Any:
    """The graph or program with its last literal factor doubled."""
    *_, wrong = [node for node in graph.nodes if "right_literal" in node.op_params]
    doubled = replace(wrong, op_params={"right_literal": wrong.op_params["right_literal"] * 2.0})
    return replace(graph, nodes=[doubled if node is wrong else node for node in graph.nodes])


def test_a_wrong_update_of_a_twin_is_found() -> None:
    step = compiled()
    assert step.twins is not None
    first, *others = step.twins.parameters
    wrong = replace(first, lowered_update_graph=planted(first.lowered_update_graph))
    results = verify_step(step, replace(step, twins=replace(step.twins, parameters=(wrong, *others))), points=())
    assert [name for name, result in results.items() if not result] == ["update of w1 transposed"]


def test_a_wrong_gradient_of_a_twin_is_found() -> None:
    step = compiled()
    assert step.twins is not None
    wrong = planted(step.twins.lowered_derivative_program)
    results = verify_step(step, replace(step, twins=replace(step.twins, lowered_derivative_program=wrong)), points=())
    assert [name for name, result in results.items() if not result] == ["gradients with twins"]


# ------------------------------------------------------------------------------------------------------------- figures


def test_twins_cost_no_levels_and_are_shown_by_their_names() -> None:
    with_twins, without = compiled(optimizer=Momentum(0.9)), compiled(optimizer=Momentum(0.9), twins=False)
    depth = step_depth(with_twins)
    assert depth.levels == step_depth(without).levels
    assert depth.parameters["w1 transposed"] == depth.parameters["w1"]
    assert depth.states["w2 transposed"] == depth.states["w2"]
    assert depth.unknown == ()
    text = describe(with_twins)
    assert "update of w1 transposed" in text
    assert "gradient of w2 transposed = twinv1" in text
    assert summarize(with_twins).total.lowered is not None
    assert "w1 transposed" in to_svg(with_twins)
    assert "w1 transposed" in to_html(with_twins)
