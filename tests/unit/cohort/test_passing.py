"""A lease passes between the threads or tasks of one process, without the store: in order, with its own fences."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import pairwise
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost, NotAcquired, StaleOwner, StoreUnavailable
from leasehold._core import cohort as cohort_module
from leasehold._core.holding import LOST
from leasehold._core.ops import Claim, Evict, Evicted, Release, Renew
from leasehold._core.policy import PASS_SECONDS
from leasehold._runtime import cohorts
from leasehold.guards.memory import FenceGuard
from leasehold.primitives.base_lock import BaseLock
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew, Hand, Loop
from tests.support.lock import Spy, elsewhere, look, nothing_left, once, only, unreachable, waiting
from tests.support.waiting import PATIENCE, until, until_async

TTL = 60


KINDS = ("threads", "tasks")


class Stage:
    """A coordinator over a spied store, a holder that is not of the cohort, and a crew that waits for it."""

    def __init__(self, kind: str = "threads", clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.spy = Spy(MemoryStore(self.clock))
        self.loop = Loop() if kind == "tasks" else None
        self.hold: Any = (leasehold.connect if self.loop is None else leasehold.aio.connect)(self.spy)
        self.crew = self.more(ttl=TTL)
        self.first = self.do(lambda hold: hold.lock("job", ttl=TTL).acquire())

    def more(self, **options: Any) -> Crew:
        """Another crew of this coordinator."""
        return Crew(self.hold, loop=self.loop, **options)

    def do(self, step: Callable[[Any], Any]) -> Any:
        """A step with the coordinator, on this thread or in a task of its own."""
        return step(self.hold) if self.loop is None else self.loop.do(lambda: step(self.hold))

    def begin(self, count: int) -> list[Hand]:
        """So many wait, and the first of them has it."""
        hands = self.crew.come(count)
        self.release_first()
        hands[0].has_it()
        self.clock.advance(0.001)
        return hands

    def release_first(self) -> None:
        """The holder that is not of the cohort goes."""
        self.clock.advance(0.001)  # fences are reserved up to the clock
        assert self.do(lambda _: self.first.release())

    def within(self, depth: int = 1, **options: Any) -> None:
        """Enter the lock so many times, one inside the other."""
        locks = [self.hold.lock("job", ttl=TTL, **options) for _ in range(depth)]
        if self.loop is not None:
            self.loop.do(lambda: within_task(locks))
            return
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)

    def before_the_answer(self, kind: type, change: Callable[[], None], happened: Callable[[], bool]) -> None:
        """The store does not answer the next op of this kind before the change has had its effect."""
        changed = threading.Event()

        def begin(_: Any) -> None:
            changed.set()
            change()
            if self.loop is None:
                until(happened, "it had its effect")

        async def suspend() -> None:
            if changed.is_set():
                await until_async(happened, "it had its effect")
                changed.clear()

        self.spy.before, self.spy.suspend = once(kind, begin), suspend

    def evict(self) -> Any:
        """Whoever holds it, as an operator does: by what the store says."""
        (grant,) = look(self.spy, "job").holders
        return self.do(lambda hold: hold.evict("job", fence=grant.fence, reason="test", delay=0, force=True))

    def reservations(self) -> list[Renew]:
        """What was sent to the store for more fences."""
        return [op for op in self.spy.of(Renew) if op.fences]

    def end(self) -> None:
        """Everything."""
        self.spy.heal()
        self.crew.end()
        self.do(lambda hold: hold.close())
        if self.loop is not None:
            self.loop.close()


async def within_task(locks: list[Any]) -> None:
    """Enter them all, one inside the other."""
    async with AsyncExitStack() as stack:
        for lock in locks:
            await stack.enter_async_context(lock)


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Ends whatever happens."""
    made = Stage(request.param)
    yield made
    made.end()


def test_a_lease_passes_from_one_to_the_next(stage: Stage) -> None:
    """Five wait: one claim of theirs is in the store, one request reserves fences, and one release ends it."""
    hands = stage.begin(5)
    assert len(look(stage.spy, "job").holders) == 1
    fences, owners = [], []
    for hand in hands:
        lease = hand.has_it()
        assert lease.state == "held" and sum(one.lease is not None for one in hands) == hands.index(hand) + 1
        fences.append(lease.fence)
        owners.append(lease.owner)
        assert hand.let_go() is True
    assert fences == sorted(set(fences)) and len(set(owners)) == 5
    assert len(stage.spy.of(Claim)) == 2 and len(stage.reservations()) == 1
    assert len(stage.spy.of(Release)) == 2 and nothing_left(stage.spy, "job")
    assert stage.hold._engine.cohorts == {} and not stage.hold._engine.watchdog.passing


