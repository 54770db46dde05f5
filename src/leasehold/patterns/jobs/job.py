"""Job and AsyncJob: what a worker has claimed, with the version as its fence."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from leasehold._core.durations import ttl_ms
from leasehold._core.names import Name
from leasehold._runtime.aio import Interrupt
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost
from leasehold.patterns.jobs import flows
from leasehold.patterns.jobs.flows import Flow, run, run_async
from leasehold.patterns.jobs.table import JobRow

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.patterns.jobs.base import BaseJobs

LONGEST_ERROR = 4000  # characters
LOST = {
    "taken": "another worker has taken it over",
    "deleted": "its row is gone",
    "expired": "its lease ran out before a heartbeat was confirmed",
    "forked": "it belongs to the process that claimed it",
}


class BaseJob:
    """What Job and AsyncJob have in common."""

    def __init__(self, jobs: BaseJobs, row: JobRow, state: str, sent: float, lease: Any = None) -> None:
        self._jobs = jobs
        self._held = lease  # of the pre-filter
        self._pid = os.getpid()
        self._reason = ""
        self._unclaimed = False
        self._found = row
        self.row: dict[str, Any] = row["row"]
        self.id: Any = row["id"]
        self.version: int = row["version"]
        self.state = state
        self.lease = jobs.lease
        self.deadline = sent + self.lease
        self.settling = False  # is a change of its state under way?
        self.in_transaction = False  # was its end part of a transaction that may still roll back?

    @property
    def table(self) -> str:
        """The table that holds it."""
        return self._jobs.table

    @property
    def shown(self) -> str:
        """Its name in logs: the table, and a hash of the id."""
        return Name(f"{self.table}:{self.id}", self.table).shown

    @property
    def fence(self) -> int:
        """The version: it only grows, and a later owner's is higher. For a guard at another resource."""
        return self.version

    @property
    def attempts(self) -> int:
        """How often it was claimed, this time included."""
        return int(self._found.get("attempts", self.version) or 0)

    @property
    def owner(self) -> str | None:
        """The name of the worker that has claimed it: for people, it decides nothing."""
        found: str | None = self._found.get("owner")
        return found

    @property
    def payload(self) -> Any:
        """What was enqueued."""
        return self._decoded("payload")

    @property
    def result(self) -> Any:
        """What it was completed with."""
        return self._decoded("result")

    @property
    def error(self) -> str | None:
        """The message of its last failure."""
        found: str | None = self._found.get("error")
        return found

    @property
    def queue(self) -> str | None:
        """The queue that it was put into."""
        found: str | None = self._found.get("queue")
        return found

    @property
    def key(self) -> str | None:
        """The key under which it was enqueued once."""
        found: str | None = self._found.get("key")
        return found

    @property
    def superseded(self) -> bool:
        """Has the database reported that it is no longer ours?"""
        return self._reason in {"taken", "deleted"}

    def remaining(self) -> float:
        """Seconds until work must stop, because another worker may claim it then, unless a heartbeat comes first."""
        return max(self.deadline - self._jobs._now(), 0.0)

    def check(self) -> None:
        """Raise LeaseLost when it is no longer ours, or may not be: stop the work. It sends nothing, and costs nothing;
        only the database decides whether a completion is accepted."""
        if self._pid != os.getpid():
            raise self._loss("forked")
        if self._reason:
            raise self._loss(self._reason)
        if self.state == "running" and self.remaining() <= 0:
            raise self._loss("expired")

    # ------------------------------------------------------------ for the flows

    def _require_mine(self) -> None:
        if self._pid != os.getpid():
            raise self._loss("forked")
        if self._unclaimed:
            raise InvalidRequest("this job was only looked at: claim it first")

    def _loss(self, reason: str) -> LeaseLost:
        return LeaseLost(
            f"{self.shown} is no longer ours: {LOST[reason]}. Stop the work",
            reason=reason,
            resource=f"{self.table}:{self.id}",
            owner=self.owner,
            fence=self.version,
        )

    def _lose(self, reason: str) -> None:
        """A loss is final; but what the database reports replaces what only the local clock has shown."""
        if not self._reason or reason != "expired":
            self._reason = reason

    def _confirmed(self, sent: float, lease: float) -> None:
        """A heartbeat with this lease was accepted. The pre-filter's lease is prolonged too, and ends when heartbeats
        do: if it outlived them it would keep other workers from a job that the database would give them."""
        self.deadline = max(self.deadline, sent + lease)
        if self._held is not None:
            try:
                self._held.beat()
            except LeaseholdError:
                self._held = None

    def _ended(self, state: str, in_transaction: bool) -> Any:
        """-> the lease of the pre-filter, to be released"""
        self.state, self.in_transaction = state, in_transaction
        self._jobs._heart.drop(self)
        lease, self._held = self._held, None
        return lease

    def _decoded(self, ours: str) -> Any:
        value = self._found.get(ours)
        if not isinstance(value, str | bytes):
            return value
        try:
            return json.loads(value)
        except ValueError as error:
            raise InvalidRequest(f"the {ours} of {self.shown} is no JSON: read it as it is from job.row") from error

    def _complete_flow(self, result: Any, tx: Any) -> Flow[None]:
        row: JobRow = {"error": None}
        if result is not None:
            self._jobs._columns.require("result", "complete(result)")
            row["result"] = encoded(result, "result")
        return flows.settle(self._jobs, self, "done", row, None, tx, "completed")

    def _fail_flow(self, error: object, retry: bool, tx: Any) -> Flow[None]:
        row: JobRow = {"error": error_text(error)}
        pause = next(itertools.islice(self._jobs.retry, max(self.attempts - 1, 0), None), None)
        if not retry or pause is None:
            return flows.settle(self._jobs, self, "dead", row, None, tx, "dead")
        return flows.settle(self._jobs, self, "ready", row, pause, tx, "failed")

    def _release_flow(self, tx: Any) -> Flow[None]:
        row: JobRow = {"attempts": max(self.attempts - 1, 0)} if "attempts" in self._found else {}
        return flows.settle(self._jobs, self, "ready", row, 0.0, tx, "released")

    def _heartbeat_flow(self, lease: Any) -> Flow[None]:
        length = self.lease if lease is None else ttl_ms(lease, "lease") / 1000
        return flows.extend(self._jobs, self, length)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shown}: {self.state}, version {self.version}>"


