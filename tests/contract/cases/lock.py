"""The contract of a lock: one suite of cases, the same for every store and both flavours.

A case gets a :class:`Scene` and plays it with parties. Time is the scene's: ``scene.pass_time`` turns the clock of
a store that has one to turn, and sleeps for one that has not. A store states its differences in its capabilities;
no case is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any

from leasehold._core.types import owner_digest
from leasehold.coordinator import AsyncLeasehold
from leasehold.errors import LeaseLost, NotAcquired, NotHeld, StoreUnavailable
from tests.support.parties import Party
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE

Case = Callable[[Scene], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case of the contract under its name."""
    CASES[function.__name__] = function
    return function


def give_back(party: Party, lease: Any) -> None:
    """Release it, and see that it was still this party's."""
    assert party.do(lambda _: lease.release()) is True


# ---------------------------------------------------------------- acquiring


@case
def acquire_succeeds_when_free(scene: Scene) -> None:
    """A free lock is granted at once, with a fence, a deadline and time to work."""
    lease = scene.party().do(lambda hold: hold.lock("job", 1, ttl=10).acquire(wait=0))
    assert lease.state == "held" and lease.fence > 0 and 7 < lease.remaining() <= 10
    assert lease.resource == "job:1" and lease.ttl == 10


@case
def a_second_is_refused_while_held(scene: Scene) -> None:
    """One try at a held lock gives None; the raising form says who holds it and for how long."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=10).acquire())
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is None
    error = fails(NotAcquired, b.within(lambda hold: hold.lock("job", wait=0), lambda _: None))
    assert error.holder and lease.owner.startswith(error.holder) and 0 < error.retry_in <= 10
    assert lease.owner not in str(error) + repr(error.__dict__)


@case
def a_refused_acquire_mints_nothing(scene: Scene) -> None:
    """The stored fence is the same before and after a refusal."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job").acquire())
    before = scene.look("job").fence
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert scene.look("job").fence == before == lease.fence


@case
def the_fence_grows_with_each_acquisition(scene: Scene) -> None:
    """Each grant has a higher fence than the one before, whoever gets it."""
    a, b = scene.party(), scene.party()
    fences = []
    for party in (a, b, a, a, b):
        lease = party.do(lambda hold: hold.lock("job").acquire())
        fences.append(lease.fence)
        give_back(party, lease)
    assert fences == sorted(set(fences))


@case
def names_are_apart(scene: Scene) -> None:
    """Different ids are different locks; a number and its text are the same."""
    a, b = scene.party(), scene.party()
    first = a.do(lambda hold: hold.lock("job", 1).try_acquire())
    second = a.do(lambda hold: hold.lock("job", 2).try_acquire())
    assert first is not None and second is not None
    assert b.do(lambda hold: hold.lock("job", "1").try_acquire()) is None


# ---------------------------------------------------------------- releasing and extending


@case
def release_by_the_owner(scene: Scene) -> None:
    """Releasing frees the lock for others, once; a second release answers False."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job").acquire())
    assert a.do(lambda _: lease.release()) is True
    assert lease.state == "released"
    assert a.do(lambda _: lease.release()) is False
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is not None


@case
def release_by_another_fails(scene: Scene) -> None:
    """A party that does not hold cannot release through the lock object, and frees nothing."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job").acquire())
    fails(NotHeld, b.start(lambda hold: hold.lock("job").release()))
    assert scene.look("job").holders[0].owner == lease.owner and lease.state == "held"


@case
def release_after_expiry_answers_false(scene: Scene) -> None:
    """Sleeping past the ttl: release answers False, and the next owner is not touched."""
    a, b = scene.party(), scene.party()
    old = a.do(lambda hold: hold.lock("job", ttl=1, renew=False).acquire())
    scene.pass_time(1.1)
    new = b.do(lambda hold: hold.lock("job", ttl=60).try_acquire())
    assert new is not None and new.fence > old.fence
    assert a.do(lambda _: old.release()) is False
    assert scene.look("job").holders[0].owner == new.owner and new.state == "held"