def test_fences_go_on_growing_in_the_store(stage: Stage) -> None:
    """What the store grants after a lease was passed on is above every fence that was used meanwhile."""
    hands = stage.begin(3)
    fences = [hand.has_it().fence for hand in hands if hand.let_go()]
    later = stage.do(lambda hold: hold.lock("job", ttl=TTL).try_acquire())
    assert later is not None and later.fence > max(fences)


def test_a_guard_refuses_who_held_before(stage: Stage) -> None:
    """A lease that was passed on makes the one before it stale, for every guard."""
    hands = stage.begin(2)
    guard = FenceGuard()
    first = hands[0].has_it()
    guard.check(first)
    hands[0].let_go()
    guard.check(hands[1].has_it())
    with pytest.raises(StaleOwner):
        guard.check(first)


def test_the_lease_is_renewed_as_the_store_knows_it(stage: Stage) -> None:
    """The watchdog renews a passed lease by the owner and the fence of the store's grant."""
    hands = stage.begin(2)
    hands[0].let_go()
    lease = hands[1].has_it()
    (grant,) = look(stage.spy, "job").holders
    assert (grant.owner, grant.fence) != (lease.owner, lease.fence) and lease.fence > grant.fence
    before = lease.deadline
    for _ in range(8):
        stage.clock.advance(TTL / 8)
        stage.hold._engine.watchdog.round()
    assert lease.state == "held" and lease.deadline > before
    assert {(op.owner, op.fence) for op in stage.spy.of(Renew)} == {(grant.owner, grant.fence)}


def test_a_block_of_fences_runs_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """More are reserved then, while nobody else waits: the lease need not go back."""
    monkeypatch.setattr(cohort_module, "MOST_PASSES", 2)
    hands = stage.begin(6)
    fences = []
    for hand in hands:
        fences.append(hand.has_it().fence)
        stage.clock.advance(0.001)
        hand.let_go()
    assert fences == sorted(set(fences)) and len(stage.reservations()) == 3 and len(stage.spy.of(Release)) == 2


def test_nothing_is_reserved_beyond_the_clock(stage: Stage) -> None:
    """A clock that was set back before a block is open: nothing is reserved, the lease goes back, fences grow."""
    hands = stage.begin(4)
    fences = [hands[0].has_it().fence]
    stage.clock.step_wall(-3600)
    for before, hand in pairwise(hands):
        before.let_go()
        fences.append(hand.has_it().fence)
    assert fences == sorted(set(fences)) and all(op.fences for op in stage.reservations())
    assert len(stage.spy.of(Claim)) == 2 + 3  # each had to claim


def test_a_block_that_is_shorter_than_the_turns(stage: Stage) -> None:
    """The clock allowed for two fences: nobody gets a third one without the store, however many turns would be left."""
    hands = stage.crew.come(5)
    stage.release_first()
    hands[0].has_it()
    stage.clock.advance(0.000_002)
    fences = [hands[0].lease.fence]
    for before, hand, claims in zip(hands, hands[1:], (2, 2, 3, 4), strict=False):
        assert before.let_go() is True
        fences.append(hand.has_it().fence)
        assert len(stage.spy.of(Claim)) == claims, f"fence {len(fences)}"
    assert fences == sorted(set(fences))


