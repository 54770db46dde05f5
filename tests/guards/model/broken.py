"""Guards with a mistake in them: whatever judges the others must find out each of these (I18)."""

from __future__ import annotations

from leasehold.guards.fence import Fenced
from tests.guards.model.sql import SqliteTarget


class Unguarded(SqliteTarget):
    """The fence is not looked at when it writes."""

    def write(self, lease: Fenced, value: int, note: str) -> None:
        """Without a check."""
        with self.begin() as tx:
            tx.execute("DELETE FROM counters WHERE 0")  # takes the lock that the check would have taken
            self.update(tx, lease, value, note)


class Late(SqliteTarget):
    """The fence is presented at the write, and not before the first read (trap 46)."""

    def read(self, lease: Fenced) -> int:
        """Without a check."""
        return self.value(lease.resource)


class Apart(SqliteTarget):
    """Check and write are two transactions: somebody can come between them."""
