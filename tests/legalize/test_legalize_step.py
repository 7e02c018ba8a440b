"""Legalization as a pass of a compiled training step, alone and between other passes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from legalizing import RANK2, unfit
from steps import compiled, failure, plain, several, spec
from tinychain.autodiff.backends.numpy import NumpyFunction, rank2_registry, reference_registry
from tinychain.autodiff.expansion import (
    Legalize,
    Limits,
    Target,
    expand_mean_derivative_program,
    expand_mean_graph,
    ready_target,
    transpose_by_constants,
)
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import TransposeOperator
from tinychain.autodiff.reverse import joint_graph
from tinychain.autodiff.runner import Trainer
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD, Adam, ClipByGlobalNorm, CompiledTrainingStep
from tinychain.autodiff.verify import verify_step

LEGALIZE = Legalize(RANK2)


def passes(*given: Any, **changes: Any) -> dict[str, Any]:
    """The same passes in all three sequences."""
    sequences = dict.fromkeys(("forward_expansions", "derivative_expansions", "update_expansions"), given)
    return {"handlers": rank2_registry(), **sequences, **changes}


def check(step: CompiledTrainingStep, target: Target = RANK2) -> CompiledTrainingStep:
    """The step itself, if all of it fits and computes what its sources do."""
    forward = step.lowered_forward_graph
    assert unfit(forward, target) == []
    assert unfit(joint_graph(step.lowered_derivative_program, forward_graph=forward), target) == []
    for record in step.parameters:
        assert unfit(record.lowered_update_graph, target) == []
    assert all(verify_step(step, points=()).values())
    return step


def test_one_object_serves_all_three_sequences() -> None:
    step = check(compiled(**passes(LEGALIZE)))
    assert step.provenance.forward_expansions == ("Legalize",)
    assert Legalize(RANK2) == LEGALIZE


def test_a_step_compiles_to_the_same_again() -> None:
    first, second = compiled(**passes(LEGALIZE)), compiled(**passes(LEGALIZE))
    assert first.lowered_forward_graph == second.lowered_forward_graph
    assert first.lowered_derivative_program == second.lowered_derivative_program


def test_several_parameters() -> None:
    step = several(**{key: [LEGALIZE] for key in passes() if key != "handlers"})
    assert verify_step(step, points=())["gradients"]


def test_nothing_to_do_changes_nothing() -> None:
    step = compiled(**passes(Legalize(ready_target("reference")), handlers=reference_registry()))
    assert step.lowered_forward_graph == step.source_forward_graph
    assert step.lowered_derivative_program == step.source_derivative_program


def test_a_step_without_a_transpose_reads_no_dual() -> None:
    def product(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (x * w.reshape([1, 3]).broadcast_to([4, 3])).mean()

    step = check(compiled(**passes(LEGALIZE, loss=product)))
    read = [value.value_id for value in step.derivative.dependencies.declared_inputs]
    assert not any(value_id.endswith(".mT") for value_id in read)


def test_after_the_expansion_of_means() -> None:
    forward = [expand_mean_graph, LEGALIZE]
    derivative = [partial(expand_mean_derivative_program, reserved_id_prefix="gx"), LEGALIZE]
    check(compiled(**{**passes(LEGALIZE), "forward_expansions": forward, "derivative_expansions": derivative}))


def test_before_other_passes() -> None:
    seen = []

    def look(artifact: Any) -> Any:
        seen.append(type(artifact))
        return artifact

    check(compiled(**passes(look, LEGALIZE, look)))
    assert seen == [TensorGraph] * 2 + [DerivativeProgram] * 2 + [TensorGraph] * 2


def test_twice_is_once() -> None:
    once, twice = compiled(**passes(LEGALIZE)), compiled(**passes(LEGALIZE, LEGALIZE))
    assert once.lowered_forward_graph == twice.lowered_forward_graph
    assert once.lowered_derivative_program == twice.lowered_derivative_program


def test_another_machine_after_the_first() -> None:
    wide = Legalize(ready_target("add-mul-matmul"))
    check(compiled(**passes(wide, LEGALIZE)))


def test_a_prefix_of_ones_own() -> None:
    step = check(compiled(**passes(Legalize(RANK2, reserved_id_prefix="own"))))
    ids = {node.node_id for node in step.lowered_forward_graph.nodes}
    assert any(node_id.startswith("ownn") for node_id in ids)


def test_without_duals_by_constants() -> None:
    rules: Any = {TransposeOperator: [transpose_by_constants]}
    step = check(compiled(**passes(Legalize(RANK2, rules=rules, duals=False))))
    assert step.lowered_forward_graph.inputs == step.source_forward_graph.inputs


def test_without_duals_the_transpose_is_refused() -> None:
    error = failure(**passes(Legalize(RANK2, duals=False)))
    assert error.category == "not_legalizable"
    assert "transposed inputs are forbidden" in error.message


def test_a_machine_that_transposes_has_no_duals() -> None:
    machine = Target("chip", {**RANK2.operators, TransposeOperator: Limits()})
    step = plain(**{key: [Legalize(machine)] for key in passes() if key != "handlers"})
    assert step.lowered_forward_graph.inputs == step.source_forward_graph.inputs
    check(step, machine)


def test_a_machine_that_transposes_small_matrices_has_duals_for_others() -> None:
    machine = Target("chip", {**RANK2.operators, TransposeOperator: Limits(max_elements=4)})
    step = plain(**{key: [Legalize(machine)] for key in passes() if key != "handlers"})
    assert ("v0.mT", spec(3, 4)) in step.lowered_forward_graph.inputs
    check(step, machine)


def test_the_gradients_alone_cannot_read_what_the_forward_graph_does_not_declare() -> None:
    error = failure(**{**passes(), "derivative_expansions": [LEGALIZE], "handlers": reference_registry()})
    assert error.category == "not_legalizable"
    assert "read the transposed inputs 'v0.mT', which the forward graph does not declare" in error.message


def test_a_loss_that_does_not_fit_is_refused_before_anything_is_lowered() -> None:
    def root(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (x @ w - y).sqrt().mean()

    error = failure(**passes(LEGALIZE, loss=root))
    assert error.category == "not_legalizable"
    assert "SqrtOperator: a square root is no polynomial; no exact form exists" in error.message


def test_an_optimizer_that_does_not_fit_is_refused() -> None:
    error = failure(
        **passes(
            LEGALIZE,
            optimizer=Adam(),
            optimizer_inputs=dict.fromkeys(Adam().required_optimizer_inputs, spec()),
        )
    )
    assert error.category == "not_legalizable"
    assert "SqrtOperator" in error.message


def test_what_follows_from_all_gradients_is_legalized_too_and_refused() -> None:
    optimizer = ClipByGlobalNorm(SGD(), max_norm=1.0)
    inputs = dict.fromkeys(optimizer.required_optimizer_inputs, spec())
    error = failure(**passes(LEGALIZE, optimizer=optimizer, optimizer_inputs=inputs))
    assert error.category == "not_legalizable"
    assert "(SqrtOperator): add-mul-matmul-rank2 has no SqrtOperator" in error.message
    assert "no exact form exists" in error.message


def test_a_rule_that_breaks_its_promise_is_named() -> None:
    def nothing(emit: Any, node: Any) -> None:
        pass

    error = failure(**passes(Legalize(RANK2, rules={TransposeOperator: [nothing]})))
    assert error.category == "expansion_contract_violation"
    assert "nothing emitted nothing" in error.message


def test_a_loss_that_is_no_scalar() -> None:
    def rows(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return x @ w - y

    check(compiled(**passes(LEGALIZE, loss=rows)))


def test_a_forward_graph_that_is_asked_for() -> None:
    graph = compiled().source_forward_graph
    asked = LEGALIZE.for_forward_graph(graph, graph)
    assert asked == replace(LEGALIZE, forward_graph=graph, source_graph=graph)
    assert LEGALIZE.forward_graph is None


def whitened(*, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
    """An update that reads the gradient transposed."""
    return parameter - (gradient @ gradient.mT @ parameter) * learning_rate


def test_an_update_may_read_its_inputs_transposed() -> None:
    arrays = {name: np.arange(float(np.prod(shape))).reshape(shape) / 9 for name, shape in SHAPES.items()}
    results = []
    for changes in (passes(LEGALIZE), {"handlers": reference_registry()}):
        inputs = {name: spec(*shape) for name, shape in SHAPES.items()}
        step = compiled(loss=squares, inputs=inputs, optimizer=whitened, **changes)
        data = {"x": arrays["x"], "y": arrays["y"]}
        trainer = Trainer(
            step,
            backend=NumpyFunction,
            parameters={"w": arrays["w"]},
            fixed=data,
            optimizer_inputs={"learning_rate": 0.01},
        )
        trainer.fit([{}] * 3, epochs=1)
        results.append(trainer.parameters["w"])
    assert not np.array_equal(results[0], arrays["w"])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10)


SHAPES = {"x": (4, 3), "y": (4, 2), "w": (3, 2)}


def squares(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    residual = x @ w - y
    return (residual * residual).mean()