def test_the_clock_is_set_back_while_a_block_is_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reserved is good. When it is used up no more is reserved: the lease goes back, and fences grow on."""
    monkeypatch.setattr(cohort_module, "MOST_PASSES", 3)
    hands = stage.begin(6)
    hands[0].let_go()
    fences = [hands[0].lease.fence, hands[1].has_it().fence]
    claims = len(stage.spy.of(Claim))
    stage.clock.step_wall(-3600)
    for before, hand, claimed in zip(hands[1:], hands[2:], (0, 0, 1, 2), strict=False):
        assert before.let_go() is True
        fences.append(hand.has_it().fence)
        assert len(stage.spy.of(Claim)) == claims + claimed, f"fence {len(fences)}"
    hands[-1].let_go()
    assert fences == sorted(set(fences)) and nothing_left(stage.spy, "job")
    later = stage.do(lambda hold: hold.lock("job", ttl=TTL).try_acquire())
    assert later.fence > fences[-1]


def test_others_elsewhere_get_their_turn(stage: Stage) -> None:
    """Each who waits here when the store says that others wait gets one turn; then the lease goes to them."""
    hands = stage.begin(3)
    other = leasehold.connect(stage.spy)
    remote = Crew(other, ttl=TTL)
    (there,) = remote.come()
    hands[0].let_go()
    hands[1].has_it()
    (late,) = stage.crew.come()  # after the store was asked
    hands[1].let_go()
    hands[2].has_it()
    hands[2].let_go()
    assert there.has_it().state == "held" and late.lease is None
    there.let_go()
    assert late.has_it().state == "held"
    remote.end()
    other.close()


def test_passing_stops_after_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders who take long, and a store that cannot tell of others: it is asked at each release, and others who wait
    elsewhere come next."""
    monkeypatch.setattr(stage.hold._engine.watchdog, "hears", lambda: False)
    hands = stage.begin(2)
    hands[0].let_go()
    hands[1].has_it()
    other = leasehold.connect(stage.spy)
    remote = Crew(other, ttl=TTL)
    (there,) = remote.come()
    stage.crew.come()
    stage.clock.advance(PASS_SECONDS + 0.1)
    hands[1].let_go()  # the store is asked, and says that another waits: the one who waits here gets its turn
    assert len(stage.reservations()) == 2
    (last,) = stage.crew.hands[-1:]
    last.has_it()
    stage.crew.come()
    stage.clock.advance(PASS_SECONDS + 0.1)
    last.let_go()
    assert there.has_it().state == "held"
    there.let_go()
    stage.crew.end()
    remote.end()
    other.close()


def test_passing_stops_when_the_store_says_that_others_wait(stage: Stage) -> None:
    """A claim elsewhere that comes between two questions need not wait for the next one: each who waits here by then
    gets one turn, and nobody who comes later."""
    until(stage.hold._engine.watchdog.hears, "it can be told")
    hands = stage.begin(4)
    hands[0].let_go()  # the store is asked: nobody else waits
    cohort = hands[1].has_it()._held.cohort
    assert not cohort._others
    with leasehold.connect(stage.spy) as other:
        remote = Crew(other, ttl=TTL)
        (there,) = remote.come()
        until(lambda: cohort._others, "it was told")
        (late,) = stage.crew.come()
        for here, following in pairwise(hands[1:]):
            here.let_go()
            following.has_it()
        hands[3].let_go()
        assert there.has_it().state == "held" and late.lease is None
        assert len(stage.reservations()) == 1
        there.let_go()
        assert late.has_it().state == "held"
        late.let_go()
        remote.end()


# ---------------------------------------------------------------- what ends between two passes


def test_a_lost_lease_sends_the_others_back_to_the_store(stage: Stage) -> None:
    """Its holder is told, and the next one claims: it gets a grant of its own."""
    hands = stage.begin(3)
    hands[0].let_go()
    lease = hands[1].has_it()
    stage.spy.before = only(Renew, unreachable)
    for _ in range(20):
        stage.clock.advance(TTL / 20)
        stage.hold._engine.watchdog.round()
    assert lease.state == "lost"
    stage.spy.heal()
    stage.clock.advance(TTL)
    assert hands[2].has_it().fence > lease.fence
    assert hands[1].let_go() is False


def test_an_evicted_lease_is_not_passed_on(stage: Stage) -> None:
    """The store has taken it away: the holder learns it, and the next one waits for the door to open."""
    hands = stage.begin(3)
    hands[0].let_go()
    lease = hands[1].has_it()
    eviction = stage.evict()
    assert eviction.fence > lease.fence
    until(lambda: lease.state == "lost", "the holder knows")
    assert hands[1].let_go() is False and hands[2].has_it().fence > eviction.fence


def test_an_eviction_that_nobody_heard_of(stage: Stage) -> None:
    """The push is lost: the release asks the store, which says that it is not ours."""
    hands = stage.begin(2)
    lease = hands[0].has_it()
    stage.hold._engine.watchdog.pause()
    stage.evict()
    assert hands[0].let_go() is False and lease.state == "lost"
    stage.hold._engine.watchdog.pause(False)
    assert hands[1].has_it().fence > lease.fence


