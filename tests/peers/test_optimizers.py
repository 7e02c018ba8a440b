"""Every optimizer against torch.optim and optax: the same problem, each with its own gradients, for 50 steps in f64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import steps
from tinychain.autodiff.training import (
    SGD,
    Adam,
    AdamW,
    ClipByGlobalNorm,
    ClipByValue,
    Momentum,
    Nesterov,
    Optimizer,
)

pytestmark = pytest.mark.peers

STEPS = 50
TOLERANCE = 1e-10
RATE = 0.05
PARAMETERS = ("w1", "b1", "w2", "b2")

Arrays = dict[str, NDArray[np.float64]]
Trajectory = list[Arrays]


# ---------------------------------------------------------------------------------------------------------- the problem


def data() -> Arrays:
    """A target that two layers can learn in part; its scale makes the first gradients large enough to be clipped."""
    numbers = np.random.default_rng(7)
    x = numbers.normal(size=(32, 3))
    y = 3.0 * np.sin(x[:, :1]) - x[:, 1:2] * x[:, 2:]
    return {"x": x, "y": y}


def initial() -> Arrays:
    numbers = np.random.default_rng(8)
    return {
        "w1": numbers.normal(size=(3, 4)) / 2,
        "b1": numbers.normal(size=(1, 4)) / 2,
        "w2": numbers.normal(size=(4, 1)) / 2,
        "b2": numbers.normal(size=(1, 1)) / 2,
    }


def loss(exp: Callable[[Any], Any], log: Callable[[Any], Any], *, x: Any, y: Any, **w: Any) -> Any:
    """Mean squared error of a network with a softplus layer, in the words of any of the three libraries."""
    hidden = log(exp(x @ w["w1"] + w["b1"]) + 1.0)
    residual = hidden @ w["w2"] + w["b2"] - y
    return (residual * residual).mean()


def our_loss(**tensors: Any) -> Any:
    return loss(lambda t: t.exp(), lambda t: t.log(), **tensors)


# ----------------------------------------------------------------------------------------------------------- the rules


def constant(step: int) -> float:
    return RATE


def falling(step: int) -> float:
    """A learning rate for the step with this number, from 1."""
    return RATE / (1.0 + 0.1 * (step - 1))


class Case(NamedTuple):
    """One rule, as we spell it and as the others do; None where a library has another rule of that name."""

    ours: Optimizer
    torch: Callable[[Any, Any], Any] | None
    optax: Callable[[Any, Any], Any]
    rate: Callable[[int], float] = constant
    before: Callable[[Any, Any], Any] | None = None


DECAY = 0.1
LIMIT = 0.3
NORM = 0.5

CASES = {
    "sgd": Case(
        SGD(),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE),
        lambda optax, rate: optax.sgd(rate),
    ),
    "sgd with decay": Case(
        SGD(weight_decay=DECAY),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, weight_decay=DECAY),
        lambda optax, rate: optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(rate)),
    ),
    "momentum": Case(
        Momentum(0.9),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, momentum=0.9),
        lambda optax, rate: optax.sgd(rate, momentum=0.9),
    ),
    "momentum with decay": Case(
        Momentum(0.8, weight_decay=DECAY),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, momentum=0.8, weight_decay=DECAY),
        lambda optax, rate: optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(rate, momentum=0.8)),
    ),
    "nesterov": Case(
        Nesterov(0.9),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, momentum=0.9, nesterov=True),
        lambda optax, rate: optax.sgd(rate, momentum=0.9, nesterov=True),
    ),
    "nesterov with decay": Case(
        Nesterov(0.8, weight_decay=DECAY),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, momentum=0.8, nesterov=True, weight_decay=DECAY),
        lambda optax, rate: optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(rate, momentum=0.8, nesterov=True)),
    ),
    "adam": Case(
        Adam(),
        lambda torch, ws: torch.optim.Adam(ws, lr=RATE),
        lambda optax, rate: optax.adam(rate),
    ),
    "adam with decay": Case(
        Adam(0.8, 0.99, 1e-6, DECAY),
        lambda torch, ws: torch.optim.Adam(ws, lr=RATE, betas=(0.8, 0.99), eps=1e-6, weight_decay=DECAY),
        lambda optax, rate: optax.chain(optax.add_decayed_weights(DECAY), optax.adam(rate, 0.8, 0.99, 1e-6)),
    ),
    "adamw": Case(
        AdamW(),
        lambda torch, ws: torch.optim.AdamW(ws, lr=RATE),
        lambda optax, rate: optax.adamw(rate, weight_decay=0.01),
    ),
    "adamw with more decay": Case(
        AdamW(0.8, 0.99, 1e-6, DECAY),
        lambda torch, ws: torch.optim.AdamW(ws, lr=RATE, betas=(0.8, 0.99), eps=1e-6, weight_decay=DECAY),
        lambda optax, rate: optax.adamw(rate, 0.8, 0.99, 1e-6, weight_decay=DECAY),
    ),
    "momentum with a falling rate": Case(
        Momentum(0.9),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, momentum=0.9),
        lambda optax, rate: optax.sgd(rate, momentum=0.9),
        rate=falling,
    ),
    "adamw with a falling rate": Case(
        AdamW(weight_decay=DECAY),
        lambda torch, ws: torch.optim.AdamW(ws, lr=RATE, weight_decay=DECAY),
        lambda optax, rate: optax.adamw(rate, weight_decay=DECAY),
        rate=falling,
    ),
    "clip by value": Case(
        ClipByValue(Momentum(0.9), LIMIT),
        lambda torch, ws: torch.optim.SGD(ws, lr=RATE, momentum=0.9),
        lambda optax, rate: optax.chain(optax.clip(LIMIT), optax.sgd(rate, momentum=0.9)),
        before=lambda torch, ws: torch.nn.utils.clip_grad_value_(ws, LIMIT),
    ),
    # torch.nn.utils.clip_grad_norm_ divides by the norm plus 1e-6.
    "clip by global norm": Case(
        ClipByGlobalNorm(SGD(), NORM),
        None,
        lambda optax, rate: optax.chain(optax.clip_by_global_norm(NORM), optax.sgd(rate)),
    ),
    "clip by value, then by global norm": Case(
        ClipByValue(ClipByGlobalNorm(Momentum(0.9), NORM), LIMIT),
        None,
        lambda optax, rate: optax.chain(
            optax.clip(LIMIT), optax.clip_by_global_norm(NORM), optax.sgd(rate, momentum=0.9)
        ),
    ),
    "clip by global norm, then by value": Case(
        ClipByGlobalNorm(ClipByValue(Adam(), 0.1), NORM),
        None,
        lambda optax, rate: optax.chain(optax.clip_by_global_norm(NORM), optax.clip(0.1), optax.adam(rate)),
    ),
}


# -------------------------------------------------------------------------------------------------------- trajectories


def ours(case: Case) -> Trajectory:
    """The parameters after each step of our compiled step on the NumPy reference backend."""
    optimizer, arrays, parameters = case.ours, data(), initial()
    step = steps.compiled(
        loss=our_loss,
        inputs={name: steps.spec(*array.shape) for name, array in {**arrays, **parameters}.items()},
        parameters=PARAMETERS,
        optimizer=optimizer,
        optimizer_inputs={name: steps.spec() for name in optimizer.required_optimizer_inputs},
    )
    states = {name: {state: np.zeros_like(array) for state in optimizer.state} for name, array in parameters.items()}
    trajectory = []
    for number in range(1, STEPS + 1):
        given = {"learning_rate": case.rate(number)}
        given |= {name: function(number) for name, function in optimizer.step_inputs.items()}
        results = steps.run(step, {**arrays, **parameters}, {name: np.array(at) for name, at in given.items()}, states)
        parameters, states = results.updated, results.states
        trajectory.append(parameters)
    return trajectory


def torch_s(torch: Any, case: Case) -> Trajectory:
    assert case.torch is not None
    arrays = {name: torch.from_numpy(array) for name, array in data().items()}
    parameters = {name: torch.from_numpy(array).requires_grad_() for name, array in initial().items()}
    optimizer = case.torch(torch, list(parameters.values()))
    trajectory = []
    for number in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = case.rate(number)
        optimizer.zero_grad()
        loss(torch.exp, torch.log, **arrays, **parameters).backward()
        if case.before is not None:
            case.before(torch, list(parameters.values()))
        optimizer.step()
        trajectory.append({name: tensor.detach().numpy().copy() for name, tensor in parameters.items()})
    return trajectory


def optax_s(jax: Any, optax: Any, case: Case) -> Trajectory:
    arrays, parameters = data(), {name: jax.numpy.asarray(array) for name, array in initial().items()}
    gradient = jax.jit(jax.grad(lambda ws: loss(jax.numpy.exp, jax.numpy.log, **arrays, **ws)))
    # optax counts steps from 0, and takes a rate that changes as a function of that.
    optimizer = case.optax(optax, RATE if case.rate is constant else lambda count: case.rate(count + 1))
    state = optimizer.init(parameters)
    trajectory = []
    for _ in range(STEPS):
        updates, state = optimizer.update(gradient(parameters), state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        trajectory.append({name: np.asarray(array) for name, array in parameters.items()})
    return trajectory


def distance(x: Trajectory, y: Trajectory) -> float:
    """The largest difference in any parameter at any step, relative to the size of that parameter."""
    assert len(x) == len(y) == STEPS
    return max(
        float(np.max(np.abs(ours[name] - theirs[name])) / np.max(np.abs(theirs[name])))
        for ours, theirs in zip(x, y, strict=True)
        for name in PARAMETERS
    )


# --------------------------------------------------------------------------------------------------------------- tests


@pytest.fixture(scope="module")
def torch() -> Any:
    """Imported here, as collecting the tests must not take what few of them need."""
    return import_module("torch")


@pytest.fixture(scope="module")
def jax() -> Iterator[Any]:
    module = import_module("jax")
    before = module.config.jax_enable_x64
    module.config.update("jax_enable_x64", True)
    yield module
    module.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def optax(jax: Any) -> Any:
    return import_module("optax")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.torch is not None])
def test_goes_the_way_of_torch(name: str, torch: Any) -> None:
    assert distance(ours(CASES[name]), torch_s(torch, CASES[name])) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_goes_the_way_of_optax(name: str, jax: Any, optax: Any) -> None:
    assert distance(ours(CASES[name]), optax_s(jax, optax, CASES[name])) < TOLERANCE


def test_no_two_rules_go_the_same_way() -> None:
    """So none of the rules is without effect on this problem, and the comparison can fail."""
    trajectories = {name: ours(case) for name, case in CASES.items()}
    for x, y in combinations(trajectories, 2):
        assert distance(trajectories[x], trajectories[y]) > 1e-3, (x, y)
