"""A stage for flows that take several resources: a ledger for each, a clock, a network that loses and delays, others
who hold something, and a background in which what was left for later is done."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from leasehold._core import ledger, ops
from leasehold._core.flows import AcquireRequest
from leasehold._core.holding import Changeable, LocalGrant
from leasehold._core.names import Name
from leasehold._core.types import Instant, State
from tests.core.desk import WALL
from tests.core.play import TTL, Latch

T = TypeVar("T")
MOST_OPS = 2_000
Fate = Callable[["Stage", ops.StoreOp], BaseException | None]  # what becomes of one op: an error, or None


def part(name: str, wait: float | None = None, **fields: Any) -> AcquireRequest:
    """One of several, for somebody who can be pushed."""
    return AcquireRequest(Name(name, name), TTL, wait, address="@me", holder_address="news@me", **fields)


class Stage:
    """The store and the driver in one. ``fate`` may fail an op, before or after it is done."""

    def __init__(self, fate: Fate | None = None) -> None:
        self.now = 100.0
        self.states: dict[str, State] = {}
        self.ops: list[ops.Op] = []
        self.pushes: dict[str, ops.Push] = {}
        self.background: list[ops.Defer] = []
        self.late: list[ops.StoreOp] = []  # still under way
        self.parked: list[Callable[[], object]] = []  # what others do, one for each time that we park
        self.fate = fate

    # ------------------------------------------------------------ the store

    def do(self, op: Any) -> Any:
        """One turn, or several in one step."""
        if isinstance(op, ops.Group):
            replies: list[ops.Reply] = []
            for step in op.steps:
                replies.append(self.do(step))
                if ledger.ends_group(step, replies[-1]):
                    break
            return ledger.group_reply(replies)
        instant = Instant(int(self.now * 1000), WALL + int(self.now * 1e6))
        outcome = ledger.apply(self.states.get(op.resource, ledger.EMPTY), instant, op)
        self.states[op.resource] = outcome.state
        self.pushes.update({push.owner: push for push in outcome.pushes if push.address == "@me"})
        return outcome.reply

    def hold(self, name: str, owner: str = "other:1:x", ttl_ms: int = 3_600_000, **fields: Any) -> Callable[[], object]:
        """Somebody else takes it; called, what is returned gives it back."""
        reply = self.do(ops.Claim(name, owner, ttl_ms, **fields))
        assert isinstance(reply, ops.Granted), reply
        return lambda: self.do(ops.Release(name, owner, reply.fence))

    def pass_by(self, seconds: float) -> None:
        """Time goes on."""
        self.now += seconds

    def catch_up(self) -> None:
        """What was left for later is done, and what was delayed arrives, whichever comes first; twice, as it may be."""
        for _ in range(2):
            for later in self.background:
                self.do(later.op)
            for op in self.late:
                self.do(op)
        self.background = []

    def ours(self) -> dict[str, list[str]]:
        """Resource -> who of us holds it or waits for it."""
        found = {}
        for name, state in self.states.items():
            there = [one.owner for one in state.holders] + [one.owner for one in state.queue]
            if any(owner.startswith("me:") for owner in there):
                found[name] = [owner for owner in there if owner.startswith("me:")]
        return found

    # ------------------------------------------------------------ the driver

    def play(self, flow: Coroutine[Any, Any, T]) -> T:
        """Drive a flow to its end."""
        resume: Callable[[], Any] = lambda: flow.send(None)  # noqa: E731  as in Play
        for _ in range(MOST_OPS):
            try:
                op = resume()
            except StopIteration as end:
                result: T = end.value
                return result
            self.ops.append(op)
            try:
                answer = ops.TimedReply(self.answer(op), self.now)
            except BaseException as error:
                resume = self.throwing(flow, error)
            else:
                resume = self.sending(flow, answer)
        raise AssertionError(f"no end after {MOST_OPS} ops")

    def throwing(self, flow: Coroutine[Any, Any, T], error: BaseException) -> Callable[[], Any]:
        """The next op after an error."""
        return lambda: flow.throw(error)

    def sending(self, flow: Coroutine[Any, Any, T], answer: ops.TimedReply[Any]) -> Callable[[], Any]:
        """The next op after an answer."""
        return lambda: flow.send(answer)

    def answer(self, op: Any) -> Any:
        """A millisecond for each op of the store."""
        if isinstance(op, ops.Defer):
            self.background.append(op)
            op = None  # a driver keeps what it is given, before anything can be thrown
        error = self.fate(self, self.ops[-1]) if self.fate is not None else None  # type: ignore[arg-type]  # any op
        if error is not None:
            raise error
        if op is None:
            return None
        if isinstance(op, ops.Park):
            return self.park(op)
        self.now += 0.001
        return self.do(op)

    def park(self, op: ops.Park) -> ops.Push | None:
        """The background catches up meanwhile, and others go on."""
        for later in self.background:
            self.do(later.op)
        self.background = []
        if self.parked:
            self.parked.pop(0)()
        push = self.pushes.pop(op.owner, None)
        if push is None:
            self.now = max(self.now, op.until)
        return push


class Us:
    """Whoever wants all of them."""

    def __init__(self, asks: list[AcquireRequest]) -> None:
        self.asks = asks
        self.kept: list[Changeable] = []
        self.drawn = 0

    def new_owner(self, place: int) -> str:
        """A new one."""
        self.drawn += 1
        return f"me:{place}:{self.drawn}"

    def keep(self, place: int, taken: LocalGrant) -> Changeable:
        """As the runtime would."""
        holding = Changeable(self.asks[place].name, taken, Latch())
        self.kept.append(holding)
        return holding


def lost_request(error: BaseException) -> Fate:
    """It never arrives."""
    return lambda stage, op: error


def lost_reply(error: BaseException) -> Fate:
    """It is done, and nobody hears of it."""

    def fate(stage: Stage, op: ops.StoreOp) -> BaseException:
        if not isinstance(op, (ops.Park, ops.Defer)):
            stage.do(op)
        return error

    return fate


def delayed(error: BaseException) -> Fate:
    """It arrives after all is over."""

    def fate(stage: Stage, op: ops.StoreOp) -> BaseException:
        if not isinstance(op, (ops.Park, ops.Defer)):
            stage.late.append(op)
        return error

    return fate


def at(number: int, fate: Fate) -> Fate:
    """Only the op of that number."""
    return lambda stage, op: fate(stage, op) if len(stage.ops) == number + 1 else None
