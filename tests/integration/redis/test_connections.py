"""Connections that are killed, cut or forgotten by a firewall: noticed, replaced, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Inspect, View
from leasehold._core.policy import beat_every_ms
from leasehold.stores.redis import RedisStore, connection, loop_connection, sockets
from tests.integration.redis.impostor import bulk
from tests.support.redis.stage import SLACK, THREADS_ONLY, Stage, ask, give_back, losses, now
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TTL = 1.5
ASK = 0.4  # seconds; a whole one in the product
BEAT = beat_every_ms(round(TTL * 1000)) / 1000


def kill(stage: Stage, kind: str) -> int:
    """CLIENT KILL of every connection of that type but our own; connections that listen for pushes are ``pubsub``."""
    return int(stage.look.run(f"CLIENT KILL TYPE {kind} SKIPME yes"))


def others(stage: Stage, kind: str) -> int:
    """How many there are of that type, but our own."""
    own = stage.look.client.client_id()
    clients: Any = stage.look.client.client_list(_type=kind)
    return sum(int(one["id"]) != own for one in clients)


# ---------------------------------------------------------------- killed


@pytest.mark.parametrize("protocol", [2, 3])
def test_killed_connections_of_waiters(stage: Stage, protocol: int) -> None:
    """Again and again: they come back, keep their places, and are granted in their order."""
    kind = "pubsub" if protocol == 3 else "normal"
    stage.url += f"?protocol={protocol}"
    party, lease = stage.acquire(ttl=30)
    turns = stage.queue(3, ttl=TTL)
    before = stage.look.queue()
    for _ in range(5):
        until(lambda: others(stage, kind) >= 3, "all are there")
        assert kill(stage, kind) >= 3
        time.sleep(0.05)
    assert stage.look.queue() == before
    until(lambda: stage.listening(4) if protocol == 3 else others(stage, kind) >= 3, "they are back")
    give_back(party, lease)
    assert [turn.result(PATIENCE).owner for turn in turns] == before


def test_a_connection_killed_at_the_release(stage: Stage) -> None:
    """Nobody hears the push: whoever waits has it within a beat all the same."""
    party, lease = stage.acquire(ttl=30)
    turns = stage.queue(2, ttl=TTL)
    kill(stage, "pubsub")
    give_back(party, lease)
    released = now()
    first = min(turn.result(PATIENCE).at for turn in turns)
    assert first - released < BEAT + SLACK


@THREADS_ONLY
def test_a_killed_connection_of_a_holder(stage: Stage) -> None:
    """The watchdog's connection is killed again and again; the lease is renewed all the same."""
    _, lease = stage.acquire(ttl=4.5)
    told, first = losses(lease), lease.deadline
    while lease.deadline < first + 2.2:
        kill(stage, "pubsub")
        time.sleep(0.3)  # a renewal of a busy machine fits in between
        assert told == [], told
    until(lambda: lease.state == "held", "it is sure")


@pytest.mark.parametrize("idle", [0.0, 0.6], ids=["busy", "idle"])
def test_a_killed_connection_is_replaced(stage: Stage, idle: float) -> None:
    """The next acquire may have to ask twice, and is granted; after a moment of silence it notices before it asks."""
    party, lease = stage.acquire(ttl=TTL)
    assert party.do(lambda _: lease.release()) is True
    kill(stage, "pubsub")
    time.sleep(idle)
    begun, asked = now(), stage.aim.seen["claim"]
    again = party.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=PATIENCE))
    assert again.fence > lease.fence and now() - begun < BEAT + SLACK
    if idle:
        assert stage.aim.seen["claim"] == asked + 1


# ---------------------------------------------------------------- forgotten by a firewall


@pytest.fixture
def wary(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silence of a tenth of a second is suspicious, in place of twenty seconds, and an answer is due soon."""
    stage.url += "?health_check_interval=0.1"
    monkeypatch.setattr(connection, "CHECK_AFTER", 0.05)
    for module in (connection, loop_connection):
        monkeypatch.setattr(module, "PING_SECONDS", ASK)


def forget(stage: Stage) -> None:
    """A firewall drops what was idle, and lets new connections through."""
    time.sleep(0.15)
    stage.proxy.blackhole()
    stage.proxy.release()


@pytest.mark.usefixtures("wary")
def test_a_forgotten_connection_is_noticed(stage: Stage) -> None:
    """It is asked before it is trusted: the next acquire takes that much longer and succeeds, with one claim."""
    party = stage.party()
    assert party.do(lambda hold: hold.lock("job").locked()) is False
    forget(stage)
    begun = now()
    lease = party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    assert ASK <= now() - begun < ASK + SLACK and stage.aim.seen["claim"] == 1
    assert stage.look.holder() == lease.owner
    assert stage.look.ended() == {}, "nothing was in doubt"


@pytest.mark.usefixtures("wary")
def test_one_try_on_a_forgotten_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """``wait=0`` has a second for everything, and that is enough."""
    for module in (connection, loop_connection):
        monkeypatch.setattr(module, "PING_SECONDS", ASK / 4)  # so that a busy machine has most of it
    party = stage.party()
    assert party.do(lambda hold: hold.lock("job").locked()) is False
    forget(stage)
    begun = now()
    assert party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0)) is not None
    assert now() - begun < 1 + SLACK


@pytest.mark.usefixtures("wary")
@THREADS_ONLY
def test_a_forgotten_connection_of_the_watchdog(stage: Stage) -> None:
    """A renewal asks first as well, and has time left for a new connection: the lease is never lost."""
    _, lease = stage.acquire(ttl=2.4)
    told, first = losses(lease), lease.deadline
    forget(stage)
    until(lambda: lease.deadline > first and lease.state == "held", "it is renewed")
    assert told == []
    stage.look.honest(lease)


# ---------------------------------------------------------------- nobody there


def test_refused(stage: Stage) -> None:
    """Nothing listens: StoreUnavailable at once, because nothing was sent; and it works when something does."""
    party = stage.party()
    stage.proxy.refuse()
    begun = now()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=2 * SLACK))
    assert now() - begun < SLACK
    stage.proxy.accept()
    assert party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE)) is not None


@pytest.mark.parametrize("connected", [False, True])
def test_no_answer_in_time(stage: Stage, connected: bool) -> None:
    """A second's wait ends after a second: StoreUnavailable when nothing was asked, OutcomeUnknown when it was."""
    party = (stage.connected if connected else stage.party)(f"{stage.url}?socket_connect_timeout=0.9")
    stage.proxy.blackhole()
    begun = now()
    with pytest.raises(OutcomeUnknown if connected else StoreUnavailable):
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=1))
    assert now() - begun < 1 + SLACK


