"""Options of the benchmarks, and the tables that a run fills."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.tables import PAGE, environment, replace_between

TABLES: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tinychain.autodiff")
    group.addoption("--smoke", action="store_true", help="only the smallest size of each benchmark, once")
    group.addoption("--write-tables", action="store_true", help="write the tables into docs/performance.md")


@pytest.fixture(scope="session")
def smoke(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--smoke"))


@pytest.fixture(scope="session")
def add_table() -> Callable[[str, str], None]:
    return TABLES.__setitem__


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for table in TABLES.values():
        terminalreporter.write_line(f"\n{table}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not session.config.getoption("--write-tables") or exitstatus:
        return
    page = PAGE.read_text(encoding="utf-8")
    for name, table in {**TABLES, "environment": environment()}.items():
        page = replace_between(page, name, table)
    PAGE.write_text(page, encoding="utf-8")
