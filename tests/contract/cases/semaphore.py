"""The contract of the semaphore: further cases, for every store and both flavours."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from leasehold._core.ops import View
from leasehold.errors import InvalidRequest, NotHeld
from tests.contract.cases.lock import case, give_back
from tests.contract.cases.operators import can_be_told, hears_of_eviction
from tests.support.parties import Party, Step
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE


def taking(count: int = 1, **options: Any) -> Step:
    """Acquire so many permits at once."""
    asked = {"limit": 3, "ttl": 60, **options}
    return lambda hold: hold.semaphore("pool", **asked).acquire(permits=count)


def trying(count: int = 1, **options: Any) -> Step:
    """The same in one try."""
    asked = {"limit": 3, "ttl": 60, **options}
    return lambda hold: hold.semaphore("pool", **asked).try_acquire(permits=count)


def left(party: Party, limit: int = 3) -> int:
    """How many are available."""
    count: int = party.do(lambda hold: hold.semaphore("pool", limit=limit).available())
    return count


def in_line(scene: Scene, party: Party, place: int, step: Step) -> Future[Any]:
    """Somebody who waits, at that place."""
    waiting = party.start(step)
    scene.queued("pool", place)
    return waiting


def taken(view: View) -> list[int]:
    """The slots that are held, in order."""
    return sorted(slot for grant in view.holders for slot in grant.slots)


# ---------------------------------------------------------------- slots


@case
def permits_are_lowest_free_slots(scene: Scene) -> None:
    """Each has a slot of its own, the lowest that is free, and a fence above every earlier one."""
    a, b = scene.party(), scene.party()
    first, second, third = a.do(taking()), b.do(taking()), a.do(taking())
    assert [one.slot for one in (first, second, third)] == [0, 1, 2]
    assert first.fence < second.fence < third.fence
    assert b.do(trying()) is None and left(b) == 0
    give_back(b, second)
    again = a.do(trying())
    assert again.slots == (1,) and again.slot_resource == "pool::1" and again.fence > third.fence
    assert taken(scene.look("pool")) == [0, 1, 2]


@case
def several_permits_come_at_once(scene: Scene) -> None:
    """All of them or none, in one lease with one fence, and all of them go at once."""
    a, b = scene.party(), scene.party()
    pair = a.do(taking(2))
    assert pair.slots == (0, 1) and pair.slot_resources == ("pool::0", "pool::1")
    assert b.do(trying(2)) is None and left(b) == 1
    one = b.do(trying())
    assert one.slot == 2
    give_back(a, pair)
    assert left(b) == 2 and b.do(trying(2)).slots == (0, 1)


@case
def a_thread_may_have_several_permits(scene: Scene) -> None:
    """Entering again is another permit, and release() gives back the last."""
    a = scene.party()
    pool = a.do(lambda hold: hold.semaphore("pool", limit=3))
    first = a.do(lambda _: pool.acquire())
    second = a.do(lambda _: pool.acquire())
    assert (first.slot, second.slot) == (0, 1) and first.fence != second.fence
    assert a.do(lambda _: pool.release()) is True and second.state == "released"
    assert a.do(lambda _: pool.owned()) is True and first.state == "held"
    assert a.do(lambda _: pool.release()) is True and a.do(lambda _: pool.owned()) is False
    fails(NotHeld, a.start(lambda _: pool.release()))


# ---------------------------------------------------------------- waiting


@case
def permits_are_handed_on_in_order(scene: Scene) -> None:
    """First come, first served, and the freed slot goes to whoever waits longest."""
    a, others = scene.party(), [scene.party() for _ in range(3)]
    held = [a.do(taking()) for _ in range(3)]
    waiting = [in_line(scene, party, place, taking()) for place, party in enumerate(others, 1)]
    for slot, future in zip((2, 0, 1), waiting, strict=True):
        give_back(a, held[slot])
        assert future.result(PATIENCE).slot == slot
    fences = [future.result().fence for future in waiting]
    assert fences == sorted(fences)


@case
def a_big_claim_is_not_starved(scene: Scene) -> None:
    """Whoever comes after it waits, also when a single permit is free."""
    a, b, c = scene.party(), scene.party(), scene.party()
    small = [a.do(taking()), a.do(taking())]
    big = in_line(scene, b, 1, taking(3))
    assert left(a) == 1 and a.do(trying()) is None
    assert a.do(lambda hold: hold.semaphore("pool", limit=3).locked()) is True
    later = in_line(scene, c, 2, taking())
    give_back(a, small[0])
    assert not big.done() and not later.done()
    give_back(a, small[1])
    assert big.result(PATIENCE).slots == (0, 1, 2) and not later.done()
    give_back(b, big.result())
    assert later.result(PATIENCE).slot == 0


@case
def who_gives_up_lets_others_go_on(scene: Scene) -> None:
    """A big claim whose wait runs out stands in nobody's way, and leaves nothing."""
    a, b, c = scene.party(), scene.party(), scene.party()
    a.do(taking(2))
    big = in_line(scene, b, 1, lambda hold: hold.semaphore("pool", limit=3, ttl=60).acquire(wait=0.5, permits=3))
    small = in_line(scene, c, 2, taking())
    scene.pass_time(0.6)
    assert big.result(PATIENCE) is None and small.result(PATIENCE).slot == 2
    scene.queued("pool", 0)


