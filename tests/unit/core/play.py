"""Plays a flow against a script: which op comes next, what it is answered with, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from leasehold._core import ops
from leasehold._core.flows import AcquireRequest
from leasehold._core.holding import Holding, LocalGrant
from leasehold._core.names import Name
from leasehold.errors import OutcomeUnknown, StoreUnavailable

T = TypeVar("T")
NAME = Name("report:42", "report")
FIRST = "host:7:secret.1"
TTL = 30_000
DOWN, UNKNOWN = StoreUnavailable("down"), OutcomeUnknown("no answer")


class Step(NamedTuple):
    """One op that must come, its reply or error, and the seconds that pass meanwhile. A Park without a push takes
    as long as it was meant to."""

    kind: type
    reply: object = None
    takes: float = 0.0


class Play:
    """A driver that does nothing but follow the script, with a clock of its own."""

    def __init__(self, *script: Step, now: float = 100.0) -> None:
        self.script = list(script)
        self.now = now
        self.ops: list[ops.Op] = []  # all that the flow asked for
        self.sent_at: list[float] = []

    def run(self, flow: Coroutine[Any, Any, T]) -> T:
        """To the end of flow and script: both must end together."""
        result = self.follow(flow, self.scripted)
        assert not self.script, f"the flow ended before {self.script}"
        return result

    def scripted(self, op: ops.Op) -> Step:
        """The next step, if it is the right one."""
        assert self.script, f"the script ended before {op}"
        step = self.script.pop(0)
        assert isinstance(op, step.kind), f"{op} came where {step} was expected"
        return step

    def follow(self, flow: Coroutine[Any, Any, T], answer: Callable[[ops.Op], Step]) -> T:
        """To the end of the flow, each op answered by ``answer``."""
        resume: Callable[[], Any] = lambda: flow.send(None)  # noqa: E731  as below
        while True:
            try:
                op = resume()
            except StopIteration as end:
                result: T = end.value
                return result
            self.ops.append(op)
            self.sent_at.append(self.now)
            step = answer(op)
            self.now += step.takes
            if isinstance(step.reply, BaseException):
                resume = self.throwing(flow, step.reply)
                continue
            if isinstance(op, ops.Park) and step.reply is None:
                self.now = max(self.now, op.until)
            resume = self.sending(flow, ops.TimedReply(step.reply, self.now))

    def throwing(self, flow: Coroutine[Any, Any, T], error: BaseException) -> Callable[[], Any]:
        """The next op after an error."""
        return lambda: flow.throw(error)

    def sending(self, flow: Coroutine[Any, Any, T], answer: ops.TimedReply[Any]) -> Callable[[], Any]:
        """The next op after an answer."""
        return lambda: flow.send(answer)

    # ------------------------------------------------------------ what was asked

    def of(self, kind: type[T]) -> list[T]:
        """The ops of one kind, in order."""
        return [op for op in self.ops if isinstance(op, kind)]

    def last(self, kind: type[T]) -> T:
        """The last op, which must be of that kind."""
        op = self.ops[-1]
        assert isinstance(op, kind), op
        return op


class Owners:
    """Owner tokens in order: ``host:7:secret.1``, ``host:7:secret.2`` ..."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def __call__(self) -> str:
        """A new one."""
        self.drawn.append(f"host:7:secret.{len(self.drawn) + 1}")
        return self.drawn[-1]


def push(beat: int, fence: int = 9, remaining_ms: int = 30_000, owner: str = "host:7:secret.1") -> ops.Push:
    """A grant that is told without having been asked for."""
    return ops.Push("@me", "granted", NAME.text, owner, fence, beat, remaining_ms)


WAITING = Step(ops.Claim, ops.Queued(0, 20_000, "other:9"))
STILL_WAITING = Step(ops.Beat, ops.Queued(0, 20_000, "other:9"))


def ask(
    wait: float | None = None, *, renews: bool = True, at_least_ms: int = 0, address: str = "@me"
) -> AcquireRequest:
    """A lease of 30 s for somebody who can be pushed."""
    return AcquireRequest(
        NAME, TTL, wait, renews=renews, at_least_ms=at_least_ms, address=address, holder_address="news@me", meta="{}"
    )


class Latch:
    """A lock that is not re-entrant, and says so in place of hanging."""

    def __init__(self) -> None:
        self.shut = False

    def __enter__(self) -> None:
        assert not self.shut, "a transition took its lock twice"
        self.shut = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut = False


def hold(ttl_ms: int = TTL, *, renews: bool = True, unanswered: bool = False) -> Holding:
    """A lease asked for at 100.0 and granted in full."""
    taken = LocalGrant(FIRST, 9, ttl_ms, 100.0, ttl_ms, 100.0, unanswered)
    return Holding(NAME, taken, Latch(), renews=renews)
