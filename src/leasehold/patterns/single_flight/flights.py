"""The flights of one process: callers that want the same value at once share one rebuild, and with it one claim.

The first caller leads; the others wait for its result, each for its own time at most. A leader that was interrupted,
ran out of time or lost its lease has no result: then one of the others leads. So every caller leads at most once. The
others do not wait for the end of a flight whose lease was taken away: it may hang, and that may be why it lost the
lease.

A thread leads itself. On an event loop the flight is a task of its own, which goes on while a caller waits for it:
cancelling one caller does not affect the others, and the last one that is cancelled ends the task.
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

LONGEST_NAP = 1.0  # seconds until a waiter checks again whether the coordinator was closed
LEADER_ONLY = (NotAcquired, LeaseLost)  # errors that concern the leader alone
TAKEN_AWAY = frozenset({"deleted", "evicted", "max_hold", "max_idle", "taken"})  # not: the store is down

Lead = Callable[["Flight", float | None], Coroutine[Any, Any, "FlightResult"]]


class FlightResult:
    """The outcome of a flight: the text of a value, or the error of the function. ``unkept`` is the type of a value
    that could not be kept; ``error`` says so then, to all callers but the one whose call made the value."""

    __slots__ = ("_trace", "error", "text", "unkept")

    def __init__(self, text: str = "", error: Exception | None = None, unkept: str | None = None) -> None:
        self.text = text
        self.error = error
        self.unkept = unkept
        self._trace = None if error is None else error.__traceback__

    def check(self) -> None:
        """Raise the error, if there is one. Callers share it, so its traceback must not grow with each raise."""
        if self.error is not None:
            raise self.error.with_traceback(self._trace)


class RemainingWait:
    """How long a caller may still wait; None means for ever."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock, wait: float | None) -> None:
        self._clock = clock
        self._until = None if wait is None else clock.now() + wait

    def left(self) -> float | None:
        return None if self._until is None else max(self._until - self._clock.now(), 0.0)

    def nap(self) -> float:
        """Real seconds to sleep until the next check."""
        now = self._clock.now()
        until = now + LONGEST_NAP if self._until is None else min(self._until, now + LONGEST_NAP)
        return self._clock.nap(until)

    def over(self) -> bool:
        return self._until is not None and self._clock.now() >= self._until


class Flights(ABC):
    """The flights of one coordinator. A key identifies a flight; its last part is the name of the resource."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._epoch = engine.epoch

    @abstractmethod
    async def join(self, key: Any, lead: Lead, wait: RemainingWait) -> FlightResult:
        """Share the flight of this key, or lead a new one. ``lead`` is given the flight, and closes it before its lease
        ends: a caller that comes later must not get a value that was read before."""

    def remaining_wait(self, wait: float | None) -> RemainingWait:
        return RemainingWait(self._engine.clock, wait)

    def _forked(self) -> bool:
        """Is this a forked child, seen for the first time? The flights of the parent go on there (trap 32)."""
        if self._epoch == self._engine.epoch:
            return False
        self._epoch = self._engine.epoch
        return True

    def _check_still_waiting(self, key: Any, wait: RemainingWait) -> None:
        """Raise an error if a waiter may not go on waiting."""
        if self._engine.closed:
            raise StoreUnavailable(CLOSED)
        if wait.over():
            message = (
                "it is being rebuilt in this process, and the wait is over: try again, or serve stale ones meanwhile"
            )
            raise NotAcquired(message, resource=key[1])


class Flight:
    """One running rebuild in this process."""

    __slots__ = ("_flights", "_key", "_lease", "failure", "result")

    def __init__(self, flights: dict[Any, Any], key: Any) -> None:
        self._flights = flights
        self._key = key
        self._lease: Callable[[], Any] | None = None
        self.result: FlightResult | None = None
        self.failure: FlightResult | None = None

    def close(self) -> None:
        """Let no further caller join. Of two threads that call this, one may close the next flight as well: then fewer
        callers share that one, and the lease still prevents two rebuilds at once."""
        if self._flights.get(self._key) is self:
            self._flights.pop(self._key, None)

    def use_lease(self, lease: Any) -> None:
        """It runs under this lease, to which it keeps only a weak reference."""
        self._lease = weakref.ref(lease)

    def lost(self) -> bool:
        """Was its lease taken away? If it ended because the store is down, no other process can do better."""
        lease = None if self._lease is None else self._lease()
        return lease is not None and lease.state == LOST and lease._held.reason in TAKEN_AWAY

    def outcome(self, leader: bool) -> FlightResult | None:
        """The result for a caller; None: there is none, and the caller leads next. Errors that concern the leader alone
        are raised only for the leader."""
        if self.failure is not None and (leader or not isinstance(self.failure.error, LEADER_ONLY)):
            self.failure.check()
        return self.result


class _ThreadFlight(Flight):
    """A flight that a thread leads."""

    __slots__ = ("done",)

    def __init__(self, flights: dict[Any, Any], key: Any) -> None:
        super().__init__(flights, key)
        self.done = threading.Event()


class ThreadFlights(Flights):
    """Flights of threads. There is no lock: one atomic dict operation decides which caller leads, also after a fork."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._flights: dict[Any, _ThreadFlight] = {}

    async def join(self, key: Any, lead: Lead, wait: RemainingWait) -> FlightResult:
        while True:
            if self._forked():
                self._flights = {}
            mine = _ThreadFlight(self._flights, key)
            try:  # around setdefault too: an interrupt right after it must not leave a flight without a leader
                flight = self._flights.setdefault(key, mine)
                if flight is mine:
                    mine.result = await lead(mine, wait.left())
                    return mine.result
            except Exception as error:
                mine.failure = FlightResult(error=error)
                raise
            finally:
                mine.close()
                mine.done.set()
            if not flight.done.is_set():
                warn_in_event_loop(self._engine)
            while not flight.done.wait(wait.nap()):
                self._check_still_waiting(key, wait)
                if flight.lost():
                    flight.close()
                    break
            result = flight.outcome(leader=False)
            if result is not None:
                return result


