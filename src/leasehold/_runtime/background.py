"""Background ops: withdrawals and releases that no caller waits for, sent until they are answered or until the lease
would be over anyway."""

from __future__ import annotations

import threading
import time

from leasehold._core.holding import NEVER
from leasehold._core.light_typing import TYPE_CHECKING, Callable, TypeAlias
from leasehold._core.ops import Defer, Reply, StoreOp
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from leasehold._core.ports import Store

NOW = float("-inf")
FIRST_RETRY, LAST_RETRY = 0.02, 1.0
OnReply: TypeAlias = Callable[[Reply | LeaseholdError], object]


class BackgroundOp:
    """One op, and when to send it next."""

    __slots__ = ("busy", "next_at", "on_reply", "op", "pause", "until")

    def __init__(self, deferred: Defer, now: float, on_reply: OnReply | None) -> None:
        self.op = deferred.op
        self.until = now + deferred.seconds
        self.next_at = NOW
        self.pause = FIRST_RETRY
        self.on_reply = on_reply
        self.busy = False  # a thread sends it now


class BackgroundOps:
    """The background ops of one coordinator. Added from any thread, sent by the watchdog."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock
        self._lock = threading.RLock()
        self._open: list[BackgroundOp] = []

    def add(self, deferred: Defer, on_reply: OnReply | None = None) -> None:
        """``on_reply`` is called once: with the reply, or with the last error when the op is given up."""
        with self._lock:
            self._open.append(BackgroundOp(deferred, self._clock.now(), on_reply))

    def __bool__(self) -> bool:
        return bool(self._open)

    def next_at(self) -> float:
        with self._lock:
            return min((entry.next_at for entry in self._open if not entry.busy), default=NEVER)

    def make_due(self) -> list[BackgroundOp]:
        """The coordinator closes: none waits for its next try. Returns those that another thread sends just now."""
        with self._lock:
            for entry in self._open:
                entry.next_at = NOW
            return [entry for entry in self._open if entry.busy]

    def retry_missed(self, missed: list[BackgroundOp], budget_ms: int) -> None:
        """Another thread was sending these, and will not do so again: wait for it, and send what has failed."""
        end = time.monotonic() + 2 * budget_ms / 1000
        while any(entry.busy for entry in missed) and time.monotonic() < end:
            time.sleep(0.002)
        with self._lock:
            left = [entry for entry in missed if entry in self._open]
            for entry in left:
                entry.next_at = NOW
        if left:
            self.run(budget_ms)

    def give_up(self, why: LeaseholdError) -> None:
        """No thread is left to try again: every callback gets this error."""
        with self._lock:
            given_up, self._open = self._open, []
        for entry in given_up:
            if entry.on_reply is not None:
                entry.on_reply(why)

    def run(self, budget_ms: int) -> None:
        """Send what is due, in one batch, for at most this long."""
        now = self._clock.now()
        due: list[BackgroundOp] = []
        try:
            with self._lock:
                due += [entry for entry in self._open if entry.next_at <= now and not entry.busy]
                for entry in due:  # close() and the watchdog may be here at once: of a release that is sent twice the
                    entry.busy = True  # second would be reported as one that came too late
            self._try(due, budget_ms)
        finally:
            for entry in due:
                entry.busy = False

    def _try(self, due: list[BackgroundOp], budget_ms: int) -> None:
        if not due:
            return
        ops: list[StoreOp] = [entry.op._replace(budget_ms=budget_ms) for entry in due]
        replies = self._store.execute_many(ops)
        now = self._clock.now()
        done: dict[BackgroundOp, Reply | LeaseholdError] = {}
        for entry, reply in zip(due, replies, strict=True):
            if not isinstance(reply, LeaseholdError) or now >= entry.until:
                done[entry] = reply
            entry.next_at = now + entry.pause
            entry.pause = min(entry.pause * 2, LAST_RETRY)
        with self._lock:
            self._open = [entry for entry in self._open if entry not in done]
        for entry, reply in done.items():
            if entry.on_reply is not None:
                entry.on_reply(reply)
