"""Clients that cannot be reduced to an address, and servers without pushes: slower ways that work, and say so."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest
import redis.asyncio.retry
import redis.sentinel
import valkey
from redis.backoff import NoBackoff
from redis.retry import Retry

import leasehold
from leasehold import InvalidRequest, LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold._runtime.engine import Engine
from leasehold.coordinator.results import default_results
from leasehold.coordinator.stores import open_store
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.client_store import ClientStore
from tests.support.parties import FLAVOURS
from tests.support.redis.plays import KINDS, Start, connected, play
from tests.support.redis.stage import Aim
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until, until_async

SAYS_SO = "is used through its own commands: slower, and without pushes"
OWNER = "lock:v1:{job}:owner"


class Own(redis.Redis):
    """Somebody's own class, which looks at each command."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """And lets it pass."""
        parent: Any = super()
        return parent.execute_command(*args, **options)


class AsyncOwn(redis.asyncio.Redis):
    """The same on an event loop."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """And lets it pass."""
        parent: Any = super()
        return await parent.execute_command(*args, **options)


class OwnConnection(redis.Connection):
    """Goes through a tunnel, perhaps."""


class Sentinel(redis.sentinel.Sentinel):
    """Knows the master without asking anybody."""

    def __init__(self, port: int) -> None:
        super().__init__([("localhost", 26379)])  # type: ignore[no-untyped-call]
        self.port = port

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Where it is at present."""
        return "127.0.0.1", self.port


class AsyncSentinel(redis.asyncio.Sentinel):
    """The same on an event loop."""

    def __init__(self, port: int) -> None:
        super().__init__([("localhost", 26379)])  # type: ignore[no-untyped-call]
        self.port = port

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Where it is at present."""
        return "127.0.0.1", self.port


def renewed(lease: Any) -> Callable[[], bool]:
    """Has its end moved, since this was asked for?"""
    first = lease.deadline
    return lambda: bool(lease.deadline > first)


def with_a_patch(port: int) -> Any:
    """Somebody's monitoring, put on the object."""
    client: Any = redis.Redis(port=port)
    client.execute_command = partial(redis.Redis.execute_command, client)
    return client


def with_a_function(port: int) -> Any:
    """Somebody says more to the server than hello."""
    make: Any = redis.Redis
    return make(port=port, redis_connect_func=redis.Connection.on_connect)


def with_connections(port: int) -> Any:
    """Somebody has a tunnel."""
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=OwnConnection, port=port))


SYNC: dict[str, Callable[[int], Any]] = {
    "a class of one's own": lambda port: Own(port=port),
    "an object with a patch": with_a_patch,
    "connections of one's own": with_connections,
    "a function at connect": with_a_function,
    "the master of a Sentinel": lambda port: Sentinel(port).master_for("leases"),  # type: ignore[no-untyped-call]
}
ASYNC: dict[str, Callable[[int], Any]] = {
    "a class of one's own": lambda port: AsyncOwn(port=port),
    "the master of a Sentinel": lambda port: AsyncSentinel(port).master_for("leases"),
}
DOUBLES: dict[str, Callable[[], Any]] = {
    "FakeRedis": fakeredis.FakeRedis,
    "FakeRedis with text": lambda: fakeredis.FakeRedis(decode_responses=True),
    "FakeRedis, RESP3": lambda: fakeredis.FakeRedis(protocol=3),
    "FakeValkey": fakeredis.FakeValkey,
}
ASYNC_DOUBLES: dict[str, Callable[[], Any]] = {
    "FakeAsyncRedis": fakeredis.FakeAsyncRedis,
    "FakeAsyncRedis with text": lambda: fakeredis.FakeAsyncRedis(decode_responses=True),
}
each_double = pytest.mark.parametrize("make", DOUBLES.values(), ids=DOUBLES)
each_async_double = pytest.mark.parametrize("make", ASYNC_DOUBLES.values(), ids=ASYNC_DOUBLES)


# ---------------------------------------------------------------- which way is taken