# ---------------------------------------------------------------- ending


@case
def a_crash_gives_its_permits_back(scene: Scene) -> None:
    """What is not renewed is over at its ttl, and goes to whoever waits."""
    a, b = scene.party(), scene.party()
    old = a.do(taking(2, ttl=1, renew=False))
    kept = b.do(taking())
    waiting = in_line(scene, b, 1, taking(2))
    scene.pass_time(1.2)
    new = scene.outcome(waiting)
    assert new.slots == (0, 1) and new.fence > old.fence and old.state == "lost"
    assert kept.state == "held" and taken(scene.look("pool")) == [0, 1, 2]


@case
def a_late_release_frees_nothing(scene: Scene) -> None:
    """A permit that was over is not given back twice: the next in its slot keeps it."""
    a, b = scene.party(), scene.party()
    old = a.do(taking(ttl=1, renew=False, limit=1))
    scene.pass_time(1.1)
    new = b.do(trying(limit=1))
    assert new.slot == old.slot
    assert a.do(lambda _: old.release()) is False
    assert left(a, 1) == 0 and a.do(trying(limit=1)) is None and new.state == "held"


@case
def never_more_than_the_limit(scene: Scene) -> None:
    """However many ask for however many: what is held stays within the limit, and all of it comes back."""
    parties = [scene.party() for _ in range(4)]
    for shift in range(3):
        asked = [(party, party.start(taking(1 + (place + shift) % 3))) for place, party in enumerate(parties)]
        while asked:
            one = _granted(scene, asked)
            slots = taken(scene.look("pool"))
            assert len(slots) <= 3 and slots == sorted(set(slots))
            give_back(*one)
    assert left(parties[0]) == 3
    scene.free("pool")


def _granted(scene: Scene, asked: list[tuple[Party, Future[Any]]]) -> tuple[Party, Any]:
    """The next who has got what he asked for."""
    scene.until(lambda: any(future.done() for _, future in asked), "somebody is granted")
    party, future = next(one for one in asked if one[1].done())
    asked.remove((party, future))
    return party, future.result()


@case
def permits_are_renewed(scene: Scene) -> None:
    """One in use outlives its ttl, in the same slots and with the same fence."""
    a = scene.party()
    pair = a.do(taking(2, ttl=2))
    fence = pair.fence
    scene.pass_time(5)
    assert (pair.state, pair.fence, pair.slots) == ("held", fence, (0, 1))
    assert taken(scene.look("pool")) == [0, 1]


# ---------------------------------------------------------------- limits


@case
def resizing_takes_nothing_away(scene: Scene) -> None:
    """Fewer: those who hold go on, and others wait until enough are back. More: those who wait are let in at once."""
    a, b = scene.party(), scene.party()
    held = [a.do(taking()) for _ in range(3)]
    a.do(lambda hold: hold.semaphore("pool", limit=3).resize(1))
    assert [one.state for one in held] == ["held"] * 3 and left(b) == 0
    waiting = in_line(scene, b, 1, taking())
    give_back(a, held[2])
    give_back(a, held[1])
    assert left(a) == 0 and not waiting.done()
    a.do(lambda hold: hold.semaphore("pool", limit=3).resize(2))
    assert waiting.result(PATIENCE).slot == 1
    assert a.do(lambda hold: hold.inspect("pool")).limit == 2


@case
def a_stored_limit_is_everybodys(scene: Scene) -> None:
    """Whatever a claim comes with: the limit that was stored decides."""
    a, b = scene.party(), scene.party()
    a.do(lambda hold: hold.semaphore("pool", limit=3).resize(1))
    assert left(b, 9) == 1
    assert b.do(trying(limit=9)).slot == 0
    assert b.do(trying(limit=9)) is None and left(b, 9) == 0


@case
def more_than_there_will_be_is_refused(scene: Scene) -> None:
    """At once, and for one who waits when it is resized: it says so, and others go on."""
    a, b, c = scene.party(), scene.party(), scene.party()
    first = a.do(taking(2))
    big = in_line(scene, b, 1, taking(3, ttl=3))
    small = in_line(scene, c, 2, taking(2))
    a.do(lambda hold: hold.semaphore("pool", limit=3).resize(2))
    scene.pass_time(1.1)  # a beat
    assert "only 2" in str(fails(InvalidRequest, big))
    give_back(a, first)
    assert small.result(PATIENCE).slots == (0, 1)
    assert "only 2" in str(fails(InvalidRequest, b.start(trying(3))))
    scene.queued("pool", 0)


