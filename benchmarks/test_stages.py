"""What each stage costs per node, in time and memory, from a thousand nodes to a million, with JAX beside it.

Times are the best of some rounds, with the garbage collector on. Memory is the peak that tracemalloc sees during one
more run of the stage, its result included and its input excluded.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from benchmarks.tables import exponent, markdown
from benchmarks.workloads import SIDE, WORKLOADS, stages

STAGES = ("trace", "generate", "expand", "analyse", "lower")
JAX = ("JAX trace", "JAX trace + grad")
ROUNDS = {1_000: 20, 10_000: 10, 100_000: 3, 1_000_000: 1}
JAX_LIMIT_S = 60.0


class Cost(NamedTuple):
    """Seconds, and bytes where they were measured, of one run over so many nodes."""

    nodes: int
    seconds: float
    peak_bytes: int = 0


Costs = dict[tuple[str, int, str], Cost]
Case = tuple[str, int, Mapping[str, tuple[Callable[[], object], int]]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sizes = [*ROUNDS][:1] if metafunc.config.getoption("--smoke") else [*ROUNDS]
    names = [name for name in WORKLOADS if "case" in metafunc.fixturenames or name == "chain"]
    fixture = "case" if "case" in metafunc.fixturenames else "jax_case"
    keys = [(name, nodes) for name in names for nodes in sizes]
    metafunc.parametrize(fixture, keys, ids=[f"{n}-{s}" for n, s in keys], indirect=fixture == "case", scope="module")


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    name, nodes = request.param
    return name, nodes, stages(WORKLOADS[name], nodes)


@pytest.fixture(scope="module")
def costs(smoke: bool, add_table: Callable[[str, str], None]) -> Iterator[Costs]:
    found: Costs = {}
    yield found
    add_table("time", time_table(found))
    add_table("memory", memory_table(found))


@pytest.mark.parametrize("stage", STAGES)
def test_stage(benchmark: Any, case: Case, stage: str, costs: Costs, smoke: bool) -> None:
    name, nodes, runs = case
    run, given = runs[stage]
    benchmark.pedantic(run, rounds=1 if smoke else ROUNDS[nodes], warmup_rounds=0 if nodes > 10_000 else 1)
    cost = Cost(given, benchmark.stats.stats.min, peak_bytes(run))
    benchmark.extra_info.update(us_per_node=cost.seconds / given * 1e6, bytes_per_node=cost.peak_bytes / given)
    costs[name, nodes, stage] = cost


def peak_bytes(run: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        result = run()
        peak = tracemalloc.get_traced_memory()[1]
        del result
        return peak
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("stage", JAX)
def test_jax(request: pytest.FixtureRequest, jax_case: tuple[str, int], stage: str, costs: Costs, smoke: bool) -> None:
    """The same chain in JAX, up to the size whose run would take more than a minute."""
    name, nodes = jax_case
    before = costs.get((name, nodes // 10, stage))
    if not smoke and nodes > min(ROUNDS) and (before is None or before.seconds * 10 > JAX_LIMIT_S):
        return
    ones = jnp.ones((SIDE, SIDE))

    def run() -> object:  # a function of its own each time, since JAX may remember what it traced
        def loss(x: Any, y: Any) -> Any:
            return WORKLOADS[name](x, y, nodes)

        return jax.make_jaxpr(loss if stage == "JAX trace" else jax.grad(loss))(ones, ones)

    benchmark = request.getfixturevalue("benchmark")
    benchmark.pedantic(run, rounds=1 if smoke else 2)
    costs[name, nodes, stage] = Cost(nodes, benchmark.stats.stats.min)


# ------------------------------------------------------------------------------------------------------------ tables


def time_table(costs: Costs) -> str:
    """Microseconds per node, and per graph the exponent with which the time grows with the number of nodes."""
    columns = (*STAGES, *JAX)
    rows = []
    for name in dict.fromkeys(key[0] for key in costs):
        sizes = list(dict.fromkeys(key[1] for key in costs if key[0] == name))
        for nodes in sizes:
            cells = [costs.get((name, nodes, column)) for column in columns]
            rows.append([f"{name}, {nodes:,}", *[_microseconds(cell) for cell in cells]])
        if len(sizes) > 1:
            rows.append([f"{name}, exponent", *[exponent(_points(costs, name, column)) for column in columns]])
    return markdown(["graph, nodes", *columns], rows)


def _points(costs: Costs, name: str, column: str) -> list[tuple[int, float]]:
    return [(cost.nodes, cost.seconds) for key, cost in costs.items() if (key[0], key[2]) == (name, column)]


def _microseconds(cost: Cost | None) -> str:
    return "" if cost is None else f"{cost.seconds / cost.nodes * 1e6:.2f}"


def memory_table(costs: Costs) -> str:
    """Peak bytes per node."""
    keys = dict.fromkeys(key[:2] for key in costs)
    rows = [
        [f"{name}, {nodes:,}", *[f"{(c := costs[name, nodes, stage]).peak_bytes / c.nodes:.0f}" for stage in STAGES]]
        for name, nodes in keys
        if (name, nodes, STAGES[-1]) in costs
    ]
    return markdown(["graph, nodes", *STAGES], rows)
