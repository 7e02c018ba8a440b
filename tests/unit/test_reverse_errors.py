"""What `generate` refuses: arguments, seeds, ids, containers, cycles, and records that contradict their operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import graph, producing
from running import trace
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.operators import (
    AddOperator,
    BroadcastOperator,
    BroadcastReduceOperator,
    DivOperator,
    MatmulOperator,
    MaxOperator,
    MeanOperator,
    MinOperator,
    MulOperator,
    ProductOperator,
    ReshapeOperator,
    SubOperator,
    SumOperator,
    TransposeOperator,
)
from tinychain.autodiff.reverse import generate

F32 = {"dtype": "f32", "shape": [2, 3]}
NODE = producing("z", MulOperator(), "x", "y", typespec=F32)
PRODUCT = graph(producing("z", MulOperator(), "x", "y", typespec=F32), inputs=[("x", F32), ("y", F32)], outputs=["z"])


def spec(*shape: Any, dtype: str = "f32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def refused(artifact: TensorGraph, **keywords: Any) -> AutodiffError:
    arguments: dict[str, Any] = {"output_value_id": "z", "wrt": ["x"], "seed": "s", **keywords}
    before = repr(artifact)
    with pytest.raises(AutodiffError) as caught:
        generate(artifact, **arguments)
    assert repr(artifact) == before
    return caught.value


# ----------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("artifact", [None, "graph", PRODUCT.to_dict(), PRODUCT.nodes])
def test_the_graph_is_a_graph(artifact: Any) -> None:
    with pytest.raises(TypeError, match="graph must be a TensorGraph"):
        generate(artifact, "z", ["x"], "s")


@pytest.mark.parametrize(
    ("outputs", "seeds"), [("z", ["s", "t"]), (["z", "z"], "s"), (["z", "z"], ["s"]), ([], ["s"]), ("z", [])]
)
def test_every_output_has_one_seed(outputs: Any, seeds: Any) -> None:
    with pytest.raises(TypeError, match="one seed value id per output"):
        generate(PRODUCT, outputs, ["x"], seeds)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("output_value_id", None),
        ("output_value_id", 3),
        ("output_value_id", [3]),
        ("output_value_id", {"z"}),
        ("wrt", None),
        ("wrt", "x"),
        ("wrt", [None]),
        ("wrt", [["x"]]),
        ("seed", None),
        ("seed", b"s"),
        ("seed", [3]),
        ("graph_id", 3),
        ("graph_id", b"id"),
    ],
)
def test_a_bad_argument_is_named(argument: str, value: Any) -> None:
    arguments: dict[str, Any] = {"output_value_id": "z", "wrt": ["x"], "seed": "s", argument: value}
    with pytest.raises(TypeError, match=argument):
        generate(PRODUCT, **arguments)


@pytest.mark.parametrize("typespecs", [[], [None, None], [F32, F32]])
def test_every_seed_has_one_typespec(typespecs: Any) -> None:
    with pytest.raises(TypeError, match="one seed typespec per output"):
        generate(PRODUCT, "z", ["x"], "s", seed_typespec=typespecs)
    with pytest.raises(TypeError, match="one seed typespec per output"):
        generate(PRODUCT, ["z"] * 3, ["x"], ["s", "t", "u"], seed_typespec=F32)


@pytest.mark.parametrize("wrt", [["nope"], ["x", "nope"], ["n_z"], ["s"], [""]])
def test_a_wrt_that_the_graph_does_not_know(wrt: list[str]) -> None:
    error = refused(PRODUCT, wrt=wrt)
    assert error.category == "missing_derivative_behavior"
    assert repr(wrt[-1]) in error.message


def test_an_output_that_the_graph_does_not_know() -> None:
    for wrt in (["x"], ["nope"]):
        error = refused(PRODUCT, output_value_id="nope", wrt=wrt)
        assert error.category == "missing_derivative_behavior"
        assert "'nope' is no value of the graph" in error.message


def test_a_wrt_that_the_output_does_not_depend_on() -> None:
    unread = replace(PRODUCT, inputs=[*PRODUCT.inputs, ("unread", F32)])
    error = refused(unread, wrt=["x", "unread"])
    assert error.category == "missing_derivative_behavior"
    assert "'unread'" in error.message


# --------------------------------------------------------------------------------------------------------------- seeds


@pytest.mark.parametrize(
    ("seed", "output", "category", "part"),
    [
        ({"shape": [9]}, {"shape": [2]}, "missing_dtype_metadata", "seed 's'"),
        ({}, None, "missing_dtype_metadata", "seed 's'"),
        (5, F32, "missing_dtype_metadata", "seed 's'"),
        (spec(9, dtype="i32"), {"shape": [2]}, "missing_dtype_metadata", "output 'z'"),
        (spec(9), None, "missing_dtype_metadata", "output 'z'"),
        ({"dtype": "i32"}, {"dtype": "f32"}, "dtype_not_differentiable", "seed 's'"),
        ({"dtype": "f32"}, {"dtype": "i32"}, "dtype_not_differentiable", "output 'z'"),
        ({"dtype": "f64"}, {"dtype": "f32"}, "missing_shape_metadata", "seed 's'"),
        (spec(-1, dtype="f64"), {"dtype": "f32"}, "missing_shape_metadata", "seed 's'"),
        (spec(2, dtype="f64"), {"dtype": "f32"}, "missing_shape_metadata", "output 'z'"),
        (spec(2, dtype="f64"), F32, "seed_shape_mismatch", "[2]"),
        (spec(2, 4, dtype="f64"), F32, "seed_shape_mismatch", "[2, 4]"),
        (spec("N", "N"), F32, "seed_shape_mismatch", "'N'"),
        (spec("N", 3), spec("M", 3), "seed_shape_mismatch", "'M'"),
        (spec(2, 3, dtype="f64"), F32, "dtype_mismatch", "f64"),
    ],
)
def test_the_order_of_the_seed_checks(seed: Any, output: Any, category: str, part: str) -> None:
    artifact = replace(PRODUCT, nodes=[replace(NODE, output_typespec=output)])
    error = refused(artifact, seed_typespec=seed)
    assert error.category == category
    assert part in error.message


def test_a_seed_is_judged_before_a_cycle_is_looked_for() -> None:
    cyclic = graph(producing("z", AddOperator(), "x", "z", typespec=F32), inputs=[("x", F32)])
    assert refused(cyclic, seed_typespec=spec(9)).category == "seed_shape_mismatch"


def test_a_concrete_seed_binds_a_symbolic_output() -> None:
    artifact = trace(lambda x: x * 2.0, ["N", 3])
    program = generate(artifact, "v1", ["v0"], "s", seed_typespec=spec(4, 3, dtype="f64"))
    assert program.value_typespecs["s"]["shape"] == [4, 3]
    assert program.nodes[0].output_typespec == spec(4, 3, dtype="f64")


def test_a_concrete_seed_must_agree_with_what_the_graph_has_bound() -> None:
    artifact = trace(lambda x, y: (x * 2.0, x + y), ["N"], [4])
    error = refused(artifact, output_value_id="v2", wrt=["v0"], seed_typespec=spec(5, dtype="f64"))
    assert error.category == "seed_shape_mismatch"
    assert "'N' is bound to 4" in error.message


def test_a_seed_without_typespec_has_that_of_its_output() -> None:
    program = generate(PRODUCT, "z", ["x"], "s")
    assert program.value_typespecs["s"] is F32
    assert generate(PRODUCT, ["z"], ["x"], ["s"], seed_typespec=[None]) == program
    assert generate(PRODUCT, "z", ["x"], "s", seed_typespec=[F32]) == program


def test_a_seed_may_be_a_value_of_the_graph_with_the_type_of_the_output() -> None:
    program = generate(PRODUCT, "z", ["x"], "y")
    assert program.nodes[0].input_value_ids == ["y", "y"]
    wider = replace(PRODUCT, inputs=[*PRODUCT.inputs, ("w", spec(4))])
    assert refused(wider, seed="w").category == "seed_shape_mismatch"


def test_one_seed_for_two_outputs_must_fit_both() -> None:
    artifact = trace(lambda x: (x * 2.0, x.sum()), [2])
    error = refused(artifact, output_value_id=["v1", "v2"], wrt=["v0"], seed=["s", "s"])
    assert error.category == "seed_shape_mismatch"


# -------------------------------------------------------------------------------------------------- ids and containers


@pytest.mark.parametrize(
    ("artifact", "parts"),
    [
        (replace(PRODUCT, nodes=[*PRODUCT.nodes, *PRODUCT.nodes]), ["'z'", "two producers"]),
        (replace(PRODUCT, nodes=[NODE, replace(NODE, node_id="b")]), ["'z'", "'n_z'", "'b'"]),
        (
            replace(PRODUCT, nodes=[NODE, replace(NODE, output_value_id="b")]),
            ["duplicate node id 'n_z'"],
        ),
        (replace(PRODUCT, inputs=[*PRODUCT.inputs, ("x", None)]), ["input 'x' is declared twice"]),
        (replace(PRODUCT, inputs=[*PRODUCT.inputs, ("z", F32)]), ["'z' is a declared input", "'n_z' produces it"]),
        (graph(producing("z", AddOperator(), "x", "z")), ["cycle", "'z'"]),
        (graph(producing("z", AddOperator(), "x", "a"), producing("a", AddOperator(), "z", "z")), ["cycle", "'n_a'"]),
        (replace(PRODUCT, nodes=[replace(NODE, node_id=3)]), ["an id in graph must be a str", "3"]),
        (replace(PRODUCT, nodes=[replace(NODE, node_id=[])]), ["an id in graph must be a str", "[]"]),
        (replace(PRODUCT, nodes=[replace(NODE, output_value_id=None)]), ["must be a str", "None"]),
        (graph(producing("z", AddOperator(), "x", {})), ["must be a str", "{}"]),
        (graph(NODE, inputs=[(["x"], F32)]), ["must be a str", "['x']"]),
    ],
)
def test_bad_ids_and_cycles_are_malformed(artifact: Any, parts: list[str]) -> None:
    error = refused(artifact)
    assert error.category == "malformed_derivative_ir"
    for part in parts:
        assert part in error.message


def test_a_cycle_off_the_path_is_malformed_too() -> None:
    artifact = replace(PRODUCT, nodes=[*PRODUCT.nodes, producing("c", AddOperator(), "c", "c")])
    assert refused(artifact).category == "malformed_derivative_ir"


@pytest.mark.parametrize("nodes", [["n0"], [None], [NODE.to_dict()]])
def test_a_list_of_other_things_than_records_is_a_type_error(nodes: Any) -> None:
    with pytest.raises(TypeError, match="nodes of graph must hold TensorNodeRecords"):
        generate(graph(*nodes), "z", ["x"], "s")


@pytest.mark.parametrize("inputs", [["x"], [3], [None], [("x",)], [("x", F32, 1)]])
def test_inputs_that_are_no_pairs_are_a_type_error(inputs: Any) -> None:
    with pytest.raises(TypeError, match="inputs of graph must hold"):
        generate(replace(PRODUCT, inputs=inputs), "z", ["x"], "s")


@pytest.mark.parametrize("outputs", [[None], [[]], [3]])
def test_outputs_that_are_no_ids_are_a_type_error(outputs: Any) -> None:
    with pytest.raises(TypeError, match="outputs of graph"):
        generate(replace(PRODUCT, outputs=outputs), "z", ["x"], "s")


@pytest.mark.parametrize("hostile", ["", " ", "é", "\ud800", "\n", "d0", "dn0", "v" * 1_000_000])
def test_any_str_is_an_id(hostile: str) -> None:
    artifact = graph(
        producing(hostile, MulOperator(), "x", "y", typespec=F32), inputs=[("x", F32), ("y", F32)], outputs=[hostile]
    )
    program = generate(artifact, hostile, ["x"], "s")
    assert program.nodes[0].input_value_ids == ["s", "y"]
    assert program.gradients["x"] not in (hostile, "x", "y", "s")
    renamed = graph(producing("z", MulOperator(), hostile, "y", typespec=F32), inputs=[(hostile, F32), ("y", F32)])
    assert list(generate(renamed, "z", [hostile], "s").gradients) == [hostile]


def test_shared_records_and_dangling_values_are_served() -> None:
    loose = graph(producing("z", MulOperator(), "x", "nowhere", typespec=F32), inputs=[("x", F32)], outputs=["z", "z"])
    assert generate(loose, "z", ["x"], "s").nodes[0].input_value_ids == ["s", "nowhere"]


# ------------------------------------------------------------------------------ records that contradict their operator

UNARY = {
    "x": spec(2, 3),
    "y": spec(2, 3),
    "v": spec(3),
    "w": spec(2, 4),
    "n": spec("N", 3),
    "i": spec(2, 3, dtype="i32"),
}
UNARY["d"] = spec(2, 3, dtype="f64")


@pytest.mark.parametrize(
    ("operator", "operands", "op_params", "declared", "category"),
    [
        (MulOperator(), ["x"], {}, F32, "malformed_derivative_ir"),
        (MulOperator(), ["x", "y", "y"], {}, F32, "malformed_derivative_ir"),
        (MulOperator(), ["x", "y"], {"right_literal": 2.0}, F32, "malformed_derivative_ir"),
        (AddOperator(), ["x"], {"right_literal": 2.0}, F32, "malformed_derivative_ir"),
        (MatmulOperator(), ["x"], {}, F32, "malformed_derivative_ir"),
        (SumOperator(), ["x", "y"], {"axes": [0], "keepdims": False}, F32, "malformed_derivative_ir"),
        (MulOperator(), ["x", "y"], {"more": 1}, F32, "malformed_derivative_ir"),
        (DivOperator(), ["x"], {"right_literal": "2"}, F32, "malformed_derivative_ir"),
        (DivOperator(), ["x"], {"right_literal": 10**400}, F32, "malformed_derivative_ir"),
        (SubOperator(), ["x"], {"right_literal": True}, F32, "malformed_derivative_ir"),
        (AddOperator(), ["x", "d"], {}, F32, "dtype_mismatch"),
        (AddOperator(), ["x", "y"], {}, spec(2, 3, dtype="f64"), "dtype_mismatch"),
        (AddOperator(), ["x", "i"], {}, F32, "dtype_mismatch"),
        (AddOperator(), ["x", "w"], {}, F32, "broadcast_shape_mismatch"),
        (AddOperator(), ["x", "y"], {}, spec(3, 2), "broadcast_shape_mismatch"),
        (MatmulOperator(), ["x", "v"], {}, spec(2), "matmul_shape_mismatch"),
        (MatmulOperator(), ["x", "w"], {}, spec(2, 4), "matmul_shape_mismatch"),
        (MeanOperator(), ["x"], {"keepdims": False}, spec(3), "reduction_shape_mismatch"),
        (MeanOperator(), ["x"], {"axes": None, "keepdims": False}, spec(), "reduction_shape_mismatch"),
        (MeanOperator(), ["x"], {"axes": 0, "keepdims": False}, spec(3), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [0, 0], "keepdims": False}, spec(3), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [2], "keepdims": False}, spec(3), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [True], "keepdims": False}, spec(2), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [0.0], "keepdims": False}, spec(3), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [0]}, spec(3), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [0], "keepdims": 0}, spec(3), "reduction_shape_mismatch"),
        (SumOperator(), ["x"], {"axes": [0], "keepdims": False}, spec(2), "reduction_shape_mismatch"),
        (MeanOperator(), ["n"], {"axes": [0], "keepdims": False}, spec(3), "unresolved_symbolic_shape"),
        (TransposeOperator(), ["x"], {}, spec(3, 2), "invalid_permutation"),
        (TransposeOperator(), ["x"], {"perm": None}, spec(3, 2), "invalid_permutation"),
        (TransposeOperator(), ["x"], {"perm": "10"}, spec(3, 2), "invalid_permutation"),
        (TransposeOperator(), ["x"], {"perm": [-1, 0]}, spec(3, 2), "invalid_permutation"),
        (TransposeOperator(), ["x"], {"perm": [True, False]}, spec(3, 2), "invalid_permutation"),
        (ReshapeOperator(), ["x"], {"shape": [7]}, spec(7), "shape_mismatch"),
        (ReshapeOperator(), ["x"], {"shape": [-1]}, spec(6), "missing_shape_metadata"),
        (ReshapeOperator(), ["x"], {}, spec(6), "missing_shape_metadata"),
        (BroadcastOperator(), ["x"], {"shape": [2, 4]}, spec(2, 4), "broadcast_shape_mismatch"),
        (BroadcastReduceOperator(), ["x"], {"target_shape": [2]}, spec(2), "broadcast_shape_mismatch"),
        (MaxOperator(), ["x"], {"axes": [0], "keepdims": False}, spec(3), "unsupported_reduction"),
        (MinOperator(), ["x"], {"axes": [0], "keepdims": False}, spec(3), "unsupported_reduction"),
        (ProductOperator(), ["x"], {"axes": [0], "keepdims": False}, spec(3), "unsupported_reduction"),
    ],
)
def test_a_record_is_held_to_its_operator_where_it_is_differentiated(
    operator: Any, operands: list[str], op_params: dict[str, Any], declared: Any, category: str
) -> None:
    record = producing("z", operator, *operands, typespec=declared, **op_params)
    artifact = graph(record, inputs=UNARY.items(), outputs=["z"])
    error = refused(artifact, wrt=[operands[0]])
    assert error.category == category
    assert "'n_z'" in error.message
    assert operator.name in error.message or operator.route_name in error.message
    away = graph(record, producing("out", MulOperator(), "y", "y", typespec=F32), inputs=UNARY.items())
    assert generate(away, "out", ["y"], "s").nodes, "off the path it is not judged"


@pytest.mark.parametrize(
    ("operator", "operands", "op_params", "text"),
    [
        (MulOperator(), ["x"], {}, "mul VJP requires exactly two inputs"),
        (AddOperator(), ["x"], {}, "add VJP requires exactly two inputs"),
        (MatmulOperator(), ["x", "x", "x"], {}, "matmul VJP requires exactly two inputs"),
        (DivOperator(), ["x", "x"], {"right_literal": 2}, "div VJP requires exactly one input"),
        (MeanOperator(), ["x", "x"], {"axes": [0], "keepdims": True}, "mean VJP requires exactly one input"),
        (TransposeOperator(), ["x", "x"], {"perm": [1, 0]}, "transpose VJP requires exactly one input"),
    ],
)
def test_a_wrong_operand_count_says_what_the_vjp_requires(
    operator: Any, operands: list[str], op_params: dict[str, Any], text: str
) -> None:
    untyped = graph(producing("z", operator, *operands, **op_params))
    error = refused(untyped)
    assert error.category == "malformed_derivative_ir"
    assert text in error.message
    assert f"has {len(operands)}" in error.message


@pytest.mark.parametrize(
    ("operator", "op_params"),
    [
        (MeanOperator(), {"axes": [0], "keepdims": False}),
        (SumOperator(), {"axes": [0], "keepdims": False}),
        (ReshapeOperator(), {"shape": [6]}),
        (BroadcastOperator(), {"shape": [6]}),
        (TransposeOperator(), {"perm": [1, 0]}),
    ],
)
def test_a_vjp_that_needs_a_shape_says_whose(operator: Any, op_params: dict[str, Any]) -> None:
    error = refused(graph(producing("z", operator, "x", **op_params)))
    assert error.category == "missing_shape_metadata"
    assert "'x'" in error.message


def test_a_mean_whose_count_no_float_holds_is_unsupported() -> None:
    huge = spec(10**200, 10**200)
    artifact = graph(
        producing("z", MeanOperator(), "x", typespec=spec(), axes=[0, 1], keepdims=False), inputs=[("x", huge)]
    )
    error = refused(artifact)
    assert error.category == "unsupported_reduction"
    assert str(10**400) in error.message


def test_dims_of_any_size_and_none_are_differentiated() -> None:
    shapes: list[list[int | str]] = [[2**80, 0], [10**150, 10**150]]
    for shape in shapes:
        artifact = trace(lambda x: (x * x).mean(), shape)
        assert generate(artifact, "v2", ["v0"], "s").value_typespecs["d1"]["shape"] == shape
