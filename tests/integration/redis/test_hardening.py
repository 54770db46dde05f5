"""What once went wrong with the store over Redis: words before deeds, signals, replies that shift, closing, logins."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import hiredis
import pytest
import redis

import leasehold
from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold._core import ops
from leasehold._runtime.background import FIRST_RETRY
from leasehold.stores.redis import RedisStore, protocol
from leasehold.stores.redis.client_store import ClientStore, open_client
from leasehold.stores.redis.sockets import Broken
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow
Start = Callable[..., RedisServer]
LATE = 2.0  # seconds by which a busy machine may tell of a loss too late; a silent connection would cost five


class TooLong(TimeoutError):
    """What a program's own time limit raises: an OSError that is none of ours."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """A signal handler that raises after so many seconds."""

    def ring(*_: object) -> None:
        raise TooLong

    def set_alarm(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Call it apart; what it gives or raises is found in the list."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


# ---------------------------------------------------------------- words before deeds


@pytest.mark.parametrize("refuse", ["min-replicas-to-write", "replica"])
def test_nobody_is_told_of_a_grant_that_the_server_refuses_to_write(refuse: str, own_redis: Start) -> None:
    """The door opens while the server takes no writes: the waiter must not hear that it holds."""
    server = own_redis()
    client = server.client()
    with leasehold.connect(server.url) as first, leasehold.connect(server.url) as second:
        second.lock("job").locked()  # it is connected: the door must not open before the server refuses
        lease = first.lock("job", ttl=6, at_least=2.5).acquire(wait=PATIENCE)
        thread, got = in_thread(lambda: second.lock("job", ttl=30).acquire(wait=3.1))
        until(lambda: client.llen("lock:v1:{job}:queue") == 1, "it waits")
        assert lease is not None and lease.release()
        if refuse == "replica":
            server.ask("REPLICAOF 127.0.0.1 1")
        else:
            client.config_set("min-replicas-to-write", 1)
        thread.join(PATIENCE)
        assert client.get("lock:v1:{job}:owner") is None
        assert isinstance(got[0], (StoreUnavailable, OutcomeUnknown))
        client.config_set("min-replicas-to-write", 0)
        server.ask("REPLICAOF NO ONE")


# ---------------------------------------------------------------- signals


def test_only_texts_are_packed(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    """hiredis crashes when a handler raises while it turns a number into text: it is never given one."""
    packed: list[Any] = []

    def look(command: tuple[Any, ...]) -> bytes:
        packed.extend(command)
        return bytes(hiredis.pack_command(command))

    monkeypatch.setattr(protocol, "_hiredis_pack", look)
    with leasehold.connect(redis_url) as hold, hold.lock("job", 1, ttl=9, meta={"a": 1}) as lease:
        lease.extend(8)
        hold._engine.watchdog.round()
    store = RedisStore(redis_url)
    store.execute_many([ops.Renew("a", "h:1:x.1", 5, 900, number=3), ops.Renew("b", "h:1:x.1", 5, 900)])
    store.close()
    assert packed and not [part for part in packed if not isinstance(part, (str, bytes))]


def test_a_time_limit_of_the_programs_own_gets_through(redis_url: str, alarm: Callable[[float], None]) -> None:
    """A TimeoutError out of a signal handler is an OSError, and not ours to swallow."""
    with leasehold.connect(redis_url) as first, leasehold.connect(redis_url) as second:
        held = first.lock("job", ttl=9).acquire(wait=0)

        def in_time() -> None:
            alarm(0.2)
            second.lock("job", ttl=9).acquire(wait=PATIENCE)

        with pytest.raises(TooLong):
            in_time()
        assert held is not None
        until(lambda: first._engine.store.execute(ops.Inspect("job")).queue == (), "it left the queue")  # type: ignore[union-attr]  # a View


def test_an_interrupted_exchange_shifts_no_reply(own_redis: Start, alarm: Callable[[float], None]) -> None:
    """The reply that nobody waited for is not taken for the next one, whoever looks first."""
    server = own_redis()
    store = RedisStore(server.url)
    granted = store.execute(ops.Claim("a", "h:1:x.1", 60_000))
    assert isinstance(granted, ops.Granted)
    renewal = ops.Renew("a", "h:1:x.1", granted.fence, 60_000)
    assert store.execute_many([renewal]) == [ops.Renewed(60_000)]
    server.freeze()

    def in_time() -> None:
        alarm(0.1)
        store.execute_many([renewal])

    with pytest.raises(TooLong):
        in_time()
    assert store.holder_pushes().read() == []
    server.thaw()
    assert store.execute_many([ops.Renew("b", "h:1:x.2", 7, 60_000)]) == [ops.NotYours("deleted")]
    store.close()


def test_what_the_watchdog_was_trying_is_tried_once_more(own_redis: Start) -> None:
    """A withdrawal that fails in the watchdog's hands while its coordinator is closed is sent before the store is."""
    server = own_redis()
    other = RedisStore(server.url)
    assert isinstance(other.execute(ops.Claim("job", "h:1:x.1", 60_000)), ops.Granted)
    hold = leasehold.connect(server.url)
    answers: list[object] = []
    server.freeze()
    hold._engine.watchdog.run_later(ops.Defer(ops.Withdraw("job", "h:1:x.1"), 30), answers.append)
    (errand,) = hold._engine.watchdog._background_ops._open

    def thaw() -> None:
        try:
            until(lambda: errand.pause > FIRST_RETRY, "the first try has failed")
        finally:
            server.thaw()

    until(lambda: errand.busy, "the watchdog tries")
    thread = threading.Thread(target=thaw)
    thread.start()
    hold.close()
    thread.join()
    assert answers == [ops.Withdrawn("held")]
    other.close()


def test_a_wire_in_the_middle_of_something_is_not_looked_at(redis_url: str) -> None:
    """Neither to wait nor to look: what comes belongs to somebody else."""
    connection = RedisStore(redis_url).connection()
    wire = connection.connect(time.monotonic() + PATIENCE)
    wire.busy = True
    for look in (wire.receive_pushes, lambda: wire.wait(0)):
        with pytest.raises(Broken):
            look()
    connection.close()


def test_a_fork_in_a_signal_handler_leaves_the_claim_to_the_parent(redis_url: str) -> None:
    """The child must not go on as its parent's owner, nor give up its place."""
    first, second = leasehold.connect(redis_url), leasehold.connect(redis_url)
    held = first.lock("job", ttl=30).acquire(wait=0)
    children: list[int] = []

    def fork(*_: object) -> None:
        pid = os.fork()
        if pid:
            children.append(pid)

    def disturb() -> None:
        client = redis.Redis.from_url(redis_url)
        until(lambda: client.llen("lock:v1:{job}:queue") == 1, "it waits")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        until(lambda: bool(children), "it has forked")
        client.close()
        assert held is not None and held.release()

    before = signal.signal(signal.SIGALRM, fork)
    parent = os.getpid()
    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        lease = second.lock("job", ttl=30).acquire(wait=PATIENCE)
    except StoreUnavailable:
        os._exit(0 if os.getpid() != parent else 3)
    if os.getpid() != parent:
        os._exit(1)
    disturbing.join(PATIENCE)
    signal.signal(signal.SIGALRM, before)
    assert lease is not None and lease.state == "held"
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0]
    assert lease.release()
    second.close()
    first.close()


# ---------------------------------------------------------------- the watchdog keeps its deadlines


@pytest.mark.parametrize("ttl", [0.5, 1.0])
def test_loss_is_told_in_time_when_new_connections_are_silent(ttl: float, proxy: Proxy) -> None:
    """The watchdog does not wait for a connection past a deadline (I11)."""
    with leasehold.connect(proxy.url) as hold:
        lease = hold.lock("job", ttl=ttl).acquire(wait=0)
        assert lease is not None
        told: list[float] = []
        lease._held.listen(lambda: told.append(hold._engine.clock.now()))
        time.sleep(ttl / 6)  # so that it has been renewed by nobody yet
        proxy.blackhole()
        proxy.cut()
        until(lambda: bool(told), "the loss is told")
        assert told[0] <= lease.deadline + LATE
        proxy.release()


def test_one_dead_connection_of_the_watchdog_costs_a_moment(proxy: Proxy) -> None:
    """A batch that is never answered keeps nobody waiting for long: what was taken meanwhile is kept."""
    dead = threading.Event()

    def renewals_die(chunk: bytes) -> Literal["pass", "drop_reply"]:
        if protocol.RENEW_MANY.sha.encode() in chunk and not dead.is_set():
            dead.set()
            return "drop_reply"
        return "pass"

    with leasehold.connect(proxy.url) as hold:
        long = hold.lock("long", ttl=6).acquire(wait=0)
        proxy.on_request = renewals_die
        assert dead.wait(PATIENCE)
        short = hold.lock("short", ttl=1.5).acquire(wait=0)
        assert short is not None and not short.lost.wait(2)
        assert long is not None and (short.state, long.state) == ("held", "held")


def test_a_client_that_does_not_come_back_delays_no_loss(own_redis: Start) -> None:
    """Its own retries take a minute; the loss is told by the deadline all the same."""
    server = own_redis()

    class Mine:
        def __init__(self) -> None:
            self.inner: Any = redis.Redis(port=server.port)

        def execute_command(self, *args: Any) -> Any:
            """It cannot be reduced to an address."""
            return self.inner.execute_command(*args)

    client = Mine()
    hold = leasehold.connect(client)
    assert isinstance(hold._engine.store, ClientStore)
    lease = hold.lock("job", ttl=1).acquire(wait=0)
    assert lease is not None
    told: list[float] = []
    lease._held.listen(lambda: told.append(hold._engine.clock.now()))
    server.freeze()
    until(lambda: bool(told), "the loss is told")
    assert told[0] <= lease.deadline + LATE
    server.thaw()
    hold.close()
    client.inner.close()


@pytest.mark.parametrize(("settings", "says"), [({}, OutcomeUnknown), ({"retry": None}, StoreUnavailable)])
def test_nothing_was_taken_is_not_said_by_a_client_that_tried_again(settings: Any, says: type[Exception]) -> None:
    """Of a client that repeats by itself only the last attempt is seen: that it was refused says nothing about the
    first."""

    class Refused:
        class connection_pool:  # noqa: N801  # as redis-py names its attribute
            connection_kwargs = settings

        def execute_command(self, *args: Any) -> Any:
            """Nobody is there (any more)."""
            raise redis.ConnectionError("Error 111 connecting") from ConnectionRefusedError()

    with pytest.raises(says):
        open_client(Refused()).execute(ops.Claim("job", "h:1:x.1", 60_000))


# ---------------------------------------------------------------- beginning and end


def test_closing_while_a_connection_is_made_leaves_none(proxy: Proxy, redis_server: RedisServer) -> None:
    """For threads: nothing is sent after close(), and nothing stays open."""
    client = redis_server.client()
    proxy.hold_replies()
    hold = leasehold.connect(proxy.url)
    thread, got = in_thread(lambda: hold.lock("job", ttl=9).acquire(wait=PATIENCE))
    until(lambda: proxy.waiting > 0, "the handshake is under way")
    hold.close()
    proxy.release()
    thread.join(PATIENCE)
    assert isinstance(got[0], StoreUnavailable) and client.keys() == []
    until(lambda: client.client_list(_type="pubsub") == [], "no connection is left")


async def test_closing_while_a_loops_connection_is_made_leaves_none(proxy: Proxy, redis_server: RedisServer) -> None:
    """The same for asyncio: what the cancelled acquire began to open is closed."""
    client = redis_server.client()
    proxy.hold_replies()
    hold = leasehold.aio.connect(proxy.url)
    task = asyncio.create_task(hold.lock("job").acquire())
    await asyncio.to_thread(until, lambda: proxy.waiting > 0, "the handshake is under way")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await hold.close()
    proxy.release()
    await asyncio.to_thread(until, lambda: client.client_list(_type="pubsub") == [], "no connection is left")


async def test_a_cancellation_that_comes_with_the_connection_is_not_swallowed(redis_url: str) -> None:
    """In the very turn of the loop in which the connection is ready."""
    async with leasehold.aio.connect(redis_url) as one, leasehold.aio.connect(redis_url) as other:  # noqa: SIM117  # one line is too short
        async with other.lock("job", ttl=9):
            task = asyncio.create_task(one.lock("job").acquire(wait=PATIENCE))
            post: Any = one._driver.connection(asyncio.get_running_loop()).subscriber
            while post._connecting is None:  # noqa: ASYNC110  # there is no event for what nobody should see
                await asyncio.sleep(0)
            loop = asyncio.get_running_loop()

            def cancel_at_once(_: object) -> None:
                loop.call_soon(task.cancel)

            post._connecting.add_done_callback(cancel_at_once)
            with pytest.raises(asyncio.CancelledError):
                await task


def test_loops_that_begin_at_once_share_what_belongs_to_them(redis_url: str) -> None:
    """Four threads, four loops, one coordinator that was not used before."""
    for number in range(5):
        hold = leasehold.aio.connect(redis_url)
        start = threading.Barrier(4)
        found: list[bool] = []

        async def use(one: int, number: int = number, hold: Any = hold,
                      start: threading.Barrier = start, found: list[bool] = found) -> None:  # fmt: skip
            start.wait()
            async with hold.lock("job", number, one, ttl=9):
                connection = hold._driver.connection(asyncio.get_running_loop())
                found.append(hold._driver.connection(asyncio.get_running_loop()) is connection)
            connection.close()
            await asyncio.sleep(0.01)  # the loop ends here, and its connection must end before it

        crowd = [threading.Thread(target=asyncio.run, args=[use(one)]) for one in range(4)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join(PATIENCE)
        assert found == [True] * 4
        asyncio.run(hold.close())


async def test_one_budget_covers_connecting_and_asking(proxy: Proxy) -> None:
    """Half of it went into the connection: only the other half is left for the answer."""
    asked = 0

    def slow(chunk: bytes) -> Literal["pass", "hold"]:
        nonlocal asked
        asked += 1
        return "pass" if asked < 3 else "hold"

    proxy.on_request = slow
    store = RedisStore(proxy.url)
    began = time.monotonic()
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        await store.execute_async(ops.Claim("job", "h:1:x.1", 9_000, budget_ms=400))
    assert time.monotonic() - began < 4  # a call without a budget of its own has 5 s
    store.close()
    await asyncio.sleep(0)


# ---------------------------------------------------------------- logins and refusals


def test_a_user_without_a_password_is_that_user(own_redis: Start) -> None:
    """Not the default one."""
    server = own_redis()
    client = server.client()
    assert server.ask("ACL SETUSER app on nopass ~* &* +@all") == b"+OK\r\n"
    for target in (server.url.replace("//", "//app@"), redis.Redis(port=server.port, username="app")):
        with leasehold.connect(target) as hold, hold.lock("job"):
            users = {one["user"] for one in client.client_list(_type="pubsub")}
            assert users == {"app"}
        if isinstance(target, redis.Redis):
            target.close()


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_credentials_that_cannot_be_had_are_an_error_of_ours(flavour: str, redis_server: RedisServer) -> None:
    """Whatever the provider raises; and nobody spins."""

    class Provider(redis.CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            """Never."""
            raise RuntimeError("the token service is down: hunter2")

    client = redis.Redis(port=redis_server.port, credential_provider=Provider())

    async def on_a_loop() -> None:
        async with leasehold.aio.connect(client) as hold:
            await hold.lock("job").acquire(wait=0)

    def in_a_thread() -> None:
        with leasehold.connect(client) as hold:
            hold.lock("job").acquire(wait=0)

    ask: Callable[[], None] = in_a_thread if flavour == "threads" else lambda: asyncio.run(on_a_loop())
    with pytest.raises(StoreUnavailable, match="credentials") as info:
        ask()
    assert "hunter2" not in str(info.value) and isinstance(info.value.__cause__, RuntimeError)
    client.close()


def test_a_definite_no_on_a_new_connection_stays_one(own_redis: Start) -> None:
    """Our own errors are connection errors too: they are not wrapped again."""
    server = own_redis()
    store = RedisStore(server.url)
    connection = store.connection()
    connection.execute(ops.Inspect("a"))
    server.ask("REPLICAOF 127.0.0.1 1")
    wire = connection.connect(time.monotonic() + PATIENCE)
    wire._sock.shutdown(socket.SHUT_WR)  # sending fails at once, so it is sent again on a new connection
    with pytest.raises(StoreUnavailable, match="read-only replica") as info:
        connection.execute(ops.Claim("a", "h:1:x.2", 9_000))
    assert info.value.resource == "a"
    store.close()


def test_something_else_at_our_keys_is_left_alone(redis_url: str, redis_server: RedisServer) -> None:
    """A hash where the owner belongs is nobody's lease: refused, and not overwritten."""
    client = redis_server.client()
    client.hset("lock:v1:{job}:owner", "a", "1")
    with leasehold.connect(redis_url) as hold, pytest.raises(StoreUnavailable, match=r"no lease at the key .*:owner"):
        hold.lock("job").acquire(wait=0)
    assert client.hgetall("lock:v1:{job}:owner") == {b"a": b"1"}


def test_many_tombstones_are_swept(redis_url: str, redis_server: RedisServer) -> None:
    """Those past their time go while others are added."""
    store = RedisStore(redis_url)
    for number in range(200):
        store.execute(ops.Withdraw("job", f"h:1:x.{number}", 5))
    time.sleep(0.02)  # the server's clock must pass them
    for number in range(200, 264):
        store.execute(ops.Withdraw("job", f"h:1:x.{number}", 60_000))
    assert redis_server.client().hlen("lock:v1:{job}:more") < 130
    store.close()


def test_trap_53_a_floor_of_few_digits_is_a_low_one(redis_url: str) -> None:
    """A waiter that has seen fence 9 hears of a much higher one: as text the 9 would stay above it."""
    store, high = RedisStore(redis_url), 2_000_000_000_000_000  # ahead of the clock
    first = store.execute(ops.Claim("job", "h:1:x.1", 30_000))
    assert isinstance(first, ops.Granted)
    assert isinstance(store.execute(ops.Claim("job", "h:1:x.2", 30_000, floor=9)), ops.Queued)
    assert isinstance(store.execute(ops.Beat("job", "h:1:x.2", 2, floor=high)), ops.Queued)
    assert store.execute(ops.Release("job", "h:1:x.1", first.fence)) == ops.Released()
    second = store.execute(ops.Beat("job", "h:1:x.2", 3, floor=9))
    assert isinstance(second, ops.Granted) and second.fence == high + 1
    store.close()
