"""Hooks and answers that are refused: by their form, by the rules of a region, or because they raise."""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from analysed import refused
from by_hand import OBJECT
from dags import Recorder, dag, op
from fusing import Hook, claiming, decline, lower
from lowered import FAILURES, OUTCRIES, MuteError, raising
from opaque import Opaque
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph
from tinychain.autodiff.lowering import FusionContext, FusionResult

#: Scheduled as a, b, c, d.
LINE = dag(op("a", "x"), op("b", "a"), op("c", "b"), op("d", "c"), outputs=["d"])


def violated(saying: str, answer: Callable[[FusionContext], Any], graph: TensorGraph = LINE, **arguments: Any) -> None:
    """The answer is refused, and the message names the hook and the offered node."""
    with pytest.raises(AutodiffError, match=saying) as caught:
        lower(graph, Hook(answer, lookahead=4), **arguments)
    assert caught.value.category == "handler_contract_violation"
    assert "the fusion hook Hook" in caught.value.message


def answering(result: Any) -> Callable[[FusionContext], Any]:
    """Gives that answer to the first offer."""
    return lambda context: result


# -------------------------------------------------------------------------------------------------- the hook's form


@pytest.mark.parametrize("lookahead", [0, -1, True, False, None, 1.0, "2", [1], OBJECT])
def test_a_lookahead_that_is_no_positive_int_is_refused(lookahead: Any) -> None:
    recorder = Recorder()
    saying = "lookahead of the fusion hook Hook"
    refused("handler_contract_violation", lower, LINE, Hook(lookahead=lookahead), recorder, saying=saying)
    assert recorder.contexts == []


def test_a_hook_without_lookahead_is_refused() -> None:
    hook = SimpleNamespace(fuse=decline)
    refused("handler_contract_violation", lower, LINE, hook, saying="lookahead of the fusion hook SimpleNamespace")


@pytest.mark.parametrize("hook", [SimpleNamespace(lookahead=1), SimpleNamespace(lookahead=1, fuse=3)])
def test_a_hook_without_callable_fuse_is_refused(hook: Any) -> None:
    saying = "the fusion hook SimpleNamespace has no callable fuse.*lookahead"
    refused("handler_contract_violation", lower, LINE, hook, saying=saying)


def test_a_hook_whose_lookahead_raises_is_refused() -> None:
    class Broken(Hook):
        lookahead = property(raising(ZeroDivisionError("no view")), lambda self, value: None)

    saying = "the fusion hook Broken.*ZeroDivisionError: no view"
    refused("handler_contract_violation", lower, LINE, Broken(), saying=saying)


def test_a_false_hook_is_a_hook() -> None:
    class Empty(Hook):
        def __len__(self) -> int:
            return 0

    hook = Empty()
    lower(LINE, hook)
    assert len(hook.offers) == 4


# ------------------------------------------------------------------------------------------------ the answer's form


@pytest.mark.parametrize("result", [0, False, "n_a", ("value", ["n_a"]), {"value": 1}, OBJECT, FusionResult])
def test_an_answer_that_is_no_result_is_refused(result: Any) -> None:
    violated("offered node 'n_a', returned .*; expected a FusionResult or None", answering(result))


def test_a_target_value_as_the_answer_is_refused_without_a_look_into_it() -> None:
    violated("returned <Opaque whose repr raises>; expected a FusionResult", answering(Opaque()))


def test_a_result_without_value_is_refused() -> None:
    violated("offered node 'n_a', returned a FusionResult whose value is None", answering(FusionResult(None, ["n_a"])))


class BrokenList(UserList[str]):
    """A sequence that cannot be read."""

    def __iter__(self) -> Any:
        raise ZeroDivisionError("no items")

    def __len__(self) -> int:
        raise ZeroDivisionError("no items")


@pytest.mark.parametrize(
    ("ids", "saying"),
    [
        ("n_a", "expected a non-empty sequence of node ids"),
        (b"n_a", "expected a non-empty sequence of node ids"),
        (None, "expected a non-empty sequence of node ids"),
        ({"n_a"}, "expected a non-empty sequence of node ids"),
        (iter(["n_a"]), "expected a non-empty sequence of node ids"),
        (3, "expected a non-empty sequence of node ids"),
        ([], "expected a non-empty sequence of node ids"),
        ((), "expected a non-empty sequence of node ids"),
        (["n_a", None], "consumed None; expected a non-empty str node id"),
        (["n_a", ""], "consumed ''; expected a non-empty str node id"),
        ([["n_a"]], "expected a non-empty str node id"),
        (["n_a", "n_b", "n_a"], "consumed node 'n_a' twice"),
        (["n_a", "nix"], "consumed node 'nix', which is not among the candidates"),
        (["a"], "consumed node 'a', which is not among the candidates"),
        (["n_b"], "did not consume the offered node"),
        (BrokenList(["n_a"]), "ZeroDivisionError: no items"),
    ],
)
def test_bad_consumed_ids_are_refused(ids: Any, saying: str) -> None:
    violated(saying, answering(FusionResult("value", ids)))


