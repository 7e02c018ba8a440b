"""Is a rewritten artifact the same function?

Needs the extra `verify`; importing `tinychain.autodiff` loads none of it.
"""

from __future__ import annotations

from tinychain.autodiff.verify.equivalence import verify_equivalent
from tinychain.autodiff.verify.numeric import POINTS
from tinychain.autodiff.verify.records import Difference, EquivalenceResult, ExactCheck, NumericCheck
from tinychain.autodiff.verify.steps import verify_step

__all__ = [
    "POINTS",
    "Difference",
    "EquivalenceResult",
    "ExactCheck",
    "NumericCheck",
    "verify_equivalent",
    "verify_step",
]
