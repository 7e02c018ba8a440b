"""Runs circuits on arrays instead of ciphertexts, and holds each instruction to what it says of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.axes import Indices
from tinychain.autodiff.backends.ckks.circuit import Circuit, Kind
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.program import Program
from tinychain.autodiff.backends.ckks.rehearsal import Rehearsal


def simulate(
    circuit: Circuit, program: Program, indices: Indices, layout: Layout, inputs: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The outputs of a circuit by name, from the inputs of its program."""
    rehearsal = Rehearsal(circuit, program, indices, layout, inputs)
    found = [*rehearsal.values()]
    for position, (instruction, slots) in enumerate(zip(circuit.instructions, found, strict=True)):
        _check(circuit, position)
        assert np.max(np.abs(slots)) <= instruction.reach * (1 + 1e-9) + 1e-12, (position, instruction)
    return rehearsal.results(found)


def _check(circuit: Circuit, position: int) -> None:
    """The rules of the library: which states an instruction may be used in, and the state that it makes."""
    instruction = circuit.instructions[position]
    operands = [circuit.instructions[operand] for operand in instruction.operands]
    assert all(operand < position for operand in instruction.operands)
    states = {(operand.depth, operand.pending) for operand in operands}
    sizes = {operand.size for operand in operands}
    here = instruction.depth, instruction.pending
    if any(operand.kind is Kind.SWITCH for operand in operands):
        assert instruction.kind in (Kind.MULTIPLY_NUMBER, Kind.MULTIPLY_PLAIN)
    expected: tuple[set[tuple[int, bool]], set[int], bool, int]
    match instruction.kind:
        case Kind.INPUT:
            expected = set(), set(), False, 2
        case Kind.ADD | Kind.SUB | Kind.ADD_PLAIN:
            expected = {here}, sizes, instruction.pending, max(sizes)
        case Kind.MULTIPLY | Kind.SQUARE:
            expected = {(instruction.depth, False)}, {2}, True, 3
        case Kind.MULTIPLY_PLAIN | Kind.MULTIPLY_NUMBER:
            expected = {(instruction.depth, False)}, {2}, True, 2
        case Kind.RESCALE:
            expected = {(instruction.depth - 1, True)}, {2}, False, 2
        case Kind.RELINEARIZE:
            expected = {here}, {3}, instruction.pending, 2
        case Kind.ROTATE:
            expected = {here}, {2}, False, 2
        case Kind.SWITCH:
            assert operands[0].depth < instruction.depth
            expected = {(operands[0].depth, False)}, {2}, False, 2
        case _:
            raise AssertionError(f"unexpected {instruction}")
    assert (states, sizes, instruction.pending, instruction.size) == expected
