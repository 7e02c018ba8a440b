"""Looking at an artifact: a listing, its figures, and a drawing.

An artifact is a `TensorGraph`, a `DerivativeProgram` or a `CompiledTrainingStep`.
"""

from tinychain.autodiff.inspection.dot import to_dot
from tinychain.autodiff.inspection.figures import Figures, Values
from tinychain.autodiff.inspection.html import to_html
from tinychain.autodiff.inspection.listing import describe
from tinychain.autodiff.inspection.liveness import Operation, deaths, peak_live_bytes
from tinychain.autodiff.inspection.summary import PartSummary, Summary, summarize
from tinychain.autodiff.inspection.svg import to_svg

__all__ = [
    "Figures",
    "Operation",
    "PartSummary",
    "Summary",
    "Values",
    "deaths",
    "describe",
    "peak_live_bytes",
    "summarize",
    "to_dot",
    "to_html",
    "to_svg",
]