WITHOUT_A_SERVER: dict[str, Callable[[], Any]] = {
    **{name: partial(make, 6379) for name, make in SYNC.items()},
    **{f"{name}, asyncio": partial(make, 6379) for name, make in ASYNC.items()},
    **DOUBLES,
    **ASYNC_DOUBLES,
    "a certificate that is asked about": lambda: redis.Redis(ssl=True, ssl_validate_ocsp=True),
    "a thing with commands": type("Thing", (), {"execute_command": lambda self, *args: None}),
}


@pytest.mark.parametrize("name", WITHOUT_A_SERVER)
def test_what_cannot_be_reduced_is_borrowed(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its own commands are used, nothing is promised about pushes, and DEBUG says so, once."""
    client = WITHOUT_A_SERVER[name]()
    with caplog.at_level(logging.DEBUG, "leasehold"):
        store = open_store(client)
    assert isinstance(store, ClientStore) and not store.capabilities.push
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (logging.DEBUG, f"{type(client).__name__} {SAYS_SO}")
    ]


class OwnPool(redis.ConnectionPool):
    """Knows better than its settings where the server is."""


def test_a_pool_of_ones_own_is_borrowed() -> None:
    """It may choose the server for each connection, as the pool of a Sentinel does."""
    assert isinstance(open_store(redis.Redis(connection_pool=OwnPool())), ClientStore)


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_reduced_is_not(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """An ordinary client, and a class of one's own that changes no command."""
    with caplog.at_level(logging.DEBUG, "leasehold"):
        for client in (KINDS[kind](), type("Ours", (KINDS[kind],), {})()):
            store = open_store(client)
            assert isinstance(store, RedisStore) and store.capabilities.push
    assert not caplog.records


# ---------------------------------------------------------------- test doubles


@each_double
def test_a_double_locks(make: Callable[[], Any]) -> None:
    """Grant, refusal, hand-over to one who waits in another coordinator, and fences that grow."""
    play(make(), "sync", "one_try_does_not_overtake", "release_by_the_owner", "names_are_apart")


@each_double
def test_a_double_locks_for_event_loops_too(make: Callable[[], Any]) -> None:
    """A client for threads is used from a thread."""
    play(make(), "asyncio", "one_try_does_not_overtake", "release_by_the_owner")


@pytest.mark.slow
def test_a_double_is_renewed() -> None:
    """A lease in use is prolonged."""
    client = fakeredis.FakeRedis()
    with leasehold.connect(client) as hold, hold.lock("job", ttl=3) as lease:
        until(renewed(lease), "it is renewed")
        assert lease.state == "held" and 0 < client.pttl(OWNER) <= 3000


@pytest.mark.slow
@each_double
def test_a_double_tells_of_a_loss(make: Callable[[], Any]) -> None:
    """Somebody deletes the key: the next renewal finds out, and the reason is known."""
    client = make()
    with leasehold.connect(client) as hold:
        lease = hold.lock("job", ttl=1.5).acquire()
        client.delete(OWNER)
        assert lease is not None and lease.lost.wait(PATIENCE)
        with pytest.raises(LeaseLost) as info:
            lease.check()
    assert info.value.reason == "deleted"


@each_double
def test_a_double_is_released_once(make: Callable[[], Any]) -> None:
    """The second release answers False and takes nothing from the next holder."""
    with leasehold.connect(make()) as hold:
        first = hold.lock("job").acquire()
        assert first is not None and first.release() is True
        second = hold.lock("job").acquire()
        assert first.release() is False and second is not None and second.state == "held"
        assert second.release() is True


@each_async_double
async def test_an_asyncio_double_locks(make: Callable[[], Any]) -> None:
    """Two coordinators on one loop: one holds, the other is refused, waits, and is granted."""
    client = make()
    async with leasehold.aio.connect(client) as one, leasehold.aio.connect(client) as other:
        first = await one.lock("job").acquire()
        assert first is not None and await other.lock("job").try_acquire() is None
        waiting = asyncio.create_task(other.lock("job").acquire(wait=PATIENCE))
        while not (await one.inspect("job")).waiters:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.002)
        assert await first.release() is True and await first.release() is False
        second = await waiting
        assert second is not None and second.fence > first.fence
        assert await second.release() is True


