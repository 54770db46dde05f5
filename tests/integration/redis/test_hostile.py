"""What strangers write at the keys of a resource: shown, never granted over, and never long on the server."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.aio
from leasehold import Inspection, Leasehold, LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import (
    Claim,
    Evict,
    Granted,
    Group,
    HolderAsked,
    Inspect,
    Release,
    Renew,
    Renewed,
    Revoke,
    Scan,
    StoreOp,
    Withdraw,
)
from leasehold.guards.redis import FenceGuard
from leasehold.patterns.results import RedisResultStore
from leasehold.stores.redis import RedisStore
from leasehold.testing.results import Presenter
from tests.integration.redis.hostile import LISTS, NAME, PARTS, PREFIX, STRINGS, A, B, D, disturb, every_op, furnish
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

MOST_SECONDS = 0.25  # of the server's own CPU, for one op. The pattern that this is about took 19 s over 40 kB


class Watched:
    """A store, and what each of its ops costs the server: CPU time, which a busy machine does not change."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self.client: Any = server.client()
        self.store = RedisStore(server.url)

    def execute(self, op: StoreOp) -> Any:
        """The reply, or an error of ours that says what is wrong."""
        return self.timed(lambda: self.store.execute(op), type(op).__name__)

    def timed(self, call: Callable[[], object], what: str) -> Any:
        """The same of anything that asks the server once."""
        before = self._used()
        reply: Any
        try:
            reply = call()
        except OutcomeUnknown as error:  # a script that failed in a way that nobody has thought of
            raise AssertionError(f"{what}: {error}") from error
        except LeaseholdError as error:
            reply = error
        used = self._used() - before
        assert used < MOST_SECONDS, f"{what} took {used:.3f} s of the server"
        return reply

    def _used(self) -> float:
        found: Any = self.client.info("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


@pytest.fixture
def watched(redis_server: RedisServer, redis_url: str) -> Iterator[Watched]:
    """On the shared server, which is empty."""
    watched = Watched(redis_server)
    yield watched
    watched.store.close()


@pytest.fixture
def hold(watched: Watched) -> Iterator[Leasehold]:
    """Beside somebody who holds another resource, and must always be listed."""
    with leasehold.connect(watched.url) as hold, hold.lock("bystander", ttl=60):
        yield hold


def take(hold: Leasehold, **options: Any) -> Any:
    """A lease of the resource that strangers write at; it must be granted."""
    lease = hold.lock(NAME, **options).acquire()
    assert lease is not None
    return lease


def listed(hold: Leasehold) -> dict[str, Inspection]:
    """All that is listed, by its name; the bystander always is."""
    found = {one.resource: one for one in hold.scan()}
    assert found["bystander"].held and not found["bystander"].unreadable
    return found


def refused(call: Callable[[], object]) -> str:
    """What the error says."""
    with pytest.raises(StoreUnavailable) as raised:
        call()
    assert raised.value.resource == NAME
    return str(raised.value)


# ---------------------------------------------------------------- shown, by name, and why


@pytest.mark.parametrize(
    "note",
    [b"", b"garbage", b"1", b"99999999999999999999 evicted 7 host:1 {}", b"nan evicted 7 host:1 {}", b"\xff\xfe",
     b"9007199254740000 evicted seven host:1 {}", b"9007199254740000 evicted -7 host:1 {}", b"x" * 1_000_000],
    ids=repr,
)  # fmt: skip
def test_a_note_that_is_none(hold: Leasehold, watched: Watched, note: bytes) -> None:
    """It is listed as unreadable beside the notes that can be read; whether anybody holds is known all the same."""
    lease = take(hold)
    hold.evict(NAME, fence=lease.fence, reason="why", delay=0, force=True)
    watched.client.lpush(f"{PREFIX}notes", note)
    seen = hold.inspect(NAME)
    assert [one.reason for one in seen.notes] == ["why"]
    assert seen.unreadable == (f"{PREFIX}notes has an entry that is no note",)
    assert listed(hold)[NAME].unreadable == seen.unreadable and "unreadable" in repr(seen)
    assert not hold.lock(NAME).locked() and hold.lock(NAME).try_acquire() is not None


@pytest.mark.parametrize("part", PARTS)
def test_a_key_of_another_type(hold: Leasehold, watched: Watched, part: str) -> None:
    """Its resource is listed as unreadable, with the key. Whoever must know who holds is told which key it is, and that
    nothing was granted. Once it is deleted, all is well."""
    key, blocks = PREFIX + part, part != "notes"
    watched.client.sadd(key, "member")
    kind = "string" if part in STRINGS else "list" if part in LISTS else "hash"
    (why,) = listed(hold)[NAME].unreadable
    assert why.startswith(f"{key} is no {kind}") and hold.inspect(NAME).unreadable == (why,)
    if part != "notes":
        assert f"lock:v1:{{...}}:{part} is no {kind}" in refused(hold.lock(NAME).locked)
    if blocks:
        for ask in (hold.lock(NAME), hold.rwlock(NAME).read(), hold.semaphore(NAME, limit=2)):
            assert f"lock:v1:{{...}}:{part} of this resource: it is no {kind}" in refused(ask.try_acquire)
    watched.client.delete(key)
    assert hold.lock(NAME).try_acquire() is not None, "nothing was granted before"


def test_a_holder_is_shown_beside_a_key_of_another_type(hold: Leasehold, watched: Watched) -> None:
    """Whoever has the owner's key holds, whatever strangers put at the others; and can renew and release."""
    lease = take(hold, ttl=60)
    watched.client.set(f"{PREFIX}queue", "text")
    seen = listed(hold)[NAME]
    assert seen.holder is not None and seen.holder.owner == lease.owner.rpartition(":")[0] and seen.unreadable
    lease.extend(60)
    watched.client.delete(f"{PREFIX}queue")
    assert lease.release()


@pytest.mark.parametrize("part", [part for part in PARTS if part not in ("holders", "more", "notes")])
def test_all_else_is_shown_beside_a_key_of_another_type(hold: Leasehold, watched: Watched, part: str) -> None:
    """Those who share the resource, what is closed, and what was noted: each is read by itself."""
    permits: list[Any] = [hold.semaphore(NAME, limit=3, ttl=60).acquire() for _ in range(3)]
    fences = [permit.fence for permit in permits]
    hold.evict(NAME, fence=fences[0], reason="why", delay="1m", force=True)
    hold.semaphore(NAME, limit=3).resize(3)
    watched.client.delete(PREFIX + part)
    watched.client.sadd(PREFIX + part, "member")
    seen = listed(hold)[NAME]
    assert [one.fence for one in seen.holders] == fences[1:] and [one.slots for one in seen.holders] == [(1,), (2,)]
    assert [one.reason for one in seen.notes] == ["why"] and any(part in one for one in seen.unreadable)
    assert part == "fence" or seen.fence > fences[2]
    assert seen.limit == 3
    view = watched.execute(Inspect(NAME))
    assert [door.slots for door in view.doors] == [(0,)]


def test_a_waiter_is_shown_beside_a_key_of_another_type(hold: Leasehold, watched: Watched) -> None:
    """In its place, and the holder with its fence."""
    assert (lease := hold.lock(NAME, ttl=60).acquire()) is not None
    for owner in (A, B):
        watched.execute(Claim(NAME, owner, 60_000, address="lock:v1:push:nobody"))
    watched.client.sadd(f"{PREFIX}watchers", "member")
    seen = hold.inspect(NAME)
    assert [one.fence for one in seen.holders] == [lease.fence] and len(seen.waiters) == 2 and seen.unreadable


@pytest.mark.parametrize("owner", [b"a:b:\xff", b"a:b:\xed\xa0\x80", b"\xff", "a:b:\u00e9".encode()])
def test_an_owner_that_is_no_text(hold: Leasehold, watched: Watched, owner: bytes) -> None:
    """It can be asked for the lease, and evicted, like any other: it is named by the bytes that it has."""
    watched.client.set(f"{PREFIX}owner", owner)
    assert repr(listed(hold)[NAME]).isprintable()
    assert hold.revoke(NAME) is False, "nobody listens there"
    hold.evict(NAME, fence=0, reason="why", delay=0, force=True)
    assert hold.lock(NAME).try_acquire() is not None


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("awaited", [False, True])
def test_through_the_commands_of_a_client(watched: Watched, decode: bool, awaited: bool) -> None:
    """One that decodes replies would fail for what is no text, and hide all the rest."""
    port = int(watched.url.rpartition(":")[2].partition("/")[0])
    watched.client.set(b"lock:v1:{caf\xe9}:owner", "somebody")
    watched.client.set(b"lock:v1:{caf\xea}:owner", "somebody")
    watched.client.set(f"{PREFIX}owner", b"a:b:\xff")
    watched.client.rpush("lock:v1:{other}:notes", b"\xff")
    if awaited:

        class Awaited(redis.asyncio.Redis):
            async def execute_command(self, *args: Any, **options: Any) -> Any:
                return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py

        async def look() -> set[str]:
            client = Awaited(port=port, decode_responses=decode)
            async with client, leasehold.aio.connect(client) as hold:
                return {one.resource async for one in hold.scan()}

        found = asyncio.run(look())
    else:

        class Mine(redis.Redis):
            def execute_command(self, *args: Any, **options: Any) -> Any:
                return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py

        with Mine(port=port, decode_responses=decode) as client, leasehold.connect(client) as hold:
            found = {one.resource for one in hold.scan()}
            assert hold.lock(NAME).try_acquire() is None
    assert found == {r"caf\xe9", r"caf\xea", NAME, "other"}


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xed\xa0\x80", b"\xff"])
def test_a_name_that_is_no_text(hold: Leasehold, watched: Watched, name: bytes) -> None:
    """It is listed, as well as it can be shown."""
    watched.client.set(b"lock:v1:{" + name + b"}:owner", "somebody")
    (other,) = [one for one in listed(hold).values() if one.resource != "bystander"]
    assert other.unreadable == ("its name is no UTF-8",) and not other.held
    assert repr(other) and other.resource.isprintable()


def test_a_long_owner(hold: Leasehold, watched: Watched) -> None:
    """A token of a megabyte is no reason to show a megabyte."""
    watched.client.set(f"{PREFIX}owner", b"a:b:\xff" * 200_000)
    holder = listed(hold)[NAME].holder
    assert holder is not None and len(holder.owner) < 1_000
    with pytest.raises(leasehold.NotAcquired) as raised, hold.lock(NAME, wait=0):
        pass
    assert len(str(raised.value)) < 2_000


# ---------------------------------------------------------------- never granted over


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("holders", "somebody", "what is this"),
        ("holders", B, f"1 2 3 4 5 6 7 read 0 0 - - {B}"),
        ("holders", A, f"{'9' * 400} 5000 9007199254740000 0 5 0 0 read 0 0 - - {A} "),
        ("holders", A, f"5 5000 9007199254740000 0 5 0 0 semaphore 3 1,,2 - - {A} "),
        ("holders", A, f"5 5000 9007199254740000 0 5 0 0 mutex 0 0 - - {A} "),
        ("more", ":closed", "soon"),
        ("more", ":closed", "9" * 400),
        ("more", ":closed", "1 1 1"),
        ("more", ":doors", "9007199254740000 semaphore:0:soon"),
        ("more", ":doors", "9007199254740000 mutex:0:9007199254740000"),
        ("more", ":doors", "9007199254740000 semaphore:0,,1:9007199254740000"),
        ("more", ":doors", "1 semaphore:0:1"),
        ("more", ":doors", "1 " * 40_000),
        ("more", ":doors", "a" * 40_000),
        ("more", ":doors", "semaphore:0:" * 80_000),
    ],
)
def test_somebody_may_hold_by_it(hold: Leasehold, watched: Watched, part: str, field: str, value: str) -> None:
    """A holder or a closed door that cannot be read keeps everybody out, with an error that names its key; nobody who
    holds already loses anything. When it is deleted, the next one is granted."""
    shared = hold.semaphore(NAME, limit=3)
    held = shared.acquire()
    assert held is not None
    watched.client.hset(PREFIX + part, field, value)
    if (part, field) == ("holders", B):
        watched.client.hset(PREFIX + part, B, "1 2 3")
    seen = listed(hold)[NAME]
    assert [one.fence for one in seen.holders] == [held.fence]
    assert seen.unreadable[0].startswith(f"{PREFIX}{part} has a ")
    for op in (Claim(NAME, A, 5_000), Claim(NAME, A, 5_000, rule="semaphore", permits=2, limit=3)):
        reply = watched.execute(op)
        assert isinstance(reply, StoreUnavailable) and f"lock:v1:{{...}}:{part} of this" in str(reply)
    assert isinstance(watched.execute(Group((Claim(NAME, A, 5_000), Claim("free", A, 5_000)))), StoreUnavailable)
    refused(hold.lock(NAME).locked)
    refused(shared.available)
    held.extend(20)
    assert held.release()
    assert "lock:v1" in refused(hold.lock(NAME).try_acquire)
    watched.client.hdel(PREFIX + part, field)
    assert hold.lock(NAME).try_acquire() is not None


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("holders", A, f"5 5000 1000 0 5 0 0 mutex 0 0 - - {A} "),
        ("holders", B, f"5 5000 1000 0 5 0 0 read 0 0 - - {A} "),
        ("more", ":closed", "1 soon"),
        ("more", ":doors", "1 semaphore:0:soon"),
        ("more", ":doors", "1 " * 40_000),
    ],
)
def test_what_keeps_others_out_is_listed(hold: Leasehold, watched: Watched, part: str, field: str, value: str) -> None:
    """Also when a time in it is over: nobody is granted, so an operator must find it."""
    watched.client.hset(PREFIX + part, field, value)
    assert "lock:v1" in refused(hold.lock(NAME).try_acquire)
    assert listed(hold)[NAME].unreadable


