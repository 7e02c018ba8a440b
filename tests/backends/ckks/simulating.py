"""Runs circuits on arrays instead of ciphertexts, and holds each instruction to what it says of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.backends.ckks.axes import Indices
from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind, Plain
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.plain import plain_values
from tinychain.autodiff.backends.ckks.program import Program

Slots = NDArray[Any]


def simulate(
    circuit: Circuit, program: Program, indices: Indices, layout: Layout, inputs: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The outputs of a circuit by name, from the inputs of its program."""
    plain = plain_values(
        program, {name: inputs[name] for name, at in program.inputs.items() if not _secret(program, at)}
    )
    found: list[Slots] = []
    for position, instruction in enumerate(circuit.instructions):
        operands = [found[operand] for operand in instruction.operands]
        if instruction.source is not None:
            name, block = instruction.source
            axes = indices.axes[program.inputs[name]]
            slots = layout.pack(inputs[name], axes, block) * instruction.number
        else:
            slots = _result(instruction, operands, plain, layout)
        _check(circuit, position)
        assert np.max(np.abs(slots)) <= instruction.reach * (1 + 1e-9) + 1e-12, (position, instruction)
        found.append(slots)
    return {
        name: layout.unpack({block: found[at] for block, at in output.blocks.items()}, output.axes, output.owned)
        * output.factor
        for name, output in circuit.outputs.items()
    }


def packed_plain(plain: Plain, values: Mapping[int, NDArray[Any]], layout: Layout) -> Slots:
    array = np.ones(()) if plain.value is None else values[plain.value]
    return layout.pack(array * plain.factor, plain.axes, plain.block, zero_bits=plain.zero_bits, inside=plain.inside)


def _secret(program: Program, position: int) -> bool:
    return program.operations[position].secret


def _result(
    instruction: Instruction, operands: list[Slots], plain: Mapping[int, NDArray[Any]], layout: Layout
) -> Slots:
    match instruction.kind, operands:
        case Kind.ADD, [x, y]:
            return x + y
        case Kind.SUB, [x, y]:
            return x - y
        case Kind.MULTIPLY, [x, y]:
            return x * y
        case Kind.SQUARE, [x]:
            return x * x
        case Kind.ADD_PLAIN, [x] if instruction.plain is not None:
            return x + packed_plain(instruction.plain, plain, layout)
        case Kind.MULTIPLY_PLAIN, [x] if instruction.plain is not None:
            return x * packed_plain(instruction.plain, plain, layout)
        case Kind.MULTIPLY_NUMBER, [x]:
            return x * instruction.number
        case Kind.ROTATE, [x]:
            return np.roll(x, -instruction.steps)
        case ((Kind.RELINEARIZE | Kind.RESCALE | Kind.SWITCH), [x]):
            return x
    raise AssertionError(f"unexpected {instruction}")


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
