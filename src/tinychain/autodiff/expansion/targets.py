"""Targets that are ready to use: the reference machine, and two that can only add, multiply and matmul."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.target import Limits, Target
from tinychain.autodiff.operators import (
    OPERATORS,
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
)

#: Every operator of the package, without limits.
REFERENCE: Final = Target("reference", dict.fromkeys(OPERATORS, Limits()))


def _arithmetic(name: str, limits: Limits) -> Target:
    """Add, multiply and matmul within limits; constants, and reshapes whose element count is known to stay."""
    computing = dict.fromkeys((AddOperator, MulOperator, MatmulOperator), limits)
    moving = dict.fromkeys((FillOperator, ConstantOperator, ReshapeOperator), Limits(symbols=False))
    return Target(name, {**computing, **moving})


#: Adds, multiplies and matmuls at any rank, without broadcasting.
ADD_MUL_MATMUL: Final = _arithmetic("add-mul-matmul", Limits(broadcasts=False))

#: The same for matrices alone. Reshapes, fills and constants have any rank, as they compute nothing.
ADD_MUL_MATMUL_RANK2: Final = _arithmetic("add-mul-matmul-rank2", Limits(min_rank=2, max_rank=2, broadcasts=False))

#: The ready targets by name.
READY_TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {target.name: target for target in (REFERENCE, ADD_MUL_MATMUL, ADD_MUL_MATMUL_RANK2)}
)


def ready_target(name: str) -> Target:
    """The ready target of this name; invalid_target for another one."""
    target = READY_TARGETS.get(name) if isinstance(name, str) else None
    if target is None:
        raise AutodiffError("invalid_target", f"expected one of {', '.join(READY_TARGETS)}, got {quote(name)}")
    return target
