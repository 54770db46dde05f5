"""FenceGuard for SQL: a table that remembers the highest fence of each resource, checked inside your transaction.

    guard = FenceGuard()
    guard.create(conn)                          # once

    with engine.begin() as tx:
        guard.check(tx, lease)                  # before the first read: StaleOwner rolls everything back
        tx.execute(...)

The check is one statement that also locks the row of the resource until the transaction ends (SQLite: the database).
A stale owner that comes later waits for the commit, and is then refused; one that came first has its write seen, and
perhaps overwritten, by the newer owner. Read what you are going to change only after the check: what was read before
it may be from before a newer owner wrote (trap 46).

``update`` needs no table of its own: it compares a fence column in the row that it writes, and the owner where it is
given a column for that.

With an async connection or session the same calls are awaited: ``await guard.check(tx, lease)``.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NoSuchRow, translated
from leasehold._sql.run import RunOptions, StatementFlow, TransactionMessages, run, run_within
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError
from leasehold.guards.fence import Fenced, Presented
from leasehold.guards.guard import BaseGuard
from leasehold.guards.sql import decision, statements
from leasehold.guards.sql.statements import RowChange

if TYPE_CHECKING:
    from leasehold._sql.connections import AsyncTransaction, Transaction
    from leasehold._sql.run import Begin
    from leasehold.observe.events import Observer

__all__ = ["Conflict", "FenceGuard", "NoSuchRow", "TransactionGuard"]

Awaited = Coroutine[Any, Any, None]
FENCE_COLUMN, OWNER_COLUMN = "last_fencing_token", "last_owner"


class FenceGuard(BaseGuard):
    """Refuses a stale owner inside your own transaction. Holds no connection: make one, use it anywhere.

    ``downstream`` names in logs and metrics what it protects. The observers of a lease's coordinator are notified of
    its refusal; ``observers`` are for a service that has no lock client and is given bare fences. ``dialect``
    (``sqlite``, ``postgresql`` or ``mariadb``) is for a DB-API driver that the guard does not know.

    >>> import sqlite3
    >>> guard, conn = FenceGuard(), sqlite3.connect(":memory:")
    >>> guard.create(conn)
    >>> guard.check(conn, 1794768018952706, resource="report-export:42")
    >>> guard.check(conn, 1794768018952705, resource="report-export:42")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    leasehold.errors.StaleOwner: stale owner of report-export: ...
    >>> conn.close()
    """

    __slots__ = ("_options", "_trusted", "dialect", "table")

    def __init__(
        self,
        table: str = "leasehold_fences",
        *,
        dialect: str | None = None,
        downstream: str = "sql",
        observers: Iterable[Observer] = (),
    ) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self.table = names.plain_table(table)
        self.dialect = None if dialect is None else names.dialect(dialect)
        self._options = RunOptions(self.dialect)
        self._trusted: set[tuple[str, str]] = set()

    @overload
    def create(self, conn: Transaction) -> None: ...
    @overload
    def create(self, conn: AsyncTransaction) -> Awaited: ...
    def create(self, conn: Any) -> Awaited | None:
        """Make the table unless it is there.

        It happens in your transaction, and you commit it; MariaDB commits by itself, also what you did before. With
        sqlite3 it is part of a transaction that is open, and is done at once when none is."""

        def work(dialect: Dialect) -> StatementFlow[None]:
            for statement in statements.create(dialect, self.table):  # noqa: UP028 - a list cannot be sent rows
                yield statement

        return run(conn, work, partial(translated, table=self.table), RunOptions(self.dialect, transaction=False))

    def ddl(self, dialect: str) -> str:
        """What ``create`` would execute, for a migration."""
        return statements.ddl(names.dialect(dialect), self.table)

    def ddl_of_columns(
        self, dialect: str, table: str, fence_column: str = FENCE_COLUMN, owner_column: str | None = OWNER_COLUMN
    ) -> str:
        """What adds to a table of yours the columns that ``update`` needs, for a migration. Without an
        ``owner_column`` (None) it can only go by the fence."""
        known = names.dialect(dialect)
        names.values({}, fence_column, owner_column)
        return statements.column_ddl(known, names.table(table), fence_column, owner_column)

    @overload
    def check(
        self,
        tx: Transaction,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> None: ...
    @overload
    def check(
        self,
        tx: AsyncTransaction,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Awaited: ...
    def check(
        self,
        tx: Any,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Awaited | None:
        """Go on only if no newer fence was presented: call it first, in the transaction that writes.

        Takes a lease, or a bare fence with the ``resource`` that it belongs to and, where it is known, its
        ``owner``. A lease that may only read is checked with ``shared=True``. Raises StaleOwner, with the fence that
        was ``.seen``, and has then changed nothing.

        Conflict means that another transaction was faster: roll back, and run yours again from BEGIN. Any other
        StoreUnavailable means that the database refused, such as a missing table. Nothing was accepted in either."""
        attempt = self.present(lease_or_fence, resource, owner, shared)
        work = partial(decision.check, attempt, self.table)
        return run(tx, work, partial(self._translated, lease_or_fence, attempt, self.table), self._options)

    @overload
    def update(
        self,
        tx: Transaction,
        table: str | Any,
        *,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        lease: Fenced | int,
        resource: str | None = None,
        owner: str | None = None,
        strict: bool = False,
        fence_column: str = FENCE_COLUMN,
        owner_column: str | None = None,
    ) -> None: ...
    @overload
    def update(
        self,
        tx: AsyncTransaction,
        table: str | Any,
        *,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        lease: Fenced | int,
        resource: str | None = None,
        owner: str | None = None,
        strict: bool = False,
        fence_column: str = FENCE_COLUMN,
        owner_column: str | None = None,
    ) -> Awaited: ...
    def update(
        self,
        tx: Any,
        table: str | Any,
        *,
        key: Mapping[str, Any],
        values: Mapping[str, Any],
        lease: Fenced | int,
        resource: str | None = None,
        owner: str | None = None,
        strict: bool = False,
        fence_column: str = FENCE_COLUMN,
        owner_column: str | None = None,
    ) -> Awaited | None:
        """Write one row of your own table, unless its fence column is newer; the column then holds this fence.

        ``table`` is a name or a SQLAlchemy ``Table``, ``key`` names the row by its columns, ``values`` is what to
        write; empty values only present the fence, before you read. ``strict``: one write for each fence (``>``), in
        place of many (``>=``). A NULL column counts as 0.

        Give it an ``owner_column`` (VARCHAR(32), a digest) where you can. Without one an equal fence is accepted
        from any owner: of the four lines of a guard's rule, the one about two owners with one fence is not kept.
        Fences of one resource are unique, unless its store has lost its data and its clock was set back, too.

        Raises StaleOwner; NoSuchRow, which is a LookupError; Conflict, as ``check`` does."""
        attempt = self.present(lease, resource, owner)
        named = names.table(table)
        names.flag(strict, "strict")
        change = RowChange(
            table, names.key(key), names.values(values, fence_column, owner_column), fence_column, owner_column,
            strict, attempt,
        )  # fmt: skip
        names.require_columns(table, [*change.key, *change.values, fence_column, owner_column])
        work = partial(decision.update, change, self._trusted)
        return run(tx, work, partial(self._translated, lease, attempt, named), self._options)

    def within(self, begin: Begin) -> TransactionGuard:
        """A guard that checks in a transaction of its own: ``guard.within(engine.begin)``. For an entrance such as
        ``leasehold.guards.http.FencingMiddleware``; behind it, check once more in the transaction that writes."""
        return TransactionGuard(self, begin)

    def _translated(self, lease: Fenced | int, attempt: Presented, table: str, error: BaseException) -> LeaseholdError:
        """Observers are notified of a refusal, and it leaves as StaleOwner; a driver's error leaves as one of ours."""
        if isinstance(error, decision.Refusal):
            raise self.refused(lease, attempt, error.seen, error.why) from None
        return translated(error, table, ours=table == self.table)

    def __repr__(self) -> str:
        return f"<FenceGuard on {self.table}>"


