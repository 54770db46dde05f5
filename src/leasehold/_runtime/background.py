"""Errands: what was left for later. Withdrawals and releases that nobody waits for, tried until they are answered or
until the lease would be over anyway."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from leasehold._core.holding import NEVER
from leasehold._core.light_typing import TypeAlias
from leasehold._core.ops import Defer, Reply, StoreOp
from leasehold._core.ports import Store
from leasehold.errors import LeaseholdError

NOW = float("-inf")
FIRST_RETRY, LAST_RETRY = 0.02, 1.0
OnReply: TypeAlias = Callable[[Reply | LeaseholdError], object]


class BackgroundOp:
    """One of them, and when to try it next."""

    __slots__ = ("busy", "done", "next_at", "op", "pause", "until")

    def __init__(self, later: Defer, now: float, on_reply: OnReply | None) -> None:
        self.op = later.op
        self.until = now + later.seconds
        self.next_at = NOW
        self.pause = FIRST_RETRY
        self.done = on_reply
        self.busy = False  # somebody tries it now


class BackgroundOps:
    """Those of one coordinator. Added from any thread, done by the watchdog."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock
        self._lock = threading.RLock()
        self._open: list[BackgroundOp] = []

    def add(self, later: Defer, done: OnReply | None = None) -> None:
        """``done`` is called once: with the reply, or with the last error when it was given up."""
        with self._lock:
            self._open.append(BackgroundOp(later, self._clock.now(), done))

    def __bool__(self) -> bool:
        return bool(self._open)

    def next_at(self) -> float:
        with self._lock:
            return min((errand.next_at for errand in self._open if not errand.busy), default=NEVER)

    def make_due(self) -> list[BackgroundOp]:
        """The end is near: none waits for its next try. Those that somebody else is trying just now."""
        with self._lock:
            for errand in self._open:
                errand.next_at = NOW
            return [errand for errand in self._open if errand.busy]

    def retry_missed(self, missed: list[BackgroundOp], budget_ms: int) -> None:
        """Somebody tried these, and will not do so again: wait for him, and try what has failed."""
        end = time.monotonic() + 2 * budget_ms / 1000
        while any(errand.busy for errand in missed) and time.monotonic() < end:
            time.sleep(0.002)
        with self._lock:
            left = [errand for errand in missed if errand in self._open]
            for errand in left:
                errand.next_at = NOW
        if left:
            self.run(budget_ms)

    def give_up(self, why: LeaseholdError) -> None:
        """Nobody is left to try again: whoever wants to know what became of one hears this."""
        with self._lock:
            given_up, self._open = self._open, []
        for errand in given_up:
            if errand.done is not None:
                errand.done(why)

    def run(self, budget_ms: int) -> None:
        """Try what is due, in one batch, for at most this long."""
        now = self._clock.now()
        due: list[BackgroundOp] = []
        try:
            with self._lock:
                due += [errand for errand in self._open if errand.next_at <= now and not errand.busy]
                for errand in due:  # close() and the watchdog may be here at once: of a release that is sent twice the
                    errand.busy = True  # second is told of as one that came too late
            self._try(due, budget_ms)
        finally:
            for errand in due:
                errand.busy = False

    def _try(self, due: list[BackgroundOp], budget_ms: int) -> None:
        if not due:
            return
        ops: list[StoreOp] = [errand.op._replace(budget_ms=budget_ms) for errand in due]
        replies = self._store.execute_many(ops)
        now = self._clock.now()
        done: dict[BackgroundOp, Reply | LeaseholdError] = {}
        for errand, reply in zip(due, replies, strict=True):
            if not isinstance(reply, LeaseholdError) or now >= errand.until:
                done[errand] = reply
            errand.next_at = now + errand.pause
            errand.pause = min(errand.pause * 2, LAST_RETRY)
        with self._lock:
            self._open = [errand for errand in self._open if errand not in done]
        for errand, reply in done.items():
            if errand.done is not None:
                errand.done(reply)
