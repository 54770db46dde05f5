"""The contract of a read-write lock: further cases, for every store and both flavours."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from leasehold.errors import InvalidRequest, LeaseLost, NotAcquired, NotHeld
from tests.contract.cases.lock import case, give_back
from tests.contract.cases.operators import can_be_told, hears_of_eviction
from tests.support.parties import Party
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE


def reading(party: Party, **options: Any) -> Any:
    """A reader's lease, at once, or None."""
    return party.do(lambda hold: hold.rwlock("doc", 1).read(ttl=9, **options).try_acquire())


def writing(party: Party, **options: Any) -> Any:
    """A writer's lease, at once, or None."""
    return party.do(lambda hold: hold.rwlock("doc", 1).write(ttl=9, **options).try_acquire())


def waits(scene: Scene, party: Party, side: str, place: int, **options: Any) -> Future[Any]:
    """Somebody who stands in line as number ``place``."""
    future = party.start(lambda hold: getattr(hold.rwlock("doc", 1), side)(ttl=9, **options).acquire())
    scene.queued("doc:1", place)
    return future


def comes_in(scene: Scene, party: Party, future: Future[Any]) -> Any:
    """What it was waiting for, without any time that must pass: but for a moment, where the store cannot tell it."""
    return future.result(PATIENCE) if party.hold._engine.store.capabilities.push else scene.outcome(future)


def holders(scene: Scene) -> list[tuple[str, int]]:
    """Who holds, as the store sees it: rule and fence."""
    return [(one.rule, one.fence) for one in scene.look("doc:1").holders]


# ---------------------------------------------------------------- who holds together


@case
def readers_hold_together(scene: Scene) -> None:
    """Each has a lease and a fence of its own, and a writer is refused until the last has gone."""
    a, b, c = scene.party(), scene.party(), scene.party()
    one, two = reading(a), reading(b)
    assert one.shared and two.shared and two.fence > one.fence and one.resource == "doc:1"
    assert holders(scene) == [("read", one.fence), ("read", two.fence)]
    assert writing(c) is None
    give_back(a, one)
    error = fails(NotAcquired, c.within(lambda hold: hold.rwlock("doc", 1).write(wait=0), lambda _: None))
    assert two.owner.startswith(error.holder) and 0 < error.retry_in <= 9
    give_back(b, two)
    assert writing(c).fence > two.fence


@case
def a_writer_is_alone(scene: Scene) -> None:
    """Neither readers nor writers come in beside it, nor whoever uses the resource as a plain lock."""
    a, b = scene.party(), scene.party()
    lease = writing(a)
    assert not lease.shared and holders(scene) == [("write", lease.fence)]
    assert reading(b) is None and writing(b) is None
    assert b.do(lambda hold: hold.lock("doc", 1).try_acquire()) is None
    assert b.do(lambda hold: hold.rwlock("doc", 1).read().locked()) is True
    assert b.do(lambda hold: hold.rwlock("doc", 2).write().try_acquire()) is not None
    give_back(a, lease)
    assert b.do(lambda hold: hold.rwlock("doc", 1).write().locked()) is False


@case
def a_plain_lock_keeps_readers_out_and_they_it(scene: Scene) -> None:
    """Rules that differ exclude each other on one resource."""
    a, b = scene.party(), scene.party()
    lease = reading(a)
    assert b.do(lambda hold: hold.lock("doc", 1).try_acquire()) is None
    give_back(a, lease)
    lease = a.do(lambda hold: hold.lock("doc", 1).try_acquire())
    assert reading(b) is None and writing(b) is None
    give_back(a, lease)


@case
def every_form_of_a_lock_is_there(scene: Scene) -> None:
    """A body, release() by the lock object, owned() and the metadata, on both sides."""
    a, b = scene.party(), scene.party()
    for side in ("read", "write"):
        _forms(scene, a, b, side)
    scene.free("doc:1")


def _forms(scene: Scene, a: Party, b: Party, side: str) -> None:
    lock = getattr(a.hold.rwlock("doc", 1), side)(ttl=9, meta={"side": side}, max_hold=60)
    seen = a.within(lambda _: lock, lambda lease: (lease.shared, lease.meta)).result(PATIENCE)
    assert seen == (side == "read", {"side": side})
    lease = a.do(lambda _: lock.acquire(wait=1))
    assert a.do(lambda _: lock.owned()) is True
    assert b.do(lambda hold: getattr(hold.rwlock("doc", 1), side)().owned()) is False
    assert scene.look("doc:1").holders[0].meta == f'{{"side":"{side}"}}'
    fails(NotHeld, b.start(lambda hold: getattr(hold.rwlock("doc", 1), side)().release()))
    assert a.do(lambda _: lock.release()) is True and lease.state == "released"


