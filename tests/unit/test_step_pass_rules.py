"""What an expansion pass inside a compile must keep: each rule broken by a planted pass, which the message names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planting import KINDS, Pass, adding, artifacts, changing, dropping, extra, planted, setting, unchanged, violation
from steps import failure, mse, plain, several, spec
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_derivative_program, expand_mean_graph
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.operators import DivOperator, MulOperator
from tinychain.autodiff.tracing import Tensor
from tinychain.autodiff.training import Momentum

# ------------------------------------------------------------------------------------------------------------------ ids


@pytest.mark.parametrize(("kind", "node_id"), list(zip(KINDS, ["n0", "dn0", "n0"], strict=True)))
def test_no_node_id_stands_twice(kind: str, node_id: str) -> None:
    assert f"returned the node id {node_id!r} twice" in violation(kind, adding(extra("new", "v0", node_id=node_id)))


@pytest.mark.parametrize(("kind", "value_id"), list(zip(KINDS, ["v3", "d0", "v3"], strict=True)))
def test_no_value_id_is_produced_twice(kind: str, value_id: str) -> None:
    assert f"returned the value id {value_id!r} twice" in violation(kind, adding(extra(value_id, "v0")))


@pytest.mark.parametrize("kind", ["forward", "update"])
def test_no_value_id_is_declared_twice_or_declared_and_produced(kind: str) -> None:
    message = violation(kind, lambda graph: replace(graph, inputs=[*graph.inputs, ("v0", None)]))
    assert "returned the value id 'v0' twice" in message
    assert "returned the value id 'v0' twice" in violation(kind, adding(extra("v0", "v1")))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes",
    [
        {"operator": DivOperator()},
        {"op_params": {"right_literal": 2.0}},
        {"input_value_ids": ["v0", "v0"]},
        {"output_value_id": "renamed"},
    ],
)
def test_a_node_that_keeps_its_id_keeps_its_meaning(kind: str, changes: dict[str, Any]) -> None:
    ((name, value),) = changes.items()
    node = artifacts(plain())[kind].nodes[0]
    message = violation(kind, changing(0, **changes))
    assert message.startswith(f"changed {name} of node {node.node_id!r} from {getattr(node, name)!r} to {value!r}")


def test_a_node_may_get_another_typespec() -> None:
    step = plain(forward_expansions=[changing(0, output_typespec={**spec(4, 1), "layout": "rows"})])
    assert step.lowered_forward_graph.nodes[0].output_typespec == {"dtype": "f64", "shape": [4, 1], "layout": "rows"}


@pytest.mark.parametrize("kind", ["forward", "update"])
def test_an_input_does_not_become_a_result(kind: str) -> None:
    def steal(graph: TensorGraph) -> TensorGraph:
        return replace(graph, inputs=graph.inputs[1:], nodes=[extra("v0", "v1", "v1"), *graph.nodes])

    assert "produces 'v0', which was a declared input" in violation(kind, steal)


@pytest.mark.parametrize("kind", ["forward", "update"])
def test_a_result_does_not_become_an_input(kind: str) -> None:
    def declare(graph: TensorGraph) -> TensorGraph:
        nodes = [node for node in graph.nodes if node.output_value_id != "v3"]
        return replace(graph, nodes=nodes, inputs=[*graph.inputs, ("v3", None)])

    assert "declares 'v3' as an input, which a node produced" in violation(kind, declare)


# --------------------------------------------------------------------------------------------------------------- graphs


@pytest.mark.parametrize("kind", ["forward", "update"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_every_input_stays_declared(kind: str, position: int) -> None:
    def forget(graph: TensorGraph) -> TensorGraph:
        return replace(graph, inputs=[entry for index, entry in enumerate(graph.inputs) if index != position])

    assert f"no longer declares the input 'v{position}'" in violation(kind, forget)


@pytest.mark.parametrize("lost", ["v6", "v4"])
def test_a_forward_pass_keeps_the_loss_and_the_captures(lost: str) -> None:
    assert f"no longer declares or produces {lost!r}" in violation("forward", dropping(lost))


def test_an_update_pass_keeps_the_new_parameter() -> None:
    assert "no longer declares or produces 'v4'" in violation("update", dropping("v4"))


def test_an_update_pass_keeps_every_new_state() -> None:
    state = plain(optimizer=Momentum()).parameters[0].updated_state_value_ids["velocity"]
    message = violation("update", dropping(state), optimizer=Momentum())
    assert f"no longer declares or produces {state!r}" in message


def test_a_forward_pass_may_replace_a_producer_and_declare_more() -> None:
    def rewrite(graph: TensorGraph) -> TensorGraph:
        *kept, mean = graph.nodes
        node = replace(mean, node_id="other")
        return replace(graph, nodes=[*kept, node], inputs=[*graph.inputs, ("more", spec())], outputs=[])

    step = plain(forward_expansions=[rewrite])
    assert step.forward.operations[-1].source_node_ids == ("other",)
    assert step.forward.selected_outputs == ("v6", "v4")


# -------------------------------------------------------------------------------------------------- derivative programs


def test_the_output_gradients_stay() -> None:
    for changed in ([], ["d7", "d7"], ["d6"]):
        message = violation("derivative", setting(output_gradients=changed))
        assert f"changed output_gradients from ['d7'] to {changed}" in message


def test_the_order_of_the_output_gradients_stays() -> None:
    def turn(program: DerivativeProgram) -> DerivativeProgram:
        return replace(program, output_gradients=program.output_gradients[::-1])

    with pytest.raises(AutodiffError, match=r"turn' at position 0 .* changed output_gradients") as caught:
        several(derivative_expansions=[turn])
    assert caught.value.category == "expansion_contract_violation"


def test_the_table_of_gradients_stays() -> None:
    for changed in ({}, {"v2": "d6"}):
        message = violation("derivative", setting(gradients=changed))
        assert f"changed gradients from {{'v2': 'd7'}} to {changed}" in message


def test_every_gradient_is_still_produced() -> None:
    assert "no longer produces the gradient 'd7'" in violation("derivative", dropping("d7"))


def test_a_loss_and_a_gradient_that_were_never_produced_need_not_be() -> None:
    step = plain(loss=lambda x, y, w: w, forward_expansions=[unchanged], derivative_expansions=[unchanged])
    assert step.lowered_forward_graph.nodes == step.lowered_derivative_program.nodes == []


def test_nobody_produces_the_seed() -> None:
    assert "produces the seed 'tsv0'" in violation("derivative", adding(extra("tsv0", "v0", "v0")))


def test_the_seed_is_still_read() -> None:
    def ignore(program: DerivativeProgram) -> DerivativeProgram:
        first, *rest = program.nodes
        return replace(program, nodes=[replace(first, node_id="other", input_value_ids=["v6"]), *rest])

    assert "no longer reads the seed 'tsv0'" in violation("derivative", ignore)


# -------------------------------------------------------------------------------------------------------- both together


def rewired(*operands: str) -> Pass:
    """Makes the fourth node, a product that reads the capture v4, read something else under another node id."""
    return changing(3, node_id="other", input_value_ids=list(operands))


def test_captures_stay_the_same() -> None:
    def drop(program: DerivativeProgram) -> Any:
        return changing(4, node_id="another", input_value_ids=["d2", "d2"])(rewired("d2", "d2")(program))

    error = failure(forward_expansions=[unchanged], derivative_expansions=[unchanged, planted(drop)])
    assert error.category == "expansion_contract_violation"
    assert "differ after expansion in 'v4'" in error.message
    for where in (
        "'unchanged' at position 0 of the forward expansion sequence",
        "'unchanged' at position 0 of the derivative expansion sequence",
        "'planted' at position 1 of the derivative expansion sequence",
    ):
        assert where in error.message


def test_no_capture_is_added() -> None:
    error = failure(derivative_expansions=[rewired("v3", "v4")])
    assert error.category == "expansion_contract_violation"
    assert "'v3'" in error.message
    assert "'v4'" not in error.message


@pytest.mark.parametrize("typespec", [spec(4, 1, dtype="f32"), spec(1, 4)])
@pytest.mark.parametrize("value_id", ["v4", "tsv0"])
def test_captures_and_seeds_keep_their_types(value_id: str, typespec: dict[str, Any]) -> None:
    def retype(program: DerivativeProgram) -> DerivativeProgram:
        return replace(program, value_typespecs={**program.value_typespecs, value_id: typespec})

    error = failure(derivative_expansions=[retype])
    assert error.category == "expansion_contract_violation"
    assert f"differ after expansion in {value_id!r}" in error.message


def test_the_types_of_the_lowered_forward_graph_count() -> None:
    def forget(program: DerivativeProgram) -> DerivativeProgram:
        known = {value_id: typespec for value_id, typespec in program.value_typespecs.items() if value_id != "v4"}
        return replace(program, value_typespecs=known)

    assert plain(derivative_expansions=[forget]).derivative == plain().derivative
    error = failure(forward_expansions=[changing(1, output_typespec=spec(4, 9))], derivative_expansions=[forget])
    assert error.category == "expansion_contract_violation"
    assert "'v4'" in error.message


def two_captures(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return ((x @ w) * (y * y)).sum()


def test_captures_may_come_in_another_order() -> None:
    def lengthen(graph: TensorGraph) -> TensorGraph:
        """Computes the capture that comes second by way of a longer chain."""
        nodes = []
        for node in graph.nodes:
            if node.output_value_id == "v3":
                long = [replace(node, node_id=f"long{i}", output_value_id=f"long{i}") for i in range(4)]
                for later, earlier in zip(long[1:], long, strict=False):
                    later.input_value_ids[:] = [earlier.output_value_id] * 2
                nodes += [*long, replace(node, node_id="last", input_value_ids=["long3", "long3"])]
            else:
                nodes.append(node)
        return replace(graph, nodes=nodes)

    usual = plain(loss=two_captures, parameters=["w", "y"])
    step = plain(loss=two_captures, parameters=["w", "y"], forward_expansions=[lengthen])

    def captures(compiled: Any) -> list[str]:
        return [value.value_id for value in compiled.derivative.dependencies.forward_captures]

    assert captures(step) != captures(usual)
    assert sorted(captures(step)) == sorted(captures(usual))
    assert step.forward_capture_value_ids == usual.forward_capture_value_ids


def test_what_the_analysis_says_of_the_lowered_artifacts_passes_unchanged() -> None:
    error = failure(derivative_expansions=[rewired("nowhere", "v4")])
    assert error.category == "missing_dependency"
    assert "'nowhere'" in error.message


def test_a_forward_pass_alone_may_collide_with_the_derivative_program_before_anything_is_bound() -> None:
    def never(dependency: Any) -> Any:
        raise AssertionError("bound")

    error = failure(forward_expansions=[adding(extra("d0", "v0", "v0"))], bind_input=never)
    assert error.category == "ambiguous_producer"
    assert "'d0'" in error.message


def test_both_mean_expansions_with_one_prefix_collide() -> None:
    error = failure(forward_expansions=[expand_mean_graph], derivative_expansions=[expand_mean_derivative_program])
    assert error.category == "ambiguous_producer"
    assert "'exv0'" in error.message


def test_a_pass_is_held_against_the_result_of_the_one_before() -> None:
    forward = [adding(extra("made", "v6", "v6")), planted(changing(-1, operator=MulOperator()))]
    error = failure(loss=mse, forward_expansions=forward)
    assert "changed operator of node 'extra'" in error.message
    assert "position 1" in error.message


# --------------------------------------------------------------------------------------------------------------- broken


def overwriting(name: str, value: Any) -> Pass:
    """A pass that sets a field of the artifact's last node, though a record does not allow it."""

    def spoil(artifact: Any) -> Any:
        node = artifact.nodes[-1]
        if value is ABSENT:
            object.__delattr__(node, name)
        else:
            object.__setattr__(node, name, value)
        return artifact

    return spoil


ABSENT = object()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_value_ids", None),
        ("input_value_ids", {"v0"}),
        ("op_params", [1]),
        ("op_params", {"axes": np.array([0, 1])}),
        ("node_id", ABSENT),
        ("operator", ABSENT),
    ],
)
def test_a_record_that_is_none_is_no_bare_error(kind: str, name: str, value: Any) -> None:
    assert violation(kind, overwriting(name, value)).startswith(("returned", "changed"))


def test_a_params_without_a_truth_value_names_its_pass() -> None:
    mean = artifacts(plain())["forward"].nodes[-1]
    message = violation("forward", changing(3, op_params={**mean.op_params, "axes": np.array([0, 1])}))
    assert message.startswith("returned an artifact that cannot be judged: ValueError")
