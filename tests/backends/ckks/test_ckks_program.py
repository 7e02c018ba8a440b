"""A step, linked several times over, against the NumPy backend; what is secret in it, and what is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ckks_steps import MODELS, Model, arrays_for, compiled, linked, outputs, refusal, trained_on_numpy
from dags import counting
from tinychain.autodiff.backends.ckks.handlers import Handler, Term, bind_input, ckks_registry
from tinychain.autodiff.backends.ckks.program import Operation, Program, link
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Legalize, ready_target
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.lowering import OperationHandlerRegistry
from tinychain.autodiff.operators import (
    OPERATORS,
    BroadcastOperator,
    BroadcastReduceOperator,
    MulOperator,
    SumOperator,
)
from tinychain.autodiff.training import SGD
from tinychain.autodiff.types import TensorType

LINEAR = MODELS["linear"]


def named(program: Program, route: str) -> list[Operation]:
    return [o for o in program.operations if o.operator is not None and o.operator.route_name == route]


def with_loss(loss: Any, **changes: Any) -> Model:
    return LINEAR._replace(loss=loss, optimizer=SGD(), **changes)


# ---------------------------------------------------------------------------------------------- what a program computes


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_program_computes_what_the_step_does(name: str, steps: int) -> None:
    model = MODELS[name]
    arrays = arrays_for(model)
    found = outputs(linked(model, steps=steps, loss=True), arrays)
    expected = trained_on_numpy(model, arrays, 0.05, steps)
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert_allclose(found[key], array, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("secret", [["x"], ["y"], ["w"], ["x", "y"], ["w", "b"]], ids=" ".join)
def test_what_is_secret_does_not_change_what_is_computed(secret: list[str]) -> None:
    arrays = arrays_for(LINEAR)
    found = outputs(linked(LINEAR, secret=secret, known={}), {**arrays, "learning_rate": np.array(0.05)})
    expected = trained_on_numpy(LINEAR, arrays, 0.05, 1)
    assert "loss" not in found
    for key, array in found.items():
        assert_allclose(array, expected[key], rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_legalized_for_matrices_alone_is_linked_too(name: str) -> None:
    """It binds transposed data and parameters, which the program transposes."""
    model = MODELS[name]
    step = compiled(model, passes=[Legalize(ready_target("add-mul-matmul-rank2"))])
    arrays = arrays_for(model)
    found = outputs(link(step, secret=["x"], known={"learning_rate": 0.05}, steps=2), arrays)
    expected = trained_on_numpy(model, arrays, 0.05, 2)
    for key, array in found.items():
        assert_allclose(array, expected[key], rtol=1e-12)


def test_operations_stand_after_their_operands() -> None:
    program = linked(MODELS["network"], steps=2)
    for position, operation in enumerate(program.operations):
        assert operation.position == position
        assert all(operand < position for operand in operation.operands)


def test_what_no_result_needs_is_left_out() -> None:
    with_, without = linked(LINEAR, loss=True), linked(LINEAR)
    assert len(with_.operations) > len(without.operations)
    read = {operand for operation in without.operations for operand in operation.operands}
    assert read | {*without.outputs.values()} == {*range(len(without.operations))}


def test_operations_say_what_they_are() -> None:
    labels = [operation.label for operation in linked(LINEAR, known={}, steps=2).operations]
    assert labels[:4] == ["input 'x'", "input 'y'", "parameter 'w'", "state 'w.velocity'"]
    assert "optimizer input 'learning_rate'" in labels
    assert "matmul 'v4' of the forward program in step 1" in labels
    assert "sub 'v7' of the update of 'b' in step 2" in labels


def test_parameters_that_share_an_update_are_named_together() -> None:
    model = Model(lambda x, v, w: (x * v * w).mean(), {"x": (3, 2), "v": (3, 2), "w": (3, 2)}, ["v", "w"], SGD())
    assert any("of the update of 'v' and 'w' in step 1" in operation.label for operation in linked(model).operations)


# ------------------------------------------------------------------------------------------------------ what is secret


def test_what_is_trained_is_secret_where_it_becomes_so() -> None:
    program = linked(LINEAR, secret=["y"])
    secret = {name for name, position in program.inputs.items() if program.operations[position].secret}
    assert secret == {"y", "w", "w.velocity", "b", "b.velocity"}
    assert program.inputs.keys() - secret == {"x"}


def test_the_states_of_a_secret_parameter_are_secret() -> None:
    program = linked(LINEAR, secret=["w"])
    assert program.operations[program.inputs["w.velocity"]].secret


def test_a_result_is_secret_where_an_operand_is() -> None:
    program = linked(MODELS["network"], secret=["x"], known={})
    for operation in program.operations:
        if operation.operands:
            assert operation.secret == any(program.operations[operand].secret for operand in operation.operands)


# ------------------------------------------------------------------------------------------------------- what is known


def test_what_is_known_is_computed_at_once() -> None:
    (scale,) = {o.uniform for o in linked(LINEAR).operations if o.label.startswith("mul 'd")} - {None}
    assert scale == pytest.approx(2 / 12 / 2)
    for operation in linked(LINEAR).operations:
        if operation.known is not None:
            assert not operation.secret
            assert operation.operands == ()
            assert operation.known.dtype == np.float64
            assert not operation.known.flags.writeable


def test_a_known_input_is_no_input_of_the_program() -> None:
    assert "learning_rate" in linked(LINEAR, known={}).inputs
    program = linked(LINEAR)
    assert "learning_rate" not in program.inputs
    (rate,) = [operation for operation in program.operations if operation.name == "learning_rate"]
    assert rate.uniform == 0.05


def test_a_known_array_need_not_be_uniform() -> None:
    x = np.arange(60.0).reshape(12, 5)
    program = linked(LINEAR, secret=["y"], known={"x": x, "learning_rate": 0.05})
    (known,) = [operation for operation in program.operations if operation.name == "x"]
    assert known.uniform is None
    assert_array_equal(known.known, x)
    (transposed,) = named(program, "transpose")
    assert_array_equal(transposed.known, x.T)


def test_a_known_number_fills_the_declared_shape() -> None:
    program = linked(LINEAR, secret=["x"], known={"y": 1, "learning_rate": 0.05})
    (known,) = [operation for operation in program.operations if operation.name == "y"]
    assert known.uniform == 1.0
    assert known.shape == (12, 1)


def test_f32_constants_are_known_as_they_are_rounded() -> None:
    step = compiled(LINEAR, dtype="f32")
    program = link(step, secret=["x"], known={})
    assert {o.known.dtype for o in program.operations if o.known is not None} == {np.dtype(np.float64)}


# -------------------------------------------------------------------------------------------------- what is known zero


def zero_model(zero: Any) -> Model:
    """A loss that is squared residuals plus a term which `zero` makes of the prediction."""

    def loss(x: Any, y: Any, w: Any, b: Any) -> Any:
        prediction = x @ w + b
        residual = prediction - y + zero(prediction)
        return (residual * residual).mean()

    return with_loss(loss)


@pytest.mark.parametrize(
    "zero",
    [
        lambda z: z - z,
        lambda z: z * 0.0,
        lambda z: (z * 0.0) * z,
        lambda z: (z - z) @ (z.T @ z),
        lambda z: (z * -0.0).T.reshape(z.shape),
    ],
    ids=["x - x", "times literal 0", "times known zeros", "matmul with zeros", "zeros moved"],
)
def test_what_is_zero_whatever_the_secrets_is_known(zero: Any) -> None:
    model = zero_model(zero)
    program = linked(model, loss=True)
    arrays = arrays_for(model)
    for operation in program.operations:
        if operation.secret and operation.operands:
            zeros = [position for position in operation.operands if program.operations[position].uniform == 0]
            assert not zeros or operation.operator.route_name in ("add", "sub")  # type: ignore[union-attr]
    expected = trained_on_numpy(model, arrays, 0.05, 1)
    for key, array in outputs(program, arrays).items():
        assert_allclose(array, expected[key], rtol=1e-12)


def test_two_equal_tensors_that_are_two_operations_are_not_known_to_be_zero() -> None:
    model = zero_model(lambda z: z * 2.0 - z * 2.0)
    assert [o for o in named(linked(model, loss=True), "sub") if len({*o.operands}) == 2 and o.secret]


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("steps", [0, -1, True, 1.5, "2", None])
def test_a_wrong_number_of_steps_is_refused(steps: Any) -> None:
    error = refusal(LINEAR, steps=steps)
    assert error.category == "invalid_encryption_plan"
    assert f"steps: expected an int of at least 1, got {steps!r}" in error.message


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"secret": ["x", "z"]}, "secret: 'z' cannot be secret; expected names among ['x', 'y', 'w', 'b']"),
        ({"secret": ["w.velocity"]}, "secret: 'w.velocity' cannot be secret"),
        ({"secret": ["learning_rate"]}, "secret: 'learning_rate' cannot be secret"),
        ({"secret": "x"}, "secret: expected a collection of names, got 'x'"),
        ({"secret": 3}, "secret: expected a collection of names, got 3"),
        ({"known": {"w": 1.0}}, "known: 'w' cannot be known; expected names among ['x', 'y', 'learning_rate']"),
        ({"known": ["learning_rate"]}, "known: expected a mapping of names to values"),
        ({"known": {"x": 1.0}}, "'x' is declared secret and known"),
        ({"known": {"learning_rate": "a"}}, "known 'learning_rate': expected a finite number"),
        ({"known": {"learning_rate": True}}, "for f64[], got one of dtype bool and shape []"),
        ({"known": {"learning_rate": [0.1, 0.2]}}, "for f64[], got one of dtype float64 and shape [2]"),
        ({"known": {"learning_rate": float("nan")}}, "not all are finite"),
        ({"secret": ["x"], "known": {"y": [[1.0], [2.0, 3.0]]}}, "NumPy makes no array of it"),
    ],
)
def test_a_wrong_declaration_is_refused(declaration: dict[str, Any], message: str) -> None:
    error = refusal(LINEAR, **declaration)
    assert error.category == "invalid_encryption_plan"
    assert message in error.message


def test_a_parameter_that_depends_on_no_secret_is_refused() -> None:
    model = with_loss(lambda x, y, w, b: (x @ w).mean() + (y * b).mean())
    error = refusal(model, secret=["y"], known={"learning_rate": 0.1})
    assert error.category == "invalid_encryption_plan"
    assert "the new parameter 'w' depends on no secret, so nothing needs encryption; secret are ['y']" in error.message


def test_without_a_secret_nothing_is_linked() -> None:
    assert "depends on no secret" in refusal(LINEAR, secret=[]).message


def test_a_loss_that_depends_on_no_secret_is_refused() -> None:
    model = with_loss(lambda x, y, w, b: ((x @ w + b - y) * 0.0).mean())
    error = refusal(model, loss=True, secret=["w", "b"])
    assert "the loss depends on no secret" in error.message


def test_a_known_value_that_is_not_finite_is_refused_with_its_label() -> None:
    model = with_loss(lambda x, y, w, b: ((x * 1e308 * 1e308) @ w + b - y).mean())
    error = refusal(model, secret=["y"], known={"x": 1.0})
    assert error.category == "invalid_encryption_plan"
    assert "of the forward program in step 1 is known when the step is planned, and not finite" in error.message


def test_a_name_for_two_inputs_is_refused() -> None:
    shapes = {"learning_rate": (12, 5), "w": (5, 1)}
    model = Model(lambda learning_rate, w: (learning_rate @ w).mean(), shapes, ["w"], SGD())
    assert "'learning_rate' is the name of an input and of an optimizer input" in refusal(model, secret=["w"]).message


def test_a_parameter_called_loss_excludes_the_loss() -> None:
    model = Model(lambda x, loss: (x @ loss).mean(), {"x": (12, 5), "loss": (5, 1)}, ["loss"], SGD())
    assert "rename it" in refusal(model, secret=["x"], loss=True).message
    assert linked(model, loss=False).outputs.keys() == {"loss"}


def test_a_step_of_another_backend_is_refused() -> None:
    step = compiled(LINEAR, bind_input=None, handlers=counting(*OPERATORS))
    with pytest.raises(AutodiffError, match=r"compile the step with ckks_registry\(\) and its bind_input") as caught:
        link(step, secret=["x"], known={})
    assert caught.value.category == "handler_contract_violation"


def test_a_term_on_values_that_were_not_lowered_is_refused() -> None:
    registry = ckks_registry()
    stray = Term(None, {}, (), TensorType("f64", ()))

    class Stray:
        operator_type: type[TensorOperator] = SumOperator

        def lower(self, context: Any) -> Term:
            return Term(MulOperator(), {"right_literal": 2.0}, (stray,), stray.type)

    registry.register(Stray())
    model = with_loss(lambda x, y, w, b: ((x @ w + b - y) * 0.5).sum())
    step = compiled(model, passes=[], handlers=_with_broadcast(registry))
    with pytest.raises(AutodiffError, match="a Term on others than the values before it") as caught:
        link(step, secret=["x"], known={})
    assert caught.value.category == "handler_contract_violation"


def _with_broadcast(registry: OperationHandlerRegistry) -> OperationHandlerRegistry:
    """Handlers also for what the derivative of a sum has, so that lowering gets through."""
    for operator_type in (BroadcastOperator, BroadcastReduceOperator):
        registry.register(Handler(operator_type))
    return registry


def test_one_term_for_two_inputs_is_refused() -> None:
    terms: dict[Any, Term] = {}

    def bind(dependency: Any) -> Term:
        return terms.setdefault(dependency.shape, bind_input(dependency))

    model = with_loss(lambda x, y, w, b: (x * y * w).mean(), shapes=dict.fromkeys("xywb", (3, 1)), parameters=["w"])
    with pytest.raises(AutodiffError, match="two inputs were bound to the same Term"):
        link(compiled(model, bind_input=bind), secret=["x"], known={})


def test_a_step_with_transposed_twins_is_refused() -> None:
    step = compiled(MODELS["network"], passes=[Legalize(ready_target("add-mul-matmul-rank2"))], twins=True)
    assert step.twins is not None
    with pytest.raises(AutodiffError, match="compile it with twins=False") as caught:
        link(step, secret=["x"], known={})
    assert caught.value.category == "invalid_encryption_plan"


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a CompiledTrainingStep"):
        link("step", secret=["x"], known={})  # type: ignore[arg-type]
