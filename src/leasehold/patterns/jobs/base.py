"""What Jobs and AsyncJobs have in common: arguments, checked, and how a flow reaches the database."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._core.durations import seconds, ttl_ms
from leasehold._runtime.backoff import Backoff
from leasehold._runtime.identity import process_prefix
from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NO_KEY, has_code, table_errors
from leasehold._sql.run import RunOptions, StatementFlow, run, run_within
from leasehold._sql.transactions import transactions_of
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.observe.events import JobMoved, JobsCounted
from leasehold.observe.observers import Observers
from leasehold.patterns.flavour import Flavour
from leasehold.patterns.jobs import flows
from leasehold.patterns.jobs import table as job_table
from leasehold.patterns.jobs.claims import ClaimStatements, job_statements
from leasehold.patterns.jobs.clock_setback import ClockReadings
from leasehold.patterns.jobs.flows import Flow
from leasehold.patterns.jobs.job import BaseJob, encoded
from leasehold.patterns.jobs.statements import ColumnName, UserColumn, When
from leasehold.patterns.jobs.table import JobColumns, JobRow, read_layout
from leasehold.stores.clock import SystemClock

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.observe.events import Observer
    from leasehold.patterns.jobs.heartbeat import HeartbeatTask, HeartbeatThread

R = TypeVar("R")
RETRY = Backoff(base=1, cap=60, attempts=5)
MOST = 10_000  # jobs in one call
HOUR = 3600.0  # a lease of a coordinator that is longer warns


class BaseJobs:
    """The table, and everything that threads and event loops share."""

    _flavour: Flavour
    _kind: type[BaseJob]
    _beating: type[HeartbeatThread | HeartbeatTask]
    _whole: Callable[[Any], Any]  # completes a claim that is cancelled in the middle

    def __init__(
        self,
        engine: Any,
        table: str = "jobs",
        columns: Mapping[str, str | None] | None = None,
        states: Mapping[str, str | int] | None = None,
        *,
        lease: Duration = "1m",
        retry: Backoff = RETRY,
        hold: Any = None,
        name: str | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._columns = JobColumns(table, columns, states)
        self.table = self._columns.table
        self.lease = ttl_ms(lease, "lease") / 1000
        if not isinstance(retry, Backoff):
            raise InvalidRequest(f"retry is a leasehold.Backoff, not {type(retry).__name__}")
        self.retry = retry
        self._hold = self._coordinator(hold)
        self._observers = Observers([*(() if hold is None else hold._engine.observers.observers), *observers])
        self.name = _words(process_prefix() if name is None else name, "name", 255)
        self._begin = transactions_of(engine, self._require_flavour)
        self._statements: ClaimStatements | None = None
        self._heart = self._beating(self)
        self._clock_readings = ClockReadings(self.lease)

    def ddl(self, dialect: str) -> str:
        """What ``create`` executes, for a migration: ``sqlite``, ``postgresql`` or ``mariadb``."""
        return job_table.ddl(self._columns, names.dialect(dialect))

    def _require_flavour(self, awaited: bool) -> None:
        if awaited and not self._flavour.asynchronous:
            raise InvalidRequest("this engine is awaited: give it to AsyncJobs, or Jobs one that is not")
        if self._flavour.asynchronous and not awaited:
            raise InvalidRequest("this engine blocks the event loop: give it to Jobs, or AsyncJobs one that is awaited")

    def _coordinator(self, hold: Any) -> Any:
        if hold is None:
            return None
        if not callable(getattr(hold, "lock", None)) or not callable(getattr(hold, "close", None)):
            raise InvalidRequest(f"hold is what leasehold.connect gives, not {type(hold).__name__}")
        if iscoroutinefunction(hold.close) != self._flavour.asynchronous:
            raise InvalidRequest("hold must be of the same kind: leasehold.connect for Jobs, aio.connect for AsyncJobs")
        return hold

    # ------------------------------------------------------------ the database

    def _query(
        self,
        work: Callable[[ClaimStatements], StatementFlow[R]],
        tx: Any = None,
        alone: bool = False,
        through: Callable[[Any], Any] = lambda result: result,
    ) -> Flow[R]:
        """Run work in the user's transaction, or in our own; ``through`` is called with its result or awaitable."""
        try:
            found: R = yield lambda: through(self._send(work, tx, alone))
        except Conflict:
            raise
        except (InvalidRequest, StoreUnavailable):
            self._statements = None  # the table may have changed: read its layout again
            raise
        return found

    def _send(self, work: Callable[[ClaimStatements], StatementFlow[R]], tx: Any, alone: bool) -> Any:
        def with_layout(dialect: Dialect) -> StatementFlow[R]:
            known = self._statements
            if known is None or known.dialect is not dialect:
                known = job_statements(self._columns, (yield from read_layout(self._columns, dialect)))
                self._statements = known
            return (yield from work(known))

        if tx is not None:
            return self._of_this_kind(run(tx, with_layout, self._translated))
        statements = self._statements  # another thread may drop them meanwhile
        autocommit = alone and statements is not None and statements.dialect.name == "postgresql"
        options = RunOptions(autocommit=autocommit)
        return run_within(lambda: self._begin(autocommit), with_layout, self._translated, options)

    def _translated(self, error: BaseException) -> LeaseholdError:
        """The error of ours for one of the driver's."""
        if has_code(error, NO_KEY):
            named = f"{self._columns.names['key']} of {self.table}"
            return InvalidRequest(f"the column {named} has no unique index of its own: make one, for key=")
        return table_errors(self.table)(error)

    def _of_this_kind(self, result: Any) -> Any:
        if isinstance(result, Coroutine) and not self._flavour.asynchronous:
            result.close()
            raise InvalidRequest("this tx is awaited: use AsyncJobs with it")
        return result

    def _check_flow(self) -> Flow[None]:
        def nothing(known: ClaimStatements) -> StatementFlow[None]:
            yield from ()

        self._statements = None
        return (yield from self._query(nothing))

    def _create_flow(self) -> Flow[None]:
        def work(dialect: Dialect) -> StatementFlow[None]:
            return job_table.create(self._columns, dialect)

        yield lambda: run_within(self._begin, work, table_errors(self.table))
        yield from self._check_flow()

    # ------------------------------------------------------------ jobs

    def _enqueue_flow(
        self, payloads: Iterable[Any], delay: Any, run_at: Any, queue: Any, key: Any, values: Any, tx: Any
    ) -> Flow[list[Any]]:
        """Everything is checked here, before the first statement."""
        row: dict[ColumnName, Any] = {} if values is None else self._values(values)
        if queue is not None:
            self._columns.require("queue", "queue=")
            row["queue"] = _words(queue, "queue", 64)
        if key is not None:
            self._columns.require("key", "key=")
            row["key"] = _words(key, "key", 255)
        given = [self._payload(one) for one in payloads]
        if any(given):  # all rows of one INSERT have the same columns
            row["payload"] = None
        rows = [row | one for one in given]
        if len(rows) > MOST:
            raise InvalidRequest(f"at most {MOST} jobs at once: call enqueue_many several times")
        when = self._when(delay, run_at)
        return flows.enqueue(self, rows, when, key, tx) if rows else _nothing()

    def _payload(self, payload: Any) -> dict[ColumnName, Any]:
        if payload is None:
            return {}
        self._columns.require("payload", "a payload")
        return {"payload": encoded(payload, "payload")}

    def _values(self, values: Any) -> dict[ColumnName, Any]:
        """Values for the user's own columns. Those that jobs use are refused."""
        if not isinstance(values, Mapping):
            raise InvalidRequest(f"values= is a mapping of your own columns to values, not {type(values).__name__}")
        reserved = {theirs.casefold() for ours, theirs in self._columns.names.items() if ours != "id"}
        for name in values:
            if names.column(name, "values=").casefold() in reserved:
                raise InvalidRequest(f"the column {name} is written by jobs: leave it out of values=")
        own = self._columns.names["id"].casefold()
        return {"id" if name.casefold() == own else UserColumn(name): value for name, value in values.items()}

    def _when(self, delay: Any, run_at: Any) -> When:
        if delay is None and run_at is None:
            return ("later", 0.0)
        self._columns.require("run_at", "delay= or run_at=")
        if delay is not None and run_at is not None:
            raise InvalidRequest("delay= or run_at=, not both")
        if run_at is None:
            return ("later", seconds(delay, "delay"))
        if not isinstance(run_at, datetime) or run_at.utcoffset() is None:
            raise InvalidRequest("run_at is a datetime that knows its time zone, such as datetime.now(UTC)")
        return ("at", run_at.timestamp())

    def _claim_flow(self, count: int, queue: str | None) -> Flow[list[Any]]:
        if queue is not None:
            self._columns.require("queue", "queue=")
            _words(queue, "queue", 64)
        return flows.claim(self, _count(count, "count"), queue)

    def _new_job(self, row: JobRow, sent: float, lease: Any = None) -> Any:
        return self._kind(self, row, self._state(row), sent, lease)

    def _state(self, row: JobRow) -> str:
        return self._columns.state(row["state"])

    def _alive(self, rows: list[JobRow]) -> list[JobRow]:
        """Without those that the claim found dead."""
        return [row for row in rows if self._state(row) == "running"]

    def _prefilter_lease(self, job_id: Any) -> Any:
        """The lease of a candidate, or None when another worker has it."""
        part = job_id if isinstance(job_id, int | str) else str(job_id)
        lock = partial(self._hold.lock, "job", self.table, ttl=min(self.lease, HOUR), wait=0, max_idle=self.lease)
        try:
            found = lock(part)
        except InvalidRequest:  # an id that cannot be a name: empty, or too long
            from hashlib import blake2b  # loads OpenSSL, which most programs do not need

            found = lock(blake2b(repr(part).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest())
        return found.try_acquire()

    # ------------------------------------------------------------ for observers

    def _observed(self) -> bool:
        return bool(self._observers.observers)

    def _report(self, outcome: str) -> None:
        if self._observers.observers:
            self._observers.notify(JobMoved(self.table, outcome))

    def _report_claims(self, rows: list[JobRow]) -> None:
        """Jobs that were claimed. One that the claim found dead had a worker that vanished in its last attempt."""
        if self._observers.observers:
            for row in rows:
                taken = "taken_over" if row["expired"] else "claimed"
                self._report(taken if self._state(row) == "running" else "dead")

    # ------------------------------------------------------------ for operators

    def _count_flow(self) -> Flow[dict[str, int]]:
        def work(known: ClaimStatements) -> StatementFlow[dict[str, int]]:
            found = dict.fromkeys([*self._columns.states, "expired"], 0)
            for state, count, expired in (yield known.counts()).rows:
                ours = self._state({"state": state})
                found[ours] += int(count)
                found["expired"] += int(expired or 0) if ours == "running" else 0
            return found

        counts = yield from self._query(work, None, alone=True)
        if self._observers.observers:
            self._observers.notify(JobsCounted(self.table, counts))
        return counts

    def _get_flow(self, job_id: Any) -> Flow[Any]:
        def work(known: ClaimStatements) -> StatementFlow[list[JobRow]]:
            return known.rows((yield known.get(job_id)).rows)

        rows = yield from self._query(work, None, alone=True)
        return self._unclaimed(rows[0]) if rows else None

    def _dead_flow(self, limit: int) -> Flow[list[Any]]:
        def work(known: ClaimStatements) -> StatementFlow[list[JobRow]]:
            return known.rows((yield known.dead(limit)).rows)

        _count(limit, "limit")
        rows = yield from self._query(work, None, alone=True)
        return [self._unclaimed(row) for row in rows]

    def _unclaimed(self, row: JobRow) -> Any:
        """A job that was read, not claimed."""
        job = self._new_job(row, self._now())
        job._unclaimed = True
        return job

    def _revive_flow(self, job_id: Any) -> Flow[bool]:
        def work(known: ClaimStatements) -> StatementFlow[bool]:
            return (yield known.revive(job_id)).changed == 1

        return (yield from flows.retried(self, lambda: self._query(work, None, alone=True)))

    def _purge_flow(self, older: Any, state: str) -> Flow[int]:
        self._columns.require("finished_at", "purge")
        if state not in {"done", "dead"}:
            raise InvalidRequest("only done or dead jobs are purged")
        age = seconds(older, "older_than")

        def work(known: ClaimStatements) -> StatementFlow[int]:
            return (yield known.purge(state, age)).changed

        return (yield from flows.retried(self, lambda: self._query(work, None, alone=True)))

    @staticmethod
    def _now() -> float:
        """For local deadlines only: it goes on while the machine is suspended."""
        return SystemClock().now()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.table}>"


def _nothing() -> Flow[list[Any]]:
    yield from ()
    return []


def _words(value: object, what: str, most: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= most or "\0" in value:
        raise InvalidRequest(f"{what} is text of 1 to {most} characters, not {value!r:.80}")
    return str(value)


def _count(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise InvalidRequest(f"{what} is a whole number from 1 to {MOST}, not {value!r:.80}")
    return int(value)
