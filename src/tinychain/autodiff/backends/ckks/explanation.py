"""What a plan does and costs, as data and as text: where the levels go, how tensors are packed, what is uncertain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tinychain.autodiff.backends.ckks.calibration import Calibration
from tinychain.autodiff.backends.ckks.circuit import Circuit, Kind
from tinychain.autodiff.backends.ckks.costs import Cost
from tinychain.autodiff.backends.ckks.layout import indices_of
from tinychain.autodiff.backends.ckks.parameters import SECURE_BITS
from tinychain.autodiff.backends.ckks.plan import TrainingPlan
from tinychain.autodiff.backends.ckks.ranges import widest
from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import Record
from tinychain.autodiff.inspection.table import Table, aligned


@dataclass(frozen=True)
class PackedIndex(Record):
    """An index that tensors share: its size, and how many of its address bits lie in slots and across ciphertexts.

    `axes` are those inputs' axes that it is, as (name, axis).
    """

    size: int
    slot_bits: int
    ciphertext_bits: int
    axes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class PlanExplanation(Record):
    """A plan in figures; its `str` is a text to read, and `to_dict` has plain JSON values.

    `levels` are the tensor operations of the longest chain of rescalings, first to last, as often as each costs a
    level. `ciphertexts` are those of each secret input. `largest` is the tensor with the largest bound, and this bound.
    `error_bounds` are what encryption adds to an element of each result at most. `cost` is None without a
    calibration.
    """

    steps_per_refresh: int
    ring_size: int
    modulus_bits: tuple[int, ...]
    secure_bits: int
    scale_bits: int
    levels: tuple[str, ...]
    counts: Mapping[str, int]
    indices: tuple[PackedIndex, ...]
    ciphertexts: Mapping[str, int]
    largest: tuple[str, float]
    unproven: tuple[str, ...]
    error_bounds: Mapping[str, float]
    cost: Cost | None

    def __str__(self) -> str:
        return "\n\n".join(_blocks(self))


def explain_plan(plan: TrainingPlan, calibration: Calibration | None = None) -> PlanExplanation:
    """What a plan does; with a calibration of its ring also how long it should take here, and in how much memory.

    Raises TypeError for what is no plan, and invalid_encryption_plan for a calibration of another ring.
    """
    if not isinstance(plan, TrainingPlan):
        raise TypeError(f"expected a TrainingPlan, got {quote(plan)}")
    program, parameters = plan.program, plan.parameters
    return PlanExplanation(
        steps_per_refresh=plan.steps_per_refresh,
        ring_size=parameters.ring_size,
        modulus_bits=parameters.modulus_bits,
        secure_bits=SECURE_BITS[parameters.ring_size],
        scale_bits=parameters.scale_bits,
        levels=tuple([program.operations[position].label for position in _deepest_path(plan.circuit)]),
        counts={kind.value: count for kind, count in plan.circuit.counts.items()},
        indices=tuple(_packed_indices(plan)),
        ciphertexts={name: len(plan.layout.blocks(indices_of(axes))) for name, axes in plan.secret_inputs.items()},
        largest=widest(program, plan.intervals),
        unproven=plan.unproven,
        error_bounds=plan.error_bounds,
        cost=None if calibration is None else plan.cost(calibration),
    )


def _deepest_path(circuit: Circuit) -> list[int]:
    """The origins of the products on a chain of the most rescalings."""
    spent: list[int] = []  # at each instruction; one that the client encrypts at a depth has spent nothing
    for instruction in circuit.instructions:
        before = max([spent[operand] for operand in instruction.operands], default=0)
        spent.append(before + (instruction.kind is Kind.RESCALE))
    path: list[int] = []
    operands: tuple[int, ...] = tuple([at for output in circuit.outputs.values() for at in output.blocks.values()])
    while operands:
        at = max(operands, key=spent.__getitem__)
        operands = circuit.instructions[at].operands
        if circuit.instructions[at].kind is Kind.RESCALE:
            path.append(circuit.instructions[operands[0]].origin)
    return path[::-1]


def _packed_indices(plan: TrainingPlan) -> Iterator[PackedIndex]:
    for index, places in plan.layout.places.items():
        slot_bits = len(plan.layout.slot_places(index))
        axes = [
            (name, axis)
            for name, named in plan.secret_inputs.items()
            for axis, indices in enumerate(named)
            if index in indices
        ]
        yield PackedIndex(plan.layout.sizes[index], slot_bits, len(places) - slot_bits, tuple(axes))


# ---------------------------------------------------------------------------------------------------------------- text


def _blocks(explanation: PlanExplanation) -> Iterator[str]:
    bits = sum(explanation.modulus_bits)
    steps = explanation.steps_per_refresh
    moduli = " + ".join(map(str, explanation.modulus_bits))
    yield (
        f"{steps} step{'s' if steps > 1 else ''} between refreshes, {len(explanation.levels)} levels\n"
        f"ring {explanation.ring_size}, moduli of {moduli} = {bits} bits ({explanation.secure_bits} are secure),"
        f" scale of {explanation.scale_bits} bits\n"
        f"largest value: within {explanation.largest[1]:.4g}, {explanation.largest[0]}"
    )
    yield aligned(Table(("level", "spent by"), [(str(n), label) for n, label in enumerate(explanation.levels, 1)], 2))
    indices = [
        (_axes(index), f"{index.size:,}", str(1 << index.slot_bits), str(1 << index.ciphertext_bits))
        for index in explanation.indices
    ]
    yield aligned(Table(("index: axes of inputs", "size", "slots", "ciphertexts"), indices, 1))
    yield aligned(Table(("operation", "count"), [(kind, f"{n:,}") for kind, n in explanation.counts.items()], 1))
    rows = [(name, f"{bound:.1e}") for name, bound in explanation.error_bounds.items()]
    yield aligned(Table(("result", "error at most"), rows, 1))
    if explanation.cost is not None:
        yield str(explanation.cost)
    if explanation.unproven:
        yield "not proven to be small enough:\n" + "\n".join(f"  {label}" for label in explanation.unproven)


def _axes(index: PackedIndex) -> str:
    return ", ".join([f"{name} {axis}" for name, axis in index.axes])
