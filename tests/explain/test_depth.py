"""Multiplicative depth by hand, and against every path of random graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from by_hand import graph, producing
from strategies import OwnOperator, traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion.depth import Depth, multiplicative_depth
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    BroadcastReduceOperator,
    ConstantOperator,
    DivOperator,
    FillOperator,
    MatmulOperator,
    MeanOperator,
    MulOperator,
    ProductOperator,
    ReshapeOperator,
    SqrtOperator,
    SubOperator,
)
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import Tensor
from verifying import applied, traced

SHAPE: list[int | str] = [3, 3]


def depth(function: Callable[..., Any], **options: Any) -> Depth:
    """Of a function of the matrices v0 and v1."""
    return multiplicative_depth(traced(function, SHAPE, SHAPE), **options)


def filled(number: float, *shape: int) -> Tensor:
    return applied(FillOperator, fill=number, dtype="f64", shape=list(shape))


# ------------------------------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("function", "levels"),
    [
        (lambda x, y: x + y, 0),
        (lambda x, y: x - y - 2.5, 0),
        (lambda x, y: x.sum(), 0),
        (lambda x, y: x.T.reshape([9]).broadcast_to([2, 9]), 0),
        (lambda x, y: applied(BroadcastReduceOperator, x, target_shape=[3, 1]), 0),
        (lambda x, y: x * y, 1),
        (lambda x, y: x @ y, 1),
        (lambda x, y: x * x, 1),
        (lambda x, y: x.mean(), 1),
        (lambda x, y: x * 0.5, 1),
        (lambda x, y: x / 3.0, 1),
        (lambda x, y: -x, 0),
        (lambda x, y: x * 1.0, 0),
        (lambda x, y: x / -1, 0),
        (lambda x, y: x * y * y * y, 3),
        (lambda x, y: (x * x) * (y * y), 2),
        (lambda x, y: ((x @ y - y) * (x @ y - y)).mean(), 3),
    ],
)
def test_the_levels_that_operations_cost(function: Callable[..., Any], levels: int) -> None:
    assert depth(function).levels == levels


def test_what_depends_on_no_secret_costs_nothing() -> None:
    found = depth(lambda x, y: ((y * y @ y).sqrt(), x + y), secret=["v0"])
    assert (found.levels, found.unknown, found.path) == (0, (), ())


@pytest.mark.parametrize("secret", ["v0", "v1"])
def test_a_plain_factor_costs_a_plain_level(secret: str) -> None:
    target = Target("t", {MulOperator: Limits(plain_levels=2, secret_levels=5)})
    assert depth(lambda x, y: x * y, secret=[secret], target=target).levels == 2
    assert depth(lambda x, y: x * y, target=target).levels == 5


def test_the_costs_of_an_operator_are_its_own_or_those_of_a_multiplication() -> None:
    target = Target("t", {MulOperator: Limits(plain_levels=0), MatmulOperator: Limits(secret_levels=3)})
    assert depth(lambda x, y: x @ y, target=target).levels == 3
    assert depth(lambda x, y: x @ y, target=target, secret=["v0"]).levels == 1
    assert depth(lambda x, y: x.mean() / 7.0, target=target).levels == 0
    assert depth(lambda x, y: x.mean(), target=Target("t", {AddOperator: Limits()})).levels == 1


@pytest.mark.parametrize(("number", "levels"), [(1.0, 0), (1, 0), (-1.0, 0), (0.5, 1), (0.0, 1)])
def test_a_fill_of_one_sign_costs_nothing(number: float, levels: int) -> None:
    assert depth(lambda x, y: x * filled(number, 3, 3)).levels == levels
    assert depth(lambda x, y: filled(number, 1, 3) @ x).levels == levels
    assert depth(lambda x, y: x * filled(number, 9).reshape([3, 3]).T).levels == levels
    assert depth(lambda x, y: x / filled(number, 1).broadcast_to([3])).levels == levels


def test_a_sum_of_ones_and_a_constant_of_ones_are_factors_like_any_other() -> None:
    ones = {"values": [1.0] * 9, "dtype": "f64", "shape": [3, 3]}
    assert depth(lambda x, y: x * applied(ConstantOperator, **ones)).levels == 1
    assert depth(lambda x, y: x * filled(1.0, 3, 3).sum(axes=[0])).levels == 1


def test_a_division_by_a_plain_tensor_is_a_product() -> None:
    assert depth(lambda x, y: x / y, secret=["v0"]).levels == 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, y: x / y, "node 'n0' (DivOperator): a division by a tensor is no polynomial; no exact form exists"),
        (lambda x, y: x.exp() + y, "node 'n0' (ExpOperator): an exponential is no polynomial; no exact form exists"),
        (lambda x, y: x.maximum(y), "node 'n0' (MaximumOperator): the larger of two numbers is no polynomial"),
        (
            lambda x, y: applied(ProductOperator, x, axes=[0], keepdims=False),
            "node 'n0' (ProductOperator): there is no rule for a product over axes",
        ),
    ],
)
def test_the_depth_of_what_is_no_polynomial_is_unknown(function: Callable[..., Any], reason: str) -> None:
    found = depth(function)
    assert (found.levels, list(found.outputs.values()), found.path) == (None, [None], ())
    assert [text.startswith(reason) for text in found.unknown] == [True]


def test_every_reason_is_told_and_known_outputs_stay_known() -> None:
    found = depth(lambda x, y: (x.sqrt().exp() * x, x * y))
    assert list(found.outputs.values()) == [None, 1]
    assert [text.split(":")[0] for text in found.unknown] == ["node 'n0' (SqrtOperator)", "node 'n1' (ExpOperator)"]


def test_an_operator_of_ones_own_may_say_how_it_multiplies() -> None:
    class Doubling(OwnOperator):
        multiplies = "never"

    def of(operator: Any) -> Depth:
        return multiplicative_depth(graph(producing("z", operator, "x"), inputs=[("x", None)], outputs=["z"]))

    assert of(Doubling()).levels == 0
    assert of(OwnOperator()).unknown == (
        "node 'n_z' (OwnOperator): nobody says how it multiplies; define multiplies on its class",
    )


def test_every_operator_that_has_operands_says_how_it_multiplies_or_why_it_is_no_polynomial() -> None:
    silent = [cls for cls in OPERATORS if cls.multiplies is None and cls.inexact == OwnOperator.inexact]
    assert silent == [FillOperator, ConstantOperator]


def test_the_path_names_the_nodes_that_cost_the_levels() -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        deep = (x * x + y) @ y  # n0, n1, n2
        return y * y, deep * 0.5 - y  # n3, n4, n5

    found = depth(function)
    assert found.path == ("n0", "n2", "n4")
    assert found.outputs == {"v5": 1, "v7": 3}


def test_secrets_may_have_used_up_levels_already() -> None:
    assert depth(lambda x, y: x * y, secret={"v0": 4, "v1": 1}).levels == 5


def test_the_dual_of_a_secret_is_secret() -> None:
    square = {"dtype": "f64", "shape": [3, 3]}
    read = graph(producing("z", MatmulOperator(), "x.mT", "y"), inputs=[("x.mT", square), ("y", square)], outputs=["z"])
    assert multiplicative_depth(read, secret=["x"]).levels == 1
    assert multiplicative_depth(read, secret=["x", "y"]).path == ("n_z",)


def test_only_what_the_outputs_need_counts() -> None:
    x = producing("a", SqrtOperator(), "x")
    found = multiplicative_depth(graph(x, inputs=[("x", None)], outputs=["x"]))
    assert found == Depth(levels=0, outputs={"x": 0}, path=(), unknown=())


def test_an_artifact_without_outputs() -> None:
    assert multiplicative_depth(graph()) == Depth(levels=0, outputs={}, path=(), unknown=())


def test_nodes_may_stand_in_any_order() -> None:
    nodes = [producing("b", MulOperator(), "a", "x"), producing("a", MulOperator(), "x", "x")]
    assert multiplicative_depth(graph(*nodes, inputs=[("x", None)], outputs=["b"])).path == ("n_a", "n_b")


def test_a_long_chain() -> None:
    count = 20_000
    nodes = [producing(f"s{i + 1}", MulOperator(), f"s{i}", f"s{i}") for i in range(count)]
    found = multiplicative_depth(graph(*nodes, inputs=[("s0", None)], outputs=[f"s{count}"]))
    assert (found.levels, len(found.path)) == (count, count)


# ----------------------------------------------------------------------------------------------------------- programs


def test_a_program_counts_from_all_that_it_reads() -> None:
    forward = traced(lambda x, y: (x @ y).sum(), SHAPE, SHAPE)
    program = generate(forward, forward.outputs[0], ["v1"], "seed")
    assert multiplicative_depth(program).levels == 1
    assert multiplicative_depth(program, secret=["v0"]).levels == 1
    assert multiplicative_depth(program, secret=["seed"]).levels == 1
    assert multiplicative_depth(program, secret=[]).levels == 0


def test_captures_have_the_depth_that_they_have_in_the_forward_graph() -> None:
    forward = traced(lambda x, y: ((x @ y) * (x @ y)).sum(), SHAPE, SHAPE)
    program = generate(forward, forward.outputs[0], ["v1"], "seed")
    alone = multiplicative_depth(program)
    # v2 = x @ y costs one level more than when it is taken from outside.
    assert multiplicative_depth(program, forward_graph=forward).levels == (alone.levels or 0) + 1
    assert multiplicative_depth(program, forward_graph=forward, secret=["seed"]).levels == 2
    assert multiplicative_depth(program, forward_graph=forward, secret=["v0"]).path[0] == "n0"


def test_a_capture_is_not_bound_beside_the_forward_graph() -> None:
    forward = traced(lambda x, y: (x * y).exp().sum(), SHAPE, SHAPE)
    program = generate(forward, forward.outputs[0], ["v1"], "seed")
    with pytest.raises(ValueError, match=r"secret has 'v3', which nobody binds; bound are \['v0', 'v1', 'seed'\]"):
        multiplicative_depth(program, forward_graph=forward, secret=["v3"])


# ---------------------------------------------------------------------------------------------------- against all paths

_FREE = ("add", "sub", "sum", "reshape", "transpose", "broadcast")


def _is_secret(graph: TensorGraph, value_id: str, secret: Collection[str]) -> bool:
    node = _producer(graph, value_id)
    if node is None:
        return value_id in secret
    return any(_is_secret(graph, operand, secret) for operand in node.input_value_ids)


def _producer(graph: TensorGraph, value_id: str) -> TensorNodeRecord | None:
    return next((node for node in graph.nodes if node.output_value_id == value_id), None)


def _path_costs(graph: TensorGraph, value_id: str, secret: Collection[str]) -> list[float]:
    """The cost of every path from a secret to a value; infinite through what is no polynomial."""
    node = _producer(graph, value_id)
    if node is None:
        return [0] if value_id in secret else []
    secrets = [_is_secret(graph, operand, secret) for operand in node.input_value_ids]
    cost: float = 0
    name, literal = node.operator.route_name, node.op_params.get("right_literal")
    if name in ("mul", "matmul", "div", "mean"):
        cost = {1: 3, 2: 10}.get(sum(secrets), 0)
        if literal in (1, -1):
            cost = 0
        if name == "div" and len(secrets) == 2 and secrets[1]:
            cost = float("inf")
    elif name not in _FREE:
        cost = float("inf")
    return [cost + before for operand in node.input_value_ids for before in _path_costs(graph, operand, secret)]


@given(traced_graphs(max_operations=5), st.data())
def test_the_depth_is_that_of_the_most_expensive_path(graph: TensorGraph, data: st.DataObject) -> None:
    inputs = [value_id for value_id, _ in graph.inputs]
    secret = data.draw(st.sets(st.sampled_from(inputs))) if inputs else set()
    limits = Limits(plain_levels=3, secret_levels=10)
    found = multiplicative_depth(graph, secret=secret, target=Target("t", dict.fromkeys(OPERATORS, limits)))
    (output,) = graph.outputs
    expected = max(_path_costs(graph, output, secret), default=0)
    assert (float("inf") if found.levels is None else found.levels) == expected
    assert bool(found.unknown) == (found.levels is None)


# ------------------------------------------------------------------------------------------------------- bad arguments

GRAPH = traced(lambda x, y: x * y, SHAPE, SHAPE)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"artifact": None}, TypeError, "artifact must be a TensorGraph or a DerivativeProgram, got None"),
        ({"secret": "v0"}, TypeError, "secret must be a collection of value ids, or map them to levels, got 'v0'"),
        ({"secret": 3}, TypeError, "secret must be a collection of value ids, or map them to levels, got 3"),
        ({"secret": [["v0"]]}, TypeError, r"secret must hold value ids, which are str, got \['v0'\]"),
        ({"secret": ["v2"]}, ValueError, r"secret has 'v2', which nobody binds; bound are \['v0', 'v1'\]"),
        ({"secret": {"v0": -1}}, ValueError, "secret maps 'v0' to -1; expected a non-negative int of levels"),
        ({"secret": {"v0": True}}, ValueError, "secret maps 'v0' to True"),
        ({"target": "reference"}, TypeError, "target must be a Target or None, got 'reference'"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        multiplicative_depth(**{"artifact": GRAPH, **changes})


def test_a_forward_graph_that_is_none() -> None:
    loss = traced(lambda x, y: (x * y).sum(), SHAPE, SHAPE)
    program = generate(loss, loss.outputs[0], ["v0"], "seed")
    with pytest.raises(TypeError, match="forward_graph must be a TensorGraph, got 3"):
        multiplicative_depth(program, forward_graph=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "outputs", "category"),
    [
        ([producing("a", AddOperator(), "b", "b"), producing("b", AddOperator(), "a", "a")], ["a"], "malformed"),
        ([producing("a", AddOperator(), "x", "x"), producing("a", SubOperator(), "x", "x")], ["a"], "malformed"),
        ([producing("a", MulOperator(), "x", right_literal="2")], ["a"], "malformed"),
        ([producing("a", ReshapeOperator(), "x", shape=[2])], [["a"]], "invalid_selected_output"),
    ],
    ids=["cycle", "two producers", "literal", "output"],
)
def test_malformed_artifacts(nodes: list[Any], outputs: list[Any], category: str) -> None:
    with pytest.raises(AutodiffError) as caught:
        multiplicative_depth(graph(*nodes, inputs=[("x", None)], outputs=outputs))
    assert caught.value.category.startswith(category)


@pytest.mark.parametrize("name", ["plain_levels", "secret_levels"])
@pytest.mark.parametrize("levels", [-1, None, 0.5, True])
def test_levels_of_a_target_are_non_negative_ints(name: str, levels: Any) -> None:
    with pytest.raises(AutodiffError, match=f"{name}: expected an int of at least 0") as caught:
        Limits(**{name: levels})
    assert caught.value.category == "invalid_target"


def test_a_mean_is_a_product_with_a_literal() -> None:
    target = Target("t", {MeanOperator: Limits(plain_levels=2), DivOperator: Limits(plain_levels=4)})
    assert depth(lambda x, y: x.mean(), target=target).levels == 2
    assert depth(lambda x, y: x / 3.0, target=target).levels == 4