@pytest.mark.slow
@each_async_double
async def test_an_asyncio_double_is_renewed_and_tells_of_a_loss(make: Callable[[], Any]) -> None:
    """The watchdog asks on the client's own loop."""
    client = make()
    async with leasehold.aio.connect(client) as hold:
        lease = await hold.lock("job", ttl=3).acquire()
        await until_async(renewed(lease), "it is renewed")
        assert lease is not None and lease.state == "held"
        await client.delete(OWNER)
        await asyncio.wait_for(lease.lost.wait(), PATIENCE)
        with pytest.raises(LeaseLost) as info:
            lease.check()
    assert info.value.reason == "deleted"


def test_an_asyncio_double_needs_an_event_loop() -> None:
    """In a coordinator for threads it is refused, and the message says what to write."""
    with (
        leasehold.connect(fakeredis.FakeAsyncRedis()) as hold,
        pytest.raises(InvalidRequest, match=r"leasehold\.aio\.connect"),
    ):
        hold.lock("job").acquire(wait=0)


class Repeats:
    """A client that sends each command again, as clients do when the first reply was lost on the way."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def execute_command(self, *args: Any) -> Any:
        """The second reply is the one that is seen."""
        self._client.execute_command(*args)
        return self._client.execute_command(*args)


def test_a_client_may_repeat_itself() -> None:
    """Twice granted is granted once, and twice released is released: the answer is that of the first (trap 11)."""
    client = fakeredis.FakeRedis()
    with leasehold.connect(Repeats(client)) as hold:
        lease = hold.lock("job", ttl=5).acquire()
        assert lease is not None and client.get("lock:v1:{job}:fence") == str(lease.fence).encode()
        lease.extend(9)
        assert hold.lock("job").try_acquire() is None and lease.release() is True
        again = hold.lock("job").acquire()
        assert again is not None and again.release() is True and (again.fence or 0) > lease.fence


# ---------------------------------------------------------------- errors

# What servers say when they changed nothing. Clients make many classes of it, and take away the first word.
REFUSALS = {
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": "busy with a script",
    "LOADING Redis is loading the dataset in memory": "loading its data",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": "master is down",
    "MISCONF Redis is configured to save RDB snapshots": "save its data to disk",
    "NOAUTH Authentication required.": "password",
    "NOPERM this user has no permissions to run the 'evalsha' command": "does not allow this user",
    "NOREPLICAS Not enough good replicas to write.": "too few replicas",
    "OOM command not allowed when used memory > 'maxmemory'.": "no memory left",
    "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed": "no memory left",
    "READONLY You can't write against a read only replica.": "read-only replica",
    "WRONGPASS invalid username-password pair or user is disabled.": "does not accept this user and password",
}
REFUSALS_OF_CLUSTERS = {
    "ASK 3999 127.0.0.1:6381": "a node of a Cluster",
    "CLUSTERDOWN Hash slot not served": "a node of a Cluster",
    "CROSSSLOT Keys in request don't hash to the same slot": "a node of a Cluster",
    "MOVED 3999 127.0.0.1:6381": "a node of a Cluster",
    "TRYAGAIN Multiple keys request during rehashing of slot": "a node of a Cluster",
    "ERR max number of clients reached": "no connection left",
}


class Fails:
    """A client that has an error for whatever it is asked."""

    def __init__(self, make: Callable[[], Exception], **settings: Any) -> None:
        self._make = make
        self.connection_pool = SimpleNamespace(connection_kwargs=settings)

    def execute_command(self, *args: Any) -> Any:
        """No."""
        raise self._make()


@pytest.mark.parametrize("parser", [redis.connection.DefaultParser, valkey.connection.DefaultParser])
@pytest.mark.parametrize(
    ("text", "words"),
    [*REFUSALS.items(), *REFUSALS_OF_CLUSTERS.items()],
)
def test_a_refusal_is_a_refusal(text: str, words: str, parser: Any) -> None:
    """Nothing was changed, and why not is said, whatever class the client has for it; its error is the cause."""
    client = Fails(lambda: parser(socket_read_size=1).parse_error(text))
    with leasehold.connect(client) as hold, pytest.raises(StoreUnavailable, match=words) as info:
        hold.lock("job").acquire(wait=0)
    assert isinstance(info.value.__cause__, (redis.RedisError, valkey.ValkeyError))


@pytest.mark.parametrize("kind", [redis.TimeoutError, redis.ConnectionError, valkey.ConnectionError, ValueError])
def test_what_may_have_happened_is_unknown(kind: type[Exception]) -> None:
    """A reply that never came says nothing; neither does an error that nobody knows."""
    with leasehold.connect(Fails(lambda: kind("closed"))) as hold, pytest.raises(OutcomeUnknown) as info:
        hold.lock("job").acquire(wait=0)
    assert isinstance(info.value.__cause__, (kind, OutcomeUnknown))


@pytest.mark.parametrize("kind", [ConnectionRefusedError, FileNotFoundError, socket.gaierror])
def test_what_was_never_sent_is_not(kind: type[Exception]) -> None:
    """The error below the client's own says that nobody was reached: by a client that tries once, that is all."""

    def refused() -> Exception:
        error = redis.ConnectionError("Error connecting")
        error.__cause__ = kind("nobody there")
        return error

    for settings, expected in (({"retry": None}, StoreUnavailable), ({}, OutcomeUnknown)):
        with leasehold.connect(Fails(refused, **settings)) as hold, pytest.raises(expected):
            hold.lock("job").acquire(wait=0)


