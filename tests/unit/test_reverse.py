"""The programs that `generate` emits: every operator's sequence, ids, types, accumulation and metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from running import trace
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.operators import BroadcastReduceOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder

Emitted = tuple[str, dict[str, Any], list[str], list[Any]]  # route name, params, operands, declared shape


def gradients(function: Callable[..., Any], *shapes: Any, wrt: list[str] | None = None) -> DerivativeProgram:
    graph = trace(function, *shapes)
    return generate(graph, graph.outputs[0], wrt or [value_id for value_id, _ in graph.inputs], "s")


def emitted(program: DerivativeProgram) -> list[Emitted]:
    """The nodes; their ids are dn0, dn1, ... and those of their values d0, d1, ... in order."""
    for index, node in enumerate(program.nodes):
        assert (node.node_id, node.output_value_id) == (f"dn{index}", f"d{index}")
        assert node.output_typespec is not None
        assert node.output_typespec["dtype"] == "f64"
        assert program.value_typespecs[f"d{index}"] == node.output_typespec
    return [
        (node.operator.route_name, node.op_params, node.input_value_ids, (node.output_typespec or {})["shape"])
        for node in program.nodes
    ]


# ---------------------------------------------------------------------------------------------------------- sequences


def test_add_of_equal_shapes_emits_nothing() -> None:
    program = gradients(lambda x, y: x + y, [2], [2])
    assert program.nodes == []
    assert program.gradients == {"v0": "s", "v1": "s"}


def test_add_undoes_its_broadcasts() -> None:
    program = gradients(lambda x, y: x + y, [4, 1], [3])
    assert emitted(program) == [
        ("broadcast_reduce", {"target_shape": [4, 1]}, ["s"], [4, 1]),
        ("broadcast_reduce", {"target_shape": [3]}, ["s"], [3]),
    ]
    assert program.output_gradients == ["d0", "d1"]


def test_sub() -> None:
    program = gradients(lambda x, y: x - y, [2, 3], [3])
    assert emitted(program) == [
        ("mul", {"right_literal": -1.0}, ["s"], [2, 3]),
        ("broadcast_reduce", {"target_shape": [3]}, ["d0"], [3]),
    ]
    assert program.gradients == {"v0": "s", "v1": "d1"}


def test_mul() -> None:
    program = gradients(lambda x, y: x * y, [2, 3], [3])
    assert emitted(program) == [
        ("mul", {}, ["s", "v1"], [2, 3]),
        ("mul", {}, ["s", "v0"], [2, 3]),
        ("broadcast_reduce", {"target_shape": [3]}, ["d1"], [3]),
    ]


def test_div() -> None:
    program = gradients(lambda x, y: x / y, [2], [2])
    assert emitted(program) == [
        ("div", {}, ["s", "v1"], [2]),
        ("mul", {}, ["s", "v0"], [2]),
        ("mul", {}, ["v1", "v1"], [2]),
        ("div", {}, ["d1", "d2"], [2]),
        ("mul", {"right_literal": -1.0}, ["d3"], [2]),
    ]
    assert program.output_gradients == ["d0", "d4"]


def test_div_undoes_its_broadcasts_last() -> None:
    assert [route for route, *_ in emitted(gradients(lambda x, y: x / y, [3], [2, 1]))] == [
        *["div", "broadcast_reduce"],
        *["mul", "mul", "div", "mul", "broadcast_reduce"],
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x - 2.0, []),
        (lambda x: x * 3, [("mul", {"right_literal": 3}, ["s"], [2])]),
        (lambda x: x / 4.0, [("div", {"right_literal": 4.0}, ["s"], [2])]),
    ],
)
def test_the_literal_forms(function: Callable[[Tensor], Tensor], expected: list[Emitted]) -> None:
    assert emitted(gradients(function, [2])) == expected


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        (["v0"], [("mul", {}, ["s", "v1"], [2])]),
        (["v1"], [("mul", {}, ["s", "v0"], [2])]),
    ],
)
def test_only_the_needed_operand_gets_a_gradient(wrt: list[str], expected: list[Emitted]) -> None:
    assert emitted(gradients(lambda x, y: x * y, [2], [2], wrt=wrt)) == expected


def test_sum() -> None:
    assert emitted(gradients(lambda x: x.sum(1), [2, 3])) == [
        ("reshape", {"shape": [2, 1]}, ["s"], [2, 1]),
        ("broadcast", {"shape": [2, 3]}, ["d0"], [2, 3]),
    ]
    assert emitted(gradients(lambda x: x.sum(1, keepdims=True), [2, 3])) == [
        ("broadcast", {"shape": [2, 3]}, ["s"], [2, 3])
    ]


def test_sum_over_a_symbolic_dim() -> None:
    assert emitted(gradients(lambda x: x.sum(), ["N", 3])) == [
        ("reshape", {"shape": [1, 1]}, ["s"], [1, 1]),
        ("broadcast", {"shape": ["N", 3]}, ["d0"], ["N", 3]),
    ]


def test_mean() -> None:
    assert emitted(gradients(lambda x: x.mean((0, 2)), [2, 3, 4])) == [
        ("reshape", {"shape": [1, 3, 1]}, ["s"], [1, 3, 1]),
        ("broadcast", {"shape": [2, 3, 4]}, ["d0"], [2, 3, 4]),
        ("div", {"right_literal": 8.0}, ["d1"], [2, 3, 4]),
    ]
    program = gradients(lambda x: x.mean(keepdims=True), [2, 3])
    assert emitted(program) == [
        ("broadcast", {"shape": [2, 3]}, ["s"], [2, 3]),
        ("div", {"right_literal": 6.0}, ["d0"], [2, 3]),
    ]
    assert type(program.nodes[-1].op_params["right_literal"]) is float


@pytest.mark.parametrize(
    ("function", "shape", "expected"),
    [
        (lambda x: x.reshape(6), [2, 3], ("reshape", {"shape": [2, 3]}, ["s"], [2, 3])),
        (lambda x: x.transpose([1, 2, 0]), [2, 3, 4], ("transpose", {"perm": [2, 0, 1]}, ["s"], [2, 3, 4])),
        (lambda x: x.broadcast_to([4, 3]), [3], ("broadcast_reduce", {"target_shape": [3]}, ["s"], [3])),
        (lambda x: x.broadcast_to([3]), [3], ("broadcast_reduce", {"target_shape": [3]}, ["s"], [3])),
    ],
)
def test_movement(function: Callable[[Tensor], Tensor], shape: Any, expected: Emitted) -> None:
    assert emitted(gradients(function, shape)) == [expected]


def test_broadcast_reduce() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[2, 3])
        y = builder.apply(BroadcastReduceOperator, [x], {"target_shape": [3]})
    program = builder.vjp(y, wrt=[x], seed="s")
    assert emitted(program) == [("broadcast", {"shape": [2, 3]}, ["s"], [2, 3])]


def test_matmul() -> None:
    assert emitted(gradients(lambda x, y: x @ y, [4, 3], [3, 2])) == [
        ("transpose", {"perm": [1, 0]}, ["v1"], [2, 3]),
        ("matmul", {}, ["s", "d0"], [4, 3]),
        ("transpose", {"perm": [1, 0]}, ["v0"], [3, 4]),
        ("matmul", {}, ["d2", "s"], [3, 2]),
    ]


def test_matmul_of_a_broadcast_batch() -> None:
    assert emitted(gradients(lambda x, y: x @ y, [5, 4, 3], [3, 2])) == [
        ("transpose", {"perm": [1, 0]}, ["v1"], [2, 3]),
        ("matmul", {}, ["s", "d0"], [5, 4, 3]),
        ("transpose", {"perm": [0, 2, 1]}, ["v0"], [5, 3, 4]),
        ("matmul", {}, ["d2", "s"], [5, 3, 2]),
        ("broadcast_reduce", {"target_shape": [3, 2]}, ["d3"], [3, 2]),
    ]


# ---------------------------------------------------------------------------------------------------- repeated operands


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x + x, [("add", ["s", "s"])]),
        (lambda x: x - x, [("mul", ["s"]), ("add", ["s", "d0"])]),
        (lambda x: x * x, [("mul", ["s", "v0"]), ("mul", ["s", "v0"]), ("add", ["d0", "d1"])]),
        (
            lambda x: x / x,
            [
                ("div", ["s", "v0"]),
                ("mul", ["s", "v0"]),
                ("mul", ["v0", "v0"]),
                ("div", ["d1", "d2"]),
                ("mul", ["d3"]),
                ("add", ["d0", "d4"]),
            ],
        ),
        (
            lambda x: x @ x,
            [
                ("transpose", ["v0"]),
                ("matmul", ["s", "d0"]),
                ("transpose", ["v0"]),
                ("matmul", ["d2", "s"]),
                ("add", ["d1", "d3"]),
            ],
        ),
    ],
)
def test_every_slot_of_a_repeated_operand_counts(function: Callable[[Tensor], Tensor], expected: Any) -> None:
    program = gradients(function, [3, 3])
    assert [(route, operands) for route, _, operands, _ in emitted(program)] == expected
    assert program.output_gradients == [f"d{len(expected) - 1}"]


# --------------------------------------------------------------------------------------------------------- accumulation


def test_contributions_are_folded_from_the_left_in_their_order_of_creation() -> None:
    program = gradients(lambda x: ((x * 2.0) + (x * 3.0)) + (x * 4.0), [2])
    assert [(route, params.get("right_literal"), operands) for route, params, operands, _ in emitted(program)] == [
        ("mul", 4.0, ["s"]),
        ("mul", 3.0, ["s"]),
        ("mul", 2.0, ["s"]),
        ("add", None, ["d0", "d1"]),
        ("add", None, ["d3", "d2"]),
    ]


def test_more_than_ten_contributions_stay_in_order_of_creation_not_of_spelling() -> None:
    def function(x: Tensor) -> Tensor:
        total = x * 0
        for factor in range(1, 12):
            total = total + x * factor
        return total

    program = gradients(function, [2])
    folded = [n.input_value_ids[1] for n in program.nodes if n.operator.route_name == "add"]
    assert folded == [f"d{i}" for i in range(1, 12)]


def test_an_upstream_is_added_up_before_its_node_is_differentiated() -> None:
    program = gradients(lambda x: (lambda y: y * 2.0 + y * 3.0)(x * 5.0), [2])
    assert [(route, operands) for route, _, operands, _ in emitted(program)] == [
        ("mul", ["s"]),
        ("mul", ["s"]),
        ("add", ["d0", "d1"]),
        ("mul", ["d2"]),
    ]


def test_an_upstream_is_added_up_even_where_it_is_not_used_any_more() -> None:
    graph = trace(lambda x, y: (lambda z: z * 2.0 + z * y)(x * x), [2], [2])
    program = generate(graph, graph.outputs[0], ["v2", "v1"], "s")
    assert [n.operator.route_name for n in program.nodes] == ["mul", "mul", "mul", "add"]
    assert program.gradients == {"v2": "d3", "v1": "d1"}


def test_contributions_of_several_outputs_add_up() -> None:
    graph = trace(lambda x: (x * 2.0, x * 3.0), [2])
    program = generate(graph, ["v1", "v2"], ["v0"], ["s1", "s2"])
    assert [(route, operands) for route, _, operands, _ in emitted(program)] == [
        ("mul", ["s2"]),
        ("mul", ["s1"]),
        ("add", ["d0", "d1"]),
    ]
    assert program.metadata.seed_contract == "s1 matches v1; s2 matches v2"


def test_an_output_that_feeds_another_output_has_both_contributions() -> None:
    graph = trace(lambda x: (lambda y: (y, y * 3.0))(x * 2.0), [2])
    program = generate(graph, ["v1", "v2"], ["v0"], ["s1", "s2"])
    assert [(route, operands) for route, _, operands, _ in emitted(program)] == [
        ("mul", ["s2"]),
        ("add", ["s1", "d0"]),
        ("mul", ["d1"]),
    ]


def test_one_output_twice_has_two_seeds() -> None:
    graph = trace(lambda x: x * 2.0, [2])
    program = generate(graph, ["v1", "v1"], ["v0"], ["s1", "s2"])
    assert [operands for _, _, operands, _ in emitted(program)] == [["s1", "s2"], ["d0"]]


# ------------------------------------------------------------------------------------------------------------------ wrt


def test_a_loss_that_is_itself_a_wrt() -> None:
    program = gradients(lambda x: x * x, [2], wrt=["v1"])
    assert program.nodes == []
    assert program.gradients == {"v1": "s"}
    assert program.output_gradients == ["s"]


def test_a_loss_and_its_input_are_both_wrt() -> None:
    program = gradients(lambda x: x * 2.0, [2], wrt=["v1", "v0"])
    assert program.gradients == {"v1": "s", "v0": "d0"}
    assert program.metadata.wrt_signature == ("v1", "v0")


def test_a_graph_of_one_input() -> None:
    program = generate(TensorGraph([], [("v0", {"dtype": "f32", "shape": []})], ["v0"]), "v0", ["v0"], "s")
    assert program.gradients == {"v0": "s"}
    assert program.value_typespecs["s"] == {"dtype": "f32", "shape": []}


def test_the_gradients_come_in_the_order_of_wrt() -> None:
    forwards = gradients(lambda x, y: x * y, [2], [2], wrt=["v0", "v1"])
    backwards = gradients(lambda x, y: x * y, [2], [2], wrt=["v1", "v0"])
    assert forwards.nodes == backwards.nodes
    assert forwards.output_gradients == backwards.output_gradients[::-1] == ["d0", "d1"]
    assert list(backwards.gradients) == ["v1", "v0"]


def test_nothing_before_an_intermediate_wrt_is_differentiated() -> None:
    program = gradients(lambda x: (x * x).sum(), [2], wrt=["v1"])
    assert [n.operator.route_name for n in program.nodes] == ["reshape", "broadcast"]


# ------------------------------------------------------------------------------------------------------------- metadata


def test_the_ids_skip_those_of_the_graph() -> None:
    graph = trace(lambda x: x * x, [2])
    renamed = TensorGraph(graph.nodes, [*graph.inputs, ("d0", None), ("dn1", None), ("d3", None)], graph.outputs)
    program = generate(renamed, "v1", ["v0"], "d1")
    assert [(n.node_id, n.output_value_id, n.input_value_ids) for n in program.nodes] == [
        ("dn0", "d2", ["d1", "v0"]),
        ("dn2", "d4", ["d1", "v0"]),
        ("dn3", "d5", ["d2", "d4"]),
    ]


@pytest.mark.parametrize("graph_id", ["", "mine", "\ud800"])
def test_the_graph_id_is_taken_verbatim(graph_id: str) -> None:
    graph = trace(lambda x: x * x, [2])
    assert generate(graph, "v1", ["v0"], "s", graph_id=graph_id).metadata.source_graph_id == graph_id


def test_without_a_graph_id_the_content_hash_names_the_source() -> None:
    graph = trace(lambda x: x * x, [2])
    assert generate(graph, "v1", ["v0"], "s").metadata.source_graph_id == content_hash(graph)


def test_the_typespec_table_is_sorted_and_complete() -> None:
    program = gradients(lambda x: (x * x).sum(), [2])
    assert list(program.value_typespecs) == sorted(program.value_typespecs)
    assert set(program.value_typespecs) == {"v0", "v1", "v2", "s", *[n.output_value_id for n in program.nodes]}
    assert program.value_typespecs["s"] == {"dtype": "f64", "shape": []}


def test_an_untyped_graph_gives_an_untyped_program() -> None:
    with TensorGraphBuilder() as builder:
        x, y = Tensor(), Tensor()
        _ = x * y + x
    program = generate(builder.build(), "v3", ["v0", "v1"], "s")
    assert [(n.operator.route_name, n.input_value_ids) for n in program.nodes] == [
        ("mul", ["s", "v1"]),
        ("mul", ["s", "v0"]),
        ("add", ["s", "d0"]),
    ]
    assert {n.output_typespec is None for n in program.nodes} == {True}
    assert program.value_typespecs == {}


def test_the_same_request_gives_the_same_program_and_leaves_the_graph_alone() -> None:
    graph = trace(lambda x, y: ((x @ y) / 3.0).mean(), [2, 3], [3, 2])
    before = graph.to_dict()
    assert generate(graph, graph.outputs, ["v0", "v1"], ["s"]) == generate(graph, graph.outputs, ["v0", "v1"], ["s"])
    assert graph.to_dict() == before


def test_a_long_chain_and_a_wide_fan_in_need_no_recursion() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(3_000):
            x = x * 1.5
        return x

    def fan(x: Tensor) -> Tensor:
        total = x
        for _ in range(3_000):
            total = total + x
        return total

    assert len(gradients(chain, []).nodes) == 3_000
    assert len(gradients(fan, []).nodes) == 3_000
