"""Which handler a registry finds, and which registrations it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from analysed import refused
from by_hand import OBJECT
from dags import AnyOperator, OtherOperator
from strategies import TwinOfMulOperator
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.lowering import OperationContext, OperationHandler, OperationHandlerRegistry
from tinychain.autodiff.operators import AddOperator, MulOperator


class Handler:
    """A handler of any type."""

    def __init__(self, operator_type: Any = AddOperator) -> None:
        self.operator_type = operator_type

    def lower(self, context: OperationContext) -> Any:
        return context.node_id


def violated(saying: str, call: Callable[..., Any], *args: Any) -> None:
    refused("handler_contract_violation", call, *args, saying=saying)


def test_a_registered_handler_is_found_by_operator_and_by_class() -> None:
    registry, handler = OperationHandlerRegistry(), Handler()
    registry.register(handler)
    assert registry.lookup(AddOperator()) is handler
    assert registry.lookup(AddOperator) is handler
    assert registry.has_handler(AddOperator())
    assert registry.has_handler(AddOperator)


def test_a_lookup_that_fails_says_exactly_so() -> None:
    with pytest.raises(AutodiffError) as caught:
        OperationHandlerRegistry().lookup(MulOperator())
    assert caught.value == AutodiffError(
        "unsupported_operator", "no lowering handler registered for operator type 'MulOperator'"
    )


def test_neither_a_route_name_nor_inheritance_matches() -> None:
    registry = OperationHandlerRegistry()
    registry.register(Handler(MulOperator))
    registry.register(Handler(AnyOperator))
    for operator in (TwinOfMulOperator(), OtherOperator(), TensorOperator("mul")):
        assert not registry.has_handler(operator)
        refused("unsupported_operator", registry.lookup, operator, saying=operator.name)


def test_the_supported_types_come_in_registration_order() -> None:
    registry = OperationHandlerRegistry()
    types = (MulOperator, AddOperator, AnyOperator)
    for operator_type in types:
        registry.register(Handler(operator_type))
    assert registry.supported_types() == types
    assert OperationHandlerRegistry().supported_types() == ()


@pytest.mark.parametrize("bad", [None, 3, "add", OBJECT, int, AddOperator(), object])
def test_an_operator_type_of_another_kind_is_refused(bad: Any) -> None:
    registry = OperationHandlerRegistry()
    violated("must be a TensorOperator subclass, got", registry.register, Handler(bad))
    violated("must be a TensorOperator subclass, got", registry.handler, bad)
    assert registry.supported_types() == ()


def test_a_handler_without_operator_type_is_refused() -> None:
    violated("operator_type", OperationHandlerRegistry().register, OBJECT)


def test_a_handler_whose_operator_type_raises_is_refused() -> None:
    class Broken:
        @property
        def operator_type(self) -> type[TensorOperator]:
            raise RuntimeError("not today")

    violated("RuntimeError: not today", OperationHandlerRegistry().register, Broken())


@pytest.mark.parametrize("lower", [None, 3, "lower"])
def test_a_handler_without_callable_lower_is_refused(lower: Any) -> None:
    handler: Any = Handler()
    handler.lower = lower
    violated(r"for AddOperator has no callable lower", OperationHandlerRegistry().register, handler)


def test_a_second_handler_of_a_type_is_refused_and_the_first_stays() -> None:
    registry, first = OperationHandlerRegistry(), Handler()
    registry.register(first)
    violated("AddOperator already has", registry.register, Handler())
    violated("AddOperator already has", registry.handler(AddOperator), type("Second", (Handler,), {}))
    assert registry.lookup(AddOperator()) is first


# ---------------------------------------------------------------------------------------------------------- decorator


def test_the_decorator_registers_an_instance_and_returns_the_class() -> None:
    registry = OperationHandlerRegistry()

    @registry.handler(MulOperator)
    class Mul:
        def lower(self, context: OperationContext) -> Any:
            return context.node_id

    handler = registry.lookup(MulOperator())
    assert isinstance(handler, Mul)
    assert isinstance(handler, OperationHandler)
    assert handler.operator_type is MulOperator


def test_a_decorated_class_may_declare_the_same_type() -> None:
    registry = OperationHandlerRegistry()

    @registry.handler(MulOperator)
    class Mul:
        operator_type = MulOperator

        def lower(self, context: OperationContext) -> Any:
            return context.node_id

    assert isinstance(registry.lookup(MulOperator), Mul)


def test_a_decorated_class_may_extend_the_handler_of_another_type() -> None:
    registry = OperationHandlerRegistry()

    @registry.handler(MulOperator)
    class Mul:
        def lower(self, context: OperationContext) -> Any:
            return context.node_id

    @registry.handler(AddOperator)
    class Add(Mul):
        pass

    assert registry.lookup(AddOperator).operator_type is AddOperator
    assert registry.lookup(MulOperator).operator_type is MulOperator
    assert isinstance(registry.lookup(AddOperator), Add)


def test_a_decorated_class_that_declares_another_type_is_refused() -> None:
    class Mul:
        operator_type = MulOperator

        def lower(self, context: OperationContext) -> Any:
            return context.node_id

    violated("declares .*MulOperator.*, not AddOperator", OperationHandlerRegistry().handler(AddOperator), Mul)


def test_a_decorated_class_that_cannot_be_made_is_refused() -> None:
    class Needs:
        def __init__(self, device: str) -> None:
            self.device = device

        def lower(self, context: OperationContext) -> Any:
            return context.node_id

    violated("for AddOperator cannot be made.*device", OperationHandlerRegistry().handler(AddOperator), Needs)


def test_a_decorated_class_without_lower_is_refused() -> None:
    violated("no callable lower", OperationHandlerRegistry().handler(AddOperator), type("Empty", (), {}))


@pytest.mark.parametrize("bad", [None, 3, Handler(), len])
def test_only_a_class_can_be_decorated(bad: Any) -> None:
    violated("for AddOperator must be a class", OperationHandlerRegistry().handler(AddOperator), bad)
