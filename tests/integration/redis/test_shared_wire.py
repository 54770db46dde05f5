"""What those who share leave on the wire: their keys and how long these live, what a foreign lock sees of them, and how
many commands they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from leasehold._core.ops import (
    Claim,
    Evict,
    Evicted,
    Granted,
    Group,
    Inspect,
    NotYours,
    Push,
    Queued,
    Release,
    Released,
    Renew,
    Renewed,
    Replies,
    Resize,
    Resized,
    Watch,
    Withdraw,
)
from leasehold.errors import StoreUnavailable
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.protocol import KEYS, SCRIPTS, keys
from tests.support.servers.clock import OneClock
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

OWNER, FENCE, QUEUE, MORE, HOLDERS, WATCHERS = keys("job")
COMPARE_AND_DELETE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
SHARED: dict[str, dict[str, Any]] = {"read": {"rule": "read"}, "semaphore": {"rule": "semaphore", "limit": 400}}
ANY: dict[str, dict[str, Any]] = {"mutex": {}, "write": {"rule": "write"}, **SHARED}
BOTH = pytest.mark.parametrize("rule", SHARED)


class Desk:
    """A store, and somebody else's client of its server."""

    def __init__(self, server: RedisServer, clock: OneClock | None = None) -> None:
        self.client: Any = server.client(decode_responses=True)
        self.store = RedisStore(server.url, clock)
        for script in SCRIPTS:
            self.client.script_load(script.text)
        self.connection = self.store.connection()
        self.connection.execute(Inspect("another"))  # connected from here on

    def take(self, number: int, ttl_ms: int = 30_000, name: str = "job", **more: Any) -> int:
        """Hold it, as that one; the fence."""
        reply = self.connection.execute(Claim(name, owner(number), ttl_ms, **more))
        assert isinstance(reply, Granted), reply
        return reply.fence

    def release(self, number: int, fence: int) -> None:
        """Give it back."""
        assert self.connection.execute(Release("job", owner(number), fence)) == Released()

    def there(self) -> set[str]:
        """Which keys there are, besides the fence; each has an end."""
        found: list[str] = self.client.keys("lock:v1:{job}:*")
        assert all(self.client.pttl(key) > 0 for key in found), "a key without an end"
        return {key.rpartition(":")[2] for key in found} - {"fence"}

    def foreign(self) -> bool:
        """Somebody who only knows SET NX PX has a go, and gives back at once."""
        won = bool(self.client.set(OWNER, "legacy:1:x", nx=True, px=30_000))
        assert not won or self.client.eval(COMPARE_AND_DELETE, 1, OWNER, "legacy:1:x") == 1
        return won

    def commands(self, act: Callable[[], object]) -> int:
        """How many commands the server ran for that, inside scripts too."""
        self.client.config_resetstat()
        act()
        stats: dict[str, dict[str, int]] = self.client.info("commandstats")
        ours = ("cmdstat_config", "cmdstat_info", "cmdstat_evalsha", "cmdstat_eval")
        return sum(one["calls"] for name, one in stats.items() if not name.startswith(ours))

    def next_millisecond(self) -> None:
        """A mark with the same end is not written again: what comes now ends later than all that was."""
        before = self.milliseconds()
        until(lambda: self.milliseconds() > before)

    def milliseconds(self) -> int:
        """The server's clock."""
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def scripts(self, act: Callable[[], object]) -> int:
        """How many scripts the server ran for that."""
        self.client.config_resetstat()
        act()
        return int(self.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def owner(number: int) -> str:
    """A token."""
    return f"host:{number}:secret.1"


@pytest.fixture
def desk(redis_server: RedisServer, redis_url: str) -> Iterator[Desk]:
    """On an empty server."""
    desk = Desk(redis_server)
    yield desk
    desk.store.close()


@pytest.fixture
def turned(own_redis: Callable[..., RedisServer]) -> Iterator[tuple[Desk, OneClock]]:
    """The same, with a clock that the test turns."""
    clock = OneClock()
    desk = Desk(own_redis(clock=clock), clock)
    yield desk, clock
    desk.store.close()


# ---------------------------------------------------------------- keys


def test_a_reader_is_written_down(desk: Desk) -> None:
    """Its record is in a hash of all; the owner's key is marked."""
    fence = desk.take(1, rule="read", meta='{"job":"nightly"}')
    raw = desk.client.hget(HOLDERS, owner(1)).split(" ", 14)
    assert raw[:2] == [str(fence), "30000"] and raw[8:11] == ["read", "0", "0"]
    assert raw[13:] == [owner(1), '{"job":"nightly"}']
    assert desk.client.get(OWNER) == f":read {raw[2]}" and desk.there() == {"owner", "holders"}


def test_permits_are_written_down(desk: Desk) -> None:
    """With their slots and the limit of each; the mark says which slots are taken."""
    desk.take(1, rule="semaphore", limit=4, permits=2)
    fence = desk.take(2, rule="semaphore", limit=4)
    assert desk.client.hget(HOLDERS, owner(1)).split(" ")[8:11] == ["semaphore", "4", "0,1"]
    assert desk.client.hget(HOLDERS, owner(2)).split(" ")[10] == "2"
    *_, limit, taken = desk.client.get(OWNER).split(" ")
    assert (limit, taken) == ("4", "111")
    desk.release(2, fence)
    assert desk.client.get(OWNER).endswith(" 4 110") and desk.there() == {"owner", "holders"}


@BOTH
def test_nothing_is_left(desk: Desk, rule: str) -> None:
    """The last one takes the keys with it."""
    fences = [desk.take(number, **SHARED[rule]) for number in range(3)]
    for number, fence in enumerate(fences):
        assert desk.there() == {"owner", "holders"}
        desk.release(number, fence)
    assert desk.there() == set()


def test_a_downgrade_moves_the_record(desk: Desk) -> None:
    """From the key of one to the hash of many, in one step; whoever waits to read is let in, with a push."""
    connection = desk.store.connection()
    fence = desk.take(1, rule="write")
    assert desk.there() == {"owner"}
    assert isinstance(
        connection.execute(Claim("job", owner(2), 30_000, rule="read", address=connection.address)), Queued
    )
    assert desk.store.execute(Renew("job", owner(1), fence, 30_000, shared=True)) == Renewed(30_000)
    push = connection.next_push(30)
    assert isinstance(push, Push) and (push.event, push.owner) == ("granted", owner(2))
    assert desk.there() == {"owner", "holders"} and set(desk.client.hgetall(HOLDERS)) == {owner(1), owner(2)}


@BOTH
def test_the_mark_ends_with_the_last(turned: tuple[Desk, OneClock], rule: str) -> None:
    """It lives as long as the longest of them, whoever came first, and a renewal takes it along."""
    desk, clock = turned
    fence = desk.take(1, 9_000, **SHARED[rule])
    desk.take(2, 3_000, **SHARED[rule])
    assert desk.client.pttl(OWNER) == 8_999
    clock.advance(3.5)
    assert desk.store.execute_many([Renew("job", owner(1), fence, 9_000)] * 2) == [Renewed(9_000)] * 2
    assert desk.client.pttl(OWNER) == 8_999
    assert desk.store.execute(Renew("job", owner(1), fence, 2_000, exact=True, number=1)) == Renewed(2_000)
    assert desk.client.pttl(OWNER) == 1_999
    clock.advance(2)
    assert not desk.client.exists(OWNER)
    assert desk.store.execute(Renew("job", owner(1), fence, 9_000)) == NotYours("taken"), "another came after it"
    clock.advance(300)
    assert desk.there() == set()


def test_a_limit_lives_for_a_month(turned: tuple[Desk, OneClock]) -> None:
    """After its last use: every permit prolongs it, beside others too."""
    desk, clock = turned
    month = 30 * 86_400_000
    assert desk.store.execute(Resize("job", 2)) == Resized(0)
    for number in (1, 2):
        clock.advance(60)
        assert desk.client.pttl(MORE) == month - 60_000
        desk.take(number, 90_000, rule="semaphore", limit=5)
        assert desk.client.pttl(MORE) == month and desk.client.hget(MORE, ":limit").endswith(" 2")


def test_whoever_watches_is_written_down(desk: Desk) -> None:
    """For half a minute."""
    desk.store.execute(Watch("job", owner(1), "lock:v1:push:0"))
    assert desk.client.hget(WATCHERS, owner(1)).endswith(" lock:v1:push:0") and 0 < desk.client.pttl(WATCHERS) <= 30_000
    desk.store.execute(Withdraw("job", owner(1)))
    assert desk.there() == set()


# ---------------------------------------------------------------- beside other locks


@BOTH
def test_a_foreign_lock_keeps_out(desk: Desk, rule: str) -> None:
    """SET NX PX fails while anybody shares it, and works when the last one has gone."""
    fences = [desk.take(number, **SHARED[rule]) for number in range(2)]
    assert not desk.foreign()
    desk.release(0, fences[0])
    assert not desk.foreign()
    desk.release(1, fences[1])
    assert desk.foreign()


@BOTH
def test_a_foreign_lock_keeps_us_out(desk: Desk, rule: str) -> None:
    """Nobody shares what it holds; whoever waits has its turn when it is deleted."""
    assert desk.client.set(OWNER, "legacy:1:x", nx=True, px=30_000)
    assert isinstance(desk.store.execute(Claim("job", owner(1), 30_000, **SHARED[rule])), Queued)
    assert desk.client.eval(COMPARE_AND_DELETE, 1, OWNER, "legacy:1:x") == 1
    assert isinstance(desk.store.execute(Claim("job", owner(1), 30_000, beat=2, **SHARED[rule])), Granted)


@BOTH
def test_a_mark_that_was_deleted_comes_back(desk: Desk, rule: str) -> None:
    """Deleting it by hand ends nobody: the next who comes marks it again."""
    desk.take(1, **SHARED[rule])
    desk.client.delete(OWNER)
    desk.take(2, **SHARED[rule])
    assert not desk.foreign() and len(desk.client.hgetall(HOLDERS)) == 2


# ---------------------------------------------------------------- how many commands


def waiting(desk: Desk, count: int, **kind: Any) -> Any:
    """So many wait, all at one mailbox."""
    connection = desk.store.connection()
    for number in range(count):
        claim = Claim("job", owner(1000 + number), 30_000, address=connection.address, **kind)
        assert isinstance(connection.execute(claim), Queued)
    return connection


@pytest.mark.parametrize("rule", ["mutex", "write", "semaphore"])
def test_a_handoff_costs_the_same_however_many_wait(desk: Desk, rule: str) -> None:
    """A release with two in line and one with sixty-four: the same number of commands, and one is told."""
    kind = ANY[rule] | ({"limit": 1} if rule == "semaphore" else {})
    counts = []
    for many in (2, 64):
        desk.client.flushall()
        fence = desk.take(1, **kind)
        connection = waiting(desk, many, **kind)
        desk.next_millisecond()
        counts.append(desk.commands(partial(desk.release, 1, fence)))
        assert connection.next_push(30).owner == owner(1000) and desk.client.llen(QUEUE) == many - 1
        connection.close()
    assert counts[0] == counts[1] <= 30


def test_a_batch_of_readers_costs_the_same_for_each(desk: Desk) -> None:
    """A writer goes, and all who wait to read come in: a few commands for each of them."""
    counts = []
    for many in (16, 64):
        desk.client.flushall()
        fence = desk.take(1, rule="write")
        connection = waiting(desk, many, rule="read")
        counts.append(desk.commands(partial(desk.release, 1, fence)))
        assert desk.client.llen(QUEUE) == 0 and desk.client.hlen(HOLDERS) == many
        connection.close()
    assert (counts[1] - counts[0]) / 48 < 6


def pair(desk: Desk, number: int, **kind: Any) -> None:
    """In and out."""
    desk.release(number, desk.take(number, **kind))


@BOTH
def test_coming_and_going_beside_others_costs_the_same(desk: Desk, rule: str) -> None:
    """Beside one and beside two hundred: no look at each of them."""
    counts = []
    for many in (1, 200):
        for number in range(many):
            if number >= len(desk.client.hgetall(HOLDERS)):
                desk.take(number + 1, **SHARED[rule])
        counts.append(desk.commands(lambda: pair(desk, 0, **SHARED[rule])))
    assert counts[0] == counts[1] <= 18


def test_a_writer_costs_what_a_mutex_does(desk: Desk) -> None:
    """Command for command: four to come, two to go."""
    assert [desk.commands(partial(pair, desk, 0, **ANY[kind])) for kind in ("mutex", "write")] == [6, 6]


@BOTH
def test_hundreds_are_renewed_in_one_command(desk: Desk, rule: str) -> None:
    """Of as many resources, or of one: one script, and all of them last."""
    for names in ([f"job:{number}" for number in range(200)], ["job"] * 200):
        fences = [desk.take(at, 5_000, name, **SHARED[rule]) for at, name in enumerate(names)]
        renewals = [Renew(name, owner(at), fences[at], 30_000) for at, name in enumerate(names)]
        assert desk.scripts(partial(desk.store.execute_many, renewals)) == 1
        assert desk.store.execute_many(renewals) == [Renewed(30_000)] * 200
        view: Any = desk.store.execute(Inspect(names[-1]))
        assert all(one.expires_ms > view.now_ms + 20_000 for one in view.holders)


@BOTH
def test_a_renewal_hands_on_what_has_ended(turned: tuple[Desk, OneClock], rule: str) -> None:
    """Where somebody waits, also a renewal is a turn: what another left goes to the first in line."""
    desk, clock = turned
    kind = SHARED[rule] | ({"limit": 2} if rule == "semaphore" else {})
    fence = desk.take(1, 9_000, **kind)
    desk.take(2, 1_000, **kind)
    connection = desk.store.connection()
    want = kind if rule == "semaphore" else {"rule": "write"}
    assert isinstance(connection.execute(Claim("job", owner(3), 9_000, address=connection.address, **want)), Queued)
    clock.advance(2)
    assert desk.store.execute_many([Renew("job", owner(1), fence, 9_000)] * 2) == [Renewed(9_000)] * 2
    heard = connection.next_push(30 if rule == "semaphore" else 0.3)  # one reader is left, whom a writer waits for
    assert (heard is not None) == (rule == "semaphore")


def test_several_are_one_round_trip(desk: Desk) -> None:
    """Three claims, or three releases: one script."""
    claims = Group(tuple([Claim(name, owner(1), 30_000, **kind) for name, kind in ANY.items()]))
    replies: list[Any] = []
    assert desk.scripts(lambda: replies.append(desk.connection.execute(claims))) == 1
    fences = [one.fence for one in replies[0].replies]
    back = Group(tuple([Release(name, owner(1), fence) for name, fence in zip(ANY, fences, strict=True)]))
    assert desk.scripts(lambda: replies.append(desk.connection.execute(back))) == 1
    assert replies[1] == Replies((Released(),) * 4) and desk.client.keys("*:owner") == []


# ---------------------------------------------------------------- what others wrote


@pytest.mark.parametrize("broken", ["job", "first"])
def test_several_with_something_else_among_them(desk: Desk, broken: str) -> None:
    """What is no lease: the first refuses in words; a later one ends it, and whoever asks for it alone hears why."""
    desk.client.rpush(keys(broken)[0], "this is a list")
    claims = Group((Claim("first", owner(1), 30_000), Claim("job", owner(1), 30_000)))
    if broken == "first":
        with pytest.raises(StoreUnavailable, match="no lease"):
            desk.store.execute(claims)
        assert desk.there() == set()
        return
    reply = desk.store.execute(claims)
    assert isinstance(reply, Replies) and [type(one) for one in reply.replies] == [Granted]
    with pytest.raises(StoreUnavailable, match="no lease"):
        desk.store.execute(claims.steps[1])


KEPT_OUT: dict[str, tuple[str, str, str]] = {
    "holder": (HOLDERS, "nobody:1:x.1", "what is this"),
    "another's record": (HOLDERS, "nobody:1:x.1", "1 1 99999999999999 0 0 0 0 0 read 0 0 - - somebody:1:x.1 "),
    "an unknown rule": (HOLDERS, "nobody:1:x.1", "1 1 99999999999999 0 0 0 0 0 sem 0 0 - - nobody:1:x.1 "),
    "a far slot": (HOLDERS, "nobody:1:x.1", "1 1 99999999999999 0 0 0 0 0 read 0 999999999999 - - nobody:1:x.1 "),
    "doors": (MORE, ":doors", "what: is:: this"),
    "door": (MORE, ":closed", "what is this"),
    "a grant that had a lock-delay": (MORE, ":grant", "what is this"),
}


@pytest.mark.parametrize("what", KEPT_OUT)
@BOTH
def test_a_holder_or_a_door_that_nobody_can_read(desk: Desk, rule: str, what: str) -> None:
    """Somebody may hold by it: nobody new is granted, whoever holds goes on, and all is well when it is gone."""
    kind: Any = SHARED[rule] | ({"limit": 3} if rule == "semaphore" else {})
    first, second = desk.take(1, **kind), desk.take(2, **kind)
    key, field, value = KEPT_OUT[what]
    desk.client.hset(key, field, value)
    assert desk.store.execute(Renew("job", owner(1), first, 30_000, exact=True)) == Renewed(30_000)
    with pytest.raises(StoreUnavailable, match=f"no lease at the key .*:{key.rpartition(':')[2]} of"):
        desk.take(3, **kind)
    view: Any = desk.store.execute(Inspect("job"))
    assert [one.owner for one in view.holders] == [owner(1), owner(2)] and view.unreadable[0].blocks
    assert isinstance(desk.store.execute(Evict("job", owner(2), second, "r", 0, force=True)), Evicted)
    desk.client.hdel(key, field)
    desk.release(3, desk.take(3, **kind))
    desk.release(1, first)
    assert desk.there() <= {"more", "notes"}


WRITTEN: dict[str, tuple[str, ...]] = {
    "watcher": ("HSET", WATCHERS, "nobody:1:x.1", "what is this"),
    "limit": ("HSET", MORE, ":limit", "many"),
    "tombstone": ("HSET", MORE, owner(2), "what is this"),
    "mark": ("SET", OWNER, ":what is this"),
    "mark of permits": ("SET", OWNER, ":semaphore 1 2 3 4"),
    "mark of readers": ("SET", OWNER, ":read soon"),
}


@pytest.mark.parametrize("what", WRITTEN)
@BOTH
def test_records_that_nobody_can_read(desk: Desk, rule: str, what: str) -> None:
    """Somebody writes over them: everybody goes on, and nothing is without an end in the end."""
    kind = SHARED[rule] | ({"limit": 2} if rule == "semaphore" else {})
    fence = desk.take(1, **kind)
    desk.client.execute_command(*WRITTEN[what])
    desk.client.pexpire(WRITTEN[what][1], 30_000)
    assert desk.store.execute(Renew("job", owner(1), fence, 30_000)) == Renewed(30_000)
    second = desk.take(2, **kind)
    view: Any = desk.store.execute(Inspect("job"))
    assert [one.owner for one in view.holders] == [owner(1), owner(2)] and not desk.foreign()
    desk.release(1, fence)
    assert isinstance(desk.store.execute(Evict("job", owner(2), second, "r", 0, force=True)), Evicted)
    assert desk.there() <= {"more", "notes", "watchers"}


# ---------------------------------------------------------------- without memory


@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_without_memory(own_redis: Callable[..., RedisServer], program: Callable[[], str]) -> None:
    """Nobody new comes in. Whoever shares goes on: renewed alone and in batches, made a reader, given back."""
    desk = Desk(own_redis(executable=program()))
    rules = ("read", "semaphore", "write")
    held = [Renew(one, owner(1), desk.take(1, 30_000, one, rule=one, limit=2), 60_000) for one in rules]
    desk.client.config_set("maxmemory", 1)
    for name in (*rules[:2], "another"):
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            desk.store.execute(Claim(name, owner(2), 30_000, rule="read" if name == "another" else name, limit=2))
    assert desk.store.execute_many(held) == [Renewed(60_000)] * 3
    for renewal in held:
        assert desk.store.execute(renewal) == Renewed(60_000)
        assert desk.store.execute(renewal._replace(shared=True, meta="new", number=1)) == Renewed(60_000)
        assert desk.store.execute(Release(renewal.resource, owner(1), renewal.fence)) == Released()
    until(lambda: not desk.client.keys("*:holders"), "nothing is left")
    desk.client.config_set("maxmemory", 0)
    desk.store.close()


def test_every_key_has_a_name() -> None:
    """The keys that this file looks at are all that there are."""
    known = (OWNER, FENCE, QUEUE, MORE, HOLDERS, WATCHERS)
    assert [key.rpartition(":")[2] for key in known] == [*KEYS]
