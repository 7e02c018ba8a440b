"""`TensorGraphBuilder.vjp`: the derivative program of a finished trace, asked for by tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.hashing import content_hash
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder


class Traced:
    """x * w, summed; and an input that nothing reads."""

    def __init__(self) -> None:
        self.builder = TensorGraphBuilder()
        with self.builder:
            self.x = self.builder.input("x", dtype="f64", shape=[2, 3])
            self.w = self.builder.input("w", dtype="f64", shape=[3])
            self.unread = self.builder.input("unread", dtype="f64", shape=[])
            self.product = self.x * self.w
            self.loss = self.product.sum()


def test_it_is_generate_on_the_typed_graph() -> None:
    traced = Traced()
    graph = traced.builder.build(outputs=traced.loss)
    program = traced.builder.vjp(traced.loss, wrt=[traced.w, traced.x])
    assert program == generate(graph, "v4", ["v1", "v0"], "seed", seed_typespec={"dtype": "f64", "shape": []})
    assert program.metadata.wrt_signature == ("v1", "v0")
    assert program.metadata.source_graph_id == content_hash(graph)
    assert program.metadata.seed_contract == "seed matches v4"
    assert program.value_typespecs["seed"] == {"dtype": "f64", "shape": []}


def test_the_seed_and_the_graph_id_are_taken_verbatim() -> None:
    traced = Traced()
    program = traced.builder.vjp(traced.loss, wrt=(traced.x,), seed="cotangent", graph_id="")
    assert program.metadata.source_graph_id == ""
    assert program.metadata.seed_contract == "cotangent matches v4"
    assert program.nodes[0].input_value_ids == ["cotangent"]


def test_it_is_repeatable_and_changes_nothing() -> None:
    traced = Traced()
    before = traced.builder.build()
    programs = [traced.builder.vjp(traced.loss, wrt=[traced.x]) for _ in range(2)]
    assert programs[0] == programs[1]
    assert traced.builder.build() == before


def test_an_intermediate_and_the_output_itself_can_be_wrt() -> None:
    traced = Traced()
    assert traced.builder.vjp(traced.loss, wrt=[traced.loss]).output_gradients == ["seed"]
    assert traced.builder.vjp(traced.loss, wrt=[traced.product]).output_gradients == ["d1"]


def test_it_needs_a_trace_that_ended_well() -> None:
    new, active, failed = TensorGraphBuilder(), TensorGraphBuilder(), TensorGraphBuilder()
    with pytest.raises(KeyError), failed:
        raise KeyError
    with active:
        for builder in (new, active, failed):
            with pytest.raises(RuntimeError, match="after the trace context has exited successfully"):
                builder.vjp(None, wrt=[])


@pytest.mark.parametrize("wrt", ["v0", None, 3, {"v0"}, Tensor()])
def test_wrt_is_a_sequence(wrt: Any) -> None:
    traced = Traced()
    with pytest.raises(TypeError, match="wrt must be a sequence"):
        traced.builder.vjp(traced.loss, wrt=wrt)


def test_wrt_is_not_empty() -> None:
    traced = Traced()
    with pytest.raises(ValueError, match="wrt"):
        traced.builder.vjp(traced.loss, wrt=[])


def test_a_duplicate_in_wrt_is_named() -> None:
    traced = Traced()
    with pytest.raises(ValueError, match=r"duplicate.*'v1'"):
        traced.builder.vjp(traced.loss, wrt=[traced.w, traced.x, traced.w])


@pytest.mark.parametrize("pick", [lambda traced: "v0", lambda traced: Tensor(), lambda traced: Traced().x])
def test_wrt_and_output_are_of_this_trace(pick: Callable[[Traced], Any]) -> None:
    traced = Traced()
    with pytest.raises(ValueError, match="not traced by this builder"):
        traced.builder.vjp(traced.loss, wrt=[pick(traced)])
    with pytest.raises(ValueError, match="not traced by this builder"):
        traced.builder.vjp(pick(traced), wrt=[traced.x])


def test_an_input_that_the_output_does_not_read_has_no_gradient() -> None:
    traced = Traced()
    with pytest.raises(AutodiffError, match="'v2'") as caught:
        traced.builder.vjp(traced.loss, wrt=[traced.x, traced.unread])
    assert caught.value.category == "missing_derivative_behavior"


@pytest.mark.parametrize("keywords", [{"seed": 3}, {"seed": None}, {"graph_id": 3}])
def test_seed_and_graph_id_are_texts(keywords: dict[str, Any]) -> None:
    traced = Traced()
    with pytest.raises(TypeError, match="|".join(keywords)):
        traced.builder.vjp(traced.loss, wrt=[traced.x], **keywords)
