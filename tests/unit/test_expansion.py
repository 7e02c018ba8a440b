"""The forward pass: which means it refuses and why, what it emits for the others, and what it leaves alone."""

from __future__ import annotations

import copy
import inspect
from itertools import combinations
from typing import Any

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import (
    MEAN_EXPANSION_FORWARD,
    MeanExpansionRegion,
    expand_mean_derivative_program,
    expand_mean_derivative_program_detailed,
    expand_mean_graph,
    expand_mean_graph_detailed,
)
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.operators import (
    FillOperator,
    MatmulOperator,
    MeanOperator,
    MulOperator,
    ReshapeOperator,
    SumOperator,
)
from tinychain.autodiff.tracing import TensorGraphBuilder

MISSING: Any = object()


def spec(dtype: Any, shape: Any) -> dict[str, Any]:
    return {key: value for key, value in {"dtype": dtype, "shape": shape}.items() if value is not MISSING}


def mean_graph(
    *,
    operands: tuple[str, ...] = ("v0",),
    dtype: Any = "f32",
    shape: Any = (4, 3),
    axes: Any = (0, 1),
    keepdims: Any = False,
    out_dtype: Any = "f32",
    out_shape: Any = (),
    node_id: str = "n0",
    output: str = "v1",
    **op_params: Any,
) -> TensorGraph:
    """The mean of a matrix, built by hand."""
    given = {"axes": list(axes) if isinstance(axes, tuple) else axes, "keepdims": keepdims, **op_params}
    mean = TensorNodeRecord(
        node_id=node_id,
        output_value_id=output,
        operator=MeanOperator(),
        op_params={key: value for key, value in given.items() if value is not MISSING},
        input_value_ids=operands,
        output_typespec=spec(out_dtype, out_shape),
    )
    return TensorGraph([mean], [("v0", spec(dtype, shape))], [output])


def failure(graph: TensorGraph, prefix: str | None = None) -> AutodiffError:
    before = copy.deepcopy(graph)
    with pytest.raises(AutodiffError) as caught:
        expand_mean_graph(graph, reserved_id_prefix=prefix)
    assert graph == before
    return caught.value


# ----------------------------------------------------------------------------------------------------- what it refuses

HUGE = 10**200

#: In the order in which they are judged: (what is wrong, category, part of the message).
CLAUSES: list[tuple[dict[str, Any], str, str]] = [
    ({"operands": ("v0", "v0")}, "unsupported_reduction", "exactly one operand"),
    ({"shape": MISSING}, "missing_shape_metadata", "operand declares no ranked shape"),
    ({"dtype": MISSING}, "missing_dtype_metadata", "operand declares no dtype"),
    ({"shape": (2, 3, 4)}, "unsupported_reduction", "has rank 3"),
    ({"shape": (4, "N")}, "unresolved_symbolic_shape", "'N' is symbolic"),
    ({"shape": (0, 3)}, "unsupported_reduction", "0 is not positive"),
    ({"shape": (HUGE, HUGE)}, "unsupported_reduction", str(HUGE * HUGE)),
    ({"axes": (0, 0)}, "reduction_shape_mismatch", "declared axes are malformed"),
    ({"axes": (1,)}, "unsupported_reduction", "partial reduction"),
    ({"keepdims": 1}, "unsupported_reduction", "'keepdims' is not a bool"),
    ({"dtype": "i32"}, "dtype_not_differentiable", "operand dtype is not differentiable"),
    ({"out_shape": MISSING}, "missing_shape_metadata", "output declares no ranked shape"),
    ({"out_dtype": MISSING}, "missing_dtype_metadata", "output declares no dtype"),
    ({"out_shape": (1,)}, "reduction_shape_mismatch", "output declares shape [1]; expected []"),
    ({"out_dtype": "f64"}, "reduction_shape_mismatch", "output declares dtype f64; expected f32"),
    ({"node_id": "exn9"}, "unsupported_reduction", "reserved expansion namespace"),
    ({"fill": 1.0}, "unsupported_reduction", "fill descriptor key 'fill'"),
]


@pytest.mark.parametrize(("wrong", "category", "part"), CLAUSES)
def test_refuses(wrong: dict[str, Any], category: str, part: str) -> None:
    error = failure(mean_graph(**wrong))
    assert error.category == category
    assert part in error.message
    assert f"mean node '{wrong.get('node_id', 'n0')}'" in error.message


