"""Twins in files: what is kept and shared, and what does not belong to the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from documents import document_of, edited
from tinychain.autodiff.backends.numpy import bind_input, rank2_registry
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.serialization import dumps, loads_training_step
from twinning import compiled


def test_twins_of_parameters_of_one_type_share_an_update() -> None:
    shapes = {"x": (8, 5), "y": (8, 5), "w1": (5, 5), "b1": (5,), "w2": (5, 5), "b2": (5,)}
    step = compiled(shapes=shapes)
    loaded = loads_training_step(dumps(step), handlers=rank2_registry(), bind_input=bind_input)
    for one in (step, loaded):
        assert one.twins is not None
        first, second = one.twins.parameters
        assert first.update is second.update
        assert first.gradient_value_id != second.gradient_value_id
    assert len([graph for graph in document_of(dumps(step))["payload"]["twins"]["updates"] if graph]) == 1


def put(*way: Any) -> Callable[[Any], None]:
    *keys, last, value = way

    def edit(payload: Any) -> None:
        for key in keys:
            payload = payload[key]
        payload[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("twins", 3), r"\$\.payload\.twins: expected an object, got 3"),
        (put("twins", "parameters", ["w2", "w1"]), r"\.twins\.parameters: expected \['w1', 'w2'\]"),
        (put("twins", "parameters", ["w1", "x"]), r"\.twins\.parameters: expected \['w1'\]"),
        (put("twins", "parameters", ["w1"]), r"\.twins\.updates: expected \[True, False, False, False\]"),
        (put("twins", "parameters", ["w1", "b1", "w2"]), r"\.twins\.updates: expected \[True, True, True, False\]"),
        (put("twins", "updates", []), r"\.twins\.updates: expected \[True, False, True, False\]"),
        (put("twins", "updates", 0, 7), r"\.twins\.updates\[0\]: expected an object, got 7"),
        (put("twins", "derivative", "gradients", "v2.mT", "tsv0"), r"\.twins\.derivative"),
        (put("twins", "derivative", None), r"\.twins\.derivative: expected an object, got None"),
    ],
)
def test_twins_that_do_not_belong_to_the_step_are_refused(edit: Callable[[Any], None], message: str) -> None:
    with pytest.raises(AutodiffError, match=message) as caught:
        loads_training_step(edited(dumps(compiled()), edit), handlers=rank2_registry(), bind_input=bind_input)
    assert caught.value.category == "invalid_artifact_file"


def test_a_vector_has_no_twin_in_a_file_either() -> None:
    def edit(payload: Any) -> None:
        twins = payload["twins"]
        twins["parameters"] = ["w1", "b1", "w2"]
        twins["updates"][1] = twins["updates"][0]

    with pytest.raises(AutodiffError, match=r"\.twins\.derivative: .*has rank 1; a twin is of a matrix"):
        loads_training_step(edited(dumps(compiled()), edit), handlers=rank2_registry(), bind_input=bind_input)
