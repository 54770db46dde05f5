"""The calls of this process that wait for the file. One thread claims the file and runs the ops of all (trap 54).

A call that finds the file in use is put here. One of the threads that wait becomes the claimant: it alone tries to get
the file, with pauses that grow, and then runs what has gathered here in one transaction. So a process is one
contender for the file, however many of its threads and tasks wait. Renewals, releases and withdrawals come first:
they keep a lease alive, or let the next holder in.
"""

from __future__ import annotations

import threading
import time

from leasehold._core.light_typing import TYPE_CHECKING, Callable, Sequence, deque
from leasehold._core.ops import Beat, Claim, Group, Inspect, Leaks, Ping, Reply, Scan, StoreOp, Watch
from leasehold.errors import LeaseholdError, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio

MOST_OPS = 100  # in one transaction: others wait meanwhile
LOST_WAKEUP = 1.0  # seconds after its budget in which a task that waits must have been woken
PATIENT = (Claim, Beat, Watch, Inspect, Scan, Leaks, Ping)


def urgent(op: StoreOp) -> bool:
    """True when it keeps a lease alive, or ends one."""
    return not isinstance(op.steps[0] if isinstance(op, Group) else op, PATIENT)


class Call:
    """The ops of one caller, and later their replies or one error. Its thread sleeps until it is woken: because the
    call is done, or because some thread must become the claimant."""

    __slots__ = ("_asleep", "budget", "error", "give_up", "ops", "replies")

    def __init__(self, ops: Sequence[StoreOp]) -> None:
        self.ops = ops
        self.budget = max(min([op.budget_ms for op in ops]), 1) / 1000  # a batch has the smallest of its ops
        self.give_up = time.monotonic() + self.budget
        self.replies: list[Reply | LeaseholdError] | None = None
        self.error: BaseException | None = None
        self._asleep = threading.Lock()  # held until the thread is to wake up
        self._asleep.acquire()

    def done(self) -> bool:
        return self.replies is not None or self.error is not None

    @property
    def resource(self) -> str | None:
        """The one that an error is about."""
        return self.ops[0].resource or None if len(self.ops) == 1 else None

    def result(self) -> list[Reply | LeaseholdError]:
        if self.error is not None:
            raise self.error
        assert self.replies is not None  # noqa: S101  # for type checkers: it is done
        return self.replies

    def finish(self, replies: list[Reply | LeaseholdError]) -> None:
        self.replies = replies
        self.wake()

    def fail(self, error: LeaseholdError) -> None:
        """Each call raises an error of its own: threads that raise the same one would mix their tracebacks."""
        own = type(error)(*error.args)
        own.resource, own.__cause__ = self.resource, error.__cause__
        self.error = own
        self.wake()

    def wait(self, seconds: float) -> None:
        self._asleep.acquire(timeout=max(seconds, 0))

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:  # released already
            pass


class LoopCall(Call):
    """The call of a task. No thread sleeps for it: its event loop is woken, and lends a worker thread when there is no
    other claimant."""

    __slots__ = ("_claim", "_loop", "_timer", "future")

    def __init__(self, ops: Sequence[StoreOp], loop: asyncio.AbstractEventLoop, claim: Callable[[], object]) -> None:
        super().__init__(ops)
        self._loop = loop
        self._claim = claim
        self.future: asyncio.Future[None] = loop.create_future()
        # A signal handler that raises inside asyncio loses the wakeup: then this one ends the wait.
        self._timer = loop.call_later(self.budget + LOST_WAKEUP, self.proceed)

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.proceed)
        except RuntimeError:  # the loop is closed, and its tasks with it
            if self.error is None:
                self.error = OutcomeUnknown("the event loop of this call is closed")

    def proceed(self) -> None:
        """End the task's wait if the call is done; else lend it a claimant. On the loop's own thread."""
        if self.future.done():  # its task was cancelled
            return
        if not self.done():
            try:
                self._loop.run_in_executor(None, self._claim)
                return
            except RuntimeError as error:  # the loop's executor is shut down
                self.error = error
        self.future.set_result(None)
        self._timer.cancel()


class Pending:
    """The calls that wait. Lock-free: each method is one atomic step of a deque, or can be interrupted between two."""

    __slots__ = ("_patient", "_urgent")

    def __init__(self) -> None:
        self._urgent: deque[Call] = deque()
        self._patient: deque[Call] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._patient)

    @property
    def hurry(self) -> bool:
        return bool(self._urgent)

    def add(self, call: Call) -> None:
        (self._urgent if urgent(call.ops[0]) else self._patient).append(call)

    def remove(self, call: Call) -> bool:
        """False when it is not here any more: a claimant has taken it."""
        for calls in (self._urgent, self._patient):
            try:
                calls.remove(call)
            except ValueError:
                continue
            return True
        return False

    def all(self) -> list[Call]:
        return [*self._urgent, *self._patient]

    def wake_one(self) -> None:
        """Let some call that waits become the claimant."""
        for call in self.all():
            if call.done():
                continue
            call.wake()
            if not call.done():  # else its event loop is closed
                return


class PendingGroup:
    """The calls that one transaction serves. They are chosen when the file is locked, and not before: until then each
    may give up."""

    __slots__ = ("_pending", "calls")

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self.calls: list[Call] = []

    def ops(self) -> list[StoreOp]:
        ops: list[StoreOp] = []
        for call in self._pending.all():
            if self.calls and len(ops) + len(call.ops) > MOST_OPS:
                break
            self.calls.append(call)  # first: an interrupt in between then leaves it in both lists, and not in neither
            if self._pending.remove(call) and not call.done():
                ops.extend(call.ops)
            else:
                self.calls.pop()
        return ops

    def finish(self, replies: list[Reply | LeaseholdError]) -> None:
        start = 0
        for call in self.calls:
            end = start + len(call.ops)
            call.finish(replies[start:end])
            start = end

    def fail(self, error: LeaseholdError) -> None:
        for call in self.calls:
            if not call.done():
                call.fail(error)
