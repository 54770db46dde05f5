"""The page with the figures: a full run of the benchmark replaces every table of it."""

from __future__ import annotations

import re

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


def test_the_page_lists_every_part() -> None:
    """With its pieces, where there are several; and nothing that is none."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = page.partition("| part | measures | beside |\n")[2].partition("\n\n")[0]
    rows = {row.split(" | ")[0]: row for row in table.splitlines()[1:]}
    assert sorted(re.findall("`(.+?)`", " ".join(rows))) == sorted(PARTS)
    for name, _ in pieces(PARTS):
        part, _, piece = name.partition(".")
        (row,) = [row for head, row in rows.items() if f"`{part}`" in head]
        assert piece in ("", "start") or f"`{piece}`" in row, name


def test_the_page_names_every_server() -> None:
    """What `make bench` installs is what the page says that it needs."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    (installed,) = re.findall(r"^bench:.*\n\t@tools/servers.sh (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (needed,) = re.findall(r"`make bench` needs (.+?), and starts", page)
    assert sorted(re.split(r", | and ", needed.lower())) == sorted(installed.split())
