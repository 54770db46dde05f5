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
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards import statements
from leasehold.guards.connections import speaker
from leasehold.guards.fence import Fenced, Presented, refusal
from leasehold.guards.guard import BaseGuard

if TYPE_CHECKING:
    from leasehold.guards.connections import Speaker, Transaction
    from leasehold.guards.speakers import Values
    from leasehold.observe.events import Observer

_PART = r"[A-Za-z_][A-Za-z0-9_]{0,62}"  # 63 is PostgreSQL's limit; it would cut the rest off silently
_TABLE = re.compile(rf"{_PART}(\.{_PART})?")


class FenceGuard(BaseGuard):
    """Refuses a stale owner inside your own transaction. Holds no connection: make one, use it anywhere.

    ``downstream`` names in logs and metrics what it protects. The observers of a lease's coordinator hear of its
    refusal; ``observers`` are for a service that has no lock client and is given bare fences.

    >>> import sqlite3
    >>> guard, conn = FenceGuard(), sqlite3.connect(":memory:")
    >>> guard.create(conn)
    >>> guard.check(conn, 1794768018952706, resource="report-export:42")
    >>> guard.check(conn, 1794768018952705, resource="report-export:42")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    leasehold.errors.StaleOwner: stale owner of report-export: ...
    """

    __slots__ = ("_accept", "_create", "_seen", "table")

    def __init__(
        self, table: str = "leasehold_fences", *, downstream: str = "sql", observers: Iterable[Observer] = ()
    ) -> None:
        self.table = _plain_name(table)
        super().__init__(downstream=downstream, observers=observers)
        self._create = statements.CREATE.format(table=table)
        self._accept = statements.ACCEPT.format(table=table)
        self._seen = statements.SEEN.format(table=table)

    def create(self, conn: Transaction) -> None:
        """Make the table unless it is there.

        It happens in your transaction, and you commit it. With sqlite3 it is part of a transaction that is open,
        and is done at once when none is."""
        through = speaker(conn)
        with through.step(self.table):
            through.execute(self._create, {})

    def check(
        self,
        tx: Transaction,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
    ) -> None:
        """Go on only if nobody with a newer fence was here: call it first, in the transaction that writes.

        Takes a lease, or a bare fence with the ``resource`` that it belongs to and, where it is known, its
        ``owner``. Raises StaleOwner, with the fence that was ``.seen``, and has then changed nothing.

        StoreUnavailable means that the database said no: the table is missing, or it was busy, or the transaction
        could not be serialized. Its ``__cause__`` is the driver's error, and trying again, from BEGIN, is yours.
        It is not InvalidRequest, because nothing is wrong with the call; and nothing was accepted."""
        attempt = self.present(lease_or_fence, resource, owner)
        through = speaker(tx)
        try:
            with through.step(self.table):
                through.require_transaction()
                self._insist(through, attempt)
        except StaleOwner as refused:
            raise self.refused(lease_or_fence, attempt, refused.seen) from None

    def _insist(self, through: Speaker, attempt: Presented) -> None:
        values: Values = {"resource": attempt.resource, "fence": attempt.fence, "owner": attempt.owner}
        if through.execute(self._accept, values).rowcount == 1:
            return
        row = through.execute(self._seen, {"resource": attempt.resource}).fetchone()
        raise refusal(attempt, row[0] if row else None)

    def __repr__(self) -> str:
        return f"<FenceGuard on {self.table}>"


def _plain_name(table: object) -> str:
    """A name that can stand in a statement as it is."""
    if not isinstance(table, str) or not _TABLE.fullmatch(table):
        raise InvalidRequest(
            "table must be a plain name such as 'leasehold_fences' or 'schema.leasehold_fences': letters, digits "
            "and _, at most 63 of them"
        )
    return str(table)
