"""The least that a user of the server must be allowed, on every server: with it everything works, with less something
does not."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import leasehold
from leasehold import LeaseholdError, StoreUnavailable
from leasehold._core.ops import (
    Adopt,
    Beat,
    Claim,
    Evict,
    Evicted,
    Granted,
    Group,
    Inspect,
    Leaks,
    Page,
    Ping,
    Queued,
    Release,
    Released,
    Renew,
    Renewed,
    Replies,
    Resize,
    Resized,
    Scan,
    StoreOp,
    View,
    Watch,
    Withdraw,
)
from leasehold.stores.redis import RedisStore
from tests.support.redis.stage import SLACK, Look, Stage, now
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

# docs/redis.md shows this line.
ACL = (
    "ACL SETUSER lease reset on >secret ~lock:v1:* resetchannels &lock:v1:push:*"
    " +evalsha +eval +subscribe +info +time +scan"
    " +get +mget +set +del +exists +pttl +pexpire +pexpireat"
    " +hget +hmget +hgetall +hset +hdel +hlen +hscan +rpush +lrange +lrem +ltrim +publish"
)
PAGE = Path(__file__).parents[3] / "docs" / "redis.md"
COMMANDS = [word for word in ACL.split() if word.startswith("+")]
A, B = "host:1:a", "host:1:b"


@pytest.fixture(scope="module", params=EVERY, ids=lambda find: find.__name__)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Each server, told to evict, so that there is something to warn of."""
    with RedisServer(
        None, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru", executable=request.param()
    ) as server:
        yield server


def address(server: RedisServer, options: str = "") -> str:
    """The server, for that user."""
    return server.url.replace("redis://", "redis://lease:secret@") + options


def allow(server: RedisServer, line: str) -> None:
    """That line, typed at the server."""
    Look(server).run(line)


def everything(server: RedisServer, warnings: Callable[[], int], patience: float = 0.3) -> None:
    """Every script by every way through it, pushes, news and the look at the server's settings. Quick to say no."""
    server.wipe()
    store = RedisStore(address(server))
    try:
        play(store)
        assert server.client().hlen("lock:v1:{job}:more") < 260, "nothing was swept"
        pushes(store, patience)
        assert warnings() == 1, "nobody was warned"
    finally:
        store.close()


def expect(store: RedisStore, op: StoreOp, kind: type) -> Any:
    """An op, and its reply."""
    reply = store.execute(op)
    assert type(reply) is kind, reply
    return reply


def play(store: RedisStore) -> None:
    """Grants, queues, tombstones, doors, and enough of them to be swept."""
    fence = expect(store, Claim("job", A, 5_000), Granted).fence
    expect(store, Claim("job", B, 5_000), Queued)
    expect(store, Beat("job", B, 2), Queued)
    expect(store, Inspect("job"), View)
    expect(store, Renew("job", A, fence, 5_000, number=1, ticket="ticket"), Renewed)
    grant = expect(store, Claim("other", A, 5_000), Granted)
    holding: Any = SimpleNamespace(name=SimpleNamespace(text="other"), in_store=lambda: (A, grant.fence), ttl_ms=5_000)
    assert store.renew_many([[holding]], 5_000) == [[]]
    many = [Renew("job", A, fence, 5_000, number=number) for number in (2, 3)]
    assert [type(one) for one in store.execute_many(many)] == [Renewed] * 2
    fence = expect(store, Adopt("job", fence, "ticket", "host:1:c", 5_000), Granted).fence
    expect(store, Evict("job", "host:1:c", fence, "request", delay_ms=0, force=True), Evicted)
    fence = expect(store, Beat("job", B, 3), Granted).fence
    expect(store, Renew("job", B, fence, 5_000, closed_ms=1, number=1), Renewed)
    time.sleep(0.002)
    expect(store, Release("job", B, fence, forget_ms=1), Released)
    expect(store, Scan("*"), Page)
    expect(store, Leaks("lock:*"), Page)
    expect(store, Ping(), Page)
    expect(store, Ping(keyless=True), Page)
    assert expect(store, Ping(versions=True), Page).items
    for rule in ("read", "semaphore"):
        fence = expect(store, Claim(rule, A, 5_000, rule=rule, limit=2), Granted).fence
        expect(store, Claim(rule, B, 5_000, rule=rule, limit=2, delay_ms=1), Granted)
        expect(store, Renew(rule, A, fence, 5_000), Renewed)
        expect(store, Watch(rule, A), View)
        expect(store, Resize(rule, 3), Resized)
        expect(store, Group((Release(rule, A, fence), Release(rule, A, fence))), Replies)
    for forget_ms in (1, 60_000):
        time.sleep(0.002)
        for number in range(130):  # however many of the first are swept on the way, the last ones reach a sweep
            store.execute(Withdraw("job", f"host:{forget_ms}:{number}", forget_ms))


