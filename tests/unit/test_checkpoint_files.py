"""Files that are no checkpoint of the step are refused, cheaply, and a failed write leaves the one before."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steps import mse, spec
from tinychain.autodiff.backends.numpy import NumpyFunction
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.lowering import LoweredProgram
from tinychain.autodiff.runner import Checkpoint, EarlyStopping, Trainer
from tinychain.autodiff.training import Momentum
from trainers import any_rows, bits, data, four_rows, refusal, trainer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


# ------------------------------------------------------------------------------------------------------ refused files


def saved(path: Path) -> bytes:
    training = trainer()
    training.fit(data(8), epochs=1)
    training.save(path)
    return path.read_bytes()


def refused(path: Path, content: bytes | None = None, training: Trainer | None = None) -> str:
    """The message with which a file is refused, which leaves the trainer as it was."""
    if content is not None:
        path.write_bytes(content)
    training = training or trainer()
    before = bits(training)
    error = refusal(training.restore, path)
    assert error.category == "invalid_checkpoint"
    assert str(path) in error.message
    assert bits(training) == before
    return error.message


def test_a_file_that_is_cut_off_is_refused(path: Path) -> None:
    content = saved(path)
    for length in range(0, len(content), 37):
        refused(path, content[:length])


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_a_file_that_is_changed_is_refused_or_says_the_same(path: Path, choice: st.DataObject) -> None:
    """A changed byte may be one that nothing reads, such as the time of a member."""
    content = bytearray(saved(path))
    position = choice.draw(st.integers(0, len(content) - 1))
    content[position] ^= choice.draw(st.integers(1, 255))
    expected, training = trainer(), trainer()
    untouched = bits(training)
    expected.restore(path)
    path.write_bytes(content)
    with suppress(AutodiffError):
        training.restore(path)
    assert bits(training) in (untouched, bits(expected))


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=allow_pickle)
    return buffer.getvalue()


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, (f"{os.environ['PYTEST_BOMB']}",)


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        ("trained/w.npy", npy(np.zeros((1, 3))), "expected float64[3, 1], got float64[1, 3]"),
        ("trained/w.npy", npy(np.zeros((3, 1), np.float32)), "expected float64[3, 1], got float32[3, 1]"),
        ("trained/w.npy", npy(np.zeros((3, 1), np.complex128)), "got complex128[3, 1]"),
        ("trained/w.npy", npy(np.full((3, 1), np.nan)), "'w' is nan at [0, 0]"),
        ("trained/w.npy", npy(np.asfortranarray(np.zeros((3, 1))))[:-8], "trained/w"),
        ("trained/w.npy", None, "trained/w.npy"),
        ("trained/z.npy", npy(np.zeros(1)), "trained/z.npy"),
        ("history/1.npy", npy(np.zeros(1)), "history/1.npy"),
        ("history/0.npy", npy(np.zeros((1, 1))), "history/0"),
        ("place/step.npy", npy(np.int64(-1)), "'step': -1"),
        ("place/epoch.npy", npy(np.int64(0)), "'epoch': 0"),
        ("place/step.npy", npy(np.float64(1)), "got float64[]"),
        ("place/step.npy", npy(np.int64(2**63 - 1)), "'step': 9223372036854775807"),
        ("place/epoch.npy", npy(np.int64(3)), "'epoch': 3"),
        ("place/batch.npy", npy(np.int64(1)), "'batch': 1"),
        ("place/batch.npy", npy(np.int64(-1)), "'batch': -1"),
        ("place/batches.npy", npy(np.int64(2)), "'batches': 2"),
        ("place/rows.npy", npy(np.int64(-3)), "'rows': -3"),
        ("place/rows.npy", npy(np.int64(-1)), "'rows': -1"),
        ("place/batch_size.npy", npy(np.int64(0)), "'batch_size': 0"),
        ("place/shuffle_seed.npy", npy(np.int64(-2)), "'shuffle_seed': -2"),
        ("place/stopped.npy", npy(np.int64(2)), "'stopped': 2"),
        ("sha256.npy", npy(np.zeros(32, np.uint8)), "SHA-256"),
        ("sha256.npy", None, "sha256.npy"),
        ("version.npy", npy(np.int64(2)), "version is 2; this package reads version 1"),
        ("step.npy", npy(np.zeros(32, np.uint8)), "another training step"),
        ("trained/w.npy", b"not an array", "ValueError"),
        ("trained/w.npy", b"", "ValueError"),
    ],
)
def test_a_member_that_is_wrong_is_named(path: Path, name: str, part: bytes | None, expected: str) -> None:
    parts = {**members(saved(path)), name: part}
    message = refused(path, packed({key: value for key, value in parts.items() if value is not None}))
    assert expected in message


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("trained/w", np.ones((3, 1))),
        ("trained/w.velocity", np.ones((3, 1))),
        ("place/step", np.int64(7)),
        ("place/stopped", np.int64(1)),
        ("place/shuffle_seed", np.int64(7)),
        ("history/0", np.array([0.5])),
    ],
)
def test_numbers_that_are_edited_are_refused(path: Path, name: str, array: Any) -> None:
    early = EarlyStopping(lambda _: 1.0, every=1, patience=9)
    trainer().fit(data(8), epochs=1, callbacks=[early], checkpoint=Checkpoint(path, 1))
    with np.load(path) as stored:
        assert name in stored
        np.savez(path, **{**stored, name: array})
    assert "their SHA-256 is another" in refused(path)


def test_numbers_that_are_only_copied_are_not(path: Path) -> None:
    saved(path)
    with np.load(path) as stored:
        np.savez(path, **stored)
    trainer().restore(path)


def test_arrays_in_another_order_of_memory_come_back(path: Path) -> None:
    """A backend may return them so."""

    def backend(program: LoweredProgram) -> Any:
        function = NumpyFunction(program)
        return lambda arrays: {key: np.asarray(array, order="F") for key, array in function(arrays).items()}

    step = any_rows(inputs={"x": spec("N", 3), "y": spec("N", 2), "w": spec(3, 2)})
    training = trainer(step, backend=backend, parameters={"w": np.full((3, 2), 0.25)})
    training.fit({"x": data(8)["x"], "y": data(8)["x"][:, :2]}, epochs=1)
    assert not training.parameters["w"].flags.c_contiguous
    training.save(path)
    again = trainer(step, parameters={"w": np.zeros((3, 2))})
    again.restore(path)
    assert bits(again) == bits(training)


def test_nothing_is_unpickled(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "unpickled"
    monkeypatch.setenv("PYTEST_BOMB", str(mark))
    part = npy(np.array([[Bomb()]] * 3, object), allow_pickle=True)
    assert "object" in refused(path, packed({**members(saved(path)), "trained/w.npy": part}))
    assert not mark.exists()


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "part",
    [
        header("(10**15,)"),
        header("(1000000000000000,)"),
        header("(3, 1)"),
        header("(-3, 1)"),
        header("(" + "(" * 40 + ")" * 40 + ",)"),
        header("(3, 1)", "O"),
        header("(3, 1)", "<f8, <f8"),
    ],
)
@pytest.mark.parametrize("name", ["trained/w.npy", "history/0.npy"])
def test_a_hostile_header_takes_no_memory(path: Path, name: str, part: bytes) -> None:
    content = packed({**members(saved(path)), name: part})
    tracemalloc.start()
    try:
        refused(path, content)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_compressed_file_is_refused(path: Path) -> None:
    parts = {**members(saved(path)), "trained/w.npy": bytes(10_000_000)}
    assert "compressed" in refused(path, packed(parts, zipfile.ZIP_DEFLATED))


def test_a_file_far_larger_than_the_step_is_not_opened(path: Path) -> None:
    saved(path)
    with path.open("ab") as file:
        file.truncate(2**30)
    tracemalloc.start()
    try:
        assert f"it has {2**30} bytes" in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_many_members_take_at_most_20_times_the_file(path: Path) -> None:
    content = packed({f"{index}": b"" for index in range(20_000)} | members(saved(path)))
    tracemalloc.start()
    try:
        refused(path, content)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(content)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"PK", b"text", bytes(1000), json.dumps({"w": [1.0]}).encode()])
def test_a_foreign_file_is_refused(path: Path, content: bytes) -> None:
    refused(path, content)


def test_a_missing_file_and_a_folder_are_refused(path: Path, tmp_path: Path) -> None:
    assert "FileNotFoundError" in refused(path)
    assert "IsADirectoryError" in refused(tmp_path)


def test_what_is_no_file_is_neither_read_nor_replaced(path: Path) -> None:
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)  # so that one that does open it fails, and does not wait for a writer
    assert "Not a regular file" in refused(path)
    training = trainer()
    checkpoint = Checkpoint(path, 1)
    for call in (lambda: training.save(path), lambda: training.fit(data(8), epochs=2, checkpoint=checkpoint)):
        error = refusal(call)
        assert error.category == "unwritable_checkpoint"
        assert f"'{path}' cannot be written: OSError: [Errno 22] Not a regular file" in error.message
    assert training.steps == 0
    os.close(held)
    assert path.is_fifo()
    assert os.listdir(path.parent) == [path.name]


def test_a_checkpoint_of_another_step_is_refused(path: Path) -> None:
    saved(path)
    other_steps = [
        any_rows(optimizer=Momentum(0.25)),
        any_rows(loss=lambda x, y, w: (x @ w - y).sum()),
        any_rows(inputs={"x": spec("M", 3), "y": spec("M", 1), "w": spec(3, 1)}),
        four_rows(loss=mse),
    ]
    for step in other_steps:
        assert "cannot be used: it is of another training step" in refused(path, training=trainer(step))
    assert (
        "another training step"
        in refusal(trainer(other_steps[0]).fit, data(8), epochs=1, checkpoint=Checkpoint(path, 1), resume=True).message
    )


# ----------------------------------------------------------------------------------------------------- failed writes


def unwritable(path: Path) -> str:
    """The message of the refusal, which comes before the first step."""
    training = trainer()
    error = refusal(training.fit, data(8), epochs=2, checkpoint=Checkpoint(path, 1))
    assert error.category == "unwritable_checkpoint"
    assert str(path) in error.message
    assert training.steps == 0
    return error.message


@pytest.mark.parametrize("name", ["file", "missing"])
def test_a_folder_that_is_none_or_is_missing_is_named_before_the_first_step(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way")
    training, path = trainer(), tmp_path / name / "run.npz"
    calls: list[Any] = [
        lambda: training.fit(data(8), epochs=2, checkpoint=Checkpoint(path, 100)),
        lambda: training.save(path),
    ]
    for call in calls:
        error = refusal(call)
        assert error.category == "unwritable_checkpoint"
        assert f"'{path}' cannot be written: there is no folder '{path.parent}'" in error.message
    assert training.steps == 0
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_the_place_of_the_file(path: Path) -> None:
    path.mkdir()
    assert "IsADirectoryError" in unwritable(path)
    assert os.listdir(path.parent) == [path.name]


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    unwritable(tmp_path / ("x" * 300))


_FULL = """
import resource, sys
sys.path[:0] = {paths!r}
from trainers import data, trainer
from tinychain.autodiff.errors import AutodiffError
training = trainer()
training.fit(data(8), epochs=3)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    training.save({path!r})
except AutodiffError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_checkpoint_before(path: Path) -> None:
    before = saved(path)
    assert len(before) > 1000
    tests = Path(__file__).parents[1]
    script = _FULL.format(paths=[str(tests), str(tests.parent / "src")], path=str(path))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"unwritable_checkpoint: '{path}' cannot be written: OSError")
    assert done.stderr == ""
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