# ---------------------------------------------------------------- the queue


@case
def a_waiting_writer_is_not_overtaken(scene: Scene) -> None:
    """A reader that comes while a writer waits stands behind it, though readers hold."""
    a, b, c = scene.party(), scene.party(), scene.party()
    first = reading(a)
    writer = waits(scene, b, "write", 1)
    assert reading(c) is None
    later = waits(scene, c, "read", 2)
    give_back(a, first)
    lease = comes_in(scene, b, writer)
    assert not lease.shared and not later.done() and holders(scene) == [("write", lease.fence)]
    give_back(b, lease)
    assert comes_in(scene, c, later).fence > lease.fence


@case
def readers_in_a_row_come_in_together(scene: Scene) -> None:
    """A release hands on to all readers up to the next writer, in the order of their arrival."""
    parties = [scene.party() for _ in range(6)]
    last = writing(parties[0])
    sides = ("read", "read", "write", "read", "read")
    waiting = [waits(scene, parties[place], side, place) for place, side in enumerate(sides, 1)]
    fences = [last.fence]
    give_back(parties[0], last)
    for batch in ((0, 1), (2,), (3, 4)):
        leases = {place: comes_in(scene, parties[place + 1], waiting[place]) for place in batch}
        assert not any(one.done() for one in waiting[batch[-1] + 1 :])
        assert holders(scene) == [(sides[place], lease.fence) for place, lease in leases.items()]
        fences += [lease.fence for lease in leases.values()]
        for place, lease in leases.items():
            give_back(parties[place + 1], lease)
    assert fences == sorted(set(fences))
    scene.free("doc:1")


@case
def a_writer_that_gives_up_lets_the_readers_behind_it_in(scene: Scene) -> None:
    """Its place is gone with it: readers beside readers need not wait for anything else."""
    a, b, c = scene.party(), scene.party(), scene.party()
    first = reading(a)
    writer = waits(scene, b, "write", 1, wait=2)
    later = waits(scene, c, "read", 2)
    scene.pass_time(2.1)
    assert writer.result(PATIENCE) is None
    lease = comes_in(scene, c, later)
    assert holders(scene) == [("read", first.fence), ("read", lease.fence)]


@case
def a_reader_that_died_lets_the_writer_in(scene: Scene) -> None:
    """Its lease ends by itself, and a writer waits no longer than that."""
    a, b = scene.party(), scene.party()
    dead = a.do(lambda hold: hold.rwlock("doc", 1).read(ttl=2, renew=False).acquire())
    writer = waits(scene, b, "write", 1)
    scene.pass_time(1.5)
    lease = scene.outcome(writer)
    assert lease.fence > dead.fence and a.do(lambda _: dead.release()) is False
    assert holders(scene) == [("write", lease.fence)]


@case
def both_sides_are_renewed(scene: Scene) -> None:
    """They last for as long as they are used."""
    a, b = scene.party(), scene.party()
    one, two = reading(a), reading(b)
    scene.pass_time(30)
    assert one.state == two.state == "held"
    give_back(a, one)
    give_back(b, two)
    lease = writing(a)
    scene.pass_time(30)
    assert lease.state == "held" and holders(scene) == [("write", lease.fence)]


# ---------------------------------------------------------------- from writing to reading


@case
def a_downgrade_lets_readers_in_at_once(scene: Scene) -> None:
    """In one step: readers who wait come in, the fence stays, and a writer still waits for all of them."""
    a, b, c = scene.party(), scene.party(), scene.party()
    lease = writing(a)
    reader, writer = waits(scene, b, "read", 1), waits(scene, c, "write", 2)
    fence = lease.fence
    a.do(lambda _: lease.downgrade())
    beside = comes_in(scene, b, reader)
    assert lease.shared and lease.state == "held" and lease.fence == fence
    assert holders(scene) == [("read", fence), ("read", beside.fence)]
    assert not writer.done()
    give_back(a, lease)
    assert not writer.done()
    give_back(b, beside)
    assert comes_in(scene, c, writer).fence > beside.fence


