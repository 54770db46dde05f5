"""The contract of a lock, over every store, every way to it, and both flavours."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

import leasehold.stores
import tests.contract.cases.all  # more cases
import tests.contract.cases.election
import tests.contract.cases.many
import tests.contract.cases.operators
import tests.contract.cases.rwlock
import tests.contract.cases.semaphore
from leasehold.errors import Unsupported
from tests.contract.cases.lock import CASES
from tests.contract.cases.unordered import UNORDERED
from tests.contract.ways import AGE_US, WAYS, TurnedCluster
from tests.support.parties import FLAVOURS, Step
from tests.support.scene import Scene, fails
from tests.support.servers.clock import OneClock
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.sentinel import SentinelServer
from tests.support.waiting import until

TICKET = "a ticket"
QUICK = "not slow and not soak"  # what `make quick` selects


def transferred(hold: Any) -> Any:
    """A lease that is given away, in either flavour."""

    async def awaited(lease: Any) -> Any:
        return await (await lease).transfer()

    lease = hold.lock("job").acquire()
    return awaited(lease) if inspect.isawaitable(lease) else lease.transfer()


def evicted(hold: Any) -> Any:
    """An eviction."""
    return hold.evict("job", fence=1, reason="a test")


COMBINATIONS = [(way, flavour) for way in WAYS for flavour in FLAVOURS]
STILL = ("--jemalloc-bg-thread", "no")  # it would wait in vain for a clock that stands, and take a whole core for that
ON_A_SERVER = (
    "redis-url", "redis-client", "redis-client-resp2", "redis-sentinel", "redis-cluster", "redis-cluster-namespace",
    "redlock-url", "postgresql-url", "postgresql-pool", "postgresql-engine", "postgresql-pooled",
    "etcd-url", "zookeeper-url",
)  # fmt: skip
# These are seen in part: a client's settings lead to the connection that a URL leads to, and a borrowed client runs the
# same scripts through its own commands. `make soak` plays every case on them.
IN_PART = (
    "redis-client", "redis-borrowed", "postgresql-pool", "postgresql-engine", "postgresql-pooled",
)  # fmt: skip
# On a Cluster every case is played in one flavour, in turns, and `make soak` plays it in the other too.
IN_TURNS = ("redis-cluster",)
# What a case needs of its store: a capability, and what says so at once where the store does not have it.
NEEDS: dict[str, tuple[str, Step]] = {
    "tests.contract.cases.all": ("groups", lambda hold: hold.all(hold.lock("a"), hold.lock("b"))),
    "tests.contract.cases.rwlock": ("shared", lambda hold: hold.rwlock("job")),
    "tests.contract.cases.semaphore": ("shared", lambda hold: hold.semaphore("job", limit=2)),
    "a_batch_of_readers_and_permits": ("shared", lambda hold: hold.rwlock("job")),
    "a_ticket_hands_the_lease_over": ("handover", transferred),
    "a_ticket_is_good_once": ("handover", lambda hold: hold.adopt(TICKET)),
    "a_ticket_ends_with_its_lease": ("handover", lambda hold: hold.adopt(TICKET)),
    "an_adopted_lease_is_renewed": ("handover", lambda hold: hold.adopt(TICKET)),
    "who_waits_is_served_after_the_adopter": ("handover", lambda hold: hold.adopt(TICKET)),
    "a_body_can_give_its_lease_away": ("handover", transferred),
    "what_was_lost_cannot_be_given_away": ("handover", transferred),
    "evict_takes_a_lease_away": ("evictions", evicted),
    "evict_hits_nobody_else": ("evictions", evicted),
    "evict_opens_the_door_early_by_force_alone": ("evictions", evicted),
    "callbacks_hear_of_each_term": ("evictions", evicted),
    "what_lingers_is_taken_again": ("lingering", lambda hold: hold.lock("job", linger=1)),
    "what_lingers_goes_to_another": ("lingering", lambda hold: hold.lock("job", linger=1)),
    "revoke_asks_the_holder": ("evictions", lambda hold: hold.revoke("job")),
}
SEEN_EVERYWHERE = (
    "a_second_is_refused_while_held",
    "the_fence_grows_with_each_acquisition",
    "extend_never_brings_back",
    "a_wait_that_runs_out_leaves_nothing",
    "one_try_does_not_overtake",
    "the_watchdog_renews",
    "metadata_travels",
    "close_gives_back",
    "all_waits_until_the_last_is_free",
    "many_are_granted_each_by_itself",
    "many_are_released_together",
    "one_leads_at_a_time",
    "a_ticket_hands_the_lease_over",
    "evict_takes_a_lease_away",
    "ping_is_answered_by_the_store",
    "readers_hold_together",
    "several_permits_come_at_once",
)


def of_several(name: str) -> bool:
    """Whether the case takes several locks in one step."""
    return CASES[name].__module__ == tests.contract.cases.all.__name__


# In a Cluster each lock is in a slot of its own, and what takes several is refused (tests/integration/cluster); with
# slot="namespace" it is not, and that is what the second way is for.
LEFT_OUT = {("redis-cluster", True), ("redis-cluster-namespace", False)}
PLAYED = [
    (name, way, flavour) for way, flavour in COMBINATIONS for name in CASES if (way, of_several(name)) not in LEFT_OUT
]


def turn_of(name: str) -> str:
    """The flavour in which a way that takes turns plays this case."""
    return list(FLAVOURS)[list(CASES).index(name) % len(FLAVOURS)]


def parameter(name: str, way: str, flavour: str) -> Any:
    """What needs a server is slow; most of what is seen in part is for the soak, and tasks on a file are not quick."""
    everywhere = name in SEEN_EVERYWHERE
    slow = way in ON_A_SERVER or ((way, flavour) == ("sqlite", "asyncio") and not everywhere)
    left = way in IN_PART or (way in IN_TURNS and flavour != turn_of(name))
    marks = [pytest.mark.slow] * slow + [pytest.mark.soak] * (left and not everywhere)
    return pytest.param(name, (way, flavour), id=f"{name}-{way}-{flavour}", marks=marks)


@pytest.fixture(scope="session")
def turned_redis() -> Iterator[tuple[OneClock, RedisServer]]:
    """A server for the whole run that sees the clock which the cases turn."""
    clock = OneClock()
    with RedisServer(None, *STILL, clock=clock) as server:
        yield clock, server


@pytest.fixture(scope="session")
def watched_redis(turned_redis: tuple[OneClock, RedisServer]) -> Iterator[str]:
    """The same server, as a Sentinel names it. That one has the clock of the world, and never finds the server down."""
    sentinel = SentinelServer(haste={})
    sentinel.watch([f"monitor leases 127.0.0.1 {turned_redis[1].port} 1", "down-after-milliseconds leases 3600000"])
    with sentinel:
        yield f"redis+sentinel://127.0.0.1:{sentinel.port}/leases"


@pytest.fixture(scope="session")
def turned_cluster() -> Iterator[tuple[OneClock, TurnedCluster]]:
    """The same with a Cluster."""
    clock = OneClock()
    with TurnedCluster(clock, *STILL) as cluster:
        yield clock, cluster


def is_old(server: RedisServer) -> bool:
    """It notices a new time a few times in a second."""
    return int(server.client().info("server")["uptime_in_seconds"]) * 1_000_000 >= AGE_US


@pytest.fixture(scope="session")
def turned_masters() -> Iterator[tuple[OneClock, list[RedisServer]]]:
    """Three servers for the whole run that see one clock, and have been up for longer than any lease lasts."""
    clock = OneClock()
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(None, *STILL, clock=clock)) for _ in range(3)]
        clock.advance(AGE_US / 1_000_000)
        for server in servers:
            until(partial(is_old, server), "it has grown old")
        yield clock, servers


@pytest.fixture(scope="session")
def turned_postgres() -> Iterator[tuple[OneClock, PostgresServer]]:
    """A PostgreSQL for the whole run that sees the clock which the cases turn."""
    clock = OneClock()
    with PostgresServer(clock=clock) as server:
        yield clock, server


@pytest.fixture(scope="session")
def turned_pgbouncer(turned_postgres: tuple[OneClock, PostgresServer]) -> Iterator[PgBouncer]:
    """A pooler before that server. It has the clock of the world."""
    with PgBouncer(turned_postgres[1], size=10) as pooler:
        yield pooler


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """An empty store, and a clock that the case turns."""
    way, flavour = request.param
    open_store, clock = WAYS[way](request, flavour)
    scene = Scene(open_store, FLAVOURS[flavour], clock)
    yield scene
    scene.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case on every way to a store. Where slow ones would be deselected, thousands are not even made."""
    if metafunc.function is not test_contract:
        return
    played = [parameter(*one) for one in PLAYED]
    if metafunc.config.getoption("-m") == QUICK:
        played = [one for one in played if not one.marks]
    metafunc.parametrize(("name", "scene"), played, indirect=["scene"])


