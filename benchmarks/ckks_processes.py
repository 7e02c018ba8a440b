"""What needs a process of its own: the peak of a server's memory, and forks, which libraries with threads forbid.

They run in a fresh process, which `in_new_process` starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from benchmarks.ckks_by_hand import ByHand
from benchmarks.ckks_by_tensors import ByTensors
from benchmarks.ckks_session import Session, check, first_columns, random_data, training_plan
from benchmarks.turns import interleaved
from tinychain.autodiff.backends.ckks import Server

T = TypeVar("T")


def in_new_process(function: Callable[..., T], *arguments: object) -> T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def serve(model: str, messages: Sequence[bytes]) -> tuple[list[bytes], int]:
    """The replies to a client's messages, and the peak of a process that imports the package, plans and answers."""
    server = Server(training_plan(model))
    return [server.handle(message) for message in messages], _peak_bytes()


def tensors_peak_bytes(model: str, columns: int) -> int:
    """The peak of a process that computes the step by the tensor API on so many columns, and encrypts too."""
    ByTensors(training_plan(model).parameters, first_columns(random_data(model), columns)).step()
    return _peak_bytes()


def seconds_by_processes(model: str, rounds: int) -> list[float]:
    """Of the step by hand, in one process and in two."""
    session = Session(model)
    by_hand = ByHand(session)
    check(session.arrays, by_hand.decrypted(by_hand.step_in_two_processes()))
    return interleaved([by_hand.step, by_hand.step_in_two_processes], rounds)


def _peak_bytes() -> int:
    """Of this process since it was started, where the system says so; resource usage would begin with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
