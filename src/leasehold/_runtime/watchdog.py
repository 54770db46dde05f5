"""The watchdog: one thread for each coordinator that renews every lease of the process, reports losses, and sends
deferred ops. It is a thread also for asyncio, so that a blocked event loop keeps its leases (trap 4).

A round: read which leases were dropped, check the leases whose moment has come (``schedule``), renew what is due
(``renewal_round``), send deferred ops. Between rounds it sleeps until the next moment. The thread starts with the first
lease.

Each coordinator has a thread and a connection of its own: a store that hangs delays no other coordinator. Within one,
no request takes longer than its budget, nor longer than the other leases of the coordinator can wait.

It can be woken from anywhere: from a signal handler, from a weak reference's callback, inside any lock. So what it gets
goes through a deque and a wakeup, and its locks can be entered again by the thread that holds them.
"""

from __future__ import annotations

import threading

from leasehold._core.holding import ALIVE, LOST, NEVER, UNSURE
from leasehold._core.light_typing import TYPE_CHECKING, Callable, Iterable, Sequence
from leasehold._core.ops import Defer, Released
from leasehold._core.types import owner_digest
from leasehold._runtime.background import NOW, BackgroundOp, BackgroundOps, OnReply
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.renewal_round import RenewalRound
from leasehold._runtime.schedule import FEW, Schedule, early
from leasehold._runtime.wakeups import DroppedLeases
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe import log
from leasehold.observe.observers import Observers

if TYPE_CHECKING:
    from leasehold._core.ops import Push
    from leasehold._core.ports import Store
    from leasehold._runtime.cohorts import LocalCohort
    from leasehold._runtime.events import LeaseEvents

AWAKE = NOW
SHORTEST_TRY, LONGEST_TRY = 0.02, 0.5  # seconds for one try of the deferred ops
LONGEST_NAP = 3600.0
CHECK_EXPIRING = 0.1  # seconds between checks whether a thread or task that dropped its lease has ended
AFTER_ERROR = 0.1  # seconds: an error in each round must not fill the log and the processor
NEAR = 4 * LONGEST_TRY  # seconds: a lease that must stop later shortens no try, and no renewal of others


