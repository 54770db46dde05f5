"""Processes on one database: they fork, they end, and somebody freezes and kills whoever holds."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import leasehold
from leasehold import StaleOwner
from leasehold.guards.sql import FenceGuard
from tests.integration.postgresql.crew import PostgresCrew
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair
from tests.support.waiting import PATIENCE, until
from tests.support.workers.crew import report
from tests.support.workers.scenes import fork_many, holding, judge_child, renewed, still_renews, storm

pytestmark = pytest.mark.slow

TTL = 600.0  # seconds: nothing expires meanwhile
SHORT = 2.0  # of a lease that others wait for


@pytest.fixture
def crew(tmp_path: Path, postgres_server: PostgresServer, postgres_database: Database) -> Iterator[PostgresCrew]:
    """Processes that share an empty database."""
    crew = PostgresCrew(tmp_path, postgres_server, postgres_database)
    yield crew
    crew.close()


def settled(crew: PostgresCrew) -> set[int]:
    """The sessions of one process that holds: that of its calls, and the one that listens."""
    until(lambda: len(crew.sessions()) == 2, "both are there")
    return crew.sessions()


# ---------------------------------------------------------------- forks


@pytest.mark.parametrize("leave", ["sys.exit", pytest.param("os._exit", marks=pytest.mark.soak)])
def test_a_forked_child_holds_nothing(crew: PostgresCrew, leave: str) -> None:
    """It can work at once, and its end disturbs neither the lease nor the sessions of its parent."""
    worker, lease = holding(crew)
    before = settled(crew)
    judge_child(worker.ask("fork", other="other", leave=leave))
    until(lambda: len(crew.sessions()) == 2, "the child's are gone")
    still_renews(crew, worker, lease)
    assert crew.sessions() >= before


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.soak
def test_a_child_by_multiprocessing(crew: PostgresCrew, method: str) -> None:
    """By fork it holds nothing; by spawn it begins anew."""
    worker, lease = holding(crew)
    before = settled(crew)
    facts = worker.ask("child", method=method, other="other")
    if method == "fork":
        judge_child(facts)
    assert facts["other"] is True and facts["code"] == 0
    still_renews(crew, worker, lease)
    assert crew.sessions() >= before


@pytest.mark.soak
def test_fork_while_other_threads_are_busy(crew: PostgresCrew) -> None:
    """Forks in the middle of other threads' calls: every child can work, and the parent goes on."""
    worker, lease = holding(crew)
    fork_many(worker)
    renewed(crew, lease)
    assert worker.ask("state") == {"state": "held", "owned": True}


def test_the_parent_is_told_after_a_fork(crew: PostgresCrew) -> None:
    """Its session that listens goes on: a waiter that never asks again hears of its grant, and so does its child."""
    parent, holder = crew.ready("sync", "sync")
    assert parent.ask("acquire", kind="mine", ttl=TTL)["fence"]
    parent.ask("beat_rarely")
    child = parent.ask("fork_and_stay", other="childs", ttl=TTL)
    held = holder.ask("acquire", kind="job", ttl=TTL)
    parent.tell("acquire", kind="job", ttl=TTL)
    crew.waiting("job", 1)
    holder.ask("release")
    granted = parent.hear()
    assert granted["fence"] > held["fence"]
    assert [one.owner for one in crew.peek("childs").holders] == [child["owner"]]
    os.kill(child["pid"], 9)
    parent.ask("reap", pid=child["pid"])


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("how", ["sys.exit", "raise", "end"])
def test_a_process_that_ends_leaves_no_session(crew: PostgresCrew, how: str) -> None:
    """Also one that ends with an error: its lease is given back, and the server has no session of it."""
    worker, _ = holding(crew)
    settled(crew)
    worker.tell("quit", how=how)
    worker.end()
    until(lambda: not crew.sessions(), "its sessions are gone")
    until(lambda: not crew.peek("job").holders, "its lease is given back")


