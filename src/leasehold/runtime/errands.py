"""Errands: what was left for later. Withdrawals and releases that nobody waits for, tried until they are answered or
until the lease would be over anyway."""

from __future__ import annotations

import threading

from leasehold.core.holding import NEVER
from leasehold.core.ops import Later, StoreOp
from leasehold.core.ports import Store
from leasehold.errors import LeaseholdError

NOW = float("-inf")
FIRST_RETRY, LAST_RETRY = 0.02, 1.0


class Errand:
    """One of them, and when to try it next."""

    __slots__ = ("next_at", "op", "pause", "until")

    def __init__(self, later: Later, now: float) -> None:
        self.op = later.op
        self.until = now + later.seconds
        self.next_at = NOW
        self.pause = FIRST_RETRY


class Errands:
    """Those of one coordinator. Added from any thread, done by the watchdog."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock
        self._lock = threading.RLock()
        self._open: list[Errand] = []

    def add(self, later: Later) -> None:
        with self._lock:
            self._open.append(Errand(later, self._clock.now()))

    def __bool__(self) -> bool:
        return bool(self._open)

    def next_at(self) -> float:
        with self._lock:
            return min((errand.next_at for errand in self._open), default=NEVER)

    def hurry(self) -> None:
        """The end is near: none waits for its next try."""
        with self._lock:
            for errand in self._open:
                errand.next_at = NOW

    def run(self, budget_ms: int) -> None:
        """Try what is due, in one batch, for at most this long."""
        now = self._clock.now()
        with self._lock:
            due = [errand for errand in self._open if errand.next_at <= now]
        if not due:
            return
        ops: list[StoreOp] = [errand.op._replace(budget_ms=budget_ms) for errand in due]
        replies = self._store.execute_many(ops)
        now = self._clock.now()
        done = set()
        for errand, reply in zip(due, replies, strict=True):
            if not isinstance(reply, LeaseholdError) or now >= errand.until:
                done.add(errand)
            errand.next_at = now + errand.pause
            errand.pause = min(errand.pause * 2, LAST_RETRY)
        with self._lock:
            self._open = [errand for errand in self._open if errand not in done]