@case
def permits_and_locks_exclude_each_other(scene: Scene) -> None:
    """A lock on the same resource has it alone, and has to wait for every permit."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("pool", ttl=60).acquire())
    assert left(b) == 0 and b.do(trying()) is None
    give_back(a, lease)
    permit = b.do(trying())
    assert a.do(lambda hold: hold.lock("pool").try_acquire()) is None
    give_back(b, permit)
    assert a.do(lambda hold: hold.lock("pool").try_acquire()) is not None


# ---------------------------------------------------------------- the finer points


@case
def at_least_keeps_only_its_slots(scene: Scene) -> None:
    """A permit that is given back early keeps its own place closed, and no other."""
    a, b = scene.party(), scene.party()
    give_back(a, a.do(taking(at_least=3, ttl=10)))
    assert left(b) == 2 and scene.look("pool").holders == ()
    assert b.do(trying(2)).slots == (1, 2) and b.do(trying()) is None
    scene.pass_time(3.1)
    assert b.do(trying()).slot == 0


@case
def a_delay_keeps_only_its_slots(scene: Scene) -> None:
    """After an end without a release the place stays closed for a while longer."""
    a, b = scene.party(), scene.party()
    a.do(taking(ttl=1, renew=False, delay=5))
    scene.pass_time(1.2)
    assert left(b) == 2 and b.do(trying()).slot == 1
    scene.pass_time(5)
    assert b.do(trying()).slot == 0


@case
def one_of_several_is_evicted(scene: Scene) -> None:
    """The permit with that fence is lost; its place stays closed for what it had left, and the others go on."""
    a, b = scene.party(), scene.party()
    first, second = a.do(taking(ttl=9)), a.do(taking(ttl=9))
    can_be_told(scene, a, b, "pool")
    b.do(lambda hold: hold.evict("pool", fence=first.fence, reason="it hangs"))
    hears_of_eviction(scene, a, first)
    assert second.state == "held" and left(b) == 1
    assert b.do(trying()).slot == 2
    scene.pass_time(9.1)
    assert b.do(trying()).slot == 0


@case
def revoke_asks_all_who_hold(scene: Scene) -> None:
    """Without a fence everybody is asked; with one, its holder alone."""
    a, b, c = scene.party(), scene.party(), scene.party()
    first, second = a.do(taking()), b.do(taking())
    events = [a.do(lambda _: first.revoked), b.do(lambda _: second.revoked)]
    if a.hold._engine.holder_address():
        scene.until(lambda: c.do(lambda hold: hold.revoke("pool", fence=second.fence)), "the second can be told")
        scene.until(lambda: bool(events[1].is_set()), "the second is asked")
        assert not events[0].is_set()
        scene.until(lambda: c.do(lambda hold: hold.revoke("pool")), "all can be told")
        scene.until(lambda: bool(events[0].is_set()), "all are asked")
    assert first.state == second.state == "held"


@case
def a_permit_that_is_handed_over_keeps_its_slots(scene: Scene) -> None:
    """The adopter has the same places, with a fence of its own."""
    a, b = scene.party(), scene.party()
    a.do(taking())
    given = a.do(taking(2))
    ticket = a.do(lambda _: given.transfer())
    lease = b.do(lambda hold: hold.adopt(ticket))
    assert lease.fence > given.fence and left(b) == 0
    assert [one.slots for one in b.do(lambda hold: hold.inspect("pool")).holders] == [(0,), (1, 2)]
    give_back(b, lease)
    assert left(b) == 2


@case
def a_silent_permit_ends(scene: Scene) -> None:
    """With max_idle the work must beat: whoever stops loses the permit, and others get it."""
    a, b = scene.party(), scene.party()
    busy, silent = a.do(taking(ttl=2, max_idle=1)), a.do(taking(ttl=2, max_idle=1))
    for _ in range(2):
        scene.pass_time(0.6)
        a.do(lambda _: busy.beat())
    assert (busy.state, silent.state) == ("held", "lost")
    for _ in range(3):  # what it had left in the store
        scene.pass_time(0.6)
        a.do(lambda _: busy.beat())
    assert busy.state == "held" and left(b) == 2
    assert b.do(trying()).slot == 1


@case
def inspect_shows_every_permit(scene: Scene) -> None:
    """All who hold, with their slots, in the order of their fences; and the limit, once one was stored."""
    a, b = scene.party(), scene.party()
    a.do(taking())
    b.do(taking(2, meta={"job": 7}))
    seen = a.do(lambda hold: hold.inspect("pool"))
    assert [(one.mode, one.slots, one.meta) for one in seen.holders] == [
        ("permit", (0,), {}),
        ("permit", (1, 2), {"job": 7}),
    ]
    assert seen.limit is None and "permit 1,2" in repr(seen)
    a.do(lambda hold: hold.semaphore("pool", limit=3).resize(4))
    assert a.do(lambda hold: hold.inspect("pool")).limit == 4
