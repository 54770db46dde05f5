"""The cohorts of one coordinator at work: who joins, who follows, and how one is woken (``_core/cohort.py`` decides).

A cohort begins when a claim has to wait in the store, and ends when nobody of it waits any more. So a lock that nobody
else wants costs nothing here. Whoever comes while there is a cohort joins it, in place of claiming.

A lease that was passed is registered by the thread or task that takes it up. Until then the watchdog knows of it
(``passing``) and does not renew it: one whose receiver never runs again ends by itself. Nobody waits without an end
either: each waiter looks now and then whether the one that it waits for is still there.

A lease that lingers belongs to no thread or task: its cohort keeps it, and the watchdog gives it back when its moment
is over, when the store says that somebody else wants it, and with ``close()``.
"""

from __future__ import annotations

import weakref
from collections.abc import Coroutine

from leasehold._core.claims import AcquireRequest, OwnLease
from leasehold._core.cohort import ASK, GIVE_BACK, KEEP, PASS, Cohort, Member, prepare
from leasehold._core.holding import ALIVE, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.rules import EXCLUSIVE
from leasehold._core.types import public_owner
from leasehold._runtime import thread_wakeup
from leasehold._runtime.engine import CLOSED, FORKED, Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.sync import warn_in_event_loop
from leasehold._runtime.task_wakeup import SharedTimer, TaskWakeup
from leasehold.errors import NotAcquired, StoreUnavailable

if TYPE_CHECKING:
    from leasehold._core.names import Name
    from leasehold._runtime.events import AcquireEvents
    from leasehold._runtime.options import Options
    from leasehold._runtime.registry import Attempt

__all__ = [
    "ASK",
    "Leadership",
    "LocalWaiter",
    "decide",
    "ended",
    "give_back_kept",
    "granted",
    "join",
    "leave",
    "lingers",
    "moment_over",
    "pass_on",
    "released",
    "reserve",
    "step_down",
    "wait_in_task",
    "wait_on_thread",
    "wanted_elsewhere",
]

LOOK_EVERY = 1.0  # seconds after which a waiter checks that somebody is ahead of it
SOON = 0.0  # in LOOK_EVERY from now, whenever that is
# A thread that is woken by a descriptor may run, and release, before the one that woke it is back in the queue. With
# fewer than these ahead of it nobody would be left to pass the lease to, and it would go back to the store.
ENOUGH_AHEAD = 2


# ---------------------------------------------------------------- waiters


class LocalWaiter(Member):
    """A thread or task that waits in a cohort."""

    __slots__ = ("_wakeup", "anchor", "cohort", "epoch", "give_up", "name", "options", "told_at")

    def __init__(
        self, cohort: LocalCohort, name: Name, options: Options, anchor: Any, give_up: float | None, epoch: int
    ) -> None:
        self.held: HeldLease | None = None
        self.leads = False
        self.cohort = cohort
        self.name = name
        self.options = options
        self.anchor = anchor
        self.give_up = give_up
        self.epoch = epoch  # of the engine
        self.told_at = 0.0  # when it became the leader
        self._wakeup = self._new_wakeup()

    def _new_wakeup(self) -> Any:
        """By which it is woken."""

    def decided(self) -> bool:
        """Has it got the lease, or is it to claim?"""
        return self.leads or self.held is not None

    def wake(self) -> None:
        self._wakeup.wake()

    def wait_left(self, engine: Engine) -> float | None:
        """How long it may still wait."""
        return None if self.give_up is None else max(self.give_up - engine.clock.now(), 0.001)

    def lead(self, engine: Engine, attempt: Attempt) -> None:
        """It is its turn to claim, and this is its attempt."""
        with engine.watchdog.transitions:
            if self.cohort.leader is self:
                attempt.request = attempt.request._replace(limit=self.cohort.fences_wanted())
                attempt.leads_on = weakref.ref(self.anchor)
                self.cohort.leader, attempt.cohort = attempt, self.cohort


class WaitingThread(LocalWaiter):
    """A thread."""

    __slots__ = ()

    def _new_wakeup(self) -> Any:
        enough = len(self.cohort.waiting) >= ENOUGH_AHEAD
        return thread_wakeup.take() if enough else thread_wakeup.LockWakeup()

    def wait(self, engine: Engine) -> HeldLease | None:
        held = wait_on_thread(engine, self)
        thread_wakeup.give_back(self._wakeup)
        return held

    def sleep(self, engine: Engine, until: float) -> None:
        self._wakeup.sleep(LOOK_EVERY if until == SOON else engine.clock.nap(until))

    def gone(self) -> bool:
        return not self.anchor.is_alive()