def test_a_revoked_lease_goes_back_to_the_store(stage: Stage) -> None:
    """An operator asked for it: it is not kept in the process."""
    hands = stage.begin(2)
    lease = hands[0].has_it()
    stage.do(lambda hold: hold.revoke("job"))
    until(lease.revoked.is_set, "it was asked")
    releases = len(stage.spy.of(Release))
    hands[0].let_go()
    assert len(stage.spy.of(Release)) == releases + 1 and hands[1].has_it().state == "held"


def test_max_hold_counts_for_each(stage: Stage) -> None:
    """A passed lease has the limits of its own lock, from when it was passed."""
    stage.crew.come()
    (limited,) = stage.crew.come(max_hold=10)
    stage.release_first()
    first = stage.crew.hands[0].has_it()
    stage.clock.advance(9)
    stage.hold._engine.watchdog.round()
    stage.crew.hands[0].let_go()
    lease = limited.has_it()
    stage.clock.advance(9)
    stage.hold._engine.watchdog.round()
    assert lease.state == "held" and first.state == "released"
    stage.clock.advance(2)
    stage.hold._engine.watchdog.round()
    with pytest.raises(LeaseLost, match="max_hold"):
        lease.check()


def test_a_max_hold_that_is_short_beside_the_ttl(stage: Stage) -> None:
    """There is time to ask the store for fences: the lease passes on all the same."""
    hands = stage.crew.come(3, max_hold=10)
    stage.release_first()
    hands[0].has_it()
    stage.clock.advance(0.001)
    for before, hand in pairwise(hands):
        assert before.let_go() is True and hand.has_it().state == "held"
    assert len(stage.spy.of(Claim)) == 2 and len(stage.reservations()) == 1


def test_max_hold_of_the_one_before_does_not_count(stage: Stage) -> None:
    """Whoever has no such limit holds for as long as it is renewed."""
    (limited,) = stage.crew.come(max_hold=20)
    (unlimited,) = stage.crew.come()
    stage.release_first()
    limited.has_it()
    stage.clock.advance(4)
    stage.hold._engine.watchdog.round()
    claims = len(stage.spy.of(Claim))
    assert limited.let_go() is True
    lease = unlimited.has_it()
    assert lease.remaining() > 20 and len(stage.spy.of(Claim)) == claims
    stage.clock.advance(17)
    stage.hold._engine.watchdog.round()
    assert lease.state == "held"


def test_a_fork_while_a_passed_lease_is_held(stage: Stage) -> None:
    """The child has nothing: no lease, no cohort. The parent goes on passing it."""
    hands = stage.begin(4)
    hands[0].let_go()
    lease = hands[1].has_it()
    claims = len(stage.spy.of(Claim))
    child = os.fork()
    if not child:  # says by its exit status what it found
        os._exit(found_in_child(stage, lease))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lease.state == "held"
    for before, hand in pairwise(hands[1:]):
        assert before.let_go() is True and hand.has_it().state == "held"
    assert len(stage.spy.of(Claim)) == claims


def found_in_child(stage: Stage, lease: Any) -> int:
    """Zero if it has nothing."""
    engine = stage.hold._engine
    if engine.cohorts or engine.watchdog.passing or lease.state != "lost":
        return 1
    try:
        lease.check()
    except LeaseLost as error:
        return 0 if error.reason == "forked" else 2
    return 3


def test_closing_ends_all_who_wait(stage: Stage) -> None:
    """What is held is given back, and each who waits says why it ends."""
    hands = stage.begin(4)
    hands[0].let_go()
    hands[1].has_it()
    stage.do(lambda hold: hold.close())
    for hand in hands[2:]:
        with pytest.raises(StoreUnavailable, match="closed"):
            hand.has_it()
    assert nothing_left(stage.spy, "job") and hands[1].lease.state == "lost"


def test_an_extended_lease_is_not_passed_on(stage: Stage) -> None:
    """The one that follows asked for another ttl: it gets a grant of its own."""
    hands = stage.begin(2)
    lease = hands[0].has_it()
    stage.do(lambda _: lease.extend(30))
    hands[0].let_go()
    (grant,) = (hands[1].has_it(), *look(stage.spy, "job").holders)[1:]
    assert grant.ttl_ms == TTL * 1000 and grant.owner == hands[1].lease.owner


