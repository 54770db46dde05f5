"""The page says what the capabilities say."""

from __future__ import annotations

from pathlib import Path

import pytest

import leasehold
from leasehold._core.types import Capabilities
from leasehold.errors import Unsupported
from leasehold.stores.redis.redlock.store import RedlockStore

PAGE = Path(__file__).parents[3] / "docs" / "redlock.md"
ROWS = {  # of the table "What it cannot do", by capability: the first cell, and words of the row
    "fair": ("order", "there is no queue"),
    "push": ("order", "a release wakes nobody"),
    "shared": ("read-write locks, semaphores", "Unsupported"),
    "groups": ("`all`", "Unsupported"),
    "handover": ("`transfer` and `adopt`, `evict` and `revoke`", "Unsupported"),
    "evictions": ("`transfer` and `adopt`, `evict` and `revoke`", "Unsupported"),
    "reservations": ("passing a lease on", "no fences can be reserved"),
    "lingering": ("`linger=`", "Unsupported"),
    "longest_ttl_ms": ("a ttl above `max_ttl`", "InvalidRequest"),
}
NOT_ON_THE_PAGE = {"durable_fences"}  # as on one Redis, whose page explains it
OTHERS = {"`durability=`", "results beside the leases"}  # no capability: refused by name


def rows() -> dict[str, str]:
    """The table of the page: its first cells, and the rest of each row."""
    section = PAGE.read_text("utf-8").partition("## What it cannot do")[2].partition("\n\n|")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ", 1) for line in section.splitlines()[2:]]
    return {one[0]: one[1] for one in cells}


def less_than_usual() -> set[str]:
    """The capabilities that the embedded store has, and a Redlock has not, or less."""
    usual, stated = Capabilities(), RedlockStore("redlock://a,b,c").capabilities
    return {name for name in Capabilities._fields if getattr(stated, name) < getattr(usual, name)}


def test_the_page_lists_what_it_cannot_do() -> None:
    """Every capability that is less than that of the embedded store has a row."""
    found = rows()
    assert less_than_usual() - NOT_ON_THE_PAGE == set(ROWS)
    assert [name for name, (cell, words) in ROWS.items() if words not in found.get(cell, "")] == []


def test_no_row_of_the_page_is_left_over() -> None:
    """Each stands for a capability that is less, or for what is refused by its name."""
    assert set(rows()) == {cell for cell, _ in ROWS.values()} | OTHERS


def test_what_is_refused_by_its_name() -> None:
    """The rows without a capability are true too."""
    hold = leasehold.connect("redlock://a,b,c")
    for ask in (
        lambda: hold.lock("job", durability="replicas:1"),
        lambda: hold.once("job"),
        lambda: hold.cron("* * * * *", "job"),
    ):
        with pytest.raises(Unsupported):
            ask()
