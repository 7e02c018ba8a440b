"""What a machine has: its operators, each with the limits of its form. Legalization makes programs fit it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import copysign, inf, isnan, prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import Record, TensorOperator
from tinychain.autodiff.lowering import OperationHandlerRegistry
from tinychain.autodiff.operators import FillOperator, MatmulOperator
from tinychain.autodiff.types import FLOATING_DTYPES, TensorType, as_int, check_literal

_LARGEST: Final = 2**63
_MANY: Final = 2**1000  # FLOPs that a float can hold
_RIGHT: Final = ("any", "constant", "literal")


class Form(NamedTuple):
    """All that decides whether a machine can run a node: what it computes, on which types, on which constants."""

    operator: TensorOperator
    op_params: Mapping[str, Any]
    operands: tuple[TensorType, ...]
    result: TensorType
    constants: tuple[bool, ...]  # which operands are fills or constants

    def __str__(self) -> str:
        return f"{self.operator.name}({', '.join(map(str, self.operands))}) -> {self.result}"


@dataclass(frozen=True)
class Limits(Record):
    """What the machine's form of one operator takes. By default it takes everything.

    `min_rank` and `max_rank` hold for operands and result alike. `broadcasts`: whether operands of different shapes
    (for a matmul: batch dims) are stretched implicitly. `literals`: whether the one-operand form with a right_literal
    exists. `right`: whether a second operand may be "any", must be a "constant" (a fill or a constant), or must be a
    "literal". `fills`: the numbers that a fill may have, None for all. `symbols`: whether dims may be symbols; they
    never fit where `max_dim` or `max_elements` bounds every tensor. `plain_levels` and `secret_levels`: how many levels
    of multiplicative depth a product of a secret tensor with a plain factor, and of two secret ones, costs. `flop_cost`
    and `node_cost` are what a FLOP of the operator and a node of it cost; of several rewrites the cheapest is taken. A
    wrong value, or one that contradicts another, raises invalid_target with the name of its field.
    """

    dtypes: tuple[str, ...] = FLOATING_DTYPES
    min_rank: int = 0
    max_rank: int | None = None
    broadcasts: bool = True
    literals: bool = True
    right: str = "any"
    fills: tuple[float, ...] | None = None
    symbols: bool = True
    max_dim: int | None = None
    max_elements: int | None = None
    plain_levels: int = 1
    secret_levels: int = 1
    flop_cost: float = 1.0
    node_cost: float = 0.0

    def __post_init__(self) -> None:
        known = isinstance(self.dtypes, tuple) and self.dtypes and all(map(_is_dtype, self.dtypes))
        _check(known, "dtypes", f"one or more of {', '.join(FLOATING_DTYPES)}", self.dtypes)
        for name in ("broadcasts", "literals", "symbols"):
            _check(isinstance(getattr(self, name), bool), name, "a bool", getattr(self, name))
        for name, least in (("min_rank", 0), ("max_rank", self.min_rank), ("max_dim", 1), ("max_elements", 1)):
            self._check_int(name, least)
        for name in ("plain_levels", "secret_levels"):
            self._check_int(name, 0)
        for name in ("flop_cost", "node_cost"):
            cost = getattr(self, name)
            known = _is_number(cost) and 0 <= cost < inf
            _check(known, name, "a finite number of at least 0", cost)
            object.__setattr__(self, name, float(cost))
        _check(isinstance(self.right, str) and self.right in _RIGHT, "right", f"one of {', '.join(_RIGHT)}", self.right)
        _check(self.right != "literal" or self.literals, "right", "any or constant, as literals is false", self.right)
        some = self.fills is None or (isinstance(self.fills, tuple) and self.fills and all(map(_is_number, self.fills)))
        _check(some, "fills", "one or more numbers that a float can hold, or to be left out", self.fills)

    def _check_int(self, name: str, least: int) -> None:
        given = getattr(self, name)
        if given is None and name.startswith("max_"):
            return
        number = as_int(given)
        _check(number is not None and number >= least, name, f"an int of at least {quote(least)}", given)
        _check(number is not None and number < _LARGEST, name, "an int below 2**63", given)
        object.__setattr__(self, name, number)

    def check_for(self, operator: type[TensorOperator]) -> None:
        """Raises invalid_target for limits that no node of this operator class can keep to, or that mean none of it."""
        if operator is MatmulOperator:
            _check(self.max_rank is None or self.max_rank >= 2, "max_rank", "2 or more for a matmul", self.max_rank)
        if "right_literal" not in operator.params:
            expected = f"any or constant, as {operator.__name__} has no form with a literal"
            _check(self.right != "literal", "right", expected, self.right)
        if operator is not FillOperator:
            _check(self.fills is None, "fills", f"to be left out, as {operator.__name__} is no fill", self.fills)

    def refusal(self, form: Form) -> str | None:
        """Why the form does not fit, or None."""
        for type_ in (*form.operands, form.result):
            reason = self._refuses_type(type_)
            if reason is not None:
                return reason
        if "right_literal" in form.op_params and not self.literals:
            return "takes no literal"
        if len(form.operands) > 1:
            if self.right == "literal" or (self.right == "constant" and not form.constants[1]):
                return f"takes a {self.right} as the right operand only"
            if not self.broadcasts and _broadcasts(form):
                return f"does not broadcast {' and '.join(map(str, form.operands))}"
        if self.fills is not None and type(form.operator) is FillOperator and not _is_among(form, self.fills):
            return f"fills with {', '.join(map(quote, self.fills))} only, not with {quote(form.op_params['fill'])}"
        return None

    def _refuses_type(self, type_: TensorType) -> str | None:
        rank, shape = len(type_.shape), type_.shape
        if type_.dtype not in self.dtypes:
            return f"takes {', '.join(self.dtypes)} only, not {type_}"
        if rank < self.min_rank or (self.max_rank is not None and rank > self.max_rank):
            return f"takes {self._ranks()} only, not {type_}"
        if self.symbols and self.max_dim is None and self.max_elements is None:
            return None
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if len(sizes) < rank:
            return f"takes dims of known size only, not {type_}"
        if self.max_dim is not None and max(sizes, default=0) > self.max_dim:
            return f"takes dims of at most {quote(self.max_dim)}, not {type_}"
        if self.max_elements is not None and prod(sizes) > self.max_elements:
            return f"takes at most {quote(self.max_elements)} elements, not {type_}"
        return None

    def _ranks(self) -> str:
        least, most = quote(self.min_rank), quote(self.max_rank)
        if self.max_rank is None:
            return f"rank {least} and above"
        return f"rank {most}" if most == least else f"ranks {least} to {most}"


@dataclass(frozen=True)
class Target:
    """A machine: a name for messages, and the limits of each operator class that it has.

    Raises invalid_target for a name that is no str, a key that is no operator class, and limits that are none or do not
    suit their operator.
    """

    name: str
    operators: Mapping[type[TensorOperator], Limits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(isinstance(self.name, str) and self.name, "name", "a non-empty str", self.name)
        _check(isinstance(self.operators, Mapping), "operators", "a mapping of operator classes", self.operators)
        for operator, limits in self.operators.items():
            is_operator = isinstance(operator, type) and issubclass(operator, TensorOperator)
            _check(is_operator, "operators", "operator classes as keys", operator)
            path = f"operators.{operator.__name__}"
            _check(isinstance(limits, Limits), path, "Limits", limits)
            with below(f"{path}."):
                limits.check_for(operator)
        object.__setattr__(self, "operators", MappingProxyType(dict(self.operators)))

    @classmethod
    def of_handlers(cls, name: str, handlers: OperationHandlerRegistry) -> Target:
        """The machine whose operators are those that have a handler, without limits."""
        _check(isinstance(handlers, OperationHandlerRegistry), "handlers", "an OperationHandlerRegistry", handlers)
        return cls(name, dict.fromkeys(handlers.supported_types(), Limits()))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the name, and the operators as a list of their names and limits."""
        operators = [{"operator": cls.__name__, **limits.to_dict()} for cls, limits in self.operators.items()]
        return {"name": self.name, "operators": operators}

    def cost(self, form: Form, flops: int) -> float:
        """What a node of a form that the machine has costs."""
        limits = self.operators[type(form.operator)]
        return limits.node_cost + limits.flop_cost * min(flops, _MANY)

    def refusal(self, form: Form) -> str | None:
        """Why the machine cannot run a node of this form, or None where it can."""
        limits = self.operators.get(type(form.operator))
        if limits is None:
            return f"{self.name} has no {form.operator.name}"
        reason = limits.refusal(form)
        return None if reason is None else f"{form.operator.name} of {self.name} {reason}"


def _is_among(fill: Form, numbers: tuple[float, ...]) -> bool:
    """Whether a fill has one of the numbers; 0.0 and -0.0 are two."""
    given = fill.op_params["fill"]
    return any(given == number and copysign(1, given) == copysign(1, number) for number in numbers)


def _broadcasts(form: Form) -> bool:
    core = 2 if type(form.operator) is MatmulOperator else 0
    batches = [type_.shape[: len(type_.shape) - core] for type_ in (*form.operands, form.result)]
    return any(batch != batches[0] for batch in batches)


@contextmanager
def below(path: str) -> Iterator[None]:
    """The errors inside say that what is wrong stands below `path`."""
    try:
        yield
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{path}{error.message}") from None


def _is_dtype(value: object) -> bool:
    return isinstance(value, str) and value in FLOATING_DTYPES


def _is_number(value: object) -> bool:
    try:
        return not isnan(check_literal(value))
    except AutodiffError:
        return False


def _check(holds: object, name: str, expected: str, given: object) -> None:
    if not holds:
        raise AutodiffError("invalid_target", f"{name}: expected {expected}, got {quote(given)}")
