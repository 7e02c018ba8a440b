"""Every operator of the package, one class each, and the tuple that makes a new one known everywhere."""

from __future__ import annotations

from typing import Final

import tinychain.autodiff.operators.batches  # noqa: F401  # for the rules that it adds to the matmul
from tinychain.autodiff.graph import TensorOperator
from tinychain.autodiff.operators.constant import ConstantOperator, FillOperator
from tinychain.autodiff.operators.contraction import (
    BroadcastOperator,
    BroadcastReduceOperator,
    MatmulOperator,
    SumOperator,
)
from tinychain.autodiff.operators.elementwise import AddOperator, DivOperator, MulOperator, SubOperator
from tinychain.autodiff.operators.extremum import MaximumOperator, MinimumOperator
from tinychain.autodiff.operators.mean import MeanOperator
from tinychain.autodiff.operators.movement import TransposeOperator
from tinychain.autodiff.operators.reduction import MaxOperator, MinOperator, ProductOperator
from tinychain.autodiff.operators.reshape import ReshapeOperator
from tinychain.autodiff.operators.unary import ExpOperator, LogOperator, SignOperator, SqrtOperator

OPERATORS: Final[tuple[type[TensorOperator], ...]] = (
    AddOperator,
    SubOperator,
    MulOperator,
    DivOperator,
    MaximumOperator,
    MinimumOperator,
    SqrtOperator,
    ExpOperator,
    LogOperator,
    SignOperator,
    MatmulOperator,
    SumOperator,
    MeanOperator,
    MaxOperator,
    MinOperator,
    ProductOperator,
    ReshapeOperator,
    BroadcastOperator,
    BroadcastReduceOperator,
    TransposeOperator,
    FillOperator,
    ConstantOperator,
)

__all__ = [
    "OPERATORS",
    "AddOperator",
    "BroadcastOperator",
    "BroadcastReduceOperator",
    "ConstantOperator",
    "DivOperator",
    "ExpOperator",
    "FillOperator",
    "LogOperator",
    "MatmulOperator",
    "MaxOperator",
    "MaximumOperator",
    "MeanOperator",
    "MinOperator",
    "MinimumOperator",
    "MulOperator",
    "ProductOperator",
    "ReshapeOperator",
    "SignOperator",
    "SqrtOperator",
    "SubOperator",
    "SumOperator",
    "TransposeOperator",
]
