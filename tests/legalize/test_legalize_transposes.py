"""Transposes on a machine without them: what is bound transposed, how far one is pushed, and where that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from by_hand import graph, producing, program
from legalizing import RANK2, broken, legal, names, only, refusal, unfit
from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import (
    Limits,
    Target,
    declare_duals,
    dual_id,
    dual_source,
    legalize,
    legalize_detailed,
    transpose_by_constants,
)
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import AddOperator, ExpOperator, MatmulOperator, ReshapeOperator, TransposeOperator
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.types import Symbols, TensorType
from tinychain.autodiff.verify import verify_equivalent
from verifying import traced

SPEC = {"dtype": "f64", "shape": [3, 2]}
SWAPPED = {"dtype": "f64", "shape": [2, 3]}
BY_CONSTANTS: Any = {TransposeOperator: [transpose_by_constants]}


def transposed(operand: str, value_id: str = "z", spec: Any = None) -> TensorNodeRecord:
    return producing(value_id, TransposeOperator(), operand, typespec=spec or SWAPPED, perm=[1, 0])  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------------------- graphs


def test_an_input_is_bound_transposed_too_under_a_name() -> None:
    result = legal(lambda x: x.T, [3, 2])
    assert result.artifact.inputs == [("v0", SPEC), ("v0.mT", SWAPPED)]
    assert result.duals == ("v0.mT",)
    assert (dual_id("v0"), dual_source("v0.mT"), dual_source("v0")) == ("v0.mT", "v0", None)


def test_an_input_is_declared_once_however_often_it_is_read() -> None:
    result = legal(lambda x, y: (x.T @ y) @ (x * y).T @ x, [3, 2], [3, 2])
    assert [value_id for value_id, _ in result.artifact.inputs] == ["v0", "v1", "v0.mT", "v1.mT"]


def test_a_transpose_is_computed_once_however_often_it_is_read() -> None:
    result = legal(lambda x, y: (x * y).T + (x * y + y).T * 2.0, [3, 2], [3, 2])
    pushed = [node for node in result.artifact.nodes if node.output_typespec["shape"] == [2, 3]]
    assert sorted([node.operator.route_name for node in pushed]).count("mul") == 3


def test_the_transpose_of_a_product_is_the_product_of_transposes() -> None:
    result = legal(lambda x, y: (x @ y).T, [4, 3], [3, 2])
    (product,) = [node for node in result.artifact.nodes if "v1.mT" in node.input_value_ids]
    assert product.input_value_ids == ["v1.mT", "v0.mT"]


def test_the_transpose_of_a_transpose_is_what_it_was_made_of() -> None:
    result = legal(lambda x: (x.T * 1.0).T, [3, 2])
    assert [value_id for value_id, _ in result.artifact.inputs] == ["v0", "v0.mT"]
    assert names(result.artifact) == ["reshape", "mul", "mul", "reshape"]


def test_batches_stay_where_they_are() -> None:
    machine = only(MatmulOperator, ReshapeOperator)
    result = legal(lambda x, y: (x @ y).mT, [2, 4, 3], [2, 3, 5], target=machine)
    assert dict(result.artifact.inputs)["v0.mT"] == {"dtype": "f64", "shape": [2, 3, 4]}


def test_a_vector_is_read_as_a_column() -> None:
    result = legal(lambda x, b: (x + b).T, [3, 2], [2])
    assert "v1.mT" not in dict(result.artifact.inputs)


def test_a_scalar_is_read_as_it_is() -> None:
    legal(lambda x, b: (x * b).T, [3, 2], [])


def test_a_row_is_reshaped() -> None:
    result = legal(lambda x: x.T, [1, 3])
    assert (names(result.artifact), result.duals) == (["reshape"], ())


def test_a_dual_that_is_declared_already_is_used() -> None:
    before = graph(transposed("x"), inputs=[("x", SPEC), ("x.mT", SWAPPED)], outputs=["z"])
    result = legalize_detailed(before, RANK2)
    assert result.artifact.inputs == before.inputs
    assert result.duals == ()


def test_the_transpose_of_a_dual_is_the_input() -> None:
    before = graph(transposed("x.mT", spec=SPEC), inputs=[("x", SPEC), ("x.mT", SWAPPED)], outputs=["z"])
    assert legalize(before, RANK2).nodes[0].input_value_ids == ["x"]


def test_the_typespec_of_a_declared_dual_may_say_more() -> None:
    spec = {"dtype": "f64", "shape": (2, 3), "layout": "rows"}
    before = graph(transposed("x"), inputs=[("x", SPEC), ("x.mT", spec)], outputs=["z"])
    assert legalize(before, RANK2).inputs == before.inputs


@pytest.mark.parametrize("spec", [SPEC, {"dtype": "f32", "shape": [2, 3]}])
def test_an_input_whose_name_only_looks_like_a_dual_has_its_own(spec: Any) -> None:
    swapped = {**spec, "shape": spec["shape"][::-1]}
    before = graph(transposed("x.mT", spec=swapped), inputs=[("x", SPEC), ("x.mT", spec)], outputs=["z"])
    assert legalize_detailed(before, RANK2).duals == ("x.mT.mT",)


@pytest.mark.parametrize("spec", [SPEC, {"dtype": "f32", "shape": [2, 3]}])
def test_the_name_of_a_dual_may_be_taken_by_another_input(spec: Any) -> None:
    before = graph(transposed("x"), inputs=[("x", SPEC), ("x.mT", spec)], outputs=["z"])
    assert "'x.mT', the dual of 'x', is the id of another value" in refusal(before, RANK2)


def test_the_name_of_a_dual_may_be_taken_by_a_node() -> None:
    named = producing("x.mT", ReshapeOperator(), "x", typespec=SWAPPED, shape=[2, 3])
    before = graph(named, transposed("x"), inputs=[("x", SPEC)], outputs=["z", "x.mT"])
    assert "'x.mT', the dual of 'x', is the id of another value" in refusal(before, RANK2)


def test_symbolic_dims_are_swapped() -> None:
    machine = Target("chip", {cls: replace(limits, symbols=True) for cls, limits in RANK2.operators.items()})
    result = legal(lambda x, y: (x * y).T, ["N", 2], ["N", 2], target=machine)
    assert dict(result.artifact.inputs)["v0.mT"] == {"dtype": "f64", "shape": [2, "N"]}


def test_the_value_of_nothing() -> None:
    assert names(legal(lambda x: x.T, [0, 3]).artifact) == ["reshape"]


def test_what_is_pushed_in_vain_is_nowhere() -> None:
    """The left factor could be pushed, the right one could not; a rule is asked instead."""
    machine = Target("chip", {**RANK2.operators, ExpOperator: Limits()})
    before = traced(lambda x, y: (x * y.reshape([3, 2])).T + x.T, [3, 2], [2, 3])
    result = legalize_detailed(before, machine, rules=BY_CONSTANTS)
    assert unfit(result.artifact, machine) == []
    assert verify_equivalent(before, result.artifact, points=())
    read = {value for node in result.artifact.nodes for value in node.input_value_ids} | set(before.outputs)
    assert [node.node_id for node in result.artifact.nodes if node.output_value_id not in read] == []
    assert result.duals == ("v0.mT",)


def test_a_region_of_a_transpose_has_all_that_was_emitted_for_it() -> None:
    result = legal(lambda x, y: (x - y).T, [3, 2], [3, 2])
    second = result.regions[1]
    assert second.rules[0] == "transpose by duals"
    assert "SubOperator.as_sum" in second.rules
    assert second.source_node_ids == ("n1",)


# ------------------------------------------------------------------------------------------------------------ forbidden


def test_without_duals_no_input_is_added() -> None:
    result = legal(lambda x: x.T @ x, [3, 2], duals=False, rules=BY_CONSTANTS)
    assert [value_id for value_id, _ in result.artifact.inputs] == ["v0"]
    assert result.regions[0].rules[0] == "transpose_by_constants"


def test_with_duals_the_rule_is_asked_where_pushing_ends() -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        return x.T + (y.reshape([3, 2]) * 2.0).T

    result = legal(both, [3, 2], [2, 3], rules=BY_CONSTANTS)
    assert [region.rules[0] for region in result.regions] == ["transpose by duals", "transpose_by_constants"]


def test_other_axes_are_rewritten_by_the_rule() -> None:
    legal(lambda x: x.transpose([2, 0, 1]), [2, 3, 4], rules=BY_CONSTANTS)


def test_a_rule_that_costs_nothing_goes_before_duals() -> None:
    class Flip(TensorOperator):
        route_name = "flip"

        def result_type(self, symbols: Symbols, x: TensorType) -> TensorType:
            return TensorType(x.dtype, x.shape[::-1])

    def flip(emit: Emitter, node: TensorNodeRecord) -> None:
        emit(Flip, *node.input_value_ids, into=node.output_value_id)

    machine = Target("chip", {Flip: Limits()})
    after = legalize(traced(lambda x: x.T, [3, 2]), machine, rules={TransposeOperator: [flip]})
    assert names(after) == ["flip"]


# -------------------------------------------------------------------------------------------------------- own operators


class Own(TensorOperator):
    """x, under a name of the user's own."""

    route_name = "own"

    def result_type(self, symbols: Symbols, x: TensorType) -> TensorType:
        return x


