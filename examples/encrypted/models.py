"""What is trained on encrypted data: three losses as a user writes them, and what both sides must know about the data.

Shapes, ranges and learning rates are no secrets here: the server reads them from this file. It calls no `load`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from examples.breast_cancer import load as load_breast_cancer
from examples.breast_cancer import loss as squared_error
from tinychain.autodiff import SGD, Momentum, Tensor

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Range: TypeAlias = tuple[float, float]

#: Least squares on [-8, 8]: Kim et al., "Logistic regression model training based on the approximate homomorphic
#: encryption" (2018). The sigmoid is about 0.5 + LINEAR z + CUBIC z**3 there.
LINEAR, CUBIC = 1.20096 / 8, -0.81562 / 8**3

CLASSES = 3
HIDDEN = 4


@dataclass(frozen=True)
class Model:
    """A loss of the inputs `x` and `y` and of parameters, trained on all rows in each step.

    `ranges` are those of inputs, parameters and the optimizer's states; the client checks that they hold. `load` makes
    rows to train and to test with, `start` the first parameters, `scores` a column for each class, or one where there
    are two.
    """

    title: str
    loss: Callable[..., Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    parameters: tuple[str, ...]
    optimizer: SGD | Momentum
    learning_rate: float
    ranges: Mapping[str, Range]
    load: Callable[[], tuple[Arrays, Arrays]]
    start: Callable[[], Arrays]
    scores: Callable[[NDArray[Any], Arrays], NDArray[Any]]

    def sample(self) -> Arrays:
        """Made-up rows and weights, the same in every process: normal features, and labels that a random model gives.

        A plan of several steps is made for the noise that is to be expected on these.
        """
        random = np.random.default_rng(0)
        weights = {name: random.uniform(*self.ranges[name], self.shapes[name]) / 2 for name in self.parameters}
        x = np.clip(random.normal(0, -self.ranges["x"][0] / 4, self.shapes["x"]), *self.ranges["x"])
        scores = self.scores(x, weights)
        is_one = scores > scores.mean() if scores.shape[1] == 1 else scores == scores.max(axis=1, keepdims=True)
        return {"x": x, "y": np.where(is_one, *self.ranges["y"][::-1]), **weights}

    def accuracy(self, rows: Arrays, weights: Arrays) -> float:
        return float(np.mean(_decide(self.scores(rows["x"], weights)) == _decide(rows["y"])))


def _decide(columns: NDArray[Any]) -> NDArray[Any]:
    return columns[:, 0] > 0 if columns.shape[1] == 1 else columns.argmax(axis=1)


# -------------------------------------------------------------------------------------------------------------- losses


def cubic_cross_entropy(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The integral of the cubic sigmoid, less y z. Its gradient is that of cross-entropy: x.T @ (sigmoid - y) / n."""
    z = x @ w + b
    square = z * z
    return (z * 0.5 + square * (LINEAR / 2) + square * square * (CUBIC / 4) - y * z).mean()


def network_error(x: Tensor, y: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """The mean squared error of a network whose activation is the square."""
    hidden = x @ w1 + b1
    residual = (hidden * hidden) @ w2 + b2 - y
    return (residual * residual).mean()


# ---------------------------------------------------------------------------------------------------------------- data


def standardised() -> tuple[Arrays, Arrays]:
    return load_breast_cancer("f64")


def scaled() -> tuple[Arrays, Arrays]:
    """The same rows with the features of the training rows in [-1, 1], and labels of 1 and 0."""
    data, test = load_breast_cancer("f64")
    largest = np.abs(data["x"]).max(axis=0)
    return _scaled(data, largest), _scaled(test, largest)


def _scaled(rows: Arrays, largest: NDArray[Any]) -> Arrays:
    return {"x": rows["x"] / largest, "y": (rows["y"] + 1) / 2}


def wines() -> tuple[Arrays, Arrays]:
    """Features of mean 0 that are within [-1, 1] in the training rows, and a column of 1 and 0 for each class."""
    features, target = load_wine(return_X_y=True)
    x, x_test, y, y_test = train_test_split(features, target, test_size=0.2, random_state=0, stratify=target)
    centre = x.mean(axis=0)
    largest = np.abs(x - centre).max(axis=0)
    one_hot = np.eye(CLASSES)
    return {"x": (x - centre) / largest, "y": one_hot[y]}, {"x": (x_test - centre) / largest, "y": one_hot[y_test]}


def zeros() -> Arrays:
    return {"w": np.zeros((30, 1)), "b": np.zeros(1)}


def small_weights() -> Arrays:
    """The same in every run, so that runs can be compared. A real client draws its own, and keeps them to itself."""
    random = np.random.default_rng(0)
    return {
        "w1": random.uniform(-0.5, 0.5, (13, HIDDEN)),
        "b1": random.uniform(-0.5, 0.5, HIDDEN),
        "w2": random.uniform(-0.5, 0.5, (HIDDEN, CLASSES)),
        "b2": np.zeros(CLASSES),
    }


def linear_scores(x: NDArray[Any], weights: Arrays) -> NDArray[Any]:
    return x @ weights["w"] + weights["b"]


def network_scores(x: NDArray[Any], weights: Arrays) -> NDArray[Any]:
    return (x @ weights["w1"] + weights["b1"]) ** 2 @ weights["w2"] + weights["b2"]


# -------------------------------------------------------------------------------------------------------------- models

MODELS: Mapping[str, Model] = {
    "linear": Model(
        title="breast cancer, linear, squared error, momentum",
        loss=squared_error,
        shapes={"x": (455, 30), "y": (455, 1), "w": (30, 1), "b": (1,)},
        parameters=("w", "b"),
        optimizer=Momentum(0.9),
        learning_rate=0.01,
        ranges={
            "x": (-4.0, 11.0),
            "y": (-1.0, 1.0),
            "w": (-0.25, 0.25),
            "b": (-0.5, 0.5),
            "w.velocity": (-4.0, 4.0),
            "b.velocity": (-4.0, 4.0),
        },
        load=standardised,
        start=zeros,
        scores=linear_scores,
    ),
    "logistic": Model(
        title="breast cancer, logistic, cubic sigmoid",
        loss=cubic_cross_entropy,
        shapes={"x": (455, 30), "y": (455, 1), "w": (30, 1), "b": (1,)},
        parameters=("w", "b"),
        optimizer=SGD(),
        learning_rate=0.7,
        ranges={"x": (-1.0, 1.0), "y": (0.0, 1.0), "w": (-1.5, 1.5), "b": (-1.0, 1.0)},
        load=scaled,
        start=zeros,
        scores=linear_scores,
    ),
    "network": Model(
        title="wine, two layers with a square activation, momentum",
        loss=network_error,
        shapes={
            "x": (142, 13),
            "y": (142, CLASSES),
            "w1": (13, HIDDEN),
            "b1": (HIDDEN,),
            "w2": (HIDDEN, CLASSES),
            "b2": (CLASSES,),
        },
        parameters=("w1", "b1", "w2", "b2"),
        optimizer=Momentum(0.9),
        learning_rate=0.3,
        ranges={
            "x": (-1.0, 1.0),
            "y": (0.0, 1.0),
            "w1": (-1.0, 1.0),
            "b1": (-1.0, 1.0),
            "w2": (-1.5, 1.5),
            "b2": (-1.5, 1.5),
            "w1.velocity": (-0.5, 0.5),
            "b1.velocity": (-0.5, 0.5),
            "w2.velocity": (-1.0, 1.0),
            "b2.velocity": (-1.0, 1.0),
        },
        load=wines,
        start=small_weights,
        scores=network_scores,
    ),
}
