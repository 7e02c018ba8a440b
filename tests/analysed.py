"""A small derivative program over a small forward graph, analysed in few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from by_hand import F32
from dags import dag, gradient, op
from tinychain.autodiff.dependencies import DependencyAnalysis, ValueDependency, analyze_derivative_dependencies
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph

#: y is declared and never read; a is captured by the program, x is an input of both.
FORWARD = dag(op("a", "x"), op("b", "a"), op("loss", "b"), inputs=["x", "y"], outputs=["loss"])
PROGRAM = gradient(op("d0", "seed", "a"), op("d1", "d0", "x"), outputs=["d1"], specs={"seed": F32})


def derivative(
    program: DerivativeProgram = PROGRAM, forward: TensorGraph = FORWARD, seeds: Any = ("seed",), outputs: Any = None
) -> DependencyAnalysis:
    return analyze_derivative_dependencies(program, forward_graph=forward, seed_value_ids=seeds, outputs=outputs)


def ids(values: tuple[ValueDependency, ...]) -> list[str]:
    return [value.value_id for value in values]


def refused(category: str, call: Callable[..., Any], *args: Any, saying: str, **kwargs: Any) -> None:
    with pytest.raises(AutodiffError, match=saying) as caught:
        call(*args, **kwargs)
    assert caught.value.category == category
