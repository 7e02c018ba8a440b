"""How many levels of multiplicative depth legalization adds: none, but for constants on a machine of matrices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legalizing import ANY_RANK, RANK2, legal, names
from tinychain.autodiff.expansion import Target
from tinychain.autodiff.inspection import multiplicative_depth
from tinychain.autodiff.tracing import Tensor
from verifying import Function, traced

#: A function, its shapes, and the levels that it takes more on a machine of matrices than as it is.
MORE: dict[str, tuple[Function, list[list[int | str]], int]] = {
    "sum at the ends": (lambda x: x.sum(axes=[0, 2]), [[2, 3, 4]], 0),
    "mean at the ends": (lambda x: x.mean(axes=[0, 2]), [[2, 3, 4]], 0),
    "broadcast at the ends": (lambda x: x.broadcast_to([2, 3, 4]), [[3, 1]], 0),
    "products by one matrix": (lambda x, y: x @ y, [[2, 3, 4], [4, 5]], 0),
    "rows by columns": (lambda x, y: x @ y, [[5, 1, 4], [5, 4, 1]], 0),
    "difference": (lambda x, y: x - y / 3.0, [[2, 3], [3]], 0),
    "sum between": (lambda x: x.sum(axes=[1]), [[2, 3, 4]], 1),
    "mean between": (lambda x: x.mean(axes=[1]), [[2, 3, 4]], 0),
    "broadcast between": (lambda x: x.broadcast_to([2, 3, 4]), [[2, 1, 4]], 1),
    "sum of two groups between": (lambda x: x.sum(axes=[1, 3]), [[2, 3, 4, 3, 2]], 2),
    "mean of two groups between": (lambda x: x.mean(axes=[1, 3]), [[2, 3, 4, 3, 2]], 1),
    "few large products": (lambda x, y: x @ y, [[2, 9, 9], [2, 9, 9]], 2),
    "many small products": (lambda x, y: x @ y, [[50, 2, 2], [50, 2, 2]], 2),
    "rows by matrices": (lambda x, y: x @ y, [[50, 1, 2], [50, 2, 2]], 1),
}


def added(function: Function, shapes: list[list[int | str]], target: Target) -> int:
    before = multiplicative_depth(traced(function, *shapes)).levels
    after = multiplicative_depth(legal(function, *shapes, target=target).artifact).levels
    assert before is not None
    assert after is not None
    return after - before


@pytest.mark.parametrize("name", MORE)
def test_what_each_form_adds_on_a_machine_of_matrices(name: str) -> None:
    function, shapes, levels = MORE[name]
    assert added(function, shapes, RANK2) == levels


@pytest.mark.parametrize("name", MORE)
def test_a_machine_of_any_rank_adds_nothing(name: str) -> None:
    function, shapes, _ = MORE[name]
    assert added(function, shapes, ANY_RANK) == 0


def test_a_literal_without_a_reciprocal_adds_one() -> None:
    assert added(lambda x: x / 3.102795988181382, [[2, 2]], ANY_RANK) == 1


@st.composite
def losses(draw: st.DrawFn) -> tuple[Function, list[list[int | str]]]:
    """Sums and means over some axes of products of tensors that are stretched."""
    shape = draw(st.lists(st.integers(2, 3), min_size=1, max_size=4))
    other = [1 if draw(st.booleans()) else dim for dim in shape]
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    scaled, squared = draw(st.booleans()), draw(st.booleans())

    def loss(x: Tensor, y: Tensor) -> Any:
        product = x * y if squared else x - y
        total = product.mean(axes=axes) if scaled else product.sum(axes=axes)
        return (total * total).mean()

    return loss, [list(shape), list(other)]


@given(losses())
def test_a_level_that_is_added_is_that_of_a_constant(drawn: tuple[Function, list[list[int | str]]]) -> None:
    function, shapes = drawn
    constants = names(legal(function, *shapes).artifact).count("constant")
    assert added(function, shapes, RANK2) <= constants  # less than 0 where a mean is of one number
    assert added(function, shapes, ANY_RANK) <= 0
