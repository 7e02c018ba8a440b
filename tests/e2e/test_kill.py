"""A run that is killed at random moments, again and again, ends bit by bit where an uninterrupted one does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]

_SCRIPT = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
from steps import spec
from tinychain.autodiff.backends.numpy import NumpyFunction
from tinychain.autodiff.runner import Checkpoint, EarlyStopping, Trainer
from trainers import any_rows

columns = 10_000
step = any_rows(inputs={{"x": spec("N", columns), "y": spec("N", 1), "w": spec(columns, 1)}})
trainer = Trainer(
    step,
    backend=NumpyFunction,
    parameters={{"w": np.zeros((columns, 1))}},
    optimizer_inputs={{"learning_rate": lambda number: 1e-5 / number}},
)
rng = np.random.default_rng(0)
data = {{"x": rng.normal(size=(31, columns)), "y": rng.normal(size=(31, 1))}}
early = EarlyStopping(lambda trainer: trainer.evaluate(data), every=5, patience=1000)
report = trainer.fit(
    data,
    epochs={epochs},
    batch_size=2,
    shuffle_seed=3,
    callbacks=[early],
    checkpoint=Checkpoint(sys.argv[1], every=1),
    resume=True,
)
print(report.steps)
"""


def start(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)


def wait_for_a_step(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the process has written a checkpoint of its own."""
    before = path.stat().st_mtime_ns if path.exists() else None
    until = time.monotonic() + 60
    while (path.stat().st_mtime_ns if path.exists() else None) == before:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.001)


def arrays(path: Path) -> dict[str, bytes]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: array.tobytes() for name, array in stored.items()}


def test_kill_and_resume_is_as_no_kill(tmp_path: Path) -> None:
    epochs = 12
    script = _SCRIPT.format(paths=[str(ROOT / "tests"), str(ROOT / "src")], epochs=epochs)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    with start(script, whole / "run") as process:
        output, _ = process.communicate(timeout=120)
    assert output == f"{16 * epochs}\n"

    chance = random.Random(11)
    for _ in range(5):
        with start(script, killed / "run") as process:
            wait_for_a_step(killed / "run", process)
            time.sleep(chance.uniform(0.0, 0.03))
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(timeout=60) == -signal.SIGKILL
    with start(script, killed / "run") as process:
        output, _ = process.communicate(timeout=120)
    assert 0 < int(output) < 16 * epochs
    assert arrays(killed / "run") == arrays(whole / "run")
