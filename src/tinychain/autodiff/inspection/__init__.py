"""Looking at an artifact: a listing, its figures, a drawing, and what a target would make of it.

An artifact is a `TensorGraph`, a `DerivativeProgram` or a `CompiledTrainingStep`.
"""

from tinychain.autodiff.expansion.depth import Depth, multiplicative_depth
from tinychain.autodiff.inspection.dot import to_dot
from tinychain.autodiff.inspection.explain import explain
from tinychain.autodiff.inspection.explanation import ExplainedOperation, Explanation, Obstacle, ProgramCost
from tinychain.autodiff.inspection.figures import Figures, Values
from tinychain.autodiff.inspection.html import to_html
from tinychain.autodiff.inspection.listing import describe
from tinychain.autodiff.inspection.liveness import Operation, deaths, peak_live_bytes
from tinychain.autodiff.inspection.step_depth import StepDepth, step_depth
from tinychain.autodiff.inspection.summary import PartSummary, Summary
from tinychain.autodiff.inspection.svg import to_svg
from tinychain.autodiff.inspection.totals import summarize

__all__ = [
    "Depth",
    "ExplainedOperation",
    "Explanation",
    "Figures",
    "Obstacle",
    "Operation",
    "PartSummary",
    "ProgramCost",
    "StepDepth",
    "Summary",
    "Values",
    "deaths",
    "describe",
    "explain",
    "multiplicative_depth",
    "peak_live_bytes",
    "step_depth",
    "summarize",
    "to_dot",
    "to_html",
    "to_svg",
]