def test_a_ticket_is_good_for_a_passed_lease(stage: Stage) -> None:
    """It names the grant as the store knows it."""
    hands = stage.begin(2)
    hands[0].let_go()
    lease = hands[1].has_it()
    ticket = stage.do(lambda _: lease.transfer())
    with leasehold.connect(stage.spy) as other:
        adopted = other.adopt(ticket)
        assert adopted.fence > hands[1].lease.fence and adopted.release()


# ---------------------------------------------------------------- who waits


def test_a_wait_that_is_over(stage: Stage) -> None:
    """It says so, names the holder, and leaves nothing behind."""
    hands = stage.begin(2)
    (impatient,) = stage.crew.come(wait=5)

    with elsewhere(lambda: stage.within(wait=5)) as outcome:
        until(lambda: waiting(stage.spy, "job") == 3, "both wait")
        stage.clock.advance(6)
        with pytest.raises(NotAcquired, match="which is this process") as info:
            outcome()
    assert impatient.released.result(PATIENCE) is False and info.value.holder and waiting(stage.spy, "job") == 1
    hands[0].let_go()
    assert hands[1].has_it().state == "held"


def test_the_leader_gives_up(stage: Stage) -> None:
    """The next one claims in its place."""
    (leader,) = stage.crew.come(wait=5)
    (second,) = stage.crew.come()
    stage.clock.advance(6)
    assert leader.released.result(30) is False
    until(lambda: len(look(stage.spy, "job").queue) == 1, "the next one claims")
    stage.release_first()
    assert second.has_it().state == "held"


def test_a_leader_that_gets_no_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is its turn to claim, and no descriptor is left: it says so, and the next one claims at once. The clock
    stands."""
    hands = stage.begin(3)
    leads: list[None] = []
    wait_left = cohorts.LocalWaiter.wait_left
    place: Any = stage.hold._engine.connections if stage.loop is None else stage.hold._driver
    name = "borrow" if stage.loop is None else "connection"
    connect = getattr(place, name)

    def begins(member: Any, engine: Any) -> float | None:
        leads.append(None)
        return wait_left(member, engine)

    def refuse(*where: Any) -> Any:
        if leads:
            monkeypatch.undo()
            raise StoreUnavailable("no descriptor is left")
        return connect(*where)

    monkeypatch.setattr(cohorts.LocalWaiter, "wait_left", begins)
    monkeypatch.setattr(place, name, refuse)
    stage.do(lambda hold: hold.revoke("job"))
    until(hands[0].lease.revoked.is_set, "it goes back to the store")
    hands[0].let_go()
    with pytest.raises(StoreUnavailable, match="no descriptor"):
        hands[1].has_it()
    assert hands[2].has_it().state == "held" and hands[2].let_go() is True
    nothing_is_left_of_it(stage)


def test_a_wait_is_over_and_the_lease_comes_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is passed to one whose wait is over, before it has withdrawn: it has it, and passes it on."""
    (holder,) = stage.begin(1)
    impatient, following = (*stage.crew.come(wait=5), *stage.crew.come())
    late = threading.Event()
    look_around = cohorts._look

    def noticed(engine: Any, member: Any, until_: float) -> None:
        if member.give_up is not None and engine.clock.now() >= member.give_up:
            late.set()
        look_around(engine, member, until_)

    monkeypatch.setattr(cohorts, "_look", noticed)

    def pass_on(_: Any) -> Any:
        stage.clock.advance(5.1)
        if stage.loop is None:  # a task cannot run between these two lines
            until(late.is_set, "it is about to withdraw")
        return holder.lease.release()

    with ExitStack() as stack:
        if stage.loop is None:
            stack.enter_context(stage.hold._engine.watchdog.transitions)
        assert stage.do(pass_on) is True
    assert impatient.has_it().state == "held" and impatient.lease.fence > holder.lease.fence
    claims = len(stage.spy.of(Claim))
    assert impatient.let_go() is True and following.has_it().fence > impatient.lease.fence
    assert len(stage.spy.of(Claim)) == claims and following.let_go() is True
    nothing_is_left_of_it(stage)


