"""What cannot be compared, and what is no argument: each with its category and its reason."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from by_hand import producing
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.operators import AddOperator, FillOperator, MulOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.training import sgd_update, trace_parameter_update
from tinychain.autodiff.verify import POINTS, verify_equivalent
from verifying import Function, applied, edited, traced, verified

GRAPH = traced(lambda x, y: x * y, [3], [3])
SQUARE = traced(lambda x: (x * x).sum(), [3])
PROGRAM = generate(SQUARE, SQUARE.outputs[0], ["v0"], "seed")


def failure(before: Any, after: Any, **options: Any) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        verify_equivalent(before, after, **options)
    return caught.value


def mismatch(before: Any, after: Any, **options: Any) -> str:
    error = failure(before, after, **options)
    assert error.category == "invalid_verification"
    return error.message


# -------------------------------------------------------------------------------------------------------- signatures


def test_inputs_are_matched_by_id_in_any_order() -> None:
    assert verify_equivalent(GRAPH, replace(GRAPH, inputs=GRAPH.inputs[::-1])).equivalent


def test_outputs_are_matched_by_position() -> None:
    both = traced(lambda x, y: (x * y, x + y), [3], [3])
    assert not verify_equivalent(both, replace(both, outputs=both.outputs[::-1])).equivalent


def test_an_output_may_have_another_id() -> None:
    renamed = replace(GRAPH, nodes=[replace(GRAPH.nodes[0], output_value_id="product")], outputs=["product"])
    assert verify_equivalent(GRAPH, renamed).equivalent


def test_an_input_of_only_one() -> None:
    fewer = replace(GRAPH, inputs=GRAPH.inputs[:1], nodes=[replace(GRAPH.nodes[0], input_value_ids=["v0", "v0"])])
    assert mismatch(GRAPH, fewer) == "only before declares the input 'v1'; inputs are matched by id"
    assert mismatch(fewer, GRAPH) == "only after declares the input 'v1'; inputs are matched by id"


def test_another_number_of_outputs() -> None:
    assert mismatch(GRAPH, replace(GRAPH, outputs=["v2", "v2"])) == "before has 1 outputs, after has 2"


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ([3], "f32", "input 'v0' is f64[3] in before and f32[3] in after"),
        ([4], "f64", "input 'v0' is f64[3] in before and f64[4] in after"),
    ],
)
def test_inputs_of_another_type(shape: list[int | str], dtype: str, reason: str) -> None:
    assert mismatch(GRAPH, traced(lambda x, y: x * y, shape, shape, dtype=dtype)) == reason


def test_outputs_of_another_shape() -> None:
    other = traced(lambda x, y: (x * y).reshape([3, 1]), [3], [3])
    assert mismatch(GRAPH, other) == "output 0, 'v2' and 'v3', is f64[3] in before and f64[3, 1] in after"


def test_symbols_with_another_name_are_another_type() -> None:
    assert "v0" in mismatch(traced(lambda x: x, ["N", "M"]), traced(lambda x: x, ["M", "N"]))


def test_a_symbol_that_both_bind_differently() -> None:
    def ones(size: int) -> Any:
        return applied(FillOperator, fill=1.0, dtype="f64", shape=[size])

    before, after = [traced(lambda x, size=size: (x + ones(size)).sum(), ["N"]) for size in (3, 4)]
    error = failure(before, after)
    assert error.category == "symbolic_shape_mismatch"
    assert error.message == "symbol 'N' is bound to 3 and now meets 4"


def test_a_given_size_that_the_artifacts_contradict() -> None:
    graph = traced(lambda x, y: x + y, ["N"], [3])
    assert verify_equivalent(graph, graph, shape_bindings={"N": 3}).equivalent
    error = failure(graph, graph, shape_bindings={"N": 4})
    assert error.category == "symbolic_shape_mismatch"
    assert "'N'" in error.message


# --------------------------------------------------------------------------------------------------- other artifacts


def test_a_program_with_free_captures_and_with_its_forward_graph() -> None:
    assert verify_equivalent(PROGRAM, PROGRAM).equivalent
    assert verify_equivalent(PROGRAM, PROGRAM, forward_graph=SQUARE).equivalent


def test_what_only_the_forward_graph_shows() -> None:
    """The gradient of a root reads the root: that its square is the operand is known only with the forward graph."""
    graph = traced(lambda x: x * x * (x * x), [])
    program = generate(graph, graph.outputs[0], ["v0"], "seed")
    square = graph.nodes[0].output_value_id
    nodes = [producing("x4", MulOperator(), "v0", square, typespec={"dtype": "f64", "shape": []})]
    nodes += [producing("g", MulOperator(), "x4", "seed", typespec={"dtype": "f64", "shape": []})]
    nodes += [producing("h", MulOperator(), "g", right_literal=4.0, typespec={"dtype": "f64", "shape": []})]
    rewritten = replace(program, nodes=nodes, gradients={"v0": "h"}, output_gradients=["h"])
    assert verify_equivalent(program, rewritten, forward_graph=graph).equivalent


def test_a_program_that_reads_what_the_other_does_not_know() -> None:
    stranger = producing("g", AddOperator(), "x", "x", typespec={"dtype": "f64", "shape": [3]})
    other = replace(
        PROGRAM,
        nodes=[stranger],
        gradients={"v0": "g"},
        output_gradients=["g"],
        value_typespecs={"x": {"dtype": "f64", "shape": [3]}},
    )
    assert mismatch(PROGRAM, other) == "after reads 'x', which before does not know"


def test_gradients_of_other_values() -> None:
    other = replace(PROGRAM, gradients={"w": PROGRAM.gradients["v0"]})
    assert mismatch(PROGRAM, other) == "before has the gradients of ['v0'], after of ['w']"


def test_a_gradient_that_only_one_has() -> None:
    more = replace(PROGRAM, output_gradients=[*PROGRAM.output_gradients, *PROGRAM.output_gradients])
    less = replace(PROGRAM, output_gradients=[*PROGRAM.output_gradients, None])
    assert verify_equivalent(less, less).equivalent
    assert mismatch(more, less) == "output gradient 1 is None in only one"


def test_an_update_graph() -> None:
    spec = {"dtype": "f64", "shape": [3]}
    update = trace_parameter_update(
        sgd_update, parameter=spec, gradient=spec, optimizer_inputs={"learning_rate": {"dtype": "f64", "shape": []}}
    )
    assert verify_equivalent(update.graph, update.graph).equivalent


# ----------------------------------------------------------------------------------------------- what has no values


def test_a_divisor_that_is_zero_everywhere() -> None:
    error = failure(*[traced(lambda x: x / (x - x), [3])] * 2)
    assert error.category == "invalid_verification"
    assert "node 'n1' (DivOperator) divides by zero at each of 8 random points" in error.message


def test_a_degree_beyond_any_field() -> None:
    def tower(x: Any) -> Any:
        for _ in range(2000):
            x = x * x
        return x

    message = mismatch(*[traced(tower, [])] * 2)
    assert "the degree or the coefficients of the result of node 'n10" in message
    assert "verify a part" in message


@pytest.mark.parametrize(
    ("damage", "category"),
    [
        (lambda graph: edited(graph, MulOperator, output_typespec=None), "missing_dtype_metadata"),
        (lambda graph: edited(graph, MulOperator, input_value_ids=["v0"]), "malformed_derivative_ir"),
        (lambda graph: edited(graph, MulOperator, input_value_ids=["v0", "nowhere"]), "missing_dependency"),
        (lambda graph: edited(graph, MulOperator, input_value_ids=["v0", "v2"]), "malformed_derivative_ir"),
        (
            lambda graph: edited(graph, MulOperator, output_typespec={"dtype": "f64", "shape": [4]}),
            "broadcast_shape_mismatch",
        ),
        (lambda graph: replace(graph, nodes=[*graph.nodes, *graph.nodes]), "ambiguous_producer"),
        (lambda graph: replace(graph, outputs=[]), "invalid_selected_output"),
    ],
)
def test_a_malformed_artifact_is_named(damage: Function, category: str) -> None:
    error = failure(GRAPH, damage(GRAPH))
    assert error.category == category
    assert error.message.startswith("after: ")
    assert failure(damage(GRAPH), GRAPH).message.startswith("before: ")


# ---------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"trials": 0}, ValueError, "trials must be a positive int, got 0"),
        ({"trials": True}, ValueError, "trials must be a positive int, got True"),
        ({"seed": -1}, ValueError, "seed must be a non-negative int, got -1"),
        ({"seed": 0.5}, ValueError, "seed must be a non-negative int, got 0.5"),
        ({"points": ["prime"]}, ValueError, f"points must be a list of some of {', '.join(POINTS)}, got"),
        ({"points": "ones"}, ValueError, "points must be a list"),
        ({"max_ulps": -1}, ValueError, "max_ulps must be a non-negative number or None, got -1"),
        ({"max_ulps": float("nan")}, ValueError, "max_ulps must be a non-negative number or None, got nan"),
        ({"max_ulps": 1.0, "points": ()}, ValueError, "max_ulps limits the errors at points, of which there are none"),
        ({"regions": [1]}, TypeError, "regions must be a list of the regions"),
        ({"shape_bindings": {"N": -1}}, ValueError, "shape_bindings binds 'N' to -1"),
        ({"forward_graph": SQUARE}, TypeError, "forward_graph goes with two DerivativePrograms"),
    ],
)
def test_a_bad_argument(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        verify_equivalent(GRAPH, GRAPH, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("pair", [(GRAPH, PROGRAM), (PROGRAM, GRAPH), (None, GRAPH), (GRAPH, "graph")])
def test_artifacts_of_two_kinds(pair: Any) -> None:
    with pytest.raises(TypeError, match="expected two TensorGraphs or two DerivativePrograms, got"):
        verify_equivalent(*pair)


def test_no_artifacts() -> None:
    nothing: Any = object()
    with pytest.raises(TypeError, match="got object and object; steps go to verify_step"):
        verify_equivalent(nothing, nothing)


# ------------------------------------------------------------------------------------------------------------- record


def test_a_record_is_plain_data_and_readable() -> None:
    result = verified(lambda x: x.exp() * x, lambda x: x * x.exp(), ["N"], points=POINTS)
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()
    text = str(result)
    assert text.startswith(
        "equivalent (1 output)\nexact at 1 random point modulo a prime of 61 bits: degree at most 2,"
    )
    assert "sizes N = 2; as random functions: ExpOperator\nnumeric at zeros, ones," in text
    assert text.endswith("\n  v2: at most 0 ulp")


def test_a_result_is_true_where_the_artifacts_are_equivalent() -> None:
    assert verify_equivalent(GRAPH, GRAPH)
    assert not verify_equivalent(GRAPH, traced(lambda x, y: x + y, [3], [3]))


def test_artifacts_are_left_as_they_are() -> None:
    before = traced(lambda x, y: x * y * 0.5, ["N", "M"], ["N", "M"])
    copy = TensorGraph(list(before.nodes), list(before.inputs), list(before.outputs))
    data = json.dumps(before.to_dict())
    verify_equivalent(before, before)
    assert before == copy
    assert json.dumps(before.to_dict()) == data


def test_without_the_library_the_extra_is_named() -> None:
    script = "import sys; sys.modules['flint'] = None; import tinychain.autodiff; import tinychain.autodiff.verify"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (
        "ImportError: tinychain.autodiff.verify needs python-flint: pip install 'tinychain-autodiff[verify]'"
        in result.stderr
    )
