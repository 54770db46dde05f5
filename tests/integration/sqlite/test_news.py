"""News: a holder hears at once what happened to its lease, long before its next renewal, and nobody hears another's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold._core import ops
from leasehold._core.ports import HolderPushes, Store
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SQLiteStore
from tests.support.sqlite import next_line, start
from tests.support.waiting import until, until_async

SOON = 30.0  # seconds: far from the next renewal of an hour's lease
HOUR = 3600
Open = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """One place, and as many stores that lead to it as a test asks for; in memory there is one."""
    with contextlib.ExitStack() as stack:
        shared = MemoryStore()

        def opened() -> Store:
            if request.param == "memory":
                return shared
            store = SQLiteStore(str(tmp_path / "leases.db"))
            stack.callback(store.close)
            return store

        yield opened


def open_descriptors() -> int:
    """Of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def holder_of(store: Store, resource: str) -> Any:
    """The one grant."""
    view = store.execute(ops.Inspect(resource))
    assert isinstance(view, ops.View)
    (grant,) = view.holders
    return grant


def evict(store: Store, resource: str) -> None:
    """Take it away from whoever holds."""
    grant = holder_of(store, resource)
    reply = store.execute(ops.Evict(resource, grant.owner, grant.fence, os.urandom(4).hex(), delay_ms=0, force=True))
    assert isinstance(reply, ops.Evicted)


def reached(store: Store, resource: str) -> bool:
    """Does the holder listen?"""
    grant = holder_of(store, resource)
    told = store.execute(ops.Revoke(resource, grant.owner, grant.fence))
    assert isinstance(told, ops.HolderAsked)
    return told.reached


def test_a_holder_is_told_at_once(place: Open) -> None:
    """An evicted one knows long before it would renew, from within the same process."""
    operator = place()
    with leasehold.connect(place()) as hold:
        lease = hold.lock("job", ttl=HOUR).acquire()
        assert lease is not None
        until(lambda: reached(operator, "job"), "it listens")
        evict(operator, "job")
        assert lease.lost.wait(SOON) and lease.state == "lost"
        with pytest.raises(leasehold.LeaseLost, match="evicted"):
            lease.check()


async def test_a_task_is_told_at_once(place: Open) -> None:
    """The same on an event loop: the body is cancelled, and that becomes LeaseLost."""
    operator = place()
    async with leasehold.aio.connect(place()) as hold:

        async def body() -> None:
            async with hold.lock("job", ttl=HOUR):
                await until_async(lambda: reached(operator, "job"), "it listens")
                evict(operator, "job")
                await asyncio.sleep(SOON)

        with pytest.raises(leasehold.LeaseLost) as info:
            await body()
        assert info.value.reason == "evicted"


def test_nobody_reads_what_is_meant_for_another(place: Open) -> None:
    """Two coordinators over one store object: the one that was evicted is told, whoever looks first."""
    store = place()
    with leasehold.connect(store) as first, leasehold.connect(store) as second:
        mine, other = first.lock("mine", ttl=HOUR).acquire(), second.lock("other", ttl=HOUR).acquire()
        assert mine is not None and other is not None
        assert holder_of(store, "mine").holder_address != holder_of(store, "other").holder_address
        for name in ("mine", "other"):
            until(partial(reached, store, name), "it listens")
        evict(store, "other")
        assert other.lost.wait(SOON)
        assert mine.state == "held"


EVICTED = """
import leasehold
hold = leasehold.connect("sqlite:///" + path)
lease = hold.lock("job", ttl=3600).acquire()
print("held", flush=True)
print(lease.lost.wait(50) and lease.state, flush=True)
try:
    lease.check()
except leasehold.LeaseLost as loss:
    print(loss.reason, flush=True)
"""


@pytest.mark.slow
def test_a_holder_in_another_process_is_told_at_once(tmp_path: Path) -> None:
    """The operator's process tells it, and it stops long before its next renewal."""
    path = tmp_path / "leases.db"
    with contextlib.closing(SQLiteStore(str(path))) as store, start(EVICTED, path) as process:
        assert next_line(process) == "held"
        until(lambda: reached(store, "job"), "it listens")
        evict(store, "job")
        assert [next_line(process), next_line(process)] == ["lost", "evicted"]  # its next renewal is 20 minutes away
        process.communicate(timeout=60)


FORKED = """
import leasehold
hold = leasehold.connect("sqlite:///" + path)
lease = hold.lock("parents", ttl=3600).acquire()
child = os.fork()
if child == 0:
    lease = hold.lock("childs", ttl=3600).acquire()
    print("held", flush=True)
    os._exit(0 if lease.lost.wait(50) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lease.state, flush=True)
print(lease.lost.wait(50), flush=True)
"""


