"""A lease that lingers in a process that is frozen, killed or alive, and what another process sees of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

import leasehold
from tests.support.parties import mostly
from tests.support.redis.crew import RedisCrew
from tests.support.servers.database import Database
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until
from tests.support.workers import journal
from tests.support.workers.crew import SLACK, Crew, Worker, beat, report

pytestmark = pytest.mark.slow

TTL = 3.0
LONG = 10 * PATIENCE  # what is waited for this long has not happened by itself
MOMENT = 2.0
ROUNDING = 0.005  # seconds: stores count in milliseconds


@pytest.fixture(params=["SQLite", "Redis"])
def crew(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crew]:
    """Processes that share a store; reaped at the end."""
    made: Crew
    if request.param == "SQLite":
        made = Crew(tmp_path)
    else:
        request.getfixturevalue("redis_url")  # it is empty
        server: RedisServer = request.getfixturevalue("redis_server")
        made = RedisCrew(tmp_path, server)
    yield made
    made.close()


class Lingering(NamedTuple):
    """A process with a lease that nobody uses."""

    worker: Worker
    fence: int  # of its last turn
    since: float  # its lease was not renewed before
    until: float  # nor after


def lingering(crew: Crew, flavour: str, ttl: float) -> Lingering:
    """It has taken its turns, the last of them without the store, and keeps the lease."""
    (worker,) = crew.ready(flavour)
    options = {"kind": "job", "ttl": ttl, "linger": ttl}

    def turn() -> tuple[int, float, float]:
        fence: int = worker.ask("acquire", **options)["fence"]
        began = journal.now()
        released = worker.ask("release")
        assert released["released"] is True
        return fence, began, released["at"]

    def keeps() -> tuple[int, float, float] | None:
        last = turn()
        return last if crew.peek("job").holders else None

    first, since, _ = until(keeps, "it can be told, so that its lease lingers")
    (grant,) = crew.peek("job").holders
    fence, _, end = turn()
    assert fence > first and crew.peek("job").holders[0].fence == grant.fence, "it was taken again without the store"
    return Lingering(worker, fence, since, end)


def overtaken(crew: Crew, holder: Lingering) -> tuple[Worker, int]:
    """Another process waits, and gets it when the ttl is over: not before, and at most one beat later."""
    (other,) = crew.ready("sync")
    assert len(crew.peek("job").holders) == 1, "it still lingers"
    other.tell("acquire", kind="job", ttl=TTL)
    granted = other.hear()
    report(f"granted {granted['at'] - holder.until:.3f} s after the last turn, ttl {TTL}")
    assert holder.since + TTL - ROUNDING <= granted["at"] <= holder.until + TTL + beat(TTL) + SLACK
    assert granted["fence"] > holder.fence
    return other, granted["fence"]


@mostly("sync")
def test_a_frozen_process_keeps_what_lingers_for_its_ttl(crew: Crew, flavour: str) -> None:
    """Another one gets it then. The frozen one takes nothing that is over when it goes on."""
    holder = lingering(crew, flavour, TTL)
    crew.freeze(holder.worker)
    other, fence = overtaken(crew, holder)
    holder.worker.go_on()
    assert holder.worker.ask("acquire", kind="job", ttl=TTL, linger=TTL, wait=0)["fence"] is None
    assert other.ask("state") == {"state": "held", "owned": True} and other.ask("release")["released"] is True
    assert holder.worker.ask("acquire", kind="job", ttl=TTL)["fence"] > fence


@mostly("asyncio")
def test_a_dead_process_keeps_what_lingers_for_its_ttl(crew: Crew, flavour: str) -> None:
    """Nobody gives it back: another one gets it when its ttl is over."""
    holder = lingering(crew, flavour, TTL)
    holder.worker.kill()
    other, _ = overtaken(crew, holder)
    assert other.ask("release")["released"] is True


@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_a_living_process_gives_back_what_lingers(crew: Crew, flavour: str) -> None:
    """It is told that another one waits: neither its moment nor its ttl is over by then. It waits in turn."""
    holder = lingering(crew, flavour, LONG)
    (other,) = crew.ready("sync")
    granted = other.ask("acquire", kind="job", ttl=LONG)
    report(f"granted {granted['at'] - holder.until:.3f} s after the last turn")
    assert granted["at"] < holder.since + LONG and granted["fence"] > holder.fence
    holder.worker.tell("acquire", kind="job", ttl=LONG, linger=LONG)
    crew.waiting("job", 1)
    assert other.ask("release")["released"] is True
    assert holder.worker.hear()["fence"] > granted["fence"]


# ---------------------------------------------------------------- nobody can tell it


class OwnPool(redis.ConnectionPool):
    """Of a client with such a pool the commands are used, because nothing is known of how it connects."""


def borrowed_client(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """The URL of a Redis, and a client that cannot be pushed to."""
    url = request.getfixturevalue("redis_url")
    client = redis.Redis(connection_pool=OwnPool.from_url(url))
    request.addfinalizer(client.connection_pool.disconnect)
    return url, client


def no_channel(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """The URL of a PostgreSQL where nobody listens."""
    database: Database = request.getfixturevalue("postgres_database")
    return f"{database.url}?listen=no", f"{database.url}?listen=no"


@pytest.mark.parametrize("without", [borrowed_client, no_channel])
def test_where_nothing_is_pushed_it_lingers_for_its_moment(
    without: Callable[[Any], tuple[str, Any]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Another process waits until the moment is over: it gets the lease then, long before the ttl is over."""
    url, store = without(request)
    crew = Crew(tmp_path, url)
    with leasehold.connect(store) as hold:
        (other,) = crew.ready("sync")
        lock = hold.lock("job", ttl=LONG, linger=MOMENT, wait=PATIENCE)
        assert not hold._engine.store.capabilities.push
        with lock as lease:
            first = lease.fence
        with lock as lease:
            assert lease.fence > first
            began = journal.now()
        kept = hold._engine.watchdog.lingering
        assert len(kept) == 1, "it lingers"
        granted = other.ask("acquire", kind="job", ttl=LONG)
        report(f"granted {granted['at'] - began:.3f} s after it was released, moment {MOMENT}")
        assert granted["fence"] > lease.fence and granted["at"] < began + LONG
        assert granted["at"] >= began + MOMENT - ROUNDING, "nobody told it"
        assert not kept and lock.try_acquire() is None and other.ask("release")["released"] is True
    crew.close()
