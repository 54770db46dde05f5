"""Histories of many clients at once, each checked against the pure ledger: every op took effect at one moment between
its beginning and its end, and was answered as the ledger would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.ports import Store
from leasehold.stores.memory import MemoryStore
from tests.model.linear import clients
from tests.model.linear.checker import Call, linearizable
from tests.support.servers.database import Database
from tests.support.servers.zookeeper import ZooKeeperServer

MIXES = pytest.mark.parametrize("mix", clients.MIXES)
SOME_MIXES = pytest.mark.parametrize(
    "mix",
    [one if one in ("mutex", "everything") else pytest.param(one, marks=pytest.mark.soak) for one in clients.MIXES],
)
WAYS = pytest.mark.parametrize("way", [clients.in_threads, clients.in_tasks])
Judge = Callable[[list[list[Call]]], bool]
Way = Callable[[Callable[[], Store], list[str], int, int, int], list[list[Call]]]
CONSENSUS = pytest.mark.parametrize("consensus_url", ["etcd", "zookeeper"], indirect=True)
of_records: Judge = partial(linearizable, may_wait=True)


@pytest.fixture
def consensus_url(request: pytest.FixtureRequest) -> str:
    """An empty store on a server that keeps records."""
    if request.param == "etcd":
        return str(request.getfixturevalue("etcd_server").url)
    return str(request.getfixturevalue("zookeeper_server").url(request.getfixturevalue("chroot")))


def overlaps(clients: list[list[Call]]) -> int:
    """Calls that began while another was under way: a history without any says nothing."""
    ordered = sorted([call for calls in clients for call in calls], key=lambda call: call.began)
    return sum(second.began < first.ended for first, second in pairwise(ordered))


def check(way: Way, open_store: Callable[[], Store], mix: str, seed: int, good: Judge = linearizable) -> None:
    """A history of theirs is good. On a busy machine threads may come one after the other: then another one is made."""
    for turn in range(20):
        calls = way(open_store, clients.MIXES[mix], 6, 12, seed + 1_000 * turn)
        assert good(calls)
        if overlaps(calls) > 0:
            return
    pytest.fail("no two calls were ever under way at once")


@MIXES
@WAYS
def test_memory(way: Way, mix: str) -> None:
    """Threads and tasks on one memory store."""
    check(way, MemoryStore, mix, 100)


@MIXES
@WAYS
def test_sqlite(way: Way, mix: str, tmp_path: Path) -> None:
    """Threads and tasks on one file."""
    check(way, partial(clients.open_url, f"sqlite:///{tmp_path}/leases.db"), mix, 200)


@pytest.mark.slow
@MIXES
@WAYS
def test_redis(way: Way, mix: str, redis_url: str) -> None:
    """Threads and tasks on one server."""
    check(way, partial(clients.open_url, redis_url), mix, 300)


@pytest.mark.slow
@MIXES
@WAYS
def test_postgresql(way: Way, mix: str, postgres_database: Database) -> None:
    """Threads and tasks on one database."""
    check(way, partial(clients.open_url, postgres_database.url), mix, 600)


@pytest.mark.slow
@SOME_MIXES
@WAYS
@CONSENSUS
def test_consensus(way: Way, mix: str, consensus_url: str) -> None:
    """Threads and tasks on one etcd, and on one ZooKeeper."""
    check(way, partial(clients.open_url, consensus_url), mix, 800, of_records)


def check_processes(url: str, seed: int, good: Judge = linearizable, rounds: int = 40) -> None:
    """A history of four processes is good. As above: one in which they came one after the other says nothing."""
    for turn in range(5):
        calls = clients.in_processes(url, clients.MIXES["everything"], 4, rounds, seed + 1_000 * turn)
        assert good(calls)
        if overlaps(calls) > 0:
            return
    pytest.fail("no two calls were ever under way at once")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_processes_on_sqlite(tmp_path: Path) -> None:
    """Four processes on one file, with every rule."""
    check_processes(f"sqlite:///{tmp_path}/leases.db", 400)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_processes_on_redis(redis_url: str) -> None:
    """Four processes on one server, with every rule."""
    check_processes(redis_url, 500)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_processes_on_postgresql(postgres_database: Database) -> None:
    """Four processes on one database, with every rule."""
    check_processes(postgres_database.url, 700)


@pytest.mark.slow
@pytest.mark.timeout(180)
@CONSENSUS
def test_processes_on_consensus(consensus_url: str) -> None:
    """Four processes on one etcd, and on one ZooKeeper, with every rule."""
    check_processes(consensus_url, 900, of_records, rounds=15)


# ---------------------------------------------------------------- leases that pass inside a process


def check_crews(play: Callable[[int], tuple[list[list[Call]], int, int]]) -> None:
    """A history of threads that pass leases on, and get some in batches, is one that the ledger could have had, as if
    each had claimed."""
    for turn in range(20):
        calls, passed, batches = play(1_000 * turn)
        assert linearizable(calls)
        if passed > 0 and batches > 0:
            return
    pytest.fail("nothing was ever passed on, or came in a batch")


def test_crew_on_memory() -> None:
    """Six threads of one coordinator."""
    check_crews(lambda seed: clients.crew("memory://", seed, 6, 25))


def test_crew_on_sqlite(tmp_path: Path) -> None:
    """The same on a file."""
    check_crews(lambda seed: clients.crew(f"sqlite:///{tmp_path}/leases.db", seed, 6, 25))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_crews_on_sqlite(tmp_path: Path) -> None:
    """Three processes with four threads each on one file."""
    check_crews(lambda seed: clients.in_crews(f"sqlite:///{tmp_path}/leases.db", 3, 4, 25, seed))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_crews_on_redis(redis_url: str) -> None:
    """Three processes with four threads each on one server."""
    check_crews(lambda seed: clients.in_crews(redis_url, 3, 4, 25, seed))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_handovers_of_consensus(zookeeper_server: ZooKeeperServer, chroot: str) -> None:
    """Four processes that may be granted what another gives back, in the same step."""
    histories = clients.in_processes(zookeeper_server.url(chroot), ["mutex"], 4, 15, 950, "somewhere")
    assert of_records(histories)
    assert overlaps(histories) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_handovers_of_consensus(seed: int, zookeeper_server: ZooKeeperServer, chroot: str) -> None:
    """The same for longer, and with every rule."""
    for number, mix in enumerate(clients.MIXES):
        first = 40_000 + seed * 1_000 + number * 100
        url = zookeeper_server.url(chroot)
        assert of_records(clients.in_processes(url, clients.MIXES[mix], 4, 60, first, "somewhere"))


@pytest.mark.soak
@CONSENSUS
@pytest.mark.parametrize("seed", range(10))
def test_many_histories_of_consensus(seed: int, consensus_url: str) -> None:
    """The same for longer, and with more at once."""
    for number, mix in enumerate(clients.MIXES):
        first = 30_000 + seed * 1_000 + number * 100
        assert of_records(clients.in_processes(consensus_url, clients.MIXES[mix], 4, 60, first))
        opened = partial(clients.open_url, consensus_url)
        assert of_records(clients.in_threads(opened, clients.MIXES[mix], 6, 25, first + 50))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_many_histories(seed: int, tmp_path: Path, redis_url: str, postgres_database: Database) -> None:
    """The same for longer, and with more at once."""
    for number, mix in enumerate(clients.MIXES):
        url = f"sqlite:///{tmp_path}/{mix}.db"
        for where in (url, redis_url, postgres_database.url):
            first = 10_000 + seed * 1_000 + number * 100
            assert linearizable(clients.in_processes(where, clients.MIXES[mix], 4, 60, first))
            assert linearizable(
                clients.in_threads(partial(clients.open_url, where), clients.MIXES[mix], 6, 25, first + 50)
            )


# ---------------------------------------------------------------- the checker itself


def history() -> list[Call]:
    """Two writers, one after the other, and a reader after both."""
    return [
        Call(ops.Claim("r", "a", 1000, rule="write"), ops.Granted(100_000_000_000_000, 1000, rule="write"), 0, 10),
        Call(ops.Release("r", "a", 100_000_000_000_000), ops.Released(), 20, 30),
        Call(ops.Claim("r", "b", 1000, rule="write"), ops.Granted(100_000_000_000_007, 1000, rule="write"), 25, 40),
        Call(ops.Release("r", "b", 100_000_000_000_007), ops.Released(), 50, 60),
        Call(ops.Claim("r", "c", 1000, rule="read"), ops.Granted(100_000_000_000_009, 1000, rule="read"), 55, 70),
    ]


def alone(calls: list[Call]) -> list[list[Call]]:
    """Each as the only call of its client."""
    return [[call] for call in calls]


def test_what_could_have_been_is_accepted() -> None:
    """Ops that overlap may have happened in either order."""
    assert linearizable(alone(history()))


def broken(at: int, **change: Any) -> list[Call]:
    """The history with one call changed."""
    calls = history()
    calls[at] = calls[at]._replace(**change)
    return calls


@pytest.mark.parametrize(
    "calls",
    [
        broken(2, began=12, ended=18),  # granted while the first held
        broken(4, began=42, ended=48),  # a reader beside a writer
        broken(2, reply=ops.Granted(99_999_999_999_999, 1000, rule="write")),  # a fence that fell
        broken(2, reply=ops.Granted(100_000_000_000_000, 1000, rule="write")),  # and one that was given twice
        broken(3, reply=ops.NotYours("taken")),  # told that it was not its own
        broken(4, reply=ops.Busy("?", 10)),  # refused though nobody holds
        broken(0, reply=ops.Granted(100_000_000_000_000, 1000, slots=(1,), rule="write")),  # a slot that there is not
    ],
)
def test_what_cannot_have_been_is_refused(calls: list[Call]) -> None:
    """Each of these breaks one promise."""
    assert not linearizable(alone(calls))
    assert not of_records(alone(calls))


PASSED = 100_000_000_000_000


def passing(second: int = PASSED + 1, third: int = PASSED + 64, takes: int = 20, gives: int = 30) -> list[Call]:
    """A lease that its holder passes on within its process, and then the grant of another process."""
    return [
        Call(ops.Claim("r", "a", 1000), ops.Granted(PASSED, 1000), 0, 10),
        Call(ops.Release("r", "a", PASSED), ops.Released(), 18, 22),
        Call(ops.Claim("r", "b", 1000), ops.Granted(second, 1000), 5, takes),
        Call(ops.Release("r", "b", second), ops.Released(), gives, gives + 10),
        Call(ops.Claim("r", "c", 1000), ops.Granted(third, 1000), 5, 35),
    ]


def test_a_lease_that_was_passed_on_is_accepted() -> None:
    """With a fence of its own, between that of the giver and whatever the store grants later."""
    assert linearizable(alone(passing()))


@pytest.mark.parametrize(
    "calls",
    [
        passing(second=PASSED),  # the same fence
        passing(second=PASSED - 1),  # one that fell
        passing(second=PASSED + 65),  # above one that was granted later
        passing(takes=15),  # taken up before it was passed on
        passing(gives=40),  # still held when another process was granted
    ],
)
def test_a_lease_that_was_passed_on_wrongly_is_refused(calls: list[Call]) -> None:
    """Each of these breaks one promise."""
    assert not linearizable(alone(calls))


def test_whoever_waits_may_be_told_so() -> None:
    """By a store of records, though it could be granted by now; but nobody else is granted before it."""
    fence = 100_000_000_000_000
    waits = ops.Queued(0, 0, "")
    calls = [
        Call(ops.Claim("r", "a", 1000), ops.Granted(fence, 1000), 0, 1),
        Call(ops.Claim("r", "b", 1000), waits, 2, 3),
        Call(ops.Release("r", "a", fence), ops.Released(), 4, 5),
        Call(ops.Beat("r", "b", 2), waits, 6, 7),
        Call(ops.Beat("r", "b", 3), ops.Granted(fence + 1, 1000), 8, 9),
    ]
    assert of_records(alone(calls)) and not linearizable(alone(calls))
    passed_over = Call(ops.Claim("r", "c", 1000), ops.Granted(fence + 1, 1000), 8, 9)
    assert not of_records(alone([*calls[:4], passed_over]))
