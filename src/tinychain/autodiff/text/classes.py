"""Which operator classes a reader knows by name, and making their instances; what is not given is never looked up."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tinychain.autodiff.errors import quote
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.text.notation import PACKAGE_OPERATORS


def operator_classes(own: object) -> dict[str, type[TensorOperator]]:
    """Class name -> class: the package's, and the caller's `own`, which hide them. TypeError for a bad `own`."""
    if not isinstance(own, Iterable):
        raise TypeError(f"operators must be an iterable of TensorOperator subclasses, got {quote(own)}")
    classes: dict[str, type[TensorOperator]] = {}
    for operator in own:
        if not (isinstance(operator, type) and issubclass(operator, TensorOperator)):
            raise TypeError(f"operators must hold TensorOperator subclasses, got {quote(operator)}")
        if classes.setdefault(operator.__name__, operator) is not operator:
            raise TypeError(f"operators holds two classes of the name {quote(operator.__name__)}; rename one")
    package: list[type[TensorOperator]] = [TensorOperator, *PACKAGE_OPERATORS.values()]
    return {**{operator.__name__: operator for operator in package}, **classes}


def make_operator(class_: type[TensorOperator], route_name: str | None) -> TensorOperator | None:
    """An instance with this route name (None for the class's own), or None if the class makes none."""
    for arguments in ((), (route_name,)):
        with suppress(Exception):
            operator = class_(*arguments)
            if route_name in (None, operator.route_name):
                return operator
    return None
