"""The flights of one process: callers that want the same thing at once share one, and with it one claim to the store.

Who comes first leads; the others wait for what it brings, each with a patience of its own. A leader that was
interrupted, ran out of patience or lost its lease brings nothing: one of the others leads then. So every caller leads
at most once. They do not wait for the end of one whose lease was taken away: it may hang, and that is why.

A thread leads by itself. On an event loop the flight is a task of its own, which goes on while anybody waits for it: a
caller that is cancelled takes nobody along, and the last one ends it.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from leasehold._core.holding import LOST
from leasehold._core.ports import Clock
from leasehold._runtime.engine import CLOSED, Engine
from leasehold._runtime.sync import warn_in_event_loop
from leasehold.errors import LeaseLost, NotAcquired, StoreUnavailable

LONGEST_NAP = 1.0  # seconds until somebody who waits looks whether the coordinator was closed
LEADER_ONLY = (NotAcquired, LeaseLost)  # what befell the leader alone
TAKEN_AWAY = frozenset({"deleted", "evicted", "max_hold", "max_idle", "taken"})  # not because the store did not answer

Lead = Callable[["Flight", float | None], Coroutine[Any, Any, "FlightResult"]]


class FlightResult:
    """What a flight brought: the text of a value, or the error of the function. ``unkept`` is the type of a value that
    could not be kept; then the error says so, to all but the one who has made it."""

    __slots__ = ("_trace", "error", "text", "unkept")

    def __init__(self, text: str = "", error: Exception | None = None, unkept: str | None = None) -> None:
        self.text = text
        self.error = error
        self.unkept = unkept
        self._trace = None if error is None else error.__traceback__

    def check(self) -> None:
        """Raise the error, if it is one. It is shared by many: each raise must not add to it for all of them."""
        if self.error is not None:
            raise self.error.with_traceback(self._trace)


class RemainingWait:
    """How long a caller may still wait; None is for ever."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock, wait: float | None) -> None:
        self._clock = clock
        self._until = None if wait is None else clock.now() + wait

    def left(self) -> float | None:
        return None if self._until is None else max(self._until - self._clock.now(), 0.0)

    def nap(self) -> float:
        """Real seconds until the next look."""
        now = self._clock.now()
        until = now + LONGEST_NAP if self._until is None else min(self._until, now + LONGEST_NAP)
        return self._clock.nap(until)

    def over(self) -> bool:
        return self._until is not None and self._clock.now() >= self._until