def pushes(store: RedisStore, patience: float) -> None:
    """A waiter is told of its grant, and a holder of its eviction."""
    connection = store.connection()
    news = store.holder_pushes()
    until(lambda: news.fileno(lambda: None) >= 0, "it listens", 3 * patience)
    fence = expect(store, Claim("push", A, 5_000, holder_address=news.address), Granted).fence
    assert type(connection.execute(Claim("push", B, 5_000, address=connection.address))) is Queued
    expect(store, Evict("push", A, fence, "request", delay_ms=0, force=True), Evicted)
    granted = connection.next_push(patience)
    assert granted is not None and (granted.event, granted.owner) == ("granted", B)
    assert select.select([news.fileno(lambda: None)], [], [], patience)[0], "the holder is not told"
    assert [push.event for push in news.read()] == ["evicted"]
    connection.close()


def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How often the log has warned of eviction since."""
    caplog.clear()
    caplog.set_level(logging.WARNING)
    return lambda: sum("maxmemory-policy" in record.getMessage() for record in caplog.records)


def test_the_line_is_enough(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Everything works with it, also after the server has forgotten its scripts."""
    allow(server, ACL)
    everything(server, warned(caplog), SLACK)
    everything(server, warned(caplog), SLACK)  # wiped in between


def test_the_documents_show_this_line() -> None:
    """docs/redis.md has it, for another user."""
    shown = next(line for line in PAGE.read_text().splitlines() if line.startswith("ACL SETUSER"))
    assert shown == ACL.replace("SETUSER lease ", "SETUSER leasehold ").replace(">secret", ">password")


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_in_the_line_is_idle(server: RedisServer, command: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without any one of its commands something does not work."""
    less = ACL.replace(f" {command}", "", 1) if f"{command} " in ACL else ACL.removesuffix(f" {command}")
    assert less != ACL
    allow(server, less)
    with pytest.raises((LeaseholdError, AssertionError)):
        everything(server, warned(caplog))


@pytest.mark.parametrize("part", [" ~lock:v1:*", " &lock:v1:push:*"])
def test_keys_and_channels_are_needed(server: RedisServer, part: str, caplog: pytest.LogCaptureFixture) -> None:
    """So are the keys and the channels."""
    allow(server, ACL.replace(part, ""))
    with pytest.raises((LeaseholdError, AssertionError)):
        everything(server, warned(caplog))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_used_for_real(server: RedisServer, flavour: str, protocol: int) -> None:
    """Acquire, wait, be handed over to, renew, extend, look and release, by that user, who is no operator."""
    server.wipe()
    stage = Stage(flavour, server)
    try:
        stage.user(ACL.replace(" +scan", "").replace(" +ltrim", ""))
        stage.url = address(server, f"?protocol={protocol}&client_name=app")
        party, lease = stage.acquire(ttl=2.4)  # a machine that stands still for a moment must not end it
        turns = stage.queue(2, ttl=1.5)
        first = lease.deadline
        until(lambda: lease.deadline > first, "it is renewed")
        party.do(lambda _: lease.extend(5))
        assert party.do(lambda hold: hold.lock("job").locked()) is True
        assert party.do(lambda hold: hold.lock("job").try_acquire()) is None
        assert party.do(lambda _: lease.release()) is True
        assert [turn.result(PATIENCE).fence > lease.fence for turn in turns] == [True] * 2
        until(lambda: stage.look.leftovers() == [], "nothing is left")
    finally:
        stage.close()


def test_a_user_who_may_not(server: RedisServer) -> None:
    """Without permissions, or with a wrong password: StoreUnavailable that says so, and shows no password."""
    server.wipe()
    allow(server, "ACL SETUSER lease reset on >secret +select +subscribe")
    refused = {address(server): "prints the ACL line", address(server).replace("secret", "wrong"): "user and password"}
    for url, words in refused.items():
        with leasehold.connect(url) as hold, pytest.raises(StoreUnavailable, match=words) as info:
            hold.lock("job").acquire(wait=0)
        assert "secret" not in str(info.value) and "wrong" not in str(info.value)


def test_a_user_who_may_not_do_one_thing(server: RedisServer) -> None:
    """One command is missing inside the scripts: the same words, and at once."""
    server.wipe()
    allow(server, ACL.replace(" +time", ""))
    with leasehold.connect(address(server)) as hold:
        begun = now()
        with pytest.raises(LeaseholdError, match="prints the ACL line"):
            hold.lock("job", ttl=0.3).acquire(wait=2 * SLACK)
        assert now() - begun < SLACK


def test_a_tenant_with_a_namespace_of_its_own(server: RedisServer) -> None:
    """A user whose rights end with its namespace, as on the page about security, works there and nowhere else."""
    server.wipe()
    allow(server, ACL.replace("~lock:v1:*", "~lock:v1:{acme/* ~results:v1:{acme/* +type"))
    with leasehold.connect(address(server), namespace="acme") as hold, hold.lock("job", 1) as lease:
        lease.extend(5)
        assert hold.inspect(lease).held
        assert hold.once("payment", "{number}", keep="1h")(lambda number: number + 1)(number=7) == 8
    for namespace in ("acme2", "", "other"):
        with leasehold.connect(address(server), namespace=namespace) as hold, pytest.raises(StoreUnavailable):
            hold.lock("job", 1).acquire(wait=0)
