"""Guards with a mistake in them: whatever judges the others must find out each of these (I18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.guards.fence import Fenced
from tests.model.stale_owner.sql import SqliteTarget
from tests.model.stale_owner.targets import nothing


class Unguarded(SqliteTarget):
    """The fence is not looked at when it writes."""

    one_step = False

    def write(self, lease: Fenced, value: int, note: str, midway: Callable[[], None] = nothing) -> None:
        """Without a check."""
        with self.begin() as tx:
            self.update(tx, lease, value, note)


class Late(SqliteTarget):
    """The fence is presented at the write, and not before the first read (trap 46)."""

    one_step = False

    def read(self, lease: Fenced) -> int:
        """Without a check."""
        return self.value(lease.resource)


class Apart(SqliteTarget):
    """Check and write are two transactions: somebody can come between them."""

    def present(self, tx: Any, lease: Fenced) -> None:
        """And let go of the lock."""
        super().present(tx, lease)
        tx.execute("COMMIT")
        tx.execute("BEGIN")

    def add_one(self, lease: Fenced, note: str, midway: Callable[[], None] = nothing) -> int:
        """What was read is old by the time it is written."""
        value = self.read(lease) + 1
        midway()
        with self.begin() as tx:
            self.update(tx, lease, value, note)
        return value
