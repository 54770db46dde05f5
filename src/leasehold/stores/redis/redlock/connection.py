"""A thread's connection to all nodes of a Redlock: one poll over their links, and no thread for each."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence

from leasehold._core.driver import drive
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Claim, Push, Reply, StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis.redlock.answers import Leave, Round
from leasehold.stores.redis.redlock.exchange import Exchange, RunningRound
from leasehold.stores.redis.redlock.link import Link
from leasehold.stores.redis.redlock.links import Links

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.store import RedlockStore

monotonic = time.monotonic
CHECK_SECONDS = 0.02  # for a check from the background to end
LAST_SECONDS = 0.25  # for what must still arrive when the connection is closed


class RedlockConnection:
    """Implements ``_core.ports.Connection``. One thread uses it at a time."""

    address = ""

    def __init__(
        self,
        store: RedlockStore,
        forget: Callable[[RedlockConnection], object] = lambda connection: None,
        counts: bool = True,
    ) -> None:
        self._store = store
        self._forget = forget
        self._links = Links(store, counts)
        self._poller = select.poll()
        self._polled: list[tuple[int, int]] = []  # the descriptor of each link, and what is polled for
        self._by_fileno: dict[int, Link] = {}
        self._in_use = threading.RLock()
        self._closed = threading.Event()

    def execute(self, op: StoreOp) -> Reply:
        try:
            reply: Reply = self._drive(self._store.rounds.execute(op))
            return reply
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    def execute_many(self, many: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        outcomes: list[Reply | LeaseholdError] = self._drive(self._store.rounds.execute_many(many))
        return outcomes

    def execute_batch(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """Releases, renewals and withdrawals in one round. Each claim has rounds of its own, because a majority of the
        nodes has to agree on each: one after the other, as long as there is time."""
        if not any(isinstance(op, Claim) for op in ops):
            return self.execute_many(ops)
        give_up = monotonic() + min([op.budget_ms for op in ops]) / 1000
        outcomes: list[Reply | LeaseholdError] = []
        for op in ops:
            left_ms = int((give_up - monotonic()) * 1000)
            try:
                if left_ms <= 0:
                    raise StoreUnavailable("there was no time left to send it")
                outcomes.append(self.execute(op._replace(budget_ms=left_ms)))
            except LeaseholdError as error:
                outcomes.append(error)
        return outcomes

    def next_push(self, seconds: float) -> Push | None:
        """Nothing is pushed; ``close`` ends the wait. What must still arrive goes on meanwhile."""
        give_up = monotonic() + seconds
        with self._in_use:
            self._finish(give_up)
        self._closed.wait(max(give_up - monotonic(), 0))
        return None

    def _finish(self, give_up: float) -> None:
        """Read what is owed, so that withdrawals are known to have arrived, at the latest until then."""
        while self._links.owe() and not self._closed.is_set():
            left = give_up - monotonic()
            if left <= 0 or not self._poll(left):
                break

    def _drive(self, flow: Any) -> Any:
        with self._in_use:
            return drive(flow, self.perform)

    def perform(self, request: Round | Leave) -> None:
        """What a flow has requested."""
        try:
            if isinstance(request, Leave):
                left = self._links.leave(request)
            else:
                late = self._round(request)
                left = late and request.follow is not None
        except BaseException:
            self._links.reset()
            raise
        if left:
            self._store.withdrawals.watch(self)

    def _round(self, request: Round) -> bool:
        """True if it ended while answers were still to come."""
        give_up = monotonic() + request.seconds
        self._poll(0)  # late replies, and the end of a link: a restart closes it
        running, exchanges = RunningRound(request), list[Exchange | None]()
        try:
            exchanges = self._links.submit(running)
            while not running.over:
                left = give_up - monotonic()
                if left <= 0 or not self._poll(left):
                    break
        finally:
            late = running.open > 0
            if late:
                self._links.abandon(exchanges)
        return late

    def settled(self) -> bool:
        """True when nothing is under way any more that must arrive. Called from the background, while the connection
        may be idle: nobody else would notice that it broke."""
        in_use = self._in_use
        if not in_use.acquire(blocking=False):
            return False
        try:
            self._poll(0)  # a link that is being opened goes on, too
            for link in self._links.each:
                link.check(monotonic())
            return not self._links.owe()
        finally:
            in_use.release()

    def _poll(self, seconds: float) -> bool:
        """Let every link go on that can. False when there was nothing, or nothing is expected any more."""
        wanted = [link.interest() for link in self._links.each]
        if wanted != self._polled:
            self._poll_these(wanted)
        if not self._by_fileno:
            return False
        found = self._poller.poll(seconds * 1000)
        for fileno, _ in found:
            self._by_fileno[fileno].go_on()
        return bool(found)

    def _poll_these(self, wanted: list[tuple[int, int]]) -> None:
        self._polled, self._poller, self._by_fileno = wanted, select.poll(), {}
        for link, (fileno, events) in zip(self._links.each, wanted, strict=True):
            if events and fileno >= 0:
                self._poller.register(fileno, events)
                self._by_fileno[fileno] = link

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """From any thread. What must still arrive gets a moment, unless another thread is using the connection: that
        one finds it broken."""
        self._forget(self)
        in_use = self._in_use
        if not in_use.acquire(timeout=CHECK_SECONDS):
            self._closed.set()
            for link in self._links.each:
                link.hang_up()
            return
        try:
            self._finish(monotonic() + LAST_SECONDS)
            self._closed.set()
            for link in self._links.each:
                link.close()
        finally:
            in_use.release()

    def forked(self) -> None:
        """In the child: no other thread uses it here."""
        self._in_use = threading.RLock()
        for link in self._links.each:
            link.forked()