@pytest.mark.parametrize(("first", "second"), list(combinations(range(len(CLAUSES)), 2)))
def test_refuses_for_the_first_reason(first: int, second: int) -> None:
    wrong, category, part = CLAUSES[first]
    error = failure(mean_graph(**{**CLAUSES[second][0], **wrong}))
    assert error.category == category
    assert part in error.message


@pytest.mark.parametrize(
    ("wrong", "category", "part"),
    [
        ({"operands": ()}, "unsupported_reduction", "exactly one operand, got 0"),
        ({"operands": ("unknown",)}, "missing_shape_metadata", "operand declares no ranked shape"),
        ({"shape": "43"}, "missing_shape_metadata", "operand declares no ranked shape"),
        ({"shape": (4, -1)}, "missing_shape_metadata", "operand declares no ranked shape"),
        ({"shape": (4, True)}, "missing_shape_metadata", "operand declares no ranked shape"),
        ({"dtype": 32}, "missing_dtype_metadata", "operand declares no dtype"),
        ({"shape": ()}, "unsupported_reduction", "has rank 0"),
        ({"shape": (3, 0)}, "unsupported_reduction", "0 is not positive"),
        ({"axes": MISSING}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": None}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": 0}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": "01"}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": (0, 2)}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": (0, -2)}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": (0, True)}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": (0, 1.0)}, "reduction_shape_mismatch", "declared axes are malformed"),
        ({"axes": ()}, "unsupported_reduction", "partial reduction"),
        ({"axes": (0,)}, "unsupported_reduction", "partial reduction over axes [0]"),
        ({"keepdims": MISSING}, "unsupported_reduction", "'keepdims' is not a bool"),
        ({"keepdims": None}, "unsupported_reduction", "'keepdims' is not a bool"),
        ({"out_shape": (1, 1)}, "reduction_shape_mismatch", "output declares shape [1, 1]; expected []"),
        ({"keepdims": True}, "reduction_shape_mismatch", "output declares shape []; expected [1, 1]"),
        ({"dtype": 1.5, "shape": ("N",)}, "missing_dtype_metadata", "operand declares no dtype"),
        ({"output": "exv0"}, "unsupported_reduction", "id 'exv0' lies in the reserved expansion namespace"),
        ({"output": "exnote"}, "unsupported_reduction", "id 'exnote' lies in the reserved expansion namespace"),
    ],
)
def test_refuses_in_all_its_forms(wrong: dict[str, Any], category: str, part: str) -> None:
    error = failure(mean_graph(**wrong))
    assert error.category == category
    assert part in error.message


def test_names_a_count_of_more_digits_than_an_int_prints() -> None:
    assert "1" + "0" * 5000 + " " in failure(mean_graph(shape=(10**2500, 10**2500))).message


@pytest.mark.parametrize("key", ["fill", "dtype", "shape"])
def test_refuses_each_key_of_a_fill(key: str) -> None:
    graph = mean_graph()
    graph.nodes[0].op_params[key] = None
    assert f"fill descriptor key '{key}'" in failure(graph).message


@pytest.mark.parametrize("id_", ["exn0", "exv0", "gxn0", "gxv0"])
@pytest.mark.parametrize("place", ["node_id", "output"])
def test_refuses_ids_in_the_default_and_in_the_chosen_namespace(id_: str, place: str) -> None:
    wrong: dict[str, Any] = {place: id_}
    error = failure(mean_graph(**wrong), prefix="gx")
    assert error.category == "unsupported_reduction"
    assert f"id '{id_}' lies in the reserved expansion namespace" in error.message


def test_a_namespace_that_nobody_chose_is_free() -> None:
    expand_mean_graph(mean_graph(node_id="gxn0", output="gxv0"))


def two_means(first: dict[str, Any], second: dict[str, Any]) -> TensorGraph:
    """The second mean is no output's producer."""
    one, other = mean_graph(**first), mean_graph(node_id="n1", output="v2", **second)
    return TensorGraph([*one.nodes, *other.nodes], one.inputs, ["v1"])


