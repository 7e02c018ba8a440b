"""The encrypted training step that is measured: a linear model with momentum, on data that nobody computes with in the
clear. Its data, its plan and its keys serve every way to compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff import Momentum, compile_training_step
from tinychain.autodiff.backends.ckks import CKKS, bind_input, ckks_registry, plan_training
from tinychain.autodiff.backends.ckks.circuit import Kind
from tinychain.autodiff.backends.ckks.evaluator import Evaluator, Execution, input_key
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys, SecretKeys
from tinychain.autodiff.backends.ckks.library import Ciphertext, from_bytes, to_bytes
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.expansion import Legalize

Array = NDArray[np.float64]
Arrays = Mapping[str, Array]

ROWS: Final = 455
RING_SIZE: Final = 16384
RATE: Final = 0.05
MOMENTUM: Final = 0.9

#: What standardized features, labels and what is trained keep to.
RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "x": (-4.0, 13.0),
    "y": (-1.0, 1.0),
    "w": (-2.0, 2.0),
    "w.velocity": (-9.0, 9.0),
    "b": (-2.0, 2.0),
    "b.velocity": (-9.0, 9.0),
}


def with_bias(x: Any, y: Any, w: Any, b: Any) -> Any:
    residual = x @ w + b - y
    return (residual * residual).mean()


def without_bias(x: Any, y: Any, w: Any) -> Any:
    residual = x @ w - y
    return (residual * residual).mean()


#: By name: the loss and how many columns the data have.
MODELS: Final[Mapping[str, tuple[Callable[..., Any], int]]] = {
    "30 columns and a bias": (with_bias, 30),
    "31 columns, one of ones": (without_bias, 31),
}


def random_data(model: str) -> Arrays:
    """Data, parameters and states of the shapes of a model, within their ranges."""
    loss, columns = MODELS[model]
    random = np.random.default_rng(0)
    x = np.clip(random.standard_normal((ROWS, columns)), *RANGES["x"])
    arrays = {
        "x": x,
        "y": np.sign(random.standard_normal((ROWS, 1))),
        "w": random.uniform(-0.5, 0.5, (columns, 1)),
        "w.velocity": random.uniform(-1, 1, (columns, 1)),
    }
    if loss is with_bias:
        return {**arrays, "b": np.array([0.3]), "b.velocity": np.array([-0.2])}
    x[:, -1] = 1.0
    return arrays


def first_columns(arrays: Arrays, count: int) -> Arrays:
    """The same with fewer columns of data."""
    rows = {name: array[:count] for name, array in arrays.items() if name in ("w", "w.velocity")}
    return {**arrays, **rows, "x": arrays["x"][:, :count]}


def expected_step(arrays: Arrays) -> Arrays:
    """The same step in NumPy."""
    x, w = arrays["x"], arrays["w"]
    residual = x @ w + arrays.get("b", 0.0) - arrays["y"]
    gradients = {"w": x.T @ residual, "b": residual.sum(axis=0)}
    found: dict[str, Array] = {}
    for name in ("w", "b"):
        if name in arrays:
            velocity = MOMENTUM * arrays[f"{name}.velocity"] + gradients[name] * (2 / len(x))
            found |= {f"{name}.velocity": velocity, name: arrays[name] - RATE * velocity}
    return found


def check(arrays: Arrays, found: Arrays, precision: float = 1e-6) -> None:
    """Raises AssertionError where the results of a step on these arrays are not those of NumPy."""
    expected = expected_step(arrays)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=precision, err_msg=name)


def training_plan(model: str) -> TrainingPlan:
    """All data, parameters and states are secret, and the learning rate is known."""
    loss, columns = MODELS[model]
    shapes = {"x": [ROWS, columns], "y": [ROWS, 1], "w": [columns, 1]} | ({"b": [1]} if loss is with_bias else {})
    parameters = [name for name in shapes if name in ("w", "b")]
    legalize = [Legalize(CKKS)]
    step = compile_training_step(
        loss,
        inputs={name: {"dtype": "f64", "shape": shape} for name, shape in shapes.items()},
        parameters=parameters,
        optimizer=Momentum(momentum=MOMENTUM),
        optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": []}},
        handlers=ckks_registry(),
        bind_input=bind_input,
        forward_expansions=legalize,
        derivative_expansions=legalize,
        update_expansions=legalize,
    )
    ranges = {name: RANGES[name] for name in (*shapes, *[f"{name}.velocity" for name in parameters])}
    return plan_training(step, secret=[*shapes], ranges={**ranges, "learning_rate": RATE}, ring_sizes=(RING_SIZE,))


class Session:
    """The plan of a model, keys for it, and its encrypted inputs on the server's side, ready to run."""

    def __init__(self, model: str) -> None:
        self.plan = training_plan(model)
        self.arrays = random_data(model)
        self._secret = SecretKeys.generate(self.plan.parameters, self.plan.circuit.rotations)
        self.keys = EvaluationKeys.from_bytes(self.plan.parameters, self._secret.evaluation_keys)
        layout, secret = self.plan.layout, self.plan.secret_inputs
        self._inputs = {}
        for instruction in self.plan.circuit.instructions:
            if instruction.kind is Kind.INPUT:
                name, block, depth, number = key = input_key(instruction)
                slots = layout.pack(self.arrays[name], secret[name], block)
                self._inputs[key] = self.encrypt(slots * number, depth)
        known = {o.position: o.known for o in self.plan.program.operations if o.known is not None}
        self._evaluator = Evaluator(self.keys, self.plan.circuit, layout, known)

    def encrypt(self, slots: Array, depth: int) -> Ciphertext:
        """A ciphertext as the server receives it: made with the secret key, and read from bytes."""
        return from_bytes("ciphertext", self.keys.moduli.context, self._secret.encrypt(slots, depth))

    def decrypt(self, ciphertext: Ciphertext) -> Array:
        return self._secret.decrypt(to_bytes(ciphertext))

    def step(self) -> Execution:
        """What the server does in a step, between reading the request's bytes and writing the reply's."""
        return self._evaluator.run(self._inputs)

    def decrypted(self, execution: Execution) -> Arrays:
        """The results by name."""
        found = {}
        for name, output in self.plan.circuit.outputs.items():
            blocks = {block: self.decrypt(ciphertext) for block, ciphertext in execution.outputs[name].items()}
            found[name] = self.plan.layout.unpack(blocks, output.axes, output.owned) * output.factor
        return found
