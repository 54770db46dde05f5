"""A simulated process: its own clock, a mailbox, and the third driver of the flows.

It can be frozen: then neither timers nor messages are processed, and after that everything is, late and in any
order. It can be killed. Its clock starts anywhere and runs a little fast or slow, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

from leasehold._core import ops
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from tests.support.simulator.plans import Habits
from tests.support.simulator.world import Event, Outcome, World

RETRY = 0.05  # seconds between two attempts of what is done in the background
LATE = 0.001  # how late a timer may fire


class Cancelled(BaseException):
    """Arrives at an await from outside, as asyncio's does."""


class Task:
    """One flow being driven: it is given answers until it ends."""

    def __init__(self, process: Process, flow: Coroutine[Any, Any, Any]) -> None:
        self.process = process
        self.flow = flow
        self.done = False
        self.parked = ""
        self._turn = 0  # an answer to an earlier await is nobody's
        self._timer: Event | None = None

    def step(self, answer: ops.TimedReply[Any] | None = None, error: BaseException | None = None) -> None:
        self._turn += 1
        if self._timer is not None:
            self._timer.call_off()
        self.process.parked.pop(self.parked, None)
        self.parked = ""
        try:
            op = self.flow.send(answer) if error is None else self.flow.throw(error)
            while (at_once := self._begin(op)) is not None:
                op = self.flow.send(at_once)
        except (StopIteration, Cancelled):
            self.done = True

    def cancel(self) -> None:
        if not self.done:
            self.step(error=Cancelled())

    def _begin(self, op: Any) -> ops.TimedReply[Any] | None:
        """Do the op; an answer when there is one already."""
        process = self.process
        if isinstance(op, ops.Defer):
            process.start(process.insist(op))
            return ops.TimedReply(None, process.local())
        if not isinstance(op, ops.Park):
            self._timer = process.call(op, partial(self._answered, self._turn))
            return None
        if op.owner in process.connection:
            return ops.TimedReply(process.connection.pop(op.owner), process.local())
        self.parked = op.owner
        process.parked[op.owner] = partial(self._answered, self._turn)
        late = process.world.random.random() * LATE
        when = process.true_time(op.until) + late
        self._timer = process.soon(when, partial(self._answered, self._turn, None))
        return None

    def _answered(self, turn: int, outcome: Outcome | ops.Push | None) -> None:
        if self.done or turn != self._turn:
            return
        if isinstance(outcome, LeaseholdError):
            self.step(error=outcome)
        else:
            self.step(ops.TimedReply(outcome, self.process.local()))


class Process:
    """A clock, tasks, and a way to be reached."""

    def __init__(self, world: World, habits: Habits) -> None:
        self.world = world
        self.habits = habits
        self.name = habits.name
        self.alive = True
        self.vanished = False
        self.frozen_until = 0.0
        self.naps = 0
        self.tasks: list[Task] = []
        self.connection: dict[str, ops.Push] = {}
        self.parked: dict[str, Callable[[ops.Push | None], None]] = {}
        self._keys = count(1)
        world.processes[self.name] = self

    # ------------------------------------------------------------ time

    def local(self) -> float:
        return self.habits.offset + self.world.now * self.habits.rate

    def true_time(self, local: float) -> float:
        return (local - self.habits.offset) / self.habits.rate

    def soon(self, when: float, do: Callable[[], None]) -> Event:
        return self.world.at(when, partial(self._run, do))

    def _run(self, do: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.world.now < self.frozen_until:
            self.soon(self.frozen_until + self.world.random.random() * 2 * LATE, do)
        else:
            do()

    async def sleep(self, seconds: float, key: str = "") -> None:
        """A Park that no push ends; ``kick`` with the key does."""
        await ops.Park(key or f"nap {next(self._keys)}", self.local() + seconds)

    # ------------------------------------------------------------ driving

    def start(self, flow: Coroutine[Any, Any, Any]) -> Task:
        task = Task(self, flow)
        self.tasks = [one for one in self.tasks if not one.done]
        self.tasks.append(task)
        self.soon(self.world.now, task.step)
        return task

    def call(self, op: ops.ResourceOp | ops.Group, answer: Callable[[Outcome], None]) -> Event:
        self.world.note(self.name, "sends", op)
        return self.world.call(op, lambda outcome: self._run(partial(answer, outcome)))

    async def insist(self, later: ops.Defer) -> None:
        until = self.local() + later.seconds
        while True:
            try:
                await later.op
            except (StoreUnavailable, OutcomeUnknown):
                if self.local() >= until:
                    return
                await self.sleep(RETRY)
            else:
                return

    def receive(self, push: ops.Push) -> None:
        self._run(partial(self._deliver, push))

    def _deliver(self, push: ops.Push) -> None:
        self.world.note(self.name, "gets", push)
        parked = self.parked.get(push.owner)
        if parked is None:
            self.connection[push.owner] = push
        else:
            parked(push)

    def kick(self, key: str) -> None:
        parked = self.parked.get(key)
        if parked is not None:
            parked(None)

    # ------------------------------------------------------------ what is done to it

    def freeze(self, seconds: float) -> None:
        self.world.note(self.name, f"freezes for {seconds:.3f} s")
        self.naps += 1
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)

    def kill(self, vanish: bool) -> None:
        self.world.note(self.name, "vanishes with its host" if vanish else "is killed")
        self.alive, self.vanished = False, vanish
        for task in self.tasks:
            task.flow.close()
