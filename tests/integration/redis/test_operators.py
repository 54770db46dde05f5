"""What operators ask of a Redis: by every way to it, on every server and in the stand-in that people test with."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis

import leasehold
from leasehold._core import ops
from leasehold._core.policy import NOTES_KEPT
from leasehold._core.ports import Store
from leasehold.errors import NotHeld, StoreUnavailable
from leasehold.stores.redis import RedisStore, protocol
from leasehold.stores.redis.client_store import ClientStore
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

OWNER = "host:1:secret.1"
MONTH_MS = 30 * 86_400_000
Ask = Callable[[ops.StoreOp], Any]


@pytest.fixture(scope="module", params=EVERY, ids=lambda find: find.__name__)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Each server."""
    with RedisServer(executable=request.param()) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """Somebody else's client of the same server, which is empty."""
    server.wipe()
    with server.client() as client:
        yield client


@pytest.fixture(params=["mailbox", "batch", "loop", "resp2", "borrowed", "decoding"])
def ask(request: pytest.FixtureRequest, server: RedisServer, client: redis.Redis) -> Iterator[tuple[Ask, Any]]:
    """A way to ask, and a client that sees the same keys."""
    url = f"{server.url}?protocol=2" if request.param == "resp2" else server.url
    borrowed = {"borrowed": client, "decoding": redis.Redis.from_url(server.url, decode_responses=True)}
    store: Store = ClientStore(borrowed[request.param]) if request.param in borrowed else RedisStore(url)
    loop = asyncio.new_event_loop()
    ways: dict[str, Ask] = {
        "batch": lambda op: store.execute_many([op])[0],
        "loop": lambda op: loop.run_until_complete(store.execute_async(op)),
    }
    yield ways.get(request.param, store.execute), client
    store.close()
    borrowed["decoding"].close()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def take(ask: Ask, resource: str, owner: str = OWNER, **more: Any) -> int:
    """Hold it."""
    reply = ask(ops.Claim(resource, owner, 60_000, **more))
    assert isinstance(reply, ops.Granted), reply
    return reply.fence


def all_of(ask: Ask, op: ops.Scan | ops.Leaks) -> tuple[set[str], int]:
    """What is on all pages, and the longest page."""
    found: set[str] = set()
    longest = 0
    for _ in range(200):
        page = ask(op)
        assert isinstance(page, ops.Page), page
        found.update(page.items)
        longest = max(longest, len(page.items))
        op = op._replace(cursor=page.cursor)
        if not page.cursor:
            return found, longest
    raise AssertionError("never the last page")


def listings(execute: Ask, client: Any) -> None:
    """Names with every sign that Redis's own patterns know; other people's keys are none of them."""
    odd = ["a[b]:1", "a^b:1", "a\\b:1", "règle:é", "acme/report:%7B"]
    for name in odd:
        take(execute, name)
    client.set("lock:v1:{a}:nothing", "x")
    client.set("other", "x", px=60_000)
    assert all_of(execute, ops.Scan("*"))[0] == set(odd)
    for name in odd:
        assert all_of(execute, ops.Scan(name))[0] == {name}
    assert all_of(execute, ops.Scan("a?b:1"))[0] == {"a^b:1", "a\\b:1"}
    assert all_of(execute, ops.Scan("r?gle:?"))[0] == {"règle:é"}
    assert all_of(execute, ops.Scan("[a]*"))[0] == set()
    assert all_of(execute, ops.Leaks("lock:*"))[0] == {"lock:v1:{a}:nothing"}


def an_eviction(execute: Ask, client: Any) -> None:
    """Its note is there with a TTL, and without a secret; and that of a request before it, once."""
    fence = take(execute, "job")
    for _ in range(2):
        assert execute(ops.Revoke("job", OWNER, fence, note='{"why": "né"}')) == ops.HolderAsked(False)
    assert isinstance(execute(ops.Evict("job", OWNER, fence, "r1", note='{"why": "né"}')), ops.Evicted)
    notes = execute(ops.Inspect("job")).notes
    assert [one.event for one in notes] == ["asked", "evicted"]
    assert all((one.owner, one.fence, one.text) == ("host:1", fence, '{"why": "né"}') for one in notes)
    assert 0 < client.pttl("lock:v1:{job}:notes") <= MONTH_MS
    assert not [one for one in client.lrange("lock:v1:{job}:notes", 0, -1) if b"secret" in one]
    assert all_of(execute, ops.Leaks("*"))[0] == set()