def of_own(answer: Callable[..., Any] | None) -> tuple[TensorGraph, Target]:
    own = type("OwnOperator", (Own,), {} if answer is None else {"transposed": answer})
    nodes = [producing("y", own(), "x", typespec=SPEC), transposed("y")]
    return graph(*nodes, inputs=[("x", SPEC)], outputs=["z"]), Target("chip", {**RANK2.operators, own: Limits()})


def test_an_operator_of_the_users_own_without_a_transposed_form() -> None:
    assert "transpose by duals: OwnOperator has no transposed form" in refusal(*of_own(None))


def test_an_operator_of_the_users_own_with_a_transposed_form() -> None:
    before, machine = of_own(lambda self, emit, node, of: emit(type(self), of(node.input_value_ids[0])))
    assert names(legalize(before, machine)) == ["own", "own", "reshape"]


def raising(self: Own, emit: Emitter, node: TensorNodeRecord, of: Any) -> str:
    raise KeyError("gone")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda self, emit, node, of: node.input_value_ids[0],
            "returned a f64[3, 2]; expected a Decline or the id of a f64[2, 3]",
        ),
        (lambda self, emit, node, of: None, "returned None"),
        (lambda self, emit, node, of: 3, "returned 3"),
        (lambda self, emit, node, of: "nowhere", "returned 'nowhere'"),
        (lambda self, emit, node, of: of("elsewhere"), "raised KeyError"),
        (raising, "raised KeyError: 'gone'"),
    ],
)
def test_a_transposed_form_that_breaks_its_promise(answer: Callable[..., Any], said: str) -> None:
    message = broken(*of_own(answer), None)
    assert message.startswith("transposed of OwnOperator, node 'n_y', ")
    assert said in message


