"""Transposes in graphs that no trace would give: negative axes, and ids that look like duals."""

from __future__ import annotations

from dataclasses import replace

from by_hand import graph, producing
from legalizing import RANK2, refusal
from tinychain.autodiff.expansion import Limits, Target, legalize
from tinychain.autodiff.graph import TensorNodeRecord
from tinychain.autodiff.operators import AddOperator, SumOperator, TransposeOperator
from tinychain.autodiff.verify import verify_equivalent

SQUARE = {"dtype": "f64", "shape": [3, 3]}
RANK3 = Target("sums", {**RANK2.operators, SumOperator: Limits()})


def transposed(operand: str, value_id: str) -> TensorNodeRecord:
    return producing(value_id, TransposeOperator(), operand, typespec=SQUARE, perm=[1, 0])  # type: ignore[no-any-return]


def test_negative_axes_of_a_reduction() -> None:
    cube = {"dtype": "f64", "shape": [3, 3, 3]}
    before = graph(
        producing("s", SumOperator(), "x", typespec=SQUARE, axes=[-3], keepdims=False),
        transposed("s", "z"),
        inputs=[("x", cube)],
        outputs=["z"],
    )
    assert verify_equivalent(before, legalize(before, RANK3), points=())
    last = replace(before.nodes[0], op_params={"axes": [-1], "keepdims": False})
    before = replace(before, nodes=[last, before.nodes[1]])
    assert "drops one that would be swapped" in refusal(before, RANK3)


def test_a_value_that_a_node_makes_is_no_source_of_a_dual() -> None:
    before = graph(
        producing("a", AddOperator(), "x", "x", typespec=SQUARE),
        transposed("a.mT", "t"),
        producing("o", AddOperator(), "t", "a", typespec=SQUARE),
        inputs=[("x", SQUARE), ("a.mT", SQUARE)],
        outputs=["o"],
    )
    after = legalize(before, RANK2)
    assert "a.mT.mT" in [value_id for value_id, _ in after.inputs]
    assert verify_equivalent(before, after, points=())