@pytest.mark.parametrize("make", SYNC.values(), ids=SYNC)
def test_a_client_that_never_got_a_connection(make: Callable[[int], Any]) -> None:
    """Nothing was sent, however often it tries; of a loop around the client nobody knows what it did before."""
    client = make(1)
    client.connection_pool.connection_kwargs["retry"] = Retry(NoBackoff(), 2)
    own = isinstance(client, Own)
    with leasehold.connect(client) as hold, pytest.raises(OutcomeUnknown if own else StoreUnavailable) as info:
        hold.lock("job").acquire(wait=0)
    assert isinstance(info.value.__cause__, (redis.ConnectionError, OutcomeUnknown))
    assert "Redis behind the client " in str(info.value) or own


async def test_an_asyncio_client_that_never_got_a_connection() -> None:
    """The same on an event loop."""
    client: Any = AsyncSentinel(1).master_for("leases", retry=redis.asyncio.retry.Retry(NoBackoff(), 2))
    async with leasehold.aio.connect(client) as hold:
        with pytest.raises(StoreUnavailable, match=r"Redis behind the client redis.Redis \(Sentinel service leases\)"):
            await hold.lock("job").acquire(wait=0)
    await client.aclose()


@pytest.mark.slow
def test_a_master_that_is_gone_at_the_second_attempt(redis_server: RedisServer, proxy: Proxy) -> None:
    """The first attempt may have been done: that the second found nobody says nothing about it."""
    make: Any = Sentinel(proxy.port).master_for
    client = make("leases", retry=Retry(NoBackoff(), 1))
    client.ping()
    aim = Aim(proxy)
    aim.lose("claim", math.inf)
    with leasehold.connect(client) as hold:
        proxy.refuse()
        asked = ThreadPoolExecutor(1).submit(lambda: hold.lock("job").acquire(wait=0))
        until(lambda: aim.seen["claim"] > 0, "it was sent")
        proxy.cut()
        assert isinstance(asked.exception(60), OutcomeUnknown)
        aim.relent()
        proxy.accept()


