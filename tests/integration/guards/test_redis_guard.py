"""The guard on Redis: what each method does when the fence is accepted, and that it does nothing when it is not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import leasehold
from leasehold._core.types import owner_digest
from leasehold.errors import InvalidRequest, StaleOwner
from tests.support.guards.redis_stage import BODY, HASH, RESOURCE, WAYS, A, B, opened
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow
every_way = pytest.mark.parametrize("way", WAYS)
one_server = pytest.mark.parametrize("way", ["redis-py", "asyncio"])
RECORD = "guard:v1:{report-export:42}"


def text(value: Any) -> Any:
    """Whatever the client makes of a string."""
    return value.decode() if isinstance(value, bytes) else value


def everything(data: Any) -> dict[bytes, Any]:
    """All that is there, as the server keeps it."""
    keys = sorted(data.scan_iter())
    return {key: (data.dump(key), data.pttl(key) > 0) for key in keys}


# ---------------------------------------------------------------- accepted


@every_way
def test_values(guard: Any, data: Any) -> None:
    """A value is set, read, set with a ttl, and deleted; who reads gets what its own client gives."""
    who = {"resource": RESOURCE, "owner": A}
    assert guard.get(BODY, 10, **who) is None
    assert guard.set(BODY, "running", 10, **who) is None
    assert text(guard.get(BODY, 10, **who)) == "running"
    assert data.pttl(BODY) == -1
    guard.set(BODY, b"done", 10, ttl="90s", **who)
    assert 80_000 < data.pttl(BODY) <= 90_000
    guard.set(BODY, 7, 10, **who)
    assert (text(data.get(BODY)), data.pttl(BODY)) == ("7", -1)
    assert guard.delete(BODY, 10, **who) is True
    assert guard.delete(BODY, 10, **who) is False
    assert text(data.get(RECORD)) == f"10 {owner_digest(A)}"


@every_way
def test_hashes(guard: Any, data: Any) -> None:
    """Fields are set, read and deleted, one or several."""
    who = {"resource": RESOURCE, "owner": A}
    assert guard.hget(HASH, "status", 10, **who) is None
    assert guard.hset(HASH, {"status": "running", "rows": 5, b"raw": b"\xc3\xa9"}, 10, **who) == 3
    assert guard.hset(HASH, {"status": "done"}, 10, **who) == 0
    assert text(guard.hget(HASH, "status", 10, **who)) == "done"
    assert guard.hdel(HASH, "rows", 10, **who) == 1
    assert guard.hdel(HASH, ["status", b"raw", "nothing"], 10, **who) == 2
    assert data.exists(HASH) == 0


@every_way
def test_scripts(guard: Any, data: Any) -> None:
    """A body finds its own KEYS and ARGV from 1, and what it returns is returned."""
    body = """
        local before = redis.call('GETSET', KEYS[1], ARGV[1]) -- a comment at the end of a line
        redis.call('HSET', KEYS[2], 'by', ARGV[2])
        return {#KEYS, #ARGV, before, {redis.call('GET', KEYS[1])}, 3.9} -- and at the end of all"""
    found = guard.eval(body, 10, keys=[BODY, HASH], args=["new", 5], resource=RESOURCE, owner=A)
    assert found == [2, 2, None, [found[3][0]], 3]
    assert (text(found[3][0]), text(data.hget(HASH, "by"))) == ("new", "5")


@every_way
def test_what_bodies_return(guard: Any) -> None:
    """Nothing, nil, false, true, texts, several values: as a script without us returns them."""
    returned: dict[str, Any] = {
        "local x": None,
        "return": None,
        "return nil": None,
        "return false": None,
        "return true": 1,
        "return ''": "",
        "return 1, 2": 1,
        "return {}": [],
        "return select('#', ...)": 0,
        "return redis.status_reply('FINE')": "FINE",
        "return ARGV[1] or KEYS[1]": None,
        "do return 4 end": 4,
    }
    for body, expected in returned.items():
        assert text(guard.eval(body, 10, resource=RESOURCE)) == expected, body
    nested = guard.eval("return {1, redis.pcall('NOSUCHCOMMAND')}", 10, resource=RESOURCE)
    assert isinstance(nested[1], Exception)


# ---------------------------------------------------------------- refused

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "check": lambda guard, more: guard.check(**more),
    "get": lambda guard, more: guard.get(BODY, more.pop("lease_or_fence"), **more),
    "hget": lambda guard, more: guard.hget(HASH, "status", more.pop("lease_or_fence"), **more),
    "set": lambda guard, more: guard.set(BODY, "late", more.pop("lease_or_fence"), ttl=5, **more),
    "delete": lambda guard, more: guard.delete(BODY, more.pop("lease_or_fence"), **more),
    "hset": lambda guard, more: guard.hset(HASH, {"status": "late"}, more.pop("lease_or_fence"), **more),
    "hdel": lambda guard, more: guard.hdel(HASH, "status", more.pop("lease_or_fence"), **more),
    "eval": lambda guard, more: guard.eval(
        "redis.call('FLUSHALL') return redis.call('SET', KEYS[1], 'late')",
        more.pop("lease_or_fence"),
        keys=[BODY],
        **more,
    ),
}
WRITES = ["set", "delete", "hset", "hdel", "eval"]