@pytest.mark.parametrize(("field", "value"), [(":closed", "soon"), (":doors", "1 semaphore:0:soon")])
def test_what_cannot_be_read_is_not_written_over(hold: Leasehold, watched: Watched, field: str, value: str) -> None:
    """By a holder that leaves a closed door behind: whoever wrote it may still go by it."""
    lock = hold.lock(NAME, at_least="1m") if field == ":closed" else hold.semaphore(NAME, limit=3, at_least="1m")
    held = lock.acquire()
    assert held is not None
    watched.client.hset(f"{PREFIX}more", field, value)
    assert held.release()
    watched.execute(Inspect(NAME))
    assert watched.client.hget(f"{PREFIX}more", field) == value.encode()
    assert "more of this resource" in refused(lock.try_acquire)


def test_nothing_is_published_to_channels_of_others(watched: Watched) -> None:
    """An address is what somebody wrote down: a waiter's, a holder's and a watcher's lead to channels of ours alone."""
    client: Any = watched.client
    ms = int(client.time()[0]) * 1000
    with client.pubsub() as heard:
        heard.subscribe("orders")
        assert heard.get_message(timeout=PATIENCE) is not None
        grant = watched.execute(Claim(NAME, A, 60_000, holder_address="orders"))
        client.hset(f"{PREFIX}more", B, f"{ms + 30_000} waiting 0 1 60000 0 5 0 mutex 1 1 orders - ")
        client.rpush(f"{PREFIX}queue", B)
        client.hset(f"{PREFIX}watchers", D, f"{ms} orders")
        assert watched.execute(Revoke(NAME, A, grant.fence)) == HolderAsked(reached=False)
        watched.execute(Evict(NAME, A, grant.fence, "request", 0, True, "{}"))
        assert heard.get_message(timeout=0.1) is None


