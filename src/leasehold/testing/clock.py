"""A clock that a test turns: when ``advance`` returns, all that follows from it has happened."""

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
# Who waits for a lock on a clock that a test turns, and until when each of them sleeps.
#
# A waiter is a thread or a task. It is noted with its claim, so that whoever turns the clock knows whose acquire it
# is; it *sleeps* from the moment when it asks the clock how long to nap until it next looks at the clock or is sent a
# push. Everything is held weakly: a lease belongs to its thread or task, and is given back when that one is gone.


def whoever() -> Any:
    """The task that runs here, else the thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task() or threading.current_thread()
    return threading.current_thread()


class Sleep:
    """One waiter: until when it sleeps, whether it does, and since when, in real seconds, it has been waiting."""

    __slots__ = ("asleep", "since", "until")

    def __init__(self) -> None:
        self.until = float("-inf")
        self.asleep = False
        self.since = time.monotonic()


class Waiters:
    """Those of one clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_owner: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._sleeps: weakref.WeakKeyDictionary[Any, Sleep] = weakref.WeakKeyDictionary()

    def claims(self, owner: str) -> None:
        """The thread or task that runs here claims as this owner, and may have to wait."""
        who = whoever()
        with self._lock:
            self._by_owner[owner] = who
            self._sleeps[who] = Sleep()

    def sleeps(self, until: float) -> tuple[bool, float]:
        """Whoever runs here is about to sleep. Is it a new sleep, and how long has it been waiting?"""
        who = whoever()
        with self._lock:
            sleep = self._sleeps.setdefault(who, Sleep())
            new = sleep.until != until
            sleep.until, sleep.asleep = until, True
            return new, sleep.since

    def looks(self) -> None:
        """Whoever runs here looks at the clock: it does not sleep."""
        self._wake(whoever())

    def roused(self, owner: str) -> None:
        """A push is on its way to this owner, who will wake."""
        self._wake(self._by_owner.get(owner))

    def _wake(self, who: Any) -> None:
        sleep = None if who is None else self._sleeps.get(who)
        if sleep is not None:
            sleep.asleep = False

    def untils(self) -> list[float]:
        """When those who sleep will wake by themselves."""
        with self._lock:
            return [sleep.until for sleep in list(self._sleeps.values()) if sleep.asleep]

    def busy(self, owners: Sequence[str], now: float, loops_too: bool) -> bool:
        """Has the waiter behind these owners of one acquire something to do now, and can it? Not all of them need have
        claimed: of several locks those after one that is taken have not. What cannot run while we look: ourselves, who
        has ended, and, unless ``loops_too``, the tasks of the loop that we stand on."""
        found = (self._by_owner.get(owner) for owner in reversed(owners))
        who = next((one for one in found if one is not None), None)
        if who is None:
            return True  # it has not claimed yet
        if who is whoever() or not _can_run(who, loops_too):
            return False
        sleep = self._sleeps.get(who)
        return sleep is None or not (sleep.asleep and sleep.until > now)


def _can_run(who: Any, loops_too: bool) -> bool:
    if isinstance(who, threading.Thread):
        return who.is_alive()
    loop = who.get_loop()
    if who.done() or not loop.is_running():
        return False
    return loops_too or loop is not sys.modules["asyncio"]._get_running_loop()


def alone(home: threading.Thread) -> bool:
    """Could nobody but us turn the clock: is this the test's own thread and, on a loop, its only task?"""
    if threading.current_thread() is not home:
        return False
    who = whoever()
    if who is home:
        return True
    return all(task is who or _runs_tests(task) for task in sys.modules["asyncio"].all_tasks())


def _runs_tests(task: Any) -> bool:
    """anyio runs a test in one task and waits for it in another, which will do nothing before the test is over."""
    return getattr(task.get_coro(), "__name__", "") == "_call_in_runner_task"


# ---------------------------------------------------------------- clock


WATCHDOG, CALLBACK = "leasehold-watchdog", "leasehold-on-"  # how names of threads begin
PATIENCE = 10.0  # real seconds before a test that would hang fails
FOR_CALLBACKS = 1.0  # real seconds that the callbacks of a loss may take; one that blocks goes on alone
FOR_OTHERS = 0.05  # real seconds in which another thread may end what a test waits for, before time flies
LOOK_SOON, FOR_A_WHILE = 0.0001, 0.05  # and how those who wait look for a while after it was turned
UNTIL_CALLED = 3600.0
MOST_ROUNDS = 100
TURNS = 5  # of an event loop: enough for a task that is cancelled to hear of it


