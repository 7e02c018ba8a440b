"""Symbolic dims on the NumPy backends: from the arrays, from the trace, or from the caller, and never two at once."""

from __future__ import annotations

import numpy as np
import pytest

from running import compiled
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.reverse import joint_graph
from tinychain.autodiff.tracing import TensorGraphBuilder


def gradient_of_a_sum() -> TensorGraph:
    """d sum(x) / dx for x of shape [N]: only the params of the broadcast mention N."""
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=("N",))
        total = x.sum()
    return joint_graph(builder.vjp(total, wrt=[x]), forward_graph=builder.build(outputs=total))


def test_a_symbol_that_no_input_has_is_bound_by_the_caller() -> None:
    results = compiled(gradient_of_a_sum())({"seed": np.array(2.0)}, shape_bindings={"N": 3})
    assert results["d1"].tolist() == [2.0, 2.0, 2.0]


def test_an_unbound_symbol_says_how_to_bind_it() -> None:
    with pytest.raises(AutodiffError, match=r"has the symbol 'N'.*pass it in shape_bindings") as caught:
        compiled(gradient_of_a_sum())({"seed": np.array(2.0)})
    assert caught.value.category == "unresolved_symbolic_shape"


@pytest.mark.parametrize("bindings", [{"N": -1}, {"N": 1.5}, {"N": True}])
def test_a_binding_that_is_no_size_is_refused(bindings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="shape_bindings binds 'N' to"):
        compiled(gradient_of_a_sum())({"seed": np.array(2.0)}, shape_bindings=bindings)


def test_a_size_that_the_trace_has_settled_is_known() -> None:
    with TensorGraphBuilder() as builder:
        y = builder.input("x", dtype="f64", shape=(3,)).broadcast_to(["N"])
    assert compiled(builder.build(outputs=y))({"v0": np.arange(3.0)})["v1"].tolist() == [0.0, 1.0, 2.0]


def test_a_size_other_than_the_one_the_trace_has_settled_is_refused() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=("N",))
        y = builder.input("y", dtype="f64", shape=(3,))
        product = x * y
    run = compiled(builder.build(outputs=product))
    assert run({"v0": np.ones(3), "v1": np.arange(3.0)})["v2"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(AutodiffError, match="symbol 'N' is bound to 3") as caught:
        run({"v0": np.ones(1), "v1": np.arange(3.0)})
    assert caught.value.category == "symbolic_shape_mismatch"