def test_who_is_behind_a_client_is_said_in_words() -> None:
    """In errors, and by whatever is kept beside the leases: which client it is, and nothing of its address."""
    server = fakeredis.FakeServer()
    server.connected = False
    client = fakeredis.FakeRedis(server=server)
    words = "^Redis behind the client fakeredis.FakeRedis cannot be reached: "
    with leasehold.connect(client) as hold, pytest.raises(StoreUnavailable, match=words):
        hold.lock("job").acquire(wait=0)
    results = default_results(Engine(ClientStore(client)))
    assert repr(results) == "<RedisResultStore behind the client fakeredis.FakeRedis>"


def test_an_error_may_be_raised_again() -> None:
    """As a Mock does with the one that it was given."""
    error = redis.ConnectionError("closed")
    with leasehold.connect(Fails(lambda: error)) as hold, pytest.raises(OutcomeUnknown):
        hold.lock("job").acquire(wait=0.2)


# ---------------------------------------------------------------- real servers


@pytest.mark.slow
@pytest.mark.parametrize("name", SYNC)
def test_a_borrowed_client_locks(name: str, own_redis: Start) -> None:
    """Through its own connections and no others, and it stays open."""
    server = own_redis()
    client = SYNC[name](server.port)
    play(client, "sync", "release_by_the_owner")
    with leasehold.connect(client) as one, leasehold.connect(client) as other:
        with one.lock("job", ttl=3) as lease, ThreadPoolExecutor() as pool:
            waiting = pool.submit(other.lock("job").acquire, wait=PATIENCE)
            until(renewed(lease), "it is renewed")
            assert lease.state == "held" and not waiting.done()
            lease.release()
        second = waiting.result()
        assert second is not None and second.fence > lease.fence
    assert client.ping() and len(connected(server)) == len(client.connection_pool._available_connections)
    client.connection_pool.disconnect()


@pytest.mark.slow
@pytest.mark.parametrize("name", ASYNC)
async def test_a_borrowed_asyncio_client_locks(name: str, own_redis: Start) -> None:
    """The same on an event loop."""
    server = own_redis()
    client = ASYNC[name](server.port)
    async with leasehold.aio.connect(client) as one, leasehold.aio.connect(client) as other:
        async with one.lock("job", ttl=3) as lease:
            waiting = asyncio.create_task(other.lock("job").acquire(wait=PATIENCE))
            await until_async(renewed(lease), "it is renewed")
            assert lease.state == "held" and not waiting.done()
        second = await waiting
        assert second is not None and second.fence > lease.fence
    assert await client.ping() and len(connected(server)) == len(client.connection_pool._available_connections)
    await client.connection_pool.disconnect()


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("way", ["the server", "the URL"])
def test_without_resp3_waiters_ask_again(
    way: str, flavour: str, own_redis: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that knows no HELLO, and a URL that asks for RESP2: no pushes, said at DEBUG, and all the rest works."""
    server = own_redis(None, *(["--rename-command", "HELLO", ""] if way == "the server" else []))
    url = server.url if way == "the server" else f"{server.url}?protocol=2"
    with caplog.at_level(logging.DEBUG, "leasehold"):
        play(url, flavour, "one_try_does_not_overtake", "close_gives_back")
        party = FLAVOURS[flavour](open_store(url))
        lease = party.do(lambda hold: hold.lock("job", ttl=3).acquire())
        until(renewed(lease), "it is renewed")
        assert lease.state == "held" and {one["resp"] for one in connected(server)} == {"2"}
        party.close()
    said = [one.getMessage() for one in caplog.records if "no pushes on this connection" in one.getMessage()]
    assert said and all(f"127.0.0.1:{server.port}" in one for one in said)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_with_resp3_waiters_are_told(flavour: str, own_redis: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The usual case: connections listen, and there is nothing to be said about them."""
    server = own_redis()
    with caplog.at_level(logging.DEBUG, "leasehold"):
        party = FLAVOURS[flavour](open_store(server.url))
        lease = party.do(lambda hold: hold.lock("job").acquire())
        until(lambda: all((one["sub"], one["resp"]) == ("1", "3") for one in connected(server)), "all of them listen")
        assert party.do(lambda _: lease.release()) is True
        party.close()
    assert not [one for one in caplog.records if "pushes" in one.getMessage()]
