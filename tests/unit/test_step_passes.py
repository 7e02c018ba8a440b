"""How expansion passes run inside a compile, and what they may raise and return."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import pytest

from lowered import FAILURES, OUTCRIES, MuteError, raising
from planting import KINDS, adding, artifacts, changing, extra, planted, setting, unchanged, violation
from planting import Pass as PassType
from steps import failure, plain, several
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import expand_mean_graph, expand_mean_graph_detailed
from tinychain.autodiff.graph import TensorGraph

# ---------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize("kind", KINDS)
def test_works_on_a_copy(kind: str) -> None:
    seen = []

    def see(artifact: Any) -> Any:
        seen.append(artifact)
        return artifact

    step = plain(**{f"{kind}_expansions": [see]})
    (given,) = seen
    assert given == artifacts(step)[kind]
    assert given is not artifacts(step)[kind]
    assert given is artifacts(step, "lowered")[kind]


def spoil(artifact: Any) -> Any:
    """Ruins everything that can be reached from its argument, and returns what that was."""
    kept = deepcopy(artifact)
    typespecs = [node.output_typespec for node in artifact.nodes]
    for node in artifact.nodes:
        node.op_params["spoiled"] = True
        node.input_value_ids.clear()
    if isinstance(artifact, TensorGraph):
        typespecs += [typespec for _, typespec in artifact.inputs]
        containers: list[Any] = [artifact.inputs, artifact.outputs]
    else:
        typespecs += artifact.value_typespecs.values()
        containers = [artifact.value_typespecs, artifact.gradients, artifact.output_gradients]
    for typespec in typespecs:
        typespec["shape"].append("spoiled")
        typespec["dtype"] = "spoiled"
    for container in (artifact.nodes, *containers):
        container.clear()
    return kept


@pytest.mark.parametrize("kind", KINDS)
def test_may_ruin_what_it_is_given(kind: str) -> None:
    step, usual = plain(**{f"{kind}_expansions": [spoil, spoil]}), plain()
    assert replace(step, provenance=usual.provenance) == usual


@pytest.mark.parametrize("kind", KINDS)
def test_may_change_what_it_is_given_and_return_that(kind: str) -> None:
    def grow(artifact: Any) -> Any:
        artifact.nodes.append(extra("grown", *artifact.nodes[0].input_value_ids))
        return artifact

    step, usual = plain(**{f"{kind}_expansions": [grow]}), plain()
    assert artifacts(step, "lowered")[kind].nodes[-1].node_id == "extra"
    assert artifacts(step) == artifacts(usual)
    assert step.forward == usual.forward


def test_passes_run_in_order_each_on_the_result_of_the_one_before() -> None:
    calls = []

    def mark(name: str, artifact: Any) -> Any:
        calls.append(f"{name} after {artifact.nodes[-1].node_id}")
        return adding(extra(name, *artifact.nodes[0].input_value_ids, node_id=name))(artifact)

    step = plain(
        update_expansions=[partial(mark, "e"), partial(mark, "f")],
        forward_expansions=[partial(mark, "a"), partial(mark, "b")],
        derivative_expansions=[partial(mark, "c"), partial(mark, "d")],
    )
    assert calls == ["a after n3", "b after a", "c after dn7", "d after c", "e after n1", "f after e"]
    assert [node.node_id for node in step.lowered_forward_graph.nodes] == ["n0", "n1", "n2", "n3", "a", "b"]


def test_an_update_pass_runs_once_a_type_and_is_listed_once() -> None:
    calls = []

    def count(graph: TensorGraph) -> TensorGraph:
        calls.append(graph.inputs[0])
        return graph

    count.__qualname__ = "count"
    assert several(update_expansions=[count]).provenance.update_expansions == ("count",)
    assert len(calls) == 2


class Pass:
    def __call__(self, artifact: Any) -> Any:
        return artifact

    def run(self, artifact: Any) -> Any:
        return artifact


class Named(Pass):
    def __init__(self, name: Any) -> None:
        self.__qualname__ = name


def test_labels() -> None:
    passes = [unchanged, expand_mean_graph, partial(unchanged), Pass(), Pass().run, Named("own"), Named(""), Named(3)]
    labels = ("unchanged", "expand_mean_graph", "partial", "Pass", "Pass.run", "own", "Named", "Named")
    assert plain(forward_expansions=passes).provenance.forward_expansions == labels


def test_a_label_is_read_before_the_call() -> None:
    def rename(_: Any) -> None:
        rename.__qualname__ = "later"

    rename.__qualname__ = "earlier"
    assert "'earlier'" in failure(forward_expansions=[rename]).message


def never(_: Any) -> NoReturn:
    raise AssertionError("a later pass ran")


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_violation_no_later_pass_runs(kind: str) -> None:
    error = failure(**{f"{kind}_expansions": [planted(lambda _: None), never]})
    assert f"'planted' at position 0 of the {kind} expansion sequence" in error.message


def test_derivative_passes_run_after_forward_passes_and_before_anything_is_lowered() -> None:
    error = failure(forward_expansions=[planted(lambda _: None)], derivative_expansions=[never])
    assert "of the forward expansion sequence" in error.message
    error = failure(derivative_expansions=[planted(lambda _: None)], bind_input=never, update_expansions=[never])
    assert "of the derivative expansion sequence" in error.message


# ------------------------------------------------------------------------------------------------------- what it raises


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_an_exception_is_wrapped_and_chained(kind: str, error: Exception) -> None:
    caught = failure(**{f"{kind}_expansions": [unchanged, planted(raising(error))]})
    assert caught.category == "expansion_contract_violation"
    assert f"'planted' at position 1 of the {kind} expansion sequence raised {type(error).__name__}" in caught.message
    assert "odd" in caught.message
    assert caught.__cause__ is error


def test_an_exception_without_text_is_wrapped_too() -> None:
    assert "raised MuteError" in violation("forward", raising(MuteError()))


@pytest.mark.parametrize("kind", KINDS)
def test_an_autodiff_error_passes_unchanged(kind: str) -> None:
    error = AutodiffError("unsupported_reduction", "not this one")
    assert failure(**{f"{kind}_expansions": [raising(error)]}) is error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", OUTCRIES, ids=lambda error: type(error).__name__)
def test_what_ends_a_program_passes_unchanged(kind: str, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        plain(**{f"{kind}_expansions": [raising(error)]})
    assert caught.value is error


# ------------------------------------------------------------------------------------------------------ what it returns


def other_kind(artifact: Any) -> Any:
    step = plain()
    return step.source_derivative_program if isinstance(artifact, TensorGraph) else step.source_forward_graph


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edit", [lambda _: None, lambda artifact: artifact.nodes, other_kind])
def test_must_return_the_kind_of_artifact_that_it_was_given(kind: str, edit: PassType) -> None:
    message = violation(kind, edit)
    assert message.startswith(f"returned a {type(edit(artifacts(plain())[kind])).__name__}: ")
    assert message.endswith(f"expected a {'DerivativeProgram' if kind == 'derivative' else 'TensorGraph'}")


def test_must_return_the_artifact_and_not_a_detailed_result() -> None:
    assert "returned a MeanGraphExpansionResult" in violation("forward", expand_mean_graph_detailed)


class AnnotatedGraph(TensorGraph):
    """A consumer's own kind of graph."""