@pytest.mark.parametrize("followers", [0, 1])
def test_a_wait_is_over_and_the_withdrawal_comes_first(stage: Stage, followers: int) -> None:
    """It withdraws while the store is asked for the fence that it would have got: the next one gets the lease, or the
    store does."""
    (holder,) = stage.begin(1)
    with elsewhere(lambda: stage.within(wait=5)) as outcome:
        until(lambda: waiting(stage.spy, "job") == 1, "it waits")
        following = stage.crew.come(followers) if followers else []
        stage.before_the_answer(Renew, lambda: stage.clock.advance(5.1), lambda: waiting(stage.spy, "job") == followers)
        assert holder.let_go() is True
        with pytest.raises(NotAcquired, match="job"):
            outcome()
    assert len(stage.reservations()) == 1
    for hand in following:
        assert hand.has_it().fence > holder.lease.fence and hand.let_go() is True
    nothing_is_left_of_it(stage)
    free = stage.do(lambda hold: hold.lock("job", ttl=TTL).try_acquire())
    assert free.fence > holder.lease.fence and len(stage.spy.of(Claim)) == 3


def test_one_that_has_ended_is_passed_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It still stands in the queue, because an interrupt hit it while it left: whoever stands behind it comes next."""
    hands = stage.begin(3)
    (cohort,) = stage.hold._engine.cohorts.values()
    ended: Any = cohort.waiting[0]
    look_around, leave = cohorts._look, BaseLock._leave_cohort

    def end(engine: Any, member: Any, until_: float) -> None:
        if member is ended:
            raise RuntimeError("the test ends it")
        look_around(engine, member, until_)

    def stay(lock: Any, place: Any, *why: Any) -> None:
        if place is not ended:
            leave(lock, place, *why)

    monkeypatch.setattr(cohorts, "_look", end)
    monkeypatch.setattr(BaseLock, "_leave_cohort", stay)
    ended.wake()
    until(ended.gone, "it has ended")
    assert ended in cohort.waiting and hands[1].error is not None
    claims = len(stage.spy.of(Claim))
    assert hands[0].let_go() is True
    assert hands[2].has_it().fence > hands[0].lease.fence and len(stage.spy.of(Claim)) == claims
    assert hands[2].let_go() is True
    nothing_is_left_of_it(stage)


class Interrupted(BaseException):
    """As Ctrl-C, or a cancellation."""


def test_one_that_is_interrupted_as_it_takes_it_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was passed to one that never had it: it is given back at once, and the next one claims. The clock stands."""
    hands = stage.begin(3)
    (cohort,) = stage.hold._engine.cohorts.values()
    struck: Any = cohort.waiting[0]
    take = cohorts._take

    def strike(engine: Any, member: Any) -> Any:
        if member is struck:
            raise Interrupted
        return take(engine, member)

    monkeypatch.setattr(cohorts, "_take", strike)
    assert hands[0].let_go() is True
    assert hands[2].has_it().fence > hands[0].lease.fence and isinstance(hands[1].error, Interrupted)
    assert hands[2].let_go() is True
    nothing_is_left_of_it(stage)


