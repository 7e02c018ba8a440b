"""Fusion: what a hook is offered, which regions it may claim, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags import AnyOperator, OtherOperator, Recorder, bind_text, chain, counting, dag, dags, fan_in, fan_out, op
from fusing import Hook, claiming, lower
from opaque import Opaque
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord
from tinychain.autodiff.lowering import (
    FusionContext,
    FusionHook,
    FusionResult,
    LoweredOperation,
    LoweredProgram,
    lower_graph,
)

#: Scheduled as a, b, c, d.
LINE = dag(op("a", "x"), op("b", "a"), op("c", "b"), op("d", "c"), outputs=["d"])


# ------------------------------------------------------------------------------------------------------------- offers


def test_a_declining_hook_is_offered_every_operation_once_in_the_schedule() -> None:
    hook, recorder = Hook(lookahead=1), Recorder()
    lowered = lower(LINE, hook, recorder)
    assert hook.offers == [["n_a"], ["n_b"], ["n_c"], ["n_d"]]
    assert recorder.node_ids == ["n_a", "n_b", "n_c", "n_d"]
    assert lowered == lower_graph(LINE, handlers=Recorder().registry, bind_input=bind_text)


def test_the_lookahead_bounds_the_candidates() -> None:
    hook = Hook(lookahead=3)
    lower(LINE, hook)
    assert hook.offers == [["n_a", "n_b", "n_c"], ["n_b", "n_c", "n_d"], ["n_c", "n_d"], ["n_d"]]


def test_a_lookahead_beyond_the_schedule_shows_all_of_it() -> None:
    hook = Hook(lookahead=10**9)
    lower(LINE, hook)
    assert hook.offers[0] == ["n_a", "n_b", "n_c", "n_d"]


def test_claimed_operations_are_not_offered_again() -> None:
    hook = Hook(claiming("b c"))
    lower(LINE, hook)
    assert hook.offers == [["n_a", "n_b", "n_c"], ["n_b", "n_c", "n_d"], ["n_d"]]


def test_a_candidate_is_the_record_of_its_node() -> None:
    seen: list[TensorNodeRecord] = []
    graph = dag(op("a", "x", axes=[0], keep=True), op("b", "a", "a"), outputs=["b"])
    lower(graph, Hook(lambda context: seen.extend(context.candidates), lookahead=2))
    assert seen[:2] == graph.nodes


def test_a_hook_is_one_by_its_form() -> None:
    assert isinstance(Hook(), FusionHook)


# ------------------------------------------------------------------------------------------------------------- claims


def test_a_claimed_region_is_one_operation() -> None:
    recorder = Recorder()
    lowered = lower(LINE, Hook(claiming("b c")), recorder)
    assert lowered.operations == (
        LoweredOperation("a", "a(x)", ("n_a",), (AnyOperator(),), False),
        LoweredOperation("c", "b c", ("n_b", "n_c"), (AnyOperator(), AnyOperator()), True),
        LoweredOperation("d", "d(b c)", ("n_d",), (AnyOperator(),), False),
    )
    assert lowered.values == {"x": "x", "a": "a(x)", "c": "b c", "d": "d(b c)"}
    assert recorder.node_ids == ["n_a", "n_d"]


def test_a_single_operation_may_be_claimed() -> None:
    lowered = lower(LINE, Hook(claiming("b")))
    assert [operation.is_fused for operation in lowered.operations] == [False, True, False, False]


def test_a_whole_graph_may_be_claimed() -> None:
    recorder = Recorder()
    lowered = lower(LINE, Hook(claiming("a b c d"), lookahead=4), recorder)
    assert lowered.output_values == ("a b c d",)
    assert recorder.contexts == []


@pytest.mark.parametrize("ids", [["n_c", "n_b"], ("n_b", "n_c")])
def test_the_consumed_ids_come_back_in_the_schedule(ids: Sequence[str]) -> None:
    hook = Hook(lambda context: FusionResult("v", ids) if context.candidates[0].node_id == "n_b" else None)
    lowered = lower(dag(*LINE.nodes[:2], op("c", "b", operator=OtherOperator()), outputs=["c"]), hook, both())
    assert lowered.operations[1].source_node_ids == ("n_b", "n_c")
    assert lowered.operations[1].source_operators == (AnyOperator(), OtherOperator())


def both() -> Recorder:
    return Recorder(AnyOperator, OtherOperator)


def test_every_operation_needs_a_handler_even_where_the_hook_would_claim_it() -> None:
    graph = dag(op("a", "x"), op("b", "a", operator=OtherOperator()), outputs=["b"])
    hook = Hook(claiming("a b"))
    with pytest.raises(AutodiffError, match=r"'n_b' \(OtherOperator\)") as caught:
        lower(graph, hook)
    assert caught.value.category == "unsupported_operator"
    assert hook.offers == []
    assert lower(graph, hook, both()).output_values == ("a b",)


def test_a_selected_value_escapes() -> None:
    lowered = lower(LINE, Hook(claiming("a b")), outputs=["b"])
    assert lowered.output_values == ("a b",)


# ----------------------------------------------------------------------------------------------------------- value_of


def test_value_of_gives_what_is_bound_and_refuses_the_rest() -> None:
    asked: list[Any] = []

    def answer(context: FusionContext) -> None:
        if context.candidates[0].node_id == "n_b":
            asked.extend([context.value_of("x"), context.value_of("a")])
            unknown: list[Any] = ["b", "c", "nix", "", None, []]
            for unbound in unknown:
                with pytest.raises(AutodiffError, match="not bound yet") as caught:
                    context.value_of(unbound)
                assert caught.value.category == "handler_contract_violation"
                asked.append(unbound)

    lower(LINE, Hook(answer))
    assert asked == ["x", "a(x)", "b", "c", "nix", "", None, []]


def test_asking_for_an_unbound_value_ends_the_lowering() -> None:
    with pytest.raises(AutodiffError, match="the fusion hook Hook asked for value 'd', which is not bound") as caught:
        lower(LINE, Hook(lambda context: context.value_of("d")))
    assert caught.value.category == "handler_contract_violation"


def test_a_value_inside_a_region_is_never_bound() -> None:
    def answer(context: FusionContext) -> Any:
        if context.candidates[0].node_id == "n_d":
            return context.value_of("b")
        return claiming("b c")(context)

    with pytest.raises(AutodiffError, match="'b', which is not bound"):
        lower(LINE, Hook(answer))


def test_target_values_are_never_looked_into() -> None:
    value = Opaque()
    hook = Hook(lambda context: FusionResult(value, ["n_b", "n_c"]) if len(hook.offers) == 2 else None)
    lowered = lower(LINE, hook, Recorder(lower=lambda context: Opaque()), bind_input=lambda dependency: Opaque())
    assert lowered.values["c"] is value


# --------------------------------------------------------------------------------------------- mutation, re-entrancy


def test_a_hook_that_spoils_its_candidates_reaches_neither_handler_nor_artifact() -> None:
    def spoil(context: FusionContext) -> None:
        for node in context.candidates:
            node.input_value_ids.append("nix")
            node.op_params.clear()
            if isinstance(node.output_typespec, dict):
                node.output_typespec["shape"].clear()

    graph = dag(op("a", "x", axes=[1], options={"deep": [1]}), op("b", "a", axes=[2]), outputs=["b"])
    before = graph.to_dict()
    spoiled, clean = Recorder(), Recorder()
    assert lower(graph, Hook(spoil), spoiled) == lower(graph, None, clean)
    assert spoiled.contexts == clean.contexts
    assert graph.to_dict() == before


def test_a_hook_may_lower_another_graph_with_itself() -> None:
    def answer(context: FusionContext) -> FusionResult | None:
        if len(hook.offers) == 1:
            inner = lower(LINE, hook)
            return FusionResult(inner.output_values[0], [context.candidates[0].node_id])
        return claiming("b c")(context)

    hook = Hook(answer)
    assert lower(LINE, hook).output_values == ("d(b c)",)
    assert [offer[0] for offer in hook.offers] == ["n_a", "n_a", "n_b", "n_d", "n_b", "n_d"]


def test_a_lookahead_that_changes_is_read_once() -> None:
    class Shrinking(Hook):
        @property
        def lookahead(self) -> int:
            self.reads = getattr(self, "reads", 0) + 1
            return 2 if self.reads == 1 else 0

        @lookahead.setter
        def lookahead(self, value: int) -> None:
            pass

    hook = Shrinking()
    lower(LINE, hook)
    assert hook.offers[0] == ["n_a", "n_b"]
    assert hook.reads == 1


# ------------------------------------------------------------------------------------------------ the rules, naively


def is_legal(graph: TensorGraph, region: set[str], bound: set[str]) -> bool:
    """Whether the values of a region may be claimed together while `bound` is bound."""
    producers = {node.output_value_id: node for node in graph.nodes}
    reachable: set[str] = set()
    stack = [value_id for value_id in graph.outputs if value_id in producers]
    while stack:
        value_id = stack.pop()
        if value_id not in reachable:
            reachable.add(value_id)
            stack += [operand for operand in producers[value_id].input_value_ids if operand in producers]
    operands = {operand for value_id in region for operand in producers[value_id].input_value_ids}
    outside = {operand for value_id in reachable - region for operand in producers[value_id].input_value_ids}
    escaping = region & (outside | set(graph.outputs))
    return operands <= bound | region and len(escaping) == 1


@given(dags(), st.data())
def test_a_region_is_claimed_exactly_when_it_is_legal(graph: TensorGraph, data: st.DataObject) -> None:
    illegal: list[set[str]] = []
    expected: list[tuple[str, ...]] = []

    def answer(context: FusionContext) -> FusionResult | None:
        if not data.draw(st.booleans()):
            expected.append((context.candidates[0].node_id,))
            return None
        offered, *others = [node.output_value_id for node in context.candidates]
        region = {offered, *[value_id for value_id in others if data.draw(st.booleans())]}
        bound = {v for v in ["x", "y", *[node.output_value_id for node in graph.nodes]] if is_bound(context, v)}
        if not is_legal(graph, region, bound):
            illegal.append(region)
        ids = [f"n_{value_id}" for value_id in data.draw(st.permutations(sorted(region)))]
        expected.append(tuple([node.node_id for node in context.candidates if node.node_id in ids]))
        return FusionResult("fused", ids)

    hook = Hook(answer, lookahead=data.draw(st.integers(1, 5)))
    if (lowered := lowered_or_refused(graph, hook)) is None:
        assert len(illegal) == 1
        return
    assert illegal == []
    assert [operation.source_node_ids for operation in lowered.operations] == expected
    claimed = [node_id for operation in lowered.operations for node_id in operation.source_node_ids]
    assert claimed == [f"n_{value.value_id}" for value in lowered.dependencies.local_values]


def lowered_or_refused(graph: TensorGraph, hook: Hook) -> LoweredProgram | None:
    """None where an answer of the hook is refused."""
    try:
        return lower(graph, hook)
    except AutodiffError as error:
        if error.category != "handler_contract_violation":
            raise
        return None


def is_bound(context: FusionContext, value_id: str) -> bool:
    try:
        context.value_of(value_id)
    except AutodiffError:
        return False
    return True


# --------------------------------------------------------------------------------------------------------------- size


@pytest.mark.parametrize("make", [chain, fan_in, fan_out])
def test_long_and_wide_graphs_with_a_hook(make: Any) -> None:
    graph = make(50_000)
    declining = Hook(lookahead=3)
    assert (
        len(lower_graph(graph, handlers=counting(AnyOperator), fusion=declining).operations)
        == len(declining.offers)
        == len(graph.nodes)
    )


def test_a_long_chain_claimed_in_pairs() -> None:
    size = 50_000
    hook = Hook(lambda context: FusionResult("pair", [node.node_id for node in context.candidates]), lookahead=2)
    recorder = Recorder()
    lowered = lower(chain(size), hook, recorder)
    assert (len(lowered.operations), len(hook.offers), recorder.contexts) == (size // 2, size // 2, [])


def test_a_long_chain_claimed_at_once() -> None:
    size = 50_000
    hook = Hook(lambda context: FusionResult("all", [node.node_id for node in context.candidates]), lookahead=size)
    (operation,) = lower(chain(size), hook).operations
    assert len(operation.source_node_ids) == size
