"""Optimizer inputs that follow from all gradients together: one checked program of a compiled step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from dags import counting
from steps import LAYERS, failure, layers, plain, several, spec
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.operators import OPERATORS, ReshapeOperator, SqrtOperator, SumOperator
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import (
    SGD,
    ClipByGlobalNorm,
    CompiledTrainingStep,
    GradientInputs,
    Optimizer,
    sgd_update,
    trace_parameter_update,
)

NORMED = {"learning_rate": spec(), "gradient_norm": spec()}
SEVERAL = {"loss": layers, "inputs": LAYERS, "parameters": ["u", "b", "w"]}


class Measured(Optimizer):
    """SGD at a rate that a test computes from all gradients."""

    gradient_inputs: ClassVar[Any] = ("size",)
    required_optimizer_inputs: ClassVar[Any] = ("learning_rate", "size")

    def __init__(self, measure: Callable[[Mapping[str, Tensor]], Any]) -> None:
        self.measure = measure

    def update(self, *, parameter: Tensor, gradient: Tensor, **tensors: Tensor) -> Any:
        return parameter - gradient * tensors["learning_rate"] * tensors["size"]

    def from_gradients(self, gradients: Mapping[str, Tensor]) -> Any:
        return self.measure(gradients)


MEASURED = {"learning_rate": spec(), "size": spec()}


def clipped(**changes: Any) -> CompiledTrainingStep:
    return several(**{"optimizer": ClipByGlobalNorm(SGD(), 1.0), "optimizer_inputs": NORMED, **changes})


def inputs_of(step: CompiledTrainingStep) -> GradientInputs:
    assert step.gradient_inputs is not None
    return step.gradient_inputs


def routes(graph: TensorGraph) -> list[str]:
    return [node.operator.route_name for node in graph.nodes]


# ----------------------------------------------------------------------------------------------------- what is compiled


@pytest.mark.parametrize("optimizer", [SGD(), sgd_update])
def test_without_such_inputs_there_is_no_program(optimizer: Any) -> None:
    assert several(optimizer=optimizer).gradient_inputs is None


def test_the_gradients_are_inputs_in_parameter_order() -> None:
    compiled = inputs_of(clipped())
    assert list(compiled.input_value_ids.items()) == [("u", "v0"), ("b", "v1"), ("w", "v2")]
    assert compiled.source_graph.inputs == [("v0", spec(3, 3)), ("v1", spec(1, 3)), ("v2", spec(3, 3))]
    assert [value.value_id for value in compiled.program.dependencies.required_inputs] == ["v0", "v1", "v2"]


def test_the_results_are_found_by_name() -> None:
    def measure(gradients: Mapping[str, Tensor]) -> Any:
        return {"second": gradients["b"].sum(), "size": gradients["u"].sum()}

    class Twice(Measured):
        gradient_inputs = ("size", "second")
        required_optimizer_inputs = ("second", "learning_rate", "size")

    compiled = inputs_of(several(optimizer=Twice(measure), optimizer_inputs={**MEASURED, "second": spec()}))
    assert list(compiled.output_value_ids) == ["size", "second"]
    assert compiled.program.selected_outputs == tuple(compiled.output_value_ids.values())
    assert compiled.output_value_ids["second"] == "v3"


def test_the_program_requires_the_gradients_that_the_rule_reads() -> None:
    optimizer = Measured(lambda gradients: {"size": gradients["b"].sum()})
    compiled = inputs_of(several(optimizer=optimizer, optimizer_inputs=MEASURED))
    assert compiled.source_graph.inputs == [("v1", spec(1, 3))]
    assert list(compiled.input_value_ids) == ["u", "b", "w"]


def test_a_gradient_itself_may_be_the_result() -> None:
    optimizer = Measured(lambda gradients: {"size": gradients["b"]})
    step = several(
        loss=lambda b, w: (b * w).sum(),
        inputs={"b": spec(), "w": spec()},
        parameters=["b", "w"],
        optimizer=optimizer,
        optimizer_inputs=MEASURED,
    )
    assert inputs_of(step).output_value_ids == {"size": "v0"}


def test_symbolic_gradients_and_a_vector_of_them() -> None:
    optimizer = Measured(lambda gradients: {"size": gradients["a"] * gradients["a"]})
    step = plain(
        loss=lambda a: (a * a).sum(),
        inputs={"a": spec("N")},
        parameters=["a"],
        optimizer=optimizer,
        optimizer_inputs={"learning_rate": spec(), "size": spec("N")},
    )
    assert inputs_of(step).source_graph.nodes[-1].output_typespec == spec("N")


def test_it_is_traced_once_and_the_updates_stay_shared() -> None:
    calls = []

    def measure(gradients: Mapping[str, Tensor]) -> Any:
        calls.append({name: tensor.shape for name, tensor in gradients.items()})
        return {"size": gradients["b"].sum()}

    u, b, w = several(optimizer=Measured(measure), optimizer_inputs=MEASURED).parameters
    assert calls == [{"u": (3, 3), "b": (1, 3), "w": (3, 3)}]
    assert u.update is w.update
    assert u.update is not b.update


def test_equal_declarations_give_equal_steps_that_are_plain_data() -> None:
    assert clipped() == clipped()
    data = clipped().to_dict()["gradient_inputs"]
    assert list(data) == ["source_graph", "lowered_graph", "program", "input_value_ids", "output_value_ids"]
    assert data["output_value_ids"] == {"gradient_norm": "v11"}


def test_a_traced_update_takes_the_value_like_any_other_input() -> None:
    traced = trace_parameter_update(
        ClipByGlobalNorm(SGD(), 1.0), parameter=spec(2), gradient=spec(2), optimizer_inputs=NORMED
    )
    assert list(traced.input_value_ids) == ["parameter", "gradient", "learning_rate", "gradient_norm"]


# -------------------------------------------------------------------------------------------------- expansion, lowering


def test_the_update_passes_rewrite_it_too() -> None:
    def without_sums(graph: TensorGraph) -> TensorGraph:
        """Each sum of a matrix, which is over both axes, as a reshape of a sum that keeps them."""
        nodes = []
        for node in graph.nodes:
            if isinstance(node.operator, SumOperator):
                kept = replace(
                    node,
                    node_id=f"{node.node_id}_kept",
                    output_value_id=f"{node.output_value_id}_kept",
                    op_params={**node.op_params, "keepdims": True},
                    output_typespec=spec(1, 1),
                )
                shaped: dict[str, Any] = {"operator": ReshapeOperator(), "op_params": {"shape": []}}
                node = replace(node, node_id=f"{node.node_id}_new", input_value_ids=[kept.output_value_id], **shaped)
                nodes.append(kept)
            nodes.append(node)
        return replace(graph, nodes=nodes)

    compiled = inputs_of(clipped(update_expansions=[without_sums]))
    assert routes(compiled.source_graph) == ["mul", "sum", "mul", "sum", "mul", "sum", "add", "add", "sqrt"]
    assert routes(compiled.lowered_graph).count("reshape") == 3
    assert [operation.source_operators[0].route_name for operation in compiled.program.operations].count("reshape") == 3


def test_a_pass_must_keep_the_results() -> None:
    def emptied(graph: TensorGraph) -> TensorGraph:
        return TensorGraph([], graph.inputs, graph.outputs)

    error = failure(
        **SEVERAL, optimizer=ClipByGlobalNorm(SGD(), 1.0), optimizer_inputs=NORMED, update_expansions=[emptied]
    )
    assert error.category == "expansion_contract_violation"
    assert "at position 0 of the update expansion sequence no longer declares or produces 'v11'" in error.message


def test_a_backend_without_a_square_root_is_told_so() -> None:
    handlers = counting(*[operator for operator in OPERATORS if operator is not SqrtOperator])
    error = failure(**SEVERAL, optimizer=ClipByGlobalNorm(SGD(), 1.0), optimizer_inputs=NORMED, handlers=handlers)
    assert error.category == "unsupported_operator"
    assert "SqrtOperator" in error.message


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "result",
    [
        None,
        (),
        {},
        [("size", None)],
        {"other": None},
        {"size": None, "other": None},
    ],
)
def test_refuses_results_of_other_names(result: Any) -> None:
    error = failure(**SEVERAL, optimizer=Measured(lambda gradients: result), optimizer_inputs=MEASURED)
    assert error.category == "invalid_update_output"
    assert "Measured.from_gradients must return a mapping with the names ['size'], got " in error.message


@pytest.mark.parametrize("value", [None, 1.0, "v0"])
def test_refuses_a_result_that_is_no_tensor(value: Any) -> None:
    error = failure(**SEVERAL, optimizer=Measured(lambda gradients: {"size": value}), optimizer_inputs=MEASURED)
    assert error.category == "invalid_update_output"
    assert f"Measured.from_gradients must return a Tensor as 'size', got {value!r}" in error.message


@pytest.mark.parametrize(
    ("declared", "got"), [(spec(), "f64[1, 3]"), (spec(3), "f64[1, 3]"), (spec(1, 3, dtype="f32"), "f64[1, 3]")]
)
def test_refuses_a_result_of_another_type_than_declared(declared: Any, got: str) -> None:
    error = failure(
        **SEVERAL,
        optimizer=Measured(lambda gradients: {"size": gradients["b"]}),
        optimizer_inputs={**MEASURED, "size": declared},
    )
    assert error.category == "invalid_update_output"
    assert f"size of Measured.from_gradients is {got}, not of the declared type f" in error.message


def test_refuses_a_tensor_of_another_trace() -> None:
    kept: list[Tensor] = []

    def measure(gradients: Mapping[str, Tensor]) -> Any:
        kept.append(gradients["b"].sum())
        return {"size": kept[0]}

    optimizer = Measured(measure)
    several(optimizer=optimizer, optimizer_inputs=MEASURED)
    error = failure(**SEVERAL, optimizer=optimizer, optimizer_inputs=MEASURED)
    assert error.category == "invalid_update_output"
    assert "size of Measured.from_gradients is a tensor of another trace" in error.message


def test_what_it_raises_passes_through() -> None:
    def measure(gradients: Mapping[str, Tensor]) -> Any:
        raise ZeroDivisionError("no size")

    with pytest.raises(ZeroDivisionError, match="no size"):
        several(optimizer=Measured(measure), optimizer_inputs=MEASURED)


def test_the_gradients_cannot_be_changed() -> None:
    def measure(gradients: Any) -> Any:
        gradients["b"] = gradients["u"]

    with pytest.raises(TypeError, match="does not support item assignment"):
        several(optimizer=Measured(measure), optimizer_inputs=MEASURED)


@pytest.mark.parametrize(
    ("attribute", "value", "parts"),
    [
        ("gradient_inputs", "size", ["Measured.gradient_inputs must be a collection of names"]),
        ("gradient_inputs", None, ["Measured.gradient_inputs must be a collection of names"]),
        ("gradient_inputs", ("",), ["Measured.gradient_inputs must hold non-empty str names"]),
        ("gradient_inputs", ("norm",), ["Measured.gradient_inputs names 'norm'", "['learning_rate', 'size']"]),
        ("step_inputs", None, ["Measured.step_inputs must map names", "got None"]),
        ("step_inputs", ("size",), ["Measured.step_inputs must map names", "('size',)"]),
        ("step_inputs", {"size": 3.0}, ["Measured.step_inputs must map names", "functions of the step number"]),
        ("step_inputs", {"norm": float}, ["Measured.step_inputs names 'norm'", "['learning_rate', 'size']"]),
        ("step_inputs", {3: float}, ["Measured.step_inputs names 3"]),
        ("step_inputs", {"size": float}, ["Measured has 'size' among its gradient_inputs and its step_inputs"]),
    ],
)
def test_refuses_names_that_contradict_each_other_before_anything_runs(
    attribute: str, value: Any, parts: list[str]
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("ran")

    bad = type("Measured", (Measured,), {attribute: value})(never)
    error = failure(loss=never, optimizer=bad, optimizer_inputs=MEASURED)
    assert error.category == "invalid_update_signature"
    for part in parts:
        assert part in error.message
    with pytest.raises(AutodiffError) as caught:
        trace_parameter_update(bad, parameter=spec(2), gradient=spec(2), optimizer_inputs=MEASURED)
    assert caught.value == error
