"""The guard on Redis: mistakes are told before anything is sent, and what servers and networks do is told truly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.sentinel
import valkey
from redis.backoff import NoBackoff
from redis.retry import Retry

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StaleOwner, StoreUnavailable, Unsupported
from leasehold.guards.redis import FenceGuard
from tests.support.guards.redis_stage import BODY, HASH, RESOURCE, A, B, opened
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import EVERY, RedisServer, impatient
from tests.support.waiting import PATIENCE, until

slow = pytest.mark.slow
both = pytest.mark.parametrize("way", ["redis-py", "asyncio"])
every_server = pytest.mark.parametrize("way", ["redis-py", "Valkey and valkey-py", "Redis 6.2", "Cluster"])
WHO: dict[str, Any] = {"resource": RESOURCE, "owner": A}
RECORD = "guard:v1:{report-export:42}"


class Deaf:
    """A client that must not be asked."""

    def execute_command(self, *args: Any) -> Any:
        """It was."""
        raise AssertionError(f"sent {args}")


class DeafCluster(Deaf):
    """One whose keys have slots."""

    def keyslot(self, key: str | bytes) -> int:
        """As every Cluster counts."""
        return redis.crc.key_slot(key if isinstance(key, bytes) else key.encode())


quiet = FenceGuard(Deaf())

# ---------------------------------------------------------------- nothing is sent


@pytest.mark.parametrize("key", ["", b"", None, 5, True, ["a"], "\ud800", RECORD, RECORD.encode(), "guard:v1:x"])
def test_what_is_no_key(key: Any) -> None:
    """Empty, of another type, not writable, or the record of a guard."""
    for call in (
        lambda: quiet.get(key, 1, **WHO),
        lambda: quiet.set(key, "x", 1, **WHO),
        lambda: quiet.delete(key, 1, **WHO),
        lambda: quiet.hget(key, "f", 1, **WHO),
        lambda: quiet.hset(key, {"f": 1}, 1, **WHO),
        lambda: quiet.hdel(key, "f", 1, **WHO),
        lambda: quiet.eval("return 1", 1, keys=[key], **WHO),
    ):
        with pytest.raises(InvalidRequest, match="key"):
            call()


def test_what_is_no_value() -> None:
    """Neither None nor a bool nor an object; the same for fields and arguments."""
    for value in (None, True, [1], {"a": 1}, object(), bytearray(b"x")):
        wrong: Any = value
        for call in (
            lambda wrong=wrong: quiet.set("k", wrong, 1, **WHO),
            lambda wrong=wrong: quiet.hset("k", {"f": wrong}, 1, **WHO),
            lambda wrong=wrong: quiet.hget("k", wrong, 1, **WHO),
            lambda wrong=wrong: quiet.eval("return 1", 1, args=[wrong], **WHO),
            lambda wrong=wrong: quiet.hdel("k", [wrong], 1, **WHO),
        ):
            with pytest.raises(InvalidRequest, match="text, bytes or a number"):
                call()
    with pytest.raises(InvalidRequest, match="bits"):
        quiet.set("k", 10**5000, 1, **WHO)  # hiredis would end the process
    for fields in ("f", None, [("f", 1)], 5):
        with pytest.raises(InvalidRequest, match="as a dict"):
            quiet.hset("k", fields, 1, **WHO)  # type: ignore[arg-type]  # the mistake
    for none in ({}, {str(number): 1 for number in range(2001)}):
        with pytest.raises(InvalidRequest, match="2000 fields"):
            quiet.hset("k", none, 1, **WHO)
    with pytest.raises(InvalidRequest, match="2000 fields"):
        quiet.hdel("k", [], 1, **WHO)


@pytest.mark.parametrize(
    "ttl", [0, -1, "0s", "-5s", timedelta(0), True, "soon", float("nan"), float("inf"), 1e12, b"5s"]
)
def test_what_is_no_ttl(ttl: Any) -> None:
    """Zero, negative, endless, no duration at all."""
    with pytest.raises(InvalidRequest, match="ttl"):
        quiet.set("k", "x", 1, ttl=ttl, **WHO)


def test_what_is_no_body() -> None:
    """A body is text; flags have no place in it; keys and arguments are lists."""
    for body in ("", "  \n", None, b"return 1", 5, "#!lua flags=no-writes\nreturn 1", "\ud800"):
        with pytest.raises(InvalidRequest, match="body"):
            quiet.eval(body, 1, **WHO)  # type: ignore[arg-type]  # the mistake
    for wrong in ("key", b"key", None, 5, {"k": 1}):
        with pytest.raises(InvalidRequest, match="list"):
            quiet.eval("return 1", 1, keys=wrong, **WHO)  # type: ignore[arg-type]  # the mistake
        with pytest.raises(InvalidRequest, match="list"):
            quiet.eval("return 1", 1, args=wrong, **WHO)  # type: ignore[arg-type]  # the mistake


def test_what_is_no_option() -> None:
    """A record that forgets too soon, a tag that is no function or returns none, a nameless downstream."""
    for keep in (0, "59m", -1, True, "for ever", "200000d"):
        with pytest.raises(InvalidRequest, match="keep"):
            FenceGuard(Deaf(), keep=keep)
    for tag in ("42", 5):
        with pytest.raises(InvalidRequest, match="tag"):
            FenceGuard(Deaf(), tag=tag)  # type: ignore[call-overload]  # the mistake
    for returned in ("", "{42}", "a}b", None, 42, "\ud800"):
        guard = FenceGuard(Deaf(), tag=lambda _, returned=returned: returned)  # type: ignore[misc]  # the mistake
        for call in (lambda guard=guard: guard.check(1, **WHO), lambda guard=guard: guard.key("a", resource="b")):
            with pytest.raises(InvalidRequest, match="tag="):
                call()  # type: ignore[no-untyped-call]  # a lambda's default
    with pytest.raises(InvalidRequest, match="downstream"):
        FenceGuard(Deaf(), downstream="")


def test_key_names() -> None:
    """guard.key() needs a name and a resource."""
    assert quiet.key("{x}:body", resource="a/b:1") == "{a/b:1}:{x}:body"
    for name in ("", None, b"x"):
        with pytest.raises(InvalidRequest, match="named by text"):
            quiet.key(name, resource="a")  # type: ignore[arg-type]  # the mistake
    for resource in ("", 5, "x" * 513):
        with pytest.raises(InvalidRequest, match="resource"):
            quiet.key("a", resource=resource)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidRequest, match="takes a lease"):
        quiet.key("a")


def test_what_a_guard_refuses_a_fence_for_is_not_sent() -> None:
    """A bad fence is a mistake for every method, before the client hears of it."""
    for fence in (0, -1, True, "12", 2**63, None):
        with pytest.raises(InvalidRequest, match="fence"):
            quiet.set("k", "x", fence, resource=RESOURCE)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidRequest, match="resource="):
        quiet.set("k", "x", 1)


def test_a_key_in_another_slot_is_not_sent() -> None:
    """On a Cluster: the error says how to name it. On one server keys may be anywhere."""
    guard = FenceGuard(DeafCluster())
    with pytest.raises(InvalidRequest, match=r"guard\.key\('body', lease\)"):
        guard.set("report:42:body", "x", 1, **WHO)
    with pytest.raises(InvalidRequest, match="tag="):
        guard.eval("return 1", 1, keys=[BODY, "{other}:x"], **WHO)
    with pytest.raises(OutcomeUnknown, match="sent"):
        guard.set(BODY, "x", 1, **WHO)


# ---------------------------------------------------------------- clients


def test_clients_that_are_none() -> None:
    """Classes, pipelines, subscriptions, Sentinel and whatever has no commands; the error says what to give it."""
    client: Any = redis.Redis()
    aio = redis.asyncio.Redis()
    for wrong in (redis.Redis, redis.asyncio.Redis, None, 5, "redis://localhost", redis.ConnectionPool()):
        with pytest.raises(InvalidRequest, match="takes a client such as"):
            FenceGuard(wrong)  # type: ignore[call-overload]  # the mistake
    modules: list[Any] = [redis.sentinel, redis.cluster, redis.asyncio.cluster]
    sentinel = modules[0].Sentinel([("127.0.0.1", 1)])
    pipelines = [client.pipeline(), aio.pipeline(), valkey.Valkey().pipeline()]
    clustered = [module.ClusterPipeline.__new__(module.ClusterPipeline) for module in modules[1:]]
    for odd in (client.pubsub(), sentinel, *pipelines, *clustered):
        with pytest.raises(Unsupported, match="give it"):
            FenceGuard(odd)


def test_nothing_to_install() -> None:
    """It needs a client object and nothing else: neither hiredis nor redis-py are imported."""
    program = """
