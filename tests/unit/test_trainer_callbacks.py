"""What callbacks are told, how they stop a run, and what a fit reports."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tinychain.autodiff.runner import EarlyStopping, Progress, StepRecord, Trainer
from trainers import bits, data, trainer


def test_a_callback_is_told_of_each_step_after_it() -> None:
    records: list[StepRecord] = []
    weights = []
    training = trainer()

    def tell(record: StepRecord) -> None:
        records.append(record)
        weights.append(record.trainer.parameters["w"])

    report = training.fit(data(8), epochs=2, batch_size=4, callbacks=[tell])
    assert [(record.epoch, record.step) for record in records] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert tuple([record.loss for record in records]) == report.losses
    assert [record.seconds for record in records] == sorted(record.seconds for record in records)
    assert records[-1].seconds <= report.seconds
    assert weights[-1] is training.parameters["w"]
    with pytest.raises(FrozenInstanceError):
        records[0].loss = 0.0  # type: ignore[misc]


def test_the_report_counts() -> None:
    report = trainer().fit(data(8), epochs=3, batch_size=4)
    assert (report.steps, report.epochs, len(report.losses), report.stop_reason) == (6, 3, 6, "epochs")


def test_a_callback_that_returns_true_stops_after_all_were_told() -> None:
    told: list[int] = []
    report = trainer().fit(
        data(8),
        epochs=3,
        batch_size=2,
        callbacks=[lambda record: record.step == 5, lambda record: told.append(record.step)],
    )
    assert (report.steps, report.epochs, report.stop_reason) == (5, 1, "callback")
    assert told == [1, 2, 3, 4, 5]


def test_a_stopped_run_goes_on_in_the_middle_of_its_epoch() -> None:
    whole, parts = trainer(), trainer()
    cut: dict[str, Any] = {"batch_size": 2, "shuffle_seed": 3}
    whole.fit(data(8), epochs=2, **cut)
    parts.fit(data(8), epochs=2, callbacks=[lambda record: record.step == 3], **cut)
    assert parts.fit(data(8), epochs=2, **cut).steps == 5
    assert whole.parameters["w"].tobytes() == parts.parameters["w"].tobytes()


@pytest.mark.parametrize("cut", [{"batch_size": 2}, {}], ids=["arrays", "iterable"])
def test_a_stop_after_the_last_batch_ends_the_epoch(cut: dict[str, Any]) -> None:
    arrays: Any = data(8) if cut else [data(2)] * 4
    training = trainer()
    report = training.fit(arrays, epochs=9, callbacks=[lambda record: record.step == 8], **cut)
    assert (report.steps, report.epochs, report.stop_reason) == (8, 2, "callback")
    assert (training.steps, training.epochs) == (8, 2)
    assert training.fit(data(6), epochs=3).steps == 1


def test_a_stop_inside_an_epoch_of_an_iterable_leaves_it_open() -> None:
    training, batches = trainer(), [data(2)] * 3
    report = training.fit(batches, epochs=9, callbacks=[lambda record: record.step == 5])
    assert (report.epochs, training.epochs) == (1, 1)
    assert training.fit(batches, epochs=2).steps == 1


def test_a_stop_does_not_judge_the_batch_that_comes_next() -> None:
    batches: list[Any] = [data(2), "no batch"]
    report = trainer().fit(batches, epochs=1, callbacks=[lambda record: True])
    assert (report.steps, report.epochs) == (1, 0)


def test_what_is_done_is_known_at_the_last_batch_of_arrays() -> None:
    seen: list[tuple[int, int, int]] = []

    def tell(record: StepRecord) -> None:
        seen.append((record.epoch, record.trainer.steps, record.trainer.epochs))

    training = trainer()
    training.fit(data(8), epochs=2, batch_size=4, callbacks=[tell])
    assert seen == [(1, 1, 0), (1, 2, 1), (2, 3, 1), (2, 4, 2)]
    assert repr(training) == "<Trainer of w after 4 steps, 2 epochs>"


def test_an_epoch_is_done_though_a_callback_raises_at_its_last_batch() -> None:
    def fail(record: StepRecord) -> None:
        raise KeyboardInterrupt

    training = trainer()
    with pytest.raises(KeyboardInterrupt):
        training.fit(data(8), epochs=2, callbacks=[fail])
    assert (training.steps, training.epochs) == (1, 1)
    assert training.fit(data(4), epochs=2).steps == 1


def test_what_a_callback_raises_passes_and_its_step_stands() -> None:
    def fail(record: StepRecord) -> None:
        raise KeyboardInterrupt

    training, once = trainer(), trainer()
    once.fit(data(), epochs=1)
    with pytest.raises(KeyboardInterrupt):
        training.fit(data(), epochs=2, callbacks=[fail])
    assert training.parameters["w"].tobytes() == once.parameters["w"].tobytes()


class Keeper:
    """A callback that keeps something."""

    def __init__(self, history: Any) -> None:
        self.history = history

    def __call__(self, record: StepRecord) -> None:
        self.history.append(record.loss)


@pytest.mark.parametrize(
    ("callbacks", "part"),
    [
        ([3], r"callbacks must be a sequence of functions of a StepRecord, got \[3\]"),
        (None, "callbacks must be a sequence of functions of a StepRecord, got None"),
        (Progress(), "callbacks must be a sequence of functions of a StepRecord, got <"),
        ([Keeper(None)], "callbacks must keep a list of floats as history; <.*Keeper.*> has None"),
        ([Keeper(["a"])], r"callbacks must keep a list of floats as history; <.*> has \['a'\]"),
        ([Keeper({})], "callbacks must keep a list of floats as history"),
    ],
)
def test_refuses_what_is_no_callback_before_the_first_step(callbacks: Any, part: str) -> None:
    training = trainer()
    with pytest.raises(TypeError, match=part):
        training.fit(data(8), epochs=1, callbacks=callbacks)
    assert training.steps == 0


def test_a_callback_may_keep_any_floats() -> None:
    keeper = Keeper([1, 0.5])
    report = trainer().fit(data(8), epochs=1, callbacks=(keeper,))
    assert keeper.history == [1, 0.5, *report.losses]


# ---------------------------------------------------------------------------------------------------------- early stop


def stopping(values: list[float], **options: Any) -> tuple[int, EarlyStopping]:
    """After how many steps a run ends whose evaluations are these values."""
    left = iter(values)
    early = EarlyStopping(lambda _: next(left), **{"every": 1, "patience": 2, **options})
    report = trainer().fit(data(8), epochs=len(values), callbacks=[early])
    return report.steps, early


@pytest.mark.parametrize(
    ("values", "options", "steps"),
    [
        ([3.0, 2.0, 1.0, 0.5], {}, 4),
        ([3.0, 3.0, 3.0, 0.0], {}, 3),
        ([3.0, 4.0, 2.0, 2.5, 2.0, 0.0], {}, 5),
        ([3.0, 2.9, 2.8, 0.0], {"min_improvement": 0.5}, 3),
        ([3.0, 2.7, 2.4, 2.1, 1.8], {"min_improvement": 0.5}, 5),
        ([3.0, float("nan"), 2.0, 1.0], {"patience": 1}, 2),
    ],
)
def test_stops_when_nothing_has_improved_for_long(values: list[float], options: dict[str, Any], steps: int) -> None:
    stopped_after, early = stopping(values, **options)
    assert stopped_after == steps
    assert str(early.history) == str(values[:steps])


def test_evaluates_every_so_many_steps_with_the_trainer() -> None:
    held_out = data(5)
    early = EarlyStopping(lambda training: training.evaluate(held_out), every=3, patience=9)
    training = trainer()
    training.fit(data(8), epochs=6, callbacks=[early])
    assert len(early.history) == 2
    assert early.history[-1] == training.evaluate(held_out)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"every": 0}, ValueError),
        ({"patience": 0}, ValueError),
        ({"patience": 1.5}, ValueError),
        ({"min_improvement": -1.0}, ValueError),
        ({"min_improvement": "a"}, ValueError),
        ({"min_improvement": None}, ValueError),
        ({"min_improvement": float("nan")}, ValueError),
        ({"evaluate": 3}, TypeError),
        ({"best": 3}, TypeError),
        ({"best": b"best.npz"}, TypeError),
    ],
)
def test_refuses_what_cannot_stop(options: dict[str, Any], kind: type[Exception]) -> None:
    given: dict[str, Any] = {"evaluate": Trainer.evaluate, "every": 1, "patience": 1, **options}
    (name,) = options
    with pytest.raises(kind, match="os.PathLike" if name == "best" else f"^{name} must be"):
        EarlyStopping(given.pop("evaluate"), **given)


def test_the_best_run_is_kept_in_a_file_and_comes_back(tmp_path: Path) -> None:
    values = iter([3.0, 1.0, 2.0, 1.5])
    early = EarlyStopping(lambda _: next(values), every=2, patience=2, best=tmp_path / "best.npz")
    training, four_steps = trainer(), trainer()
    report = training.fit(data(8), epochs=9, callbacks=[early])
    four_steps.fit(data(8), epochs=4)
    assert (report.steps, training.steps) == (8, 8)
    training.restore(tmp_path / "best.npz")
    assert (bits(training), training.steps) == (bits(four_steps), 4)
    assert training.fit(data(8), epochs=5).steps == 1


# ------------------------------------------------------------------------------------------------------------ progress


def test_progress_prints_a_line_every_so_many_steps() -> None:
    stream = StringIO()
    report = trainer().fit(data(8), epochs=5, callbacks=[Progress(2, stream)])
    lines = stream.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 2, step 2", "epoch 4, step 4"]
    assert f"loss {report.losses[1]:.6g}, " in lines[0]


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    trainer().fit(data(8), epochs=1, callbacks=[Progress()])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("epoch 1, step 1: loss ")


@pytest.mark.parametrize("every", [0, -1, 0.5, None])
def test_refuses_another_period(every: Any) -> None:
    with pytest.raises(ValueError, match="every must be an int of at least 1"):
        Progress(every)


def test_refuses_what_is_no_stream() -> None:
    stream: Any = 3
    with pytest.raises(TypeError, match="stream must be None or a text stream, got 3"):
        Progress(1, stream)
