"""RedisResultStore, seen from the server and over a bad network: keys, scripts, lost replies, foreign values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

import leasehold
from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable, Unsupported
from leasehold.patterns.results import RedisResultStore
from leasehold.patterns.results.redis import _keys
from leasehold.testing.results import Presenter
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer, impatient
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow
NAME = "page:42"
OLD, NEW = Presenter(NAME, 10), Presenter(NAME, 11)
VALUE, FENCE = "results:v1:{page:42}:value", "results:v1:{page:42}:fence"
DAY = 86_400_000


@pytest.fixture
def client(redis_server: RedisServer, redis_url: str) -> Any:
    """Of an empty server."""
    return redis_server.client()


def test_two_keys_that_end(client: Any) -> None:
    """The value with its keep, the fence a day later: whatever is done, nothing stays for ever."""
    results = RedisResultStore(client)
    results.open(OLD)
    assert client.keys() == [FENCE.encode()] and 0 < client.pttl(FENCE) <= DAY
    results.write(OLD, "text", 60)
    assert sorted(client.keys()) == [FENCE.encode(), VALUE.encode()]
    assert 0 < client.pttl(VALUE) <= 60_000 and DAY < client.pttl(FENCE) <= DAY + 60_000
    results.open(NEW)
    assert DAY < client.pttl(FENCE) <= DAY + 60_000
    results.write(NEW, None, "2d")
    assert client.keys() == [FENCE.encode()] and 2 * DAY < client.pttl(FENCE) <= 3 * DAY
    assert client.type(FENCE) == b"string" and b"11 " in client.get(FENCE)


def test_both_keys_are_in_one_slot() -> None:
    """Whatever the resource is called (trap 19), and no two have the same keys."""
    names = ["page:42", "page:{42}", "page:%7B42%7D", "{", "}", "{}", "}{", "a}b{c", "page:42:value"]
    found = [_keys(name) for name in names]
    assert all(key_slot(value) == key_slot(fence) for value, fence in found)
    assert len({key for pair in found for key in pair}) == 2 * len(names)


def test_one_round_trip_a_call(client: Any) -> None:
    """Each is one EVALSHA; a server that has forgotten the scripts is told again, and nobody notices (trap 18)."""
    results = RedisResultStore(client)
    calls: list[Any] = [lambda: results.read(NAME), lambda: results.open(NEW), lambda: results.write(NEW, "text", 60)]
    for _ in range(2):
        client.script_flush()
        for call in calls:
            call()
    client.config_resetstat()
    for call in calls:
        call()
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 3 and "cmdstat_eval" not in stats


def test_a_fence_that_was_evicted(client: Any) -> None:
    """The value says by itself whose it is: an older owner is refused also when the key of the fence is gone."""
    results = RedisResultStore(client)
    results.write(NEW, "newer", 60)
    for call in ((results.open, OLD), (results.write, OLD, "late", 60), (results.write, OLD, None, 60)):
        client.delete(FENCE)
        with pytest.raises(StaleOwner) as caught:
            call[0](*call[1:])
        assert caught.value.seen == 11 and client.keys() == [VALUE.encode()]
    found = results.open(NEW)
    assert found is not None and found.text == "newer"
    client.delete(FENCE)
    results.write(Presenter(NAME, 100), "newest", 60)
    assert results.read(NAME).text == "newest"


def test_foreign_keys_are_left_alone(client: Any) -> None:
    """Another type, or a text that no result store has written: an error that says where, and nothing has changed."""
    results = RedisResultStore(client)
    client.rpush(VALUE, "theirs")
    for call in (
        (results.read, NAME),
        (results.open, NEW),
        (results.write, NEW, "text", 60),
        (results.write, NEW, None, 60),
    ):
        with pytest.raises(StoreUnavailable, match=r"results:v1:\{\.\.\.\}:value of page"):
            call[0](*call[1:])
    assert client.lrange(VALUE, 0, -1) == [b"theirs"] and not client.exists(FENCE)
    client.delete(VALUE)
    for foreign in ("theirs", "1 2 3 x text", "1 2 3", "x 2 3 4 text", "1 2 x 4 text", b"\xff 2 3 4 text"):
        client.set(VALUE, foreign)
        with pytest.raises(StoreUnavailable, match=":value of page"):
            results.read(NAME)
    client.delete(VALUE)
    client.set(FENCE, "theirs")
    for call in ((results.open, NEW), (results.write, NEW, "text", 60)):
        with pytest.raises(StoreUnavailable, match=r"results:v1:\{\.\.\.\}:fence of page"):
            call[0](*call[1:])
    assert client.get(FENCE) == b"theirs" and not client.exists(VALUE)


def test_a_value_that_was_made_to_stay(client: Any) -> None:
    """PERSIST makes it no younger: after its keep it is not served."""
    results = RedisResultStore(client)
    results.write(NEW, "text", 60)
    client.persist(VALUE)
    assert 0 < results.read(NAME).left <= 60
    _, written, rest = client.get(VALUE).split(b" ", 2)
    client.set(VALUE, b"11 %d " % (int(written) - 61_000_000) + rest)
    assert results.read(NAME) is None


def test_a_client_with_another_encoding(redis_server: RedisServer, redis_url: str) -> None:
    """What it would decode wrongly is an error, and never another text."""
    results = RedisResultStore(redis_server.client(decode_responses=True, encoding="latin-1"))
    results.write(NEW, "Grüße", 60)
    with pytest.raises(InvalidRequest, match="decode_responses"):
        results.read(NAME)
    assert RedisResultStore(redis_server.client()).read(NAME).text == "Grüße"


def test_the_least_that_a_user_must_be_allowed(redis_server: RedisServer, redis_url: str) -> None:
    """The line of the page is enough, and without any one of its words something is refused."""
    words = lines_of("patterns/result-stores.md")[1][5:]  # without the name and the password
    data: Any = redis_server.client()
    assert _works(redis_server, data, words)
    for missing in words:
        assert not _works(redis_server, data, [word for word in words if word != missing]), missing
    data.execute_command("ACL", "DELUSER", "results")


@pytest.mark.parametrize("pattern", ["once", "single_flight"])
def test_a_user_who_may_only_take_leases(redis_server: RedisServer, redis_url: str, pattern: str) -> None:
    """The line for leases is not enough for results: the error names the page that has the other one, and nothing
    runs. With that line it does."""
    data: Any = redis_server.client()
    data.execute_command(*lines_of("redis.md")[0])
    url = f"redis://leasehold:password@127.0.0.1:{redis_server.port}/0"
    try:
        with leasehold.connect(url) as hold:
            with pytest.raises(StoreUnavailable) as caught:
                getattr(hold, pattern)("page", "a").call(lambda: pytest.fail("it ran"))
            named = str(caught.value).partition("; docs/")[2].partition(" has the ACL line")[0]
            data.execute_command(*lines_of(named)[0])
            assert getattr(hold, pattern)("page", "a").call(lambda: "it ran") == "it ran"
    finally:
        data.execute_command("ACL", "DELUSER", "leasehold")


def lines_of(page: str) -> list[list[str]]:
    """The ACL lines of a page, in words."""
    text = (Path(__file__).parents[4] / "docs" / page).read_text("utf-8")
    return [line.split() for line in text.splitlines() if line.startswith("ACL SETUSER")]


def _works(server: RedisServer, data: Any, words: list[str]) -> bool:
    data.flushall()
    data.script_flush()
    data.execute_command("ACL", "SETUSER", "results", "reset", "on", ">5ec2e7", *words)
    with redis.Redis(port=server.port, username="results", password="5ec2e7") as client:
        results = RedisResultStore(client)
        try:
            results.write(OLD, "text", 60)
            results.open(NEW)
            results.write(NEW, None, 60)
            return results.read(NAME) is None
        except StoreUnavailable as error:
            if "does not allow this user" not in str(error):
                raise
            return False


@pytest.mark.parametrize("thing", [None, 42, "redis://localhost", redis.Redis])
def test_what_is_no_client(thing: Any) -> None:
    """It is said when the result store is made, and by its name."""
    with pytest.raises(InvalidRequest, match=r"RedisResultStore\(\)"):
        RedisResultStore(thing)


def test_what_only_looks_like_a_client(client: Any) -> None:
    """A pipeline sends nothing until it is executed."""
    with pytest.raises(Unsupported, match="pipeline"):
        RedisResultStore(client.pipeline())


# ---------------------------------------------------------------- a bad network


def plain(port: int, **more: Any) -> dict[str, Any]:
    """A client that does not repeat by itself."""
    return {"host": "127.0.0.1", "port": port, "retry": Retry(NoBackoff(), 0), "socket_timeout": PATIENCE, **more}


def test_a_lost_reply(proxy: Proxy) -> None:
    """Nobody knows what became of a write: it was done here, and the same holder repeats it. A read changes nothing."""
    with redis.Redis(**plain(proxy.port)) as client:
        results = RedisResultStore(client)
        results.write(OLD, "before", 60)
        proxy.drop_replies(1)
        with impatient(client), pytest.raises(OutcomeUnknown, match="may be repeated") as unknown:
            results.write(NEW, "after", 60)
        assert (unknown.value.resource, unknown.value.fence) == (NAME, 11)
        assert results.read(NAME).text == "after"
        results.write(NEW, "after", 60)
        proxy.drop_replies(1)
        with impatient(client), pytest.raises(OutcomeUnknown):
            results.open(NEW)
        assert results.read(NAME).text == "after"  # on a connection of now, so that it is the reply which is lost
        proxy.drop_replies(1)
        with impatient(client), pytest.raises(StoreUnavailable, match="could not be read"):
            results.read(NAME)


def test_a_lost_reply_in_asyncio(proxy: Proxy) -> None:
    """The same, awaited."""

    async def main() -> None:
        async with redis.asyncio.Redis(**plain(proxy.port)) as client:
            results = RedisResultStore(client)
            await results.write(OLD, "before", 60)
            proxy.cut_replies(1)
            with pytest.raises(OutcomeUnknown):
                await results.write(NEW, "after", 60)
            await results.write(NEW, "after", 60)
            with pytest.raises(StaleOwner):
                await results.write(OLD, "late", 60)
            assert (await results.read(NAME))[:2] == ("after", 11)

    asyncio.run(main())


def test_a_late_write_of_a_stale_owner(proxy: Proxy) -> None:
    """A write that was held up in the network arrives after the next owner has opened: the server refuses it."""
    with redis.Redis(**plain(proxy.port)) as client:
        stale, fresh = RedisResultStore(client), RedisResultStore(redis.Redis(port=proxy._server[1]))
        stale.write(OLD, "first", 60)
        proxy.hold_requests()
        with impatient(client), pytest.raises(OutcomeUnknown):
            stale.write(OLD, "late", 60)
        assert fresh.open(NEW).text == "first"
        proxy.release()
        assert stale.read(NAME)[:2] == ("first", 10)
        fresh._client._client.close()


def test_a_server_that_is_gone(own_redis: Callable[..., RedisServer]) -> None:
    """Where nothing was sent that is said; when it is back without its memory, everything is missing, and no older."""
    server = own_redis()
    with redis.Redis(**plain(server.port)) as client:
        results = RedisResultStore(client)
        results.write(NEW, "text", 60)
        server.kill()
        client.connection_pool.disconnect()
        for call in ((results.read, NAME), (results.open, NEW), (results.write, NEW, "text", 60)):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                call[0](*call[1:])
        server.start()
        assert results.read(NAME) is None
        results.write(NEW, "again", 60)
        assert results.read(NAME).text == "again"