def test_a_closed_coordinator_leaves_nothing(postgres_server: PostgresServer, postgres_database: Database) -> None:
    """No session, no thread, no socket, no holder and no waiter: after threads that used it, and one that waits."""
    threads, sockets = threading.active_count(), open_sockets()
    hold = leasehold.connect(postgres_database.url)
    other = leasehold.connect(postgres_database.url)
    kept = other.lock("job", ttl=TTL).acquire(wait=0)
    waits = threading.Thread(target=wait_in_vain, args=[hold])
    waits.start()
    until(lambda: other.inspect("job").waiters, "it waits")
    hold.close()
    waits.join(PATIENCE)
    assert kept is not None and not other.inspect("job").waiters and kept.release() is True
    other.close()
    until(lambda: not postgres_server.backends(postgres_database), "its sessions are gone")
    until(lambda: threading.active_count() == threads and open_sockets() == sockets, "its threads and sockets are gone")


def wait_in_vain(hold: Any) -> None:
    """Until the coordinator is closed."""
    with pytest.raises(leasehold.StoreUnavailable):
        hold.lock("job", ttl=TTL).acquire(wait=PATIENCE)


def open_sockets() -> int:
    """Of this process."""
    return sum(is_socket(one) for one in Path("/proc/self/fd").iterdir())


def is_socket(descriptor: Path) -> bool:
    """The folder itself was a descriptor while it was read."""
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------- guards beside it


def promote_a_standby(pair: PostgresPair) -> tuple[bool, int]:
    """While a lease is held. Were there two holders, and how many writes of the first did a guard accept, which is in
    the same database, after the second had written?"""
    guard, accepted = FenceGuard(), 0
    with leasehold.connect(pair.url) as hold, leasehold.connect(pair.url) as other:
        old = hold.lock("job", ttl=SHORT, renew=False).acquire(wait=0)
        assert old is not None
        pair.primary.kill()
        pair.promote()
        new = other.lock("job", ttl=TTL, renew=False).acquire(wait=PATIENCE)
        two_holders = old.remaining() > 0
        assert new is not None and new.fence > old.fence
        with closing(psycopg.connect(pair.main.dsn)) as data:
            with data.transaction():
                guard.check(data, new)
            try:
                with data.transaction():
                    guard.check(data, old)
                    accepted += 1
            except StaleOwner:
                pass
    return two_holders, accepted


@pytest.mark.parametrize(
    ("synchronous", "rounds"),
    [(False, 1), pytest.param(False, 20, marks=pytest.mark.soak), pytest.param(True, 20, marks=pytest.mark.soak)],
)
def test_a_stale_owner_is_refused_by_a_guard_in_the_same_database(
    own_postgres_pair: Callable[..., PostgresPair], synchronous: bool, rounds: int
) -> None:
    """After the promotion of an asynchronous standby that was cut off there are two holders, of a synchronous one
    never. The guard accepts no write of the first."""
    violations = accepted = 0
    for _ in range(rounds):
        pair = own_postgres_pair(synchronous=synchronous)
        with closing(psycopg.connect(pair.main.dsn)) as data, data.transaction():
            FenceGuard().create(data)
        pair.settle()
        if not synchronous:
            pair.cut_replication()
        two_holders, stale = promote_a_standby(pair)
        violations += two_holders
        accepted += stale
    report(f"{rounds} promotions: {violations} times two holders, {accepted} stale writes accepted")
    assert (violations, accepted) == (0 if synchronous else rounds, 0)


@pytest.mark.soak
def test_freezes_and_kills_of_holders(crew: PostgresCrew) -> None:
    """Minutes of it: stale writes are tried, and none is accepted (I3, I4). LEASEHOLD_SEED replays the choices."""
    seconds = float(os.environ.get("LEASEHOLD_SECONDS") or 120)
    storm(crew, seconds, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