@case
def what_was_downgraded_stays_a_readers(scene: Scene) -> None:
    """However often it is renewed or extended; and it says so to whoever gets its headers."""
    a, b = scene.party(), scene.party()
    lease = writing(a)
    assert "X-Fencing-Mode" not in lease.headers()
    a.do(lambda _: lease.downgrade())
    a.do(lambda _: lease.extend(8))
    scene.pass_time(20)
    assert lease.shared and lease.state == "held" and holders(scene) == [("read", lease.fence)]
    assert lease.headers()["X-Fencing-Mode"] == "shared"
    assert reading(b) is not None and writing(scene.party()) is None


@case
def only_a_writer_is_downgraded(scene: Scene) -> None:
    """A lease that reads already is refused, and one that was entered several times; nothing changes."""
    a = scene.party()
    lease = reading(a)
    assert "reads already" in str(fails(InvalidRequest, a.start(lambda _: lease.downgrade())))
    assert lease.state == "held"
    give_back(a, lease)
    lease = writing(a)
    assert writing(a, reentrant=True) is lease
    assert "entered 2 times" in str(fails(InvalidRequest, a.start(lambda _: lease.downgrade())))
    assert not lease.shared and holders(scene) == [("write", lease.fence)]
    give_back(a, lease)
    a.do(lambda _: lease.downgrade())
    assert "reads already" in str(fails(InvalidRequest, a.start(lambda _: lease.downgrade())))
    give_back(a, lease)
    fails(NotHeld, a.start(lambda _: lease.downgrade()))


@case
def a_downgrade_of_what_is_lost_says_so(scene: Scene) -> None:
    """Known here, or told by the store: LeaseLost, and whoever holds by now is left alone."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.rwlock("doc", 1).write(ttl=2, renew=False).acquire())
    scene.pass_time(2.1)
    assert fails(LeaseLost, a.start(lambda _: lease.downgrade())).reason == "expired"
    lease = writing(a)
    b.do(lambda hold: hold.evict("doc:1", fence=lease.fence, reason="it hangs", delay=0, force=True))
    other = writing(b)
    assert fails(LeaseLost, a.start(lambda _: lease.downgrade())).reason == "evicted"
    assert holders(scene) == [("write", other.fence)]


# ---------------------------------------------------------------- the same thread or task again


@case
def an_upgrade_is_not_waited_for_for_ever(scene: Scene) -> None:
    """Whoever waits to write inside its own reading is told why, and nothing is left in the queue. Its tries are busy,
    as anybody's, and so they are for one whose lease somebody else may give back."""
    a = scene.party()

    def refused(asked: Callable[[Any], Any]) -> None:
        error = fails(InvalidRequest, a.within(lambda hold: hold.rwlock("doc", 1).read(), lambda _: asked(a.hold)))
        assert "deadlock" in str(error) and error.resource == "doc:1"
        assert not scene.look("doc:1").queue and not scene.look("doc:1").holders

    refused(lambda hold: hold.rwlock("doc", 1).write().acquire())
    refused(lambda hold: hold.rwlock("doc", 1).write(reentrant=True).acquire())
    refused(lambda hold: hold.rlock("doc", 1).acquire())
    first = reading(a)
    assert writing(a) is None and writing(a, reentrant=True) is None
    assert a.do(lambda _: first.check()) is None
    give_back(a, first)
    lease = writing(a)
    a.do(lambda _: lease.downgrade())
    assert writing(a, reentrant=True) is None
    give_back(a, lease)
    assert writing(a) is not None


@case
def it_is_entered_again_by_the_rules_of_rlock(scene: Scene) -> None:
    """Read in read, write in write, and read in write, which goes on writing: no further claim, the same fence."""
    a, b = scene.party(), scene.party()
    for outer, inner in (("read", "read"), ("write", "write"), ("write", "read")):
        _again(scene, a, b, outer, inner)
    scene.free("doc:1")


def _again(scene: Scene, a: Party, b: Party, outer: str, inner: str) -> None:
    lease = a.do(lambda hold: getattr(hold.rwlock("doc", 1), outer)(ttl=9).acquire())
    again = a.within(lambda hold: getattr(hold.rwlock("doc", 1), inner)(reentrant=True), lambda one: one.fence)
    assert again.result(PATIENCE) == lease.fence
    assert holders(scene) == [(outer, lease.fence)] and lease.shared == (outer == "read")
    beside = reading(b)
    assert (beside is None) == (outer == "write")
    if beside is not None:
        give_back(b, beside)
    assert a.do(lambda _: lease.check()) is None
    give_back(a, lease)