class _TaskFlight(Flight):
    """A flight that a task leads; ``waiting`` counts its callers."""

    __slots__ = ("task", "waiting")

    def __init__(self, flights: dict[Any, Any], key: Any) -> None:
        super().__init__(flights, key)
        self.waiting = 0
        self.task: Any = None


class TaskFlights(Flights):
    """Flights of tasks. Each event loop has its own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._loops: dict[asyncio.AbstractEventLoop, dict[Any, _TaskFlight]] = {}

    async def join(self, key: Any, lead: Lead, wait: RemainingWait) -> FlightResult:
        flights = self._here()
        while True:
            flight = flights.get(key)
            leads = flight is None or flight.task.done()  # a task that was cancelled before it began is still listed
            if flight is None or leads:
                flight = flights[key] = _TaskFlight(flights, key)
                flight.task = asyncio.create_task(_run_flight(flight, lead, wait), name="leasehold-flight")
            await self._wait(key, flight, None if leads else wait)
            result = flight.outcome(leads)
            if result is not None:
                return result
            if leads:
                flight.task.result()  # raises: the task itself was cancelled, or ended by an interrupt

    def _here(self) -> dict[Any, _TaskFlight]:
        if self._forked():
            self._loops = {}
        loop = asyncio.get_running_loop()
        flights = self._loops.get(loop)
        if flights is None:
            for closed in [one for one in list(self._loops) if one.is_closed()]:  # other threads may have removed it
                self._loops.pop(closed, None)
            flights = self._loops[loop] = {}
        return flights

    async def _wait(self, key: Any, flight: _TaskFlight, wait: RemainingWait | None) -> None:
        flight.waiting += 1
        try:
            while not flight.task.done():
                await asyncio.wait([flight.task], timeout=None if wait is None else wait.nap())
                if wait is not None and not flight.task.done():
                    self._check_still_waiting(key, wait)
                    if flight.lost():
                        flight.close()
                        return
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.close()
                flight.task.cancel()
                await asyncio.wait([flight.task])  # a cancelled caller goes on only when its work has stopped


async def _run_flight(flight: _TaskFlight, lead: Lead, wait: RemainingWait) -> None:
    try:
        flight.result = await lead(flight, wait.left())
    except Exception as error:
        flight.failure = FlightResult(error=error)
    finally:
        flight.close()