@case
def extend_by_the_owner(scene: Scene) -> None:
    """Extend sets the end of the lease: longer, then shorter; it never adds."""
    lease = scene.party().do(lambda hold: hold.lock("job", ttl=10, renew=False).acquire())
    holder = scene.party()
    holder.do(lambda _: lease.extend(20))
    assert 19 < lease.remaining() <= 20 and lease.ttl == 20
    holder.do(lambda _: lease.extend(20))
    assert lease.remaining() <= 20
    holder.do(lambda _: lease.extend("5s"))
    assert 4 < lease.remaining() <= 5
    view = scene.look("job")
    assert 4000 < view.holders[0].expires_ms - view.now_ms <= 5000


@case
def extend_never_brings_back(scene: Scene) -> None:
    """Extending a lease that is over raises LeaseLost and takes nothing from the next owner."""
    a, b = scene.party(), scene.party()
    old = a.do(lambda hold: hold.lock("job", ttl=1, renew=False).acquire())
    scene.pass_time(1.1)
    new = b.do(lambda hold: hold.lock("job", ttl=60).try_acquire())
    error = fails(LeaseLost, a.start(lambda _: old.extend(60)))
    assert error.reason == "expired" and error.fence == old.fence
    assert scene.look("job").holders[0].owner == new.owner


@case
def expires_after_its_ttl(scene: Scene) -> None:
    """A lease that is not renewed is over at its ttl, here and in the store."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=1, renew=False).acquire())
    scene.pass_time(0.5)
    assert lease.state == "held" and b.do(lambda hold: hold.lock("job").try_acquire()) is None
    scene.pass_time(0.6)
    assert lease.state == "lost" and lease.remaining() == 0
    fails(LeaseLost, a.start(lambda _: lease.check()))
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is not None


# ---------------------------------------------------------------- waiting


@case
def waiters_are_served_in_order(scene: Scene) -> None:
    """First come, first served: each release hands the lock to the one that waits longest. Where there is no queue, to
    one of them."""
    a, others = scene.party(), [scene.party() for _ in range(3)]
    lease = a.do(lambda hold: hold.lock("job", ttl=60).acquire())
    waiting = []
    for count, party in enumerate(others, start=1):
        waiting.append(party.start(lambda hold: hold.lock("job", ttl=60).acquire()))
        scene.queued("job", count)
    a.do(lambda _: lease.release())
    fences = []
    left = dict(zip(waiting, others, strict=True))
    while left:
        first = next(iter(left)) if scene.capabilities.fair else next(as_completed(left, PATIENCE))
        got, party = first.result(PATIENCE), left.pop(first)
        fences.append(got.fence)
        assert owner_digest(scene.look("job").holders[0].owner) == owner_digest(got.owner)
        give_back(party, got)
    assert fences == sorted(set(fences))
    scene.free("job")


@case
def those_of_one_process_take_turns(scene: Scene) -> None:
    """Four threads or tasks of one coordinator, three turns each, beside another one: one at a time, and fences grow
    whether a lease passes within the process or through the store."""
    a, b = scene.party(), scene.party()
    inside: list[object] = []
    fences: list[int] = []
    crowds = [party.start(partial(crowd, inside, fences)) for party in (a, b)]
    for one in crowds:
        scene.outcome(one)
    assert fences == sorted(set(fences)) and len(fences) == 2 * WORKERS * 3
    scene.free("job")


@case
def what_lingers_is_taken_again(scene: Scene) -> None:
    """``linger=``: the store has one grant all the while, and each lease a fence of its own. Then it goes back."""
    party = scene.party()
    lock = party.do(lingering)
    fences: list[int] = []
    stored = set()
    for _ in range(3):
        lease = party.do(lambda _: lock.acquire())
        fences.append(lease.fence)
        scene.until(lambda: can_linger(party), "the store can tell of claims")
        scene.pass_time(0.012)
        give_back(party, lease)
        (grant,) = scene.look("job").holders
        stored.add(grant.fence)
    assert fences == sorted(set(fences)) and stored == {fences[0]}
    scene.pass_time(LINGER + 1)
    scene.free("job")


@case
def what_lingers_goes_to_another(scene: Scene) -> None:
    """``linger=``: a claim of another process brings it back; at the latest when its moment is over."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: lingering(hold).acquire())
    scene.until(lambda: can_linger(a), "the store can tell of claims")
    scene.pass_time(0.012)
    give_back(a, lease)
    assert len(scene.look("job").holders) == 1
    got = scene.outcome(b.start(lambda hold: hold.lock("job", ttl=60).acquire()))
    assert got.fence > lease.fence
    give_back(b, got)
    scene.free("job")