class Job(BaseJob):
    """A job that this worker has claimed. Inside ``with`` heartbeats are sent in the background; leaving the body
    completes it, an error in the body fails it and is raised again.

    ``id``, ``payload``, ``attempts``, ``version`` (the fence) and ``row``, with every other column of your table.
    """

    def __init__(self, jobs: BaseJobs, row: JobRow, state: str, sent: float, lease: Any = None) -> None:
        super().__init__(jobs, row, state, sent, lease)
        self.lost = threading.Event()

    def heartbeat(self, lease: Duration | None = None) -> None:
        """No other worker may claim it for another ``lease``. StaleOwner: one has."""
        run(self._heartbeat_flow(lease))

    def complete(self, result: Any = None, *, tx: Any = None) -> None:
        """Done, and ``result`` is kept as JSON. With ``tx`` this is part of your own transaction: its effect and its
        completion are one step, so the effect happens exactly once. StaleOwner, and nothing is changed, when another
        worker has taken over: let it roll your transaction back. May be repeated."""
        run(self._complete_flow(result, tx))

    def fail(self, error: object, *, retry: bool = True, tx: Any = None) -> None:
        """It failed, and why: an exception or text. It is tried again after a pause of the ``retry`` of these jobs, and
        is dead after the last attempt, or with ``retry=False``."""
        run(self._fail_flow(error, retry, tx))

    def release(self, *, tx: Any = None) -> None:
        """Other workers may claim it at once, and this attempt does not count."""
        run(self._release_flow(tx))

    def __enter__(self) -> Self:
        self.check()
        self._jobs._heart.watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs._heart.drop(self)
        if self._pid == os.getpid():
            run(flows.leave(self, error))

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        self.lost.set()


class AsyncJob(BaseJob):
    """The same, awaited. The task inside ``async with`` is cancelled when the job is lost: that becomes LeaseLost."""

    def __init__(self, jobs: BaseJobs, row: JobRow, state: str, sent: float, lease: Any = None) -> None:
        super().__init__(jobs, row, state, sent, lease)
        self.lost = asyncio.Event()
        self._interrupt: Interrupt | None = None

    async def heartbeat(self, lease: Duration | None = None) -> None:
        """No other worker may claim it for another ``lease``. StaleOwner: one has."""
        await run_async(self._heartbeat_flow(lease))

    async def complete(self, result: Any = None, *, tx: Any = None) -> None:
        """Done, and ``result`` is kept as JSON. With ``tx`` this is part of your own transaction: its effect and its
        completion are one step, so the effect happens exactly once. StaleOwner, and nothing is changed, when another
        worker has taken over: let it roll your transaction back. May be repeated."""
        await run_async(self._complete_flow(result, tx))

    async def fail(self, error: object, *, retry: bool = True, tx: Any = None) -> None:
        """It failed, and why: an exception or text. It is tried again after a pause of the ``retry`` of these jobs, and
        is dead after the last attempt, or with ``retry=False``."""
        await run_async(self._fail_flow(error, retry, tx))

    async def release(self, *, tx: Any = None) -> None:
        """Other workers may claim it at once, and this attempt does not count."""
        await run_async(self._release_flow(tx))

    async def __aenter__(self) -> Self:
        self.check()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._interrupt = Interrupt(task, asyncio.get_running_loop())
        self._jobs._heart.watch(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupt, self._interrupt = self._interrupt, None
        self._jobs._heart.drop(self)
        cancelled = False
        if interrupt is not None and interrupt.leave():
            cancelled = await interrupt.delivered(error)
        if self._pid == os.getpid():
            await run_async(flows.leave(self, error, cancelled))
        if cancelled:
            raise self._loss(self._reason) from error

    def _lose(self, reason: str) -> None:
        super()._lose(reason)
        self.lost.set()
        if self._interrupt is not None:
            self._interrupt()


# ---------------------------------------------------------------- values


def encoded(value: Any, what: str) -> str:
    """As JSON."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the {what} cannot be written as JSON ({error}): nothing was sent") from error
    if "\\u0000" in text:
        raise InvalidRequest(f"the {what} holds the character NUL, which PostgreSQL does not keep: nothing was sent")
    return text


def error_text(error: object) -> str:
    """For people: the type and the message of an exception, or text as it is. No traceback, and not too long."""
    if isinstance(error, BaseException):
        text = "".join(traceback.format_exception_only(error)).strip()
    elif isinstance(error, str):
        text = error
    else:
        raise InvalidRequest(f"error is an exception or text, not {type(error).__name__}")
    clean = text.replace("\0", "").encode("utf-8", "replace").decode()
    return clean if len(clean) <= LONGEST_ERROR else clean[: LONGEST_ERROR - 1] + "…"
