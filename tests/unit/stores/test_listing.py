"""Which resources are there: in pages, by a pattern, on the stores of one host."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold._core import ops
from leasehold._core.policy import PAGE
from leasehold._core.ports import Store
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SQLiteStore

OWNER = "host:1:secret.1"
HOUR = 3_600_000


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, ManualClock]]:
    """A store, and its clock."""
    clock = ManualClock()
    memory = request.param == "memory"
    store: Store = MemoryStore(clock) if memory else SQLiteStore(str(tmp_path / "leases.db"), clock)
    with contextlib.closing(store):
        yield store, clock


def take(store: Store, resource: str, owner: str = OWNER, ttl_ms: int = HOUR) -> int:
    """Hold it."""
    reply = store.execute(ops.Claim(resource, owner, ttl_ms))
    assert isinstance(reply, ops.Granted)
    return reply.fence


def pages(store: Store, pattern: str) -> list[tuple[str, ...]]:
    """All of them."""
    found: list[tuple[str, ...]] = []
    cursor = ""
    for _ in range(50):
        page = store.execute(ops.Scan(pattern, cursor))
        assert isinstance(page, ops.Page)
        found.append(page.items)
        if not page.cursor:
            return found
        cursor = page.cursor
    raise AssertionError("never the last page")


def names(store: Store, pattern: str = "*") -> list[str]:
    """Of all pages."""
    return [name for page in pages(store, pattern) for name in page]


def test_nothing_is_one_empty_page(scene: tuple[Store, ManualClock]) -> None:
    """Of an empty store."""
    assert pages(scene[0], "*") == [()]


def test_pages_are_bounded_and_complete(scene: tuple[Store, ManualClock]) -> None:
    """Each looks at a few hundred; together they have every name once, in order."""
    store, _ = scene
    expected = sorted(f"job:{number}" for number in range(2 * PAGE + 7))
    for name in reversed(expected):
        take(store, name)
    found = pages(store, "job:*")
    assert [len(page) for page in found] == [PAGE, PAGE, 7]
    assert [name for page in found for name in page] == expected
    assert names(store, "job:1?") == [f"job:1{digit}" for digit in range(10)]
    assert names(store, "[j]ob*") == []


def test_what_is_listed(scene: tuple[Store, ManualClock]) -> None:
    """What is held, waited for, closed or noted; not what is only remembered."""
    store, clock = scene
    fence = take(store, "released")
    store.execute(ops.Release("released", OWNER, fence))
    fence = take(store, "forgotten")
    store.execute(ops.Release("forgotten", OWNER, fence, forget_ms=60_000))
    take(store, "expired", ttl_ms=1_000)
    fence = take(store, "closed", ttl_ms=1_000)
    store.execute(ops.Renew("closed", OWNER, fence, 1_000, closed_ms=HOUR))
    fence = take(store, "noted")
    store.execute(ops.Evict("noted", OWNER, fence, "request", delay_ms=0, force=True))
    take(store, "held")
    take(store, "waited", ttl_ms=1_000)
    store.execute(ops.Claim("waited", "host:1:secret.2", 3_000))
    clock.advance(2)
    assert names(store) == ["closed", "held", "noted", "waited"]
    clock.advance(2 * 3_600)
    assert names(store) == ["noted"]
    clock.advance(31 * 86_400)
    assert names(store) == []


def test_a_listing_changes_nothing(scene: tuple[Store, ManualClock]) -> None:
    """Also in a batch, and from an event loop."""
    store, _ = scene
    take(store, "job")
    before = store.execute(ops.Inspect("job"))
    batch = store.execute_many([ops.Scan("*"), ops.Leaks("*"), ops.Inspect("job")])
    assert batch == [ops.Page(("job",), ""), ops.Page((), ""), before]


async def test_from_an_event_loop(scene: tuple[Store, ManualClock]) -> None:
    """The same by the other way."""
    store, _ = scene
    take(store, "job")
    assert await store.execute_async(ops.Scan("j*")) == ops.Page(("job",), "")
    assert await store.execute_async(ops.Leaks("*")) == ops.Page((), "")


def test_a_damaged_row_is_listed(tmp_path: Path) -> None:
    """Hiding it would help nobody: whoever looks at it is told what is wrong."""
    path = tmp_path / "leases.db"
    with contextlib.closing(SQLiteStore(str(path))) as store:
        take(store, "job")
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE resources SET state = 'nonsense'")
        assert names(store) == ["job"]


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """It cannot be asked for. It is listed as SQL writes it, so that it can be deleted, and hides no other."""
    path = tmp_path / "leases.db"
    with contextlib.closing(SQLiteStore(str(path))) as store:
        for name in ("job", "other"):
            take(store, name)
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            file.execute("INSERT INTO resources SELECT CAST(name AS BLOB), boot, state FROM resources")
            file.execute("INSERT INTO resources VALUES (CAST(x'ff' AS TEXT), '', '')")
        page = store.execute(ops.Scan("*"))
        assert page == ops.Page(("job", "other"), "", ("\\xff", "x'6a6f62'", "x'6f74686572'"))
        assert store.execute(ops.Scan("j*")) == ops.Page(("job",), "")
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            assert file.execute("DELETE FROM resources WHERE name = x'6a6f62'").rowcount == 1


def test_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    """What was held before it is not; what was noted is."""
    path = tmp_path / "leases.db"
    with contextlib.closing(SQLiteStore(str(path))) as store:
        take(store, "held")
        fence = take(store, "noted")
        store.execute(ops.Evict("noted", OWNER, fence, "request"))
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE resources SET boot = 'an earlier one'")
        assert names(store) == ["noted"]
