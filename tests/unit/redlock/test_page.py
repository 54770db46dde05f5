"""The page says what the capabilities say."""

from __future__ import annotations

from pathlib import Path

from leasehold._core.types import Capabilities
from leasehold.stores.redis.redlock.store import RedlockStore

PAGE = Path(__file__).parents[3] / "docs" / "redlock.md"
ROWS = {  # of the table "What it cannot do", by capability
    "fair": "| order |",
    "push": "a release wakes nobody",
    "shared": "| read-write locks, semaphores |",
    "groups": "| `all` |",
    "handover": "`transfer` and `adopt`",
    "evictions": "`evict` and `revoke`",
    "reservations": "| passing a lease on |",
    "lingering": "| `linger=` |",
    "longest_ttl_ms": "| a ttl above `max_ttl` |",
}
NOT_ON_THE_PAGE = {"durable_fences"}  # as on one Redis, whose page explains it


def test_the_page_lists_what_it_cannot_do() -> None:
    """Every capability that is less than that of the embedded store has a row, and no row is left over."""
    usual, stated = Capabilities(), RedlockStore("redlock://a,b,c").capabilities
    less = {name for name in Capabilities._fields if getattr(stated, name) < getattr(usual, name)}
    section = PAGE.read_text("utf-8").partition("## What it cannot do")[2]
    assert less - NOT_ON_THE_PAGE == set(ROWS)
    assert [name for name, row in ROWS.items() if row not in section] == []