def test_a_permit_that_cannot_be_read_keeps_its_slot(hold: Leasehold, watched: Watched) -> None:
    """Also from those who are granted without a look at all who hold, by the mark that was made of them."""
    permits = [hold.semaphore(NAME, limit=2).acquire() for _ in range(2)]
    assert permits[0] is not None and permits[1] is not None
    watched.client.hset(f"{PREFIX}holders", permits[0].owner, "what is this")
    permits[1].extend(20)
    assert permits[1].release()
    for _ in range(3):
        assert "holders of this resource: it has a field" in refused(hold.semaphore(NAME, limit=2).try_acquire)
    assert watched.client.exists(f"{PREFIX}holders")


@pytest.mark.parametrize("limit", ["inf", "nan", "1e9", "0x99", "9" * 400, "-5", "many", "", "1 x", "9" * 15 + " x"])
def test_a_limit_that_is_none(hold: Leasehold, watched: Watched, limit: str) -> None:
    """Claims go by their own, and no more are granted than that."""
    watched.client.hset(f"{PREFIX}more", ":limit", limit)
    semaphore = hold.semaphore(NAME, limit=2)
    assert [semaphore.try_acquire() is not None for _ in range(4)] == [True, True, False, False]
    assert f"{PREFIX}more has a limit that is none" in listed(hold)[NAME].unreadable


