"""The artifacts of goldens.py against their kept texts. `pytest tests/golden --update-golden` rewrites these."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import GOLDEN_FOLDER
from goldens import GOLDENS, Artifact, OwnMulOperator
from tinychain.autodiff.text import parse_text


@pytest.mark.parametrize("name", GOLDENS)
def test_text_is_the_kept_one(name: str, check_golden: Callable[[str, Artifact], None]) -> None:
    check_golden(name, GOLDENS[name]())


@pytest.mark.parametrize("name", GOLDENS)
def test_kept_text_parses_to_the_artifact(name: str) -> None:
    text = (GOLDEN_FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert repr(parse_text(text, operators=[OwnMulOperator])) == repr(GOLDENS[name]())


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in GOLDEN_FOLDER.glob("*.txt")} == set(GOLDENS)
