"""A store that refuses, at the claim and at the release: Redis without scripts, without memory, read-only or busy; a
database that is locked or cannot be written."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path as FilePath
from typing import Any

import pytest
import redis

import leasehold
from leasehold import StoreUnavailable
from tests.support.faults.aftermath import expect_sound
from tests.support.faults.suspensions import Suspensions
from tests.support.faults.user import LoopUser, Use, familiar
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

WHILE = 0.2  # seconds for which a database is locked


# ---------------------------------------------------------------- Redis


@contextmanager
def no_scripts(client: redis.Redis) -> Iterator[None]:
    """As after a restart."""
    client.script_flush()
    yield


@contextmanager
def no_memory(client: redis.Redis) -> Iterator[None]:
    """Nothing may be written that needs some."""
    client.config_set("maxmemory", 1)
    yield
    client.config_set("maxmemory", 0)


@contextmanager
def read_only(client: redis.Redis) -> Iterator[None]:
    """A replica of nobody."""
    client.replicaof("127.0.0.1", 1)
    yield
    client.replicaof("NO", "ONE")


@contextmanager
def busy(client: redis.Redis) -> Iterator[None]:
    """Somebody's script runs and runs."""
    client.config_set("busy-reply-threshold", 1)
    other = redis.Redis.from_url(url_of(client))

    def run() -> None:
        with pytest.raises(redis.ResponseError):
            other.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: answers_busy(client), "it is busy")
    yield
    client.script_kill()
    thread.join()
    other.close()


def url_of(client: redis.Redis) -> str:
    """Its address."""
    options = client.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/0"


def answers_busy(client: redis.Redis) -> bool:
    """Does it refuse?"""
    try:
        client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


REFUSE = {"no memory": no_memory, "read only": read_only, "busy": busy}
BEAR = {"no scripts": no_scripts}


@pytest.fixture(scope="module")
def harmed() -> Iterator[RedisServer]:
    """A server that may be harmed."""
    with RedisServer() as server:
        yield server


def use_during(user: Any, trouble: Any, op: str, number: int) -> Use:
    """One use whose claim, or whose release, meets the trouble."""
    if op == "claim":
        with trouble:
            use: Use = user.use(number)
        return use
    use = user.use(number, body=lambda lease: trouble.__enter__() and None)
    trouble.__exit__(None, None, None)
    return use


@pytest.mark.parametrize("op", ["claim", "release"])
@pytest.mark.parametrize("trouble", [*BEAR, *REFUSE])
def test_a_server_that_refuses(harmed: RedisServer, new_user: Callable[[str], Any], trouble: str, op: str) -> None:
    """A claim raises StoreUnavailable, and its body does not run; a release goes on in the background. A script that is
    unknown is sent in full, and nobody notices."""
    client = harmed.client()
    make: Any = {**BEAR, **REFUSE}[trouble]
    with closing(new_user(harmed.url)) as user, leasehold.connect(harmed.url) as other:
        use = use_during(user, make(client), op, familiar(user, 1))
        refused = op == "claim" and trouble in REFUSE
        assert (use.raised, len(use.fences)) == ((StoreUnavailable, 0) if refused else (None, 1))
        expect_sound(user, other, use)


# ---------------------------------------------------------------- SQLite


@contextmanager
def locked(path: FilePath) -> Iterator[None]:
    """Another process writes, for a while."""
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(WHILE, connection.rollback)
    timer.start()
    yield
    timer.join()
    connection.close()


@contextmanager
def unwritable(path: FilePath) -> Iterator[None]:
    """Every connection that is open refuses to write, as on a file system that became read-only."""
    connections = connections_to(path)
    assert connections
    for connection in connections:
        connection.execute("PRAGMA query_only = 1")
    yield


def connections_to(path: FilePath) -> list[sqlite3.Connection]:
    """All that this process has."""
    every = [one for one in gc.get_objects() if isinstance(one, sqlite3.Connection)]
    return [one for one in every if leads_to(one, path)]


def leads_to(connection: sqlite3.Connection, path: FilePath) -> bool:
    """Does it, and is it open?"""
    try:
        return bool(connection.execute("PRAGMA database_list").fetchone()[2] == str(path))
    except sqlite3.Error:
        return False


@pytest.mark.parametrize("op", ["claim", "release"])
@pytest.mark.parametrize("trouble", [locked, unwritable])
def test_a_database_that_refuses(tmp_path: FilePath, new_user: Callable[[str], Any], trouble: Any, op: str) -> None:
    """One that is locked is waited for. One that cannot be written refuses a claim, and a release goes on in the
    background."""
    path = tmp_path / "leases.db"
    url = f"sqlite:///{path}"
    with closing(new_user(url)) as user, leasehold.connect(url) as other:
        use = use_during(user, trouble(path), op, familiar(user, 1))
        refused = op == "claim" and trouble is unwritable
        assert (use.raised, len(use.fences)) == ((StoreUnavailable, 0) if refused else (None, 1))
        expect_sound(user, other, use)


@pytest.mark.parametrize("together", [False, True], ids=["while it waits", "together with the reply"])
def test_a_cancellation_while_the_database_is_locked(tmp_path: FilePath, together: bool) -> None:
    """At the claim and at the release: neither takes or keeps anything."""
    path = tmp_path / "leases.db"
    url = f"sqlite:///{path}"
    with closing(LoopUser(url)) as user, leasehold.connect(url) as other:
        for number in (1, 2):
            familiar(user, number)
        with locked(path):
            use = user.use(1, wrap=Suspensions(1, together))
        assert use.raised is asyncio.CancelledError and use.fences == []
        expect_sound(user, other, use)
        lock = locked(path)
        use = user.use(2, body=lambda lease: lock.__enter__(), wrap=Suspensions(1, together))
        lock.__exit__(None, None, None)
        assert use.raised is asyncio.CancelledError and len(use.fences) == 1
        expect_sound(user, other, use)
