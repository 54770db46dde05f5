"""A clock that a test turns: when ``advance`` returns, everything that was due until then has happened."""

from __future__ import annotations

import math
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from leasehold._core.durations import seconds as in_seconds
from leasehold._runtime.engine import Engine, engines_on
from leasehold.stores.clock import LOOK_AGAIN, ManualClock

if TYPE_CHECKING:
    from leasehold._core.durations import Duration

# ---------------------------------------------------------------- waiters
#
# The threads and tasks that wait for locks on a clock that a test turns, and until when each of them sleeps.
#
# A waiter is a thread or a task. It is registered with its claim, so that the thread that turns the clock knows whose
# acquire it is. It *sleeps* from the moment when it asks the clock how long to nap until it next reads the clock or is
# sent a push. All references are weak: a lease belongs to its thread or task, and is given back when that ends.


def current_waiter() -> Any:
    """The current task, or else the current thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task() or threading.current_thread()
    return threading.current_thread()


class Sleep:
    """The state of one waiter: until when it sleeps, whether it sleeps, and since when, in real seconds, it waits."""

    __slots__ = ("asleep", "since", "until")

    def __init__(self) -> None:
        self.until = float("-inf")
        self.asleep = False
        self.since = time.monotonic()


class Waiters:
    """The waiters on one clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_owner: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._sleeps: weakref.WeakKeyDictionary[Any, Sleep] = weakref.WeakKeyDictionary()

    def claims(self, owner: str) -> None:
        """The current thread or task claims as this owner, and may have to wait."""
        waiter = current_waiter()
        with self._lock:
            self._by_owner[owner] = waiter
            self._sleeps[waiter] = Sleep()

    def sleeps(self, until: float) -> tuple[bool, float]:
        """The current waiter is about to sleep. Returns whether this is a new sleep, and since when it has waited."""
        waiter = current_waiter()
        with self._lock:
            sleep = self._sleeps.setdefault(waiter, Sleep())
            new = sleep.until != until
            sleep.until, sleep.asleep = until, True
            return new, sleep.since

    def awake(self) -> None:
        """The current waiter reads the clock: it does not sleep."""
        self._wake(current_waiter())

    def roused(self, owner: str) -> None:
        """A push is on its way to this owner, which will wake."""
        self._wake(self._by_owner.get(owner))

    def _wake(self, waiter: Any) -> None:
        sleep = None if waiter is None else self._sleeps.get(waiter)
        if sleep is not None:
            sleep.asleep = False

    def wake_times(self) -> list[float]:
        """When the sleeping waiters will wake by themselves."""
        with self._lock:
            return [sleep.until for sleep in list(self._sleeps.values()) if sleep.asleep]

    def busy(self, owners: Sequence[str], now: float, loops_too: bool) -> bool:
        """Whether the waiter behind these owners of one acquire has something to do now, and can do it. Not every owner
        need have claimed: of several locks, those after one that is held have not. These cannot run during this call:
        the current waiter, one that has ended and, unless ``loops_too``, the tasks of the current loop."""
        found = (self._by_owner.get(owner) for owner in reversed(owners))
        waiter = next((one for one in found if one is not None), None)
        if waiter is None:
            return True  # it has not claimed yet
        return self.has_work(waiter, now, loops_too)

    def has_work(self, waiter: Any, now: float, loops_too: bool, woken: bool = False) -> bool:
        """The same for a thread or task. ``woken``: something has happened that it waits for."""
        if waiter is None or waiter is current_waiter() or not _can_run(waiter, loops_too):
            return False
        sleep = self._sleeps.get(waiter)
        return woken or sleep is None or not (sleep.asleep and sleep.until > now)


def _can_run(waiter: Any, loops_too: bool) -> bool:
    if isinstance(waiter, threading.Thread):
        return waiter.is_alive()
    loop = waiter.get_loop()
    if waiter.done() or not loop.is_running():
        return False
    return loops_too or loop is not sys.modules["asyncio"]._get_running_loop()


def alone(home: threading.Thread) -> bool:
    """Whether nothing else could turn the clock: this is the test's own thread and, on a loop, its only task."""
    if threading.current_thread() is not home:
        return False
    waiter = current_waiter()
    if waiter is home:
        return True
    return all(task is waiter or _runs_tests(task) for task in sys.modules["asyncio"].all_tasks())


def _runs_tests(task: Any) -> bool:
    """anyio runs a test in one task and waits for it in another, which does nothing before the test is over."""
    return getattr(task.get_coro(), "__name__", "") == "_call_in_runner_task"


# ---------------------------------------------------------------- clock


WATCHDOG, CALLBACK = "leasehold-watchdog", "leasehold-on-"  # prefixes of the names of threads
PATIENCE = 10.0  # real seconds before a test that would hang fails
FOR_CALLBACKS = 1.0  # real seconds that the callbacks of a loss may take; then they are no longer waited for
FOR_OTHERS = 0.05  # real seconds in which another thread may end a test's wait, before the clock turns by itself
POLL_SOON, POLL_SOON_FOR = 0.0001, 0.05  # real seconds: how often waiters poll, for a while after the clock was turned
UNTIL_CALLED = 3600.0
MOST_ROUNDS = 100
TURNS = 5  # of an event loop: enough for a cancelled task to handle its cancellation