def test_may_return_a_subclass() -> None:
    step = plain(forward_expansions=[lambda graph: AnnotatedGraph(graph.nodes, graph.inputs, graph.outputs), unchanged])
    assert isinstance(step.lowered_forward_graph, AnnotatedGraph)


@pytest.mark.parametrize("kind", KINDS)
def test_must_return_node_records(kind: str) -> None:
    assert "returned the node 'stray'; expected a TensorNodeRecord" in violation(kind, adding("stray"))


@pytest.mark.parametrize("nodes", [None, 3, "nodes", {}])
def test_must_return_a_sequence_of_nodes(nodes: Any) -> None:
    assert f"returned the nodes {nodes!r}; expected a sequence" in violation("derivative", setting(nodes=nodes))


def test_may_return_any_sequences_and_mappings() -> None:
    def freeze(program: Any) -> Any:
        return replace(program, nodes=tuple(program.nodes), output_gradients=tuple(program.output_gradients))

    assert plain(derivative_expansions=[freeze, unchanged]).derivative == plain().derivative


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "id_"),
    [
        ({"node_id": 7}, 7),
        ({"output_value_id": None}, None),
        ({"input_value_ids": ["v0", 7]}, 7),
        ({"input_value_ids": [["v0"]]}, ["v0"]),
    ],
)
def test_must_return_nodes_with_str_ids(kind: str, changes: dict[str, Any], id_: Any) -> None:
    assert f"a node with the id {id_!r}; expected a str" in violation(kind, changing(-1, **changes))


@pytest.mark.parametrize("kind", ["forward", "update"])
@pytest.mark.parametrize("entry", [3, "v0", None, ("v0",), ("v0", None, None), (7, None), (["v0"], None)])
def test_must_return_inputs_that_are_pairs(kind: str, entry: Any) -> None:
    message = violation(kind, lambda graph: replace(graph, inputs=[*graph.inputs, entry]))
    assert f"returned the input {entry!r}; expected a pair" in message


@pytest.mark.parametrize("kind", ["forward", "update"])
def test_must_return_outputs_that_are_ids(kind: str) -> None:
    assert "returned outputs with the id ['v6']; expected a str" in violation(kind, setting(outputs=[["v6"]]))


@pytest.mark.parametrize("gradients", [None, 3, "d7", {"d7"}])
def test_must_return_a_sequence_of_output_gradients(gradients: Any) -> None:
    message = violation("derivative", setting(output_gradients=gradients))
    assert f"returned the output_gradients {gradients!r}; expected a list" in message


@pytest.mark.parametrize("gradient", [None, 7, ["d7"]])
def test_must_return_output_gradients_that_are_ids(gradient: Any) -> None:
    message = violation("derivative", setting(output_gradients=["d7", gradient]))
    assert f"returned output_gradients with the id {gradient!r}; expected a str" in message


@pytest.mark.parametrize("name", ["gradients", "value_typespecs"])
@pytest.mark.parametrize("value", [None, 3, [("v2", "d7")]])
def test_must_return_mappings(name: str, value: Any) -> None:
    assert f"returned the {name} {value!r}; expected a mapping" in violation("derivative", setting(**{name: value}))
