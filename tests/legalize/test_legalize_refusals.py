"""What a refusal says: every node at once, each reason once, and no rule that merely does not concern the node."""

from __future__ import annotations

import pytest

from by_hand import graph, producing
from legalizing import RANK2, mean_square, only, refusal, without
from strategies import OwnOperator
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import Limits, Target, legalize
from tinychain.autodiff.graph import Decline, TensorNodeRecord
from tinychain.autodiff.operators import (
    AddOperator,
    DivOperator,
    FillOperator,
    MatmulOperator,
    MaximumOperator,
    MulOperator,
    SqrtOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.tracing import Tensor
from verifying import applied, traced

SPEC = {"dtype": "f64", "shape": [2, 2]}


def test_an_operator_without_an_exact_form() -> None:
    assert refusal(traced(lambda x: x.sqrt(), [2, 2]), RANK2).splitlines() == [
        "1 operation does not fit the target 'add-mul-matmul-rank2':",
        "  node 'n0' (SqrtOperator): add-mul-matmul-rank2 has no SqrtOperator",
        "    SqrtOperator: a square root is no polynomial; no exact form exists",
    ]


def test_all_problems_come_at_once() -> None:
    message = refusal(traced(lambda x, y: (x.sqrt() + x / y).exp(), [2, 2], [2, 2]), RANK2)
    assert message.startswith("3 operations do not fit the target 'add-mul-matmul-rank2':")
    for node in ("'n0' (SqrtOperator)", "'n1' (DivOperator)", "'n3' (ExpOperator)"):
        assert f"node {node}: add-mul-matmul-rank2 has no" in message


def test_nodes_with_the_same_reasons_are_told_together() -> None:
    message = refusal(traced(lambda x: x.sqrt() + (x * x).sqrt() + (x + x).sqrt(), [2, 2]), RANK2)
    assert "nodes 'n0', 'n2', 'n5' (SqrtOperator): add-mul-matmul-rank2 has no SqrtOperator" in message
    assert message.count("square root") == 1


def test_many_nodes_are_counted() -> None:
    def roots(x: Tensor) -> Tensor:
        for _ in range(30):
            x = x.sqrt()
        return x

    assert "'n9', 20 more (SqrtOperator)" in refusal(traced(roots, [2, 2]), RANK2)


def test_many_reasons_are_counted() -> None:
    def roots(x: Tensor) -> Tensor:
        total = x.sum()
        for columns in range(1, 30):
            total = total + x.broadcast_to([columns, 2]).sqrt().sum()
        return total

    target = Target("chip", {cls: Limits() for cls in (AddOperator, SumOperator)})
    target = Target("chip", {**target.operators, SqrtOperator: Limits(max_rank=1)})
    message = refusal(traced(roots, [2]), target)
    assert message.startswith("58 operations do not fit")
    assert "more operations, for other reasons" in message
    assert len(message.splitlines()) < 100


def test_rules_for_other_forms_are_left_out() -> None:
    message = refusal(traced(lambda x, y: x / y, [2, 2], [2, 2]), RANK2)
    assert message.splitlines()[2:] == [
        "    DivOperator.as_product: a division by a tensor is no polynomial; no exact form exists"
    ]


def test_a_machine_that_lacks_a_basic_operator_lacks_just_that() -> None:
    message = refusal(traced(lambda x, y: x * y, [2, 2], [2, 2]), only(AddOperator))
    assert message.splitlines()[1:] == ["  node 'n0' (MulOperator): chip has no MulOperator"]


def test_another_form_of_what_the_machine_lacks_is_no_reason() -> None:
    message = refusal(traced(lambda x, y: applied(MaximumOperator, x, y), [2, 3], [3]), RANK2)
    assert message.splitlines()[2:] == [
        "    MaximumOperator: the larger of two numbers is no polynomial; no exact form exists"
    ]


def test_what_a_rule_needs_and_the_machine_lacks_is_named_with_its_types() -> None:
    message = refusal(traced(lambda x: x.sum([1]), [4, 3]), without(RANK2, MatmulOperator))
    assert (
        "SumOperator.as_matmuls: it needs MatmulOperator(f64[4, 3], f64[3, 1]) -> f64[4, 1], and"
        " add-mul-matmul-rank2 has no MatmulOperator"
    ) in message
    assert "is_at_end" not in message
    assert "need no more than" not in message


def test_a_chain_of_rules_tells_where_it_ends() -> None:
    message = refusal(traced(lambda x: x.mean([1]), [4, 3]), without(RANK2, MatmulOperator))
    assert "MeanOperator.as_sum > SumOperator.as_matmuls: it needs MatmulOperator(" in message


def test_a_limit_is_told_with_the_type_that_breaks_it() -> None:
    target = Target("chip", {MatmulOperator: Limits(max_dim=4)})
    message = refusal(traced(lambda x, y: x @ y, [2, 5], [5, 3]), target)
    assert "MatmulOperator of chip takes dims of at most 4, not f64[2, 5]" in message


def test_a_dim_that_is_a_symbol_is_a_reason() -> None:
    message = refusal(traced(lambda x: x.sum(), ["N", 3]), RANK2)
    assert "SumOperator.as_matmuls" in message
    assert "an operand has the symbol 'N', whose size is not known" in message
    assert message.count("symbol 'N'") == 1


def test_a_value_without_a_type_is_a_reason() -> None:
    untyped = graph(producing("z", SubOperator(), "x", "x"), inputs=[("x", None)], outputs=["z"])
    message = refusal(untyped, RANK2)
    assert "node 'n_z' (SubOperator): value 'x' has no known dtype and shape; give it a typespec" in message


def test_a_node_without_a_type_is_a_reason() -> None:
    untyped = graph(producing("z", SubOperator(), "x", "x"), inputs=[("x", SPEC)], outputs=["z"])
    assert "value 'z' has no known dtype and shape" in refusal(untyped, RANK2)


def test_a_malformed_type_is_no_reason_but_an_error() -> None:
    bad = graph(producing("z", SubOperator(), "x", "x"), inputs=[("x", {"dtype": "f64", "shape": [-1]})], outputs=["z"])
    with pytest.raises(AutodiffError, match="missing_shape_metadata: value 'x' has the dim -1"):
        legalize(bad, RANK2)


def test_an_operator_of_the_users_own_without_a_rule() -> None:
    own = graph(producing("z", OwnOperator(), "x", typespec=SPEC), inputs=[("x", SPEC)], outputs=["z"])
    assert refusal(own, RANK2).splitlines()[1:] == [
        "  node 'n_z' (OwnOperator): add-mul-matmul-rank2 has no OwnOperator",
        "    OwnOperator: there is no rule for it",
    ]


def test_a_rule_of_the_callers_own_tells_its_reason_under_its_qualified_name() -> None:
    class Polynomials:
        def root(self, emit: Emitter, node: TensorNodeRecord) -> Decline:
            return Decline("the range is not known")

    message = refusal(traced(lambda x: x.sqrt(), [2, 2]), RANK2, rules={SqrtOperator: [Polynomials().root]})
    assert "Polynomials.root: the range is not known" in message


def test_a_transpose_of_other_axes_than_the_last_two() -> None:
    message = refusal(traced(lambda x: x.transpose([2, 1, 0]), [2, 3, 4]), RANK2)
    assert "TransposeOperator.as_reshape: a transpose moves elements" in message


def test_where_transposed_inputs_are_forbidden_the_rule_without_them_is_named() -> None:
    message = refusal(traced(lambda x: x.T, [2, 3]), RANK2, duals=False)
    assert "duals=False: transposed inputs are forbidden; transpose_by_constants is a rule that needs none" in message


def test_a_transpose_tells_where_pushing_it_ends() -> None:
    target = Target(RANK2.name, {**RANK2.operators, SqrtOperator: Limits(), SumOperator: Limits()})
    message = refusal(traced(lambda x: x.sum([2]).T, [2, 3, 4]), target)
    assert "transpose by duals: SumOperator over axes [2] of rank 3 drops one that would be swapped" in message


def test_a_transpose_whose_pushed_form_does_not_fit() -> None:
    """The right factor is a constant; transposed it would be the left one."""
    limits = {MatmulOperator: Limits(right="constant"), TransposeOperator: Limits(max_rank=1)}
    target = Target("chip", {**RANK2.operators, **limits})
    before = traced(lambda x: (x @ applied(FillOperator, fill=2.0, dtype="f64", shape=[3, 4])).T, [2, 3])
    assert (
        "transpose by duals: it needs MatmulOperator, and MatmulOperator of chip takes a constant as the right operand"
    ) in refusal(before, target)


def test_the_unneeded_half_of_a_loss_is_not_in_the_way() -> None:
    def halves(x: Tensor, y: Tensor) -> Tensor:
        x.sqrt().sum()
        return mean_square(x, y)

    legalize(traced(halves, [2, 2], [2, 2]), RANK2)


def test_a_division_by_a_literal_that_no_float_inverts() -> None:
    message = refusal(traced(lambda x: x / 1e-320, [2, 2]), without(RANK2, DivOperator))
    assert "DivOperator.as_product: 1 / 1e-320 is no normal number in f64" in message


def test_the_reasons_of_a_node_are_few() -> None:
    """Every rule of a batched product ends in one of many products that do not fit."""
    target = Target("chip", {**RANK2.operators, MatmulOperator: Limits(max_dim=1, max_rank=2)})
    message = refusal(traced(lambda x, y: (x @ y).mean(), [5, 4, 3], [3, 6]), target)
    assert max(len(block.splitlines()) for block in message.split("  node ")) <= 7


def test_the_class_of_a_multiplication_is_told_once() -> None:
    message = refusal(traced(lambda x, y: x - y, [2], [2]), without(RANK2, MulOperator))
    assert "SubOperator.as_sum: it needs MulOperator(f64[2]) -> f64[2], and" in message