import sys
sys.modules["hiredis"] = sys.modules["redis"] = None
from leasehold.guards.redis import FenceGuard
class Client:
    def execute_command(self, *args): return [1]
FenceGuard(Client()).check(10, resource="a")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


async def test_a_client_that_somebody_has_wrapped() -> None:
    """Tracing may put a plain function in place of an async one: the guard is awaited all the same."""
    async with fakeredis.FakeAsyncRedis() as client:
        inner: Callable[..., Any] = client.execute_command

        def traced(*args: Any, **more: Any) -> Any:
            return inner(*args, **more)

        client.execute_command = traced  # type: ignore[method-assign]  # as it does
        guard = FenceGuard(client)
        await guard.set("k", "v", 5, **WHO)
        assert await guard.get("k", 5, **WHO) == b"v"


def test_a_test_double() -> None:
    """fakeredis runs the scripts too, so that users can test without a server."""
    guard = FenceGuard(fakeredis.FakeRedis())
    guard.hset("h", {"a": 1}, 10, **WHO)
    with pytest.raises(StaleOwner):
        guard.hdel("h", "a", 9, **WHO)
    assert guard.eval("return redis.call('HGETALL', KEYS[1])", 10, keys=["h"], **WHO) == [b"a", b"1"]


def test_it_says_nothing_secret() -> None:
    """Its repr names the kind of client."""
    with redis.Redis(password="hunter2") as client:
        assert repr(FenceGuard(client)) == "<FenceGuard behind the client redis.Redis>"