class Watchdog:
    """Renews the leases of one coordinator, and declares their loss."""

    def __init__(self, store: Store, observers: Observers) -> None:
        self._store = store
        self._observers = observers
        self._clock = store.clock
        self.on_unusable: Callable[[HeldLease], None] = lambda held: None  # the program can no longer use it
        self.on_cohort_ended: Callable[[HeldLease], None] = lambda held: None  # others of this process wait for it
        self.on_kept: Callable[[LocalCohort, bool], None] = lambda cohort, wanted: (
            None
        )  # its moment is over, or it is wanted
        self.on_dismissed: Callable[[], None] = lambda: None
        self._begin()

    def _begin(self) -> None:
        self.transitions = threading.RLock()  # every change of a holding's phase
        self.holder_pushes = self._store.holder_pushes()
        self.dropped = DroppedLeases(self.holder_pushes)
        self._starting = threading.RLock()
        self._rounds = threading.RLock()  # one at a time: after round() all losses are reported
        self._paused = False
        self._schedule = Schedule()
        self.passing: set[HeldLease] = set()  # passed to a thread or task that has not taken them up: not renewed
        self.lingering: set[LocalCohort] = set()  # each keeps a lease that nobody holds: not renewed
        self._expiring: set[HeldLease] = set()  # dropped while their thread or task still runs
        self._background_ops = BackgroundOps(self._store)
        self._missed: list[BackgroundOp] = []  # the thread was sending these when everything was given back
        self._thread: threading.Thread | None = None
        self._runs: list[threading.Thread] = []  # the first of them runs
        self._made_of = threading.Lock
        self._wake_at = AWAKE  # until when the thread sleeps; AWAKE while it does not
        self._requested_at = NEVER  # when a thread last wanted it awake, also for a lease that is gone by now
        self._stopped = False  # end now
        self._dismissed = False  # end when nothing is left to do

    # ------------------------------------------------------------ called from anywhere

    def add(self, held: HeldLease) -> None:
        """Renew this lease from now on. The caller has the lock ``transitions``."""
        if self.passing:
            self.passing.discard(held)
        moment = self._schedule.add(held)
        if moment < self._wake_at or self._thread is None:  # usually it wakes in time anyway
            self._wake(moment)

    def remove(self, held: HeldLease) -> None:
        """It was given back. The thread is not woken: the next round simply does not find it."""
        held.bucket.discard(held)
        if self.passing:
            self.passing.discard(held)

    def check_again(self, held: HeldLease) -> None:
        """Its times have changed."""
        with self.transitions:
            moment = self._schedule.move([held], self._clock.now())
        self._wake(moment)

    def linger(self, cohort: LocalCohort) -> None:
        """It keeps a lease for a moment. The caller has the lock ``transitions``."""
        self.lingering.add(cohort)
        if cohort.lingers_until < self._wake_at:
            self._wake(cohort.lingers_until)

    def give_back_kept(self, cohort: LocalCohort) -> None:
        """What it keeps goes back to the store. The caller has the lock ``transitions``."""
        kept = cohort.kept
        self.lingering.discard(cohort)
        release = cohort.release_kept()
        if kept is not None and release is not None:
            self.run_later(Defer(release, kept.ttl_ms / 1000))

    def run_later(self, deferred: Defer, on_reply: OnReply | None = None) -> None:
        """Send this in the background, soon; ``on_reply`` is called with its outcome."""
        self._background_ops.add(deferred, on_reply)
        try:
            self._wake(NOW)
        except StoreUnavailable:  # no thread can be started: then this one does it
            self._background_ops.run(int(LONGEST_TRY * 1000))

    def postpone(self, deferred: Defer) -> None:
        """Send this with the next round, or when everything is given back."""
        self._background_ops.add(deferred)

    def hears(self) -> bool:
        """Does it learn at once what the store pushes?"""
        return self.dropped.listens()

    def leases(self) -> list[HeldLease]:
        with self.transitions:
            return [*self._schedule.leases(), *self.passing]

    def _wake(self, at: float) -> None:
        """To be called after the work was recorded: see _sleep. A caller that finds the thread just being started wakes
        it, too."""
        if self._thread is None:
            self._start()
        if at < self._wake_at:
            self._requested_at = at
            self.dropped.wake()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None or self._stopped:
                return
            if self._made_of is not threading.Lock:  # gevent patched the process, as gunicorn's worker does
                self._made_of = threading.Lock
                self.dropped = DroppedLeases(self.holder_pushes)  # the wakeup made before would block every greenlet
            thread = threading.Thread(target=self._run, name="leasehold-watchdog", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StoreUnavailable(f"no thread can be started to renew leases: {error}") from error
            if self._thread is None:
                self._thread = thread

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        self._runs.append(threading.current_thread())
        if self._runs[0] is not threading.current_thread():  # an interrupt hid from its starter that one had begun
            return
        self._thread = self._runs[0]
        while not self._over():
            try:
                self._sleep()
                self.round()
            except Exception as error:  # a bug here must not end every lease of the process
                log.warn("the watchdog had an error and goes on: %r", error, error=error)
                self.dropped.wait(AFTER_ERROR)
        self._try_missed()  # first: a store may send over the connection that its pushes arrive on
        if self.holder_pushes is not None:  # this thread opened it
            self.holder_pushes.close()
        if self._dismissed:
            self.give_up()
            self.on_dismissed()

    def _sleep(self) -> None:
        """Sleep until the first lease needs a check, or until woken. Other threads add their work first and then read
        ``_wake_at``: it is NEVER while this thread reads the work, so that they wake it and neither misses the
        other."""
        self._wake_at = NEVER
        self._wake_at = wake_at = min(self.next_at(), self._requested_at)
        pause = LONGEST_NAP if self._paused else min(self._clock.nap(wake_at), LONGEST_NAP)
        if self._expiring:
            pause = min(pause, CHECK_EXPIRING)
        if pause > 0 and not self._over():
            self.dropped.wait(pause)
        self._wake_at = AWAKE
        if self._clock.now() >= self._requested_at:
            self._requested_at = NEVER

    def _over(self) -> bool:
        return self._stopped or (self._dismissed and not self._background_ops and not self.lingering)

    def round(self) -> None:
        """One round. Public for tests that turn the clock and cannot wait for the thread."""
        with self._rounds:
            if not self._paused:
                self._round()

    def next_at(self) -> float:
        """When a lease or a deferred op is due; for such tests, too."""
        with self.transitions:
            first = min([cohort.lingers_until for cohort in self.lingering], default=NEVER)
            first = min(first, self._schedule.next_at())
        return min(first, self._background_ops.next_at())

    def pause(self, paused: bool = True) -> None:
        """Do no round until ``pause(False)``: a test plays a process that is stopped."""
        with self._rounds:  # one that is under way ends first
            self._paused = paused
        self.dropped.wake()

    def _round(self) -> None:
        self._check_dropped()
        self._read_pushes()
        now = self._clock.now()
        if self.lingering:
            self._give_back_lingering(now)
        due, over, others = [], [], []
        checked = self._until(now)
        if checked:  # and what may be renewed already: leases that fall due one after the other travel together
            checked = self._until(now + max(early(max([held.ttl_ms for held in checked])), NEAR))
        ttl_ms, soon = 0, now
        for held in checked:
            if held.ttl_ms != ttl_ms:  # most have the same
                ttl_ms = held.ttl_ms
                soon = now + early(ttl_ms)
            if held.settle(now) not in ALIVE:
                self.remove(held)
                if self._notify_loss(held):
                    over.append(held)
            elif held.renew_at <= soon and (held.usable() or self._still_wanted(held)):
                due.append(held)
            else:
                others.append(held)
        self._file_again(checked, self._renew(due, others))
        for held in over:  # observers after the renewals: a slow one must not cost others their leases
            self._report_loss_to_observers(held)
        if self._background_ops:
            self._background_ops.run(self._spare_ms())
        self._read_pushes()  # a push that came together with a reply wakes nothing

    def _give_back_lingering(self, now: float) -> None:
        """What has lingered for long enough; all of it when the program has dropped the coordinator."""
        for cohort in list(self.lingering):
            if self._dismissed:
                with self.transitions:
                    self.give_back_kept(cohort)
            elif cohort.lingers_until <= now:
                self.on_kept(cohort, False)

    def _until(self, moment: float) -> list[HeldLease]:
        with self.transitions:
            return self._schedule.until(moment)

    def _file_again(self, checked: list[HeldLease], renewed: dict[int, list[HeldLease]]) -> None:
        """The lock is free again after each few of them: a thread may wait to give one back."""
        now = self._clock.now()
        for ttl_ms, leases in renewed.items():
            together = set(leases)
            with self.transitions:
                bucket = self._schedule.move_together(together, ttl_ms, leases[0].renew_at, now)
            checked = [held for held in checked if held.bucket is not bucket]
        for start in range(0, len(checked), FEW):
            with self.transitions:
                self._schedule.move(checked[start : start + FEW], now)
        with self.transitions:
            self._schedule.tidy(now)

    def report_loss(self, held: HeldLease) -> None:
        """Notify listeners and observers of its loss, once (trap 1)."""
        if held.phase != LOST:
            return
        self.remove(held)
        if self._notify_loss(held):
            self._report_loss_to_observers(held)

    def _notify_loss(self, held: HeldLease) -> bool:
        """The work learns of it, and then those who wait for the same. True for the caller that told them."""
        told = held.notify_loss()
        if held.cohort is not None:
            self.on_cohort_ended(held)
        return told

    def _report_loss_to_observers(self, held: HeldLease) -> None:
        if self._observers.active() or held.reason not in log.INTENDED or held.unguarded():
            self.lease_events().lost(held)

    def report_release(self, held: HeldLease, ours: bool) -> None:
        """It was given back, in time or not. Observers that did not see its beginning do not see its end."""
        if held.number:
            self.lease_events().released(held, ours)
        elif held.unguarded():
            self.lease_events().unguarded(held)

    def lease_events(self) -> LeaseEvents:
        """For observers. Loaded when there are any, or for an event that is logged in any case."""
        from leasehold._runtime.events import LeaseEvents

        return LeaseEvents(self._observers, self._clock, self._store.name)

    def _spare_ms(self) -> int:
        """How long deferred ops may take: never so long that a lease is lost meanwhile."""
        first = min([held.stop_at for held in self._until(self._clock.now() + NEAR)], default=NEVER)
        spare = (first - self._clock.now()) / 4
        return int(min(max(spare, SHORTEST_TRY), LONGEST_TRY) * 1000)

    # ------------------------------------------------------------ renewing

    def _renew(self, due: list[HeldLease], others: Sequence[HeldLease] = ()) -> dict[int, list[HeldLease]]:
        """Renew what is due; ``others`` are leases that may need this thread meanwhile. Returns what only has to be
        filed again, by its ttl."""
        if not due:
            return {}
        self._draw()
        observed = self._observers.active()
        renewals = RenewalRound(self._store, self.transitions, observed)
        renewals.renew(due, others)
        over = [
            held for held in due if held.phase == LOST and self._notify_loss(held)
        ]  # the work first, then observers
        for held, error in renewals.failed:
            if held.phase in (UNSURE, LOST):
                self.lease_events().not_renewed(held, error)
        if observed:
            self._report_renewed(renewals)
        for held in over:
            self.remove(held)
            self._report_loss_to_observers(held)
        return renewals.steady

    def _draw(self) -> None:
        with self.transitions:
            self._schedule.draw()

    def _report_renewed(self, renewals: RenewalRound) -> None:
        """A lease that was given back meanwhile is not reported any more (trap 43)."""
        lease_events = self.lease_events()
        for held, slack in renewals.renewed:
            if held.phase in ALIVE:
                lease_events.renewed(held, slack)
        for held, reply in renewals.refused:
            if held.phase == LOST:
                lease_events.not_renewed(held, reply)

    # ------------------------------------------------------------ leases that the program cannot use

    def _check_dropped(self) -> None:
        for held in list(self._expiring):
            if held.phase not in ALIVE or held.caller_ended():
                self._expiring.discard(held)
                if held.phase in ALIVE:
                    self._still_wanted(held)
        for held in self.dropped.read():
            if held.phase in ALIVE:
                self._still_wanted(held)
            elif not held.bodies:
                self.on_unusable(held)
                self._give_back_rest(held)

    def _read_pushes(self) -> None:
        """Apply what the store pushes about leases of ours, before a renewal would find out."""
        pushes = list(self.holder_pushes.read()) if self.holder_pushes is not None else []
        if pushes:
            for push, kept, leases in self._of_pushes(pushes):
                self._apply(push, kept, leases)

    def _of_pushes(self, pushes: list[Push]) -> list[tuple[Push, list[LocalCohort], list[HeldLease]]]:
        """What lingers, and what is held, of that which each push names: one look over all of it, for many pushes."""
        fences = {push.fence for push in pushes}
        kept: dict[int, list[LocalCohort]] = {}
        held: dict[int, list[HeldLease]] = {}
        with self.transitions:  # a lease that is held may begin to linger
            for cohort in self.lingering:
                if cohort.kept is not None and (fence := cohort.kept.in_store()[1]) in fences:
                    kept.setdefault(fence, []).append(cohort)
            for lease in self.leases():
                if (fence := lease.in_store()[1]) in fences:
                    held.setdefault(fence, []).append(lease)
            return [
                (
                    push,
                    [one for one in kept.get(push.fence, ()) if _means(push, *one.kept.in_store())],
                    [one for one in held.get(push.fence, ()) if _means(push, *one.in_store())],
                )
                for push in pushes
            ]

    def _apply(self, push: Push, kept: list[LocalCohort], leases: list[HeldLease]) -> None:
        for cohort in kept:
            self.on_kept(cohort, True)  # also after a request of an operator, and an eviction
        for held in leases:
            if push.event == "evicted":
                held.refused(push.event)
                self.report_loss(held)
            elif push.event == "revoke":
                held.revoke()
            elif push.event == "wanted":
                known = held.cohort or self._cohort_of(push)
                if known is not None:
                    self.on_kept(known, True)

    def _cohort_of(self, push: Push) -> LocalCohort | None:
        """That of a lease which was passed on, or began to linger, since it was looked for."""
        _, kept, leases = self._of_pushes([push])[0]
        return next((one for one in [*kept, *[held.cohort for held in leases]] if one is not None), None)

    def _still_wanted(self, held: HeldLease) -> bool:
        """Can the program use it (trap 3)? A lease that its thread or task left behind is given back; one that was only
        dropped is left to expire, because the work that it protected may still be going on."""
        if held.usable():
            return True
        self.on_unusable(held)
        if held.caller_ended() or (held.bodies and held.lease() is None):
            self.remove(held)
            if held.bodies:  # a body that goes on elsewhere, such as a generator's, must learn of it
                held.lose("closed")
                self.report_loss(held)
            release = held.begin_release(self._clock.now())
            if release is not None:
                self._background_ops.add(Defer(release, held.ttl_ms / 1000), self.release_reporter(held))
            if held.cohort is not None:
                self.on_cohort_ended(held)
        elif held not in self._expiring:  # it may have had several Lease objects, one after the other
            held.renew_at = NEVER
            self._expiring.add(held)  # a task is done a moment after its frame is gone
            _warn_abandoned(held)
        return False

    def _give_back_rest(self, held: HeldLease) -> None:
        """A lease that was lost for a reason of this process may still be ours in the store; its work has stopped."""
        release = held.begin_release(self._clock.now()) if held.left_behind else None
        if release is not None:
            self._background_ops.add(Defer(release, held.ttl_ms / 1000))

    def release_reporter(self, held: HeldLease) -> OnReply | None:
        """A callback that reports the outcome of giving it back; None when no observer needs it."""
        if not self._observers.active() and not held.unguarded():
            return None
        lease_events = self.lease_events()
        return lambda reply: lease_events.released(
            held, None if isinstance(reply, LeaseholdError) else isinstance(reply, Released)
        )

    # ------------------------------------------------------------ the end

    def give_back(self, leases: Iterable[HeldLease], reason: str) -> None:
        """End these leases and release them, in one batch; deferred ops get a last try."""
        now = self._clock.now()
        over = []
        try:
            for held in leases:
                held.lose(reason)
                release = held.begin_release(now)
                if release is not None:
                    self._background_ops.add(Defer(release, 0))
                if self._notify_loss(held):
                    over.append(held)
                self.remove(held)  # last: after an interrupt this begins again
            self._missed += self._background_ops.make_due()
            self._background_ops.run(int(LONGEST_TRY * 1000))
        finally:
            for held in over:  # after all are given back: a slow observer must not delay that
                self._report_loss_to_observers(held)

    def stop(self) -> None:
        """End the thread, and wait for it unless it is the calling one."""
        self._stopped = True
        self.dropped.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def give_up(self) -> None:
        """Leases that are not given back by now are left to expire."""
        for held in self.leases():
            held.lose("closed")
            self.report_loss(held)
        self._background_ops.give_up(StoreUnavailable("the coordinator is closed"))

    def finish(self) -> None:
        """The process ends, and the thread with it: the unfinished work of a dropped coordinator is done now."""
        if self._dismissed:
            self.give_back(self.leases(), "closed")
            self._try_missed()

    def _try_missed(self) -> None:
        self._background_ops.retry_missed(self._missed, int(LONGEST_TRY * 1000))

    def dismiss(self) -> None:
        """The coordinator was dropped without close(): end when all deferred ops are done. Called by the garbage
        collector."""
        self._dismissed = True
        self.dropped.wake()

    def forked(self) -> None:
        """In a forked child: the thread is gone, its locks may be held by threads that do not exist here, the leases
        are the parent's."""
        lost = [*self._schedule.leases(), *self.passing]
        self._begin()
        for held in lost:
            held.forked(self.transitions)


def _means(push: Push, owner: str, fence: int) -> bool:
    return fence == push.fence and owner_digest(owner) == owner_digest(push.owner)


def _warn_abandoned(held: HeldLease) -> None:
    import warnings

    message = f"a lease on {held.name.label} was dropped without release(): it is no longer renewed and will expire"
    try:
        warnings.warn(message, ResourceWarning, stacklevel=2)
    except ResourceWarning:  # warnings are errors here, and this thread has no caller to raise them to
        log.warn(message)
