"""What callbacks are told, how they stop a run, and what a fit reports."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from io import StringIO
from typing import Any

import pytest

from tinychain.autodiff.runner import EarlyStopping, Progress, StepRecord, Trainer
from trainers import data, trainer


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


def test_what_a_callback_raises_passes_and_its_step_stands() -> None:
    def fail(record: StepRecord) -> None:
        raise KeyboardInterrupt

    training, once = trainer(), trainer()
    once.fit(data(), epochs=1)
    with pytest.raises(KeyboardInterrupt):
        training.fit(data(), epochs=2, callbacks=[fail])
    assert training.parameters["w"].tobytes() == once.parameters["w"].tobytes()


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
    "options", [{"every": 0}, {"patience": 0}, {"patience": 1.5}, {"min_improvement": -1.0}, {"evaluate": 3}]
)
def test_refuses_what_cannot_stop(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"evaluate": Trainer.evaluate, "every": 1, "patience": 1, **options}
    with pytest.raises(ValueError, match="expected a function"):
        EarlyStopping(given.pop("evaluate"), **given)


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
    with pytest.raises(ValueError, match="every"):
        Progress(every)
