"""Who waits for a lock on a clock that a test turns, and until when each of them sleeps.

A waiter is a thread or a task. It is noted with its claim, so that whoever turns the clock knows whose acquire it is;
it *sleeps* from the moment when it asks the clock how long to nap until it next looks at the clock or is sent a push.
Everything is held weakly: a lease belongs to its thread or task, and is given back when that one is gone.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any


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