class WaitingTask(LocalWaiter):
    """A task, on the loop that runs it."""

    __slots__ = ()

    def _new_wakeup(self) -> Any:
        return TaskWakeup(self.anchor.get_loop())

    def wait(self, engine: Engine) -> Coroutine[Any, Any, HeldLease | None]:
        return wait_in_task(engine, self)

    def sleep(self, engine: Engine, until: float) -> Any:
        """Usually nothing happens but that it is woken, and a timer of its own would be made in vain."""
        if until != SOON and (pause := engine.clock.nap(until)) < LOOK_EVERY / 2:  # its wait is over before
            return self._wakeup.sleep(pause)
        return self._wakeup.sleep_with(self.cohort.timer(self._wakeup.loop))

    def gone(self) -> bool:
        return bool(self.anchor.done()) or self._wakeup.loop.is_closed()


_kinds: dict[type, type[LocalWaiter]] = {}  # by the type of thread or task


def _kind_of(anchor: object) -> type[LocalWaiter]:
    """gevent has threads of its own, and other loops have tasks of their own."""
    return _kinds.setdefault(type(anchor), WaitingTask if hasattr(anchor, "get_loop") else WaitingThread)


class LocalCohort(Cohort):
    """A cohort of threads and tasks. The steps of a turn are its methods, so that a lock which finds it needs nothing
    else."""

    __slots__ = ("_timers",)

    def __init__(self, key: tuple[Any, ...], leader: object) -> None:
        Cohort.__init__(self, key, leader)
        self._timers: dict[Any, SharedTimer] = {}  # of its tasks, by their loops

    def timer(self, loop: Any) -> SharedTimer:
        """That wakes its tasks on this loop now and then."""
        timer = self._timers.get(loop)
        if timer is None:
            timer = self._timers[loop] = SharedTimer(loop, LOOK_EVERY)
        return timer

    def join(
        self,
        engine: Engine,
        name: Name,
        wait: float | None,
        options: Options,
        anchor: Any,
        events: AcquireEvents | None,
        kind: type[LocalWaiter] | None = None,
    ) -> LocalWaiter | None:
        """A place in it; with what lingers, if something does. None where it is over, and for a caller that holds the
        resource already: the store's way of waiting says what is wrong with that. A single try never waits."""
        if engine.find_held(name.text, anchor) is not None and engine.own(name):
            return None
        give_up = None if wait is None else engine.clock.now() + wait
        kind = kind or _kinds.get(type(anchor)) or _kind_of(anchor)
        member = kind(self, name, options, anchor, give_up, engine.epoch)
        with engine.watchdog.transitions:
            if engine.closed or engine.cohorts.get(self.key) is not self:
                return None
            if self.kept is not None:
                member.held = self.take_kept(engine, name, options, anchor)
                return None if member.held is None else member
            if wait == 0:
                return None
            self.waiting.append(member)
            holder = self.holder
        if events is not None:
            events.contended_here("" if holder is None else public_owner(holder.owner))
        return member

    def pass_on(self, engine: Engine, held: HeldLease) -> bool:
        """A lease that its holder has done with goes to the next one who waits, or lingers. False: something else has
        to be done, or it has to be given back."""
        watchdog = engine.watchdog
        now = engine.clock.now()
        with watchdog.transitions:
            if self.holder is not held or engine.closed or held.revocation_requested():
                return False
            lingers = held.options.linger > 0 and may_linger(engine, held)
            decision = self.decide(held, now, engine.refused_for, lingers)
            if decision == KEEP:
                return self._keep_for_a_moment(engine, held, now)
            following = self.next_holder() if decision == PASS else None
            if following is None:
                return False
            member: Any = following[0]
            self._pass_to(engine, held, member, following[1], now)
            engine.unlist(held)
        held.drop_references()
        member.wake()  # last: what this thread still has to do would keep the other one from running
        return True

    def _pass_to(self, engine: Engine, held: HeldLease, member: LocalWaiter, fence: int, now: float) -> None:
        watchdog, follower = engine.watchdog, None
        try:
            follower = HeldLease(held.name, held, watchdog.transitions, member.options, member.anchor, now)
            held.pass_on(follower, engine.new_owner(), fence)
            if follower._rare is None:
                follower.bucket = held.bucket  # it has the same times
            follower.cohort, held.cohort = self, None
            watchdog.passing.add(follower)
            engine.passed(fence)
            self.holder = follower
            member.held = follower
        except BaseException:  # an interrupt: as if nothing had happened, and the caller gives it back
            if member.held is None:
                watchdog.passing.discard(follower)
                self.waiting.appendleft(member)
                held.cohort, self.holder = self, held
                held.take_back()
            raise

    def _keep_for_a_moment(self, engine: Engine, held: HeldLease, now: float) -> bool:
        try:
            self.lingers_until = min(now + held.options.linger, held.stop_at)
            held.keep()
            self.kept = held
            self.holder = held.cohort = None
        except BaseException:  # an interrupt, as above
            self.kept, self.holder, held.cohort = None, held, self
            held.take_back()
            raise
        engine.watchdog.linger(self)
        engine.unlist(held)
        held.drop_references()
        return True

    def take_kept(self, engine: Engine, name: Name, options: Options, anchor: Any) -> HeldLease | None:
        """What lingers goes to this thread or task, which is to register it. None: there is nothing, or it goes back to
        the store. The caller has the lock."""
        now = engine.clock.now()
        if not self.may_take(now, engine.refused_for):
            give_back_kept(engine, self)
            return None
        watchdog, kept = engine.watchdog, self.kept
        try:
            held = HeldLease(name, kept, watchdog.transitions, options, anchor, now)
            kept.pass_on(held, engine.new_owner(), self.take())
            if held._rare is None:
                held.bucket = kept.bucket  # it has the same times
            held.cohort, self.holder = self, held
            watchdog.passing.add(held)
            watchdog.lingering.discard(self)
            return held
        except BaseException:  # an interrupt: it lingers on
            watchdog.passing.discard(self.holder)
            self.holder, self.kept = None, kept
            watchdog.lingering.add(self)
            raise


