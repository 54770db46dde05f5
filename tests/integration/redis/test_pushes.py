"""What is pushed is heard, whatever it was read together with (trap 51): by each reader that a connection has."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from leasehold._core.ops import Claim, Evict, Granted, Push, Queued, Release, Released, Renew, Renewed, StoreOp
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.connection import RedisConnection
from leasehold.stores.redis.protocol import SCRIPTS, pack
from leasehold.stores.redis.sockets import Broken, RedisSocket
from leasehold.stores.redis.target import Target
from leasehold.stores.redis.watchdog_connection import WatchdogConnection
from tests.support.parties import Party
from tests.support.redis.stage import Aim, Look, Stage, ask, losses
from tests.support.servers.certificates import Certificates
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

LONG = 600_000  # milliseconds: no renewal comes to the rescue
BUDGET = 30_000
A, B = "host:1:secret.1", "host:2:secret.1"


class Desk:
    """A store behind a network, another with a good one, and what the server says itself."""

    def __init__(self, server: RedisServer, proxy: Proxy, url: str) -> None:
        self.proxy = proxy
        self.aim = Aim(proxy)
        self.look = Look(server)
        for script in SCRIPTS:  # else the first of them is sent twice
            self.look.client.script_load(script.text)
        self.store, self.other = RedisStore(url), RedisStore(server.url)

    def claim(self, owner: str, **more: Any) -> Claim:
        """One that waits if it must."""
        return Claim("job", owner, LONG, budget_ms=BUDGET, **more)

    def take(self, **more: Any) -> int:
        """Somebody holds it; the fence."""
        reply = self.other.execute(self.claim(A, **more))
        assert isinstance(reply, Granted)
        return reply.fence

    def news(self, ready: Callable[[], None]) -> WatchdogConnection:
        """The watchdog's connection, made and listening."""
        news = self.store._watchdog
        until(lambda: news.fileno(ready) >= 0, "it is connected")
        return news

    def together(self, begin: Callable[[], Any], then: StoreOp) -> None:
        """Let the reply to the first, and the push that the second causes, arrive in one segment."""
        served = self.look.served()
        self.proxy.hold_replies()
        begin()
        until(lambda: self.look.served() > served, "it is done")
        self.proxy.settle()  # else the request may still count as waiting for a moment
        waiting = until(lambda: self.proxy.waiting, "its reply is on its way")
        self.other.execute(then)
        until(lambda: self.proxy.waiting > waiting, "the push is behind it")
        self.proxy.release()

    def close(self) -> None:
        """On a good network."""
        self.aim.relent()
        self.proxy.release()
        for store in (self.store, self.other):
            store.close()


@pytest.fixture(params=["redis", "rediss"])
def desk(
    request: pytest.FixtureRequest, own_redis: Callable[..., RedisServer], certificates: Certificates
) -> Iterator[Desk]:
    """In the clear, then over TLS, which has a buffer of its own."""
    server = own_redis(tls=certificates)
    secure = request.param == "rediss"
    with Proxy(server.tls_port if secure else server.port) as proxy:
        tls = "&".join(f"{name}={value}" for name, value in certificates.arguments().items())
        desk = Desk(server, proxy, f"rediss://localhost:{proxy.port}?{tls}" if secure else proxy.url)
        yield desk
        desk.close()


def start(call: Callable[[], Any]) -> Future[Any]:
    """In a thread of its own."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


# ---------------------------------------------------------------- readers


def test_the_watchdog_connects_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the connection is made in the very moment in which the watchdog looks whether there is one."""
    news, begun = desk.store._watchdog, []
    news._connect_at = math.inf  # a thread connects

    def connected_after_the_look(_: object) -> int:
        news._connect_at = 0.0
        return -1

    monkeypatch.setattr(RedisConnection, "fileno", connected_after_the_look)
    monkeypatch.setattr(WatchdogConnection, "_connect", lambda *_: begun.append(True))
    assert news.fileno(lambda: None) == -1
    assert not begun and news._connect_at == 0.0


def test_the_watchdog_hears_what_came_with_a_reply(desk: Desk) -> None:
    """The reply to a renewal, and behind it the news of an eviction: the bell rings, and it can be read."""
    rung = threading.Event()
    news = desk.news(rung.set)
    fence = desk.take(holder_address=news.address)
    rung.clear()
    renewed: list[Future[Any]] = []
    renew = Renew("job", A, fence, LONG, number=1, budget_ms=BUDGET)
    desk.together(
        lambda: renewed.append(start(lambda: desk.store.execute_many([renew]))),
        Evict("job", A, fence, "request", delay_ms=0, force=True),
    )
    assert renewed[0].result(PATIENCE) == [Renewed(LONG)]
    assert rung.wait(PATIENCE)
    assert [(push.event, push.owner) for push in news.read()] == [("evicted", A)]


