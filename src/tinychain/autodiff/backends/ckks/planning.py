"""Planning encrypted training: from a compiled step and what is declared of its inputs to the fastest plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from tinychain.autodiff.backends.ckks.axes import share_indices
from tinychain.autodiff.backends.ckks.chooser import SCALE_BITS, Chooser, Misfit
from tinychain.autodiff.backends.ckks.declared import refused, split_ranges
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plan import TrainingPlan, count_steps
from tinychain.autodiff.backends.ckks.planner import plan_circuit
from tinychain.autodiff.backends.ckks.program import link
from tinychain.autodiff.backends.ckks.ranges import bounds, widest
from tinychain.autodiff.backends.ckks.rehearsal import Rehearsal, checked_sample
from tinychain.autodiff.backends.ckks.search import cheapest, layouts
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.training import CompiledTrainingStep
from tinychain.autodiff.training.execution import trained_names
from tinychain.autodiff.types import as_int, is_sequence

#: The rings that are tried. Smaller ones have no room for a product, larger ones are in no table of security.
RING_SIZES: Final = (8192, 16384, 32768)

#: More than the levels of any ring.
_MOST_STEPS: Final = 64


def plan_training(
    step: CompiledTrainingStep,
    *,
    secret: Collection[str],
    ranges: Mapping[str, Any],
    steps_per_refresh: int = 1,
    precision: float = 1e-6,
    loss: bool = False,
    ring_sizes: Sequence[int] = RING_SIZES,
    scale_bits: int | None = None,
    largest_value: float | None = None,
    sample: Mapping[str, Any] | None = None,
    parameters: Parameters | None = None,
) -> TrainingPlan:
    """The fastest plan, by the nominal time of its circuit, that is secure and precise and cannot overflow.

    `step` is compiled with `ckks_registry()` and made legal for the target `CKKS`. `secret` names inputs and
    parameters. `ranges` maps every input, parameter, state and optimizer input to its lowest and highest element, as a
    pair; or, for a plain one, to a number or an array that it always is, which costs less. The server runs
    `steps_per_refresh` steps, then the client decrypts the parameters and encrypts them again. `precision` bounds what
    encryption adds to an element of a new parameter or state in that time, with a probability of all but 1e-9. The
    prediction holds for the worst data within the ranges, which may be far from yours, in several steps by orders of
    magnitude. With a `sample`, as `rehearse` takes it, eight times the errors that are expected on data like these is
    held to the precision instead. It must be public or synthetic: whoever makes an equal plan needs the same sample,
    or, as the encryption `parameters`, those of this plan, which leave nothing to choose. Or `scale_bits`, from 25 to
    60, set the scale without any precision. `noise` on the plan is for the worst data in any case.

    Every value is proven to fit the moduli, from the ranges. Where that asks for too much, `largest_value` is the
    caller's word that no value is larger, wherever the proof says that it could be: `unproven` on the plan has these
    places. A value that is larger nevertheless spoils the results silently.

    Raises invalid_encryption_plan for wrong declarations and where no parameters fit, with the depth, what each ring
    would need, how many steps fit and what would help; unsupported_layout for operations that packing cannot do; and
    for a sample what `rehearse` does.
    """
    count = as_int(steps_per_refresh)
    if count is None or not 0 < count <= _MOST_STEPS:
        raise refused(f"steps_per_refresh: expected an int from 1 to {_MOST_STEPS}, got {quote(steps_per_refresh)}")
    request = _Request(step, secret, ranges, precision, loss, ring_sizes, scale_bits, largest_value, sample, parameters)
    plan = request.plan(count)
    if isinstance(plan, TrainingPlan):
        return plan
    fitting = request.most_steps(below=count)
    asks_nothing = sample is not None or scale_bits is not None  # of the worst data
    raise refused(
        f"{count_steps(count)} between refreshes: {plan.misfits[0].depth} levels do not fit."
        f" {'; '.join(map(str, plan.misfits))}."
        + (f" {fitting} would fit: set steps_per_refresh={fitting}." if fitting else " Not even one step fits.")
        + f" The largest value is within {plan.largest:.3g}, {plan.where}. What helps: "
        + ("" if asks_nothing else "a sample of data, without which precision is for the worst within the ranges; ")
        + f"a precision larger than {precision:g}, narrower ranges, largest_value, numbers instead of the ranges of"
        " plain inputs, fewer products in a row."
    )


class _Refusal(NamedTuple):
    """Why no ring fits, and the tensor with the largest bound."""

    misfits: Sequence[Misfit]
    where: str
    largest: float


@dataclass(frozen=True)
class _Request:
    """What `plan_training` is given but for the number of steps, checked as far as nothing later does."""

    step: CompiledTrainingStep
    secret: Collection[str]
    ranges: Mapping[str, Any]
    precision: float
    loss: bool
    ring_sizes: Sequence[int]
    scale_bits: int | None
    largest_value: float | None
    sample: Mapping[str, Any] | None = field(repr=False)
    parameters: Parameters | None

    def __post_init__(self) -> None:
        rings, scale, largest = self.ring_sizes, self.scale_bits, self.largest_value
        fine = _is_positive(self.precision) and self.precision < 1
        _check("precision", fine, "a positive number below 1", self.precision)
        _check("loss", isinstance(self.loss, bool), "a bool", self.loss)
        known = is_sequence(rings) and len(rings) > 0 and all(as_int(size) in RING_SIZES for size in rings)
        _check("ring_sizes", known, f"one or more of {list(RING_SIZES)}", rings)
        _check("scale_bits", scale is None or as_int(scale) in SCALE_BITS, "an int from 25 to 60 or None", scale)
        _check("largest_value", largest is None or _is_positive(largest), "a positive number or None", largest)
        given, alone = self.parameters, scale is None and self.sample is None
        fine = given is None or (isinstance(given, Parameters) and given.secure and given.ring_size in RING_SIZES)
        _check("parameters", fine, f"None or secure Parameters of a ring of {list(RING_SIZES)}", given)
        _check("parameters", given is None or alone, "neither sample nor scale_bits beside them", given)
        _check("ranges", isinstance(self.ranges, Mapping), "a mapping of names to pairs or numbers", self.ranges)

    def plan(self, steps: int) -> TrainingPlan | _Refusal:
        """The plan of so many steps, or why no ring fits."""
        known, declared = split_ranges(self.step, self.secret, self.ranges)
        largest = inf if self.largest_value is None else self.largest_value
        program = link(self.step, secret=self.secret, known=known, steps=steps, loss=self.loss)
        indices = share_indices(program)
        intervals = bounds(program, declared, largest)
        records = self.step.parameters
        states = tuple([name for record in records for name in trained_names(record)[1:]])
        inputs = (*self.step.input_value_ids, *self.step.provenance.optimizer_input_names)
        unread = tuple([name for name in inputs if name not in program.inputs and name not in known])
        sample = None if self.sample is None else checked_sample(self.sample, program, intervals, states, unread)
        plans: list[TrainingPlan] = []
        misfits: list[Misfit] = []
        refusal: AutodiffError | None = None
        for ring_size in sorted(set(self.ring_sizes)) if self.parameters is None else [self.parameters.ring_size]:
            try:
                layout, circuit = cheapest(
                    lambda layout: plan_circuit(program, indices, intervals, layout),
                    layouts(indices.sizes, ring_size.bit_length() - 2),
                    ring_size,
                )
            except AutodiffError as error:  # a larger ring needs fewer operations
                refusal = error
                continue
            rehearsal = None if sample is None else Rehearsal(circuit, program, indices, layout, sample)
            chooser = Chooser(circuit, intervals, ring_size, None if rehearsal is None else rehearsal.bound)
            parameters = self._parameters(chooser)
            if isinstance(parameters, Misfit):
                misfits.append(parameters)
                continue
            plan = TrainingPlan(
                program=program,
                indices=indices,
                layout=layout,
                circuit=circuit,
                parameters=parameters,
                intervals=intervals,
                parameter_names=tuple([record.name for record in records]),
                state_names=states,
                steps_per_refresh=steps,
                precision=self.precision,
                loss=self.loss,
                fixed=tuple(known),
                unread=unread,
                unproven=tuple([o.label for o in program.operations if intervals[o.position].reach >= largest]),
            )
            plans.append(plan)
        if plans:
            return min(plans, key=lambda plan: plan.nominal_seconds)
        if not misfits and refusal is not None:
            raise refusal
        return _Refusal(misfits, *widest(program, intervals))

    def _parameters(self, chooser: Chooser) -> Parameters | Misfit:
        """Those that were given, or the chosen ones."""
        if self.parameters is None:
            return chooser.choose(self.precision, as_int(self.scale_bits))
        if reason := chooser.reason_against(self.parameters):
            raise refused(f"parameters: {reason}; take those of a plan that is equal in all else")
        return self.parameters

    def most_steps(self, below: int) -> int:
        """How many steps fit, of fewer than this; more steps never need less."""
        fits, fails = 0, below
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if isinstance(self.plan(middle), TrainingPlan):
                fits = middle
            else:
                fails = middle
        return fits


def _check(name: str, holds: bool, expected: str, given: object) -> None:
    if not holds:
        raise refused(f"{name}: expected {expected}, got {quote(given)}")


def _is_positive(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < inf
