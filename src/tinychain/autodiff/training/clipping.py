"""Gradient clipping, as optimizers around an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from tinychain.autodiff.errors import quote
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training.optimizers import Optimizer, Update, check_number
from tinychain.autodiff.training.update import check_update_rule

_NORM: Final = "gradient_norm"


@dataclass(eq=False)
class _Around(Optimizer):
    """An optimizer whose state and inputs are those of another one, which is given other gradients."""

    optimizer: Optimizer

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} wraps an Optimizer, got {quote(self.optimizer)}")
        check_update_rule(self.optimizer)

    @property
    def state(self) -> tuple[str, ...]:  # type: ignore[override]  # known once there is an optimizer
        return self.optimizer.state

    @property
    def gradient_inputs(self) -> tuple[str, ...]:  # type: ignore[override]  # as state
        return self.optimizer.gradient_inputs

    @property
    def required_optimizer_inputs(self) -> Collection[str]:
        return self.optimizer.required_optimizer_inputs

    @property
    def step_inputs(self) -> Mapping[str, Callable[[int], float]]:
        return self.optimizer.step_inputs


@dataclass(eq=False)
class ClipByValue(_Around):
    """`optimizer`, given each element of the gradients clipped to [-limit, limit].

    `limit` is a positive number (ValueError otherwise); TypeError for what is no Optimizer, invalid_update_signature
    for one that contradicts itself.
    """

    limit: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("limit", self.limit, positive=True)

    def update(self, *, parameter: Tensor, gradient: Tensor, **tensors: Tensor) -> Update:
        return self.optimizer.update(parameter=parameter, gradient=self._clipped(gradient), **tensors)

    def from_gradients(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return self.optimizer.from_gradients({name: self._clipped(g) for name, g in gradients.items()})

    def _clipped(self, gradient: Tensor) -> Tensor:
        return gradient.clip(-self.limit, self.limit)


@dataclass(eq=False)
class ClipByGlobalNorm(_Around):
    """`optimizer`, given the gradients scaled down together to a norm of at most `max_norm`.

    The norm is the root of the sum of the squares of all elements of all gradients, a scalar optimizer input named
    `gradient_norm` that follows from the gradients; the scale is max_norm / maximum(gradient_norm, max_norm), which
    leaves smaller gradients exactly as they are. An infinite norm gives NaN. Errors are those of ClipByValue, and
    ValueError for an optimizer that has a `gradient_norm` already.
    """

    max_norm: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("max_norm", self.max_norm, positive=True)
        if _NORM in (*self.optimizer.required_optimizer_inputs, *self.optimizer.state):
            raise ValueError(f"{quote(self.optimizer)} has a {_NORM!r} already; clip by one norm, the smaller one")

    @property
    def gradient_inputs(self) -> tuple[str, ...]:  # type: ignore[override]  # as state
        return (*self.optimizer.gradient_inputs, _NORM)

    @property
    def required_optimizer_inputs(self) -> Collection[str]:
        required = self.optimizer.required_optimizer_inputs
        # A set stays one, as its order is of no meaning.
        return {*required, _NORM} if isinstance(required, (set, frozenset)) else (*required, _NORM)

    def update(  # type: ignore[override]  # a rule names its inputs
        self, *, parameter: Tensor, gradient: Tensor, gradient_norm: Tensor, **tensors: Tensor
    ) -> Update:
        return self.optimizer.update(parameter=parameter, gradient=gradient * self._scale(gradient_norm), **tensors)

    def from_gradients(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        norm = reduce(add, [(g * g).sum() for g in gradients.values()]).sqrt()
        if not self.optimizer.gradient_inputs:
            return {_NORM: norm}
        scale = self._scale(norm)
        return {**self.optimizer.from_gradients({name: g * scale for name, g in gradients.items()}), _NORM: norm}

    def _scale(self, norm: Tensor) -> Tensor:
        return self.max_norm / norm.maximum(self.max_norm)
