"""The compiled step as a record: what is in it, in which order, under which ids, and how it was lowered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial
from typing import Any

import pytest

from dags import counting
from fusing import Hook
from steps import HANDLERS, failure, mse, plain, several, spec
from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import DerivativeProgram, TensorOperator
from tinychain.autodiff.lowering import lower_derivative_program, lower_graph
from tinychain.autodiff.lowering.walk import lower_analysed
from tinychain.autodiff.operators import OPERATORS, MulOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder, get_active_builder
from tinychain.autodiff.training import (
    SGD,
    CompiledTrainingStep,
    Momentum,
    ParameterCompilation,
    TrainingStepProvenance,
    trace_parameter_update,
)

# -------------------------------------------------------------------------------------------------------------- records


def test_a_step_prints_what_it_trains() -> None:
    assert repr(several()) == "<CompiledTrainingStep of u, b, w by SGD, inputs x, w, b, u>"


def test_is_what_the_stages_give() -> None:
    with TensorGraphBuilder() as builder:
        x, y = builder.input("x", dtype="f64", shape=[4, 3]), builder.input("y", dtype="f64", shape=[4, 1])
        loss = mse(x, y, builder.input("w", dtype="f64", shape=[3, 1]))
    graph = builder.build(outputs=[loss])
    program = generate(graph, "v6", ["v2"], "tsv0")
    update = trace_parameter_update(
        SGD(), parameter=spec(3, 1), gradient=spec(3, 1), optimizer_inputs={"learning_rate": spec()}
    )
    lower = partial(lower_graph, handlers=HANDLERS)

    step = plain()
    assert step.source_forward_graph == graph
    assert step.source_derivative_program == program
    assert step.forward == lower(graph, outputs=["v6", "v4"])
    assert step.derivative == lower_derivative_program(
        program, forward_graph=graph, seed_value_ids=["tsv0"], handlers=HANDLERS
    )
    assert step.input_value_ids == {"x": "v0", "y": "v1", "w": "v2"}
    assert step.loss_value_id == "v6"
    assert step.forward_capture_value_ids == ("v4",)
    assert step.seed_value_ids == ("tsv0",)
    assert step.parameters == (
        ParameterCompilation(
            name="w",
            value_id="v2",
            gradient_value_id=program.gradients["v2"],
            source_update_graph=update.graph,
            lowered_update_graph=update.graph,
            update=lower(update.graph),
            update_input_value_ids={"parameter": "v0", "gradient": "v1", "learning_rate": "v2"},
            updated_parameter_value_id="v4",
        ),
    )
    assert step.provenance == TrainingStepProvenance(
        source_graph_id=program.metadata.source_graph_id,
        transform_version=program.metadata.transform_version,
        tensor_op_contract_version=program.metadata.tensor_op_contract_version,
        wrt_signature=("v2",),
        parameter_names=("w",),
        input_names=("x", "y", "w"),
        seed_value_ids=("tsv0",),
        seed_label="seed",
        optimizer_label="SGD",
        optimizer_input_names=("learning_rate",),
        forward_expansions=(),
        derivative_expansions=(),
        update_expansions=(),
    )


def test_fields_come_in_this_order() -> None:
    assert [field.name for field in fields(CompiledTrainingStep)] == (
        "source_forward_graph source_derivative_program lowered_forward_graph lowered_derivative_program forward"
        " derivative input_value_ids loss_value_id forward_capture_value_ids seed_value_ids parameters provenance"
        " gradient_inputs twins"
    ).split()
    assert [field.name for field in fields(ParameterCompilation)][:8] == (
        "name value_id gradient_value_id source_update_graph lowered_update_graph update update_input_value_ids"
        " updated_parameter_value_id"
    ).split()


def test_records_are_frozen_and_their_mappings_read_only() -> None:
    step = plain(optimizer=Momentum())
    for record, name in ((step, "loss_value_id"), (step.parameters[0], "name"), (step.provenance, "seed_label")):
        with pytest.raises(FrozenInstanceError):
            setattr(record, name, "other")
    record = step.parameter("w")
    mappings: list[Any] = [step.input_value_ids, record.update_input_value_ids, record.updated_state_value_ids]
    for mapping in mappings:
        with pytest.raises(TypeError):
            mapping["x"] = "other"


def test_records_can_be_replaced_and_written_as_json() -> None:
    step = several(optimizer=Momentum())
    assert replace(step.provenance, seed_label="other").seed_label == "other"
    written = json.loads(json.dumps(step.to_dict()))
    assert list(written) == [field.name for field in fields(step)]
    assert written["provenance"]["wrt_signature"] == ["v3", "v2", "v1"]
    assert written["parameters"][0]["updated_state_value_ids"] == dict(step.parameters[0].updated_state_value_ids)


def test_equal_declarations_give_equal_records() -> None:
    assert several() == several()
    assert several(optimizer=Momentum(0.5)) == several(optimizer=Momentum(0.5))
    assert several() != several(seed_label="other")
    assert several() != several(parameters=["w", "b", "u"])


def test_four_orders_agree() -> None:
    step = several()
    assert step.provenance.parameter_names == ("u", "b", "w")
    assert [record.name for record in step.parameters] == ["u", "b", "w"]
    assert step.provenance.wrt_signature == tuple([record.value_id for record in step.parameters]) == ("v3", "v2", "v1")
    gradients = step.source_derivative_program.gradients
    assert step.derivative.selected_outputs == tuple([gradients[record.value_id] for record in step.parameters])
    assert step.derivative.selected_outputs == tuple([record.gradient_value_id for record in step.parameters])


def test_parameters_may_share_a_gradient() -> None:
    step = plain(loss=lambda a, b: (a + b).sum(), inputs={"a": spec(2), "b": spec(2)}, parameters=["b", "a"])
    b, a = step.parameters
    assert a.gradient_value_id == b.gradient_value_id
    assert step.derivative.selected_outputs == (a.gradient_value_id,)


def test_a_parameter_is_found_by_name() -> None:
    step = several()
    assert step.parameter("b") is step.parameters[1]
    for name in ("x", "", 3):
        with pytest.raises(AutodiffError, match=r"\['u', 'b', 'w'\]") as caught:
            step.parameter(name)  # type: ignore[arg-type]
        assert caught.value.category == "invalid_training_declaration"
        assert repr(name) in caught.value.message


def test_without_a_pass_nothing_is_copied() -> None:
    step = several()
    assert step.lowered_forward_graph is step.source_forward_graph
    assert step.lowered_derivative_program is step.source_derivative_program
    for record in step.parameters:
        assert record.lowered_update_graph is record.source_update_graph


# ----------------------------------------------------------------------------------------------------------------- seed


def occupied(w: Tensor, **_: Tensor) -> Tensor:
    """A loss with values of its own under the first ids of seeds."""
    builder = get_active_builder()
    assert builder is not None
    one, two = Tensor(), Tensor()
    builder.register_value(one, "tsv0")
    builder.register_value(two, "tsv1")
    squared = builder.apply(MulOperator, [w, w], {})
    recorded = builder.build().nodes[-1]
    builder.record(replace(recorded, node_id="own0", output_value_id="tsv0"))
    builder.record(replace(recorded, node_id="own1", output_value_id="tsv1"))
    return (squared * one * two).sum()


def test_the_seed_avoids_the_ids_of_the_graph() -> None:
    step = plain(loss=occupied)
    assert step.seed_value_ids == step.provenance.seed_value_ids == ("tsv2",)
    assert [value.value_id for value in step.derivative.dependencies.seed_inputs] == ["tsv2"]


@pytest.mark.parametrize(
    ("loss", "typespec"), [(mse, spec()), (lambda x, y, w: x @ w, spec(4, 1)), (lambda x, y, w: w, spec(3, 1))]
)
def test_the_seed_has_the_type_of_the_loss(loss: Any, typespec: Any) -> None:
    assert plain(loss=loss).source_derivative_program.value_typespecs["tsv0"] == typespec


def test_the_seed_label_is_no_id() -> None:
    labelled, usual = plain(seed_label="v6"), plain()
    assert labelled.provenance.seed_label == "v6"
    assert replace(labelled, provenance=usual.provenance) == usual


@pytest.mark.parametrize("name", ["node_id", "output_value_id"])
def test_refuses_a_derivative_program_that_makes_the_seed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It says so before the analysis finds that something else is missing too."""

    def taking(*arguments: Any) -> DerivativeProgram:
        program = generate(*arguments)
        changes: dict[str, Any] = {name: "tsv0"}
        node = replace(program.nodes[0], input_value_ids=["missing"], **changes)
        return replace(program, nodes=[node, *program.nodes[1:]])

    monkeypatch.setattr("tinychain.autodiff.training.step.generate", taking)
    error = failure()
    assert error.category == "ambiguous_producer"
    assert "'tsv0'" in error.message


