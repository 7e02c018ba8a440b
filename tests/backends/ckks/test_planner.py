"""Circuits compute what their programs do, for every layout, and every slot stays within its declared reach."""

from __future__ import annotations

from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.ckks.building import ProgramBuilder, computed
from backends.ckks.random_programs import programs
from backends.ckks.simulating import simulate
from tinychain.autodiff import AutodiffError
from tinychain.autodiff.backends.ckks.axes import share_indices
from tinychain.autodiff.backends.ckks.circuit import Circuit, Kind
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.planner import plan_circuit
from tinychain.autodiff.backends.ckks.program import Program
from tinychain.autodiff.backends.ckks.ranges import bounds
from tinychain.autodiff.backends.ckks.search import layouts
from tinychain.autodiff.operators import (
    AddOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)

ADD, SUB, MUL, MATMUL = AddOperator(), SubOperator(), MulOperator(), MatmulOperator()


def circuits(program: Program, slot_bits: int, low: float = -1.0, high: float = 1.0) -> list[tuple[Layout, Circuit]]:
    """The circuit for each layout, after it was simulated and compared with the program."""
    indices = share_indices(program)
    intervals = bounds(program, dict.fromkeys(program.inputs, (low, high)))
    rng = np.random.default_rng(7)
    inputs = {name: rng.uniform(low, high, program.operations[at].shape) for name, at in program.inputs.items()}
    expected = computed(program, inputs)
    found = []
    for layout in layouts(indices.sizes, slot_bits):
        circuit = plan_circuit(program, indices, intervals, layout)
        results = simulate(circuit, program, indices, layout, inputs)
        for name, array in expected.items():
            scale = max(1.0, intervals[program.outputs[name]].reach)
            np.testing.assert_allclose(results[name], array, rtol=0, atol=1e-12 * scale)
        found.append((layout, circuit))
    return found


@given(program=programs(), slot_bits=st.integers(2, 8))
def test_random_programs(program: Program, slot_bits: int) -> None:
    circuits(program, slot_bits)


# -------------------------------------------------------------------------------------------- what things cost


def matvec() -> ProgramBuilder:
    """x @ w of 6 rows and 4 columns, at position 2."""
    build = ProgramBuilder()
    build.apply(MATMUL, build.input("x", [6, 4]), build.input("w", [4, 1]))
    return build


def counts(circuit: Circuit) -> dict[str, int]:
    return {str(kind): count for kind, count in circuit.counts.items()}


def test_a_matmul_relinearizes_once_and_rotates_logarithmically() -> None:
    (_, rows_low), (_, columns_low) = circuits(matvec().program(y=2), slot_bits=4)
    # 8 rows low: 2 ciphertexts of 2 columns, added before the only rotation.
    assert counts(rows_low) == {
        "input": 4, "add": 2, "multiply": 2, "relinearize": 1, "rescale": 1, "rotate": 1,
    }  # fmt: skip
    # 4 columns low: 2 ciphertexts of 4 rows, each summed by 2 rotations.
    assert counts(columns_low) == {
        "input": 3, "add": 4, "multiply": 2, "relinearize": 2, "rescale": 2, "rotate": 4,
    }  # fmt: skip
    assert rows_low.depth == columns_low.depth == 1


def test_a_contraction_with_ones_costs_no_level() -> None:
    build = ProgramBuilder()
    build.apply(MATMUL, build.input("x", [8, 4]), build.known(np.ones([4, 3])))
    for _, circuit in circuits(build.program(y=2), slot_bits=5):
        assert circuit.depth == 0
        assert set(circuit.counts) <= {Kind.INPUT, Kind.ADD, Kind.ROTATE}


def test_literals_transposes_and_reshapes_cost_nothing() -> None:
    build = ProgramBuilder()
    x = build.input("x", [6, 4])
    y = build.apply(MUL, build.apply(TransposeOperator(), x, perm=[1, 0]), right_literal=-0.125)
    z = build.apply(ReshapeOperator(), y, shape=[4, 1, 6, 1])
    for _, circuit in circuits(build.program(z=z), slot_bits=4):
        assert set(circuit.counts) == {Kind.INPUT}
        assert circuit.depth == 0