@pytest.mark.parametrize("fence", ["inf", "nan", "-1", "1e300", "0x7", " 7", "9" * 16, "9" * 400, "last", ""])
def test_a_fence_that_is_none(hold: Leasehold, watched: Watched, fence: str) -> None:
    """The clock goes on, as where there is no last fence at all; what follows is a number that counts by one."""
    watched.client.set(f"{PREFIX}fence", fence)
    assert hold.inspect(NAME).unreadable == (f"{PREFIX}fence is no number",) == listed(hold)[NAME].unreadable
    first = take(hold)
    assert 10**15 < first.fence < 2**53
    watched.client.set(f"{PREFIX}fence", fence)
    first.release()
    second = take(hold)
    assert first.fence < second.fence < 2**53


def test_a_grant_that_is_none(hold: Leasehold, watched: Watched) -> None:
    """An owner that claims again, because the first reply was lost, gets an error: a lease without its fence protects
    nothing. For others it is held, until the time of the owner's key is over."""
    claim = Claim(NAME, A, 60_000)
    assert isinstance(watched.execute(claim), Granted)
    watched.client.set(f"{PREFIX}owner", A, px=60_000)
    reply = watched.execute(claim)
    assert isinstance(reply, StoreUnavailable) and "owner of this resource: it is no grant" in str(reply)
    assert hold.lock(NAME).locked() and hold.lock(NAME).try_acquire() is None
    watched.execute(Withdraw(NAME, A))
    assert hold.lock(NAME).try_acquire() is not None