# ---------------------------------------------------------------- joining and waiting


def key_of(request: AcquireRequest) -> tuple[object, ...] | None:
    """Locks with one key may pass a lease to each other. None for one that cannot: it holds beside others, does not
    renew, keeps a door closed, or needs more than the store's word for each grant."""
    special = request.at_least_ms or request.delay_ms or request.durability or not request.renews
    if special or request.rule not in EXCLUSIVE:
        return None
    return request.name.text, request.ttl_ms, request.meta, request.rule


def join(
    engine: Engine,
    request: AcquireRequest,
    options: Options,
    anchor: Any,
    events: AcquireEvents | None,
    kind: type[LocalWaiter] | None = None,
) -> LocalWaiter | None:
    """A place in the cohort of this process; None where there is none. ``kind``: another waiter than a thread or
    task."""
    key = key_of(request)
    cohort = None if key is None else engine.cohorts.get(key)
    if cohort is None:
        return None
    return cohort.join(engine, request.name, request.wait, options, anchor, events, kind)


def wait_on_thread(engine: Engine, member: Any) -> HeldLease | None:
    """Wait on the calling thread. What was passed to it; None: it is to claim."""
    if member.held is None and not member.leads:
        warn_in_event_loop(engine)
    while member.held is None and not member.leads:
        until = SOON if member.give_up is None and engine.clock.goes_on else _wait_until(engine, member)
        member.sleep(engine, until)
        if member.held is None:
            _look(engine, member, until)
    return _take(engine, member)


async def wait_in_task(engine: Engine, member: Any) -> HeldLease | None:
    """The same in the running task."""
    while member.held is None and not member.leads:
        until = SOON if member.give_up is None and engine.clock.goes_on else _wait_until(engine, member)
        await member.sleep(engine, until)
        if member.held is None:
            _look(engine, member, until)
    return _take(engine, member)


def _wait_until(engine: Engine, member: LocalWaiter) -> float:
    """When to look next, where SOON will not do: in the usual case nobody has to read a clock for that."""
    look_at = engine.clock.now() + LOOK_EVERY
    return look_at if member.give_up is None else min(look_at, member.give_up)