@every_way
def test_a_stale_owner_changes_nothing(guard: Any, data: Any) -> None:
    """Every method refuses an older fence, and an equal one of somebody else, and leaves every key as it was."""
    guard.set(BODY, "new", 10, resource=RESOURCE, owner=A)
    guard.hset(HASH, {"status": "new"}, 10, resource=RESOURCE, owner=A)
    before = everything(data)
    for name, call in CALLS.items():
        for fence, owner in ((9, A), (10, B), (10, None)):
            with pytest.raises(StaleOwner) as caught:
                call(guard, {"lease_or_fence": fence, "resource": RESOURCE, "owner": owner})
            assert (caught.value.seen, caught.value.fence) == (10, fence), name
    assert everything(data) == before and len(before) == 3


@one_server
@pytest.mark.parametrize("name", CALLS)
def test_every_method_remembers(name: str, guard: Any, data: Any) -> None:
    """Whatever a newer owner does first, a read too, from then on the older one is refused at every key."""
    guard.set(BODY, "old", 10, resource=RESOURCE, owner=A)
    body = {"eval": lambda: guard.eval("return 1", 11, resource=RESOURCE, owner=B)}
    body.get(name, lambda: CALLS[name](guard, {"lease_or_fence": 11, "resource": RESOURCE, "owner": B}))()
    assert text(data.get(RECORD)) == f"11 {owner_digest(B)}"
    for key in (BODY, "somewhere else"):
        with pytest.raises(StaleOwner):
            guard.set(key, "late", 10, resource=RESOURCE, owner=A)


@one_server
def test_an_end_in_the_body_lets_nobody_in(guard: Any, data: Any) -> None:
    """What a body says after closing our brackets for us is still behind the rule."""
    guard.check(10, resource=RESOURCE, owner=A)
    body = "return 1 end) redis.call('SET', KEYS[1], 'late') pcall(function() return 2"
    with pytest.raises(StaleOwner):
        guard.eval(body, 9, keys=[BODY], resource=RESOURCE)
    assert data.get(BODY) is None


# ---------------------------------------------------------------- readers and permits


@one_server
def test_readers(guard: Any, data: Any) -> None:
    """A shared lease reads through the guard, is not remembered, is refused when it is stale, and cannot write."""
    reading = SimpleNamespace(resource=RESOURCE, fence=20, owner=A, shared=True)
    guard.set(BODY, "body", 10, resource=RESOURCE, owner=B)
    guard.hset(HASH, {"status": "new"}, 10, resource=RESOURCE, owner=B)
    assert text(guard.get(BODY, reading, shared=True)) == "body"
    assert text(guard.hget(HASH, "status", reading, shared=True)) == "new"
    assert text(data.get(RECORD)).startswith("10 ")
    guard.set(BODY, "newer", 30, resource=RESOURCE, owner=B)
    for name in ("get", "hget", "check"):
        with pytest.raises(StaleOwner):
            CALLS[name](guard, {"lease_or_fence": reading, "shared": True})
    for name in WRITES:
        with pytest.raises(InvalidRequest, match="may read and not write"):
            CALLS[name](guard, {"lease_or_fence": reading})
    assert text(data.get(BODY)) == "newer"


@one_server
def test_permits(guard: Any, data: Any) -> None:
    """Each slot of a semaphore has a record of its own."""
    for slot, fence in ((0, 10), (1, 9)):
        permit = SimpleNamespace(resource="pool", fence=fence, owner=A, slot_resource=f"pool:{slot}")
        guard.set(f"slot{slot}", "mine", permit, resource=permit.slot_resource)
        with pytest.raises(InvalidRequest, match="slot_resource"):
            guard.set(f"slot{slot}", "mine", permit)
    assert sorted(map(text, data.keys("guard:*"))) == ["guard:v1:{pool:0}", "guard:v1:{pool:1}"]


