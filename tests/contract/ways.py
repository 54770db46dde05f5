"""Every way to a store that the contract is played on: stores, and for Redis a URL, a client, a borrowed one, and
Sentinel.

A way gets the fixtures of its test and gives back how a party opens the store and the clock that all of them share.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from leasehold._core.ops import Group, Inspect, StoreOp
from leasehold._core.policy import HEAD_POLL_MS
from leasehold._core.ports import Store
from leasehold._core.rules import EXCLUSIVE
from leasehold._runtime.engine import engines_on
from leasehold.stores import state_text
from leasehold.stores.clock import ManualClock
from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.memory import MemoryStore
from leasehold.stores.postgresql.schema import TABLE, ddl, grants
from leasehold.stores.postgresql.store import PostgresStore
from leasehold.stores.record.store import RecordStore
from leasehold.stores.redis import RedisStore, sentinel
from leasehold.stores.redis.client_store import ClientStore, open_client
from leasehold.stores.redis.cluster import naming
from leasehold.stores.redis.cluster.nodes import Cluster
from leasehold.stores.redis.cluster.store import ClusterStore
from leasehold.stores.redis.redlock.commands import MARKER
from leasehold.stores.redis.redlock.store import RedlockStore
from leasehold.stores.redis.target import Target, from_url
from leasehold.stores.sqlite import SQLiteStore
from leasehold.stores.zookeeper.server import ZooKeeper
from tests.support.servers.clock import OneClock
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

AGE_US = 3_600_000_000  # of the masters of a Redlock
Opened = tuple[Callable[[], Store], ManualClock]
Way = Callable[[pytest.FixtureRequest, str], Opened]


def memory(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party shares one store object: that is what a process-wide space is."""
    store = MemoryStore(ManualClock())
    return lambda: store, store.clock  # type: ignore[return-value]  # the clock that it was given