LINGER = 2


def lingering(hold: Any) -> Any:
    """A lock whose leases linger."""
    return hold.lock("job", ttl=60, linger=LINGER)


def can_linger(party: Party) -> bool:
    """Not before a push could reach it, where there are pushes."""
    watchdog = party.hold._engine.watchdog
    return watchdog.holder_pushes is None or watchdog.hears()


WORKERS = 4


def crowd(inside: list[object], fences: list[int], hold: Any) -> Any:
    """They take their turns, and end."""

    def enter(lease: Any) -> None:
        inside.append(lease)
        assert inside == [lease], "two hold it"
        fences.append(lease.fence)

    async def task() -> None:
        for _ in range(3):
            async with hold.lock("job", ttl=60) as lease:
                enter(lease)
                await asyncio.sleep(0)
                inside.clear()

    async def tasks() -> None:
        await asyncio.gather(*[task() for _ in range(WORKERS)])

    def thread(_: int) -> None:
        for _ in range(3):
            with hold.lock("job", ttl=60) as lease:
                enter(lease)
                inside.clear()

    if isinstance(hold, AsyncLeasehold):
        return tasks()
    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(thread, range(WORKERS)))


@case
def a_wait_that_runs_out_leaves_nothing(scene: Scene) -> None:
    """When the wait is over there is no lease and no waiter left."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=60).acquire())
    future = b.start(lambda hold: hold.lock("job", ttl=60).acquire(wait=0.5))
    scene.queued("job", 1)
    scene.pass_time(0.6)
    assert future.result(PATIENCE) is None
    scene.queued("job", 0)
    a.do(lambda _: lease.release())
    scene.free("job")


@case
def one_try_does_not_overtake(scene: Scene) -> None:
    """wait=0 never takes the place of somebody who waits."""
    a, b, c = scene.party(), scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=60).acquire())
    future = b.start(lambda hold: hold.lock("job", ttl=60).acquire())
    scene.queued("job", 1)
    a.do(lambda _: lease.release())
    assert c.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert future.result(PATIENCE) is not None


@case
def a_waiter_is_granted_when_the_holder_dies(scene: Scene) -> None:
    """A holder that is silent loses to the waiter at the end of its ttl, without a release."""
    a, b = scene.party(), scene.party()
    old = a.do(lambda hold: hold.lock("job", ttl=1, renew=False).acquire())
    future = b.start(lambda hold: hold.lock("job", ttl=60).acquire())
    scene.queued("job", 1)
    scene.pass_time(1.2)
    assert scene.outcome(future).fence > old.fence


# ---------------------------------------------------------------- holding


@case
def the_watchdog_renews(scene: Scene) -> None:
    """A lease in use outlives its ttl many times, with the same fence."""
    lease = scene.party().do(lambda hold: hold.lock("job", ttl=2).acquire())
    for _ in range(3):
        scene.pass_time(2)
    assert lease.state == "held" and lease.remaining() > 0
    view = scene.look("job")
    assert view.holders[0].fence == lease.fence and view.holders[0].expires_ms > view.now_ms


@case
def leaving_a_lost_body_raises(scene: Scene) -> None:
    """A body whose lease was lost does not end as if nothing had happened."""
    a = scene.party()
    seen: list[Any] = []

    def body(lease: Any) -> None:
        seen.append(lease)
        scene.pass_time(1.5)

    error = fails(LeaseLost, a.within(lambda hold: hold.lock("job", ttl=1, renew=False), body))
    assert error.reason == "expired" and error.fence == seen[0].fence and error.resource == "job"


@case
def the_error_of_a_body_stays(scene: Scene) -> None:
    """An error in the body is what the caller sees; a loss is chained to it."""

    def body(lease: Any) -> None:
        scene.pass_time(1.5, at_once=True)
        raise KeyError("the body's own")

    future = scene.party().within(lambda hold: hold.lock("job", ttl=1, renew=False), body)
    error = future.exception(PATIENCE)
    assert isinstance(error, KeyError) and isinstance(error.__context__, LeaseLost)


@case
def loss_is_told(scene: Scene) -> None:
    """``lost`` is set and callbacks run, also after one that raises."""
    a = scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=1, renew=False).acquire())
    reasons: list[str] = []

    def harmful(error: LeaseLost) -> None:
        raise ValueError("a callback that raises")

    a.do(lambda _: lease.on_lost(harmful))
    a.do(lambda _: lease.on_lost(lambda error: reasons.append(error.reason)))
    event = a.do(lambda _: lease.lost)
    assert not event.is_set()
    scene.pass_time(1.1)
    scene.until(lambda: event.is_set() and reasons == ["expired"], "the loss is told")


@case
def max_hold_ends_a_renewed_lease(scene: Scene) -> None:
    """Work that hangs is not renewed for ever."""
    lease = scene.party().do(lambda hold: hold.lock("job", ttl=1, max_hold=2).acquire())
    scene.pass_time(1.5)
    assert lease.state == "held" and lease.remaining() <= 0.6
    scene.pass_time(0.6)
    assert lease.state == "lost"
    scene.pass_time(1.1)
    scene.free("job")


@case
def max_idle_ends_a_silent_one(scene: Scene) -> None:
    """With max_idle the work must beat; when it stops, the lease is lost."""
    a = scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=2, max_idle=1).acquire())
    for _ in range(3):
        scene.pass_time(0.6)
        a.do(lambda _: lease.beat())
    assert lease.state == "held"
    scene.pass_time(1.1)
    assert lease.state == "lost"
    assert fails(LeaseLost, a.start(lambda _: lease.beat())).reason == "max_idle"


@case
def at_least_keeps_the_door_closed(scene: Scene) -> None:
    """Nobody is granted before the minimum hold is over, although it was released."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=10, at_least=3).acquire())
    assert a.do(lambda _: lease.release()) is True
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert scene.look("job").holders == ()
    scene.pass_time(3.1)
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is not None