# ---------------------------------------------------------------- records


@one_server
def test_the_record_stays(make_guard: Callable[..., Any], data: Any) -> None:
    """For ever, or so long after it was last presented; a guard without keep= makes it stay again."""
    kept = make_guard(keep="30d")
    day = 86_400_000
    for again in (1, 2):
        kept.check(again, resource=RESOURCE, owner=A)
        assert 29 * day < data.pttl(RECORD) <= 30 * day
        data.pexpire(RECORD, 5000)
        kept.check(again, resource=RESOURCE, owner=A)
        assert 29 * day < data.pttl(RECORD) <= 30 * day
    kept.check(99, resource=RESOURCE, owner=B, shared=True)
    make_guard().check(2, resource=RESOURCE, owner=A)
    assert data.pttl(RECORD) == -1
    data.pexpire(RECORD, 5000)
    make_guard().check(3, resource=RESOURCE, owner=A)
    assert data.pttl(RECORD) == -1


@one_server
def test_braces_in_names(guard: Any, data: Any) -> None:
    """Names from elsewhere may hold braces: each has a record of its own, and a hash tag that is whole."""
    names = ["a", "{a}", "a}b", "}", "{", "{}", "%7Ba%7D", "a:{b}:c", "é{"]
    for fence, name in enumerate(names, 1):
        guard.check(fence, resource=name, owner=A)
    for fence, name in enumerate(names, 1):
        guard.check(fence, resource=name, owner=A)
        assert guard.key("body", resource=name).count("{") == 1
    assert len(data.keys("guard:v1:*")) == len(names)


@pytest.mark.parametrize("way", ["Cluster", "Cluster, asyncio", "Cluster, valkey-py"])
def test_braces_on_a_cluster(guard: Any) -> None:
    """There guard.key() is in the slot of the record, whatever the name."""
    for name in ["a", "{a}", "a}b", "}", "{", "{}", "%7Ba%7D", "a:{b}:c", "é{"]:
        key = guard.key("{x}", resource=name)
        guard.set(key, name, 1, resource=name)
        assert text(guard.get(key, 1, resource=name)) == name


@pytest.mark.parametrize("way", ["Cluster", "Cluster, asyncio", "Cluster, valkey-py"])
def test_a_tag_of_the_users_own(make_guard: Callable[..., Any], data: Any) -> None:
    """Data keys that have a hash tag already stay as they are; the record goes to them."""
    guard = make_guard(tag=lambda resource: resource.rpartition(":")[2])
    guard.set("report:{42}:body", "b", 10, resource=RESOURCE, owner=A)
    assert guard.key("body", resource=RESOURCE) == "{42}:body"
    assert text(data.get("guard:v1:{42}:report-export:42")).startswith("10 ")
    guard.set("report:{42}:body", "other", 3, resource="report-import:42", owner=A)
    with pytest.raises(StaleOwner):
        guard.delete("report:{42}:body", 9, resource=RESOURCE, owner=A)


@one_server
def test_encodings_find_one_record(way: str, place: RedisServer) -> None:
    """A client with another encoding is refused by the same record."""
    make = WAYS[way][1]
    with opened(make, place.port, encoding="utf-16") as odd, opened(make, place.port) as usual:
        odd().set("clé", "é", 10, resource="café:1", owner=A)
        with pytest.raises(StaleOwner):
            usual().check(9, resource="café:1", owner=A)
        with pytest.raises(StaleOwner):
            odd().eval("return 'é'", 9, resource="café:1", owner=A)
        assert usual().eval("return 'é'", 11, resource="café:1") == "é".encode()
        assert odd().get("clé", 12, resource="café:1") is not None


# ---------------------------------------------------------------- leases


@one_server
def test_a_lease_of_ours(guard: Any, redis_server: RedisServer) -> None:
    """It brings all that is needed; it is guarded afterwards, and guard.key() alone shows it to nobody."""
    with leasehold.connect(redis_server.url) as hold, hold.lock("report-export", 42) as lease:
        key = guard.key("body", lease)
        assert (key, lease.guarded, lease.exported) == (BODY, False, False)
        guard.set(key, "done", lease)
        assert (lease.guarded, lease.exported) == (True, False)
        assert text(guard.get(key, lease)) == "done"