def sqlite(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party opens the same file."""
    clock, folder = ManualClock(), request.getfixturevalue("tmp_path")
    return lambda: SQLiteStore(str(folder / "leases.db"), clock), clock


# ---------------------------------------------------------------- Redis Cluster


class TurnedCluster(RedisCluster):
    """Three masters that see the clock which the cases turn. It jumps by hours, and no node fails for that."""

    def __init__(self, clock: OneClock, *options: str, replicas: int = 0) -> None:
        super().__init__(3, replicas, *options, clocks=False, node_timeout_ms=1_000_000_000)
        self._clock, self._joined = clock, False
        for node in self.nodes:
            node.clock = clock

    def _set_clocks(self, off: float) -> None:
        """A master serves nothing in its first two seconds, which pass here when all of them know their slots."""
        if off == 0 and not self._joined:
            self._joined = True
            self._clock.advance(3)


def cluster_url(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is told where some nodes are."""
    clock, cluster = wiped_cluster(request)
    return lambda: ClusterStore(cluster.url, clock), clock


class OneNamespace(Cluster):
    """All locks of a case are in one namespace, although the case does not name it."""

    def stored_name(self, resource: str) -> str:
        """In the slot of the namespace."""
        return naming.stored(f"ours/{resource}")

    def stored(self, op: StoreOp) -> StoreOp:
        """The same for an op."""
        if isinstance(op, Group):
            steps: Any = tuple(self.stored(step) for step in op.steps)
            return op._replace(steps=steps)
        changed: Any = op
        return naming.stored_op(changed._replace(resource=f"ours/{op.resource}"))


def cluster_namespace(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """The same with all locks of a namespace in one slot, so that several can be taken in one step."""
    clock, cluster = wiped_cluster(request)
    seeds = [("127.0.0.1", node.port) for node in cluster.nodes]

    def open_store() -> Store:
        store = ClusterStore(OneNamespace(Target(), seeds), clock)
        store.choose_slots(naming.NAMESPACE)
        return store

    return open_store, clock


def wiped_cluster(request: pytest.FixtureRequest) -> tuple[OneClock, TurnedCluster]:
    """The Cluster of this run and its clock, with nothing of the case before."""
    clock, cluster = request.getfixturevalue("turned_cluster")
    for node in cluster.nodes:
        node.wipe()
    return clock, cluster


# ---------------------------------------------------------------- Redis


def redis_url(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is told where the server is."""
    clock, server = wiped(request)
    return lambda: RedisStore(server.url, clock), clock


def redis_client(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is given the same client, made with nothing but an address."""
    clock, server = wiped(request)
    client = client_class(flavour)(port=server.port)
    return lambda: open_client(client, clock), clock


def redis_client_resp2(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """The same with a client that speaks RESP2 and gives back text (trap 16)."""
    clock, server = wiped(request)
    client = client_class(flavour)(port=server.port, protocol=2, decode_responses=True)
    return lambda: open_client(client, clock), clock


class FakeOfLoops:
    """An asyncio client belongs to one event loop, and the parties of a case have several: a fake one for each."""

    def __init__(self, space: Any) -> None:
        self._space = space
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}

    async def execute_command(self, *args: Any) -> Any:
        """With the one of this loop."""
        import fakeredis

        loop = asyncio.get_running_loop()
        client = self._clients.setdefault(loop, fakeredis.FakeAsyncRedis(server=self._space))
        return await client.execute_command(*args)


def redis_borrowed(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """A client that no server is behind: it is used through its own commands, and nothing is pushed."""
    import fakeredis

    clock, space = ManualClock(), fakeredis.FakeServer()
    request.getfixturevalue("monkeypatch").setattr(time, "time", lambda: clock.instant().wall_us / 1_000_000)
    looker = fakeredis.FakeRedis(server=space)
    request.addfinalizer(let_moments_pass(looker, clock))
    opened: list[Store] = []

    def open_store() -> Store:
        # The first is the scene's own, which looks from outside any event loop.
        client = FakeOfLoops(space) if opened and flavour == "asyncio" else looker
        opened.append(open_client(client, clock))
        assert isinstance(opened[-1], ClientStore)
        return opened[-1]

    return open_store, clock


def let_moments_pass(client: Any, clock: ManualClock) -> Callable[[], None]:
    """Where nothing is pushed, whoever is first in line asks again after a moment. So moments pass, by themselves,
    while a lock is free, or shared so that there may be room, and somebody stands in line for it. Ends when the result
    is called."""

    def moments_matter() -> bool:
        owners = [client.get(key.replace(b":queue", b":owner")) for key in client.keys("*:queue")]
        return any(owner is None or owner.startswith(b":") for owner in owners)

    return let_pass(clock, moments_matter)


def let_pass(clock: ManualClock, moments_matter: Callable[[], bool]) -> Callable[[], None]:
    """Let a moment pass, again and again, while that is so. Ends when the result is called."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.002):
            if moments_matter():
                clock.advance(HEAD_POLL_MS / 1000)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop


def redis_sentinel(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party asks a Sentinel where the server is."""
    clock, _ = wiped(request)
    url = request.getfixturevalue("watched_redis")
    return lambda: RedisStore(sentinel.from_url(url), clock), clock


def client_class(flavour: str) -> Any:
    """What a user of that flavour has."""
    import redis.asyncio

    return redis.asyncio.Redis if flavour == "asyncio" else redis.Redis


def wiped(request: pytest.FixtureRequest) -> tuple[OneClock, RedisServer]:
    """The server of this run and its clock, with nothing of the case before."""
    clock, server = request.getfixturevalue("turned_redis")
    server.wipe()
    return clock, server


def redlock_url(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is told where the three masters are. They keep an old marker: else none of them would count."""
    clock, servers = request.getfixturevalue("turned_masters")
    for server in servers:
        server.wipe()
        server.client().set(MARKER, f"{clock.instant().wall_us - AGE_US} 1")
    request.addfinalizer(let_retries_happen([server.client() for server in servers], clock))
    targets = [from_url(server.url) for server in servers]
    return lambda: RedlockStore(targets, clock), clock


def let_retries_happen(clients: list[Any], clock: ManualClock) -> Callable[[], None]:
    """Where there is no queue, whoever waits tries again after a moment. So moments pass, by themselves, while nothing
    is held and somebody waits. Ends when the result is called."""

    def moments_matter() -> bool:
        waits = any(engine.pending for engine in engines_on(clock))
        return waits and not any(client.keys("*:owner") for client in clients)

    return let_pass(clock, moments_matter)


# ---------------------------------------------------------------- PostgreSQL


def postgresql_url(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is told where the server is, and may do there what `leasehold store sql` grants, and no more."""
    clock, server = emptied(request)
    for statement in (*ddl(TABLE), *grants(TABLE, a_role(server))):
        server.execute(statement)
    url = f"postgresql://{a_role(server)}@127.0.0.1:{server.port}/postgres?create=no"
    return lambda: PostgresStore(url, clock), clock


def a_role(server: PostgresServer) -> str:
    """One that owns nothing."""
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'worker'"):
        server.execute("CREATE ROLE worker LOGIN")
    return "worker"


def postgresql_pool(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is given a pool of psycopg's, which says how to connect."""
    import psycopg_pool

    clock, server = emptied(request)
    kind: Any = psycopg_pool.AsyncConnectionPool if flavour == "asyncio" else psycopg_pool.ConnectionPool
    return after_the_look(lambda: kind(server.url, open=False), server.url, clock)


def postgresql_engine(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is given an engine of SQLAlchemy's."""
    import sqlalchemy.ext.asyncio

    clock, server = emptied(request)
    create: Any = sqlalchemy.ext.asyncio.create_async_engine if flavour == "asyncio" else sqlalchemy.create_engine
    return after_the_look(lambda: create(server.sqlalchemy_url("psycopg")), server.url, clock)


def after_the_look(make: Callable[[], Any], url: str, clock: OneClock) -> Opened:
    """The first store is the scene's own, which looks from outside any event loop."""
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(PostgresStore(make() if opened else url, clock))
        return opened[-1]

    return open_store, clock


def postgresql_pooled(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Through PgBouncer, which shares its sessions: nothing is pushed."""
    clock, server = emptied(request)
    url = request.getfixturevalue("turned_pgbouncer").before(server.main).url
    request.addfinalizer(let_rows_matter(server, clock))
    return lambda: PostgresStore(f"{url}?listen=no", clock), clock


def let_rows_matter(server: PostgresServer, clock: ManualClock) -> Callable[[], None]:
    """As ``let_moments_pass``, for rows."""
    import psycopg

    connection = psycopg.connect(server.url, autocommit=True)

    def moments_matter() -> bool:
        try:
            rows = connection.execute(f"SELECT state FROM {TABLE} WHERE state IS NOT NULL").fetchall()
        except psycopg.errors.UndefinedTable:
            return False
        states = [state_text.decode(row[0]) for row in rows]
        return any(state.queue and (not state.holders or state.holders[0].rule not in EXCLUSIVE) for state in states)

    stop = let_pass(clock, moments_matter)

    def end() -> None:
        stop()
        connection.close()

    return end


def emptied(request: pytest.FixtureRequest) -> tuple[OneClock, PostgresServer]:
    """The server of this run and its clock, with nothing of the case before."""
    clock, server = request.getfixturevalue("turned_postgres")
    server.execute(f"DROP TABLE IF EXISTS {TABLE}")
    return clock, server


# ---------------------------------------------------------------- etcd and ZooKeeper


class SeenClock(ManualClock):
    """A clock that everybody reads. Before time passes, every party has seen what there is: nothing in a record ends by
    a clock of the server, but by that of who has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: list[Store] = []  # those that are open
        self.names: set[str] = set()  # of what they use

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        for store in tuple(self.stores):
            for name in tuple(self.names):
                store.execute(Inspect(name, queue=False))
        super().advance(seconds)


class OpenStore(RecordStore):
    """It looks around until it is closed."""

    def __init__(self, name: str, server: Any, clock: SeenClock) -> None:
        super().__init__(name, server, clock)
        self._stores, self._names = clock.stores, clock.names
        self._stores.append(self)

    def _begin(self, op: StoreOp, forks: int | None) -> Any:
        """Whatever is used is looked at by all."""
        steps = op.steps if isinstance(op, Group) else (op,)
        self._names.update(step.resource for step in steps if step.resource)
        return super()._begin(op, forks)

    def close(self) -> None:
        """Once or often."""
        if self in self._stores:
            self._stores.remove(self)
        super().close()


def on_records(name: str, make: Callable[[], Any]) -> Opened:
    """Every party has a store of its own; the wall clock is the one that the cases turn."""
    clock = SeenClock()

    def open_store() -> Store:
        server = make()
        server.wall_us = lambda: clock.instant().wall_us
        return OpenStore(name, server, clock)

    return open_store, clock


def etcd_url(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """Every party is told where the server is."""
    url = request.getfixturevalue("etcd_url")
    return on_records("etcd", lambda: EtcdRecords.from_url(url))


def zookeeper_url(request: pytest.FixtureRequest, flavour: str) -> Opened:
    """The same."""
    url = request.getfixturevalue("zookeeper_url")
    return on_records("zookeeper", lambda: ZooKeeper(url))


WAYS: dict[str, Way] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis-url": redis_url,
    "redis-client": redis_client,
    "redis-client-resp2": redis_client_resp2,
    "redis-borrowed": redis_borrowed,
    "redis-sentinel": redis_sentinel,
    "redis-cluster": cluster_url,
    "redis-cluster-namespace": cluster_namespace,
    "redlock-url": redlock_url,
    "postgresql-url": postgresql_url,
    "postgresql-pool": postgresql_pool,
    "postgresql-engine": postgresql_engine,
    "postgresql-pooled": postgresql_pooled,
    "etcd-url": etcd_url,
    "zookeeper-url": zookeeper_url,
}
