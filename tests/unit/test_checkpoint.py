"""A checkpoint brings a run back bit by bit, in the middle of an epoch too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steps import compiled, spec
from tinychain.autodiff.runner import Checkpoint, EarlyStopping, Trainer
from tinychain.autodiff.training import Momentum
from trainers import Arrays, bits, data, refusal, trainer

CUT: dict[str, Any] = {"batch_size": 3, "shuffle_seed": 5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


class Killed(BaseException):
    """Ends a run as a signal would, though more gently."""


def killed_at(step: int) -> Callable[[Any], None]:
    def callback(record: Any) -> None:
        if record.step == step:
            raise Killed

    return callback


# -------------------------------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("killed", [1, 3, 4, 8])
def test_a_killed_run_ends_where_an_uninterrupted_one_does(path: Path, every: int, killed: int) -> None:
    whole = trainer()
    whole.fit(data(8), epochs=3, **CUT)
    with pytest.raises(Killed):
        trainer().fit(
            data(8), epochs=3, checkpoint=Checkpoint(path, every), callbacks=[killed_at(killed)], resume=True, **CUT
        )
    again = trainer()
    report = again.fit(data(8), epochs=3, checkpoint=Checkpoint(path, every), resume=True, **CUT)
    assert report.steps == 9 - (killed - 1) // every * every
    assert bits(again) == bits(whole)


def test_batches_of_a_function_go_on_in_the_middle_of_an_epoch(path: Path) -> None:
    def batches(epoch: int) -> Iterator[Arrays]:
        for number in range(3):
            yield data(10 * epoch + number)

    whole = trainer()
    whole.fit(batches, epochs=3)
    with pytest.raises(Killed):
        trainer().fit(batches, epochs=3, checkpoint=Checkpoint(path, 1), callbacks=[killed_at(6)])
    again = trainer()
    assert again.fit(batches, epochs=3, checkpoint=Checkpoint(path, 1), resume=True).steps == 4
    assert bits(again) == bits(whole)


def test_several_parameters_with_states_come_back(path: Path) -> None:
    inputs = {"a": spec(2), "b": spec(3), "c": spec(2)}
    step = compiled(
        loss=lambda a, b, c: (a * a * c).sum() + (b * b).sum(),
        inputs=inputs,
        parameters=["c", "b", "a"],
        optimizer=Momentum(0.5),
    )
    start = {name: np.ones(of["shape"]) for name, of in inputs.items()}
    first, again = trainer(step, parameters=start), trainer(step, parameters=start)
    first.fit({}, epochs=2)
    first.save(path)
    again.restore(path)
    for name in inputs:
        np.testing.assert_array_equal(again.parameters[name], first.parameters[name])
        np.testing.assert_array_equal(again.state[name]["velocity"], first.state[name]["velocity"])


def test_a_schedule_goes_on(path: Path) -> None:
    rates: dict[str, Any] = {"optimizer_inputs": {"learning_rate": lambda number: 0.05 / number}}
    whole, first, again = trainer(**rates), trainer(**rates), trainer(**rates)
    whole.fit(data(8), epochs=4)
    first.fit(data(8), epochs=2)
    first.save(path)
    again.restore(path)
    again.fit(data(8), epochs=4)
    assert bits(again) == bits(whole)


@pytest.mark.parametrize("killed", [2, 5, 8])
def test_early_stopping_goes_on(path: Path, killed: int) -> None:
    def early() -> EarlyStopping:
        return EarlyStopping(lambda _: 1.0, every=2, patience=3)

    def run(*callbacks: Any) -> tuple[Trainer, Any]:
        training = trainer()
        report = training.fit(
            data(8), epochs=9, checkpoint=Checkpoint(path, 1), callbacks=callbacks, resume=True, **CUT
        )
        return training, report

    whole, uninterrupted = run(early())
    path.unlink()
    with pytest.raises(Killed):
        run(early(), killed_at(killed))
    again, report = run(early())
    assert (uninterrupted.steps, uninterrupted.stop_reason) == (8, "callback")
    assert (report.steps, report.stop_reason) == (8 - (killed - 1), "callback")
    assert bits(again) == bits(whole)


def test_a_run_that_a_callback_stopped_is_over(path: Path) -> None:
    options: dict[str, Any] = {"epochs": 9, "checkpoint": Checkpoint(path, 100), "resume": True}
    first, again = trainer(), trainer()
    first.fit(data(8), callbacks=[lambda record: record.step == 3], **options)
    report = again.fit(data(8), **options)
    assert (report.steps, report.losses, report.stop_reason) == (0, (), "callback")
    assert bits(again) == bits(first)
    again.restore(path)
    assert again.fit(data(8), epochs=9).steps == 6


def test_the_end_of_a_fit_is_saved(path: Path) -> None:
    first, again = trainer(), trainer()
    first.fit(data(8), epochs=2, checkpoint=Checkpoint(path, 100))
    again.restore(path)
    assert bits(again) == bits(first)
    assert again.fit(data(8), epochs=2).steps == 0


def test_without_a_file_a_run_begins(path: Path) -> None:
    assert trainer().fit(data(8), epochs=2, checkpoint=Checkpoint(path, 1), resume=True).steps == 2


def test_resuming_needs_a_checkpoint() -> None:
    with pytest.raises(ValueError, match="resume=True needs a checkpoint to go on from: checkpoint=Checkpoint"):
        trainer().fit(data(8), epochs=1, resume=True)


def test_a_path_alone_is_no_checkpoint() -> None:
    path: Any = "run.npz"
    with pytest.raises(TypeError, match=r"^checkpoint must be a Checkpoint\('run.npz', every=...\)"):
        trainer().fit(data(8), epochs=1, checkpoint=path)


def test_an_exception_writes_no_checkpoint(path: Path) -> None:
    with pytest.raises(Killed):
        trainer().fit(data(8), epochs=3, checkpoint=Checkpoint(path, 9), callbacks=[killed_at(2)])
    assert not path.exists()


def test_the_best_run_is_found_by_a_run_that_goes_on_too(path: Path, tmp_path: Path) -> None:
    def early(name: str) -> EarlyStopping:
        return EarlyStopping(lambda training: abs(training.steps - 5.0), every=1, patience=3, best=tmp_path / name)

    options: dict[str, Any] = {"epochs": 9, "checkpoint": Checkpoint(path, 2), "resume": True}
    trainer().fit(data(8), epochs=9, callbacks=[early("whole")])
    with pytest.raises(Killed):
        trainer().fit(data(8), callbacks=[early("parts"), killed_at(7)], **options)
    assert trainer().fit(data(8), callbacks=[early("parts")], **options).stop_reason == "callback"
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    "other", [{"batch_size": 2, "shuffle_seed": 5}, {"batch_size": 3, "shuffle_seed": 6}, {"batch_size": 3}]
)
def test_inside_an_epoch_the_data_must_be_cut_as_before(path: Path, other: dict[str, Any]) -> None:
    with pytest.raises(Killed):
        trainer().fit(data(8), epochs=3, checkpoint=Checkpoint(path, 1), callbacks=[killed_at(3)], **CUT)
    again = trainer()
    again.restore(path)
    error = refusal(again.fit, data(8), epochs=3, **other)
    assert error.category == "invalid_training_data"
    assert "epoch 1 was left after 2 batches" in error.message
    assert "'shuffle_seed': 5" in error.message
    assert f"'shuffle_seed': {other.get('shuffle_seed')}" in error.message


def test_a_refused_resume_changes_nothing(path: Path) -> None:
    early = [EarlyStopping(lambda _: 0.0, every=1, patience=9) for _ in range(2)]
    with pytest.raises(Killed):
        trainer().fit(data(8), epochs=3, checkpoint=Checkpoint(path, 1), callbacks=[*early, killed_at(3)], **CUT)
    content = path.read_bytes()
    again, options = trainer(), {"epochs": 3, "checkpoint": Checkpoint(path, 1), "resume": True}
    before = bits(again)
    other = EarlyStopping(lambda _: 0.0, every=1, patience=9)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("invalid_training_data", {**CUT, "shuffle_seed": 6, "callbacks": early}),
        ("invalid_checkpoint", {**CUT, "callbacks": [other]}),
    ]
    for category, changes in calls:
        assert refusal(again.fit, data(8), **options, **changes).category == category
        assert (bits(again), again.steps, again.epochs) == (before, 0, 0)
    assert other.history == []
    assert path.read_bytes() == content


def test_histories_belong_to_as_many_callbacks(path: Path) -> None:
    early = [EarlyStopping(lambda _: 0.0, every=1, patience=9) for _ in range(2)]
    trainer().fit(data(8), epochs=2, checkpoint=Checkpoint(path, 1), callbacks=early)
    again = trainer()
    again.restore(path)
    error = refusal(again.fit, data(8), epochs=3, callbacks=early[:1])
    assert error.category == "invalid_checkpoint"
    assert "2 callbacks" in error.message
    assert again.fit(data(8), epochs=3).steps == 1


def test_numpy_shows_what_is_in_it(path: Path) -> None:
    training = trainer()
    training.fit(data(8), epochs=2, checkpoint=Checkpoint(path, 1), **CUT)
    with np.load(path, allow_pickle=False) as stored:
        assert stored["trained/w"].tobytes() == training.parameters["w"].tobytes()
        assert stored["trained/w.velocity"].tobytes() == training.state["w"]["velocity"].tobytes()
        place = {name: int(stored[f"place/{name}"]) for name in ("step", "epoch", "batch", "shuffle_seed")}
    assert place == {"step": 6, "epoch": 3, "batch": 0, "shuffle_seed": 5}


def test_equal_runs_write_equal_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        trainer().fit(data(8), epochs=2, checkpoint=Checkpoint(path, 1), **CUT)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("path", "kind", "part"),
    [
        ("run\0.npz", ValueError, "path must be a path without a NUL"),
        ("run\ud800.npz", ValueError, "without lone surrogates, got 'run\\\\ud800.npz'"),
        (b"run.npz", TypeError, "path must be a str or an os.PathLike of one, got b'run.npz'"),
        (3, TypeError, "path must be a str or an os.PathLike of one, got 3"),
        (None, TypeError, "path must be a str"),
    ],
)
def test_refuses_a_path_that_cannot_be_one(path: Any, kind: type[Exception], part: str) -> None:
    training = trainer()
    for call in (lambda: Checkpoint(path, 1), lambda: training.save(path), lambda: training.restore(path)):
        with pytest.raises(kind, match=part):
            call()


@pytest.mark.parametrize("every", [0, -1, 1.5, True, None])
def test_refuses_another_period(every: Any) -> None:
    with pytest.raises(ValueError, match="every must be an int of at least 1"):
        Checkpoint("path", every)
