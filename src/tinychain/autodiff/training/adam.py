"""Adam and AdamW, whose bias corrections are functions of the step number that the caller binds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tinychain.autodiff.errors import quote
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training.optimizers import Optimizer, check_number, decayed


@dataclass(eq=False)
class Adam(Optimizer):
    """Steps along the running mean of the gradient over the root of its running mean square (Kingma and Ba, 2015).

    m' = beta1 * m + (1 - beta1) * gradient; s' = beta2 * s + (1 - beta2) * gradient**2; parameter' = parameter
    - learning_rate * m' * first_correction / (sqrt(s' * second_correction) + epsilon). At step t the corrections are
    1 / (1 - beta**t): the number of a step is no secret, so no machine need compute powers. Both moments start at zero.

    The betas are numbers in [0, 1), `epsilon` and `weight_decay` of at least 0 (ValueError otherwise). The decay is
    that of torch.optim.Adam: weight_decay * parameter is added to the gradient. An element whose gradients were all
    zero is NaN where `epsilon` is 0.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    state = ("first_moment", "second_moment")

    def __post_init__(self) -> None:
        check_number("beta1", self.beta1, below=1.0)
        check_number("beta2", self.beta2, below=1.0)
        check_number("epsilon", self.epsilon)
        check_number("weight_decay", self.weight_decay)

    @property
    def required_optimizer_inputs(self) -> tuple[str, ...]:
        return ("learning_rate", "first_correction", "second_correction")

    @property
    def step_inputs(self) -> Mapping[str, Callable[[int], float]]:
        return MappingProxyType(
            {
                "first_correction": partial(_bias_correction, float(self.beta1)),
                "second_correction": partial(_bias_correction, float(self.beta2)),
            }
        )

    def update(  # type: ignore[override]  # a rule names its inputs
        self,
        *,
        parameter: Tensor,
        gradient: Tensor,
        learning_rate: Tensor,
        first_correction: Tensor,
        second_correction: Tensor,
        first_moment: Tensor,
        second_moment: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        parameter, gradient = self._decay(parameter, gradient, learning_rate)
        first_moment = first_moment * self.beta1 + gradient * (1 - self.beta1)
        second_moment = second_moment * self.beta2 + gradient * gradient * (1 - self.beta2)
        spread = (second_moment * second_correction).sqrt() + self.epsilon
        updated = parameter - learning_rate * (first_moment * first_correction / spread)
        return updated, {"first_moment": first_moment, "second_moment": second_moment}

    def _decay(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> tuple[Tensor, Tensor]:
        return parameter, decayed(gradient, parameter, self.weight_decay)


@dataclass(eq=False)
class AdamW(Adam):
    """Adam whose decay bypasses the moments (Loshchilov and Hutter, 2019), as torch.optim.AdamW.

    The parameter is first scaled by 1 - learning_rate * weight_decay.
    """

    weight_decay: float = 0.01

    def _decay(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> tuple[Tensor, Tensor]:
        if not self.weight_decay:
            return parameter, gradient
        return parameter * (learning_rate * -self.weight_decay + 1.0), gradient


def _bias_correction(beta: float, step: int) -> float:
    """1 / (1 - beta**step): what a running mean that started at zero lacks after so many steps."""
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise ValueError(f"the number of a step must be an int of at least 1, got {quote(step)}")
    return 1.0 / (1.0 - beta**step)