def test_contract(name: str, scene: Scene) -> None:
    """The case holds on this store, reached in this way, in this flavour; or the store states that it cannot do it, and
    says so to whoever tries."""
    need = NEEDS.get(name) or NEEDS.get(CASES[name].__module__)
    if need is not None and not getattr(scene.capabilities, need[0]):
        fails(Unsupported, scene.party().start(need[1]))
    elif name in UNORDERED and not scene.capabilities.fair:
        UNORDERED[name](scene)
    else:
        CASES[name](scene)


def test_every_store_takes_part() -> None:
    """A store that exists and has no scene here fails the suite: nothing is left out quietly."""
    helpers = {"clock", "concurrency", "mailbox", "place", "record", "state_text"}
    existing = {module.name for module in pkgutil.iter_modules(leasehold.stores.__path__)} - helpers
    assert existing | {"redlock"} == {way.partition("-")[0] for way in WAYS}


def test_every_way_to_redis_is_gone() -> None:
    """By URL, with a client of either protocol, through a client's own commands, and by asking Sentinels."""
    ways = {way.partition("-")[2] for way in WAYS if way.startswith("redis")}
    assert ways == {"url", "client", "client-resp2", "borrowed", "sentinel", "cluster", "cluster-namespace"}


def test_ways_that_take_turns_play_every_case() -> None:
    """Outside the soak each case in one flavour at least, and about as many in either."""
    for way in IN_TURNS:
        cases = [(name, flavour) for name, one, flavour in PLAYED if one == way]
        played = [(name, flavour) for name, flavour in cases if not is_soak(name, way, flavour)]
        assert {name for name, _ in played} == {name for name, _ in cases}
        counts = [sum(flavour == one for _, flavour in played) for one in FLAVOURS]
        assert max(counts) - min(counts) <= len(cases) // 10


def is_soak(name: str, way: str, flavour: str) -> bool:
    """Whether only `make soak` plays it."""
    return any(mark.name == "soak" for mark in parameter(name, way, flavour).marks)


def test_every_combination_is_run() -> None:
    """Ways times flavours, none missing, and the suite has cases."""
    assert set(COMBINATIONS) == {(way, flavour) for way in WAYS for flavour in ("sync", "asyncio")}
    for name in CASES:
        left_out = set(WAYS) - {way for one, way, _ in PLAYED if one == name}
        assert left_out == {"redis-cluster" if of_several(name) else "redis-cluster-namespace"}
    assert len(CASES) >= 25 and {*SEEN_EVERYWHERE, *UNORDERED} <= set(CASES)
