"""What etcd and ZooKeeper cannot do is refused when an object is made. Nothing is opened, and nobody is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import Unsupported
from leasehold._core.types import Capabilities
from leasehold.stores.etcd.transactions import MOST_PARTS
from leasehold.stores.record.store import RecordStore
from leasehold.stores.redis.store import RedisStore
from leasehold.stores.sqlite.store import SQLiteStore
from tests.support.tables import each

URLS = ["etcd://a,b,c", "zk://a,b,c"]


@each("url", URLS)
@each("connect", [leasehold.connect, leasehold.aio.connect])
def test_all_takes_sixty(connect: Any, url: str) -> None:
    """One change has no more room."""
    hold = connect(url)
    locks = [hold.lock("stock", number) for number in range(61)]
    assert hold.all(*locks[:60])
    with pytest.raises(Unsupported, match="at most 60 resources"):
        hold.all(*locks)


@each("url", URLS)
def test_durability(url: str) -> None:
    """Every grant is on the disks of a majority: there is nothing to choose."""
    with pytest.raises(Unsupported, match="or always does, as etcd and ZooKeeper do"):
        leasehold.connect(url, durability="replicas:1")
    with leasehold.connect(url) as hold, pytest.raises(Unsupported, match="durability="):
        hold.lock("stock", durability="fsync")


# ---------------------------------------------------------------- the list on the pages

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {  # which have the same list, and the heading above it
    "concepts/which-store.md": "## What etcd and ZooKeeper cannot do",
    "etcd.md": "## What it cannot do",
    "zookeeper.md": "## What it cannot do",
}
ROWS = {"`linger=`": "lingering", "`durability=`": "durability"}  # by capability
BESIDES = {  # what is no capability: the tests here, and of integration/records and integration/patterns, show it
    "`all`",
    "results of patterns",
    "passing a lease on",
    "what remains of somebody else's lease",
    "taking over without waiting",
}
FACTS = {"keyspace", "one_slot"}  # capabilities that say how a store is made, and not what it can do


def rows_of(page: str) -> list[tuple[str, str]]:
    """Of the table below the heading, without their links, which depend on where the page is."""
    section = (DOCS / page).read_text("utf-8").partition(f"\n{PAGES[page]}\n")[2].partition("\n#")[0]
    found = re.findall(r"^\| (.+?) \| (.+) \|$", re.sub(r"\]\(.+?\)", "]", section), re.MULTILINE)
    assert found[0] == ("what", "there"), page
    return found[1:]


def most(capability: str) -> int:
    """What the store that can do most of it says."""
    stores = (SQLiteStore, RedisStore, RecordStore)
    return max(int(getattr(store.capabilities, capability)) for store in stores)


@each("url", URLS)
@each("page", PAGES)
def test_the_pages_list_what_it_cannot_do(page: str, url: str) -> None:
    """Every capability that is less than that of another store has a row, and no row is left over."""
    with leasehold.connect(url) as hold:
        stated = hold._engine.store.capabilities
    less = {name for name in Capabilities._fields if getattr(stated, name) < most(name)}
    rows = dict(rows_of(page))
    assert less - FACTS == set(ROWS.values())
    assert set(rows) == {*ROWS, *BESIDES}
    assert [name for name in ROWS if "raises `Unsupported`" not in rows[name]] == []
    assert f"at most {MOST_PARTS} resources" in rows["`all`"]


def test_the_pages_say_the_same() -> None:
    """The list is on three pages, and is one list."""
    first, *others = [rows_of(page) for page in PAGES]
    assert others == [first] * len(others)


@each("url", URLS)
def test_linger(url: str) -> None:
    """No claim that waits writes what the holder would see."""
    with leasehold.connect(url) as hold, pytest.raises(Unsupported, match="linger="):
        hold.lock("stock", linger="2s")


@each("url", URLS)
def test_results(url: str) -> None:
    """They need a store of their own."""
    with leasehold.connect(url) as hold:
        for pattern in (hold.once, hold.single_flight):
            with pytest.raises(Unsupported, match="give a result store that all processes share"):
                pattern("report", "{number}")(lambda number: number)
