"""A store to test with: in memory, private, on a clock that the test turns, and away when the test wants it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leasehold._core.ops import Claim, Group, Inspect, Push, Reply, StoreOp, View
from leasehold._runtime.engine import engines_on
from leasehold.errors import StoreUnavailable
from leasehold.stores.mailbox import Mailbox
from leasehold.stores.memory import MemoryStore
from leasehold.testing.clock import TurnableClock


class StandInStore(MemoryStore):
    """Stands in for the store of an application in its tests. ``connect`` takes it in place of a URL.

    >>> import leasehold
    >>> store = StandInStore()
    >>> lease = leasehold.connect(store).lock("rebuild", ttl="30s", renew=False).acquire()
    >>> store.clock.advance("31s")
    >>> lease.state
    'lost'
    >>> store.end()
    """

    clock: TurnableClock

    def __init__(self, clock: TurnableClock | None = None) -> None:
        super().__init__(clock or TurnableClock())
        self._outages = 0

    def execute(self, op: StoreOp) -> Reply:
        for step in op.steps if isinstance(op, Group) else (op,):
            if isinstance(step, Claim):
                self.clock.waiters.claims(step.owner)
        if self._outages:
            raise StoreUnavailable("the store is away: the test plays an outage")
        return super().execute(op)

    @contextmanager
    def away(self) -> Iterator[None]:
        """No coordinator reaches it while the body runs."""
        self._outages += 1
        try:
            yield
        finally:
            self._outages -= 1

    def expires_in(self, resource: str, owner: str) -> float:
        """Seconds until this owner's grant expires, also during an outage; 0 when there is none."""
        view = super().execute(Inspect(resource))
        assert isinstance(view, View)
        return max([0, *(one.expires_ms - view.now_ms for one in view.holders if one.owner == owner)]) / 1000

    def connection(self) -> Mailbox:
        connection = StandInConnection(
            os.urandom(8).hex(),
            self.execute,
            self.execute_async,
            self._remove,
            self.execute_many,
            self.execute_many_async,
        )
        connection.roused = self.clock.waiters.roused
        self._add(connection)
        return connection

    def end(self) -> None:
        """The test is over: close every coordinator on it, of either flavour, and let those who still wait go. All are
        shut before any gives back, else one would hand to a waiter of the other."""
        self._outages = 0
        engines = engines_on(self.clock)
        for engine in engines:
            engine.shut()
        for engine in engines:
            engine.close()
        self.clock.end()


class StandInConnection(Mailbox):
    """Notifies the clock that the test turns: a waiter is going to wake."""

    roused: Callable[[str], None]

    def deliver(self, push: Push) -> None:
        self.roused(push.owner)
        super().deliver(push)
