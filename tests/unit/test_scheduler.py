"""Running a program node by node: order, symbols, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysed import refused
from by_hand import F32, METADATA, OBJECT
from dags import gradient, op
from lowered import FAILURES, OUTCRIES, MuteError, raising
from opaque import Opaque
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import AutodiffResult, DerivativeProgram, TensorNodeRecord
from tinychain.autodiff.scheduler import ExecutionScheduler

SYMBOLIC = {"dtype": "f32", "shape": ["N", "M"]}


class Dispatch:
    """Answers in text and keeps what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[TensorNodeRecord, Any]] = []

    def __call__(self, node: TensorNodeRecord, args: list[Any]) -> Any:
        self.calls.append((node, args))
        return f"{node.output_value_id}({', '.join(map(str, args))})"


def run(program: DerivativeProgram, dispatch: Any = None, **values: Any) -> list[Any]:
    return ExecutionScheduler(dispatch or Dispatch()).execute(program, values=values).gradients


def resolved(params: dict[str, Any], specs: Any = (), bindings: Any = None, **values: Any) -> dict[str, Any]:
    """The params of the one node of a program, as the dispatch sees them."""
    dispatch = Dispatch()
    program = gradient(op("d", **params), outputs=["d"], specs=specs)
    ExecutionScheduler(dispatch).execute(program, values=values, shape_bindings=bindings)
    return dispatch.calls[0][0].op_params


def shaped(*shape: Any) -> Any:
    return SimpleNamespace(shape=shape)


# ---------------------------------------------------------------------------------------------------------- execution


def test_nodes_run_in_list_order() -> None:
    dispatch = Dispatch()
    program = gradient(op("d0", "seed"), op("unread", "x"), op("d1", "d0", "x", "d0"), outputs=["d1", "d0"])
    result = ExecutionScheduler(dispatch).execute(program, values={"seed": "s", "x": "x"})
    assert result == AutodiffResult(gradients=["d1(d0(s), x, d0(s))", "d0(s)"], metadata=METADATA)
    assert [node.node_id for node, _ in dispatch.calls] == ["n_d0", "n_unread", "n_d1"]


def test_a_dispatch_is_given_the_record_and_a_list() -> None:
    dispatch = Dispatch()
    program = gradient(op("d0", "x", "x", axes=[0]), outputs=["d0"])
    run(program, dispatch, x=1)
    ((node, args),) = dispatch.calls
    assert node == program.nodes[0]
    assert type(args) is list
    assert args == [1, 1]


def test_a_dispatch_cannot_reach_the_program() -> None:
    def spoil(node: TensorNodeRecord, args: list[Any]) -> int:
        node.op_params["axes"].append(7)
        return 1

    program = gradient(op("d0", "x", axes=[0]), outputs=["d0"])
    ExecutionScheduler(spoil).execute(program, values={"x": 1})
    assert program.nodes[0].op_params == {"axes": [0]}


def test_a_gradient_may_be_a_given_value_and_come_twice() -> None:
    assert run(gradient(outputs=["seed", "seed"]), seed="s") == ["s", "s"]


def test_a_none_among_the_output_gradients_is_none() -> None:
    assert run(gradient(op("d0", "x"), outputs=["d0", None]), x=1) == ["d0(1)", None]


def test_none_and_opaque_values_are_passed_on() -> None:
    value = Opaque()
    program = gradient(op("d0", "x"), op("d1", "d0"), outputs=["d0", "d1"])
    first, second = run(program, lambda node, args: None if node.node_id == "n_d0" else value, x=Opaque())
    assert first is None
    assert second is value


def test_the_given_values_are_as_they_were() -> None:
    values = {"x": 1}
    ExecutionScheduler(Dispatch()).execute(gradient(op("d0", "x"), outputs=["d0"]), values=values)
    assert values == {"x": 1}


def test_a_scheduler_may_run_inside_its_own_dispatch() -> None:
    def nested(node: TensorNodeRecord, args: list[Any]) -> Any:
        return args[0] if args[0] > 2 else scheduler.execute(program, values={"x": args[0] + 1}).gradients[0]

    scheduler = ExecutionScheduler(nested)
    program = gradient(op("d0", "x"), outputs=["d0"])
    assert scheduler.execute(program, values={"x": 0}).gradients == [3]


