"""The simulated world: true time, a heap of events, one server with the pure ledger, and the network to it.

Time is a number that jumps from event to event. Nothing here waits, reads a real clock or draws from anything but
the seed, so the same seed gives the same history, byte for byte (I17).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Protocol, TypeAlias

from leasehold._core import ledger, ops
from leasehold._core.types import Instant, State
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from tests.support.simulator.faults import CALM, Weather
from tests.support.simulator.plans import Plan

EPOCH_US = 1_700_000_000_000_000
START = 1_000_000.0  # what the server's clock shows at first, in seconds: so that it can be set back
Outcome: TypeAlias = ops.Reply | LeaseholdError


class Judge(Protocol):
    """Whoever sees what clients send and what the ledger does, and finds fault."""

    def sent(self, op: ops.ResourceOp | ops.Group) -> None: ...

    def turn(self, op: ops.ResourceOp, now: Instant, before: State, outcome: ledger.Outcome) -> None: ...

    def wiped(self) -> None: ...

    def turned(self, ms: int) -> None: ...


class Reachable(Protocol):
    """A process as the network sees it."""

    alive: bool
    vanished: bool  # its host is gone, so nobody noticed that its sockets are closed

    def receive(self, push: ops.Push) -> None: ...


class Event:
    """Something that will happen, unless it is called off."""

    __slots__ = ("do",)

    def __init__(self, do: Callable[[], None]) -> None:
        self.do: Callable[[], None] | None = do

    def call_off(self) -> None:
        self.do = None


class World:
    """True time, the network and the server."""

    def __init__(self, plan: Plan, judge: Judge) -> None:
        self.plan = plan
        self.random = Random(f"world {plan.seed}")
        self.judge = judge
        self.weather: Weather = plan.weather
        self.now = 0.0
        self.processes: dict[str, Reachable] = {}
        self.states: dict[str, State] = {}
        self.stalled_until = 0.0
        self.clock = START  # of the server, when this began
        self.notes: list[tuple[float, str, str, tuple[object, ...]]] = []
        self._heap: list[tuple[float, int, Event]] = []
        self._order = count()

    # ------------------------------------------------------------ time

    def at(self, when: float, do: Callable[[], None], place: int | None = None) -> Event:
        """Do this then. ``place``: among all that is to be done at that moment; the last one if it has none."""
        event = Event(do)
        heappush(self._heap, (max(when, self.now), next(self._order) if place is None else place, event))
        return event

    def step(self) -> bool:
        """The next event; False when nothing will ever happen again."""
        while self._heap:
            when, _, event = heappop(self._heap)
            if event.do is not None:
                self.now = when
                event.do()
                return True
        return False

    def calm(self) -> bool:
        return self.weather is CALM and self.now >= self.plan.calm_at

    def note(self, who: str, what: str, *details: object) -> None:
        self.notes.append((self.now, who, what, details))

    # ------------------------------------------------------------ the server

    def instant(self, at: float | None = None) -> Instant:
        seconds = self.clock + (self.now if at is None else at) * self.plan.server_rate
        return Instant(int(seconds * 1000), EPOCH_US + int(seconds * 1_000_000))

    def true_time(self, server_ms: int) -> float:
        """When the server's clock shows this."""
        return (server_ms / 1000 - self.clock) / self.plan.server_rate

    def reachable(self, address: str) -> bool:
        process = self.processes[address]
        return process.alive or process.vanished

    def turn(self, op: ops.ResourceOp | ops.Group) -> ops.Reply:
        if isinstance(op, ops.Group):
            return self._together(op)
        before, now = self.states.get(op.resource, ledger.EMPTY), self.instant()
        outcome = ledger.apply(before, now, op, self.reachable)
        self.states[op.resource] = outcome.state
        self.note("store", "turn", op, outcome.reply)
        self.judge.turn(op, now, before, outcome)
        for push in outcome.pushes:
            self._send_push(push)
        return outcome.reply

    def _together(self, op: ops.Group) -> ops.Replies:
        replies: list[ops.Reply] = []
        for step in op.steps:
            replies.append(self.turn(step))
            if ledger.ends_group(step, replies[-1]):
                break
        return ledger.group_reply(replies)

    def stall(self, seconds: float) -> None:
        """Until calm at most, and never cut short: requests that queue up keep their order."""
        self.note("store", f"stalls for {seconds:.3f} s")
        self.stalled_until = max(self.stalled_until, min(self.now + seconds, self.plan.calm_at))

    def wipe(self) -> None:
        self.note("store", "loses its memory")
        self.states.clear()
        self.judge.wiped()

    def turn_clock(self, seconds: float) -> None:
        """Set the server's clock, as an administrator or NTP does."""
        self.note("store", f"has its clock set by {seconds:.3f} s")
        ms = round(seconds * 1000)
        self.clock += ms / 1000
        self.judge.turned(ms)

    # ------------------------------------------------------------ the network

    def call(self, op: ops.ResourceOp | ops.Group, answer: Callable[[Outcome], None]) -> Event:
        """Send a request. ``answer`` is called with a reply, with an error, or with both: only the first counts. The
        event is the moment at which the caller gives up."""
        self.judge.sent(op)
        fate = self.weather.fate(self.random)
        if fate.deliver_after is not None:
            self.at(self.now + fate.deliver_after, partial(self._arrive, op, fate.reply_after, answer))
        if fate.again_after is not None:
            self.at(self.now + fate.again_after, partial(self._arrive, op, None, answer))
        patience = op.budget_ms / 1000
        if fate.reset_after is not None:
            patience = min(patience, fate.reset_after)
        error = StoreUnavailable("refused") if fate.refused else OutcomeUnknown("no answer")
        return self.at(self.now + patience, partial(answer, error))

    def _arrive(
        self,
        op: ops.ResourceOp | ops.Group,
        reply_after: float | None,
        answer: Callable[[Outcome], None],
        place: int | None = None,
    ) -> None:
        if self.now < self.stalled_until:  # requests queue up, in their order, also when it goes on to stall
            place = next(self._order) if place is None else place
            self.at(self.stalled_until, partial(self._arrive, op, reply_after, answer, place), place)
            return
        reply = self.turn(op)
        if reply_after is not None:
            self.at(self.now + reply_after, partial(answer, reply))

    def _send_push(self, push: ops.Push) -> None:
        """Its own way and its own delay: it may overtake the reply of the command that caused it."""
        if self.random.random() < self.weather.push_lost:
            self.note("store", "push lost", push)
            return
        process = self.processes[push.address]
        after = self.weather.trip(self.random, self.weather.push_slow)
        self.at(self.now + after, partial(process.receive, push))