def test_no_reply_within_socket_timeout(stage: Stage) -> None:
    """A call may take minutes; one reply may take as long as the URL says. Nobody knows what became of it then."""
    party = stage.connected(f"{stage.url}?socket_timeout=0.3")
    stage.proxy.hold_replies()
    asked = party.start(lambda hold: ask(hold, Inspect("job", budget_ms=600_000)))
    assert isinstance(asked.exception(PATIENCE), OutcomeUnknown)


@THREADS_ONLY
def test_no_more_connections_than_allowed(stage: Stage) -> None:
    """One more is refused, and nothing was sent; the watchdog's comes on top, and one that is closed makes room."""
    store = RedisStore(f"{stage.url}?max_connections=2")
    connections = [store.connection() for _ in range(3)]
    for opened in connections[:2]:
        opened.execute(Inspect("job"))
    with pytest.raises(StoreUnavailable, match="2 connections are open, and max_connections allows no more"):
        connections[2].execute(Inspect("job"))
    (reply,) = store.execute_many([Inspect("job")])
    assert isinstance(reply, View)
    connections[0].close()
    assert isinstance(connections[2].execute(Inspect("job")), View)

    async def on_a_loop() -> None:
        with pytest.raises(StoreUnavailable, match="max_connections"):
            await store.execute_async(Inspect("job"))
        connections[1].close()
        assert isinstance(await store.execute_async(Inspect("job")), View)
        store.close()
        await asyncio.sleep(0)  # its transport is closed by the loop

    asyncio.run(on_a_loop())


@THREADS_ONLY
def test_a_release_without_a_connection_goes_on_in_the_background(stage: Stage) -> None:
    """Whoever waits has the only one: what is given back goes by the watchdog's, and the other one's turn comes."""
    holder = stage.party(f"{stage.url}?max_connections=1")
    waiting: list[Future[Any]] = []

    def body(lease: Any) -> None:
        other = ThreadPoolExecutor(1)
        waiting.append(other.submit(lambda: holder.hold.lock("job", ttl=30).acquire(wait=PATIENCE)))
        until(lambda: len(stage.look.queue()) == 1, "another thread waits")

    holder.within(lambda hold: hold.lock("job", ttl=30), body).result(PATIENCE)
    assert waiting[0].result(PATIENCE) is not None


async def test_close_while_connecting(async_stage: Stage) -> None:
    """A server that does not answer the first words: close() leaves neither a task nor a socket."""
    before = asyncio.all_tasks()
    async_stage.proxy.hold_requests()
    async with leasehold.aio.connect(f"{async_stage.url}?socket_connect_timeout=1.2") as hold:
        with pytest.raises(StoreUnavailable):
            await hold.lock("job").acquire(wait=0)
    left = asyncio.all_tasks() - before
    await asyncio.gather(*left, return_exceptions=True)
    assert left == set()


async def test_a_server_that_stalls_in_the_handshake(tmp_path: Path) -> None:
    """Several commands wait for their replies then. One error is raised, and asyncio reports no other."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
    fields = [b"server", b"redis", b"version", b"7.0.0", b"mode", b"standalone"]
    hello = b"%3\r\n" + b"".join(map(bulk, fields))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # on a busy machine the client may have given up before it is answered
            await reader.read(1000)
            writer.write(hello)
            while await reader.read(1000):
                pass
        writer.close()

    path = str(tmp_path / "stalls.sock")
    async with await asyncio.start_unix_server(serve, path):
        async with leasehold.aio.connect(f"unix://{path}?socket_timeout=0.2") as hold:
            with pytest.raises(StoreUnavailable, match="too long"):
                await hold.lock("job").acquire(wait=0)
        gc.collect()
        await asyncio.sleep(0)
    assert not reported


# ---------------------------------------------------------------- replies that take a while


@THREADS_ONLY
@pytest.mark.parametrize("slice_seconds", [0.05, 10.0], ids=["in slices", "by a poll"])
def test_a_reply_is_waited_for(stage: Stage, slice_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read waits by itself for a short while, again and again: a reply that takes longer arrives all the same, and
    one that takes too long ends the wait when its time is over."""
    monkeypatch.setattr(sockets, "SLICE", slice_seconds)
    store = RedisStore(stage.url)
    one: Any = store.connection()
    assert one.execute_command(("BLPOP", "nothing", "0.2"), PATIENCE) is None
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        one.execute_command(("BLPOP", "nothing", "10"), 0.3)
    assert 0.3 <= time.monotonic() - began < 5
    one.close()
    store.close()