def an_adoption(execute: Ask, client: Any) -> None:
    """By fence and ticket alone, once."""
    fence = take(execute, "job")
    execute(ops.Renew("job", OWNER, fence, 60_000, ticket="nonce"))
    adopted = execute(ops.Adopt("job", fence, "nonce", "host:2:other.1", 60_000))
    again = execute(ops.Adopt("job", fence, "nonce", "host:2:other.1", 60_000))
    assert isinstance(adopted, ops.Granted) and again.fence == adopted.fence > fence
    assert execute(ops.Adopt("job", fence, "nonce", "host:3:third.1", 60_000)) == ops.NotYours("adopted")


def a_share(execute: Ask, client: Any) -> None:
    """Readers and permits side by side, resized and looked at; several in one step; nothing is left."""
    first, second = (take(execute, "page", f"host:{number}:secret.1", rule="read") for number in (1, 2))
    assert execute(ops.Claim("page", "host:3:secret.1", 60_000, rule="write", enqueue=False)).holder == "host:1"
    assert execute(ops.Resize("pool", 2)) == ops.Resized(0)
    permit = execute(ops.Claim("pool", "host:4:secret.1", 60_000, rule="semaphore", permits=2, limit=5))
    assert (permit.slots, permit.limit, permit.rule) == ((0, 1), 2, "semaphore")
    view = execute(ops.Watch("pool", "host:5:secret.1"))
    assert [one.slots for one in view.holders] == [(0, 1)] and view.limit == 2
    assert all_of(execute, ops.Scan("*"))[0] == {"page", "pool"}
    steps = (
        ops.Release("page", "host:1:secret.1", first),
        ops.Release("page", "host:2:secret.1", second),
        ops.Release("pool", "host:4:secret.1", permit.fence),
    )
    assert execute(ops.Group(steps)) == ops.Replies((ops.Released(),) * 3)
    claims = [ops.Claim(name, "host:6:secret.1", 60_000, enqueue=False) for name in ("page", "pool", "page", "other")]
    claims[2] = claims[2]._replace(owner="host:7:secret.1")
    granted, also, busy = execute(ops.Group(tuple(claims))).replies
    assert granted.fence and also.fence and busy.holder == "host:6"
    assert all_of(execute, ops.Scan("*"))[0] == {"page", "pool"}


SCENES: list[Callable[[Ask, Any], None]] = [listings, an_eviction, an_adoption, a_share]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_by_every_way(ask: tuple[Ask, Any], scene: Callable[[Ask, Any], None]) -> None:
    """Connections of our own, shared or not, and clients of others answer alike."""
    scene(*ask)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_in_fakeredis(scene: Callable[[Ask, Any], None]) -> None:
    """So does what people test their own code with."""
    fake = fakeredis.FakeRedis()
    scene(ClientStore(fake).execute, fake)


def test_leaks_are_anybodys(client: redis.Redis, server: RedisServer) -> None:
    """Keys of other libraries that will never end, in pages, by Redis's own pattern."""
    store = RedisStore(server.url)
    take(store.execute, "job")
    store.execute(ops.Claim("job", "host:1:secret.2", 60_000))
    leaked = {f"lock:other:{number}" for number in range(900)}
    client.mset(dict.fromkeys(leaked, "token"))
    for number in range(900):
        client.set(f"lock:fine:{number}", "token", px=60_000)
    found, longest = all_of(store.execute, ops.Leaks("lock:*"))
    assert found == leaked and longest < 600
    assert all_of(store.execute, ops.Leaks("lock:[no]*:1?"))[0] == {f"lock:other:1{digit}" for digit in range(10)}
    store.close()


def test_pages_of_names_are_bounded(client: redis.Redis, server: RedisServer) -> None:
    """However many there are, and however few among many."""
    store = RedisStore(server.url)
    for number in range(700):
        take(store.execute, f"job:{number}")
    client.mset({f"data:{number}": "x" for number in range(5_000)})
    found, longest = all_of(store.execute, ops.Scan("job:*"))
    assert found == {f"job:{number}" for number in range(700)} and longest < 600
    store.close()


