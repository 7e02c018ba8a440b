"""A page about an artifact: its figures as tables, and its drawing. It loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from tinychain.autodiff.inspection.parts import Artifact
from tinychain.autodiff.inspection.summary import figures_table, notes, operators_table
from tinychain.autodiff.inspection.svg import to_svg
from tinychain.autodiff.inspection.table import Table
from tinychain.autodiff.inspection.totals import summarize

_STYLE: Final = """
:root{color-scheme:light dark}
body{margin:2rem;font:15px/1.5 system-ui,sans-serif;color:#1f2328;background:#ffffff}
table{border-collapse:collapse;margin:0 0 1.5rem}
th,td{padding:.3rem .8rem;border-bottom:1px solid #d0d7de;text-align:left;vertical-align:top}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
figure{margin:0;overflow-x:auto}
@media (prefers-color-scheme: dark){body{color:#f0f6fc;background:#0d1117}th,td{border-color:#3d444d}}
"""
_NUMBER: Final = ' class="number"'


def to_html(
    artifact: Artifact,
    *,
    regions: Sequence[object] = (),
    shape_bindings: Mapping[str, int] | None = None,
    collapse: bool = False,
    limit: int = 2000,
) -> str:
    """One self-contained page: the figures of `summarize` and the drawing of `to_svg`, which raise as they do."""
    summary = summarize(artifact, shape_bindings=shape_bindings)
    drawing = to_svg(artifact, regions=regions, collapse=collapse, limit=limit)
    title = f"{summary.artifact}: {', '.join([part.name for part in summary.parts])}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escape(summary.artifact)}</h1>",
            *[line for table in (figures_table(summary), operators_table(summary)) for line in _table(table)],
            *[f"<p>{escape(note)}</p>" for note in notes(summary)],
            f"<figure>{drawing}</figure>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _table(table: Table) -> list[str]:
    def row(tag: str, cells: Sequence[str]) -> str:
        marked = [
            f"<{tag}{_NUMBER if column >= table.numbers_from else ''}>{escape(cell)}</{tag}>"
            for column, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(marked)}</tr>"

    head = f"<thead>{row('th', table.header)}</thead>"
    return ["<table>", head, "<tbody>", *[row("td", cells) for cells in table.rows], "</tbody>", "</table>"]
