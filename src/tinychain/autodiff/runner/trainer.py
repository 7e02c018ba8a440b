"""Trains a compiled step on a backend: binds by name, walks the data, keeps parameters and state, and reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from tinychain.autodiff.arrays import DTYPES
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.inspection.footprint import step_bytes
from tinychain.autodiff.runner.batches import (
    Array,
    Batches,
    Data,
    check_arrays,
    count_rows,
    filled,
    named,
    non_finite,
    positive,
    refused,
)
from tinychain.autodiff.runner.checkpoint import Checkpoint, Snapshot, check_writable, read, unfit, write
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.training.execution import Backend, StepExecution, state_name, trained_names
from tinychain.autodiff.training.interface import input_types, loss_type, optimizer_input_types, step_digest
from tinychain.autodiff.types import TensorType, bind_shape, is_sequence

Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class StepRecord:
    """What a callback is told after a step: `loss` is that before the update, `seconds` those since `fit` began."""

    epoch: int
    step: int
    loss: float
    seconds: float
    trainer: Trainer


Callback: TypeAlias = Callable[[StepRecord], object]


@dataclass(frozen=True)
class Report:
    """What one `fit` did. `epochs` are those that it ended; `losses` are those before each update; `stop_reason` is
    "epochs" or "callback".

    `peak_live_bytes` is planned for the largest batch, see `inspection.footprint`; None where a size is not known.
    """

    steps: int
    epochs: int
    losses: tuple[float, ...]
    seconds: float
    peak_live_bytes: int | None
    stop_reason: str


class Trainer:
    """A run of training: the parameters, the optimizer's state, and where in the data it is.

    `parameters` and `state` (by parameter and name; zeros by default) are copied. An optimizer input is a number, which
    fills the declared shape, an array, or a function to either from the number of a step; the first is 1. The inputs in
    `fixed` are the same in every step; all others are cut along axis 0. Raises TypeError for what is no step,
    invalid_training_declaration for a loss of several elements and for an input that an expansion pass has added, and
    invalid_training_data.
    """

    def __init__(
        self,
        step: CompiledTrainingStep,
        *,
        backend: Backend,
        parameters: Mapping[str, Any],
        optimizer_inputs: Mapping[str, Any] | None = None,
        state: Mapping[str, Mapping[str, Any]] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(step, CompiledTrainingStep) or not callable(backend):
            raise TypeError(f"expected a CompiledTrainingStep and a callable, got {quote(step)} and {quote(backend)}")
        loss, types, self._symbols = loss_type(step), input_types(step), dict[str, int]()
        self._step, self._seed = step, np.ones([1] * len(loss.shape), DTYPES[loss.dtype])
        self._unread = step.input_value_ids.keys() - types
        own = {p.name: types.pop(p.name) for p in step.parameters}
        trained = check_arrays("parameters", parameters, own, self._symbols)
        states = named("state", {} if state is None else state, (), own)
        for p in step.parameters:
            names = dict.fromkeys(p.updated_state_value_ids, own[p.name])
            given = states.get(p.name, dict.fromkeys(names, np.zeros_like(trained[p.name])))
            arrays = check_arrays(f"the state of {p.name!r}", given, names, self._symbols)
            trained |= {state_name(p.name, name): array for name, array in arrays.items()}
        for p, *twins in step.with_twins():
            for twin in twins:
                pairs = zip(trained_names(twin), trained_names(p), strict=True)
                trained |= {name: trained[source].mT for name, source in pairs}
        trained = {name: np.array(array, order="C") for name, array in trained.items()}
        for array in trained.values():
            array.flags.writeable = False
        given = named("fixed", {} if fixed is None else fixed, (), types)
        self._fixed = check_arrays("fixed", given, {name: types.pop(name) for name in given}, self._symbols)
        self._types = {name: self._bound(type_) for name, type_ in types.items()}
        types, unread = optimizer_input_types(step), step.provenance.optimizer_input_names
        values = {} if optimizer_inputs is None else optimizer_inputs
        hint = "; what follows from the number of the step is the optimizer's: {..., **optimizer.step_inputs}"
        given = named("optimizer_inputs", values, types, unread, hint)
        self._optimizer_types = {name: self._bound(type_) for name, type_ in types.items()}
        self._given = {
            name: given[name] if callable(given[name]) else filled(f"optimizer input {name!r}", given[name], type_)
            for name, type_ in self._optimizer_types.items()
        }
        self._execution = StepExecution(step, backend)
        place = {"step": 0, "epoch": 1, "batch": 0, "stopped": 0, **Batches((), {}, ()).plan}
        self._now = Snapshot(trained, place)

    def __repr__(self) -> str:
        names = ", ".join([p.name for p in self._step.parameters])
        return f"<Trainer of {names} after {self.steps} steps, {self.epochs} epochs>"

    @property
    def steps(self) -> int:
        """The steps of the run that are done."""
        return self._now.place["step"]

    @property
    def epochs(self) -> int:
        """The epochs of the run that are done; that of an iterable is done when it has no further batch to give."""
        return self._now.place["epoch"] - 1

    @property
    def parameters(self) -> Arrays:
        """The parameters after the last step, read-only; a later step leaves this mapping as it is."""
        return MappingProxyType({p.name: self._now.trained[p.name] for p in self._step.parameters})

    @property
    def state(self) -> Mapping[str, Arrays]:
        """The optimizer's state by parameter and name, like `parameters`."""
        names = {p.name: p.updated_state_value_ids for p in self._step.parameters}
        return MappingProxyType({p: {n: self._now.trained[state_name(p, n)] for n in of} for p, of in names.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes where the run is; after unwritable_checkpoint a file that was there is unchanged."""
        write(path, self._now, self._digest)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes to where a run of an equal step was; any other file is an invalid_checkpoint and changes nothing.

        Not for a callback: a `fit` that is under way would go on with its own data.
        """
        self._now = read(path, self._now, self._digest)

    def evaluate(self, data: Data, *, batch_size: int | None = None, drop_remainder: bool = False) -> float:
        """The loss on other data; of several batches, the mean of their losses weighted by their rows.

        Where the loss is a mean over the rows, that is the mean over all rows, however they are cut. A sum over the
        rows grows with the batch, so its value depends on `batch_size`.
        """
        losses, rows, trained = [], [], self._now.trained
        parameters = {p.name: trained[p.name] for pair in self._step.with_twins() for p in pair}
        for batch in Batches(data, self._types, self._unread, batch_size, drop_remainder).epoch(1):
            with np.errstate(all="ignore"):
                loss = self._execution.forward({**self._fixed, **batch, **parameters})[0]
            losses.append(_checked("the loss in evaluation", loss, self._seed).item())
            rows.append(count_rows(batch))
        return float(np.average(losses, weights=rows))

    def fit(
        self,
        data: Data,
        *,
        epochs: int,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        shuffle_seed: int | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Checkpoint | None = None,
        resume: bool = False,
    ) -> Report:
        """Trains until `epochs` epochs of the run are done in all, or until a callback returns True.

        Arrays are cut into batches of the declared size, else of `batch_size`, else into one; rows left over are
        refused where the size is declared. Batches that you make come as an iterable, or as a function from the number
        of an epoch to one. With `resume` the run goes on from the checkpoint, if its file is there.

        Raises invalid_training_data, for arrays before the first step; non_finite_value for a loss, parameter or state;
        handler_contract_violation for what the backend returns; unwritable_checkpoint and invalid_checkpoint; TypeError
        and ValueError for other arguments. What callbacks, iterators and the backend raise passes. Whatever is raised,
        the last whole step stands, and no checkpoint is written.
        """
        began = perf_counter()
        positive("epochs", epochs)
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise TypeError(f"checkpoint must be a Checkpoint({quote(checkpoint)}, every=...), with a number of steps")
        if resume and checkpoint is None:
            raise ValueError("resume=True needs a checkpoint to go on from: checkpoint=Checkpoint(path, every=...)")
        if not is_sequence(callbacks) or not all(map(callable, callbacks)):
            raise TypeError(f"callbacks must be a sequence of functions of a StepRecord, got {quote(callbacks)}")
        keepers: list[Any] = [callback for callback in callbacks if hasattr(callback, "history")]
        _histories(keepers)
        batches = Batches(data, self._types, self._unread, batch_size, drop_remainder, shuffle_seed)
        path = None if checkpoint is None else checkpoint.path
        if path is not None:
            check_writable(path)
        self._take_up(path if resume else None, batches.plan, keepers)
        if not resume:
            self._move(stopped=0)
        before, losses = self.epochs, list[float]()
        sizes: set[tuple[tuple[int, ...], ...]] = set()
        for epoch, batch in self._walk(batches, epochs):
            losses.append(self._advance(epoch, batch, batches.plan))
            sizes.add(tuple([array.shape for array in batch.values()]))
            record = StepRecord(epoch, self.steps, losses[-1], perf_counter() - began, self)
            answers = [callback(record) for callback in callbacks]
            if any(answers):
                self._move(stopped=1, **({"epoch": epoch + 1, "batch": 0} if batches.exhausted() else {}))
                break
            if checkpoint is not None and record.step % checkpoint.every == 0:
                self._save(checkpoint.path, keepers)
        if checkpoint is not None and losses:
            self._save(checkpoint.path, keepers)
        peaks = [self._peak(shapes) for shapes in sizes]
        known = [peak for peak in peaks if peak is not None]
        return Report(
            steps=len(losses),
            epochs=self.epochs - before,
            losses=tuple(losses),
            seconds=perf_counter() - began,
            peak_live_bytes=max(known, default=0) if len(known) == len(peaks) else None,
            stop_reason="callback" if self._now.place["stopped"] else "epochs",
        )

    # ----------------------------------------------------------------------------------------------------- the place

    @cached_property
    def _digest(self) -> str:
        return step_digest(self._step)

    def _take_up(self, path: str | os.PathLike[str] | None, plan: Mapping[str, int], keepers: Sequence[Any]) -> None:
        """Goes to where the file says, if it is there; callbacks get their histories back.

        Inside an epoch a run goes on only with data that is cut as before. What is refused changes nothing.
        """
        now = self._now if path is None or not os.path.lexists(path) else read(path, self._now, self._digest)
        place, histories = now.place, now.histories
        if place["batch"] and any(place[name] != number for name, number in plan.items()):
            left, got = [{n: None if of[n] < 0 else of[n] for n in plan} for of in (place, plan)]
            done = f"epoch {place['epoch']} was left after {place['batch']} batches of {left}"
            raise refused(f"{done}; got {got}; give the same data and options until that epoch is done")
        if histories and keepers and len(histories) != len(keepers):
            raise unfit(f"it has the histories of {len(histories)} callbacks; {len(keepers)} of those given keep one")
        for keeper, history in zip(keepers, histories, strict=False):
            keeper.history = list(history)
        self._now = now

    def _walk(self, batches: Batches, epochs: int) -> Iterator[tuple[int, dict[str, Array]]]:
        """Batches with their epochs: what is left of the one that the run is in, and those after it."""
        while (epoch := self.epochs + 1) <= epochs and not self._now.place["stopped"]:
            for batch in batches.epoch(epoch, self._now.place["batch"]):
                yield epoch, batch
            self._move(epoch=epoch + 1, batch=0)

    def _move(self, **place: int) -> None:
        self._now = Snapshot(self._now.trained, {**self._now.place, **place})

    def _save(self, path: str | os.PathLike[str], keepers: Sequence[Any]) -> None:
        write(path, replace(self._now, histories=_histories(keepers)), self._digest)

    # ------------------------------------------------------------------------------------------------------ one step

    def _advance(self, epoch: int, batch: Arrays, plan: Mapping[str, int]) -> float:
        """One step; the run moves on only when all of it has been done."""
        number = self.steps + 1
        when = f"of step {number} (epoch {epoch})"
        given = {
            name: filled(f"{name!r} {when}", value(number), self._optimizer_types[name]) if callable(value) else value
            for name, value in self._given.items()
        }
        before = self._now.trained
        with np.errstate(all="ignore"):  # what is not finite is refused by name
            loss, trained = self._execution.train({**self._fixed, **batch}, before, given, self._seed)
        loss = _checked(f"the loss {when}", loss, self._seed)
        trained = {name: _checked(f"{name!r} {when}", array, before[name]) for name, array in trained.items()}
        done = self._now.place["batch"] + 1
        ended = done == plan["batches"]
        place = {**self._now.place, **plan, "step": number, "epoch": epoch + ended, "batch": 0 if ended else done}
        self._now = Snapshot(trained, place)
        return float(loss.item())

    def _peak(self, shapes: Sequence[tuple[int, ...]]) -> int | None:
        """The bytes of a step on a batch of these shapes, in the order of the inputs."""
        symbols = dict(self._symbols)
        for type_, shape in zip(self._types.values(), shapes, strict=True):
            bind_shape(type_.shape, shape, symbols)
        return step_bytes(self._step, symbols)

    def _bound(self, type_: TensorType) -> TensorType:
        return TensorType(
            type_.dtype, tuple([self._symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in type_.shape])
        )


def _histories(keepers: Sequence[Any]) -> tuple[tuple[float, ...], ...]:
    for keeper in keepers:
        history = keeper.history
        if not is_sequence(history) or not all(isinstance(value, Real) for value in history):
            raise TypeError(f"callbacks must keep a list of floats as history; {quote(keeper)} has {quote(history)}")
    return tuple([tuple(map(float, keeper.history)) for keeper in keepers])


def _checked(label: str, result: Any, like: Array) -> Array:
    """A result that the run goes on with: of the type it must have, finite, and read-only from here on."""
    array = np.asarray(result)
    if (array.dtype, array.shape) != (like.dtype, like.shape):
        expected, got = f"{like.dtype}{list(like.shape)}", f"{array.dtype}{list(array.shape)}"
        raise AutodiffError("handler_contract_violation", f"{label}: expected {expected} of the backend, got {got}")
    if (bad := non_finite(array)) is not None:
        raise AutodiffError("non_finite_value", f"{label} is {bad}; the run stays as it was before this step")
    array.flags.writeable = False
    return array