def test_judges_every_mean_before_it_rewrites_one_reachable_or_not() -> None:
    error = failure(two_means({}, {"axes": (1,)}))
    assert "mean node 'n1'" in error.message
    assert "partial reduction" in error.message


def test_judges_in_node_order() -> None:
    error = failure(two_means({"fill": 1.0}, {"operands": ()}))
    assert "mean node 'n0'" in error.message


def test_refusal_goes_before_a_collision_of_minted_ids() -> None:
    graph = two_means({}, {"axes": (1,)})
    error = failure(TensorGraph(graph.nodes, [*graph.inputs, ("exv0", None)], graph.outputs))
    assert error.category == "unsupported_reduction"


@pytest.mark.parametrize("argument", [None, "graph", {"nodes": []}])
@pytest.mark.parametrize("expand", [expand_mean_graph, expand_mean_derivative_program])
def test_refuses_another_argument(argument: Any, expand: Any) -> None:
    with pytest.raises(TypeError, match="must be a"):
        expand(argument)


@pytest.mark.parametrize(
    "expand",
    [
        expand_mean_graph,
        expand_mean_graph_detailed,
        expand_mean_derivative_program,
        expand_mean_derivative_program_detailed,
    ],
)
def test_takes_one_positional_argument_and_one_keyword(expand: Any) -> None:
    artifact, prefix = inspect.signature(expand).parameters.values()
    assert artifact.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert (prefix.name, prefix.kind, prefix.default) == ("reserved_id_prefix", inspect.Parameter.KEYWORD_ONLY, None)


# ------------------------------------------------------------------------------------------------------ what it emits

Row = tuple[type[TensorOperator], dict[str, Any], list[str], str, list[int]]


def rows(graph: TensorGraph) -> list[Row]:
    return [
        (
            type(node.operator),
            node.op_params,
            node.input_value_ids,
            node.output_value_id,
            (node.output_typespec or {})["shape"],
        )
        for node in graph.nodes
    ]


def fill(shape: list[int], dtype: str = "f32") -> dict[str, Any]:
    return {"fill": 1.0, "dtype": dtype, "shape": shape}


def test_keeping_the_rank() -> None:
    expanded = expand_mean_graph(mean_graph(keepdims=True, out_shape=(1, 1)))
    assert rows(expanded) == [
        (FillOperator, fill([3, 1]), [], "exv0", [3, 1]),
        (MatmulOperator, {}, ["v0", "exv0"], "exv1", [4, 1]),
        (FillOperator, fill([1, 4]), [], "exv2", [1, 4]),
        (MatmulOperator, {}, ["exv2", "exv1"], "exv3", [1, 1]),
        (MulOperator, {"right_literal": 1.0 / 12.0}, ["exv3"], "v1", [1, 1]),
    ]
    assert [node.node_id for node in expanded.nodes] == ["exn0", "exn1", "exn2", "exn3", "exn4"]