def test_a_waiting_thread_hears_what_came_with_a_reply(desk: Desk) -> None:
    """Queued, and in the same moment granted."""
    fence = desk.take()
    connection = desk.store.connection()
    assert isinstance(connection.execute(desk.claim(B, address=connection.address)), Queued)
    asked: list[Future[Any]] = []
    beat = desk.claim(B, address=connection.address, beat=2)
    desk.together(lambda: asked.append(start(lambda: connection.execute(beat))), Release("job", A, fence))
    assert isinstance(asked[0].result(PATIENCE), Queued)
    push = connection.next_push(PATIENCE)
    assert isinstance(push, Push) and (push.event, push.owner) == ("granted", B)


def test_an_event_loop_hears_what_came_with_a_reply(desk: Desk) -> None:
    """The same for a task."""
    fence = desk.take()

    async def wait() -> Push:
        heard: asyncio.Future[Push] = asyncio.get_running_loop().create_future()
        subscriber = desk.store.listen(heard.set_result)
        assert isinstance(await subscriber.execute_async(desk.claim(B, address=subscriber.address)), Queued)
        beat = desk.claim(B, address=subscriber.address, beat=2)
        loop = asyncio.get_running_loop()
        asked: list[Future[Any]] = []

        def begin() -> None:
            asked.append(asyncio.run_coroutine_threadsafe(subscriber.execute_async(beat), loop))

        await asyncio.to_thread(desk.together, begin, Release("job", A, fence))
        assert isinstance(await asyncio.wrap_future(asked[0]), Queued)
        push = await asyncio.wait_for(heard, PATIENCE)
        subscriber.close()
        return push

    push = asyncio.run(wait())
    assert (push.event, push.owner) == ("granted", B)


def test_what_was_heard_outlives_the_connection(desk: Desk) -> None:
    """The news came, and then the connection broke in the middle of a renewal: it is heard all the same."""
    news: Any = desk.news(lambda: None)
    fence = desk.take(holder_address=news.address)
    desk.aim.hold("renew")
    if desk.store._server.target.tls is not None:  # nobody can tell what is inside
        desk.proxy.on_request = lambda chunk: "hold"
    renew = Renew("job", A, fence, LONG, number=1, budget_ms=BUDGET)
    renewed = start(lambda: desk.store.execute_many([renew]))
    until(lambda: desk.proxy.waiting > 0, "the renewal is under way")
    desk.other.execute(Evict("job", A, fence, "request", delay_ms=0, force=True))
    until(lambda: news._connection._pushes, "the news has come")
    desk.proxy.cut()
    (error,) = renewed.result(PATIENCE)
    assert isinstance(error, Exception)
    assert [(push.event, push.owner) for push in news.read()] == [("evicted", A)]


def test_a_holder_is_told_though_the_news_came_with_a_reply(stage: Stage) -> None:
    """From end to end: long before the next renewal, which would come after minutes."""
    party, lease = stage.acquire(ttl=LONG / 1000)
    told = losses(lease)
    watchdog: Any = party.hold._engine.watchdog
    until(lambda: watchdog.holder_pushes.fileno(watchdog.dropped.wake) >= 0, "the watchdog listens")
    served = stage.look.served()
    stage.proxy.hold_replies()
    lease._held.renew_at = 0.0
    watchdog.check_again(lease._held)
    until(lambda: stage.look.served() > served, "it is renewed")
    evict(stage.other(), lease)
    until(lambda: b"evicted" in held_back(stage.proxy), "the news is on its way")
    stage.proxy.release()
    until(lambda: bool(told), "it is told")
    assert told[0][1].reason == "evicted"


def evict(party: Party, lease: Any) -> None:
    """By an operator."""
    party.do(lambda hold: ask(hold, Evict("job", lease.owner, lease.fence, "request", delay_ms=0, force=True)))


def held_back(proxy: Proxy) -> bytes:
    """What the server has said and nobody has heard yet."""
    return b"".join(bytes(link.replies.waiting) for link in list(proxy._links))


# ---------------------------------------------------------------- out of step


@pytest.mark.parametrize("call", ["receive_pushes", "wait"])
def test_a_reply_that_nobody_waits_for(call: str) -> None:
    """One request, two replies: whatever is asked next would get the wrong one, so the connection is given up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        wire = RedisSocket(Target("127.0.0.1", server.getsockname()[1]), time.monotonic() + PATIENCE, deque())
        other, _ = server.accept()
        other.sendall(b"+PONG\r\n+PONG\r\n")
        assert wire.exchange(pack(("PING",)), time.monotonic() + PATIENCE) == b"PONG"
        with pytest.raises(Broken, match="was not requested"):
            wire.receive_pushes() if call == "receive_pushes" else wire.wait(PATIENCE)
        wire.close()
        other.close()


def test_a_release_is_not_taken_for_another_reply(desk: Desk) -> None:
    """Each reader leaves the connection in step: what is asked next gets its own answer."""
    news = desk.news(lambda: None)
    fence = desk.take(holder_address=news.address)
    for number in (1, 2):
        renew = Renew("job", A, fence, LONG, number=number, budget_ms=BUDGET)
        assert desk.store.execute_many([renew]) == [Renewed(LONG)]
        assert news.read() == []
    assert desk.store.execute(Release("job", A, fence)) == Released()