def test_a_change_of_scale_is_made_while_levels_are_dropped() -> None:
    """0.9 * v + x * y: the factor of v rides on the encryption of v at the depth of the product."""
    build = ProgramBuilder()
    x, y, v = (build.input(name, [4]) for name in "xyv")
    product = build.apply(MUL, x, y)
    total = build.apply(ADD, build.apply(MUL, v, right_literal=0.9), build.apply(MUL, product, right_literal=0.5))
    for _, circuit in circuits(build.program(t=total), slot_bits=3):
        assert circuit.depth == 1


def test_padding_is_masked_before_it_is_summed() -> None:
    """(x + 1) summed over 5 elements in 8 slots: the 1 is in the padding too, unless it is masked."""
    build = ProgramBuilder()
    x = build.apply(ADD, build.input("x", [5, 1]), build.input("b", [1]))
    total = build.apply(MATMUL, build.known(np.ones([1, 5])), x)
    (circuit,) = [circuit for _, circuit in circuits(build.program(t=total), slot_bits=4)]
    assert circuit.counts[Kind.MULTIPLY_PLAIN] == 1
    assert circuit.depth == 1


def test_squares_are_squared() -> None:
    build = ProgramBuilder()
    x = build.input("x", [4])
    (circuit,) = [circuit for _, circuit in circuits(build.program(y=build.apply(MUL, x, x)), slot_bits=4)]
    assert circuit.counts[Kind.SQUARE] == 1
    assert Kind.MULTIPLY not in circuit.counts


def test_what_cancels_is_subtracted_all_the_same() -> None:
    """(x + y) - (y + x): the executor hides the zero; the circuit has no special case."""
    build = ProgramBuilder()
    x, y = build.input("x", [3]), build.input("y", [3])
    zero = build.apply(SUB, build.apply(ADD, x, y), build.apply(ADD, y, x))
    doubled = build.apply(SUB, build.apply(ADD, x, x), x)
    circuits(build.program(zero=zero, x=doubled), slot_bits=3)


def test_factors_that_vanish_are_refused() -> None:
    build = ProgramBuilder()
    x = build.input("x", [3])
    for _ in range(3):
        x = build.apply(MUL, x, right_literal=1e-150)
    with pytest.raises(AutodiffError, match="leave the range of a float") as caught:
        circuits(build.program(x=x), slot_bits=3)
    assert caught.value.category == "invalid_encryption_plan"


def test_every_order_of_indices_is_a_layout() -> None:
    orders = {tuple(layout.places) for layout in layouts({0: 5, 1: 3, 2: 4}, 4)}
    assert orders == set(permutations(range(3)))
    assert all(sum(map(len, layout.places.values())) == 3 + 2 + 2 for layout in layouts({0: 5, 1: 3, 2: 4}, 4))


@given(order=st.permutations(range(3)), slot_bits=st.integers(0, 9), axes=st.permutations(range(3)))
def test_packing_is_undone_by_unpacking(order: list[int], slot_bits: int, axes: list[int]) -> None:
    sizes = {0: 5, 1: 3, 2: 4}
    layout = next(layout for layout in layouts(sizes, slot_bits) if [*layout.places] == order)
    shape = [sizes[axis] for axis in axes]
    array = np.arange(1.0, 1 + prod(shape)).reshape(shape)
    named = tuple([(axis,) for axis in axes])
    blocks = {block: layout.pack(array, named, block) for block in layout.blocks(axes)}
    np.testing.assert_array_equal(layout.unpack(blocks, named, axes), array)
    packed = np.concatenate([*blocks.values()])
    assert packed.sum() == array.sum() * len(packed) / (len(blocks) * layout.slots) * _repetitions(layout)
    assert all(block.any() for block in blocks.values())


def _repetitions(layout: Layout) -> int:
    used = {place for places in layout.places.values() for place in places if place < layout.slot_bits}
    return 1 << layout.slot_bits - len(used)
