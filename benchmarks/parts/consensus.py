"""The stores on etcd and ZooKeeper against what people use there: etcd3gw's lock, and kazoo's.

On etcd the least that a lease costs are two writes by consensus, one to take it and one to give it back: two bare
transactions, sent through the same connection as ours. The lock of etcd3gw does not wait, so it is asked for every
10 ms. A lease here is fenced, has a queue and is renewed. The servers keep their data on a disk, and flush each
change to it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import kazoo.client
import kazoo.recipe.lock

import leasehold
import leasehold.aio
from benchmarks import race
from benchmarks.race import Locks, Peer
from benchmarks.report.rows import Result
from benchmarks.rounds import Run, Setup, awaited, measure, pairs, rates
from leasehold._core.driver import drive
from leasehold.stores.etcd.server import TXN, EtcdRecords
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.zookeeper import ZooKeeperServer

OURS, BARE, ETCD3GW, KAZOO = "Leasehold", "two bare transactions", "etcd3gw, asked every 10 ms", "kazoo's Lock"
ETCD_ALONE, ETCD_PROCESSES = "etcd, one caller", "etcd, 8 processes on one lock"
ZOOKEEPER_ALONE, ZOOKEEPER_PROCESSES = "ZooKeeper, one caller", "ZooKeeper, 8 processes on one lock"
POLL = 0.01  # seconds
FLUSHED = {"zookeeper.forceSync": "yes"}
PUT = b'{"success":[{"request_put":{"key":"YmVuY2gtYmFyZQ==","value":"%s"}}]}' % b64encode(b"x" * 150)


@contextmanager
def on_a_disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# ---------------------------------------------------------------- contenders


@contextmanager
def ours(url: str) -> Iterator[Locks]:
    with leasehold.connect(url) as hold:
        yield lambda number: hold.lock("bench", number, ttl=30)


@contextmanager
def bare(url: str) -> Iterator[Locks]:
    """Two writes of about the size of a record."""
    records = EtcdRecords.from_url(url)

    def write() -> None:
        drive(records._gateway.post(TXN, PUT, time.monotonic() + 5), records._gateway.send)

    @contextmanager
    def lock(number: int) -> Iterator[None]:
        write()
        yield
        write()

    yield lock
    records.close()


@contextmanager
def by_etcd3gw(url: str) -> Iterator[Locks]:
    """A key with a lease, without a fence and without a queue."""
    import etcd3gw  # the tests read the goals, and do without the peers

    client = etcd3gw.client(host="127.0.0.1", port=int(url.rpartition(":")[2].partition("/")[0]))

    @contextmanager
    def lock(number: int) -> Iterator[None]:
        one = client.lock(f"bench-{number}", ttl=30)
        while not one.acquire():
            time.sleep(POLL)  # it is what this contender does
        yield
        one.release()

    yield lock


@contextmanager
def by_kazoo(url: str) -> Iterator[Locks]:
    client = kazoo.client.KazooClient(url.removeprefix("zk://").partition("/")[0])
    client.start()
    try:
        yield lambda number: kazoo.recipe.lock.Lock(client, f"/kazoo/{number}")
    finally:
        client.stop()
        client.close()


@contextmanager
def asyncio_pairs(url: str) -> Iterator[Run]:
    """On one event loop."""
    with asyncio.Runner() as runner:
        hold = leasehold.aio.connect(url)

        async def pair() -> None:
            async with hold.lock("bench", 43, ttl=30):
                pass

        yield awaited(runner, pair)
        runner.run(hold.close())


# ---------------------------------------------------------------- pieces


@contextmanager
def etcd() -> Iterator[str]:
    with on_a_disk() as folder, EtcdServer(place=folder) as server:
        yield server.url


@contextmanager
def zookeeper() -> Iterator[str]:
    with on_a_disk() as folder, ZooKeeperServer(properties=FLUSHED, place=folder) as server:
        yield server.url("/bench")


def etcd_alone(setup: Setup) -> Result:
    """One caller, no contention."""
    with etcd() as url, bare(url) as least, ours(url) as locks, asyncio_pairs(url) as tasks, by_etcd3gw(url) as theirs:
        contenders = {
            BARE: pairs(partial(least, 1)),
            OURS: pairs(partial(locks, 42)),
            f"{OURS}, asyncio": tasks,
            ETCD3GW: pairs(partial(theirs, 7)),
        }
        return Result(rates(ETCD_ALONE, "pairs/s", measure(setup, contenders), BARE, cpu=True))


def zookeeper_alone(setup: Setup) -> Result:
    """One caller, no contention."""
    with zookeeper() as url, ours(url) as locks, asyncio_pairs(url) as tasks, by_kazoo(url) as theirs:
        contenders = {
            KAZOO: pairs(partial(theirs, 7)),
            OURS: pairs(partial(locks, 42)),
            f"{OURS}, asyncio": tasks,
        }
        return Result(rates(ZOOKEEPER_ALONE, "pairs/s", measure(setup, contenders), KAZOO, cpu=True))


def etcd_processes(setup: Setup) -> Result:
    """True handoffs between processes, with exclusion, fences and the order of turns checked."""
    with etcd() as url:
        found = race.compete(setup, {ETCD3GW: racer(setup, by_etcd3gw, url), OURS: racer(setup, ours, url)}, 8)
    return Result(race.race_rows(ETCD_PROCESSES, found, ETCD3GW, server=False))


def zookeeper_processes(setup: Setup) -> Result:
    """The same."""
    with zookeeper() as url:
        found = race.compete(setup, {KAZOO: racer(setup, by_kazoo, url), OURS: racer(setup, ours, url)}, 8)
    return Result(race.race_rows(ZOOKEEPER_PROCESSES, found, KAZOO, server=False))


def racer(setup: Setup, peer: Peer, url: str) -> race.Racer:
    def run(folder: Path, parties: int) -> race.Result:
        return race.race(peer, url, folder, parties, setup.effort.race_seconds, fenced=peer is ours)

    return run


PIECES = {
    "etcd": etcd_alone,
    "etcd_processes": etcd_processes,
    "zookeeper": zookeeper_alone,
    "zookeeper_processes": zookeeper_processes,
}