def _look(engine: Engine, member: LocalWaiter, until: float) -> None:
    """It was woken, or nothing has happened for a while."""
    if engine.epoch != member.epoch:
        raise StoreUnavailable(FORKED)
    if engine.closed:
        raise StoreUnavailable(CLOSED)
    now = engine.clock.now()
    if member.decided() or now < until:
        return
    if member.give_up is not None and now >= member.give_up:
        with engine.watchdog.transitions:
            if not member.decided():
                _remove(member)
                raise _not_acquired(engine, member)
        return
    _check(engine, member, now)


def _check(engine: Engine, member: LocalWaiter, now: float) -> None:
    """Is somebody ahead who will wake it? An interrupt of another thread may have lost the leader, or this member."""
    cohort = member.cohort
    leader, holder = cohort.leader, cohort.holder
    if holder is not None:
        if holder.settle(now) not in ALIVE:  # one that was passed to somebody who never took it up is in no round
            ended(engine, holder)
    elif not _leads(engine, leader, now):
        step_down(engine, cohort, leader)
    with engine.watchdog.transitions:
        if not member.decided() and member not in cohort.waiting:
            member.leads = True


def _leads(engine: Engine, leader: Any, now: float) -> bool:
    """Is the leader at work? One whose loop was closed in the middle of its claim never ends it."""
    if isinstance(leader, LocalWaiter):
        return now < leader.told_at + LOOK_EVERY
    return leader in engine.pending and not _ended(leader.leads_on())


def _ended(anchor: Any) -> bool:
    """Does this thread or task never run again?"""
    if anchor is None or not hasattr(anchor, "get_loop"):
        return anchor is None or not anchor.is_alive()
    return bool(anchor.done() or anchor.get_loop().is_closed())


def _take(engine: Engine, member: LocalWaiter) -> HeldLease | None:
    """What was passed to this member, unless its time is over by now: then it is the next to claim."""
    held: HeldLease | None = member.held
    if held is None or held.settle(engine.clock.now()) in ALIVE:
        return held
    cohort = member.cohort
    with engine.watchdog.transitions:
        engine.watchdog.passing.discard(held)
        held.cohort = None
        if cohort.holder is held:
            cohort.holder, cohort.leader, member.told_at = None, member, engine.clock.now()
        member.held, member.leads = None, True
    return None


def _remove(member: LocalWaiter) -> None:
    if member in member.cohort.waiting:
        member.cohort.waiting.remove(member)


def _not_acquired(engine: Engine, member: LocalWaiter) -> NotAcquired:
    """The error of a wait that is over."""
    held, name = member.cohort.holder, member.name
    left = 0.0 if held is None else max(held.deadline - engine.clock.now(), 0.0)
    holder = None if held is None else public_owner(held.owner)
    by = f"held by {holder}, which is this process" if holder else "not free, and others of this process came first"
    return NotAcquired(f"{name.label} is {by}", holder=holder, retry_in=left, resource=name.text)


def leave(engine: Engine, member: LocalWaiter) -> HeldLease | None:
    """It has failed, or was interrupted. Returns a lease that was passed to it, and is to be given back."""
    with engine.watchdog.transitions:
        _remove(member)
    step_down(engine, member.cohort, member)
    held: HeldLease | None = member.held
    return held


# ---------------------------------------------------------------- leading


class Leadership:
    """What the flow of an acquire asks when its claim has to wait: what its caller holds. From then on others of this
    process wait behind it."""

    __slots__ = ("_attempt", "_engine")

    def __init__(self, engine: Engine, attempt: Attempt) -> None:
        self._engine = engine
        self._attempt = attempt

    def own(self, name: Name) -> list[OwnLease]:
        """As of the engine."""
        own = self._engine.own(name)
        if not own:
            self._begin()
        return own

    def _begin(self) -> None:
        """Its attempt leads a cohort, unless there is one that it was too early to join."""
        engine, attempt = self._engine, self._attempt
        if attempt.cohort is not None or not engine.store.capabilities.reservations:
            return
        key = key_of(attempt.request)
        if key is not None and key not in engine.cohorts:
            with engine.watchdog.transitions:
                if key not in engine.cohorts and not engine.closed:
                    attempt.leads_on = weakref.ref(engine.caller())
                    attempt.cohort = engine.cohorts[key] = LocalCohort(key, attempt)