@slow
@both
def test_a_closed_client(way: str, redis_server: RedisServer, redis_url: str) -> None:
    """redis-py connects again by itself, and so the guard goes on; it closes nothing itself."""
    with opened(redis.Redis if way == "redis-py" else redis.asyncio.Redis, redis_server.port) as make:
        guard = make()
        guard.check(1, **WHO)
    if way == "redis-py":
        guard.check(1, **WHO)
        guard._client._client.close()


# ---------------------------------------------------------------- what the server says


@slow
@every_server
def test_somebody_elses_key_at_the_records_name(guard: Any, data: Any) -> None:
    """Another type, or a text that is no record: nothing is accepted, and nothing is overwritten."""
    strange: list[tuple[Callable[[], Any], Any]] = [
        (lambda: data.hset(RECORD, "a", "b"), b"hash"),
        (lambda: data.rpush(RECORD, "a"), b"list"),
        *(
            (lambda text=text: data.set(RECORD, text), b"string")
            for text in ("", "10", "x 1", "010 a", "-5 a", "1e9 a", "10 a b", "10 ", " 10 a", "9" * 20 + " a", "10.5 a")
        ),
    ]
    data.set(BODY, "before")
    for put, kind in strange:
        data.delete(RECORD)
        put()
        before = data.dump(RECORD)
        calls: list[Callable[[], Any]] = [
            lambda: guard.set(BODY, "x", 2**62, **WHO),
            lambda: guard.check(2**62, **WHO),
            lambda: guard.check(2**62, shared=True, **WHO),
            lambda: guard.eval("return redis.call('SET', KEYS[1], 'x')", 2**62, keys=[BODY], **WHO),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="is something else") as caught:
                call()
            assert caught.value.__cause__ is not None and "42" not in str(caught.value)
        assert (data.type(RECORD), data.dump(RECORD), data.get(BODY)) == (kind, before, b"before")


@slow
@every_server
def test_data_of_another_type(guard: Any, data: Any) -> None:
    """A hash where a value is wanted, or the other way round: InvalidRequest, and nothing was written."""
    data.set(BODY, "text")
    data.hset(HASH, "a", "b")
    calls: list[Callable[[], Any]] = [
        lambda: guard.hset(BODY, {"a": 1}, 10, **WHO),
        lambda: guard.hget(BODY, "a", 10, **WHO),
        lambda: guard.hdel(BODY, "a", 10, **WHO),
        lambda: guard.get(HASH, 10, **WHO),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest, match="another type"):
            call()
    assert (data.get(BODY), data.hgetall(HASH)) == (b"text", {b"a": b"b"})
    guard.set(HASH, "a value now", 10, **WHO)


