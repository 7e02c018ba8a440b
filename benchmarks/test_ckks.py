"""A training step on encrypted data: planned, by hand on the same library, and by its tensor API, in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.ckks_by_hand import ByHand
from benchmarks.ckks_by_tensors import ByTensors
from benchmarks.ckks_processes import in_new_process, seconds_by_processes, serve, tensors_peak_bytes
from benchmarks.ckks_session import MODELS, Session, check, first_columns, random_data, training_plan
from benchmarks.tables import markdown
from benchmarks.turns import interleaved
from tinychain.autodiff.backends.ckks import Client, measure

#: The tensor API takes primes for the powers of two that they are close to.
TENSORS_PRECISION = 1e-4

HEADER = ["model, ms", "predicted", "planned", "by hand", "ratio", "by hand, two processes", "tensor API", "ratio"]
MEMORY_HEADER = ["model, MiB at most", "server", "tensor API"]
ROUNDS, TENSORS_ROUNDS = 25, 3

#: Of the data, in the smallest run of the tensor API, and in all others.
FEWEST_COLUMNS, ALL_COLUMNS = 2, 31

Rows = list[list[str]]


@pytest.fixture(scope="module")
def rows(add_table: Callable[[str, str], None]) -> Iterator[Rows]:
    found: Rows = []
    yield found
    add_table("encrypted", markdown(HEADER, found))


@pytest.fixture(scope="module")
def memory_rows(add_table: Callable[[str, str], None]) -> Iterator[Rows]:
    found: Rows = []
    yield found
    add_table("encrypted-memory", markdown(MEMORY_HEADER, found))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    models = [*MODELS]
    if metafunc.function is test_memory or metafunc.config.getoption("--smoke"):
        models = models[:1]
    metafunc.parametrize("model", models)


@pytest.fixture(scope="module")
def columns(smoke: bool) -> int:
    return FEWEST_COLUMNS if smoke else ALL_COLUMNS


def test_encrypted_step(benchmark: Any, model: str, rows: Rows, columns: int, smoke: bool) -> None:
    session = Session(model)
    arrays = first_columns(session.arrays, columns)
    by_hand, by_tensors = ByHand(session), ByTensors(session.plan.parameters, arrays)
    check(session.arrays, session.decrypted(session.step()))
    check(session.arrays, by_hand.decrypted(by_hand.step()))
    check(arrays, by_tensors.decrypted(by_tensors.step()), TENSORS_PRECISION)

    rounds = 1 if smoke else ROUNDS
    planned, hand = benchmark.pedantic(interleaved, args=([session.step, by_hand.step], rounds), rounds=1)
    beside, tensors = interleaved([session.step, by_tensors.step], 1 if smoke else TENSORS_ROUNDS)
    one, two = in_new_process(seconds_by_processes, model, rounds)
    predicted = session.plan.cost(measure(session.plan.parameters)).seconds
    benchmark.extra_info.update(predicted_s=predicted, planned_s=planned, by_hand_s=hand, by_tensors_s=tensors)
    benchmark.extra_info.update(two_processes=two / one)
    milliseconds = [f"{1e3 * seconds:.0f}" for seconds in (predicted, planned, hand, two / one * hand, tensors)]
    milliseconds.insert(3, f"{planned / hand:.2f}")
    rows.append([model, *milliseconds, f"{tensors / beside:.1f}"])


def test_memory(benchmark: Any, model: str, memory_rows: Rows, columns: int) -> None:
    arrays = random_data(model)
    data = {name: arrays[name] for name in ("x", "y")}
    trained = {name: array for name, array in arrays.items() if name not in data}
    client = Client(training_plan(model))
    messages = [client.keys(), client.data(data), client.request(trained)]
    (*_, reply), server = benchmark.pedantic(in_new_process, args=(serve, model, messages), rounds=1)
    check(arrays, client.result(reply).trained)
    tensors = in_new_process(tensors_peak_bytes, model, columns)
    benchmark.extra_info.update(server_bytes=server, tensors_bytes=tensors)
    memory_rows.append([model, f"{server / 2**20:.0f}", f"{tensors / 2**20:.0f}"])
