"""The watchdog: one thread for each coordinator that renews every lease of the process, tells of losses, and does
what was left for later. It is a thread also for asyncio, so that a blocked event loop keeps its leases (trap 4).

A round: hear who was abandoned, apply the clock to every lease, renew what is due in one batch, run errands. Between
rounds it sleeps until the first lease needs it. The thread starts with the first lease.

It can be roused from anywhere: from a signal handler, from a weak reference's callback, inside any lock. So what it is
told goes through a SimpleQueue and a bell, and its locks can be entered again by the thread that holds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from leasehold._core.flows import apply_replies, due_renewals
from leasehold._core.holding import ALIVE, LOST, NEVER, UNSURE
from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Defer, NotYours, Released, Renew, Renewed, Reply
from leasehold._core.policy import margin
from leasehold._core.ports import Store
from leasehold._runtime.background import NOW, BackgroundOp, BackgroundOps, OnReply
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.wakeups import DroppedLeases
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe import log
from leasehold.observe.observers import Observers

if TYPE_CHECKING:
    from leasehold._runtime.events import LeaseEvents

AWAKE = NOW
SHORTEST_ERRAND, LONGEST_ERRAND = 0.02, 0.5  # seconds for one try
LONGEST_NAP = 3600.0
LOOK_AGAIN = 0.1  # seconds, whether a thread or task that dropped its lease has ended
AFTER_ERROR = 0.1  # it must not fill the log and the processor
SLICE = 256  # leases that change together under the lock


class Watchdog:
    """Looks after the leases of one coordinator."""

    def __init__(self, store: Store, observers: Observers) -> None:
        self._store = store
        self._observers = observers
        self._clock = store.clock
        self.on_unusable: Callable[[HeldLease], None] = lambda held: None  # nobody can use it any more
        self.on_dismissed: Callable[[], None] = lambda: None
        self._begin()

    def _begin(self) -> None:
        self.transitions = threading.RLock()  # every change of a holding's phase
        self.holder_pushes = self._store.holder_pushes()
        self.dropped = DroppedLeases(self.holder_pushes)
        self._starting = threading.RLock()
        self._rounds = threading.RLock()  # one at a time: when round() returns, what the thread found is told, too
        self._paused = False
        self._held: set[HeldLease] = set()
        self._expiring: set[HeldLease] = set()  # nobody refers to them, but their thread or task is there
        self._background_ops = BackgroundOps(self._store)
        self._missed: list[BackgroundOp] = []  # the thread was trying these when everything was given back
        self._thread: threading.Thread | None = None
        self._runs: list[threading.Thread] = []  # the first of them does
        self._made_of = threading.Lock
        self._wake_at = AWAKE  # until when the thread sleeps; AWAKE while it does not
        self._requested_at = NEVER  # and when it was last asked to look, also for a lease that is gone by now
        self._stopped = False  # end now
        self._dismissed = False  # end when nothing is left to do

    # ------------------------------------------------------------ called from anywhere

    def add(self, held: HeldLease) -> None:
        """Look after this lease from now on."""
        self._held.add(held)
        at = held.check_at()
        if at < self._wake_at or self._thread is None:  # mostly it will look in time anyway
            self._wake(at)

    def remove(self, held: HeldLease) -> None:
        """It was given back. Nobody is woken: the next round simply does not find it."""
        self._held.discard(held)

    def check_again(self, held: HeldLease) -> None:
        """Its times have changed."""
        self._wake(held.check_at())

    def run_later(self, later: Defer, done: OnReply | None = None) -> None:
        """Do this in the background, soon; ``done`` hears what came of it."""
        self._background_ops.add(later, done)
        try:
            self._wake(NOW)
        except StoreUnavailable:  # no thread can be started: then this one does it
            self._background_ops.run(int(LONGEST_ERRAND * 1000))

    def postpone(self, later: Defer) -> None:
        """Do this with the next round, or when everything is given back."""
        self._background_ops.add(later)

    def leases(self) -> list[HeldLease]:
        return list(self._held)

    def _wake(self, at: float) -> None:
        """After what there is to do was noted: see _sleep. Who finds the thread just being started rings, too."""
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
                self.dropped = DroppedLeases(self.holder_pushes)  # the bell of before would stop every greenlet
            thread = threading.Thread(target=self._run, name="leasehold-watchdog", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StoreUnavailable(f"no thread can be started to look after leases: {error}") from error
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
        self._try_missed()  # first: a store may send over the connection that its news come by
        if self.holder_pushes is not None:  # this thread opened it
            self.holder_pushes.close()
        if self._dismissed:
            self.give_up()
            self.on_dismissed()

    def _sleep(self) -> None:
        """Until the first lease needs a look, or somebody asks for one. Who adds something does so first and then looks
        at ``_wake_at``: while we look at what there is, everybody must ring, else both could miss each other."""
        self._wake_at = NEVER
        self._wake_at = wake_at = min(self.next_at(), self._requested_at)
        pause = LONGEST_NAP if self._paused else min(self._clock.nap(wake_at), LONGEST_NAP)
        if self._expiring:
            pause = min(pause, LOOK_AGAIN)
        if pause > 0 and not self._over():
            self.dropped.wait(pause)
        self._wake_at = AWAKE
        if self._clock.now() >= self._requested_at:
            self._requested_at = NEVER

    def _over(self) -> bool:
        return self._stopped or (self._dismissed and not self._background_ops)

    def round(self) -> None:
        """One round. Public for those who bring their own clock and cannot wait for the thread."""
        with self._rounds:
            if not self._paused:
                self._round()

    def next_at(self) -> float:
        """When there is something to do, a lease or an errand; for them, too."""
        first = min([held.check_at() for held in self.leases()], default=NEVER)
        return min(first, self._background_ops.next_at())

    def pause(self, paused: bool = True) -> None:
        """Take no round until this is taken back: a test plays a process that is stopped."""
        with self._rounds:  # one that is under way ends first
            self._paused = paused
        self.dropped.wake()

    def _round(self) -> None:
        self._check_dropped()
        self._read_pushes()
        now = self._clock.now()
        due, over = [], []
        for held in self.leases():
            if held.settle(now) not in ALIVE:
                self.remove(held)
                if held.notify_loss():
                    over.append(held)
            elif held.renew_at <= now + margin(held.ttl_ms / 1000) / 2:
                due.append(held)  # a little early, so that leases that fall due together travel together
        self._renew([held for held in due if held.usable() or self._still_wanted(held)])
        for held in over:  # observers after the renewals: a slow one must not cost others their leases
            self._report_loss(held)
        if self._background_ops:
            self._background_ops.run(self._spare_ms())
        self._read_pushes()  # what came beside a reply rings no bell

    def report_loss(self, held: HeldLease) -> None:
        """Its loss reaches everybody who must know, once (trap 1)."""
        if held.phase != LOST:
            return
        self.remove(held)
        if held.notify_loss():
            self._report_loss(held)

    def _report_loss(self, held: HeldLease) -> None:
        if self._observers.active() or held.reason not in log.INTENDED or held.unguarded():
            self.lease_events().lost(held)

    def report_release(self, held: HeldLease, ours: bool) -> None:
        """It was given back, in time or not. Who was not told of its beginning is not told of this."""
        if held.number:
            self.lease_events().released(held, ours)
        elif held.unguarded():
            self.lease_events().unguarded(held)

    def lease_events(self) -> LeaseEvents:
        """For those who listen. Loaded when there is somebody, or something that nobody may miss."""
        from leasehold._runtime.events import LeaseEvents

        return LeaseEvents(self._observers, self._clock, self._store.name)

    def _spare_ms(self) -> int:
        """How long errands may take: never so long that a lease is lost meanwhile."""
        first = min((held.stop_at() for held in self.leases()), default=NEVER)
        spare = (first - self._clock.now()) / 4
        return int(min(max(spare, SHORTEST_ERRAND), LONGEST_ERRAND) * 1000)

    # ------------------------------------------------------------ renewing

    def _renew(self, due: list[HeldLease]) -> None:
        """One batch. The lock is free again after each few of them: somebody may be waiting to give one back."""
        now = self._clock.now()
        asked: list[HeldLease] = []
        renews: list[Renew] = []
        for few in _slices(len(due)):
            some, theirs = due_renewals(due[few], now, self.transitions)
            asked += some
            renews += theirs
        stops = [held.stop_at() for held in asked] if self._observers.active() else []
        replies = self._store.execute_many(renews) if renews else []
        at = self._clock.now()
        unsure = []
        for few in _slices(len(asked)):
            unsure += apply_replies(asked[few], renews[few], now, replies[few], at, self.transitions)
        over = [
            held for held in due if held.phase == LOST and held.notify_loss()
        ]  # the work first, then who observes it
        for held, error in unsure:
            if held.phase in (UNSURE, LOST):
                self.lease_events().not_renewed(held, error)
        if stops:
            self._report_renewed(asked, replies, [stop - at for stop in stops])
        for held in over:
            self.remove(held)
            self._report_loss(held)

    def _report_renewed(
        self, asked: list[HeldLease], replies: list[Reply | LeaseholdError], slacks: list[float]
    ) -> None:
        """Of what was given back meanwhile nothing is told any more (trap 43)."""
        lease_events = self.lease_events()
        for held, reply, slack in zip(asked, replies, slacks, strict=True):
            if isinstance(reply, Renewed) and held.phase in ALIVE:
                lease_events.renewed(held, slack)
            elif isinstance(reply, NotYours) and held.phase == LOST:
                lease_events.not_renewed(held, reply)

    # ------------------------------------------------------------ what nobody can use

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
        """What the store tells of leases of ours, before a renewal would find out."""
        for push in self.holder_pushes.read() if self.holder_pushes is not None else ():
            for held in self.leases():
                if (held.owner, held.fence) != (push.owner, push.fence):
                    continue
                if push.event == "evicted":
                    held.refused(push.event)
                    self.report_loss(held)
                elif push.event == "revoke":
                    held.revoke()

    def _still_wanted(self, held: HeldLease) -> bool:
        """Can anybody use it (trap 3)? What its thread or task left behind is given back; what nobody refers to
        any more is let expire, because the work that it protected may still be going on somewhere."""
        if held.usable():
            return True
        self.on_unusable(held)
        if held.caller_ended() or (held.bodies and held.lease() is None):
            self.remove(held)
            if held.bodies:  # a body that goes on elsewhere, such as a generator's, must hear of it
                held.lose("closed")
                self.report_loss(held)
            release = held.begin_release(self._clock.now())
            if release is not None:
                self._background_ops.add(Defer(release, held.ttl_ms / 1000), self.release_reporter(held))
        elif held not in self._expiring:  # several Lease objects may have stood for it, one after the other
            held.renew_at = NEVER
            self._expiring.add(held)  # a task is done a moment after its frame has let go of everything
            _warn_abandoned(held)
        return False

    def _give_back_rest(self, held: HeldLease) -> None:
        """What was lost here for a reason of our own may still be ours in the store, and its work has stopped."""
        release = held.begin_release(self._clock.now()) if held.left_behind else None
        if release is not None:
            self._background_ops.add(Defer(release, held.ttl_ms / 1000))

    def release_reporter(self, held: HeldLease) -> OnReply | None:
        """Tells, later, what came of giving it back."""
        if not self._observers.active() and not held.unguarded():
            return None
        lease_events = self.lease_events()
        return lambda reply: lease_events.released(
            held, None if isinstance(reply, LeaseholdError) else isinstance(reply, Released)
        )

    # ------------------------------------------------------------ the end

    def give_back(self, leases: Iterable[HeldLease], reason: str) -> None:
        """End these leases and release them, in one batch; errands get a last try."""
        now = self._clock.now()
        over = []
        try:
            for held in leases:
                held.lose(reason)
                release = held.begin_release(now)
                if release is not None:
                    self._background_ops.add(Defer(release, 0))
                if held.notify_loss():
                    over.append(held)
                self.remove(held)  # last: should an interrupt make us begin again
            self._missed += self._background_ops.make_due()
            self._background_ops.run(int(LONGEST_ERRAND * 1000))
        finally:
            for held in over:  # when all are given back: a slow observer must not keep them
                self._report_loss(held)

    def stop(self) -> None:
        """End the thread; wait for it unless it is the one that asks."""
        self._stopped = True
        self.dropped.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def give_up(self) -> None:
        """What was not given back until now is left to its ttl."""
        for held in self.leases():
            held.lose("closed")
            self.report_loss(held)
        self._background_ops.give_up(StoreUnavailable("the coordinator is closed"))

    def finish(self) -> None:
        """The process ends, and would take the thread along: what a dropped coordinator has left to do is done now."""
        if self._dismissed:
            self.give_back(self.leases(), "closed")
            self._try_missed()

    def _try_missed(self) -> None:
        self._background_ops.retry_missed(self._missed, int(LONGEST_ERRAND * 1000))

    def dismiss(self) -> None:
        """The coordinator was dropped without close(): end when errands are done. Called by the garbage collector."""
        self._dismissed = True
        self.dropped.wake()

    def forked(self) -> None:
        """In a forked child: the thread is gone, its locks may be held by nobody, the leases are the parent's."""
        lost = self._held
        self._begin()
        for held in lost:
            held.forked(self.transitions)


def _slices(count: int) -> Iterator[slice]:
    for start in range(0, count, SLICE):
        yield slice(start, start + SLICE)


def _warn_abandoned(held: HeldLease) -> None:
    import warnings

    message = f"a lease on {held.name.kind} was dropped without release(): it is no longer renewed and will expire"
    try:
        warnings.warn(message, ResourceWarning, stacklevel=2)
    except ResourceWarning:  # warnings are errors here, and this thread has nobody to raise them to
        log.warn(message)
