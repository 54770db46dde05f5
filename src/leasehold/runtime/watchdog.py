"""The watchdog: one thread for each coordinator that renews every lease of the process, tells of losses, and does
what was left for later. It is a thread also for asyncio, so that a blocked event loop keeps its leases (trap 4).

A round: hear who was abandoned, apply the clock to every lease, renew what is due in one batch, do what was left
for later. Between rounds it sleeps until the first lease needs it. The thread starts with the first lease.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

from leasehold.core import flows
from leasehold.core.holding import ALIVE, LOST, NEVER
from leasehold.core.ops import Answer, Later, StoreOp
from leasehold.core.policy import margin
from leasehold.core.ports import Store
from leasehold.errors import LeaseholdError
from leasehold.observe import log
from leasehold.runtime.held import Held

AWAKE = float("-inf")
FIRST_RETRY, LAST_RETRY = 0.02, 1.0
SHORTEST_ERRAND, LONGEST_ERRAND = 0.02, 0.5  # seconds for one try
LONGEST_NAP = 60.0  # so that the thread of a coordinator that was dropped without close() ends some time


class Errand:
    """Something left for later, and when to try it next."""

    __slots__ = ("next_at", "op", "pause", "until")

    def __init__(self, later: Later, now: float) -> None:
        self.op = later.op
        self.until = now + later.seconds
        self.next_at = AWAKE
        self.pause = FIRST_RETRY


class Watchdog:
    """Looks after the leases of one coordinator."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock
        self.abandoned: SimpleQueue[Held] = SimpleQueue()
        self.on_gone: Callable[[Held], None] = lambda held: None  # nobody can use it any more
        self._held: set[Held] = set()
        self._errands: list[Errand] = []
        self._begin()

    def _begin(self) -> None:
        self.transitions = threading.Lock()  # every change of a holding's phase
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._wake_at = AWAKE  # until when the thread sleeps; AWAKE while it does not
        self._asked = NEVER  # and when it was last asked to look, also for a lease that is gone by now
        self._stopped = False  # end now
        self._dismissed = False  # end when nothing is left to do

    # ------------------------------------------------------------ called from anywhere

    def add(self, held: Held) -> None:
        """Look after this lease from now on."""
        with self._changed:
            self._held.add(held)
            self._rouse(held.look_at())

    def remove(self, held: Held) -> None:
        """It was given back. Nobody is woken: the next round simply does not find it."""
        with self._changed:
            self._held.discard(held)

    def look_again(self, held: Held) -> None:
        """Its times have changed."""
        with self._changed:
            self._rouse(held.look_at())

    def later(self, later: Later) -> None:
        """Do this in the background, soon."""
        with self._changed:
            self._errands.append(Errand(later, self._clock.now()))
            self._rouse(AWAKE)

    def all(self) -> list[Held]:
        with self._changed:
            return list(self._held)

    def _rouse(self, at: float) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="leasehold-watchdog", daemon=True)
            self._thread.start()
        elif at < self._wake_at:
            self._asked = at
            self._changed.notify()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while self._sleep():
            try:
                self.round()
            except Exception as error:  # a bug here must not end every lease of the process
                log.warn("the watchdog had an error and goes on: %r", error, error=error)

    def _sleep(self) -> bool:
        """Until the first lease needs a look, or somebody asks for one. False: it is the end."""
        with self._changed:
            self._wake_at = min(self._next_look(), self._asked)
            pause = self._clock.nap(self._wake_at)
            if pause > 0 and not self._over():
                self._changed.wait(min(pause, LONGEST_NAP))
            self._wake_at = AWAKE
            if self._clock.now() >= self._asked:
                self._asked = NEVER
            return not self._over()

    def _over(self) -> bool:
        return self._stopped or (self._dismissed and not self._errands)

    def _next_look(self) -> float:
        errand = min((errand.next_at for errand in self._errands), default=NEVER)
        return min(errand, min((held.look_at() for held in self._held), default=NEVER))

    def round(self) -> None:
        """One round. Public for those who bring their own clock and cannot wait for the thread."""
        self._hear_of_abandoned()
        now = self._clock.now()
        due = []
        for held in self.all():
            if held.settle(now) not in ALIVE:
                self.remove(held)
                self.tell(held)
            elif held.renew_at <= now + margin(held.ttl_ms / 1000) / 2:
                due.append(held)  # a little early, so that leases that fall due together travel together
        self._renew([held for held in due if self._still_wanted(held)])
        self._run_errands()

    def tell(self, held: Held) -> None:
        """Its loss reaches everybody who must know, once (trap 1)."""
        if held.phase != LOST:
            return
        self.remove(held)
        if held.tell():
            level = log.DEBUG if held.reason == "closed" else log.WARNING
            log.say(level, "lease_lost", held, reason=held.reason)

    # ------------------------------------------------------------ renewing

    def _renew(self, due: list[Held]) -> None:
        """One batch. Each lease has its own flow; the ops of all of them travel together."""
        now = self._clock.now()
        started = []
        for held in due:
            flow = flows.renew(held, now)
            try:
                started.append((held, flow, flow.send(None)))
            except StopIteration:
                self.tell(held)
        if not started:
            return
        replies = self._store.execute_many([op for _, _, op in started])
        at = self._clock.now()
        for (held, flow, _), reply in zip(started, replies, strict=True):
            try:
                if isinstance(reply, LeaseholdError):
                    log.say(log.WARNING, "lease_unsure", held, error=str(reply))
                    flow.throw(reply)
                else:
                    flow.send(Answer(reply, at))
            except StopIteration:
                log.say(log.DEBUG, "lease_renewed", held)
            self.tell(held)

    # ------------------------------------------------------------ what nobody can use

    def _hear_of_abandoned(self) -> None:
        while True:
            try:
                held = self.abandoned.get_nowait()
            except Empty:
                return
            if held.phase in ALIVE:
                self._still_wanted(held)
            elif not held.usable():
                self.on_gone(held)

    def _still_wanted(self, held: Held) -> bool:
        """Can anybody use it (trap 3)? What its thread or task left behind is given back; what nobody refers to
        any more is let expire, because the work that it protected may still be going on somewhere."""
        if held.usable():
            return True
        self.remove(held)
        self.on_gone(held)
        if held.finished():
            release = held.begin_release(self._clock.now())
            if release is not None:
                self.later(Later(release, held.ttl_ms / 1000))
        else:
            _warn_abandoned(held)
        return False

    # ------------------------------------------------------------ what was left for later

    def _run_errands(self) -> None:
        now = self._clock.now()
        with self._changed:
            due = [errand for errand in self._errands if errand.next_at <= now]
        if not due:
            return
        budget_ms = self._spare_ms(now)
        ops: list[StoreOp] = [errand.op._replace(budget_ms=budget_ms) for errand in due]
        replies = self._store.execute_many(ops)
        now = self._clock.now()
        done = set()
        for errand, reply in zip(due, replies, strict=True):
            if not isinstance(reply, LeaseholdError) or now >= errand.until:
                done.add(errand)
            errand.next_at = now + errand.pause
            errand.pause = min(errand.pause * 2, LAST_RETRY)
        with self._changed:
            self._errands = [errand for errand in self._errands if errand not in done]

    def _spare_ms(self, now: float) -> int:
        """How long errands may take: never so long that a lease is lost meanwhile."""
        first = min((held.stop_at() for held in self.all()), default=NEVER)
        return int(min(max((first - now) / 4, SHORTEST_ERRAND), LONGEST_ERRAND) * 1000)

    # ------------------------------------------------------------ the end

    def give_back(self, leases: Iterable[Held], reason: str) -> None:
        """End these leases and release them, in one batch; errands get a last try."""
        now = self._clock.now()
        for held in leases:
            held.lose(reason)
            self.tell(held)
            release = held.begin_release(now)
            if release is not None:
                self.later(Later(release, 0))
        with self._changed:
            for errand in self._errands:
                errand.next_at = AWAKE
        self._run_errands()

    def stop(self) -> None:
        """End the thread; wait for it unless it is the one that asks."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def dismiss(self) -> None:
        """The coordinator was dropped. Called by the garbage collector, inside any lock: it only leaves a note."""
        self._dismissed = True

    def forked(self) -> None:
        """In a forked child: the thread is gone, its locks may be held by nobody, the leases are the parent's."""
        lost, self._held, self._errands = self._held, set(), []
        self.abandoned = SimpleQueue()
        self._begin()
        for held in lost:
            held.forked(self.transitions)


def _warn_abandoned(held: Held) -> None:
    message = f"a lease on {held.name.kind} was dropped without release(): it is no longer renewed and will expire"
    try:
        warnings.warn(message, ResourceWarning, stacklevel=2)
    except ResourceWarning:  # warnings are errors here, and this thread has nobody to raise them to
        log.warn(message)
