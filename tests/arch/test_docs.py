"""Every Python block of the docs runs, page by page, and prints what the page says that it prints."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

from arch.source import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One ```python block, where it stands, and the ```text block right after it, if there is one."""

    line: int
    code: str
    output: str | None


def read_examples(text: str) -> list[Example]:
    blocks = list(_FENCE.finditer(text))
    examples = []
    for index, block in enumerate(blocks):
        if block[1] != "python":
            continue
        output = None
        if index + 1 < len(blocks) and blocks[index + 1][1] == "text":
            follower = blocks[index + 1]
            output = follower[2] if not text[block.end() : follower.start()].strip() else None
        examples.append(Example(text.count("\n", 0, block.start(2)), block[2], output))
    return examples


def run_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a page's blocks, top to bottom, in one module of their own; tracebacks show the page's lines."""
    module = ModuleType(f"page_{path.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for example in read_examples(path.read_text(encoding="utf-8")):
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * example.line + example.code, str(path), "exec"), module.__dict__)
        output = printed.getvalue()
        if example.output is not None and not OutputChecker().check_output(example.output, output, ELLIPSIS):
            raise AssertionError(f"{path.name}:{example.line} prints\n{output}\nthe page says\n{example.output}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_examples_run_and_print_what_the_page_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(path, monkeypatch)


def test_the_readme_has_examples() -> None:
    assert read_examples((ROOT / "README.md").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------- what the checker can find

_PAGE = """
```python
x = 1
```
Prose.
```python
print(x + 1)
```

```text
{output}
```
"""


def test_blocks_of_a_page_share_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(_PAGE.format(output="2"))
    run_page(tmp_path / "page.md", monkeypatch)


def test_finds_an_output_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(_PAGE.format(output="3"))
    with pytest.raises(AssertionError, match=r"page.md:6 prints\n2"):
        run_page(tmp_path / "page.md", monkeypatch)


def test_finds_a_block_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("```python\nundefined\n```\n")
    with pytest.raises(NameError, match="undefined"):
        run_page(tmp_path / "page.md", monkeypatch)


def test_text_after_prose_is_not_an_output() -> None:
    (example,) = read_examples("```python\nprint(1)\n```\nSee:\n```text\n2\n```\n")
    assert example.output is None