# ------------------------------------------------------------------------------------------------------------- captures


def test_captures_are_those_of_the_analysis_in_its_order() -> None:
    step = several()
    captures = [value.value_id for value in step.derivative.dependencies.forward_captures]
    assert list(step.forward_capture_value_ids) == captures
    assert len(captures) == 2
    assert step.forward.selected_outputs == (step.loss_value_id, *captures)


class Doubling(TensorOperator):
    """2x, with a gradient that reads its own result, as that of an exponential would."""

    route_name = "doubling"

    def result_type(self, symbols: Any, x: Any) -> Any:
        return x

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return (emit(MulOperator, g, node.output_value_id),)


def test_a_loss_that_is_captured_is_selected_once() -> None:
    def loss(w: Tensor) -> Tensor:
        builder = get_active_builder()
        assert builder is not None
        return builder.apply(Doubling, [w], {})

    step = plain(loss=loss, inputs={"w": spec()}, handlers=counting(Doubling, *OPERATORS))
    assert [value.value_id for value in step.derivative.dependencies.forward_captures] == [step.loss_value_id]
    assert step.forward_capture_value_ids == ()
    assert step.forward.selected_outputs == (step.loss_value_id,)


# ------------------------------------------------------------------------------------------------------------- lowering


def test_hands_the_binder_and_the_hook_to_every_lowering() -> None:
    bound: list[ValueDependency] = []
    hook = Hook()

    def bind(dependency: ValueDependency) -> str:
        bound.append(dependency)
        return dependency.value_id

    step = plain(fusion=hook, bind_input=bind)
    programs = [step.forward, step.derivative, step.parameters[0].update]
    assert bound == [value for program in programs for value in program.dependencies.required_inputs]
    assert [offer[0] for offer in hook.offers] == [
        node_id for program in programs for operation in program.operations for node_id in operation.source_node_ids
    ]


