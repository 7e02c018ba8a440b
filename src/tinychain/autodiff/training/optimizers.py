"""Optimizers: one update rule each, written in ordinary Tensor expressions and traced like any other code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeAlias

from tinychain.autodiff.errors import quote
from tinychain.autodiff.tracing import Tensor

Update: TypeAlias = Tensor | tuple[Tensor, Mapping[str, Tensor]]


class Optimizer(ABC):
    """One update rule. It builds no record and no operator itself.

    `state` names tensors of the parameter's shape and dtype that live from step to step; `update` then receives one
    Tensor per name and returns `(new_parameter, {name: new_state})`, otherwise the new parameter alone.
    """

    state: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def required_optimizer_inputs(self) -> Collection[str]:
        """The names of the tensors, such as a learning rate, that the caller binds at every step."""

    @abstractmethod
    def update(self, *, parameter: Tensor, gradient: Tensor, **optimizer_inputs: Tensor) -> Update:
        """The parameter (and the state) after one step."""

    def __call__(self, **tensors: Tensor) -> Update:
        return self.update(**tensors)


class SGD(Optimizer):
    """parameter - learning_rate * gradient."""

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate",)

    def update(  # type: ignore[override]  # a rule names its inputs
        self, *, parameter: Tensor, gradient: Tensor, learning_rate: Tensor
    ) -> Tensor:
        return parameter - learning_rate * gradient


class Momentum(Optimizer):
    """SGD along a velocity: v' = momentum * v + gradient; parameter' = parameter - learning_rate * v'.

    The form of Sutskever et al. (2013) that torch.optim.SGD uses, without dampening. `momentum` is a literal of the
    rule, a number in [0, 1) (ValueError otherwise); the velocity starts at zero.
    """

    state = ("velocity",)

    def __init__(self, momentum: float = 0.9) -> None:
        if isinstance(momentum, bool) or not isinstance(momentum, (int, float)) or not 0 <= momentum < 1:
            raise ValueError(f"momentum must be a number in [0, 1), got {quote(momentum)}")
        self.momentum = float(momentum)

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate",)

    def update(  # type: ignore[override]  # a rule names its inputs
        self, *, parameter: Tensor, gradient: Tensor, learning_rate: Tensor, velocity: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        velocity = velocity * self.momentum + gradient
        return parameter - learning_rate * velocity, {"velocity": velocity}

    def __repr__(self) -> str:
        return f"Momentum(momentum={self.momentum!r})"


def sgd_update(*, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Any:
    """One step of `SGD`, as a plain function."""
    return SGD()(parameter=parameter, gradient=gradient, learning_rate=learning_rate)