def test_a_long_program_runs() -> None:
    size = 100_000
    nodes = [op(f"d{i}", f"d{i - 1}" if i else "x") for i in range(size)]
    assert run(gradient(*nodes, outputs=[f"d{size - 1}"]), lambda node, args: args[0] + 1, x=0) == [size]


# ------------------------------------------------------------------------------------------------------------ missing


def test_an_absent_operand_is_named() -> None:
    program = gradient(op("d0", "x", "nowhere"), outputs=["d0"])
    saying = "'nowhere', operand of node 'n_d0', is neither given nor computed before"
    with pytest.raises(AutodiffError, match=saying) as caught:
        run(program, x=1)
    assert caught.value.category == "missing_derivative_ir"


def test_an_operand_that_is_computed_later_is_absent() -> None:
    refused("missing_derivative_ir", run, gradient(op("d1", "d0"), op("d0"), outputs=["d1"]), saying="'d0', operand")


def test_an_absent_output_gradient_is_named() -> None:
    refused("missing_derivative_ir", run, gradient(outputs=["nowhere"]), saying="'nowhere', an output gradient")


# ------------------------------------------------------------------------------------------------------------ symbols


@pytest.mark.parametrize("key", ["shape", "target_shape"])
def test_a_symbol_in_a_shape_is_resolved_by_a_given_binding(key: str) -> None:
    assert resolved({key: ["N", 3, "M"]}, bindings={"N": 2, "M": 0}) == {key: [2, 3, 0]}


def test_a_symbol_is_bound_by_the_shape_of_a_given_value() -> None:
    found = resolved({"shape": ["M", "N"]}, {"x": SYMBOLIC}, x=np.zeros((2, 5)))
    assert found == {"shape": [5, 2]}
    assert {type(size) for size in found["shape"]} == {int}


def test_sizes_of_other_int_types_become_plain_ints() -> None:
    class Size(IntEnum):
        FOUR = 4

    found = resolved({"shape": ["N", "M", "K"]}, {"x": SYMBOLIC}, {"K": Size.FOUR}, x=shaped(np.int64(2), Size.FOUR))
    assert found == {"shape": [2, 4, 4]}
    assert {type(size) for size in found["shape"]} == {int}


def test_other_params_and_concrete_shapes_are_as_they_were() -> None:
    assert resolved({"shape": (2, 3), "axes": [0], "layout": "N"}, bindings={"N": 4}) == {
        "shape": (2, 3),
        "axes": [0],
        "layout": "N",
    }


def test_the_program_is_as_it_was() -> None:
    program = gradient(op("d", shape=["N"]), outputs=["d"])
    ExecutionScheduler(Dispatch()).execute(program, values={}, shape_bindings={"N": 2})
    assert program.nodes[0].op_params == {"shape": ["N"]}


@pytest.mark.parametrize("key", ["shape", "target_shape"])
def test_a_symbol_that_nothing_binds_is_refused(key: str) -> None:
    saying = rf"{key} of node 'n_d' has the symbol 'M'"
    refused("unresolved_symbolic_shape", resolved, {key: ["N", "M"]}, (), {"N": 2}, saying=saying)


@pytest.mark.parametrize(
    ("bindings", "values"),
    [
        pytest.param({"N": 3}, {"x": shaped(2, 5)}, id="a binding and a value"),
        pytest.param(None, {"x": shaped(2, 5), "y": shaped(3, 5)}, id="two values"),
        pytest.param(None, {"x": shaped(2, 5), "z": shaped(2, 2)}, id="a shared symbol"),
        pytest.param(None, {"x": shaped(2, 5, 1)}, id="rank"),
        pytest.param(None, {"w": shaped(4)}, id="a concrete dim"),
    ],
)
def test_shapes_that_conflict_are_refused_before_any_dispatch(bindings: Any, values: dict[str, Any]) -> None:
    dispatch = Dispatch()
    specs = {"x": SYMBOLIC, "y": SYMBOLIC, "z": {"dtype": "f32", "shape": ["L", "M"]}, "w": F32}
    program = gradient(op("d0"), outputs=["d0"], specs=specs)
    with pytest.raises(AutodiffError, match=r"value '\w' has shape \[.*\]; the program declares") as caught:
        ExecutionScheduler(dispatch).execute(program, values=values, shape_bindings=bindings)
    assert caught.value.category == "symbolic_shape_mismatch"
    assert dispatch.calls == []