def test_hands_on_the_very_same_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[str, Any]] = []
    for name, lower in (("lower_graph", lower_graph), ("lower_analysed", lower_analysed)):

        def spy(*arguments: Any, _lower: Any = lower, **keywords: Any) -> Any:
            seen.append(keywords)
            return _lower(*arguments, **keywords)

        monkeypatch.setattr(f"tinychain.autodiff.training.step.{name}", spy)
    given: dict[str, Any] = {"handlers": HANDLERS, "fusion": Hook(), "bind_input": lambda dependency: dependency}
    plain(**given)
    assert len(seen) == 3
    for keywords in seen:
        for name, value in given.items():
            assert keywords[name] is value


def test_a_wrong_hook_or_binder_is_refused() -> None:
    declarations: list[dict[str, Any]] = [{"fusion": object()}, {"bind_input": 3}, {"handlers": {}}]
    for wrong in declarations:
        assert failure(**wrong).category == "handler_contract_violation"


@pytest.mark.parametrize(
    ("missing", "node_id"), [("MeanOperator", "n2"), ("BroadcastOperator", "dn1"), ("SubOperator", "n1")]
)
def test_an_operator_without_handler_gives_no_step(missing: str, node_id: str) -> None:
    handlers = counting(*[operator for operator in OPERATORS if operator.__name__ != missing])
    error = failure(handlers=handlers, bind_input=None, loss=lambda x, y, w: (x @ w * y).mean())
    assert error.category == "unsupported_operator"
    assert missing in error.message
    assert repr(node_id) in error.message
