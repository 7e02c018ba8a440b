"""Which layout is taken, where some have no circuit or none has."""

from __future__ import annotations

from typing import Any

import pytest

from ckks_sessions import refusal
from ckks_steps import Model, compiled
from tinychain.autodiff.backends.ckks import plan_training, recorder
from tinychain.autodiff.backends.ckks.circuit import Circuit, Instruction, Kind
from tinychain.autodiff.backends.ckks.layout import Layout
from tinychain.autodiff.backends.ckks.search import cheapest, layouts
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import SGD

SIZES = {0: 4, 1: 8}


def circuit_of(layout: Layout, refused: set[tuple[int, ...]]) -> Circuit:
    """The later the first index, the fewer additions."""
    order = tuple(layout.places)
    if order in refused:
        raise AutodiffError("invalid_encryption_plan", f"no circuit for {order}")
    add = Instruction(Kind.ADD, (), 0, False, 2, 1.0)
    return Circuit([add] * (2 - order[0]), {})


def test_the_fastest_circuit_is_taken() -> None:
    layout, circuit = cheapest(lambda layout: circuit_of(layout, set()), layouts(SIZES, 4), 1024)
    assert tuple(layout.places) == (1, 0)
    assert len(circuit.instructions) == 1


def test_a_layout_without_a_circuit_is_passed_over() -> None:
    layout, _ = cheapest(lambda layout: circuit_of(layout, {(1, 0)}), layouts(SIZES, 4), 1024)
    assert tuple(layout.places) == (0, 1)


def test_where_no_layout_has_a_circuit_the_first_reason_is_given() -> None:
    error = refusal(cheapest, lambda layout: circuit_of(layout, {(0, 1), (1, 0)}), layouts(SIZES, 4), 1024)
    assert (error.category, error.message) == ("invalid_encryption_plan", "no circuit for (0, 1)")


def test_an_address_has_a_limit() -> None:
    assert len(next(layouts(dict.fromkeys(range(62), 2), 12)).places) == 62
    error = refusal(lambda: next(layouts(dict.fromkeys(range(21), 5), 12)))
    assert error.category == "unsupported_layout"
    assert "21 indices of the tensors need 63 address bits together, and a packed layout has 62" in error.message


def scaled(x: Tensor, w: Tensor) -> Tensor:
    return ((x * w) * (x * w)).sum()


def test_a_ring_that_needs_too_many_operations_leaves_it_to_the_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(scaled, {"x": (40_000,), "w": (1,)}, ["w"], SGD())
    declared: dict[str, Any] = {
        "secret": ["x", "w"],
        "ranges": {"x": (-1.0, 1.0), "w": (-1.0, 1.0), "learning_rate": 1e-6},
    }
    wanted = plan_training(compiled(model), **declared, ring_sizes=[16384])
    monkeypatch.setattr(recorder, "MOST_INSTRUCTIONS", len(wanted.circuit.instructions))
    refused = refusal(plan_training, compiled(model), **declared, ring_sizes=[8192])
    assert refused.category == "invalid_encryption_plan"
    assert "operations on ciphertexts; take smaller tensors" in refused.message
    assert plan_training(compiled(model), **declared).parameters.ring_size == 16384