class TurnableClock(ManualClock):
    """A clock whose time passes only when the test turns it. Every coordinator on it then does what is due, in the
    order of time: leases are renewed, losses are reported, waiters for a lock wake up.

    It also turns by itself while the test's own thread (or only task) waits for a lock. Nothing else could turn it
    then, so time passes to whatever is due next, until the lock is granted or the wait is over."""

    __slots__ = ("_home", "_turned", "_turning", "waiters")

    def __init__(self) -> None:
        super().__init__()
        self.waiters = Waiters()
        self._home = threading.current_thread()
        self._turning = threading.RLock()
        self._turned = time.monotonic()

    # ------------------------------------------------------------ turning

    def advance(self, duration: Duration) -> None:
        """Let that much time pass: seconds, a ``timedelta``, or text such as ``"31s"``.

        Tasks of the event loop that this is called on cannot run during the call: for them all the time has passed at
        once. Where they wait for locks, use :meth:`advance_async`."""
        with self._turning:
            for _ in self._moments(in_seconds(duration, "duration")):
                self._happen()

    async def advance_async(self, duration: Duration) -> None:
        """The same from a task: the other tasks of its loop run at every moment at which something is due."""
        import asyncio

        for _ in self._moments(in_seconds(duration, "duration")):
            self._happen()
            end = time.monotonic() + PATIENCE
            while not self._quiet(loops_too=True):
                _check_real_time(end)
                await asyncio.sleep(0)  # not longer: an hour is thousands of moments
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def end(self) -> None:
        """The test is over: waiters that remain find out that their coordinator is closed."""
        ManualClock.advance(self, UNTIL_CALLED)

    def _moments(self, seconds: float) -> Iterator[None]:
        """Yields at each moment at which something is due, first at the present one."""
        end_us = self._now_us + round(seconds * 1_000_000)
        self._turned = time.monotonic()
        yield
        while self._now_us < end_us:
            self._turn_to(end_us)
            yield

    def _turn_to(self, end_us: int) -> None:
        """Turn to the next moment at which something is due, at most to this end."""
        now = ManualClock.now(self)
        due = min((at for at in self._due() if at > now), default=math.inf)
        with self._lock:
            if due * 1_000_000 < end_us:
                end_us = max(math.ceil(due * 1_000_000), self._now_us + 1)  # rounded up, so that it is due then
            passed = end_us - self._now_us
            self._now_us += passed
            self._wall_us += passed
        self._turned = time.monotonic()

    def _due(self) -> list[float]:
        return [*self.waiters.wake_times(), *(engine.watchdog.next_at() for engine in self._engines())]

    def _engines(self) -> list[Engine]:
        """The engines of the coordinators that are not frozen."""
        return [engine for engine in engines_on(self) if engine.clock is self]

    # ------------------------------------------------------------ what is due

    def _happen(self) -> None:
        """Do what is due now, and wait, in real time and with a limit, for the threads that have something to do."""
        for _ in range(MOST_ROUNDS):
            for engine in self._engines():
                engine.watchdog.round()
            end = time.monotonic() + PATIENCE
            while not self._quiet(loops_too=False):
                _check_real_time(end)
                time.sleep(POLL_SOON)
            if all(engine.watchdog.next_at() > ManualClock.now(self) for engine in self._engines()):
                break
        _join_callbacks()

    def _quiet(self, loops_too: bool) -> bool:
        now = ManualClock.now(self)
        attempts = [attempt for engine in self._engines() for attempt in list(engine.pending)]
        local = [one for engine in self._engines() for one in engine.local_waiters()]
        return not any(
            self.waiters.busy([owner for _, owner in list(attempt.claims)], now, loops_too) for attempt in attempts
        ) and not any(self.waiters.has_work(anchor, now, loops_too, woken) for anchor, woken in local)

    # ------------------------------------------------------------ the clock, as coordinators read it

    def now(self) -> float:
        self.waiters.awake()
        return ManualClock.now(self)

    def nap(self, until: float) -> float:
        if until <= ManualClock.now(self):
            return 0.0
        if threading.current_thread().name == WATCHDOG:
            return UNTIL_CALLED  # the thread that turns the clock does the watchdog's rounds
        new, since = self.waiters.sleeps(until)
        waited = time.monotonic() - since
        if alone(self._home) and (waited > FOR_OTHERS or not new):
            return self._pass(until, waited)
        unturned = time.monotonic() - self._turned
        if min(waited, unturned) > PATIENCE:
            raise _hangs()
        return LOOK_AGAIN if unturned > POLL_SOON_FOR else POLL_SOON

    def _pass(self, until: float, waited: float) -> float:
        """Nothing else could turn the clock: turn it to what is due next."""
        if waited > PATIENCE:
            raise _hangs()
        if not self._turning.acquire(blocking=False):  # another thread turns it, all the same
            return LOOK_AGAIN
        try:
            self._turn_to(math.ceil(until * 1_000_000) + 1)
            self._happen()
        finally:
            self._turning.release()
        return 0.0


def _hangs() -> AssertionError:
    return AssertionError(
        f"a lock was waited for during {PATIENCE:g} s of real time: turn the clock from another thread or task, or let "
        "the holder of the lock give it back"
    )


def _check_real_time(end: float) -> None:
    if time.monotonic() > end:
        raise AssertionError(f"what was due when the clock was turned did not end within {PATIENCE:g} s of real time")


def _join_callbacks() -> None:
    """Wait for the callbacks of ``on_lost``, each of which has a thread of its own."""
    end = time.monotonic() + FOR_CALLBACKS
    for thread in threading.enumerate():
        if thread.name.startswith(CALLBACK) and thread is not threading.current_thread():
            thread.join(max(end - time.monotonic(), 0))
