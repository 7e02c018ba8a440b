"""When a value dies, and how many bytes are alive at once.

A summary predicts it and a runner does it, so both take it from here. Values are named by whatever the caller names
them by, so that the programs of a whole step can be strung together.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value", bound=Hashable)


class Operation(NamedTuple, Generic[Value]):
    """One operation of a schedule: the value that it makes of those that it reads."""

    result: Value
    operands: Sequence[Value]


def deaths(operations: Sequence[Operation[Value]], *, kept: Collection[Value]) -> list[list[Value]]:
    """For each operation, in schedule order, the values that may be freed once it is done.

    A value dies with its last reader, a result that nobody reads with the operation that makes it, and those in `kept`
    never. An input that nobody reads is in no list. Linear in operations and operands.
    """
    last: dict[Value, int] = {}
    for position, (result, operands) in enumerate(operations):
        last[result] = position
        for operand in operands:
            last[operand] = position
    dying: list[list[Value]] = [[] for _ in operations]
    keep = frozenset(kept)
    for value, position in last.items():
        if value not in keep:
            dying[position].append(value)
    return dying


def peak_live_bytes(
    operations: Sequence[Operation[Value]],
    sizes: Mapping[Value, int],
    *,
    inputs: Iterable[Value],
    kept: Iterable[Value],
) -> int:
    """The most bytes that are alive at once when the operations run in order and dead values are freed at once.

    `inputs` are alive from the start, if anybody reads them or they are kept. While an operation runs, its operands and
    its result are alive. `sizes` holds the bytes of every value; each counts in full, though a backend may share memory
    between two.
    """
    keep = frozenset(kept)
    read = {operand for operation in operations for operand in operation.operands}
    live = peak = sum([sizes[value] for value in dict.fromkeys(inputs) if value in read or value in keep])
    for operation, dying in zip(operations, deaths(operations, kept=keep), strict=True):
        live += sizes[operation.result]
        peak = max(peak, live)
        live -= sum([sizes[value] for value in dying])
    return peak