class TurnableClock(ManualClock):
    """Time that stands still until the test turns it. Every coordinator on it hears of it: leases are renewed when
    they fall due, losses are told, those who wait for a lock wake up, in the order of time.

    One thing turns it besides: a test whose own thread (or only task) waits for a lock. Nobody else could then, so
    time goes on to what comes next, until the lock is granted or the wait is over."""

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

        Tasks of the event loop that this is called on cannot run meanwhile: they find themselves at the end of it
        with their next await. Where they wait for locks, use :meth:`advance_async`."""
        with self._turning:
            for _ in self._moments(in_seconds(duration, "duration")):
                self._happen()

    async def advance_async(self, duration: Duration) -> None:
        """The same from a task: the other tasks of its loop have their turns at every moment."""
        import asyncio

        for _ in self._moments(in_seconds(duration, "duration")):
            self._happen()
            end = time.monotonic() + PATIENCE
            while not self._quiet(loops_too=True):
                _still_patient(end)
                await asyncio.sleep(0)  # not longer: an hour is thousands of moments
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def end(self) -> None:
        """The test is over: whoever still waits finds out that its coordinator is closed."""
        ManualClock.advance(self, UNTIL_CALLED)

    def _moments(self, seconds: float) -> Iterator[None]:
        """From one moment at which something is due to the next. What is due now already comes first."""
        end_us = self._now_us + round(seconds * 1_000_000)
        self._turned = time.monotonic()
        yield
        while self._now_us < end_us:
            self._turn_to(end_us)
            yield

    def _turn_to(self, end_us: int) -> None:
        """To the next moment at which something is due, at most to this end."""
        now = ManualClock.now(self)
        due = min((at for at in self._due() if at > now), default=math.inf)
        with self._lock:
            if due * 1_000_000 < end_us:
                end_us = max(math.ceil(due * 1_000_000), self._now_us + 1)  # what is due must not be just ahead
            passed = end_us - self._now_us
            self._now_us += passed
            self._wall_us += passed
        self._turned = time.monotonic()

    def _due(self) -> list[float]:
        return [*self.waiters.untils(), *(engine.watchdog.next_at() for engine in self._engines())]

    def _engines(self) -> list[Engine]:
        """Of those that are not frozen."""
        return [engine for engine in engines_on(self) if engine.clock is self]

    # ------------------------------------------------------------ what follows

    def _happen(self) -> None:
        """Do what is due now, and wait, in real time and with an end, for the threads that have something to do."""
        for _ in range(MOST_ROUNDS):
            for engine in self._engines():
                engine.watchdog.round()
            end = time.monotonic() + PATIENCE
            while not self._quiet(loops_too=False):
                _still_patient(end)
                time.sleep(LOOK_SOON)
            if all(engine.watchdog.next_at() > ManualClock.now(self) for engine in self._engines()):
                break
        _join_callbacks()

    def _quiet(self, loops_too: bool) -> bool:
        now = ManualClock.now(self)
        attempts = [attempt for engine in self._engines() for attempt in list(engine.pending)]
        return not any(
            self.waiters.busy([owner for _, owner in list(attempt.claims)], now, loops_too) for attempt in attempts
        )

    # ------------------------------------------------------------ for those who look at it

    def now(self) -> float:
        self.waiters.looks()
        return ManualClock.now(self)

    def nap(self, until: float) -> float:
        if until <= ManualClock.now(self):
            return 0.0
        if threading.current_thread().name == WATCHDOG:
            return UNTIL_CALLED  # rounds that are due are taken by whoever turns
        new, since = self.waiters.sleeps(until)
        waited = time.monotonic() - since
        if alone(self._home) and (waited > FOR_OTHERS or not new):
            return self._pass(until, waited)
        stood = time.monotonic() - self._turned
        if min(waited, stood) > PATIENCE:
            raise _hangs()
        return LOOK_AGAIN if stood > FOR_A_WHILE else LOOK_SOON

    def _pass(self, until: float, waited: float) -> float:
        """Nobody else could turn the clock: go on to what comes next."""
        if waited > PATIENCE:
            raise _hangs()
        if not self._turning.acquire(blocking=False):  # another thread does, all the same
            return LOOK_AGAIN
        try:
            self._turn_to(math.ceil(until * 1_000_000) + 1)
            self._happen()
        finally:
            self._turning.release()
        return 0.0


def _hangs() -> AssertionError:
    return AssertionError(
        f"a lock was waited for during {PATIENCE:g} s of real time: turn the clock from another thread or task, or see "
        "to it that whoever holds the lock gives it back"
    )


def _still_patient(end: float) -> None:
    if time.monotonic() > end:
        raise AssertionError(f"what follows from turning the clock did not end within {PATIENCE:g} s of real time")


def _join_callbacks() -> None:
    """Each callback of ``on_lost`` has a thread of its own."""
    end = time.monotonic() + FOR_CALLBACKS
    for thread in threading.enumerate():
        if thread.name.startswith(CALLBACK) and thread is not threading.current_thread():
            thread.join(max(end - time.monotonic(), 0))