MESSAGES = TransactionMessages(
    no_manager=(
        "begin= gives a context manager that begins a transaction and commits it, such as engine.begin, and not {}"
    ),
    not_awaited="this connection is awaited: begin= must give an async context manager for it",
    swallowed="the check has not passed, and begin= has swallowed why: it must let errors through",
    unknown=("the commit of a check failed ({}): the fence may or may not be remembered. The check may be repeated"),
)


class TransactionGuard:
    """``begin`` gives a context manager that begins a transaction, gives its connection, and commits:
    ``engine.begin``, ``pool.connection``. With an async one ``check`` is awaited.

    A check at an entrance and a write behind it are two steps: a stale owner that has passed may still write after a
    newer one. A service that needs more checks again in the transaction that writes."""

    __slots__ = ("_begin", "_guard")

    def __init__(self, guard: FenceGuard, begin: Begin) -> None:
        if not callable(begin):
            raise InvalidRequest("begin is called for each check, and gives a transaction: guard.within(engine.begin)")
        self._guard = guard
        self._begin = begin

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Awaited | None:
        """Accept and remember this fence, or raise StaleOwner and change nothing."""
        guard = self._guard
        attempt = guard.present(lease_or_fence, resource, owner, shared)
        work = partial(decision.check, attempt, guard.table)
        translate = partial(guard._translated, lease_or_fence, attempt, guard.table)
        return run_within(self._begin, work, translate, guard._options, MESSAGES)