def test_a_foreign_thing_at_a_key(client: redis.Redis, server: RedisServer) -> None:
    """A listing names it; an eviction that cannot be noted evicts nobody."""
    store = RedisStore(server.url)
    fence = take(store.execute, "job")
    for part, kind in (("queue", "s"), ("fence", "l"), ("more", "s"), ("notes", "s"), ("holders", "s")):
        key = f"lock:v1:{{odd}}:{part}"
        client.set(key, "x") if kind == "s" else client.rpush(key, "x")
    client.rpush("lock:v1:{odd2}:notes", "not one of ours")
    client.set("lock:v1:{job}:notes", "x")
    assert all_of(store.execute, ops.Scan("*"))[0] == {"job", "odd", "odd2"}
    with pytest.raises(StoreUnavailable, match=r"no lease at the key .*:notes"):
        store.execute(ops.Evict("job", OWNER, fence, "r1"))
    record: Any = client.get("lock:v1:{job}:owner")
    assert record.split()[1] == OWNER.encode()
    client.delete("lock:v1:{job}:notes")
    assert isinstance(store.execute(ops.Evict("job", OWNER, fence, "r1")), ops.Evicted)
    store.close()


def test_trap_37_notes_do_not_pile_up(client: redis.Redis, server: RedisServer) -> None:
    """The last twenty are kept, and no view shows that others were: so the key itself is looked at."""
    store = RedisStore(server.url)
    for number in range(25):
        owner = f"host:1:secret.{number}"
        store.execute(ops.Evict("job", owner, take(store.execute, "job", owner), "r", 0, True, str(number)))
    assert client.llen("lock:v1:{job}:notes") == NOTES_KEPT
    view: Any = store.execute(ops.Inspect("job"))
    assert [one.text for one in view.notes] == [str(number) for number in range(5, 25)]
    store.close()


def test_one_page_looks_at_few_keys(client: redis.Redis, server: RedisServer) -> None:
    """The server does nothing else meanwhile: however many keys of others there are, it is 500 of them at a time."""
    store = RedisStore(server.url)
    server.ask("DEBUG POPULATE 6000")
    for op in (ops.Scan("*"), ops.Leaks("nothing:*")):
        client.config_resetstat()
        assert all_of(store.execute, op) == (set(), 0)
        stats = client.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] >= 10
    store.close()


def test_somebody_who_only_sets_the_key_can_be_evicted(client: redis.Redis, server: RedisServer) -> None:
    """It has no fence and nobody knows since when it holds; deleting by hand is never the only way."""
    with leasehold.connect(server.url) as hold:
        for ttl_ms in (None, 60_000):
            client.set("lock:v1:{job:1}:owner", "theirs", nx=True, px=ttl_ms)
            holder = hold.inspect("job:1").holder
            assert holder is not None and (holder.fence, holder.since) == (0, None)
            assert not hold.revoke("job:1", fence=0)
            evicted = hold.evict("job:1", fence=0, reason="it is gone", delay=0, force=True)
            assert evicted.fence > 0 and not client.exists("lock:v1:{job:1}:owner")
            with pytest.raises(NotHeld):
                hold.evict("job:1", fence=0, reason="it is gone")
            lease = hold.lock("job", 1).try_acquire()
            assert lease is not None and lease.fence > evicted.fence
            lease.release()


def test_a_holder_is_asked_to_give_back(client: redis.Redis, server: RedisServer) -> None:
    """Whoever listens is told, and it is said whether somebody does."""
    store = RedisStore(server.url)
    news = store.holder_pushes()
    until(lambda: news.fileno(lambda: None) >= 0, "it listens")
    fence = take(store.execute, "job", holder_address=news.address)
    assert store.execute(ops.Revoke("job", OWNER, fence)) == ops.HolderAsked(True)
    assert select.select([news.fileno(lambda: None)], [], [], 10)[0], "it is not told"
    (push,) = news.read()
    assert (push.event, push.resource, push.owner, push.fence) == ("revoke", "job", OWNER, fence)
    store.close()


def test_a_user_of_these_keys_alone_looks_for_no_leaks_elsewhere(client: redis.Redis, server: RedisServer) -> None:
    """It is refused, not told that there are none."""
    client.set("lock:other", "token")
    client.acl_setuser("narrow", enabled=True, reset=True, passwords="+secret", keys=["lock:v1:*"], commands=["+@all"])
    store = RedisStore(server.url.replace("redis://", "redis://narrow:secret@"))
    assert store.execute(ops.Leaks("lock:v1:*")) == ops.Page((), "")
    with pytest.raises(StoreUnavailable, match=r"a search for leaks also the right to read .* %R~lock:\*"):
        store.execute(ops.Leaks("lock:*"))
    store.close()
    client.acl_deluser("narrow")


def test_the_pattern_for_the_server() -> None:
    """Never narrower than ours, and without rows of stars."""
    assert protocol.redis_glob("a**?b[c]^\\d") == r"a*?*b\[c\]\^\\d"
