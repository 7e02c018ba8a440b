"""Optimizers: one update rule each, written in ordinary Tensor expressions and traced like any other code."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from tinychain.autodiff.errors import quote
from tinychain.autodiff.tracing import Tensor

Update: TypeAlias = Tensor | tuple[Tensor, Mapping[str, Tensor]]


class Optimizer(ABC):
    """One update rule. It builds no record and no operator itself.

    `state` names tensors of the parameter's shape and dtype that live from step to step; `update` then receives one
    Tensor per name and returns `(new_parameter, {name: new_state})`, otherwise the new parameter alone.

    Some of the required inputs may follow from what is known: from the number of the step (`step_inputs`) or from all
    gradients together (`gradient_inputs`). The others, such as a learning rate, are the caller's.
    """

    state: ClassVar[tuple[str, ...]] = ()

    #: The optimizer inputs that `from_gradients` computes.
    gradient_inputs: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def required_optimizer_inputs(self) -> Collection[str]:
        """The names of the tensors, such as a learning rate, that are bound at every step."""

    @property
    def step_inputs(self) -> Mapping[str, Callable[[int], float]]:
        """The optimizer inputs that follow from the number of the step alone, as functions of it; the first is 1."""
        return MappingProxyType({})

    @abstractmethod
    def update(self, *, parameter: Tensor, gradient: Tensor, **optimizer_inputs: Tensor) -> Update:
        """The parameter (and the state) after one step."""

    def from_gradients(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The `gradient_inputs`, computed from the gradients of all parameters by name."""
        return {}

    def __call__(self, **tensors: Tensor) -> Update:
        return self.update(**tensors)


@dataclass(eq=False)
class SGD(Optimizer):
    """parameter - learning_rate * gradient.

    `weight_decay` w, a number of at least 0 (ValueError otherwise), adds w * parameter to the gradient.
    """

    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_number("weight_decay", self.weight_decay)

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate",)

    def update(  # type: ignore[override]  # a rule names its inputs
        self, *, parameter: Tensor, gradient: Tensor, learning_rate: Tensor
    ) -> Tensor:
        return parameter - learning_rate * decayed(gradient, parameter, self.weight_decay)


@dataclass(eq=False)
class Momentum(Optimizer):
    """SGD along a velocity: v' = momentum * v + gradient; parameter' = parameter - learning_rate * v'.

    The form of Sutskever et al. (2013) that torch.optim.SGD uses, without dampening. `momentum` is a literal of the
    rule, a number in [0, 1) (ValueError otherwise), and `weight_decay` as in SGD; the velocity starts at zero.
    """

    momentum: float = 0.9
    weight_decay: float = 0.0

    state = ("velocity",)

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum, below=1.0)
        check_number("weight_decay", self.weight_decay)

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate",)

    def update(  # type: ignore[override]  # a rule names its inputs
        self, *, parameter: Tensor, gradient: Tensor, learning_rate: Tensor, velocity: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        gradient = decayed(gradient, parameter, self.weight_decay)
        velocity = velocity * self.momentum + gradient
        return parameter - learning_rate * self._direction(gradient, velocity), {"velocity": velocity}

    def _direction(self, gradient: Tensor, velocity: Tensor) -> Tensor:
        return velocity


@dataclass(eq=False)
class Nesterov(Momentum):
    """Momentum that looks ahead: parameter' = parameter - learning_rate * (gradient + momentum * v').

    The velocity v' is that of Momentum; the form of torch.optim.SGD with nesterov=True.
    """

    def _direction(self, gradient: Tensor, velocity: Tensor) -> Tensor:
        return gradient + velocity * self.momentum


def sgd_update(*, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Any:
    """One step of `SGD`, as a plain function."""
    return SGD()(parameter=parameter, gradient=gradient, learning_rate=learning_rate)


def decayed(gradient: Tensor, parameter: Tensor, weight_decay: float) -> Tensor:
    """The gradient of the loss with weight_decay / 2 * |parameter|**2 added; without decay, the very same tensor."""
    return gradient + parameter * weight_decay if weight_decay else gradient


def check_number(name: str, value: object, *, below: float = math.inf, positive: bool = False) -> None:
    """Refuses a literal of a rule that is no real number from 0 up to, but not, `below`: ValueError."""
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, Real):
        with suppress(OverflowError):
            number = float(value)
    if not 0 <= number < below or (positive and number == 0):
        raise ValueError(f"{name} must be a number in {'(' if positive else '['}0, {below:g}), got {quote(value)}")
