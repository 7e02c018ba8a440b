"""What this backend computes, as a target of legalization.

Sums, means and broadcasts are matmuls with ones there, which cost additions and rotations but no level.
"""

from __future__ import annotations

from typing import Final

from tinychain.autodiff.expansion import Limits, Target
from tinychain.autodiff.operators import (
    AddOperator,
    ConstantOperator,
    FillOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)

#: Ring arithmetic on tensors of known sizes, with broadcasting; reshapes keep the element count.
CKKS: Final = Target(
    "ckks",
    dict.fromkeys(
        (
            AddOperator,
            SubOperator,
            MulOperator,
            MatmulOperator,
            TransposeOperator,
            ReshapeOperator,
            FillOperator,
            ConstantOperator,
        ),
        Limits(symbols=False, plain_levels=1, secret_levels=1),
    ),
)
