"""Which handler lowers which operator class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.lowering.records import OperationHandler, raised, violation

HandlerClass = TypeVar("HandlerClass", bound=type)


class OperationHandlerRegistry:
    """One handler per operator class, found by the exact class: neither a subclass nor a route name matches."""

    def __init__(self) -> None:
        self._handlers: dict[type[TensorOperator], OperationHandler] = {}

    def register(self, handler: OperationHandler) -> None:
        """Adds a handler for its `operator_type`.

        Raises handler_contract_violation for one without a TensorOperator subclass as `operator_type` or without a
        callable `lower`, and for a second handler of a type.
        """
        try:
            operator_type = getattr(handler, "operator_type", None)
        except Exception as error:
            raise raised(f"the operator_type of the handler {quote(handler)}", error) from error
        self._add(operator_type, handler)

    def handler(self, operator_type: type[TensorOperator]) -> Callable[[HandlerClass], HandlerClass]:
        """A class decorator that registers an instance; the class need not declare `operator_type`.

        Raises as `register` does, and for a class that cannot be made without arguments.
        """
        _check_operator_type(operator_type, "the argument of handler")

        def decorate(handler_class: HandlerClass) -> HandlerClass:
            if not isinstance(handler_class, type):
                raise violation(f"the handler for {operator_type.__name__} must be a class, got {quote(handler_class)}")
            declared = vars(handler_class).get("operator_type", operator_type)  # a base may serve another operator
            if declared is not operator_type:
                raise violation(f"{quote(handler_class)} declares {quote(declared)}, not {operator_type.__name__}")
            handler_class.operator_type = operator_type  # type: ignore[attr-defined]
            try:
                instance = handler_class()
            except Exception as error:
                raise violation(
                    f"{quote(handler_class)} for {operator_type.__name__} cannot be made without arguments:"
                    f" {describe(error)}"
                ) from error
            self._add(operator_type, instance)
            return handler_class

        return decorate

    def lookup(self, operator: TensorOperator | type[TensorOperator]) -> OperationHandler:
        """The handler of an operator or of its class; unsupported_operator if there is none."""
        operator_type = operator if isinstance(operator, type) else type(operator)
        handler = self._handlers.get(operator_type)
        if handler is None:
            raise AutodiffError(
                "unsupported_operator", f"no lowering handler registered for operator type {operator_type.__name__!r}"
            )
        return handler

    def has_handler(self, operator: TensorOperator | type[TensorOperator]) -> bool:
        """Whether `lookup` would find one."""
        return (operator if isinstance(operator, type) else type(operator)) in self._handlers

    def supported_types(self) -> tuple[type[TensorOperator], ...]:
        """The operator classes in the order of their registration."""
        return tuple(self._handlers)

    def _add(self, operator_type: Any, handler: Any) -> None:
        _check_operator_type(operator_type, f"operator_type of {quote(handler)}")
        try:
            has_lower = callable(getattr(handler, "lower", None))
        except Exception as error:
            raise raised(f"reading lower of the handler for {operator_type.__name__}", error) from error
        if not has_lower:
            raise violation(f"the handler {quote(handler)} for {operator_type.__name__} has no callable lower(context)")
        if operator_type in self._handlers:
            raise violation(f"{operator_type.__name__} already has the handler {quote(self._handlers[operator_type])}")
        self._handlers[operator_type] = handler


def _check_operator_type(operator_type: object, label: str) -> None:
    if not isinstance(operator_type, type) or not issubclass(operator_type, TensorOperator):
        raise violation(f"{label} must be a TensorOperator subclass, got {quote(operator_type)}")