def test_a_waiter_that_is_none(hold: Leasehold, watched: Watched) -> None:
    """A place in the queue whose record would make a fence beyond all numbers, or no place at all, is taken away."""
    now_ms = int(watched.client.time()[0]) * 1000
    records = {
        "a:1:1": f"{now_ms + 30_000} waiting 0 1 5000 9999999999999999 5 0 mutex 1 1 - - ",
        "a:1:2": f"{now_ms + 30_000} waiting 0 1 5000 0 5 0 semaphore 0 3 - - ",
        "a:1:3": f"{now_ms + 30_000} waiting 0 1 5000 0 5 0 semaphore 1 99999 - - ",
        ":mark": f"{now_ms + 30_000} waiting 0 1 5000 0 5 0 mutex 1 1 - - ",
        "a:1:4": f"{'9' * 400} waiting 0 1 5000 0 5 0 mutex 1 1 - - ",
        "a:1:5": f"{now_ms + 30_000} waiting 0 1 5000 0 5 0 mutex 1 1 - - " + "x" * 1_000_000,
    }
    watched.client.rpush(f"{PREFIX}queue", *records)
    watched.client.hset(f"{PREFIX}more", mapping=records)
    with hold.lock(NAME, wait=0) as lease:
        assert lease.fence < 2**53 and not hold.inspect(NAME).waiters
    assert not watched.client.exists(f"{PREFIX}queue")