def test_an_operation_beyond_the_lookahead_cannot_be_consumed() -> None:
    hook = Hook(claiming("a b"), lookahead=1)
    refused("handler_contract_violation", lower, LINE, hook, saying="'n_b', which is not among the candidates")


def test_an_operation_before_the_offered_one_cannot_be_consumed() -> None:
    violated("'n_a', which is not among the candidates", claiming("b a"))


# ---------------------------------------------------------------------------------------------- the rules of a region


def test_a_region_with_two_values_read_outside_is_refused() -> None:
    # Scheduled as a, b, left, right, out.
    graph = dag(op("a", "x"), op("b", "a"), op("left", "b"), op("out", "left", "a"), outputs=["out"])
    violated("from which 2 values escape .*'a', 'b'.*; exactly one may", claiming("a b"), graph)


def test_a_region_with_a_selected_value_and_one_read_outside_is_refused() -> None:
    violated("from which 2 values escape .*'b', 'c'", claiming("b c"), outputs=["d", "b"])


def test_a_region_with_two_selected_values_is_refused() -> None:
    violated("from which 2 values escape .*'c', 'd'", claiming("c d"), outputs=["d", "c"])


def test_a_value_that_is_both_selected_and_read_outside_escapes_once() -> None:
    lowered = lower(LINE, Hook(claiming("a b")), outputs=["d", "b"])
    assert lowered.output_values == ("d(c(a b))", "a b")


def test_a_reader_that_is_not_needed_makes_nothing_escape() -> None:
    graph = dag(*LINE.nodes, op("unread", "b"), outputs=["d"])
    assert lower(graph, Hook(claiming("b c"))).output_values == ("d(b c)",)


def test_a_value_that_one_node_reads_in_and_another_out_of_the_region_escapes() -> None:
    # Scheduled as a, b, out: out reads a too.
    graph = dag(op("a", "x"), op("b", "a", "a"), op("out", "b", "a"), outputs=["out"])
    violated("from which 2 values escape", claiming("a b"), graph)
    assert lower(graph, Hook(claiming("a b out"))).output_values == ("a b out",)


def test_an_operand_that_comes_later_is_refused() -> None:
    # Scheduled as bb, a_t, out: the region of bb and out would need a_t, which is neither bound nor inside.
    graph = dag(op("a_t", "x"), op("bb", "x", "x"), op("out", "a_t", "bb"), outputs=["out"])
    saying = "consumed node 'n_out', whose operand 'a_t' is neither bound yet nor produced by a consumed node"
    violated(saying, claiming("bb out"), graph)
    assert lower(graph, Hook(claiming("a_t out"))).output_values == ("a_t out",)
    assert lower(graph, Hook(claiming("bb a_t out"))).output_values == ("bb a_t out",)


def test_an_operand_inside_an_earlier_region_would_escape_from_it() -> None:
    graph = dag(op("a", "x"), op("b", "a"), op("c", "b"), op("d", "c", "a"), outputs=["d"])
    violated("from which 2 values escape .*'a', 'b'", claiming("a b", "c d"), graph)


# --------------------------------------------------------------------------------------------------------- exceptions


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_an_exception_of_a_hook_is_chained(error: Exception) -> None:
    saying = rf"the fusion hook Hook, offered node 'n_a', raised {type(error).__name__}: .*odd"
    with pytest.raises(AutodiffError, match=saying) as caught:
        lower(LINE, Hook(raising(error)))
    assert caught.value.category == "handler_contract_violation"
    assert caught.value.__cause__ is error


def test_an_exception_without_text_is_named_all_the_same() -> None:
    violated("raised MuteError", raising(MuteError()))


def test_a_categorized_error_propagates_unchanged() -> None:
    error = AutodiffError("shape_mismatch", "mine")
    with pytest.raises(AutodiffError) as caught:
        lower(LINE, Hook(raising(error)))
    assert caught.value is error


@pytest.mark.parametrize("error", OUTCRIES, ids=repr)
def test_what_ends_a_program_propagates(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        lower(LINE, Hook(raising(error)))
    assert caught.value is error


def test_nothing_is_returned_when_a_late_answer_is_bad() -> None:
    def answer(context: FusionContext) -> Any:
        return "nonsense" if context.candidates[0].node_id == "n_d" else claiming("a b")(context)

    recorder = Recorder()
    refused("handler_contract_violation", lower, LINE, Hook(answer), recorder, saying="offered node 'n_d'")
    assert recorder.node_ids == ["n_c"]


@pytest.mark.parametrize("ids", [["n_a", "n_b"], ["n_b", "n_a"]])
def test_a_hook_cannot_claim_an_operation_a_second_time(ids: Sequence[str]) -> None:
    hook = Hook(lambda context: FusionResult("value", ids))
    refused("handler_contract_violation", lower, LINE, hook, saying="offered node 'n_c'.*not among the candidates")
