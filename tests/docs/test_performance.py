"""The page with the figures: a full run of the benchmark replaces every table of it."""

from __future__ import annotations

from benchmarks.__main__ import PARTS, WITH_GOALS, pieces
from benchmarks.report.machine import ROOT
from benchmarks.report.page import BLOCK


def test_the_page_names_pieces_that_exist() -> None:
    """Each mark of the page names what some part writes, and every part with a goal has one."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    marked = [name for _, name, _ in BLOCK.findall(text)]
    assert set(marked) - {"machine", "goals"} <= {name for name, _ in pieces(PARTS)}
    assert len(marked) == len(set(marked)) == text.count("<!-- end of benchmark -->")
    assert set(WITH_GOALS) <= {name.partition(".")[0] for name in marked}
