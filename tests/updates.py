"""One optimizer step traced from a good declaration with changes, and an optimizer whose state a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.tracing import Tensor, get_active_builder
from tinychain.autodiff.training import Optimizer, TracedUpdate, trace_parameter_update

MATRIX = {"dtype": "f32", "shape": [3, 1]}
SCALAR = {"dtype": "f32", "shape": []}


def trace(update: Any, **changes: Any) -> TracedUpdate:
    given = {"parameter": MATRIX, "gradient": MATRIX, "optimizer_inputs": {"learning_rate": SCALAR}, **changes}
    return trace_parameter_update(update, **given)


def failure(update: Any, **changes: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        trace(update, **changes)
    assert get_active_builder() is None
    return caught.value


class Stateful(Optimizer):
    """An optimizer whose state names and result a test chooses."""

    def __init__(self, result: Callable[..., Any], state: Any = ("first", "second")) -> None:
        self.result = result
        self.state = state  # type: ignore[misc]

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate",)

    def update(self, *, parameter: Tensor, gradient: Tensor, **tensors: Tensor) -> Any:
        return self.result(parameter, gradient, **tensors)


def exchange(parameter: Tensor, gradient: Tensor, learning_rate: Tensor, first: Tensor, second: Tensor) -> Any:
    return parameter - learning_rate * first, {"second": first, "first": second + gradient}
