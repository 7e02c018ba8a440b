"""Compiling a step does each stage once, however deep the network is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from dags import counting
from tinychain.autodiff import SGD, CompiledTrainingStep, Tensor, compile_training_step, expand_mean_graph
from tinychain.autodiff.operators import OPERATORS

LAYERS = 100
STAGES = (
    "declare",
    "generate",
    "content_hash",
    "analyze_graph",
    "analyze_program",
    "lower_analysed",
    "trace_parameter_update",
)


def compile_network(*forward_expansions: Any) -> CompiledTrainingStep:
    def loss(x: Tensor, **weights: Tensor) -> Tensor:
        for weight in weights.values():
            x = x @ weight
        return (x * x).mean()

    matrix = {"dtype": "f64", "shape": [4, 4]}
    weights = [f"w{i}" for i in range(LAYERS)]
    return compile_training_step(
        loss,
        inputs={"x": matrix, **dict.fromkeys(weights, matrix)},
        parameters=weights,
        optimizer=SGD(),
        optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": []}},
        handlers=counting(*OPERATORS),
        forward_expansions=forward_expansions,
    )


def calls(run: Callable[[], object]) -> dict[str, int]:
    """How often each stage function of the package is entered while `run` runs."""
    entered: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name in STAGES:
            entered[frame.f_code.co_name] += 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return dict(entered)


def test_each_stage_runs_once() -> None:
    """The derivative program is analysed once, for its captures and for its lowering."""
    assert calls(compile_network) == {
        "declare": 1,
        "generate": 1,
        "content_hash": 1,
        "analyze_graph": 2,
        "analyze_program": 1,
        "lower_analysed": 3,
        "trace_parameter_update": 1,
    }


def test_passes_that_change_nothing_cost_no_second_analysis() -> None:
    assert calls(lambda: compile_network(lambda graph: graph))["analyze_program"] == 1


def test_an_expansion_costs_one_more_analysis() -> None:
    assert calls(lambda: compile_network(expand_mean_graph))["analyze_program"] == 2
