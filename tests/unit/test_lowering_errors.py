"""What lowering refuses before anything runs, and what it makes of handlers and binders that fail or re-enter it."""

from __future__ import annotations

from typing import Any

import pytest

from analysed import refused
from by_hand import OBJECT
from dags import AnyOperator, OtherOperator, Recorder, bind_text, dag, op
from lowered import FAILURES, GRAPH, OUTCRIES, MuteError, raising
from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorGraph, TensorOperator
from tinychain.autodiff.lowering import OperationContext, OperationHandlerRegistry, lower_graph


class Refusing:
    """A binder and a hook that must not be reached."""

    lookahead = 1

    def __call__(self, dependency: ValueDependency) -> Any:
        raise AssertionError(f"bound {dependency.value_id}")

    def fuse(self, context: Any) -> Any:
        raise AssertionError("offered")


# --------------------------------------------------------------------------------------------------------- pre-flight


@pytest.mark.parametrize("bad", [None, {}, OBJECT, OperationHandlerRegistry])
def test_handlers_of_another_kind_are_refused(bad: Any) -> None:
    refused(
        "handler_contract_violation",
        lower_graph,
        GRAPH,
        handlers=bad,
        bind_input=Refusing(),
        saying="must be an OperationHandlerRegistry",
    )


def test_a_binder_that_cannot_be_called_is_refused() -> None:
    recorder = Recorder()
    bad: Any = "bind"
    refused(
        "handler_contract_violation",
        lower_graph,
        GRAPH,
        handlers=recorder.registry,
        bind_input=bad,
        saying="bind_input must be callable",
    )
    assert recorder.contexts == []


def test_the_first_unsupported_operation_in_the_schedule_is_refused_before_anything_runs() -> None:
    # In list order the lone one comes first, in the schedule the one at the end of the chain.
    graph = dag(
        op("lone", "x", operator=OtherOperator()),
        op("c0", "x"),
        op("c1", "c0", operator=OtherOperator()),
        op("out", "lone", "c1"),
        outputs=["out"],
    )
    recorder = Recorder(AnyOperator)
    refused(
        "unsupported_operator",
        lower_graph,
        graph,
        handlers=recorder.registry,
        fusion=Refusing(),
        bind_input=Refusing(),
        saying="node 'n_c1' .*no lowering handler registered for operator type 'OtherOperator'.*owns AnyOperator",
    )
    assert recorder.contexts == []
    complete = Recorder(AnyOperator, OtherOperator)
    lower_graph(graph, handlers=complete.registry)
    assert complete.node_ids == ["n_c0", "n_c1", "n_lone", "n_out"]


def test_an_unsupported_operation_out_of_reach_is_not_judged() -> None:
    graph = dag(op("a", "x"), op("b", "a", operator=OtherOperator()), outputs=["a"])
    assert len(lower_graph(graph, handlers=Recorder(AnyOperator).registry).operations) == 1


def test_the_analysis_is_judged_before_the_handlers_and_these_before_the_hook() -> None:
    nothing: Any = None
    unknown = {"handlers": nothing, "fusion": 3, "outputs": ["nix"]}
    refused("invalid_selected_output", lower_graph, GRAPH, **unknown, saying="'nix'")
    no_registry = {"handlers": nothing, "fusion": 3}
    refused("handler_contract_violation", lower_graph, GRAPH, **no_registry, saying="OperationHandlerRegistry")
    no_hook = {"handlers": OperationHandlerRegistry(), "fusion": 3}
    refused("handler_contract_violation", lower_graph, GRAPH, **no_hook, saying="lookahead")


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(dag(op("a", "x", node_id="n"), op("b", "a", node_id="n"), outputs=["b"]), id="chain"),
        pytest.param(dag(op("a", "x", node_id="n"), op("b", "x", node_id="n"), outputs=["a", "b"]), id="independent"),
    ],
)
@pytest.mark.parametrize("fusion", [None, Refusing()])
def test_two_operations_under_one_id_are_refused_before_anything_runs(graph: TensorGraph, fusion: Any) -> None:
    recorder = Recorder()
    refused(
        "handler_contract_violation",
        lower_graph,
        graph,
        handlers=recorder.registry,
        fusion=fusion,
        bind_input=Refusing(),
        saying="node id 'n' belongs to two operations",
    )
    assert recorder.contexts == []


def test_an_id_out_of_reach_may_come_twice() -> None:
    graph = dag(op("a", "x", node_id="n"), op("b", "x", node_id="n"), outputs=["a"])
    assert len(lower_graph(graph, handlers=Recorder().registry).operations) == 1


# --------------------------------------------------------------------------------------------------------- exceptions


def test_a_handler_that_returns_none_is_refused() -> None:
    registry = Recorder(lower=lambda context: None).registry
    saying = r"the handler of node 'n_a' \(AnyOperator\) returned None"
    refused("handler_contract_violation", lower_graph, GRAPH, handlers=registry, saying=saying)


def test_a_binder_that_returns_none_is_refused() -> None:
    recorder = Recorder()
    arguments: dict[str, Any] = {"handlers": recorder.registry, "bind_input": lambda dependency: None}
    saying = "bind_input for the declared_input 'x' returned None"
    refused("handler_contract_violation", lower_graph, GRAPH, **arguments, saying=saying)
    assert recorder.contexts == []


def failing(error: BaseException) -> list[dict[str, Any]]:
    """A handler and a binder that raise it."""
    return [
        {"handlers": Recorder(lower=raising(error)).registry},
        {"handlers": Recorder().registry, "bind_input": raising(error)},
    ]


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_an_exception_of_a_consumer_is_chained(error: Exception) -> None:
    for arguments in failing(error):
        with pytest.raises(AutodiffError, match=rf"raised {type(error).__name__}: .*odd") as caught:
            lower_graph(GRAPH, **arguments)
        assert caught.value.category == "handler_contract_violation"
        assert caught.value.__cause__ is error


def test_the_message_names_who_raised() -> None:
    handler, binder = failing(FAILURES[0])
    refused("handler_contract_violation", lower_graph, GRAPH, **handler, saying=r"handler of node 'n_a' \(AnyOp")
    refused("handler_contract_violation", lower_graph, GRAPH, **binder, saying="bind_input for the declared_input 'x'")


def test_an_exception_without_text_is_named_all_the_same() -> None:
    for arguments in failing(MuteError()):
        refused("handler_contract_violation", lower_graph, GRAPH, **arguments, saying="raised MuteError")


def test_a_categorized_error_propagates_unchanged() -> None:
    class OwnError(AutodiffError):
        """A consumer's own category of a category."""

    for error in (AutodiffError("shape_mismatch", "mine"), OwnError("dtype_mismatch", "mine")):
        for arguments in failing(error):
            with pytest.raises(AutodiffError) as caught:
                lower_graph(GRAPH, **arguments)
            assert caught.value is error
            assert caught.value.__cause__ is None


@pytest.mark.parametrize("error", OUTCRIES, ids=repr)
def test_what_ends_a_program_propagates(error: BaseException) -> None:
    for arguments in failing(error):
        with pytest.raises(type(error)) as caught:
            lower_graph(GRAPH, **arguments)
        assert caught.value is error


# --------------------------------------------------------------------------------------------------------- re-entrancy


def test_a_handler_and_a_binder_may_lower_another_graph() -> None:
    inner = Recorder()

    def nested(_argument: Any) -> Any:
        return lower_graph(GRAPH, handlers=inner.registry, bind_input=bind_text).output_values[0]

    lowered = lower_graph(GRAPH, handlers=Recorder(lower=nested).registry, bind_input=nested)
    assert set(lowered.values.values()) == {"b(a(x), y, a(x))"}
    assert inner.node_ids == ["n_a", "n_b"] * 4


def test_a_handler_may_lower_its_own_operation_through_its_own_registry() -> None:
    depth = 0

    def nested(context: OperationContext) -> Any:
        nonlocal depth
        depth += 1
        if depth == 3:
            return "bottom"
        return lower_graph(GRAPH, handlers=recorder.registry, outputs=["a"]).values["a"]

    recorder = Recorder(lower=nested)
    assert lower_graph(GRAPH, handlers=recorder.registry, outputs=["a"]).output_values == ("bottom",)


def test_a_handler_that_is_registered_during_the_walk_is_too_late() -> None:
    registry = OperationHandlerRegistry()

    @registry.handler(AnyOperator)
    class Registering:
        def lower(self, context: OperationContext) -> Any:
            if not registry.has_handler(OtherOperator):
                registry.register(Other())
            return "own"

    class Other:
        operator_type: type[TensorOperator] = OtherOperator

        def lower(self, context: OperationContext) -> Any:
            return "other"

    mixed = dag(op("a", "x"), op("b", "a", operator=OtherOperator()), outputs=["b"])
    refused("unsupported_operator", lower_graph, mixed, handlers=registry, saying="'n_b'")
    assert not registry.has_handler(OtherOperator)
    lower_graph(mixed, handlers=registry, outputs=["a"])
    assert lower_graph(mixed, handlers=registry).output_values == ("other",)
