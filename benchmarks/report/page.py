"""Writes a report into a page of the documents, between marks that name what belongs there:

    <!-- benchmark: pairs.sync -->
    <!-- end of benchmark -->

The name is that of a piece, or ``machine`` or ``goals``. Charts are written to a folder beside the page, which has its
name. What was not measured in this run stays as it is; so does the machine, unless everything was measured."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import goals
from benchmarks.report import files, svg

BLOCK = re.compile(r"(<!-- benchmark: (\S+) -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)


def fill(page: Path, report: files.Report) -> list[str]:
    """Replace what stands between the marks; returns the names that this report has nothing for."""
    old = page.read_text(encoding="utf-8")
    texts = {name: _text(name, page, report) for _, name, _ in BLOCK.findall(old) if name != "machine"}
    left = [name for name, text in texts.items() if text is None]
    texts["machine"] = None if left else files.machine(report)

    def replaced(block: re.Match[str]) -> str:
        begin, name, end = block.groups()
        text = texts[name]
        return block.group() if text is None else f"{begin}\n{text}\n{end}"

    page.write_text(BLOCK.sub(replaced, old), encoding="utf-8")
    return left


def _text(name: str, page: Path, report: files.Report) -> str | None:
    if name == "goals":
        return goals.table(report.rows) if goals.any_measured(report.rows) else None
    if name not in report.results:
        return None
    result, folder = report.results[name], page.with_suffix("")
    for chart in result.charts:
        folder.mkdir(exist_ok=True)
        (folder / f"{chart.name}.svg").write_text(svg.drawn(chart), encoding="utf-8")
    return files.contents(result, folder=f"{folder.name}/")
