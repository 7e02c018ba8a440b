"""Trains on a server that never sees the data: encrypts, exchanges, decrypts, step after step, and reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from tinychain.autodiff.backends.ckks.calibration import Calibration
from tinychain.autodiff.backends.ckks.client import Client, Result
from tinychain.autodiff.backends.ckks.costs import Cost
from tinychain.autodiff.backends.ckks.given import Array, check_inputs, filled, named, refused
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.session import trained_types
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record
from tinychain.autodiff.inspection.table import Table, aligned
from tinychain.autodiff.types import TensorType, as_int

Arrays: TypeAlias = Mapping[str, Array]
#: Sends a message and returns the reply: `Server(plan).handle`, or what `connect` makes.
Exchange: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True)
class EncryptedReport(Record):
    """What one `fit` did. `losses` are those before the last step of each request; none where none are planned.

    `seconds` are those of `fit`. Of them `encrypt_seconds` and `decrypt_seconds` were spent here, and
    `exchange_seconds` until replies were there. The server says that it computed for `server_seconds`, of them
    `operation_seconds` by kind of operation, and had `server_peak_bytes` of ciphertexts at once. `predicted` is what
    one request should cost, where there is a calibration. The `str` is a table of what was predicted and measured.
    """

    steps: int
    requests: int
    losses: tuple[float, ...] = field(repr=False)
    seconds: float
    encrypt_seconds: float
    exchange_seconds: float
    decrypt_seconds: float
    server_seconds: float
    operation_seconds: Mapping[str, float]
    server_peak_bytes: int
    bytes_sent: int
    bytes_received: int
    predicted: Cost | None = None

    def __str__(self) -> str:
        cost = self.predicted
        computed = sum(self.operation_seconds.values()) / self.requests
        served = self.server_seconds / self.requests
        rows = (
            ("server, computing", "" if cost is None else f"{cost.seconds:,.3f} s", f"{computed:,.3f} s"),
            ("server, in all", "" if cost is None else f"{cost.server_seconds:,.3f} s", f"{served:,.3f} s"),
            ("client, encrypting", "", f"{self.encrypt_seconds / self.requests:,.3f} s"),
            ("client, decrypting", "", f"{self.decrypt_seconds / self.requests:,.3f} s"),
            ("ciphertexts at once", "" if cost is None else _mib(cost.ciphertext_bytes), _mib(self.server_peak_bytes)),
            ("sent", "", _mib(self.bytes_sent / self.requests)),
            ("received", "", _mib(self.bytes_received / self.requests)),
        )
        header = (f"each of {self.requests} requests", "predicted", "measured")
        return f"{self.steps} steps in {self.seconds:,.2f} s\n\n{aligned(Table(header, rows, 1))}"


class EncryptedTrainer:
    """A run of training on a server with an equal plan: the keys, the parameters and the states are here.

    `parameters` and `state` (by parameter and name; zeros by default) are copied. An optimizer input is a number, which
    fills the declared shape, an array, or a function to either from the number of a step; the first is 1. One value
    serves all steps between two refreshes, so a function is an invalid_encryption_plan where there are several. With
    a calibration of the server's machine, reports have what was predicted. Also raises invalid_training_data and
    value_out_of_range.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        exchange: Exchange,
        *,
        parameters: Mapping[str, Any],
        optimizer_inputs: Mapping[str, Any] | None = None,
        state: Mapping[str, Mapping[str, Any]] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if not isinstance(plan, TrainingPlan) or not callable(exchange):
            raise TypeError(  # without what may be secret
                f"expected a TrainingPlan and a callable, got a {type(plan).__name__} and a {type(exchange).__name__}"
            )
        self._plan, self._exchange = plan, exchange
        self._predicted = None if calibration is None else plan.cost(calibration)
        types = trained_types(plan)
        own = {name: types.pop(name) for name in plan.parameter_names}
        trained = check_inputs("parameters", parameters, own, plan.ranges)
        trained |= check_inputs("state", _flat(types, state), types, plan.ranges)
        self._trained = {name: _read_only(array) for name, array in trained.items()}
        given = self._read("optimizer_inputs", {} if optimizer_inputs is None else optimizer_inputs)
        given = named("optimizer_inputs", given, (), plan.plain_inputs)
        self._given = {name: self._optimizer_input(name, value) for name, value in given.items()}
        self._client = Client(plan)
        self._has_sent_keys = False
        self._steps = 0

    def __repr__(self) -> str:
        return f"<EncryptedTrainer of {', '.join(self._plan.parameter_names)} after {self._steps} steps>"

    @property
    def steps(self) -> int:
        """The steps of the run that are done."""
        return self._steps

    @property
    def parameters(self) -> Arrays:
        """The decrypted parameters after the last request, read-only; a later one leaves this mapping as it is."""
        return MappingProxyType({name: self._trained[name] for name in self._plan.parameter_names})

    @property
    def state(self) -> Mapping[str, Arrays]:
        """The optimizer's state by parameter and name, like `parameters`."""
        nested = _nested(self._plan.state_names)
        return MappingProxyType({p: {n: self._trained[full] for n, full in of.items()} for p, of in nested.items()})

    def fit(self, data: Mapping[str, Any], *, steps: int) -> EncryptedReport:
        """Trains that many steps further, each on all of the data: arrays by name, exactly of the planned shapes.

        The server reads plain inputs; those that are no `optimizer_inputs` are given with the data. Keys are sent once,
        data once in each `fit`.

        Raises invalid_encryption_plan for steps that are no multiple of those between refreshes; invalid_training_data;
        value_out_of_range for data, and for parameters or states after a request; invalid_message for replies that are
        none; and what the server refuses with. What `exchange` raises passes. Whatever is raised, the last whole
        request stands; but without a reply to the keys, a server has to be started anew.
        """
        began, tally = perf_counter(), _Tally()
        requests, inputs, plain = self._requests(steps), *self._split(data)
        with tally.phase("encrypt"):
            message = self._client.data(inputs)
        if not self._has_sent_keys:
            self._client.accept(self._send(self._client.keys(), tally))
            self._has_sent_keys = True
        self._client.accept(self._send(message, tally))
        results = [self._advance(plain, tally) for _ in range(requests)]
        operations: defaultdict[str, float] = defaultdict(float)
        for result in results:
            for kind, seconds in result.measured.seconds.items():
                operations[kind] += seconds
        return EncryptedReport(
            steps=requests * self._plan.steps_per_refresh,
            requests=requests,
            losses=tuple([result.loss for result in results if result.loss is not None]),
            seconds=perf_counter() - began,
            encrypt_seconds=tally.seconds["encrypt"],
            exchange_seconds=tally.seconds["exchange"],
            decrypt_seconds=tally.seconds["decrypt"],
            server_seconds=sum([result.seconds for result in results]),
            operation_seconds=dict(operations),
            server_peak_bytes=max([result.measured.peak_bytes for result in results]),
            bytes_sent=tally.sent,
            bytes_received=tally.received,
            predicted=self._predicted,
        )

    # ------------------------------------------------------------------------------------------------------ one request

    def _advance(self, plain: Mapping[str, Any], tally: _Tally) -> Result:
        """The steps until the next refresh; the run moves on only when they are decrypted and within their ranges."""
        number = self._steps + 1
        given = {name: value(number) if callable(value) else value for name, value in self._given.items()}
        with tally.phase("encrypt"):
            message = self._client.request(self._trained, {**plain, **given})
        reply = self._send(message, tally)
        with tally.phase("decrypt"):
            result = self._client.result(reply)
        self._trained = {name: _read_only(array) for name, array in result.trained.items()}
        self._steps += self._plan.steps_per_refresh
        return result

    def _send(self, message: bytes, tally: _Tally) -> bytes:
        with tally.phase("exchange"):
            reply = self._exchange(message)
        if not isinstance(reply, bytes):
            raise TypeError(f"exchange must return the bytes of a reply, got a {type(reply).__name__}")
        tally.sent += len(message)
        tally.received += len(reply)
        return reply

    # -------------------------------------------------------------------------------------------------------- arguments

    def _requests(self, steps: object) -> int:
        """How many requests so many steps are."""
        count, each = as_int(steps), self._plan.steps_per_refresh
        if count is None or count < 1:
            raise ValueError(f"steps must be an int of at least 1, got {quote(steps)}")
        if count % each:
            raise AutodiffError(
                "invalid_encryption_plan",
                f"{count} steps are no multiple of the {each} between refreshes that the plan has; run"
                f" {count + each - count % each}, or make a plan of other steps_per_refresh",
            )
        return count // each

    def _split(self, data: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The secret data, and the plain inputs among them."""
        secret = [name for name in self._plan.secret_inputs if name not in self._trained]
        plain = [name for name in self._plan.plain_inputs if name not in self._given]
        hint = f"; the plain ones, {plain}, may be optimizer_inputs instead" if plain else ""
        given = named("the data", self._read("the data", data), [*secret, *plain], hint=hint)
        return {name: given[name] for name in secret}, {name: given[name] for name in plain}

    def _read(self, of: str, given: object) -> object:
        """Without what no result needs."""
        if not isinstance(given, Mapping):
            return given
        fixed = [name for name in given if name in self._plan.fixed]
        if fixed:
            raise refused(f"{of}: {quote(fixed[0])} is fixed by the plan, so leave it out, or plan for a range of it")
        return {name: value for name, value in given.items() if name not in self._plan.unread}

    def _optimizer_input(self, name: str, value: object) -> Any:
        if not callable(value):
            return filled("optimizer_inputs", name, value, self._plan.types[name])
        if (each := self._plan.steps_per_refresh) > 1:
            raise AutodiffError(
                "invalid_encryption_plan",
                f"{quote(name)} of optimizer_inputs is a function of the step, but one value serves all {each} steps"
                " between refreshes; give a number, or make a plan with steps_per_refresh=1",
            )
        return value


class _Tally:
    """Seconds by phase, and bytes by direction."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.sent = self.received = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.seconds[name] += perf_counter() - began


def _nested(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The full names of states, by parameter and name."""
    nested: dict[str, dict[str, str]] = {}
    for full in names:
        parameter, _, name = full.partition(".")
        nested.setdefault(parameter, {})[name] = full
    return nested


def _flat(types: Mapping[str, TensorType], state: object) -> dict[str, Any]:
    """All states by their full names, zeros where none are given."""
    nested = _nested(types)
    states = named("state", {} if state is None else state, (), nested)
    flat = {name: filled("state", name, 0.0, type_) for name, type_ in types.items()}
    for parameter, given in states.items():
        names = nested[parameter]
        given = named(f"the state of {quote(parameter)}", given, names)
        flat |= {full: given[name] for name, full in names.items()}
    return flat


def _mib(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _read_only(array: Array) -> Array:
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy
