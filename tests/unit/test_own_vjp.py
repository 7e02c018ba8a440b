"""Operators of a user's own in a differentiated graph: with a VJP, without one, and with one that misbehaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from by_hand import graph, producing
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorOperator
from tinychain.autodiff.operators import AddOperator, FillOperator, MulOperator
from tinychain.autodiff.reverse import generate
from tinychain.autodiff.testing import check_gradients
from tinychain.autodiff.tracing import TensorGraphBuilder
from tinychain.autodiff.types import TensorType

F32 = {"dtype": "f32", "shape": [2]}


class Silent(TensorOperator):
    """It declares nothing but its name."""

    route_name = "silent"


class Cube(TensorOperator):
    route_name = "cube"

    def operand_count(self, op_params: Any) -> int:
        return 1

    def result_type(self, symbols: Any, x: TensorType) -> TensorType:
        return x

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        (x,) = node.input_value_ids
        return (lambda: emit(MulOperator, g, emit(MulOperator, emit(MulOperator, x, x), right_literal=3.0)),)

    def reference(self, xp: Any, x: Any) -> Any:
        return x * x * x


class Total(TensorOperator):
    """The sum of any number of operands; the first two gradients are emitted on demand."""

    route_name = "total"

    def vjp(self, emit: Any, node: Any, g: str) -> Any:
        return [g for _ in node.input_value_ids]


class Scripted(TensorOperator):
    """Its VJP is what the test says; a subclass per test, so that none sees another's."""

    route_name = "scripted"


def scripted(vjp: Callable[..., Any], **attributes: Any) -> TensorOperator:
    return type("Scripted", (Scripted,), {"vjp": vjp, **attributes})()  # type: ignore[no-any-return]


def returning(entries: Any) -> TensorOperator:
    return scripted(lambda self, emit, node, g: entries)


def around(operator: TensorOperator, *operands: str) -> TensorGraph:
    """z = operator(x, ...), typed."""
    return graph(
        producing("z", operator, *(operands or ("x",)), typespec=F32), inputs=[("x", F32), ("y", F32)], outputs=["z"]
    )


def refused(operator: TensorOperator, *operands: str) -> AutodiffError:
    with pytest.raises(AutodiffError) as caught:
        generate(around(operator, *operands), "z", ["x"], "s")
    return caught.value


# -------------------------------------------------------------------------------------------------------------- served


def test_an_operator_of_ones_own_is_traced_and_differentiated_twice() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f64", shape=[2, 3])
        y = builder.apply(Cube, [x * 2.0], {})
    check_gradients(builder.build(outputs=y), order=2)


def test_an_operator_without_type_rule_is_differentiated_by_its_vjp() -> None:
    program = generate(around(Total(), "x", "y", "x"), "z", ["x", "y"], "s")
    assert [(n.operator, n.input_value_ids) for n in program.nodes] == [(AddOperator(), ["s", "s"])]
    assert program.gradients == {"x": "d0", "y": "s"}


def test_an_entry_is_called_only_where_its_gradient_is_needed() -> None:
    called: list[str] = []

    def vjp(self: Any, emit: Any, node: Any, g: str) -> Any:
        def entry(name: str) -> Callable[[], str]:
            return lambda: called.append(name) or g  # type: ignore[func-returns-value]

        return tuple(entry(name) for name in node.input_value_ids)

    generate(around(scripted(vjp), "y", "x"), "z", ["x"], "s")
    assert called == ["x"]


def test_none_means_that_no_gradient_flows() -> None:
    program = generate(around(returning((None, lambda: "s")), "y", "x"), "z", ["x"], "s")
    assert program.gradients == {"x": "s"}
    error = refused(returning((None,)))
    assert error.category == "missing_derivative_behavior"
    assert "'x'" in error.message


def test_the_engine_undoes_a_broadcast_of_an_own_operator() -> None:
    wide = {"dtype": "f32", "shape": [4, 2]}
    artifact = graph(producing("z", Total(), "x", "w", typespec=wide), inputs=[("x", F32), ("w", wide)])
    program = generate(artifact, "z", ["x"], "s")
    assert [n.op_params for n in program.nodes] == [{"target_shape": [2]}]


# ------------------------------------------------------------------------------------------------------- without a VJP


def test_an_operator_without_vjp_on_the_path_is_named_with_its_node() -> None:
    error = refused(Silent())
    assert error.category == "missing_derivative_behavior"
    assert "Silent" in error.message
    assert "'n_z'" in error.message
    assert "define vjp" in error.message


def test_an_operator_without_vjp_off_the_path_is_no_matter() -> None:
    def program(*nodes: Any) -> DerivativeProgram:
        return generate(graph(*nodes, inputs=[("x", F32), ("y", F32)]), "z", ["x"], "s")

    before = producing("a", Silent(), "y", typespec=F32)
    assert program(before, producing("z", MulOperator(), "x", "a", typespec=F32)).gradients == {"x": "d0"}
    beside = producing("a", Silent(), "x", typespec=F32)
    assert program(beside, producing("z", MulOperator(), "x", "y", typespec=F32)).gradients == {"x": "d0"}


def test_an_operator_without_vjp_after_an_intermediate_wrt_is_met() -> None:
    nodes = [producing("a", MulOperator(), "x", "y", typespec=F32), producing("z", Silent(), "a", typespec=F32)]
    with pytest.raises(AutodiffError, match="Silent"):
        generate(graph(*nodes, inputs=[("x", F32), ("y", F32)]), "z", ["a"], "s")
    behind = [producing("a", Silent(), "x", typespec=F32), producing("z", MulOperator(), "a", "y", typespec=F32)]
    assert generate(graph(*behind, inputs=[("x", F32), ("y", F32)]), "z", ["a"], "s").gradients == {"a": "d0"}


# --------------------------------------------------------------------------------------------------------- misbehaving


def _raising(error: BaseException) -> TensorOperator:
    def vjp(self: Any, emit: Any, node: Any, g: str) -> Any:
        raise error

    return scripted(vjp)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error",
    [KeyError("q"), AttributeError("q"), RecursionError("q"), OverflowError("q"), _Unprintable(), StopIteration()],
)
def test_a_vjp_that_raises_is_missing_behavior_and_chained(error: Exception) -> None:
    caught = refused(_raising(error))
    assert caught.category == "missing_derivative_behavior"
    assert type(error).__name__ in caught.message
    assert "Scripted" in caught.message
    assert "'n_z'" in caught.message
    assert caught.__cause__ is error


