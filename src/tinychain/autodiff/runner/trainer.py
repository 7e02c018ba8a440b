"""Trains a compiled step on a backend: binds by name, walks the data, keeps parameters and state, and reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.inspection.footprint import step_bytes
from tinychain.autodiff.runner.batches import (
    DTYPES,
    Array,
    Batches,
    Data,
    check_arrays,
    check_names,
    filled,
    non_finite,
    refused,
)
from tinychain.autodiff.runner.checkpoint import Checkpoint, Snapshot, read, write
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.training.execution import Backend, StepExecution, state_name
from tinychain.autodiff.training.interface import input_types, loss_type, optimizer_input_types, step_digest
from tinychain.autodiff.types import TensorType, as_int, bind_shape

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
    """What one `fit` did. `losses` are those before each update; `stop_reason` is "epochs" or "callback".

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
    invalid_training_declaration for a loss of several elements, and invalid_training_data.
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
        if any(dim != 1 for dim in loss.shape):
            raise AutodiffError("invalid_training_declaration", f"the loss is {loss}; it must have a single element")
        self._step, self._seed = step, np.ones([1] * len(loss.shape), DTYPES[loss.dtype])
        self._unread = step.input_value_ids.keys() - types
        own = {p.name: types.pop(p.name) for p in step.parameters}
        trained = check_arrays("parameters", check_names("parameters", parameters, own), own, self._symbols)
        states = check_names("state", {} if state is None else state, (), own)
        for p in step.parameters:
            label, names = f"the state of {p.name!r}", dict.fromkeys(p.updated_state_value_ids, own[p.name])
            given = states.get(p.name, dict.fromkeys(names, np.zeros_like(trained[p.name])))
            arrays = check_arrays(label, check_names(label, given, names), names, self._symbols)
            trained |= {state_name(p.name, name): array for name, array in arrays.items()}
        trained = {name: np.array(array, order="C") for name, array in trained.items()}
        for array in trained.values():
            array.flags.writeable = False
        given = check_names("fixed", {} if fixed is None else fixed, (), types)
        self._fixed = check_arrays("fixed", given, {name: types.pop(name) for name in given}, self._symbols)
        self._types = {name: self._bound(type_) for name, type_ in types.items()}
        types, unread = optimizer_input_types(step), step.provenance.optimizer_input_names
        given = check_names("optimizer_inputs", {} if optimizer_inputs is None else optimizer_inputs, types, unread)
        self._given = {name: (self._bound(type_), given[name]) for name, type_ in types.items()}
        for name, (type_, value) in self._given.items():
            if not callable(value):
                self._given[name] = (type_, filled(f"optimizer input {name!r}", value, type_))
        self._execution = StepExecution(step, backend)
        self._planned: dict[tuple[tuple[int, ...], ...], int | None] = {}
        place = {"step": 0, "epoch": 1, "batch": 0, "stopped": 0, **Batches((), {}, ()).plan}
        self._now = Snapshot(trained, place)

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
        """Goes to where a run of an equal step was; any other file is an invalid_checkpoint and changes nothing."""
        self._now = read(path, self._now, self._digest)

    def evaluate(self, data: Data, *, batch_size: int | None = None, drop_remainder: bool = False) -> float:
        """The loss on other data; of several batches, the mean of their losses weighted by their rows."""
        losses, rows = [], []
        for batch in Batches(data, self._types, self._unread, batch_size, drop_remainder).epoch(1):
            with np.errstate(all="ignore"):
                loss = self._execution.forward({**self._fixed, **batch, **self.parameters})[0]
            losses.append(_checked("the loss in evaluation", loss, self._seed).item())
            rows.append(max([len(array) for array in batch.values()], default=1))
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
        the last whole step stands.
        """
        began = perf_counter()
        if (as_int(epochs) or 0) < 1 or (resume and checkpoint is None):
            raise ValueError(f"expected epochs of at least 1 and, to resume, a checkpoint; got {quote(epochs)}")
        batches = Batches(data, self._types, self._unread, batch_size, drop_remainder, shuffle_seed)
        if checkpoint is not None and resume and os.path.lexists(checkpoint.path):
            self.restore(checkpoint.path)
        keepers: list[Any] = [callback for callback in callbacks if hasattr(callback, "history")]
        self._take_up(batches.plan, keepers)
        stopped, first = resume and bool(self._now.place["stopped"]), self._now.place["epoch"]
        losses: list[float] = []
        peaks: set[int | None] = {0}
        for batch in () if stopped else self._walk(batches, epochs):
            losses.append(self._advance(batch, batches.plan))
            peaks.add(self._peak(batch))
            place = self._now.place
            record = StepRecord(place["epoch"], place["step"], losses[-1], perf_counter() - began, self)
            answers = [callback(record) for callback in callbacks]
            stopped = any(answers)
            self._move(stopped=int(stopped))
            if checkpoint is not None and place["step"] % checkpoint.every == 0:
                self._save(checkpoint.path, keepers)
            if stopped:
                break
        if checkpoint is not None and losses:
            self._save(checkpoint.path, keepers)
        known = [peak for peak in peaks if peak is not None]
        return Report(
            steps=len(losses),
            epochs=self._now.place["epoch"] - first,
            losses=tuple(losses),
            seconds=perf_counter() - began,
            peak_live_bytes=max(known) if len(known) == len(peaks) else None,
            stop_reason="callback" if stopped else "epochs",
        )

    # ----------------------------------------------------------------------------------------------------- the place

    @cached_property
    def _digest(self) -> str:
        return step_digest(self._step)

    def _take_up(self, plan: Mapping[str, int], keepers: Sequence[Any]) -> None:
        """Inside an epoch a run goes on only with data that is cut as before; callbacks get their histories back."""
        place, histories = self._now.place, self._now.histories
        before = {name: place[name] for name in plan}
        if place["batch"] and before != plan:
            raise refused(f"epoch {place['epoch']} was left after {place['batch']} batches of {before}; got {plan}")
        if histories and keepers and len(histories) != len(keepers):
            message = f"it has the histories of {len(histories)} callbacks, and {len(keepers)} of those given keep one"
            raise AutodiffError("invalid_checkpoint", message)
        for keeper, history in zip(keepers, histories, strict=False):
            keeper.history = list(history)

    def _walk(self, batches: Batches, epochs: int) -> Iterator[dict[str, Array]]:
        """What is left of the epoch that the run is in, and the epochs after it."""
        while (epoch := self._now.place["epoch"]) <= epochs:
            yield from batches.epoch(epoch, self._now.place["batch"])
            self._move(epoch=epoch + 1, batch=0)

    def _move(self, **place: int) -> None:
        self._now = Snapshot(self._now.trained, {**self._now.place, **place})

    def _save(self, path: str | os.PathLike[str], keepers: Sequence[Any]) -> None:
        histories = tuple([tuple(map(float, keeper.history)) for keeper in keepers])
        write(path, replace(self._now, histories=histories), self._digest)

    # ------------------------------------------------------------------------------------------------------ one step

    def _advance(self, batch: Arrays, plan: Mapping[str, int]) -> float:
        """One step; the run moves on only when all of it has been done."""
        place = self._now.place
        number = place["step"] + 1
        when = f"of step {number} (epoch {place['epoch']})"
        given = {
            name: filled(f"{name!r} {when}", value(number), type_) if callable(value) else value
            for name, (type_, value) in self._given.items()
        }
        with np.errstate(all="ignore"):  # what is not finite is refused by name
            loss, trained = self._execution.train({**self._fixed, **batch}, self._now.trained, given, self._seed)
        loss = _checked(f"the loss {when}", loss, self._seed)
        before = self._now.trained
        trained = {name: _checked(f"{name!r} {when}", array, before[name]) for name, array in trained.items()}
        self._now = Snapshot(trained, {**place, **plan, "step": number, "batch": place["batch"] + 1})
        return float(loss.item())

    def _peak(self, batch: Arrays) -> int | None:
        shapes = tuple([array.shape for array in batch.values()])
        if shapes not in self._planned:
            symbols = dict(self._symbols)
            for name, array in batch.items():
                bind_shape(self._types[name].shape, array.shape, symbols)
            self._planned[shapes] = step_bytes(self._step, symbols)
        return self._planned[shapes]

    def _bound(self, type_: TensorType) -> TensorType:
        return TensorType(
            type_.dtype, tuple([self._symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in type_.shape])
        )


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