# ------------------------------------------------------------------------------------------------- derivative programs


def layers(count: int, *, square: bool) -> tuple[TensorGraph, DerivativeProgram]:
    """A chain of matrix products whose gradients need the transposes of all that came before."""

    def loss(x: Tensor, *weights: Tensor) -> Tensor:
        for w in weights:
            x = x @ w
            x = x * x if square else x
        return x.sum()

    shapes: list[list[int | str]] = [[2, 2]] * (count + 1)
    before = traced(loss, *shapes)
    return before, generate(before, before.outputs[0], [f"v{i + 1}" for i in range(count)], "seed")


def test_what_a_program_captures_is_computed_again_transposed() -> None:
    before, derivative = layers(3, square=True)
    forward = declare_duals(legalize(before, RANK2))
    result = legalize_detailed(derivative, RANK2, forward_graph=forward)
    assert result.duals == ()
    assert verify_equivalent(
        joint_graph(derivative, forward_graph=before), joint_graph(result.artifact, forward_graph=forward), points=()
    )


def test_nothing_is_captured_that_was_not_captured_before() -> None:
    before, derivative = layers(4, square=False)
    after = legalize(derivative, RANK2, forward_graph=declare_duals(before))

    def captured(artifact: DerivativeProgram) -> set[str]:
        produced = {node.output_value_id for node in artifact.nodes} | dict(declare_duals(before).inputs).keys()
        return {value for node in artifact.nodes for value in node.input_value_ids if value not in produced}

    assert captured(after) <= captured(derivative)


