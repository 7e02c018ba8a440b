"""Random programs on real ciphertexts, in a small ring: they come to what NumPy does, within the predicted noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.ckks.building import ProgramBuilder, computed
from backends.ckks.random_programs import ADD, MATMUL, MUL, programs
from tinychain.autodiff.backends.ckks.axes import share_indices
from tinychain.autodiff.backends.ckks.chooser import DEVIATIONS
from tinychain.autodiff.backends.ckks.circuit import Kind
from tinychain.autodiff.backends.ckks.evaluator import Evaluator, input_key
from tinychain.autodiff.backends.ckks.keys import EvaluationKeys, SecretKeys
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.library import from_bytes, to_bytes
from tinychain.autodiff.backends.ckks.noise import output_noise
from tinychain.autodiff.backends.ckks.parameters import Parameters
from tinychain.autodiff.backends.ckks.plain import plain_values
from tinychain.autodiff.backends.ckks.planner import plan_circuit
from tinychain.autodiff.backends.ckks.program import Program
from tinychain.autodiff.backends.ckks.ranges import bounds
from tinychain.autodiff.backends.ckks.search import layouts

#: Eleven address bits, and nine of slots in a ring of 1024: a matrix may need several ciphertexts.
SIZES = {"i": 20, "j": 9, "k": 4}


@settings(max_examples=25)
@given(program=programs(SIZES), data=st.data())
def test_random_programs_on_ciphertexts(program: Program, data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    inputs = {name: rng.uniform(-1, 1, program.operations[at].shape) for name, at in program.inputs.items()}
    ranges = dict.fromkeys(program.inputs, (-1.0, 1.0))
    layout = data.draw(st.sampled_from(list(layouts(share_indices(program).sizes, slot_bits=9))))
    check_on_ciphertexts(program, layout, inputs, ranges)


def test_one_error_in_all_slots_is_added_up_as_such() -> None:
    """A sum over rows has the same error in all slots. Times the rows, and summed again, it grows with their number."""
    build = ProgramBuilder()
    x, y = build.input("x", [1, 500]), build.input("y", [1, 500])
    ones = build.known(np.ones([500, 1]))
    total = build.apply(MATMUL, build.apply(MUL, x, x), ones)
    total = build.apply(MATMUL, build.apply(MUL, build.apply(ADD, x, y), total), ones)
    result = build.apply(MATMUL, build.apply(MUL, y, total), ones)
    program = build.program(result=result)
    inputs = {"x": np.full([1, 500], 1e-3), "y": np.ones([1, 500])}
    (layout,) = layouts(share_indices(program).sizes, slot_bits=9)
    check_on_ciphertexts(program, layout, inputs, {"x": (0.0, 1e-3), "y": (0.0, 1.0)}, base_bits=(50,))


def check_on_ciphertexts(
    program: Program,
    layout: Layout,
    inputs: Mapping[str, NDArray[Any]],
    ranges: Mapping[str, tuple[float, float]],
    base_bits: tuple[int, ...] = (60, 60),
) -> None:
    """That decrypted results are within the predicted noise of what NumPy computes."""
    indices = share_indices(program)
    intervals = bounds(program, ranges)
    circuit = plan_circuit(program, indices, intervals, layout)
    parameters = Parameters(1024, 40, base_bits, circuit.depth, 60, secure=False)
    secret = SecretKeys.generate(parameters, circuit.rotations)
    keys = EvaluationKeys.from_bytes(parameters, secret.evaluation_keys)
    plain = {name: inputs[name] for name, at in program.inputs.items() if not program.operations[at].secret}
    encrypted = {}
    for instruction in circuit.instructions:
        if instruction.kind is Kind.INPUT:
            assert instruction.source is not None
            name, block = instruction.source
            slots = layout.pack(inputs[name], indices.axes[program.inputs[name]], block) * instruction.number
            sent = secret.encrypt(slots, instruction.depth)
            encrypted[input_key(instruction)] = from_bytes("ciphertext", keys.moduli.context, sent)
    execution = Evaluator(keys, circuit, layout).run(encrypted, plain_values(program, plain))

    noise = output_noise(circuit, parameters, intervals)
    for name, expected in computed(program, inputs).items():
        output = circuit.outputs[name]
        blocks = {block: secret.decrypt(to_bytes(found)) for block, found in execution.outputs[name].items()}
        found = layout.unpack(blocks, output.axes, output.owned) * output.factor
        np.testing.assert_allclose(found, expected, rtol=0, atol=DEVIATIONS * noise[name] + 1e-12)
