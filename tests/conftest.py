"""Options and fixtures for all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tinychain.autodiff.graph import DerivativeProgram, TensorGraph
from tinychain.autodiff.text import format_text

# A machine shared by many jobs makes any one example slow now and then.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

GOLDEN_FOLDER = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts; then read the diff")


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, TensorGraph | DerivativeProgram], None]:
    """Compares an artifact's text with tests/golden/<name>.txt, or rewrites that file with --update-golden."""

    def check(name: str, artifact: TensorGraph | DerivativeProgram) -> None:
        path = GOLDEN_FOLDER / f"{name}.txt"
        text = format_text(artifact)
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"{path} does not exist yet; write it with --update-golden and read it"
        assert text == path.read_text(encoding="utf-8")

    return check