class Reluctant:
    """Raises where it is asked for its shape."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("no shape yet")


UNREADABLE = [None, 1.0, OBJECT, Reluctant(), shaped(None, 2), shaped("a", "b"), SimpleNamespace(shape="ab")]


@pytest.mark.parametrize("value", UNREADABLE)
def test_a_value_without_a_readable_shape_binds_nothing(value: Any) -> None:
    assert resolved({"shape": ["N"]}, {"x": SYMBOLIC}, {"N": 7}, x=value) == {"shape": [7]}


def test_a_value_whose_typespec_is_not_known_binds_nothing() -> None:
    assert resolved({"shape": ["N"]}, {"x": {"dtype": "f32"}}, {"N": 7}, x=shaped(3), y=shaped(4)) == {"shape": [7]}


# --------------------------------------------------------------------------------------------------------- exceptions


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_an_exception_of_the_dispatch_is_chained(error: Exception) -> None:
    def fail(node: TensorNodeRecord, args: list[Any]) -> Any:
        raise error

    saying = rf"dispatch failed on node 'n_d0' \(AnyOperator\): {type(error).__name__}: .*odd"
    with pytest.raises(AutodiffError, match=saying) as caught:
        run(gradient(op("d0"), outputs=["d0"]), fail)
    assert caught.value.category == "missing_derivative_ir"
    assert caught.value.__cause__ is error


def test_an_absent_param_is_a_failure_of_the_node() -> None:
    program = gradient(op("d0"), outputs=["d0"])
    refused("missing_derivative_ir", run, program, lambda node, args: node.op_params["axes"], saying="KeyError: 'axes'")


def test_an_exception_without_text_is_named_all_the_same() -> None:
    def fail(node: TensorNodeRecord, args: list[Any]) -> Any:
        raise MuteError

    refused("missing_derivative_ir", run, gradient(op("d0"), outputs=["d0"]), fail, saying="MuteError")


@pytest.mark.parametrize("error", [AutodiffError("shape_mismatch", "mine"), *OUTCRIES], ids=repr)
def test_what_is_categorized_or_ends_a_program_propagates(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        run(gradient(op("d0"), outputs=["d0"]), lambda node, args: raising(error)(args))
    assert caught.value is error


# ------------------------------------------------------------------------------------------------------ bad arguments


@pytest.mark.parametrize("bad", [None, 3, "dispatch"])
def test_a_dispatch_that_cannot_be_called_is_a_type_error(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"dispatch must be callable as dispatch\(node, args\)"):
        ExecutionScheduler(bad)


def of(**fields: Any) -> DerivativeProgram:
    return replace(gradient(outputs=["x"]), **fields)


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        ({"program": None}, "program must be a DerivativeProgram"),
        ({"program": of(nodes=None)}, "nodes of program must be a list"),
        ({"program": of(nodes=["node"])}, "nodes of program must hold TensorNodeRecords"),
        ({"program": of(value_typespecs=[])}, "value_typespecs of program must be a mapping"),
        ({"program": of(output_gradients="x")}, "output_gradients of program must be a list"),
        ({"values": None}, "values must be a mapping"),
        ({"values": [("x", 1)]}, "values must be a mapping"),
        ({"shape_bindings": [("N", 1)]}, "shape_bindings must be a mapping"),
        ({"shape_bindings": "N"}, "shape_bindings must be a mapping"),
    ],
)
def test_an_argument_of_another_kind_is_a_type_error(arguments: dict[str, Any], saying: str) -> None:
    arguments = {"program": of(), "values": {"x": 1}, **arguments}
    with pytest.raises(TypeError, match=saying):
        ExecutionScheduler(Dispatch()).execute(**arguments)


@pytest.mark.parametrize("size", [-1, True, None, 2.0, "3", [2]])
def test_a_binding_that_is_no_size_is_a_value_error(size: Any) -> None:
    with pytest.raises(ValueError, match=r"shape_bindings binds 'N' to .*; expected a non-negative int"):
        resolved({"shape": ["N"]}, bindings={"N": size})
