"""What a transpose needs of the forward pass and nobody captured: vectors, rows and columns are computed again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from by_hand import graph, producing, program
from legalizing import RANK2, refusal
from tinychain.autodiff.expansion import declare_duals, legalize
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import AddOperator, ExpOperator, MulOperator, SumOperator, TransposeOperator
from tinychain.autodiff.reverse import joint_graph
from tinychain.autodiff.verify import verify_equivalent

SPEC = {"dtype": "f64", "shape": [3, 2]}
SWAPPED = {"dtype": "f64", "shape": [2, 3]}
VECTOR = {"dtype": "f64", "shape": [2]}


def transposed(operand: str, value_id: str = "z") -> TensorNodeRecord:
    return producing(value_id, TransposeOperator(), operand, typespec=SWAPPED, perm=[1, 0])  # type: ignore[no-any-return]


def hidden(*nodes: TensorNodeRecord, inputs: Any) -> tuple[DerivativeProgram, TensorGraph]:
    """A program that transposes the `y` of a forward graph, where y = x + b and the program captures no b."""
    forward = graph(
        *nodes,
        producing("y", AddOperator(), "x", "b", typespec=SPEC),
        inputs=[("x", SPEC), *inputs],
        outputs=["y"],
    )
    derivative = program(nodes=[transposed("y")], output_gradients=["z"], value_typespecs={"y": SPEC})
    return derivative, forward


def same(derivative: DerivativeProgram, forward: TensorGraph) -> DerivativeProgram:
    """The legal program, if it computes what it did."""
    after = legalize(derivative, RANK2, forward_graph=declare_duals(forward))
    before = joint_graph(derivative, forward_graph=forward)
    assert verify_equivalent(before, joint_graph(after, forward_graph=declare_duals(forward)), points=())
    return after


def test_a_vector_that_nobody_captured_is_computed_again() -> None:
    nodes = [producing("b", AddOperator(), "a", "a", typespec=VECTOR)]
    after = same(*hidden(*nodes, inputs=[("a", VECTOR)]))
    assert "b" not in [value_id for node in after.nodes for value_id in node.input_value_ids]


def test_so_is_a_vector_that_is_made_of_others_and_of_a_matrix() -> None:
    nodes = [
        producing("t", TransposeOperator(), "m", typespec=SWAPPED, perm=[1, 0]),
        producing("s", SumOperator(), "t", typespec=VECTOR, axes=[1], keepdims=False),
        producing("b", MulOperator(), "s", "s", typespec=VECTOR),
    ]
    after = same(*hidden(*nodes, inputs=[("m", SPEC)]))
    assert [v for node in after.nodes for v in node.input_value_ids if v.startswith("m")] == ["m.mT"]


def test_and_a_matrix_of_one_row_without_a_dual_of_what_it_is_made_of() -> None:
    nodes = [
        producing("s", SumOperator(), "m", typespec={"dtype": "f64", "shape": [1, 2]}, axes=[0], keepdims=True),
        producing("b", MulOperator(), "s", "s", typespec={"dtype": "f64", "shape": [1, 2]}),
    ]
    after = same(*hidden(*nodes, inputs=[("m", SPEC)]))
    assert [v for node in after.nodes for v in node.input_value_ids if v.startswith("m")] == ["m"]


def test_it_is_computed_once_however_often_it_is_read() -> None:
    derivative, forward = hidden(
        producing("b", MulOperator(), "a", "a", typespec=VECTOR),
        producing("u", MulOperator(), "x", "b", typespec=SPEC),
        inputs=[("a", VECTOR)],
    )
    sums = producing("v", AddOperator(), "z", "w", typespec=SWAPPED)
    both = replace(derivative, nodes=[*derivative.nodes, transposed("u", "w"), sums], output_gradients=["v"])
    after = same(replace(both, value_typespecs={"y": SPEC, "u": SPEC}), forward)
    assert [value_id for node in after.nodes for value_id in node.input_value_ids].count("a") == 1  # a reshape


def test_what_is_no_input_and_has_no_producer_is_told() -> None:
    derivative, forward = hidden(producing("b", AddOperator(), "a", "a", typespec=VECTOR), inputs=[])
    message = refusal(derivative, RANK2, forward_graph=forward)
    assert "it needs 'a', which is no input and not captured" in message


def test_an_operator_that_the_machine_lacks_is_told() -> None:
    derivative, forward = hidden(producing("b", ExpOperator(), "a", typespec=VECTOR), inputs=[("a", VECTOR)])
    assert "it needs ExpOperator, and add-mul-matmul-rank2 has no ExpOperator" in refusal(
        derivative, RANK2, forward_graph=forward
    )
