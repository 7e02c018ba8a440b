"""The targets that come with the package, and that the backends are the machines that they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from running import trace
from targeting import form, form_of, outcome, raised_by
from tinychain.autodiff.backends.numpy import bind_input, limited_registry, rank2_registry, reference_registry
from tinychain.autodiff.expansion.target import Form
from tinychain.autodiff.expansion.targets import ADD_MUL_MATMUL, ADD_MUL_MATMUL_RANK2, READY_TARGETS, ready_target
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.lowering import LoweredProgram, lower_graph
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
)


def test_they_are_found_by_their_names() -> None:
    assert list(READY_TARGETS) == ["reference", "add-mul-matmul", "add-mul-matmul-rank2"]
    assert all(ready_target(name).name == name for name in READY_TARGETS)


@pytest.mark.parametrize("name", ["npu", "", None, [], 3])
def test_another_name_is_refused_with_those_that_there_are(name: Any) -> None:
    error = raised_by(ready_target, name)
    assert error.category == "invalid_target"
    assert "expected one of reference, add-mul-matmul, add-mul-matmul-rank2, got" in error.message


def test_the_reference_has_every_operator_as_its_backend_does() -> None:
    assert tuple(ready_target("reference").operators) == OPERATORS == reference_registry().supported_types()


@pytest.mark.parametrize("name", ["add-mul-matmul", "add-mul-matmul-rank2"])
def test_the_small_ones_have_six_operators(name: str) -> None:
    assert set(ready_target(name).operators) == {
        AddOperator,
        MulOperator,
        MatmulOperator,
        FillOperator,
        ConstantOperator,
        ReshapeOperator,
    }


def test_the_machine_of_matrices_has_the_operators_of_its_backend() -> None:
    assert set(ADD_MUL_MATMUL_RANK2.operators) == set(rank2_registry().supported_types())


@pytest.mark.parametrize(
    "form_",
    [
        form(AddOperator, "f64 2", "f64 2"),
        form(MulOperator, "f64", right_literal=2.0),
        form(MulOperator, "f64 2 3 4", "f64 2 3 4"),
        form(MatmulOperator, "f64 2 3 4", "f64 2 4 3"),
    ],
    ids=str,
)
def test_only_one_of_them_computes_on_other_ranks_than_two(form_: Form) -> None:
    assert ADD_MUL_MATMUL.refusal(form_) is None
    assert "takes rank 2 only" in str(ADD_MUL_MATMUL_RANK2.refusal(form_))


@pytest.mark.parametrize("target", [ADD_MUL_MATMUL, ADD_MUL_MATMUL_RANK2])
@pytest.mark.parametrize(
    "form_",
    [
        form(ReshapeOperator, "f64 2 3 4", shape=[24]),
        form(ReshapeOperator, "f64 1 1", shape=[]),
        form(FillOperator, fill=0.5, dtype="f32", shape=[2, 3, 4]),
        form(ConstantOperator, values=[1.0, 2.0], dtype="f64", shape=[2]),
    ],
    ids=str,
)
def test_what_computes_nothing_has_any_rank(target: Any, form_: Form) -> None:
    assert target.refusal(form_) is None


# ----------------------------------------------------------------------------------- the machines that they describe

_dims: st.SearchStrategy[list[int | str]] = st.lists(st.sampled_from([1, 2, "N"]), max_size=3)


@st.composite
def graphs_of_one_node(draw: st.DrawFn) -> TensorGraph:
    shape, other = draw(_dims), draw(_dims)
    operations: dict[str, tuple[Callable[..., Any], list[list[int | str]]]] = {
        "add": (lambda x, y: x + y, [shape, other]),
        "add alike": (lambda x, y: x + y, [shape, shape]),
        "mul": (lambda x, y: x * y, [shape, other]),
        "mul alike": (lambda x, y: x * y, [shape, shape]),
        "literal": (lambda x: x * 0.5, [shape]),
        "matmul": (lambda x, y: x @ y, [shape, other]),
        "matmul alike": (lambda x, y: x @ y, [shape, shape]),
        "reshape": (lambda x: x.reshape(other), [shape]),
        "flat": (lambda x: x.reshape([*shape, 1]), [shape]),
    }
    function, shapes = operations[draw(st.sampled_from(list(operations)))]
    graph: TensorGraph = outcome(trace, function, *shapes)
    assume(isinstance(graph, TensorGraph))
    return graph


@pytest.mark.parametrize(
    ("target", "registry"), [(ADD_MUL_MATMUL, limited_registry), (ADD_MUL_MATMUL_RANK2, rank2_registry)]
)
@given(graph=graphs_of_one_node())
def test_a_backend_lowers_exactly_what_its_target_takes(target: Any, registry: Any, graph: TensorGraph) -> None:
    result = outcome(lower_graph, graph, handlers=registry(), bind_input=bind_input)
    assert isinstance(result, LoweredProgram) == (target.refusal(form_of(graph)) is None)