class Flights(ABC):
    """Of one coordinator. A key is whatever shares a flight, with the name of the resource at its end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._epoch = engine.epoch

    @abstractmethod
    async def join(self, key: Any, lead: Lead, patience: RemainingWait) -> FlightResult:
        """Be on the flight of this key, and lead it when nobody does. ``lead`` is given the flight, and closes it
        before its lease ends: who comes after that may not get what was read before."""

    def remaining_wait(self, wait: float | None) -> RemainingWait:
        return RemainingWait(self._engine.clock, wait)

    def _forked(self) -> bool:
        """Those of the parent go on there (trap 32)."""
        if self._epoch == self._engine.epoch:
            return False
        self._epoch = self._engine.epoch
        return True

    def _check_still_waiting(self, key: Any, patience: RemainingWait) -> None:
        """May somebody who waits go on waiting?"""
        if self._engine.closed:
            raise StoreUnavailable(CLOSED)
        if patience.over():
            message = (
                "it is being rebuilt in this process, and the wait is over: try again, or serve stale ones meanwhile"
            )
            raise NotAcquired(message, resource=key[1])


class Flight:
    """One rebuild under way in this process."""

    __slots__ = ("_flights", "_key", "_lease", "failure", "result")

    def __init__(self, flights: dict[Any, Any], key: Any) -> None:
        self._flights = flights
        self._key = key
        self._lease: Callable[[], Any] | None = None
        self.result: FlightResult | None = None
        self.failure: FlightResult | None = None

    def close(self) -> None:
        """Let nobody else in. Of two threads that do so, one may close the next flight, too: that one is then led for
        fewer, and the lease sees to it that nothing is made twice."""
        if self._flights.get(self._key) is self:
            self._flights.pop(self._key, None)

    def use_lease(self, lease: Any) -> None:
        """Under this lease, which is not kept alive by it."""
        self._lease = weakref.ref(lease)

    def lost(self) -> bool:
        """Was its lease taken away? When it ended because the store is away, there is nobody better to wait for."""
        lease = None if self._lease is None else self._lease()
        return lease is not None and lease.state == LOST and lease._held.reason in TAKEN_AWAY

    def outcome(self, mine: bool) -> FlightResult | None:
        """For those who waited; None: it brought nothing. What befell the leader is for the leader."""
        if self.failure is not None and (mine or not isinstance(self.failure.error, LEADER_ONLY)):
            self.failure.check()
        return self.result


class _ThreadFlight(Flight):
    """By a thread."""

    __slots__ = ("done",)

    def __init__(self, flights: dict[Any, Any], key: Any) -> None:
        super().__init__(flights, key)
        self.done = threading.Event()


class ThreadFlights(Flights):
    """Nothing is locked: one step of a dict decides who leads, also in a child that was forked in between."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._flights: dict[Any, _ThreadFlight] = {}

    async def join(self, key: Any, lead: Lead, patience: RemainingWait) -> FlightResult:
        while True:
            if self._forked():
                self._flights = {}
            mine = _ThreadFlight(self._flights, key)
            try:  # from here on: an interrupt in between must not leave a flight that nobody leads
                flight = self._flights.setdefault(key, mine)
                if flight is mine:
                    mine.result = await lead(mine, patience.left())
                    return mine.result
            except Exception as error:
                mine.failure = FlightResult(error=error)
                raise
            finally:
                mine.close()
                mine.done.set()
            if not flight.done.is_set():
                warn_in_event_loop(self._engine)
            while not flight.done.wait(patience.nap()):
                self._check_still_waiting(key, patience)
                if flight.lost():
                    flight.close()
                    break
            landing = flight.outcome(mine=False)
            if landing is not None:
                return landing


class _TaskFlight(Flight):
    """On an event loop."""

    __slots__ = ("task", "waiting")

    def __init__(self, flights: dict[Any, Any], key: Any) -> None:
        super().__init__(flights, key)
        self.waiting = 0
        self.task: Any = None


class TaskFlights(Flights):
    """Each event loop has its own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._loops: dict[asyncio.AbstractEventLoop, dict[Any, _TaskFlight]] = {}

    async def join(self, key: Any, lead: Lead, patience: RemainingWait) -> FlightResult:
        flights = self._here()
        while True:
            flight = flights.get(key)
            mine = flight is None or flight.task.done()  # one that was cancelled before it began has closed nothing
            if flight is None or mine:
                flight = flights[key] = _TaskFlight(flights, key)
                flight.task = asyncio.create_task(_run_flight(flight, lead, patience), name="leasehold-flight")
            await self._wait(key, flight, None if mine else patience)
            landing = flight.outcome(mine)
            if landing is not None:
                return landing
            if mine:
                flight.task.result()  # was cancelled on its own, or ended by an interrupt

    def _here(self) -> dict[Any, _TaskFlight]:
        if self._forked():
            self._loops = {}
        loop = asyncio.get_running_loop()
        flights = self._loops.get(loop)
        if flights is None:
            for gone in [one for one in list(self._loops) if one.is_closed()]:  # other threads have loops, too
                self._loops.pop(gone, None)
            flights = self._loops[loop] = {}
        return flights

    async def _wait(self, key: Any, flight: _TaskFlight, patience: RemainingWait | None) -> None:
        flight.waiting += 1
        try:
            while not flight.task.done():
                await asyncio.wait([flight.task], timeout=None if patience is None else patience.nap())
                if patience is not None and not flight.task.done():
                    self._check_still_waiting(key, patience)
                    if flight.lost():
                        flight.close()
                        return
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.close()
                flight.task.cancel()
                await asyncio.wait([flight.task])  # who was cancelled must not go on before its work has stopped


async def _run_flight(flight: _TaskFlight, lead: Lead, patience: RemainingWait) -> None:
    try:
        flight.result = await lead(flight, patience.left())
    except Exception as error:
        flight.failure = FlightResult(error=error)
    finally:
        flight.close()
