"""A result store in a table of SQLite, PostgreSQL or MariaDB, through connections of any known driver.

Every call is a transaction of its own, unless it is given one of yours: ``write(lease, text, keep, tx=tx)`` is then
part of it, so that a result is stored if and only if its effect is.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from random import randrange
from typing import TYPE_CHECKING, Any

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import is_connection_error, translated
from leasehold._sql.run import StatementFlow, Work, run, run_within
from leasehold._sql.statements import decoded
from leasehold._sql.transactions import transactions_of
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.guards.fence import Fenced, Presented, check_resource, label
from leasehold.guards.sql.statements import is_accepted
from leasehold.patterns.results import statements
from leasehold.patterns.results.result_store import (
    REMEMBERED_MS,
    Entry,
    ResultStore,
    check_keep,
    check_text,
    timed_entry,
)

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.observe.events import Observer

PURGE_EVERY = 64  # writes
ATTEMPTS = 5  # at a transaction that collides with others: a deadlock, a serialization failure
LAST_ATTEMPT = 2.0  # seconds after the first attempt
CREATE = "call results.create() once, in a migration or when the program starts"


class SQLResultStore(ResultStore):
    """In one table of your database, which ``create()`` makes.

    ``engine_or_begin`` is an engine or a sessionmaker of SQLAlchemy's, sync or async, a pool, a connection of Django's,
    or a function that gives a context manager of a transaction, or a connection: that one is committed or rolled back,
    and closed, each time. Over what is awaited, the calls are awaited.

    Time is the database's. Ended rows are deleted a few at a time while others are written; ``purge()`` deletes all.

    >>> import sqlite3
    >>> from leasehold.testing.results import Presenter
    >>> results = SQLResultStore(lambda: sqlite3.connect("results.db"))
    >>> results.create()
    >>> results.write(Presenter("page:42", 7), "<h1>42</h1>", keep="1m")
    >>> results.read("page:42").text
    '<h1>42</h1>'
    """

    __slots__ = ("_begin", "_writes", "table")

    def __init__(
        self,
        engine_or_begin: Any,
        table: str = "leasehold_results",
        *,
        downstream: str = "results",
        observers: Iterable[Observer] = (),
    ) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self._begin = transactions_of(engine_or_begin)
        self.table = names.plain_table(table)
        self._writes = randrange(PURGE_EVERY)  # many short-lived processes purge as often as one long-lived

    def create(self) -> Any:
        """Make the table unless it is there."""
        return self._run_alone(self._create)

    def ddl(self, dialect: str) -> str:
        """What ``create`` would execute, for a migration: ``sqlite``, ``postgresql`` or ``mariadb``."""
        return statements.ddl(names.dialect(dialect), self.table)

    def read(self, resource: str) -> Any:
        name = check_resource(resource)
        return self._run_alone(lambda dialect: self._read(dialect, name))

    def open(self, lease: Fenced, *, tx: Any = None) -> Any:
        """As every result store; ``tx`` is a transaction of yours that it is to be a part of."""
        attempt = self.present(lease)
        return self._run_fenced(tx, lambda dialect: self._open(dialect, attempt), lease, attempt)

    def write(self, lease: Fenced, text: str | None, keep: Duration, *, tx: Any = None) -> Any:
        """As every result store; ``tx`` is a transaction of yours that it is to be a part of: written when you
        commit."""
        new, keep_ms = check_text(text), check_keep(keep)
        attempt = self.present(lease)
        return self._run_fenced(tx, lambda dialect: self._write(dialect, attempt, new, keep_ms), lease, attempt)

    def purge(self) -> Any:
        """Delete every row that has ended and whose fence need not be remembered any more. Returns how many."""
        first = self._purge_some()
        if isinstance(first, Coroutine):
            return self._purge_async(first)
        done = step = first
        while step >= statements.STEP:
            step = self._purge_some()
            done += step
        return done

    async def _purge_async(self, first: Coroutine[Any, Any, int]) -> int:
        done = step = await first
        while step >= statements.STEP:
            step = await self._purge_some()
            done += step
        return done

    def _purge_some(self) -> Any:
        return self._run_alone(self._purge)

    # ------------------------------------------------------------ flows

    def _create(self, dialect: Dialect) -> StatementFlow[None]:
        for one in statements.create(dialect, self.table):  # noqa: UP028 - a list cannot be sent rows
            yield one

    def _read(self, dialect: Dialect, resource: str) -> StatementFlow[Entry | None]:
        rows = yield statements.read(dialect, self.table, resource)
        return self._entry(resource, rows.rows[0]) if rows.rows else None

    def _entry(self, resource: str, row: tuple[Any, ...]) -> Entry:
        """From a row of ``statements.read``. A clock that is set back does not make an entry stay for longer than it
        was to be kept. Not every database insists on the types of its columns."""
        text, fence, age_ms, left_ms, keep_ms = row
        try:
            return timed_entry(str(decoded(text)), int(fence), int(age_ms), int(left_ms), int(keep_ms))
        except (ValueError, TypeError) as error:
            raise StoreUnavailable(
                f"the row of {label(resource)} in the table {self.table} is damaged, or no result store has written "
                "it: nothing was accepted. See who writes there, and delete it",
                resource=resource,
            ) from error

    def _open(self, dialect: Dialect, attempt: Presented) -> StatementFlow[Entry | None]:
        rows = yield statements.open(dialect, self.table, attempt, REMEMBERED_MS)
        if not is_accepted(dialect, rows, attempt):
            yield from self._refuse(attempt)
        return (yield from self._read(dialect, attempt.resource))

    def _write(self, dialect: Dialect, attempt: Presented, text: str | None, keep_ms: int) -> StatementFlow[None]:
        rows = yield statements.write(dialect, self.table, attempt, text, keep_ms, REMEMBERED_MS)
        if not is_accepted(dialect, rows, attempt):
            yield from self._refuse(attempt)

    def _refuse(self, attempt: Presented) -> StatementFlow[None]:
        rows = yield statements.last(self.table, attempt.resource)
        raise RefusedByFence(int(rows.rows[0][0]) if rows.rows else None)

    def _purge(self, dialect: Dialect) -> StatementFlow[int]:
        return (yield statements.purge(dialect, self.table)).changed

    # ------------------------------------------------------------ transactions

    def _run_fenced(self, tx: Any, work: Work[Any], lease: Fenced, attempt: Presented) -> Any:
        """Run what presents a fence. A refusal becomes StaleOwner, and observers are notified, when the transaction is
        over."""
        try:
            result = self._run_alone(work) if tx is None else run(tx, work, self._translated)
        except RefusedByFence as refused:
            raise self.refused(lease, attempt, refused.seen) from None
        if isinstance(result, Coroutine):
            return self._run_fenced_async(result, tx, lease, attempt)
        if tx is None and self._purge_is_due():
            with suppress(LeaseholdError):  # the caller's own work is done
                self._purge_some()
        return result

    async def _run_fenced_async(
        self, coroutine: Coroutine[Any, Any, Any], tx: Any, lease: Fenced, attempt: Presented
    ) -> Any:
        try:
            result = await coroutine
        except RefusedByFence as refused:
            raise self.refused(lease, attempt, refused.seen) from None
        if tx is None and self._purge_is_due():
            with suppress(LeaseholdError):
                await self._purge_some()
        return result

    def _purge_is_due(self) -> bool:
        """Now and then, so that names that are no longer used do not pile up (trap 37)."""
        self._writes += 1
        return self._writes % PURGE_EVERY == 0

    def _run_alone(self, work: Work[Any]) -> Any:
        """In a transaction of its own, which is run again when it collides with another."""
        until = time.monotonic() + LAST_ATTEMPT
        for left in reversed(range(ATTEMPTS)):
            try:
                result = run_within(self._begin, work, self._own_translated)
            except Conflict:
                if not left or time.monotonic() > until:
                    raise
            else:
                return self._run_alone_async(result, work) if isinstance(result, Coroutine) else result
        raise AssertionError("unreachable")

    async def _run_alone_async(self, coroutine: Coroutine[Any, Any, Any], work: Work[Any]) -> Any:
        until = time.monotonic() + LAST_ATTEMPT
        for left in reversed(range(ATTEMPTS)):
            try:
                return await coroutine
            except Conflict:
                if not left or time.monotonic() > until:
                    raise
                coroutine = run_within(self._begin, work, self._own_translated)
        raise AssertionError("unreachable")

    def _translated(self, error: BaseException) -> LeaseholdError:
        return translated(error, self.table, remedy=CREATE)

    def _own_translated(self, error: BaseException) -> LeaseholdError:
        """A connection for our own transaction is not the caller's mistake: a pool has none left, or a dead one."""
        found = self._translated(error)
        if isinstance(found, InvalidRequest) and is_connection_error(error):
            return StoreUnavailable(
                f"the result store {self.table} was given no connection that works ({type(error).__name__}): "
                "nothing was written. Try again; see that the pool is large enough, and not closed"
            )
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.table}>"


class RefusedByFence(LeaseholdError):
    """A newer fence was presented. It never leaves the result store: the caller gets StaleOwner."""

    def __init__(self, seen: int | None) -> None:
        super().__init__("refused")
        self.seen = seen
