"""What compiling a whole training step costs, from ten layers to ten thousand, with JAX and torch.export beside it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.export.experimental import _export_forward_backward

from benchmarks.networks import compile_network, operation_count, shapes, squared_error
from benchmarks.tables import exponent, markdown

ROUNDS = {10: 20, 100: 10, 1_000: 5, 10_000: 3}
PEER_LIMIT_S = 60.0


def compile_ours(layers: int) -> Callable[[], object]:
    return lambda: compile_network(layers)


def trace_jax(layers: int) -> Callable[[], object]:
    x, y, *weights = [jnp.ones(shape) for shape in shapes(layers).values()]

    def run() -> object:  # a function of its own each time, since JAX may remember what it traced
        def loss(weights: Any) -> Any:
            return squared_error(x, y, weights)

        return jax.make_jaxpr(jax.value_and_grad(loss))(weights)

    return run


class Network(torch.nn.Module):
    def __init__(self, *weights: torch.Tensor) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(weight) for weight in weights])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return squared_error(x, y, list(self.weights))


def export_torch(layers: int) -> Callable[[], object]:
    x, y, *weights = [torch.ones(shape) for shape in shapes(layers).values()]

    def run() -> object:
        with warnings.catch_warnings(action="ignore"):  # torch warns of its own deprecations
            return _export_forward_backward(torch.export.export(Network(*weights), (x, y)))

    return run


COMPILERS: dict[str, Callable[[int], Callable[[], object]]] = {
    "compile_training_step": compile_ours,
    "JAX value_and_grad": trace_jax,
    "torch.export joint": export_torch,
}

Seconds = dict[tuple[str, int], float]


@pytest.fixture(scope="module")
def seconds(add_table: Callable[[str, str], None]) -> Iterator[Seconds]:
    found: Seconds = {}
    yield found
    add_table("compile", table(found))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sizes = [*ROUNDS][:1] if metafunc.config.getoption("--smoke") else [*ROUNDS]
    metafunc.parametrize(("layers", "name"), [(layers, name) for layers in sizes for name in COMPILERS])


def test_compile(request: pytest.FixtureRequest, name: str, layers: int, seconds: Seconds, smoke: bool) -> None:
    """A peer stops at the size that would take it more than a minute."""
    before = seconds.get((name, layers // 10))
    if layers > min(ROUNDS) and (before is None or (name in list(COMPILERS)[1:] and before * 10 > PEER_LIMIT_S)):
        return
    run = COMPILERS[name](layers)
    benchmark = request.getfixturevalue("benchmark")
    benchmark.pedantic(run, rounds=1 if smoke else ROUNDS[layers], setup=settle)
    seconds[name, layers] = benchmark.stats.stats.median


def settle() -> None:
    gc.collect()  # what an earlier round left is none of this one's time


def table(seconds: Seconds) -> str:
    """Seconds per step, and microseconds per operation that our lowered programs have, for all compilers alike."""
    sizes = list(dict.fromkeys(layers for _, layers in seconds))
    operations = {layers: operation_count(compile_network(layers)) for layers in sizes}
    rows = []
    for layers in sizes:
        cells = []
        for name in COMPILERS:
            found = seconds.get((name, layers))
            cells += ["", ""] if found is None else [f"{found:.3g}", f"{found / operations[layers] * 1e6:,.1f}"]
        rows.append([f"{layers:,}", f"{operations[layers]:,}", *cells])
    if len(sizes) > 1:
        slopes = []
        for name in COMPILERS:
            points = [(operations[layers], s) for (compiler, layers), s in seconds.items() if compiler == name]
            slopes += ["", exponent(points)]
        rows.append(["exponent", "", *slopes])
    header = [cell for name in COMPILERS for cell in (f"{name}, s", "us/op")]
    return markdown(["layers", "operations", *header], rows)
