"""A scene: one store, as many parties as a case asks for, and a clock that it can turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from typing import Any

from leasehold._core.ops import Inspect, View
from leasehold._core.ports import Store
from leasehold._core.types import Capabilities
from leasehold.errors import LeaseholdError
from leasehold.stores.clock import ManualClock
from tests.support.parties import Party
from tests.support.waiting import PATIENCE

TURNS = 40
STEPS = 12  # small against a third of any ttl in the cases


class Scene:
    """One store, as many parties as are asked for, and a clock."""

    def __init__(
        self, open_store: Callable[[], Store], party: Callable[[Store], Party], clock: ManualClock | None
    ) -> None:
        self._open_store = open_store
        self._party = party
        self._clock = clock
        self._parties: list[Party] = []
        self._looker = open_store()

    def party(self) -> Party:
        self._parties.append(self._party(self._open_store()))
        return self._parties[-1]

    def pass_time(self, seconds: float, at_once: bool = False) -> None:
        """Let time go by, in small steps so that watchdogs get their turns, or as one jump."""
        if self._clock is None:
            time.sleep(seconds)
            return
        if at_once:
            self._clock.advance(seconds)
            return
        for _ in range(STEPS):
            self._clock.advance(seconds / STEPS)
            time.sleep(0.004)  # real time for waiters to see the new virtual time
            self.until(self._renewed, "watchdogs have done what was due")

    def _renewed(self) -> bool:
        now = self._looker.clock.now()
        return all(held.check_at() > now for one in self._parties for held in one.hold._engine.watchdog.leases())

    def look(self, resource: str) -> View:
        view = self._looker.execute(Inspect(resource))
        assert isinstance(view, View)
        return view

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, in real time and with an end, until something is so."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"never came true: {what}"
            time.sleep(0.002)  # real threads and processes are waited for here

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Let time go by, in moments, until something is so: when exactly depends on how fast a thread was."""
        for _ in range(TURNS):
            if condition():
                return
            self.pass_time(0.3)
        self.until(condition, what)

    def outcome(self, future: Future[Any]) -> Any:
        """What came of it. Whoever looks again by himself does so on the clock of the scene, which goes on meanwhile:
        when exactly he looks depends on how fast he was answered."""
        for _ in range(TURNS):
            if futures.wait([future], timeout=0.1).done:
                break
            self.pass_time(0.3)
        return future.result(PATIENCE)

    @property
    def capabilities(self) -> Capabilities:
        """What the store promises."""
        return self._looker.capabilities

    def queued(self, resource: str, count: int) -> None:
        """So many wait. Where there is no queue to look at, so many acquires are under way."""
        if not self.capabilities.fair:
            engines = [one.hold._engine for one in self._parties]
            self.until(lambda: sum(len(engine.pending) for engine in engines) == count, f"{count} who wait")
            return
        self.until(lambda: len(self.look(resource).queue) == count, f"{count} waiters of {resource}")

    def free(self, resource: str) -> None:
        """Nothing is left of it: no holder and no waiter."""
        self.until(lambda: not any(self.look(resource)[:2]), f"nothing left of {resource}")

    def close(self) -> None:
        for party in self._parties:
            party.close()
        self._looker.close()


def fails(kind: type[LeaseholdError], future: Future[Any], *others: type[LeaseholdError]) -> Any:
    """The error that a step must end with. ``others`` would be right as well."""
    try:
        result = future.result(PATIENCE)
    except (kind, *others) as error:
        return error
    raise AssertionError(f"{kind.__name__} expected, got {result!r}")