# ---------------------------------------------------------------- the finer points


@case
def a_reader_can_be_handed_over(scene: Scene) -> None:
    """Whoever adopts it reads beside the others; a writer's lease that was handed over can still be lowered."""
    a, b, c = scene.party(), scene.party(), scene.party()
    given, other = reading(a), reading(c)
    ticket = a.do(lambda _: given.transfer())
    lease = b.do(lambda hold: hold.adopt(ticket))
    assert type(lease) is type(given) and lease.shared and lease.fence > other.fence > given.fence
    assert writing(a) is None and holders(scene) == [("read", other.fence), ("read", lease.fence)]
    give_back(b, lease)
    give_back(c, other)
    given = writing(a)
    ticket = a.do(lambda _: given.transfer())
    lease = b.do(lambda hold: hold.adopt(ticket))
    assert not lease.shared and reading(a) is None
    b.do(lambda _: lease.downgrade())
    assert lease.shared and reading(a) is not None


@case
def at_least_of_a_reader_keeps_writers_out(scene: Scene) -> None:
    """And lets readers in; that of a writer keeps out both."""
    a, b = scene.party(), scene.party()
    give_back(a, reading(a, at_least=4))
    assert writing(b) is None
    give_back(b, reading(b))
    scene.pass_time(4.1)
    give_back(b, writing(b, at_least=4))
    assert writing(a) is None and reading(a) is None
    scene.pass_time(4.1)
    assert reading(a) is not None


@case
def a_delay_after_a_reader_keeps_writers_out(scene: Scene) -> None:
    """Who ended without a release may not have noticed: nobody writes for that long, and who reads may read."""
    a, b = scene.party(), scene.party()
    a.do(lambda hold: hold.rwlock("doc", 1).read(ttl=2, renew=False, delay=4).acquire())
    scene.pass_time(2.1)
    assert writing(b) is None
    give_back(b, reading(b))
    scene.pass_time(4.1)
    a.do(lambda hold: hold.rwlock("doc", 1).write(ttl=2, renew=False, delay=4).acquire())
    scene.pass_time(2.1)
    assert reading(b) is None and writing(b) is None
    scene.pass_time(4.1)
    assert writing(b) is not None


@case
def one_reader_of_several_is_asked_and_evicted(scene: Scene) -> None:
    """By its fence: the others go on. Nobody writes for as long as the victim may still read."""
    a, b, c = scene.party(), scene.party(), scene.party()
    one, two = reading(a), reading(b)
    asked = b.do(lambda _: two.revoked)
    if b.hold._engine.holder_address():
        scene.until(lambda: c.do(lambda hold: hold.revoke("doc:1", fence=two.fence)), "the second can be told")
        scene.until(asked.is_set, "the second hears of it")
    can_be_told(scene, a, c, "doc:1")
    c.do(lambda hold: hold.evict(hold.rwlock("doc", 1), fence=one.fence, reason="it hangs"))
    hears_of_eviction(scene, a, one)
    assert fails(LeaseLost, a.start(lambda _: one.check())).reason == "evicted"
    assert b.do(lambda _: two.check()) is None and holders(scene) == [("read", two.fence)]
    give_back(b, two)
    assert writing(c) is None
    give_back(c, reading(c))
    scene.pass_time(9.1)
    assert writing(c) is not None


@case
def work_that_is_silent_ends_on_either_side(scene: Scene) -> None:
    """With max_idle a lease lives as long as its work shows that it does."""
    a, b = scene.party(), scene.party()
    _idle(scene, a, b, reading(a, max_idle=4), writing)
    _idle(scene, a, b, writing(a, max_idle=4), reading)


def _idle(scene: Scene, a: Party, b: Party, lease: Any, other: Callable[[Party], Any]) -> None:
    for _ in range(2):
        scene.pass_time(3)
        a.do(lambda _: lease.beat())
    assert lease.state == "held" and other(b) is None
    scene.pass_time(4.1)
    assert fails(LeaseLost, a.start(lambda _: lease.check())).reason == "max_idle"
    assert a.do(lambda _: lease.release()) is False
    give_back(b, other(b))
