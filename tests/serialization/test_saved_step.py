"""Compiled steps to bytes and back: lowered again for a backend, they are equal and train to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from documents import document_of, edited
from fusing import Hook
from steps import HANDLERS, LAYERS, compiled, layers, plain, run, several, spec
from tinychain.autodiff.backends.numpy import bind_input, reference_registry
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.lowering import FusionContext, FusionResult, OperationHandlerRegistry
from tinychain.autodiff.serialization import dumps, load, load_training_step, loads, loads_training_step, save
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import Adam, ClipByGlobalNorm, CompiledTrainingStep, Momentum

EXPANSIONS: dict[str, Any] = {
    "forward_expansions": [expand_mean_graph],
    "derivative_expansions": [partial(expand_mean_derivative_program, reserved_id_prefix="gx")],
}
ADAM: dict[str, Any] = {
    "optimizer": ClipByGlobalNorm(Adam(), 0.5),
    "optimizer_inputs": dict.fromkeys(
        ["learning_rate", "first_correction", "second_correction", "gradient_norm"], spec()
    ),
}


def again(step: CompiledTrainingStep, **options: Any) -> CompiledTrainingStep:
    return loads_training_step(dumps(step), **{"handlers": HANDLERS, **options})


@pytest.mark.parametrize(
    "step",
    [
        plain(),
        several(),
        several(**EXPANSIONS),
        several(optimizer=Momentum()),
        several(**ADAM),
        plain(loss=lambda x, y, w: (x @ w).sum(), fusion=None, seed_label="loss bar"),
    ],
    ids=["sgd", "several", "expanded", "momentum", "adam clipped by norm", "unread input"],
)
def test_step_is_kept(step: CompiledTrainingStep) -> None:
    loaded = again(step)
    assert loaded == step
    assert dumps(loaded) == dumps(step)
    for name in ("input_value_ids", "provenance"):
        assert repr(getattr(loaded, name)) == repr(getattr(step, name))


def test_file_of_a_step_is_read_by_its_own_function(tmp_path: Path) -> None:
    step, path = several(), tmp_path / "step.json"
    save(step, path)
    assert load_training_step(path, handlers=HANDLERS) == step
    with pytest.raises(AutodiffError, match=r"\$\.kind: .*read a training step with load_training_step"):
        load(path)
    save(step.source_forward_graph, path)
    with pytest.raises(AutodiffError, match=r"\$\.kind: .*got 'graph'; read a graph or a derivative program with load"):
        load_training_step(path, handlers=HANDLERS)


def test_what_a_pass_left_alone_is_stored_once_and_is_one_object_again() -> None:
    step = several(forward_expansions=EXPANSIONS["forward_expansions"])
    payload = document_of(dumps(step))["payload"]
    assert payload["derivative"]["lowered"] is None
    assert payload["forward"]["lowered"] is not None
    loaded = again(step)
    assert loaded.lowered_derivative_program is loaded.source_derivative_program
    assert loaded.lowered_forward_graph is not loaded.source_forward_graph


def test_update_that_parameters_share_is_stored_once_and_shared_again() -> None:
    step = several(optimizer=Momentum())
    payload = document_of(dumps(step))["payload"]
    assert [part["update"] for part in payload["parameters"]] == [0, 1, 0]
    assert len(payload["updates"]) == 2
    u, b, w = again(step).parameters
    for name in ("update", "source_update_graph", "update_input_value_ids", "updated_state_value_ids"):
        assert getattr(u, name) is getattr(w, name)
        assert getattr(u, name) is not getattr(b, name)


def test_mappings_are_read_only_and_in_the_order_of_the_declaration() -> None:
    loaded = again(several(optimizer=Momentum()))
    assert list(loaded.input_value_ids) == list(LAYERS)
    for mapping in (loaded.input_value_ids, loaded.parameters[0].update_input_value_ids):
        assert isinstance(mapping, MappingProxyType)
    assert list(loaded.parameters[0].update_input_value_ids) == ["parameter", "gradient", "learning_rate", "velocity"]


def test_saving_neither_needs_nor_keeps_what_the_backend_made() -> None:
    assert dumps(compiled()) == dumps(plain())


def test_loaded_expanded_step_trains_to_the_last_bit() -> None:
    random = np.random.default_rng(7)
    arrays = {name: random.normal(size=declared["shape"]) for name, declared in LAYERS.items()}
    step = compiled(loss=layers, inputs=LAYERS, parameters=["u", "b", "w"], optimizer=Momentum(), **EXPANSIONS)
    loaded = again(step, handlers=reference_registry(), bind_input=bind_input)
    trained = []
    for one in (step, loaded):
        values = dict(arrays)
        states = {name: {"velocity": np.zeros_like(values[name])} for name in "ubw"}
        losses = []
        for _ in range(5):
            results = run(one, values, {"learning_rate": np.array(0.1)}, states)
            values |= results.updated
            states = results.states
            losses.append(results.loss.tobytes())
        trained.append((losses, {name: array.tobytes() for name, array in values.items()}))
    assert trained[0] == trained[1]


def test_fusion_and_binder_are_used_again() -> None:
    def alone(context: FusionContext) -> FusionResult:
        (node, *_) = context.candidates
        return FusionResult(f"fused {node.node_id}", [node.node_id])

    options: dict[str, Any] = {"fusion": Hook(alone), "bind_input": lambda dependency: dependency.value_id}
    loaded = again(plain(), **options)
    assert loaded == plain(**options)
    assert all(operation.is_fused for operation in loaded.forward.operations)


def test_backend_that_lacks_an_operator_says_so_as_in_a_compile() -> None:
    with pytest.raises(AutodiffError) as caught:
        again(plain(), handlers=OperationHandlerRegistry())
    assert caught.value.category == "unsupported_operator"
    assert "register a handler or expand the operation first" in caught.value.message


# ----------------------------------------------------------------------------------------------------------- refusals

Edit = Callable[[Any], None]


def put(*way: Any) -> Edit:
    *keys, last, value = way

    def edit(payload: Any) -> None:
        for key in keys:
            payload = payload[key]
        payload[last] = value

    return edit


DATA = dumps(several(**{**EXPANSIONS, **ADAM}))


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (put("forward", None), ".forward"),
        (put("forward", "source", None), ".forward.source"),
        (put("forward", "lowered", []), ".forward.lowered"),
        (put("forward", "lowered", "outputs", ["gone"]), ".forward.lowered.outputs[0]"),
        (put("forward", "outputs", ["v8"]), ".forward_capture_value_ids"),
        (put("forward", "outputs", 3), ".forward.outputs"),
        (put("derivative", "source", "nodes", 0, "node_id", 3), ".derivative.source.nodes[0].node_id"),
        (put("derivative", "lowered", "nodes", 0, "input_value_ids", ["gone"]), ".derivative.lowered.nodes[0]"),
        (put("derivative", "outputs", []), ".parameters[0].gradient_value_id"),
        (put("derivative", "outputs", 1, "gone"), ".parameters[1].gradient_value_id"),
        (put("forward_capture_value_ids", []), ".derivative.source"),
        (put("loss_value_id", 3), ".loss_value_id"),
        (put("loss_value_id", "v0"), ".loss_value_id"),
        (put("seed_value_ids", ["s"]), ".provenance.seed_value_ids"),
        (put("input_value_ids", "x", 3), ".input_value_ids.x"),
        (put("input_value_ids", "x", "v1"), ".forward.lowered.inputs"),
        (put("input_value_ids", "u", "v0"), ".parameters[0].value_id"),
        (put("input_value_ids", {}), ".provenance.input_names"),
        (put("parameters", []), ".provenance.parameter_names"),
        (put("parameters", 0, "name", "b"), ".parameters"),
        (put("parameters", 0, "name", "x"), ".provenance.parameter_names"),
        (put("parameters", 0, "value_id", "v0"), ".provenance.wrt_signature"),
        (put("parameters", 0, "gradient_value_id", "d0"), ".parameters[0].gradient_value_id"),
        (put("parameters", 0, "update", 2), ".parameters[0].update"),
        (put("parameters", 0, "update", -1), ".parameters[0].update"),
        (put("parameters", 0, "update", True), ".parameters[0].update"),
        (put("parameters", 0, "extra", 1), ".parameters[0].extra"),
        (put("updates", 0, "source", "nodes", 0, "op_params", []), ".updates[0].source.nodes[0].op_params"),
        (put("updates", 0, "outputs", []), ".updates[0].updated_parameter_value_id"),
        (put("updates", 0, "updated_parameter_value_id", 1), ".updates[0].updated_parameter_value_id"),
        (put("updates", 0, "updated_parameter_value_id", "v0"), ".updates[0].updated_parameter_value_id"),
        (put("updates", 0, "updated_state_value_ids", "first_moment", "v0"), ".updates[0].updated_state_value_ids"),
        (put("updates", 0, "updated_state_value_ids", {}), ".updates[0].input_value_ids"),
        (put("updates", 0, "input_value_ids", {}), ".updates[0].input_value_ids"),
        (put("updates", 0, "input_value_ids", "gradient", "v9"), ".updates[0].lowered.inputs"),
        (put("gradient_inputs", []), ".gradient_inputs"),
        (put("gradient_inputs", "input_value_ids", {}), ".gradient_inputs.input_value_ids"),
        (put("gradient_inputs", "input_value_ids", "u", "v9"), ".gradient_inputs.lowered.inputs"),
        (put("gradient_inputs", "output_value_ids", {"other": "v0"}), ".gradient_inputs.output_value_ids"),
        (put("gradient_inputs", "output_value_ids", "gradient_norm", "v0"), ".gradient_inputs.output_value_ids"),
        (put("provenance", None), ".provenance"),
        (put("provenance", "seed_label", None), ".provenance.seed_label"),
        (put("provenance", "source_graph_id", "0" * 64), ".provenance.source_graph_id"),
        (put("provenance", "transform_version", "2"), ".provenance.transform_version"),
        (put("provenance", "optimizer_input_names", []), ".updates[0].input_value_ids"),
        (put("more", 1), ".more"),
    ],
)
def test_part_that_does_not_belong_to_the_step_is_refused(edit: Edit, path: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        loads_training_step(edited(DATA, edit), handlers=HANDLERS)
    assert caught.value.category == "invalid_artifact_file"
    assert f"at $.payload{path}" in caught.value.message
    assert ": expected " in caught.value.message


def test_no_handler_and_no_binder_runs_for_a_step_that_is_refused() -> None:
    bound: list[Any] = []
    with pytest.raises(AutodiffError, match="invalid_artifact_file"):
        loads_training_step(edited(DATA, put("updates", 1, "outputs", [])), handlers=HANDLERS, bind_input=bound.append)
    assert bound == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"loss_value_id": "v0"}, ".loss_value_id"),
        ({"loss_value_id": None}, ".loss_value_id"),
        ({"parameters": ()}, ".provenance.parameter_names"),
        ({"input_value_ids": {"x": 1}}, ".input_value_ids.x"),
        ({"provenance": None}, ".provenance"),
    ],
    ids=repr,
)
def test_step_that_was_changed_by_hand_is_not_saved(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        dumps(replace(several(), **changes))
    assert caught.value.category == "malformed_derivative_ir"
    assert caught.value.message.startswith(f"$.payload{path} cannot be saved: expected ")


def test_loads_does_not_read_steps() -> None:
    with pytest.raises(AutodiffError, match="read a training step with load_training_step"):
        loads(DATA)


def test_untyped_loss_with_a_symbol_is_kept() -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).sum()

    step = plain(loss=loss, inputs={"x": spec("N", 3), "w": spec(3, "M")}, parameters=["w"])
    assert again(step) == step
