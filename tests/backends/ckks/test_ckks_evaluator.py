"""Every operation on ciphertexts against NumPy, at several depths, and with the exact scales that additions need.

Errors are compared with the predicted noise: it must not be exceeded by much, and may be larger where bounds are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckks_circuits import ROTATIONS, SMALL, Building, Slots, layout_of, session
from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind, Output, Plain
from tinychain.autodiff.backends.ckks.evaluator import ENCODE, ENCODE_NUMBER, Evaluator
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.library import from_bytes, to_bytes
from tinychain.autodiff.backends.ckks.noise import output_noise
from tinychain.autodiff.errors import AutodiffError

#: In deviations of the predicted noise: more than any of 1024 slots has, as errors of slots are no normal distribution
#: where they were multiplied by the secret, and far less than any mistake makes.
MOST = 30.0


def slots(seed: int) -> Slots:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, 1 << SMALL.slot_bits)


def check(building: Building) -> None:
    """All outputs are what NumPy makes of the same operations."""
    noise = output_noise(building.circuit, SMALL, building.intervals)
    for name, got in session().run(building).items():
        (position,) = building.outputs[name].blocks.values()
        assert np.max(np.abs(got - building.slots[position])) < MOST * noise[name]


OPERATIONS: dict[str, Callable[[Building, int, int], int]] = {
    "input": lambda b, x, y: x,
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "negate": lambda b, x, y: b.negate(x),
    "add_plain": lambda b, x, y: b.add_plain(x, slots(9), 0.5),
    "add_number": lambda b, x, y: b.add_plain(x, np.array(3.0), 0.5),
    "multiply": lambda b, x, y: b.settle(b.multiply(x, y)),
    "multiply_itself": lambda b, x, y: b.settle(b.multiply(x, x)),
    "square": lambda b, x, y: b.settle(b.square(x)),
    "multiply_plain": lambda b, x, y: b.settle(b.multiply_plain(x, slots(9), -2.0)),
    "multiply_plain_number": lambda b, x, y: b.settle(b.multiply_plain(x, np.array(3.0), 0.1)),
    "multiply_number": lambda b, x, y: b.settle(b.multiply_number(x, -0.3)),
    "rescale_three_polynomials": lambda b, x, y: b.rescale(b.multiply(x, y)),
    "multiply_three_polynomials": lambda b, x, y: b.settle(b.multiply_number(b.rescale(b.multiply(x, y)), 0.5)),
    "add_to_pending": lambda b, x, y: b.settle(
        b.add_plain(b.add(b.multiply(x, y), b.multiply_number(x, 2.0)), slots(9))
    ),
    "rotate": lambda b, x, y: b.rotate(x, 4),
    "rotate_back": lambda b, x, y: b.rotate(x, -1),
    "rotate_by_nothing": lambda b, x, y: b.rotate(x, 1024),
}


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, depth: int) -> None:
    building = Building()
    x, y = building.input("x", slots(1), depth), building.input("y", slots(2), depth)
    building.output(OPERATIONS[name](building, x, y))
    check(building)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("by", ["number", "plain"])
def test_a_value_is_taken_down_by_the_product_that_reads_it(by: str, depth: int) -> None:
    """A switched value keeps the scale of depth 0, which is not that of its depth."""
    building = Building()
    x = building.switch(building.input("x", slots(1)), depth)
    product = building.multiply_number(x, -1.7) if by == "number" else building.multiply_plain(x, slots(2))
    other = building.input("y", slots(3), depth + 1)
    building.output(building.sub(building.settle(product), other))
    check(building)


def test_products_of_products_down_to_the_last_depth() -> None:
    building = Building()
    x = building.input("x", slots(1))
    y = building.input("y", slots(2))
    for depth in range(SMALL.depth):
        x = building.settle(building.add(building.multiply(x, y), building.square(y)))
        y = building.input("y", slots(2), depth + 1)
        x = building.add(x, building.rotate(x, 512))
        building.output(x, str(depth))
    check(building)


def test_an_input_is_asked_for_as_the_client_encrypts_it() -> None:
    building = Building()
    building.output(building.add(building.input("x", slots(1), 1, 0.25), building.input("x", slots(1), 1, -2.0)))
    check(building)


# ------------------------------------------------------------------------------------------- results that hide nothing

CANCELLING: dict[str, Callable[[Building, int], int]] = {
    "x - x": lambda b, x: b.sub(x, x),
    "x + -x": lambda b, x: b.add(x, b.negate(x)),
    "(x + 1) - x": lambda b, x: b.sub(b.add_plain(x, np.array(1.0)), x),
    "x * x - x ** 2": lambda b, x: b.settle(b.sub(b.multiply(x, x), b.square(x))),
    "x * 0": lambda b, x: b.settle(b.multiply_number(x, 0.0)),
    "x * tiny": lambda b, x: b.settle(b.multiply_number(x, 1e-300)),
    "x * zeros": lambda b, x: b.settle(b.multiply_plain(x, np.zeros(1024))),
    "x * zeros + y": lambda b, x: b.settle(b.add(b.multiply_plain(x, np.zeros(1024)), b.square(x))),
    "(x * 0) ** 2": lambda b, x: b.settle(b.square(b.settle(b.multiply_number(x, 0.0)))),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_what_the_library_calls_transparent_is_computed(name: str) -> None:
    building = Building()
    building.output(CANCELLING[name](building, building.input("x", slots(1))))
    check(building)


def test_what_cancels_is_sent_encrypted() -> None:
    building = Building()
    x = building.input("x", slots(1))
    building.output(building.sub(x, x))
    execution = session().execute(building)
    assert not execution.outputs["result"][0].is_transparent()


# --------------------------------------------------------------------------------------------------------- scales


def test_every_result_has_the_exact_scale_of_its_depth() -> None:
    building = Building()
    x = building.input("x", slots(1))
    expected: dict[str, float] = {}
    scales = session().keys.moduli.scales
    for depth in range(3):
        product = building.multiply(x, x)
        building.output(product, f"product {depth}")
        x = building.settle(product)
        building.output(x, f"value {depth}")
        expected |= {f"product {depth}": scales[depth] ** 2, f"value {depth}": scales[depth + 1]}
    outputs = session().execute(building).outputs
    assert {name: blocks[0].scale for name, blocks in outputs.items()} == expected


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_random_circuits(data: st.DataObject) -> None:
    """Any operation on any values that are ready for it."""
    building = Building()
    ready = [building.input("x", slots(1)), building.input("y", slots(2)), building.input("z", slots(3), 1)]
    for _ in range(data.draw(st.integers(1, 8))):
        x = data.draw(st.sampled_from(ready))
        depth = building.instructions[x].depth
        y = data.draw(st.sampled_from([at for at in ready if building.instructions[at].depth == depth]))
        names = [name for name in OPERATIONS if depth < 2 or "multiply" not in name]
        names = [name for name in names if depth < 3 or name in ("add", "sub", "negate", "add_plain", "rotate")]
        result = OPERATIONS[data.draw(st.sampled_from(names))](building, x, y)
        ready.append(building.relinearize(result) if building.instructions[result].size > 2 else result)
    building.output(ready[-1])
    check(building)


# ---------------------------------------------------------------------------------------------------- plain tensors


def test_tensors_may_change_from_run_to_run_and_known_ones_do_not() -> None:
    building = Building()
    x = building.input("x", slots(1))
    building.output(building.settle(building.multiply_plain(building.add_plain(x, slots(2)), slots(3))))
    evaluator = Evaluator(session().keys, building.circuit, layout_of(SMALL), {1: slots(3)})
    for seed in (4, 5):
        execution = evaluator.run(session().encrypt(building), {0: slots(seed)})
        expected = (slots(1) + slots(seed)) * slots(3)
        np.testing.assert_allclose(session().decrypt(execution)["result"], expected, atol=1e-8)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_known_plaintexts_are_encoded_once_where_they_fit(cache_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[object] = []
    pack = Layout.pack

    def recorded(layout: Layout, tensor: Slots, *args: Any, **more: Any) -> Slots:
        packed.append(tensor)
        return pack(layout, tensor, *args, **more)

    monkeypatch.setattr(Layout, "pack", recorded)
    building = Building()
    x = building.input("x", slots(1))
    building.output(building.settle(building.multiply_plain(x, slots(3))))
    evaluator = Evaluator(session().keys, building.circuit, layout_of(SMALL), building.tensors, cache_bytes)
    for _ in range(3):
        evaluator.run(session().encrypt(building))
    assert len(packed) == (1 if cache_bytes else 3)


def test_ones_are_masked_as_the_layout_packs_them() -> None:
    building = Building()
    x = building.input("x", slots(1))
    plain = Plain(None, 0.5, zero_bits=(0,))
    masked = Instruction(Kind.MULTIPLY_PLAIN, (x,), 0, True, 2, 0.5, plain=plain)
    rescaled = Instruction(Kind.RESCALE, (x + 1,), 1, False, 2, 0.5)
    building.instructions += [masked, rescaled]
    building.output(2)
    expected = 0.5 * slots(1) * (np.arange(1024) % 2 == 0)
    np.testing.assert_allclose(session().run(building)["result"], expected, atol=1e-8)


@pytest.mark.parametrize(("bad", "reason"), [(np.nan, "finite"), (1e12, "too large")])
def test_a_tensor_that_cannot_be_encoded_is_refused_without_a_value(bad: float, reason: str) -> None:
    building = Building()
    tensor = slots(2)
    building.output(building.add_plain(building.input("x", slots(1), 4), tensor))
    tensor[7] = bad
    with pytest.raises(AutodiffError) as caught:
        session().execute(building)
    assert caught.value.category == "value_out_of_range"
    assert "encoding a plain tensor of shape [1024] at depth 4" in caught.value.message
    assert reason in caught.value.message


# -------------------------------------------------------------------------------------------------- what is refused


def test_a_rotation_without_a_key_is_refused_before_anything_runs() -> None:
    building = Building()
    building.output(building.rotate(building.input("x", slots(1)), 3))
    with pytest.raises(AutodiffError, match=r"no Galois key for 1 rotations that the plan needs, by \[3\]") as caught:
        Evaluator(session().keys, building.circuit, layout_of(SMALL))
    assert caught.value.category == "invalid_encryption_key"
    assert 3 not in ROTATIONS


def test_a_circuit_that_is_too_deep_or_has_other_slots_is_refused() -> None:
    building = Building()
    building.output(building.input("x", slots(1), 5))
    shallow = Circuit(building.instructions[:0], {})
    for circuit, layout in [(building.circuit, layout_of(SMALL)), (shallow, Layout(9, {}, {}))]:
        with pytest.raises(AutodiffError, match="make the keys from the same plan") as caught:
            Evaluator(session().keys, circuit, layout)
        assert caught.value.category == "invalid_encryption_plan"


def test_inputs_that_are_missing_or_of_another_depth_are_refused() -> None:
    building = Building()
    building.output(building.input("weights", slots(1), 1))
    evaluator = Evaluator(session().keys, building.circuit, layout_of(SMALL))
    (key,) = building.inputs
    deeper = from_bytes("ciphertext", session().keys.moduli.context, session().secret.encrypt(slots(1), 2))
    for inputs, message in [({}, "is missing"), ({key: deeper}, "is no ciphertext as a client encrypts at depth 1")]:
        with pytest.raises(AutodiffError, match=f"block 0 of the encrypted input 'weights'.*{message}") as caught:
            evaluator.run(inputs)
        assert caught.value.category == "invalid_message"


def test_a_result_is_no_fresh_input() -> None:
    building = Building()
    x = building.input("x", slots(1))
    building.output(building.multiply(x, x))
    product = session().execute(building).outputs["result"][0]
    again = Evaluator(session().keys, building.circuit, layout_of(SMALL))
    with pytest.raises(AutodiffError, match="is no ciphertext as a client encrypts"):
        again.run(dict.fromkeys(building.inputs, product))


def test_what_the_library_refuses_says_which_operation_it_is() -> None:
    """A product at the last depth, whose scale the base cannot hold."""
    building = Building()
    building.output(building.square(building.input("x", slots(1), 4)))
    with pytest.raises(
        AutodiffError, match=r"operation 1 of the circuit, square at depth 4: .*scale out of bounds"
    ) as caught:
        session().execute(building)
    assert caught.value.category == "invalid_encryption_plan"


# ---------------------------------------------------------------------------------------------------- what is measured


def test_a_run_says_what_it_took() -> None:
    building = Building()
    x = building.input("x", slots(1))
    y = building.add(x, x)
    product = building.multiply_number(building.add_plain(y, slots(2)), 0.5)
    building.output(building.settle(product))
    execution = session().execute(building)
    measured = execution.measured
    assert set(measured.seconds) == {"add", "add_plain", "multiply_number", "rescale", ENCODE, ENCODE_NUMBER}
    assert all(seconds > 0 for seconds in measured.seconds.values())
    assert measured.peak_ciphertexts == 3
    assert measured.peak_bytes == 3 * 2 * 2048 * 8 * 5


def test_a_value_that_nothing_reads_is_not_kept() -> None:
    building = Building()
    x = building.input("x", slots(1))
    for _ in range(5):
        building.negate(x)
    building.output(x)
    assert session().execute(building).measured.peak_ciphertexts == 2


def test_outputs_of_several_blocks_are_by_block() -> None:
    building = Building()
    x, y = building.input("x", slots(1)), building.input("y", slots(2))
    building.outputs["both"] = Output({0: x, 3: y}, 1.0, (), ())
    outputs = session().execute(building).outputs["both"]
    assert list(outputs) == [0, 3]
    np.testing.assert_allclose(session().secret.decrypt(to_bytes(outputs[3])), slots(2), atol=1e-8)
