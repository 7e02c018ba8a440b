"""The table of docs/legalize.md is what the code does now."""

from __future__ import annotations

import pytest

from benchmarks.legalize_cases import Case
from benchmarks.legalize_table import MARKER, PAGE, outcome, rendered
from benchmarks.tables import replace_between
from meta.wrong_rules import over_the_other_axis
from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion import ready_target
from tinychain.autodiff.operators import SumOperator


def test_the_table_is_the_one_that_the_command_makes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == replace_between(page, MARKER, rendered()), "make legalize-table writes the table anew"


def test_a_cell_is_verified() -> None:
    params = {"axes": [0], "keepdims": False}
    case = Case(SumOperator, "axes: first", 2, [(4, 4)], params, {SumOperator: [over_the_other_axis]})
    with pytest.raises(AutodiffError, match="not_equivalent"):
        outcome(case, ready_target("add-mul-matmul-rank2"))