def granted(engine: Engine, attempt: Attempt, held: HeldLease, grant: LocalGrant) -> None:
    """The leader has got the lease. It may pass to others from now on."""
    cohort = attempt.cohort
    with engine.watchdog.transitions:
        if cohort is not None and cohort.leader is attempt:
            cohort.granted(held, grant.last_fence, grant.at)
            held.cohort = cohort


def step_down(engine: Engine, cohort: LocalCohort, leader: object) -> None:
    """The leader's claim came to nothing: the next one claims."""
    with engine.watchdog.transitions:
        member = _follow(engine, cohort) if cohort.leader is leader and cohort.holder is None else None
    if member is not None:
        member.wake()


def ended(engine: Engine, held: HeldLease) -> None:
    """The lease of a cohort is over, and was not passed on: the next one claims."""
    with engine.watchdog.transitions:
        cohort, held.cohort = held.cohort, None
        member = _follow(engine, cohort) if cohort is not None and cohort.holder is held else None
    if member is not None:
        member.wake()


def _follow(engine: Engine, cohort: LocalCohort) -> Member | None:
    member = cohort.next_leader()
    if isinstance(member, LocalWaiter):
        member.told_at = engine.clock.now()
    elif engine.cohorts.get(cohort.key) is cohort:
        del engine.cohorts[cohort.key]
    return member


# ---------------------------------------------------------------- passing on


def lingers(engine: Engine, held: HeldLease) -> None:
    """A lease that may linger is done with: it has a cohort from here on, if it can have one."""
    options = held.options
    key = (held.name.text, options.ttl_ms, options.meta_text, held.rule)
    if held.rule in EXCLUSIVE and key not in engine.cohorts:
        with engine.watchdog.transitions:
            if key not in engine.cohorts and not engine.closed and held.phase in ALIVE:
                cohort = engine.cohorts[key] = LocalCohort(key, None)
                cohort.granted(held)
                held.cohort = cohort


def may_linger(engine: Engine, held: HeldLease) -> bool:
    """Was it asked to? And can the store tell of claims by now, if it ever can?"""
    watchdog = engine.watchdog
    return held.options.linger > 0 and (watchdog.holder_pushes is None or watchdog.hears())


def decide(engine: Engine, held: HeldLease) -> str:
    """What to do with a lease of a cohort that its holder has done with; empty: give it back."""
    cohort = held.cohort
    if cohort is None or held.revocation_requested() or engine.closed:
        return ""
    decision = cohort.decide(held, engine.clock.now(), engine.refused_for, may_linger(engine, held))
    return "" if decision == GIVE_BACK else decision


async def reserve(engine: Engine, held: HeldLease) -> bool:
    """The flow that asks the store for fences. False: give it back."""
    cohort = held.cohort
    if cohort is None:
        return False
    now, floor = engine.clock.now(), lambda: engine.refused_for
    return await prepare(cohort, held, now, floor, may_linger(engine, held), engine.watchdog.hears())


def pass_on(engine: Engine, held: HeldLease) -> bool:
    """Pass it to the next one who waits, or keep it here for a moment. False: it has to be given back."""
    return held.cohort is not None and held.cohort.pass_on(engine, held)


# ---------------------------------------------------------------- lingering


def give_back_kept(engine: Engine, cohort: LocalCohort) -> None:
    """What lingers goes back to the store, in the background."""
    watchdog = engine.watchdog
    with watchdog.transitions:
        ends = cohort.kept is not None
        watchdog.give_back_kept(cohort)
        if ends:
            _follow(engine, cohort)  # nobody waits where something lingers


def moment_over(engine: Engine, cohort: LocalCohort) -> None:
    """What lingers has done so for long enough, unless it was taken up again meanwhile."""
    with engine.watchdog.transitions:
        if cohort.kept is not None and cohort.lingers_until <= engine.clock.now():
            give_back_kept(engine, cohort)


def wanted_elsewhere(engine: Engine, cohort: LocalCohort) -> None:
    """A claim of somebody else waits in the store."""
    with engine.watchdog.transitions:
        cohort.wanted_elsewhere()
        kept = cohort.kept is not None
    if kept:
        give_back_kept(engine, cohort)


def released(engine: Engine, held: HeldLease) -> None:
    """A release is over, however it ended."""
    if held.cohort is not None and held.phase not in ALIVE:
        ended(engine, held)