@pytest.mark.parametrize("part", ["owner", "more", "holders"])
def test_a_strange_key_costs_nobody_else_a_renewal(watched: Watched, part: str) -> None:
    """Hundreds are renewed in one call; of those, one alone is told of an error, or renewed."""
    claims = [Claim(name, A, 60_000, rule="read") for name in (NAME, "b", "c")]
    fences = {op.resource: watched.execute(op).fence for op in claims}
    watched.client.delete(PREFIX + part)
    watched.client.sadd(PREFIX + part, "member")
    replies = watched.store.execute_many([Renew(name, A, fence, 60_000, number=1) for name, fence in fences.items()])
    assert all(isinstance(reply, Renewed) for reply in replies[1:])
    assert isinstance(replies[0], StoreUnavailable)


def test_too_many_to_look_at(hold: Leasehold, watched: Watched) -> None:
    """A hundred thousand of anything cost the server little: what cannot be looked at in time is unreadable."""
    many = {b"%d" % number: b"1" for number in range(100_000)}
    for part in ("more", "holders", "watchers"):
        watched.client.hset(PREFIX + part, mapping=many)
    for part in LISTS:
        watched.client.rpush(PREFIX + part, *many)
    for op in every_op(7):
        watched.execute(op)
    why = listed(hold)[NAME].unreadable
    assert {f"{PREFIX}watchers has too many fields", f"{PREFIX}notes has an entry that is no note"} <= set(why)
    assert "holders of this resource: it has too many fields" in refused(hold.lock(NAME).try_acquire)


def ended_permits(watched: Watched, count: int) -> None:
    """As when a host has crashed: so many permits, each with a lock-delay, whose time is just over."""
    ms = int(watched.client.time()[0]) * 1000
    many: Any = {
        f"h:{slot}:s": f"{slot + 5} 1000 {ms - 10} 0 5 0 60000 0 semaphore {count} {slot} - - h:{slot}:s "
        for slot in range(count)
    }
    watched.client.hset(f"{PREFIX}holders", mapping=many)


def test_a_thousand_permits_end_at_once(watched: Watched) -> None:
    """What follows from all of them is written once."""
    ended_permits(watched, 1_000)
    view = watched.execute(Inspect(NAME))
    assert not view.holders and len(view.doors) == 1_000 and not view.unreadable
    assert watched.execute(Claim(NAME, A, 5_000, 1, 0, False, "semaphore", 1, 1_001)).slots == (1_000,)


def test_more_closed_places_than_can_be_written_down(hold: Leasehold, watched: Watched) -> None:
    """Strangers can make thousands: nobody is granted until the last of them is free, and what was written is read."""
    ended_permits(watched, 3_000)
    watched.execute(Inspect(NAME))
    seen = hold.inspect(NAME)
    assert seen.closed_for > 30 and not seen.unreadable and not seen.holders
    assert hold.lock(NAME).try_acquire() is None and hold.semaphore(NAME, limit=3).try_acquire() is None


def test_a_listing_of_much(hold: Leasehold, watched: Watched) -> None:
    """Hundreds of resources with thousands in their queues, or who have held them: one page looks at some of them, and
    lists the others."""
    ended = int(watched.client.time()[0]) * 1000 - 10
    pipe = watched.client.pipeline(transaction=False)
    for number in range(400):
        pipe.rpush(f"lock:v1:{{queue:{number}}}:queue", *range(2_000))
    for number in range(20):
        gone: Any = {f"h:{one}:s": f"5 1000 {ended} 0 5 0 0 0 read 0 0 - - h:{one}:s " for one in range(9_000)}
        pipe.hset(f"lock:v1:{{holders:{number}}}:holders", mapping=gone)
        pipe.hset(f"lock:v1:{{doors:{number}}}:more", ":doors", "1 " + "read:0:1:1 " * 5_000)
    pipe.execute()
    cursor, names = "0", set()
    while cursor:
        page = watched.execute(Scan("*", cursor))
        cursor = page.cursor
        names |= set(page.items)
    assert "bystander" in names