def test_one_that_left_and_lives_on_is_not_passed_to(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread or task goes on with something else, and would never take up what is passed to it."""
    hands = stage.begin(3)
    (cohort,) = stage.hold._engine.cohorts.values()
    left: Any = cohort.waiting[0]
    look_around = cohorts._look

    def strike(engine: Any, member: Any, until_: float) -> None:
        if member is left:
            raise Interrupted
        look_around(engine, member, until_)

    monkeypatch.setattr(cohorts, "_look", strike)
    monkeypatch.setattr(type(left), "gone", lambda member: False)  # it has ended, but may as well have gone on
    left.wake()
    until(lambda: hands[1].error is not None, "it has left")
    assert hands[0].let_go() is True
    assert hands[2].has_it().state == "held" and hands[2].let_go() is True
    nothing_is_left_of_it(stage)


def before_it_is_taken_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lease: Any, change: Callable[[], object]
) -> None:
    """Release it, and let something happen between the pass and the first step of its receiver."""
    changed, take = threading.Event(), cohorts._take

    def late(engine: Any, member: Any) -> Any:
        if stage.loop is None:  # a task does not run before the step below has ended
            changed.wait(PATIENCE)
        return take(engine, member)

    async def release() -> None:
        assert await lease.release() is True
        assert stage.hold._engine.watchdog.passing
        change()

    monkeypatch.setattr(cohorts, "_take", late)
    if stage.loop is not None:
        stage.loop.do(release)
        return
    assert lease.release() is True and stage.hold._engine.watchdog.passing
    change()
    changed.set()


def test_one_that_takes_it_up_too_late_claims(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was passed on, and is over before its receiver runs: that one gets a grant of its own."""
    hands = stage.begin(2)
    before_it_is_taken_up(stage, monkeypatch, hands[0].lease, lambda: stage.clock.advance(TTL + 1))
    mine = hands[1].has_it()
    (grant,) = look(stage.spy, "job").holders
    assert mine.state == "held" and (grant.owner, grant.fence) == (mine.owner, mine.fence)
    assert mine.fence > hands[0].lease.fence and hands[1].let_go() is True
    nothing_is_left_of_it(stage)


def test_an_eviction_before_it_is_taken_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog hears of it. Its receiver does not get what is gone: it claims, and waits for the door to open."""
    hands = stage.begin(2)
    (grant,) = look(stage.spy, "job").holders
    evicted: list[Evicted] = []

    def evict() -> None:
        (passed,) = stage.hold._engine.watchdog.passing
        reply = stage.spy.inner.execute(Evict("job", grant.owner, grant.fence, "request", 0, force=True))
        assert isinstance(reply, Evicted)
        evicted.append(reply)
        until(lambda: passed.phase == LOST, "it is known")

    before_it_is_taken_up(stage, monkeypatch, hands[0].lease, evict)
    assert hands[1].has_it().fence > evicted[0].fence and hands[1].let_go() is True
    nothing_is_left_of_it(stage)


def test_the_coordinator_is_closed_before_it_is_taken_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was passed on is given back at once, and its receiver says why it ends."""
    hands = stage.begin(2)

    def close() -> None:
        stage.hold._engine.close()
        assert nothing_left(stage.spy, "job")

    before_it_is_taken_up(stage, monkeypatch, hands[0].lease, close)
    with pytest.raises(StoreUnavailable, match="closed"):
        hands[1].has_it()
    assert not stage.hold._engine.watchdog.passing


def test_a_fork_before_it_is_taken_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has neither the lease nor anybody who could take it up. The parent's receiver has it."""
    hands = stage.begin(2)
    engine = stage.hold._engine
    outcomes: list[int] = []

    def fork() -> None:
        (passed,) = engine.watchdog.passing
        child = os.fork()
        if not child:  # says by its exit status what it found
            os._exit(int(bool(engine.watchdog.passing or engine.cohorts)) + 2 * (passed.phase != LOST))
        outcomes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    before_it_is_taken_up(stage, monkeypatch, hands[0].lease, fork)
    assert outcomes == [0] and hands[1].has_it().state == "held" and hands[1].let_go() is True
    nothing_is_left_of_it(stage)


def nothing_is_left_of_it(stage: Stage) -> None:
    """Nobody holds it, nobody waits for it: neither in the store nor here."""
    engine = stage.hold._engine
    until(lambda: nothing_left(stage.spy, "job") and not engine.cohorts, "it is free")
    assert not engine.watchdog.passing and not waiting(stage.spy, "job")


def test_one_try_never_joins(stage: Stage) -> None:
    """``wait=0`` asks the store, which says who holds."""
    stage.begin(2)
    assert stage.do(lambda hold: hold.lock("job", ttl=TTL).try_acquire()) is None and waiting(stage.spy, "job") == 1


@pytest.mark.parametrize(
    "options", [{"ttl": 30}, {"ttl": TTL, "at_least": 1}, {"ttl": TTL, "delay": 1}, {"ttl": TTL, "renew": False}]
)
def test_what_is_not_alike_claims_for_itself(stage: Stage, options: dict[str, Any]) -> None:
    """Another ttl, a door that stays closed, a lease that is not renewed: these wait in the store."""
    stage.begin(2)
    before = len(look(stage.spy, "job").queue)
    different = stage.more()
    (one,) = different.come(**options)
    assert len(look(stage.spy, "job").queue) == before + 1
    for hand in stage.crew.hands:
        hand.has_it()
        hand.let_go()
    assert one.has_it().state == "held"
    different.end()


@pytest.mark.parametrize("options", [{"at_least": 1}, {"delay": 1}, {"renew": False}])
def test_what_cannot_pass_does_not_pass_among_its_like(stage: Stage, options: dict[str, Any]) -> None:
    """All of them have the same lock, and yet each has a claim of its own in the store, and no fence is reserved."""
    claims = len(stage.spy.of(Claim))
    crew = stage.more(alike=False, ttl=TTL, **options)
    hands = [hand for _ in range(3) for hand in crew.come()]
    assert len(look(stage.spy, "job").queue) == 3 and not stage.hold._engine.cohorts
    stage.release_first()
    fences = []
    for hand in hands:
        fences.append(hand.has_it().fence)
        (grant,) = look(stage.spy, "job").holders
        assert (grant.owner, grant.fence) == (hand.lease.owner, hand.lease.fence)
        stage.clock.advance(2)
        hand.let_go()
        stage.clock.advance(2)
    assert fences == sorted(set(fences)) and len({op.owner for op in stage.spy.of(Claim)[claims:]}) == 3
    assert not stage.reservations()
    crew.end()


def test_two_coordinators_of_one_process_are_strangers(stage: Stage) -> None:
    """Nothing is passed between them but by the store."""
    other = leasehold.connect(stage.spy)
    theirs = Crew(other, ttl=TTL)
    theirs.come(2)
    mine = stage.crew.come(2)
    stage.release_first()
    fences = []
    for hand in (*theirs.hands, *mine):
        stage.clock.advance(0.001)
        fences.append(hand.has_it().fence)
        hand.let_go()
    assert fences == sorted(set(fences))
    theirs.end()
    other.close()


def test_a_thread_that_waits_for_itself(stage: Stage) -> None:
    """Who holds it already gets the error that says so, also where others of its process wait."""
    stage.begin(2)

    with elsewhere(lambda: stage.within(depth=2)) as outcome:
        until(lambda: waiting(stage.spy, "job") == 2, "it waits")
        for hand in stage.crew.hands:
            hand.let_go()
        with pytest.raises(leasehold.InvalidRequest, match="would be waited for for ever"):
            outcome()


def test_a_leader_that_was_lost_is_replaced(stage: Stage) -> None:
    """Nobody waits for one that is not there: each looks now and then."""
    hands = stage.begin(2)
    engine = stage.hold._engine
    (cohort,) = engine.cohorts.values()
    with engine.watchdog.transitions:
        held = cohort.holder
        cohort.holder, cohort.leader, held.cohort = None, object(), None  # as if an interrupt had hit
    hands[0].let_go()
    stage.clock.advance(2)
    assert hands[1].has_it().state == "held"


def test_observers_see_every_lease() -> None:
    """Each acquire and release of a passed lease is an event of its own."""
    seen: list[Any] = []

    class Observer:
        def __call__(self, event: Any) -> None:
            seen.append(event)

        notify = __call__

    clock = ManualClock()
    spy = Spy(MemoryStore(clock))
    with leasehold.connect(spy, observers=[Observer()]) as hold:
        crew = Crew(hold, ttl=TTL)
        first = hold.lock("job", ttl=TTL).acquire()
        hands = crew.come(3)
        clock.advance(0.001)
        assert first is not None
        first.release()
        for hand in hands:
            hand.has_it()
            clock.advance(0.001)
            hand.let_go()
        crew.end()
    names = [type(event).__name__ for event in seen]
    assert names.count("Acquired") == 4 and names.count("Released") == 4 and names.count("Contended") == 3
    acquired = [event.lease.fence for event in seen if type(event).__name__ == "Acquired"]
    assert acquired == sorted(set(acquired))


def test_another_resource_stops_nothing(stage: Stage) -> None:
    """A later fence of another resource of the same coordinator is no reason to give a lease back."""
    hands = stage.begin(3)
    hands[0].let_go()
    hands[1].has_it()
    stage.clock.advance(0.05)
    assert stage.do(lambda hold: hold.lock("other", ttl=TTL).try_acquire()) is not None
    claims = len(stage.spy.of(Claim))
    hands[1].let_go()
    assert hands[2].has_it().state == "held" and len(stage.spy.of(Claim)) == claims
    assert [op.resource for op in stage.spy.of(Release)].count("job") == 1  # of the one that is not of the cohort


def test_a_guard_that_has_seen_a_later_fence(stage: Stage) -> None:
    """The fences that are left would all be refused: the next one claims, and is granted above."""
    hands = stage.begin(3)
    hands[0].let_go()
    lease = hands[1].has_it()
    guard = FenceGuard()
    seen = lease.fence + 10_000
    guard.check(seen, resource=lease.resource, owner="another")
    with pytest.raises(StaleOwner):
        guard.check(lease)
    hands[1].let_go()
    assert hands[2].has_it().fence > seen
    guard.check(hands[2].lease)