@pytest.mark.parametrize("square", [True, False])
def test_a_thousand_layers(square: bool) -> None:
    before, derivative = layers(1000, square=square)
    after = legalize(derivative, RANK2, forward_graph=declare_duals(before))
    assert TransposeOperator() not in {node.operator for node in after.nodes}
    assert len(after.nodes) < 8 * len(derivative.nodes)


def test_duals_that_the_forward_graph_does_not_declare_are_told() -> None:
    before, derivative = layers(1, square=False)
    result = legalize_detailed(derivative, RANK2, forward_graph=before)
    assert result.duals == ("v0.mT",)
    assert result.artifact.value_typespecs["v0.mT"] == {"dtype": "f64", "shape": [2, 2]}


def test_without_a_forward_graph_a_capture_is_bound_transposed() -> None:
    _, derivative = layers(2, square=True)
    assert legalize_detailed(derivative, RANK2).duals == ("v2.mT", "v4.mT", "v0.mT")


def test_the_seed_is_no_input_that_could_be_bound_transposed() -> None:
    derivative = program(
        nodes=[transposed("seed")],
        gradients={"w": "z"},
        output_gradients=["z"],
        value_typespecs={"seed": SPEC, "z": SWAPPED},
    )
    forward = graph(inputs=[("w", SWAPPED)])
    assert "it needs the transpose of 'seed', which is no input" in refusal(derivative, RANK2, forward_graph=forward)


def test_a_gradient_that_is_none_stays_none() -> None:
    derivative = program(nodes=[transposed("x")], output_gradients=[None, "z"], value_typespecs={"x": SPEC})
    assert legalize(derivative, RANK2).output_gradients == [None, "z"]


def test_ids_are_none_of_the_forward_graph() -> None:
    before, derivative = layers(1, square=False)
    named = producing("lpv0", AddOperator(), "v0", "v0", typespec={"dtype": "f64", "shape": [2, 2]})
    forward = declare_duals(replace(before, nodes=[*before.nodes, replace(named, node_id="lpn0")]))
    after = legalize(derivative, RANK2, forward_graph=forward)
    new = {id_ for node in after.nodes for id_ in (node.node_id, node.output_value_id)}
    assert new.isdisjoint({"lpv0", "lpn0"})


def test_a_value_of_the_forward_graph_without_a_type() -> None:
    derivative = program(nodes=[transposed("y")], output_gradients=["z"], value_typespecs={"y": SPEC})
    forward = graph(
        producing("u", AddOperator(), "x", "x"),
        producing("y", AddOperator(), "u", "x", typespec=SPEC),
        inputs=[("x", SPEC)],
    )
    assert "the dtype and the shape of 'u' are not known" in refusal(derivative, RANK2, forward_graph=forward)


def test_a_cycle_in_the_forward_graph() -> None:
    derivative = program(nodes=[transposed("y")], output_gradients=["z"], value_typespecs={"y": SPEC})
    forward = graph(
        producing("u", AddOperator(), "y", "y", typespec=SPEC), producing("y", AddOperator(), "u", "u", typespec=SPEC)
    )
    with pytest.raises(AutodiffError, match="malformed_derivative_ir: cycle: value 'y' depends on itself"):
        legalize(derivative, RANK2, forward_graph=forward)


@pytest.mark.parametrize("given", [3, "graph", []])
def test_refuses_another_forward_graph(given: Any) -> None:
    with pytest.raises(TypeError, match="forward_graph must be a TensorGraph, got"):
        legalize(layers(1, square=False)[1], RANK2, forward_graph=given)


# ------------------------------------------------------------------------------------------------------- declare_duals


def test_every_matrix_input_gets_a_dual() -> None:
    specs = [
        ("x", SPEC),
        ("row", {"dtype": "f64", "shape": [1, 3]}),
        ("b", {"dtype": "f64", "shape": [3]}),
        ("u", None),
    ]
    assert declare_duals(graph(inputs=specs)).inputs == [*specs, ("x.mT", SWAPPED)]


def test_a_graph_whose_duals_are_declared_is_returned_itself() -> None:
    declared = declare_duals(graph(inputs=[("x", SPEC)]))
    assert declare_duals(declared) is declared


def test_declaring_the_duals_of_what_is_no_graph() -> None:
    with pytest.raises(TypeError, match="graph must be a TensorGraph, got 3"):
        declare_duals(3)  # type: ignore[arg-type]
