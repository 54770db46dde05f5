"""A result store in a table of SQLite, PostgreSQL or MariaDB, over whatever connections you have.

Every call is a transaction of its own, unless it is given one of yours: ``write(lease, text, keep, tx=tx)`` is then
part of it, so that a result is stored if and only if its effect is.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from random import randrange
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.guards.conflict import Conflict
from leasehold.guards.fence import Fenced, Presented, check_resource, label
from leasehold.guards.sql import names
from leasehold.guards.sql.dialects import Dialect, Statement
from leasehold.guards.sql.failures import of_the_connection, translated
from leasehold.patterns.results.result_store import (
    REMEMBERED_MS,
    Entry,
    ResultStore,
    check_keep,
    check_text,
    timed_entry,
)
from leasehold.patterns.results.statements import STEP, TEXTS
from leasehold.patterns.tables.asking import Steps, Work, run, run_within
from leasehold.patterns.tables.beginnings import transactions_of

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.observe.events import Observer

PURGE_EVERY = 64  # writes
TRIES = 5  # of a transaction of ours that collided with another: a deadlock, a serialization failure
PATIENCE = 2.0  # seconds after which none is begun again
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
        self._writes = randrange(PURGE_EVERY)  # many short-lived processes sweep as often as one long-lived

    def create(self) -> Any:
        """Make the table unless it is there."""
        return self._own(self._making)

    def ddl(self, dialect: str) -> str:
        """What ``create`` would execute, for a migration: ``sqlite``, ``postgresql`` or ``mariadb``."""
        return TEXTS[names.dialect(dialect)].ddl(self.table)

    def read(self, resource: str) -> Any:
        name = check_resource(resource)
        return self._own(lambda dialect: self._looking(dialect, name))

    def open(self, lease: Fenced, *, tx: Any = None) -> Any:
        """As every result store; ``tx`` is a transaction of yours that it is to be a part of."""
        attempt = self.present(lease)
        return self._take(tx, lambda dialect: self._opening(dialect, attempt), lease, attempt)

    def write(self, lease: Fenced, text: str | None, keep: Duration, *, tx: Any = None) -> Any:
        """As every result store; ``tx`` is a transaction of yours that it is to be a part of: written when you
        commit."""
        new, keep_ms = check_text(text), check_keep(keep)
        attempt = self.present(lease)
        return self._take(tx, lambda dialect: self._writing(dialect, attempt, new, keep_ms), lease, attempt)

    def purge(self) -> Any:
        """Delete every row that has ended and whose fence need not be remembered any more. Returns how many."""
        first = self._purge_some()
        if isinstance(first, Coroutine):
            return self._purge_awaited(first)
        done = step = first
        while step >= STEP:
            step = self._purge_some()
            done += step
        return done

    async def _purge_awaited(self, first: Coroutine[Any, Any, int]) -> int:
        done = step = await first
        while step >= STEP:
            step = await self._purge_some()
            done += step
        return done

    def _purge_some(self) -> Any:
        return self._own(self._purging)

    # ------------------------------------------------------------ what is asked for

    def _making(self, dialect: Dialect) -> Steps[None]:
        for text in TEXTS[dialect.name].making(self.table):
            yield Statement((text,), (), gives=False)

    def _looking(self, dialect: Dialect, resource: str) -> Steps[Entry | None]:
        rows = yield TEXTS[dialect.name].look(self.table, resource)
        return self._entry(resource, rows.rows[0]) if rows.rows else None

    def _entry(self, resource: str, row: tuple[Any, ...]) -> Entry:
        """What ``look`` gave. Whoever turns the clock back must not make an entry stay longer than it was to be kept.
        Not every database insists on the types of its columns."""
        text, fence, age_ms, left_ms, keep_ms = row
        try:
            return timed_entry(_text(text), int(fence), int(age_ms), int(left_ms), int(keep_ms))
        except (ValueError, TypeError) as error:
            raise StoreUnavailable(
                f"the row of {label(resource)} in the table {self.table} is damaged, or no result store has written "
                f"it: "
                "nothing was accepted. See who writes there, and delete it",
                resource=resource,
            ) from error

    def _opening(self, dialect: Dialect, attempt: Presented) -> Steps[Entry | None]:
        texts = TEXTS[dialect.name]
        rows = yield texts.open(self.table, attempt, REMEMBERED_MS)
        if not texts.accepted(rows, attempt):
            yield from self._refusing(dialect, attempt)
        return (yield from self._looking(dialect, attempt.resource))

    def _writing(self, dialect: Dialect, attempt: Presented, text: str | None, keep_ms: int) -> Steps[None]:
        texts = TEXTS[dialect.name]
        rows = yield texts.write(self.table, attempt, text, keep_ms, REMEMBERED_MS)
        if not texts.accepted(rows, attempt):
            yield from self._refusing(dialect, attempt)

    def _refusing(self, dialect: Dialect, attempt: Presented) -> Steps[None]:
        rows = yield TEXTS[dialect.name].last(self.table, attempt.resource)
        raise RefusedByFence(int(rows.rows[0][0]) if rows.rows else None)

    def _purging(self, dialect: Dialect) -> Steps[int]:
        return (yield TEXTS[dialect.name].purge(self.table)).changed

    # ------------------------------------------------------------ how it is done

    def _take(self, tx: Any, work: Work[Any], lease: Fenced, attempt: Presented) -> Any:
        """A refusal becomes an error, and is told, when the transaction is over."""
        try:
            given = self._own(work) if tx is None else run(tx, work, self.table, fail=self._meaning)
        except RefusedByFence as refused:
            raise self.refused(lease, attempt, refused.seen) from None
        if isinstance(given, Coroutine):
            return self._taken(given, tx, lease, attempt)
        if tx is None and self._sweeps():
            with suppress(LeaseholdError):  # what was asked for is done
                self._purge_some()
        return given

    async def _taken(self, given: Coroutine[Any, Any, Any], tx: Any, lease: Fenced, attempt: Presented) -> Any:
        try:
            found = await given
        except RefusedByFence as refused:
            raise self.refused(lease, attempt, refused.seen) from None
        if tx is None and self._sweeps():
            with suppress(LeaseholdError):
                await self._purge_some()
        return found

    def _sweeps(self) -> bool:
        """Now and then, so that names which nobody uses any more do not pile up (trap 37)."""
        self._writes += 1
        return self._writes % PURGE_EVERY == 0

    def _own(self, work: Work[Any]) -> Any:
        """In a transaction of its own, which is begun again where it collided with another."""
        until = time.monotonic() + PATIENCE
        for left in reversed(range(TRIES)):
            try:
                given = run_within(self._begin, work, self.table, fail=self._own_meaning)
            except Conflict:
                if not left or time.monotonic() > until:
                    raise
            else:
                return self._awaited(given, work) if isinstance(given, Coroutine) else given
        raise AssertionError("unreachable")

    async def _awaited(self, given: Coroutine[Any, Any, Any], work: Work[Any]) -> Any:
        until = time.monotonic() + PATIENCE
        for left in reversed(range(TRIES)):
            try:
                return await given
            except Conflict:
                if not left or time.monotonic() > until:
                    raise
                given = run_within(self._begin, work, self.table, fail=self._own_meaning)
        raise AssertionError("unreachable")

    def _meaning(self, error: BaseException) -> LeaseholdError:
        return translated(error, self.table, remedy=CREATE)

    def _own_meaning(self, error: BaseException) -> LeaseholdError:
        """A connection of our own transaction is no mistake of the caller's: a pool has none left, or a dead one."""
        found = self._meaning(error)
        if isinstance(found, InvalidRequest) and of_the_connection(error):
            return StoreUnavailable(
                f"the result store {self.table} was given no connection that works ({type(error).__name__}): "
                f"nothing was "
                "written. Try again; see that the pool is large enough, and not closed"
            )
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.table}>"


class RefusedByFence(LeaseholdError):
    """Never leaves the result store: by a newer fence, this one."""

    def __init__(self, seen: int | None) -> None:
        super().__init__("refused")
        self.seen = seen


def _text(value: Any) -> str:
    """Some connections give text as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