def test_many_that_have_ended(watched: Watched) -> None:
    """A quarter of a million tombstones: some are thrown away now and then, never all at once."""
    for start in range(0, 2**18, 2**15):
        many: Any = {f"{start + one}": "1 released 5 " for one in range(2**15)}
        watched.client.hset(f"{PREFIX}more", mapping=many)
    watched.client.hdel(f"{PREFIX}more", "0")
    for number in range(200):
        watched.execute(Withdraw(NAME, f"host:1:{number}", 60_000))
    assert watched.client.hlen(f"{PREFIX}more") < 2**18 - 200


@pytest.mark.parametrize("part", ["owner", "notes", "more", "watchers"])
def test_a_long_record(watched: Watched, part: str) -> None:
    """Of 16 MB: it is not matched before it is known how long it is."""
    digits = b"1" * 2**24
    if part == "owner":
        watched.client.set(PREFIX + part, digits)
    elif part == "notes":
        watched.client.rpush(PREFIX + part, digits)
    else:
        watched.client.hset(PREFIX + part, A, digits)
    for op in (Scan("*"), Inspect(NAME), Release(NAME, A, 1), Claim(NAME, A, 5_000), Withdraw(NAME, A, 60_000)):
        watched.execute(op)


def test_a_long_record_of_a_guard_or_a_result_store(watched: Watched) -> None:
    """The same for the scripts that are no store's."""
    holder = Presenter(NAME, 10)
    for key in (f"guard:v1:{{{NAME}}}", f"results:v1:{{{NAME}}}:fence", f"results:v1:{{{NAME}}}:value"):
        watched.client.flushall()
        watched.client.set(key, b"1" * 2**24)
        watched.timed(lambda: FenceGuard(watched.client).check(holder), f"a guard at {key}")
        watched.timed(lambda: RedisResultStore(watched.client).open(holder), f"a result store at {key}")


# ---------------------------------------------------------------- every script, with anything


def seeds(count: int) -> range:
    """New ones each time; LEASEHOLD_SEED is where a report begins."""
    first = int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32))
    return range(first, first + count)


def play(watched: Watched, seed: int, most: int) -> None:
    """One life of a resource, disturbed: every op is answered, or refused by an error of ours, soon; and others are
    listed as they are."""
    chance = random.Random(seed)
    watched.client.flushall()
    furnish(watched.store, chance)
    fence = int(watched.client.get(f"{PREFIX}fence") or 1)
    done = disturb(watched.client, chance, most)
    try:
        with leasehold.connect(watched.url) as hold, hold.lock("bystander", ttl=60):
            for op in every_op(fence):
                reply = watched.execute(op)
                assert not isinstance(reply, Granted) or 0 < reply.fence <= 2**53
            for one in listed(hold).values():
                assert repr(one)
            hold.inspect(NAME)
    except BaseException:
        print(f"\nseed {seed}, fields of up to {most} bytes: {done}")  # noqa: T201 - to play it again
        raise


def test_every_script_with_hostile_records(watched: Watched) -> None:
    """Fields that are empty, of another type, binary, huge, no numbers, repeated or by the thousand."""
    for seed in seeds(12):
        play(watched, seed, 40_000)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_every_script_with_hostile_records_for_long(
    own_redis: Callable[..., RedisServer], program: Callable[[], str]
) -> None:
    """The same on every server, with fields of a megabyte."""
    watched = Watched(own_redis(executable=program()))
    for seed in seeds(400):
        play(watched, seed, 1_000_000 if seed % 10 == 0 else 40_000)
    watched.store.close()
