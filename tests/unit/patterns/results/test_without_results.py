"""Stores that keep leases and no results: a pattern says at once what to give it, and works with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.patterns.results import MemoryResultStore, SQLiteResultStore
from tests.support.tables import each

URLS = ["redlock://a,b,c", "etcd://a,b,c", "zk://a,b,c"]  # nothing is opened, and nobody is there


def once(hold: Any, **options: Any) -> Any:
    """As a user writes it."""
    return hold.once("payment", "{number}", **options)


def cron(hold: Any, **options: Any) -> Any:
    """The same."""
    return hold.cron("0 3 * * *", "nightly", **options)


def single_flight(hold: Any, store: Any = None) -> Any:
    """Here a result store is called a cache."""
    return hold.single_flight("page", "{number}", cache=store)


def function(number: Any = None) -> None:
    """Never called."""
    raise AssertionError("it ran")


@each("url", URLS)
@each("pattern", [once, cron, single_flight])
def test_what_to_give_is_said(url: str, pattern: Callable[..., Any]) -> None:
    """When the function is decorated, in one sentence that names the store and the arguments."""
    with leasehold.connect(url) as hold:
        with pytest.raises(leasehold.Unsupported) as info:
            pattern(hold)(function)
        name = hold._engine.store.name
    assert str(info.value).startswith(f"a store on {name} keeps leases and no results: give a result store")
    assert "store=SQLResultStore(engine)" in str(info.value) and "cache=" in str(info.value)


@each("url", URLS)
@each("pattern", [once, cron, single_flight])
def test_with_a_result_store(url: str, pattern: Callable[..., Any], tmp_path: Path) -> None:
    """It is taken as on any other store."""
    with leasehold.connect(url) as hold, closing(SQLiteResultStore(tmp_path / "results.db")) as results:
        assert pattern(hold, store=results)(function).__wrapped__ is function


@each("url", URLS)
@each("pattern", [once, cron])
def test_memory_is_refused(url: str, pattern: Callable[..., Any]) -> None:
    """Other hosts would not see the result, and do the same again."""
    with leasehold.connect(url) as hold, pytest.raises(leasehold.InvalidRequest, match="seen by one process only"):
        pattern(hold, store=MemoryResultStore())(function)