@pytest.mark.slow
def test_a_forked_child_has_news_of_its_own(tmp_path: Path) -> None:
    """Another address: each of the two hears of its own lease."""
    path = tmp_path / "leases.db"
    with contextlib.closing(SQLiteStore(str(path))) as store, start(FORKED, path) as process:
        assert next_line(process) == "held"
        assert holder_of(store, "parents").holder_address != holder_of(store, "childs").holder_address
        until(lambda: reached(store, "childs") and reached(store, "parents"), "both listen")
        evict(store, "childs")
        assert next_line(process) == "0 held"
        evict(store, "parents")
        assert next_line(process) == "True"
        process.communicate(timeout=60)


# ---------------------------------------------------------------- what is left


def test_a_coordinator_that_never_held_leaves_nothing(place: Open) -> None:
    """Neither in a store that outlives it nor on the disk: nothing is opened before the first lease."""
    store = place()
    for _ in range(20):
        leasehold.connect(store)._engine.holder_address()
    assert not store._connections  # type: ignore[attr-defined]  # what can be reached


@pytest.mark.slow
def test_coordinators_come_and_go() -> None:
    """A space in memory outlives them: what is closed or dropped is forgotten there."""
    store = MemoryStore()
    before = open_descriptors()
    for number in range(10):
        hold = leasehold.connect(store)
        lease = hold.lock("job", number).acquire()
        assert lease is not None and lease.release()
        until(partial(store._connections.__contains__, hold._engine.holder_address()), "the watchdog listens")
        if number % 2:
            hold.close()
        del hold, lease
        gc.collect()
    until(lambda: not store._connections and open_descriptors() <= before, "nothing is left")


@pytest.mark.slow
def test_a_closed_coordinator_leaves_no_socket(tmp_path: Path) -> None:
    """The folder beside the database is empty again, and no descriptor stays open."""
    path = tmp_path / "leases.db"
    sockets = Path(f"{path}.wake")
    before = open_descriptors()
    for number in range(4):
        hold = leasehold.connect(f"sqlite:///{path}")
        lease = hold.lock("job").acquire()
        assert lease is not None
        until(lambda: sockets.is_dir() and any(sockets.iterdir()), "it listens")
        if number % 2:
            hold.close()
        else:
            lease.release()
        del hold, lease
        gc.collect()
        until(lambda: not any(sockets.iterdir()), "nobody listens")
    until(lambda: open_descriptors() <= before, "every descriptor is closed")


@pytest.mark.slow
def test_without_a_socket_the_next_renewal_tells(tmp_path: Path) -> None:
    """Nothing can be bound where its folder should be: the lease works, and its loss is found a little later."""
    path = tmp_path / "leases.db"
    Path(f"{path}.wake").touch()
    with contextlib.closing(SQLiteStore(str(path))) as store, leasehold.connect(f"sqlite:///{path}") as hold:
        lease = hold.lock("job", ttl=1.5).acquire()
        assert lease is not None and not reached(store, "job")
        evict(store, "job")
        assert lease.lost.wait(SOON)
        with pytest.raises(leasehold.LeaseLost, match="evicted"):
            lease.check()


def test_an_emptied_folder_is_found_again(tmp_path: Path) -> None:
    """Somebody deleted the sockets: the next look binds the same address anew."""
    with contextlib.closing(SQLiteStore(str(tmp_path / "leases.db"))) as store:
        news: HolderPushes = store.holder_pushes()
        first = news.fileno(lambda: None)
        assert first >= 0 and store._folder.alive(news.address)
        for one in Path(store._folder.path).iterdir():
            one.unlink()
        assert not store._folder.alive(news.address)
        assert news.fileno(lambda: None) >= 0 and store._folder.alive(news.address)
        store._folder.send(ops.Push(news.address, "evicted", "job", "o", 1, 0, 5))
        assert [push.owner for push in news.read()] == ["o"]


def test_closed_news_hears_nothing(place: Open) -> None:
    """And closing twice is closing."""
    store = place()
    news = store.holder_pushes()
    assert news is not None
    news.close()  # nothing was opened
    news = store.holder_pushes()
    assert news is not None
    news.fileno(lambda: None)
    granted = store.execute(ops.Claim("job", "host:1:a.1", 60_000, holder_address=news.address))
    assert isinstance(granted, ops.Granted)
    assert reached(store, "job")
    assert [push.event for push in news.read()] == ["revoke"] and news.read() == []
    news.close()
    news.close()
    assert not reached(store, "job")
    assert news.read() == []