@case
def metadata_travels(scene: Scene) -> None:
    """What the holder says about itself stands in the store and on the lease."""
    lease = scene.party().do(lambda hold: hold.lock("job", meta={"run": 7}).acquire())
    assert lease.meta == {"run": 7}
    assert scene.look("job").holders[0].meta == '{"run":7}'


# ---------------------------------------------------------------- ownership


@case
def reentry_keeps_the_fence(scene: Scene) -> None:
    """Entering again costs nothing, keeps the fence, and a shorter inner ttl does not cut the outer."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.rlock("job", ttl=30).acquire())
    inner = a.do(lambda hold: hold.rlock("job", ttl=1).acquire(wait=0))
    assert inner.fence == lease.fence and lease.remaining() > 20
    assert a.do(lambda _: inner.release()) is True
    assert lease.state == "held" and b.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert a.do(lambda hold: hold.rlock("job").release()) is True
    assert lease.state == "released"
    scene.free("job")


@case
def ownership_is_by_thread_or_task(scene: Scene) -> None:
    """owned() is true for the holder alone; locked() for everybody."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job").acquire())
    assert a.do(lambda hold: hold.lock("job").owned()) is True
    assert b.do(lambda hold: hold.lock("job").owned()) is False
    assert b.do(lambda hold: hold.lock("job").locked()) is True
    a.do(lambda hold: hold.lock("job").release())
    assert lease.state == "released"
    assert a.do(lambda hold: hold.lock("job").owned()) is False
    assert b.do(lambda hold: hold.lock("job").locked()) is False


@case
def close_gives_back(scene: Scene) -> None:
    """Closing a coordinator frees what it holds at once, tells the holder, and ends its use."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=60).acquire())
    a.do(lambda hold: hold.close())
    assert lease.state == "lost"
    assert fails(LeaseLost, a.start(lambda _: lease.check())).reason == "closed"
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is not None
    fails(StoreUnavailable, a.start(lambda hold: hold.lock("job").acquire(wait=0)))