def test_a_vjp_that_raises_a_categorized_error_keeps_its_category() -> None:
    caught = refused(_raising(AutodiffError("non_differentiable_route", "has a kink")))
    assert caught.category == "non_differentiable_route"
    assert "'n_z'" in caught.message
    assert "has a kink" in caught.message


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_is_no_exception_propagates(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        generate(around(_raising(error)), "z", ["x"], "s")
    assert caught.value is error


@pytest.mark.parametrize("entries", [None, 5, "s", (), ("s", "s"), {"x": "s"}, {"s"}, iter(["s"]), np.array(["s"])])
def test_a_vjp_returns_one_entry_for_each_operand(entries: Any) -> None:
    error = refused(returning(entries))
    assert error.category == "missing_derivative_behavior"
    assert "one entry for each of 1 operands" in error.message
    assert "'n_z'" in error.message


@pytest.mark.parametrize("entry", [5, b"s", [], ["s"], object(), lambda: 5, list, lambda: lambda: "s"])
def test_an_entry_is_a_value_id(entry: Any) -> None:
    error = refused(returning((entry,)))
    assert error.category == "missing_derivative_behavior"
    assert "expected a value id" in error.message


def test_an_entry_that_raises_is_missing_behavior() -> None:
    empty: dict[str, str] = {}
    error = refused(returning((lambda: empty["q"],)))
    assert error.category == "missing_derivative_behavior"
    assert "KeyError" in error.message


@pytest.mark.parametrize("entry", ["nowhere", lambda: "nowhere"])
def test_a_gradient_of_nowhere_is_refused(entry: Any) -> None:
    error = refused(returning((entry,)))
    assert error.category == "missing_derivative_behavior"
    assert "'nowhere'" in error.message


def test_an_emitted_node_that_reads_a_value_of_nowhere_is_refused() -> None:
    error = refused(scripted(lambda self, emit, node, g: (emit(MulOperator, g, "nowhere"),)))
    assert error.category == "missing_derivative_behavior"
    assert "'nowhere'" in error.message


@pytest.mark.parametrize(
    ("dtype", "shape", "category"),
    [
        ("f64", [2], "dtype_mismatch"),
        ("f32", [3], "broadcast_shape_mismatch"),
        ("f32", [1], "broadcast_shape_mismatch"),
    ],
)
def test_a_gradient_of_another_type_is_refused(dtype: str, shape: list[int], category: str) -> None:
    error = refused(
        scripted(lambda self, emit, node, g: (lambda: emit(FillOperator, fill=1.0, dtype=dtype, shape=shape),))
    )
    assert error.category == category
    assert "'n_z'" in error.message


@pytest.mark.parametrize(
    ("emission", "category"),
    [
        (lambda emit, g: emit(AddOperator, g), "malformed_derivative_ir"),
        (lambda emit, g: emit(AddOperator, g, g, more=1), "malformed_derivative_ir"),
        (lambda emit, g: emit(Silent, g), "autodiff_not_implemented"),
        (lambda emit, g: emit("add", g, g), "missing_derivative_behavior"),
        (lambda emit, g: emit(AddOperator, g, []), "missing_derivative_behavior"),
    ],
)
def test_an_emission_that_cannot_be_is_categorized(emission: Callable[..., Any], category: str) -> None:
    error = refused(scripted(lambda self, emit, node, g: (emission(emit, g),)))
    assert error.category == category
    assert "'n_z'" in error.message


# ---------------------------------------------------------------------------------------------------- own type rules


@pytest.mark.parametrize("result", [None, 5, ("f32", (2,)), {"dtype": "f32", "shape": [2]}])
def test_a_type_rule_returns_a_type(result: Any) -> None:
    operator = type(scripted(lambda *_: ("s",), result_type=lambda self, symbols, x: result))
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(AutodiffError, match="must return a TensorType") as caught:
            builder.apply(operator, [x], {})
        assert builder.build().nodes == []
    assert caught.value.category == "malformed_derivative_ir"


def test_a_type_rule_that_raises_is_categorized_and_binds_nothing() -> None:
    def result_type(self: Any, symbols: Any, x: TensorType) -> TensorType:
        symbols["N"] = 3
        raise KeyError("q")

    operator = type(scripted(lambda *_: ("s",), result_type=result_type))
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=["N"])
        with pytest.raises(AutodiffError, match=r"Scripted\('v0': f32\[N\]\): KeyError") as caught:
            builder.apply(operator, [x], {})
        assert builder.symbols == {}
        assert builder.build().nodes == []
    assert caught.value.category == "malformed_derivative_ir"
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("operator", [AddOperator(), "add", None, int])
def test_apply_takes_an_operator_class(operator: Any) -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(TypeError, match="subclass of TensorOperator"):
            builder.apply(operator, [x, x], {})


def test_apply_takes_tensors_and_an_active_trace() -> None:
    with TensorGraphBuilder() as builder:
        x = builder.input("x", dtype="f32", shape=[2])
        with pytest.raises(TypeError, match="an operand must be a Tensor, got 5"):
            builder.apply(AddOperator, [x, 5], {})  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="active trace"):
        builder.apply(AddOperator, [x, x], {})
    assert builder.build().nodes == []
