"""What becomes of each operation on a target, told as data and as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from by_hand import graph, producing
from strategies import OwnOperator, traced_graphs
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion.legalize import legalize_detailed
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.expansion.targets import ADD_MUL_MATMUL, ADD_MUL_MATMUL_RANK2, READY_TARGETS, REFERENCE
from tinychain.autodiff.graph import Decline, TensorGraph
from tinychain.autodiff.inspection import ExplainedOperation, Explanation, Obstacle, explain, summarize
from tinychain.autodiff.operators import AddOperator, ExpOperator, MatmulOperator, MulOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import SourceLine
from verifying import traced

LOSS = traced(lambda x, y: ((x @ y) * (x @ y)).mean(), [4, 3], [3, 3])


def verdicts(explanation: Explanation) -> dict[str, str]:
    return {operation.node_id: operation.verdict for operation in explanation.operations}


def one(explanation: Explanation, node_id: str) -> ExplainedOperation:
    (found,) = [operation for operation in explanation.operations if operation.node_id == node_id]
    return found


# ---------------------------------------------------------------------------------------------------------- operations


def test_a_program_that_fits_stays_as_it_is() -> None:
    explanation = explain(LOSS, REFERENCE)
    assert set(verdicts(explanation).values()) == {"legal"}
    assert explanation.after == explanation.before
    assert explanation.before.figures == summarize(LOSS).total.source


def test_a_rewritten_operation_tells_rules_and_operators() -> None:
    mean = one(explain(LOSS, ADD_MUL_MATMUL), "n3")
    assert (mean.operator, mean.verdict, mean.obstacles) == ("mean", "rewritten", ())
    assert mean.rules == ("MeanOperator.as_sum", "SumOperator.as_matmuls")
    assert mean.emitted is not None
    assert set(mean.emitted) <= {"add", "mul", "matmul", "fill", "reshape"}


def test_a_program_that_is_rewritten_has_figures_before_and_after() -> None:
    explanation = explain(LOSS, ADD_MUL_MATMUL)
    assert explanation.before.figures.operators == {"matmul": 2, "mean": 1, "mul": 1}
    assert explanation.after is not None
    assert "mean" not in explanation.after.figures.operators
    assert (explanation.before.figures.constants.bytes, explanation.before.depth.levels) == (0, 3)
    assert explanation.after.figures.constants.bytes == 12 * 8
    assert explanation.after.depth.levels == 3


def test_every_obstacle_of_every_impossible_operation_is_told() -> None:
    unfit = traced(lambda x, y: x.exp() / y + x.mean() + y.maximum(x), [3], [3])
    explanation = explain(unfit, ADD_MUL_MATMUL)
    assert [operation.operator for operation in explanation.with_verdict("impossible")] == ["exp", "div", "maximum"]
    assert one(explanation, "n0").obstacles == (
        Obstacle(None, "add-mul-matmul has no ExpOperator"),
        Obstacle("ExpOperator", "an exponential is no polynomial; no exact form exists"),
    )
    division = one(explanation, "n1").obstacles
    assert len([obstacle.rule for obstacle in division]) > 2
    assert ("DivOperator.as_product", ExpOperator.inexact) not in [(item.rule, item.reason) for item in division]
    assert explanation.after is None
    assert [operation.operator for operation in explanation.with_verdict("rewritten")] == ["mean", "add"]


def test_a_rule_of_the_callers_own_is_an_obstacle_too() -> None:
    def squares(emit: Any, node: Any) -> Decline:
        return Decline("not today")

    explanation = explain(traced(lambda x: x.exp(), [3]), ADD_MUL_MATMUL, rules={ExpOperator: [squares]})
    assert one(explanation, "n0").obstacles[1].reason == "not today"


def test_a_transpose_tells_what_pushing_it_to_the_inputs_stands_against() -> None:
    unfit = traced(lambda x: x.exp().T, [3, 2])
    target = Target("t", {ExpOperator: Limits(), MulOperator: Limits()})
    obstacles = one(explain(unfit, target), "n1").obstacles
    assert obstacles[-1].rule == "transpose by duals"
    assert "transpose by duals" not in [item.rule for item in one(explain(unfit, target, duals=False), "n1").obstacles]


def test_duals_are_told() -> None:
    program = generate(LOSS, LOSS.outputs[0], ["v1"], "seed")
    explanation = explain(program, ADD_MUL_MATMUL, forward_graph=LOSS)
    assert explanation.duals == ("v0.mT",)
    transposes = [operation for operation in explanation.operations if operation.operator == "transpose"]
    assert {(operation.verdict, operation.rules) for operation in transposes} == {
        ("rewritten", ("transpose by duals",))
    }
    refused = explain(program, ADD_MUL_MATMUL, duals=False).with_verdict("impossible")
    assert [operation.node_id for operation in refused] == [operation.node_id for operation in transposes]


def test_what_is_secret_is_said_of_the_inputs() -> None:
    program = generate(LOSS, LOSS.outputs[0], ["v1"], "seed")
    public = explain(program, ADD_MUL_MATMUL, forward_graph=LOSS, secret=[])
    private = explain(program, ADD_MUL_MATMUL, forward_graph=LOSS, secret=["v0", "v1"])
    assert public.after is not None
    assert private.after is not None
    assert (public.before.depth.levels, public.after.depth.levels) == (0, 0)
    assert private.before.depth.levels == private.after.depth.levels != 0


def test_only_what_the_outputs_need_is_judged() -> None:
    unneeded = [producing("z", AddOperator(), "x", "x"), producing("e", ExpOperator(), "x")]
    spec = {"dtype": "f64", "shape": [2]}
    explanation = explain(graph(*unneeded, inputs=[("x", spec)], outputs=["x"]), ADD_MUL_MATMUL)
    assert explanation.operations == ()
    assert explanation.after == explanation.before


def test_an_untyped_value_is_an_obstacle() -> None:
    untyped = graph(producing("z", AddOperator(), "x", "x"), inputs=[("x", None)], outputs=["z"])
    (obstacle,) = one(explain(untyped, ADD_MUL_MATMUL), "n_z").obstacles
    assert obstacle == Obstacle(None, "value 'x' has no known dtype and shape; give it a typespec")


def test_an_operator_of_the_users_own() -> None:
    spec = {"dtype": "f64", "shape": [2]}
    own = graph(producing("z", OwnOperator(), "x", typespec=spec), inputs=[("x", spec)], outputs=["z"])
    explanation = explain(own, Target("mine", {OwnOperator: Limits()}))
    assert verdicts(explanation) == {"n_z": "legal"}
    assert explanation.before.depth.levels is None


def test_symbolic_dims() -> None:
    symbolic = traced(lambda x: (x * x).sum(), ["N", 3])
    explanation = explain(symbolic, ADD_MUL_MATMUL)
    assert explanation.before.figures.flops is None
    assert explanation.before.depth.levels == 1
    assert verdicts(explanation)["n1"] == "impossible"
    assert explain(symbolic, REFERENCE, shape_bindings={"N": 5}).before.figures.flops == 30


@given(traced_graphs(max_operations=6), st.sampled_from(sorted(READY_TARGETS)))
def test_it_says_what_legalize_does(artifact: TensorGraph, name: str) -> None:
    target = READY_TARGETS[name]
    explanation = explain(artifact, target)
    impossible = [operation.node_id for operation in explanation.with_verdict("impossible")]
    assert bool(impossible) == (explanation.after is None)
    if explanation.after is None:
        with pytest.raises(AutodiffError) as caught:
            legalize_detailed(artifact, target)
        assert caught.value.category == "not_legalizable"
        assert [f"{node_id!r}" in caught.value.message for node_id in impossible] == [True] * len(impossible)
        return
    legal = legalize_detailed(artifact, target)
    assert explanation.after.figures == summarize(legal.artifact).total.source
    rewritten = [(operation.node_id, operation.rules) for operation in explanation.with_verdict("rewritten")]
    assert rewritten == [(region.source_node_ids[0], region.rules) for region in legal.regions]


@given(traced_graphs(max_operations=6), st.sampled_from([ADD_MUL_MATMUL, ADD_MUL_MATMUL_RANK2]), st.data())
def test_legalizing_costs_no_depth_but_for_constants(
    artifact: TensorGraph, target: Target, data: st.DataObject
) -> None:
    inputs = [value_id for value_id, _ in artifact.inputs]
    secret = data.draw(st.sets(st.sampled_from(inputs))) if inputs else set()
    explanation = explain(artifact, target, secret=secret)
    if explanation.after is not None and explanation.before.depth.levels is not None:
        assert explanation.after.depth.levels is not None
        constants = explanation.after.figures.operators.get("constant", 0)
        assert explanation.after.depth.levels <= explanation.before.depth.levels + constants


# ------------------------------------------------------------------------------------------------------- data and text


@pytest.mark.parametrize("target", [REFERENCE, ADD_MUL_MATMUL, Target("nothing")])
def test_the_data_is_json(target: Target) -> None:
    explanation = explain(LOSS, target, lines={"n0": SourceLine("model.py", 3)})
    data = json.loads(json.dumps(explanation.to_dict()))
    assert data == explanation.to_dict()
    assert data["operations"][0]["line"] == ["model.py", 3]
    assert [operation["verdict"] for operation in data["operations"]] == list(verdicts(explanation).values())


def test_the_text_of_a_program_that_is_rewritten() -> None:
    text = str(explain(LOSS, ADD_MUL_MATMUL, lines={"n3": ("model.py", 7)}))  # type: ignore[dict-item]
    assert text.splitlines()[0] == "TensorGraph for add-mul-matmul: 4 operations: 3 legal, 1 rewritten"
    assert "MeanOperator.as_sum, SumOperator.as_matmuls" in text
    assert "model.py:7" in text
    assert "before  2 matmul, 1 mean, 1 mul" in text
    assert "depth before: n0 -> n2 -> n3" in text


def test_the_text_of_an_impossible_program() -> None:
    text = str(explain(traced(lambda x: x.exp(), [3]), ADD_MUL_MATMUL, lines={"n0": SourceLine("a b\n.py", 7)}))
    assert 'n0 (exp) at "a b\\n.py:7" is impossible:\n  add-mul-matmul has no ExpOperator\n' in text
    assert "unknown before: node 'n0' (ExpOperator): an exponential is no polynomial; no exact form exists" in text
    assert "after" not in text


def test_the_text_of_nothing() -> None:
    assert str(explain(graph(), REFERENCE)).startswith("TensorGraph for reference: 0 operations\n\n")


def test_the_text_tells_duals() -> None:
    program = generate(LOSS, LOSS.outputs[0], ["v1"], "seed")
    assert "bound transposed too: v0.mT" in str(explain(program, ADD_MUL_MATMUL, forward_graph=LOSS))


# ------------------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"artifact": 3}, TypeError, "artifact must be a TensorGraph or a DerivativeProgram, got 3"),
        ({"target": "reference"}, TypeError, "target must be a Target, got 'reference'"),
        ({"duals": 1}, TypeError, "duals must be a bool, got 1"),
        ({"lines": ["n0"]}, TypeError, r"lines must map node ids to \(file, line\) pairs, got \['n0'\]"),
        ({"lines": {"n0": "model.py"}}, TypeError, r"lines maps 'n0' to 'model.py'; expected a \(file, line\) pair"),
        ({"lines": {"n0": ("model.py", None)}}, TypeError, "lines maps 'n0' to"),
        ({"secret": ["x"]}, ValueError, "secret has 'x', which nobody binds"),
        ({"shape_bindings": {"N": -1}}, ValueError, "shape_bindings binds 'N' to -1"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"artifact": LOSS, "target": REFERENCE, **changes}
    with pytest.raises(error, match=message):
        explain(arguments.pop("artifact"), arguments.pop("target"), **arguments)


def test_an_unknown_verdict() -> None:
    with pytest.raises(ValueError, match="unknown verdict 'fine'; expected one of legal, rewritten, impossible"):
        explain(LOSS, REFERENCE).with_verdict("fine")


def _raising(emit: Any, node: Any) -> None:
    raise KeyError("x")


def _looping(emit: Any, node: Any) -> None:
    emit(MatmulOperator, *node.input_value_ids, into=node.output_value_id)


@pytest.mark.parametrize("rule", [_raising, _looping, lambda emit, node: 3])
def test_a_rule_that_breaks_its_promises(rule: Callable[..., Any]) -> None:
    with pytest.raises(AutodiffError) as caught:
        explain(LOSS, Target("nothing"), rules={MatmulOperator: [rule]})
    assert caught.value.category == "expansion_contract_violation"


# ---------------------------------------------------------------------------------------------------------------- Rich


def printed(explanation: Explanation, **options: Any) -> str:
    """What Rich writes of it, to a terminal that is wide enough."""
    console = Console(file=StringIO(), width=400, **options)
    console.print(explanation)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_rich_prints_the_same_text() -> None:
    target = Target("[red] :smile: 12", ADD_MUL_MATMUL.operators)
    for function in (lambda x: x.exp().sum(), lambda x: x * x.sum(), lambda x: x):
        explanation = explain(traced(function, ["N", 3]), target)
        assert printed(explanation).splitlines() == str(explanation).splitlines()


def test_rich_colours_each_operation_by_its_verdict() -> None:
    explanation = explain(traced(lambda x: (x * x).mean() + x.exp().sum(), [3]), ADD_MUL_MATMUL)
    lines = printed(explanation, force_terminal=True, color_system="standard").splitlines()
    colours = {"legal": "\x1b[32m", "rewritten": "\x1b[33m", "impossible": "\x1b[1;31m"}
    rows = lines[4 : 4 + len(explanation.operations)]
    for operation, row in zip(explanation.operations, rows, strict=True):
        assert row.startswith(f"{colours[operation.verdict]}{operation.node_id} ")
    assert len([line for line in lines if "ExpOperator" in line and line.startswith(colours["impossible"])]) == 2