@slow
@every_server
def test_bodies_that_fail(guard: Any, data: Any) -> None:
    """One that is no Lua did nothing; one that ends with an error may have done something, and that stays."""
    for body in ("this is no lua", "return 1 end", "if true then", "local x = = 1", "--[[ unfinished"):
        with pytest.raises(InvalidRequest, match="no Lua") as caught:
            guard.eval(body, 10, keys=[BODY], **WHO)
        assert caught.value.__cause__ is not None
    assert data.exists(RECORD) == 0
    written = "redis.call('SET', KEYS[1], ARGV[1])\n"
    for number, (end, said) in enumerate(
        {
            "redis.call('HGET', KEYS[1], 'a')": "WRONGTYPE",
            "error('no')": "user_script:2: no",
            "error()": "nil",
            "error({})": "table",
            "error({err = 'MINE'})": "MINE",
            "return redis.error_reply('CONFLICT there')": "CONFLICT there",
            "return {err = 'OOM it says'}": "OOM it says",
            "error('two\\r\\nlines')": "two",
            "undeclared = 5": "",
            "return nil .. 'x'": "concatenate",
            "return redis.call('NOSUCH')": "",
        }.items()
    ):
        with pytest.raises(OutcomeUnknown, match="what it did before that stays") as failed:
            guard.eval(written + end, 10, keys=[BODY], args=[number], **WHO)
        assert said in str(failed.value) and isinstance(failed.value.__cause__, Exception)
        assert data.get(BODY) == str(number).encode(), end
    assert data.get(RECORD).startswith(b"10 ")


@slow
@every_server
def test_large_ones(guard: Any, data: Any) -> None:
    """As many fields as are allowed, and a value of megabytes."""
    assert guard.hset(HASH, {f"f{number}": number for number in range(2000)}, 10, **WHO) == 2000
    assert guard.hdel(HASH, [f"f{number}" for number in range(2000)], 10, **WHO) == 2000
    guard.set(BODY, b"\x00\xff" * 2_000_000, 10, **WHO)
    assert data.strlen(BODY) == 4_000_000


@slow
@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_a_full_server(program: Callable[[], str], own_redis: Callable[..., RedisServer]) -> None:
    """Without memory nothing is accepted, not even from who was accepted before: it could fill the server further."""
    server = own_redis(executable=program())
    client: Any = server.client()
    guard = FenceGuard(client)
    guard.set("big", "x", 10, **WHO)
    client.config_set("maxmemory", 1)
    for call in (
        lambda: guard.set("big", "y", 10, **WHO),
        lambda: guard.set("big", "y", 11, **WHO),
        lambda: guard.check(11, **WHO),
        lambda: guard.delete("big", 10, **WHO),
        lambda: guard.eval("return redis.call('SET', KEYS[1], 'y')", 10, keys=["big"], **WHO),
    ):
        with pytest.raises(StoreUnavailable, match="memory"):
            call()
    assert (client.get("big"), client.get(RECORD)[:3]) == (b"x", b"10 ")


# docs/guards/redis.md shows this line.
ACL = "ACL SETUSER app on >secret ~guard:v1:* ~report:* +evalsha +eval +get +set"


@slow
@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_the_least_that_a_user_must_be_allowed(
    program: Callable[[], str], own_redis: Callable[..., RedisServer]
) -> None:
    """With the line of the page it works; what the line does not allow changes nothing and says so."""
    server = own_redis(executable=program())
    admin: Any = server.client()
    admin.execute_command(*ACL.split(" "), "+del")
    app = server.client(username="app", password="secret")
    guard, kept = FenceGuard(app), FenceGuard(app, keep="1d")
    for _ in range(2):
        guard.set("report:42", "x", 10, **WHO)
        kept.delete("report:42", 10, **WHO)
    for call in (
        lambda: guard.set("other:42", "x", 11, **WHO),
        lambda: guard.hset("report:42", {"a": 1}, 11, **WHO),
    ):
        with pytest.raises(StoreUnavailable, match="does not allow this user"):
            call()
    assert admin.keys("*:42") == []


@slow
def test_a_replica(own_redis: Callable[..., RedisServer]) -> None:
    """It can only read, and the guard must remember: nothing is accepted there."""
    server = own_redis()
    client: Any = server.client()
    guard = FenceGuard(client)
    guard.set("k", "x", 10, **WHO)
    client.config_set("replica-serve-stale-data", "yes")
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    for call in (
        lambda: guard.set("k", "y", 11, **WHO),
        lambda: guard.get("k", 11, **WHO),
        lambda: guard.check(10, **WHO),
    ):
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            call()
    assert client.get("k") == b"x"


# ---------------------------------------------------------------- what the network does


@pytest.fixture
def once(proxy: Proxy) -> Iterator[Any]:
    """A guard through the proxy whose client tries once."""
    with redis.Redis(port=proxy.port, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 0)) as client:
        yield FenceGuard(client)