def test_reducing_the_rank() -> None:
    expanded = expand_mean_graph(mean_graph())
    assert rows(expanded)[4:] == [
        (MulOperator, {"right_literal": 1.0 / 12.0}, ["exv3"], "exv4", [1, 1]),
        (ReshapeOperator, {"shape": []}, ["exv4"], "v1", []),
    ]
    assert [node.node_id for node in expanded.nodes] == ["exn0", "exn1", "exn2", "exn3", "exn4", "exn5"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_dtype_is_the_operand_s(dtype: str) -> None:
    expanded = expand_mean_graph(mean_graph(dtype=dtype, out_dtype=dtype))
    assert {(node.output_typespec or {})["dtype"] for node in expanded.nodes} == {dtype}
    fills = [node.op_params["dtype"] for node in expanded.nodes if isinstance(node.operator, FillOperator)]
    assert fills == [dtype, dtype]


def test_negative_axes_and_another_order_are_the_same_mean() -> None:
    assert expand_mean_graph(mean_graph(axes=(-1, -2))) == expand_mean_graph(mean_graph())


def test_a_count_that_a_float_just_holds() -> None:
    side = 10**150
    scale = expand_mean_graph(mean_graph(shape=(side, side))).nodes[4]
    assert scale.op_params == {"right_literal": 1.0 / float(side * side)}
    assert scale.op_params["right_literal"] > 0.0


def test_counts_go_on_over_several_means() -> None:
    expanded, regions = unpack(two_means({}, {}))
    assert [node.node_id for node in expanded.nodes] == [f"exn{i}" for i in range(12)]
    values = [node.output_value_id for node in expanded.nodes]
    assert values == ["exv0", "exv1", "exv2", "exv3", "exv4", "v1", "exv5", "exv6", "exv7", "exv8", "exv9", "v2"]
    assert [region.source_node_ids for region in regions] == [("n0",), ("n1",)]


def unpack(graph: TensorGraph, prefix: str | None = None) -> tuple[TensorGraph, tuple[MeanExpansionRegion, ...]]:
    result = expand_mean_graph_detailed(graph, reserved_id_prefix=prefix)
    assert result.graph == expand_mean_graph(graph, reserved_id_prefix=prefix)
    return result.graph, result.regions


@pytest.mark.parametrize(
    ("keepdims", "shape", "tier", "count"), [(True, (1, 1), "rank_preserving", 5), (False, (), "rank_reducing", 6)]
)
def test_says_what_became_of_what(keepdims: bool, shape: tuple[int, ...], tier: str, count: int) -> None:
    _, regions = unpack(mean_graph(keepdims=keepdims, out_shape=shape))
    region = MeanExpansionRegion(
        pass_name="mean_expansion_forward",
        source_node_ids=("n0",),
        emitted_node_ids=tuple([f"exn{i}" for i in range(count)]),
        terminal_value_id="v1",
        tier=tier,
    )
    assert regions == (region,)
    assert region.pass_name == MEAN_EXPANSION_FORWARD
    assert region.to_dict()["emitted_node_ids"] == list(region.emitted_node_ids)


# --------------------------------------------------------------------------------------------- what it leaves alone


def mse() -> TensorGraph:
    with TensorGraphBuilder() as builder:
        x, y, w = [
            builder.input(name, dtype="f32", shape=shape)
            for name, shape in {"x": [4, 3], "y": [4, 1], "w": [3, 1]}.items()
        ]
        error = x @ w - y
        loss = (error * error).mean()
        scaled = loss * 2.0
    return builder.build(outputs=[scaled])


def test_other_nodes_are_carried_over_in_their_order() -> None:
    graph = mse()
    expanded = expand_mean_graph(graph)
    *before, mean, after = graph.nodes
    assert all(new is old for new, old in zip(expanded.nodes, before, strict=False))
    assert expanded.nodes[-1] is after
    assert expanded.nodes[-2].output_value_id == mean.output_value_id
    assert (expanded.inputs, expanded.outputs) == (graph.inputs, graph.outputs)


def test_the_argument_stays_as_it_was_and_equal_graphs_give_equal_ones() -> None:
    graph, twin = mse(), mse()
    untouched = copy.deepcopy(graph)
    first, second, third = (expand_mean_graph_detailed(g) for g in (graph, graph, twin))
    assert graph == untouched
    assert first == second == third


def test_a_second_run_has_nothing_to_do() -> None:
    expanded = expand_mean_graph(mse())
    again = expand_mean_graph_detailed(expanded)
    assert again.graph == expanded
    assert again.regions == ()


class OwnMeanOperator(MeanOperator):
    """A subclass is another operator, whose meaning the pass does not know."""


@pytest.mark.parametrize("operator", [SumOperator(), OwnMeanOperator()])
def test_other_operators_are_no_business_of_the_pass(operator: TensorOperator) -> None:
    graph = mean_graph()
    node = graph.nodes[0]
    other = TensorNodeRecord(
        node_id=node.node_id,
        output_value_id=node.output_value_id,
        operator=operator,
        op_params={"axes": None},
        input_value_ids=(),
    )
    graph = TensorGraph([other], graph.inputs, graph.outputs)
    assert expand_mean_graph(graph) == graph


def test_an_empty_graph() -> None:
    assert expand_mean_graph(TensorGraph([], [], [])) == TensorGraph([], [], [])
    assert expand_mean_graph_detailed(TensorGraph([], [], [])).regions == ()


def test_an_input_that_nothing_reads_stays() -> None:
    graph = mean_graph()
    graph = TensorGraph(graph.nodes, [*graph.inputs, ("idle", None)], graph.outputs)
    assert expand_mean_graph(graph).inputs == graph.inputs