@slow
def test_a_lost_reply(once: Any, proxy: Proxy, redis_server: RedisServer) -> None:
    """It may have happened, the error says so, and repeating it gives the same."""
    data = redis_server.client()
    once.eval("redis.call('SET', KEYS[1], '2')", 10, keys=["k"], **WHO)  # the server knows the script from here on
    once.set("k", "0", 10, **WHO)
    calls: dict[bytes, Callable[[], Any]] = {
        b"1": lambda: once.set("k", "1", 11, resource=RESOURCE, owner=B),
        b"2": lambda: once.eval("redis.call('SET', KEYS[1], '2')", 12, keys=["k"], **WHO),
    }
    for value, call in calls.items():
        proxy.drop_replies(1)
        with impatient(once._client._client), pytest.raises(OutcomeUnknown, match=r"[Rr]epeat") as caught:
            call()
        assert isinstance(caught.value.__cause__, redis.TimeoutError)
        assert caught.value.fence in (11, 12) and caught.value.resource == RESOURCE
        until(lambda value=value: data.get("k") == value, "it has happened")  # type: ignore[misc]  # this one
        call()
    with pytest.raises(StaleOwner):
        once.set("k", "late", 11, resource=RESOURCE, owner=B)


@slow
def test_a_client_that_tries_again(proxy: Proxy, redis_server: RedisServer) -> None:
    """Everything of ours can be done twice by the same owner; a body that adds is run twice, as the page says."""
    data: Any = redis_server.client()
    push = "return redis.call('RPUSH', KEYS[1], 'x')"
    with redis.Redis(port=proxy.port, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 2)) as client:
        guard = FenceGuard(client)
        assert guard.eval(push, 10, keys=["list"], **WHO) == 1
        for call in (lambda: guard.set("k", "1", 11, **WHO), lambda: guard.hset("h", {"a": 1}, 11, **WHO)):
            proxy.cut_replies(1)
            call()
        proxy.cut_replies(1)
        assert guard.eval(push, 11, keys=["list"], **WHO) == 3
    assert (data.get("k"), data.hgetall("h")) == (b"1", {b"a": b"1"})


@slow
def test_a_late_request_of_a_stale_owner(once: Any, proxy: Proxy, redis_server: RedisServer) -> None:
    """What was stuck in the network when its sender gave up arrives after a newer owner wrote, and changes nothing."""
    data = redis_server.client()
    once.set("k", "0", 10, **WHO)
    proxy.hold_requests()
    with impatient(once._client._client), pytest.raises(OutcomeUnknown):
        once.set("k", "late", 10, **WHO)
    FenceGuard(data).set("k", "new", 11, resource=RESOURCE, owner=B)
    calls = data.info("commandstats")["cmdstat_evalsha"]["calls"]
    proxy.release()
    until(lambda: data.info("commandstats")["cmdstat_evalsha"]["calls"] > calls, "it arrives")
    assert data.get("k") == b"new"


@slow
def test_nobody_there() -> None:
    """A client that never got a connection has sent nothing, however often it tried."""
    for again in (0, 1):
        with redis.Redis(port=1, retry=Retry(NoBackoff(), again)) as client, pytest.raises(StoreUnavailable):
            FenceGuard(client).check(1, **WHO)


@slow
def test_nobody_there_at_the_second_attempt(proxy: Proxy, redis_server: RedisServer) -> None:
    """The first attempt was done: that the second reaches nobody says nothing about it."""
    with redis.Redis(port=proxy.port, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 1)) as client:
        guard = FenceGuard(client)
        guard.set("k", "0", 10, **WHO)
        proxy.refuse()
        proxy.cut_replies(1)
        with pytest.raises(OutcomeUnknown, match="may be repeated") as caught:
            guard.set("k", "1", 11, **WHO)
    assert isinstance(caught.value.__cause__, redis.ConnectionError)
    assert redis_server.client().get("k") == b"1"


@slow
@both
def test_values_that_the_client_cannot_write(guard: Any, data: Any) -> None:
    """Nothing was sent, and the client's own error is the cause."""
    with pytest.raises(InvalidRequest, match="sent nothing") as caught:
        guard.set("k", "\ud800", 1, **WHO)
    assert isinstance(caught.value.__cause__, UnicodeEncodeError)
    assert data.dbsize() == 0
    guard.check(1, **WHO)


@slow
@pytest.mark.parametrize("way", ["redis-py"])
def test_values_that_the_client_cannot_read(guard: Any, redis_server: RedisServer) -> None:
    """decode_responses and a value that is no text: it was done, and the error says why there is no answer."""
    guard.set("k", b"\xff\xfe", 1, **WHO)
    reader: Any = FenceGuard(redis_server.client(decode_responses=True, protocol=2))
    with pytest.raises(LeaseholdError, match="decode") as caught:
        reader.get("k", 1, **WHO)
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)
