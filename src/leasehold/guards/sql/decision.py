"""What the guard decides, once for every driver: flows that yield statements and are sent their rows."""

from __future__ import annotations

from typing import Any

from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NoSuchRow, unfit
from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import Rows, decoded
from leasehold.errors import Conflict, InvalidRequest
from leasehold.guards.fence import Presented, label
from leasehold.guards.sql import statements
from leasehold.guards.sql.statements import RowChange

BROAD = 2**32  # a fence below would fit into a FLOAT, and prove nothing
WRITTEN = (
    "fence {} has written this row already, and strict=True accepts one write for each fence. The guard has changed "
    "nothing. Roll back: it was done before"
)


class Refusal(Exception):
    """The fence is refused. ``seen`` is the newer one, ``why`` another reason than that."""

    def __init__(self, seen: int | None, why: str = "") -> None:
        super().__init__(seen)
        self.seen = seen
        self.why = why


def check(attempt: Presented, table: str, dialect: Dialect) -> StatementFlow[None]:
    """Apply the rule in the guard's own table."""
    if not attempt.shared:
        rows = yield statements.accept(dialect, table, attempt)
        _row(rows)
        if statements.is_accepted(dialect, rows, attempt):
            return
    row = _row((yield statements.last(dialect, table, attempt.resource, hold=attempt.shared)))
    if attempt.shared and (row is None or attempt.follows(row[0], row[1])):
        return
    raise Refusal(row[0] if row else None)


def update(change: RowChange, trusted: set[tuple[str, str]], dialect: Dialect) -> StatementFlow[None]:
    """Apply the rule in a fence column of the row itself. ``trusted`` columns are known to keep what is written."""
    rows = yield statements.update(dialect, change)
    _row(rows)
    if _is_written(rows):
        column = (str(change.table), change.fence_column)
        if dialect.rounds and column not in trusted:
            _require_kept(change, _row((yield statements.fence_of(dialect, change))))
            if change.attempt.fence > BROAD:
                trusted.add(column)
        return
    row = _row((yield statements.fence_of(dialect, change)))
    if row is None:
        raise NoSuchRow(
            f"no row with this key, so nothing was written for {label(change.attempt.resource)}: insert it first, "
            "with an empty fence column",
            resource=change.attempt.resource,
            fence=change.attempt.fence,
        )
    if not change.follows(*row):
        fence = change.attempt.fence
        raise Refusal(row[0], WRITTEN.format(fence) if change.strict and row[0] == fence else "")
    # It is the same write again, or the row was inserted since we tried. It is locked now where that matters.
    again = yield statements.update(dialect, change)
    if not _is_written(again) and not dialect.counts_changes:
        raise Conflict(
            f"the row of {label(change.attempt.resource)} came while it was looked for, and nothing was written: roll "
            "back, and run the whole transaction again, from its first read"
        )


def _row(rows: Rows) -> tuple[Any, ...] | None:
    """The first row. Its first column is a fence: in a column of another type fences are compared wrongly."""
    if not rows.rows:
        return None
    row = tuple([decoded(one) for one in rows.rows[0]])
    if row[0] is not None and not isinstance(row[0], int):
        raise unfit(f"a fence came back as {type(row[0]).__name__}")
    return row


def _require_kept(change: RowChange, row: tuple[Any, ...] | None) -> None:
    """A floating-point column rounds, and every fence within the rounding would be accepted. There is no row when its
    key is one of the values that were written."""
    if row is not None and row[0] != change.attempt.fence:
        raise InvalidRequest(
            f"the column {change.fence_column} does not keep what is written: roll back, and make it a BIGINT. A fence "
            "counts microseconds since 1970"
        )


def _is_written(rows: Rows) -> bool:
    if rows.changed > 1:
        raise InvalidRequest(
            f"key= matches {rows.changed} rows, and a fence belongs to one: roll back, and name the whole key of the "
            "row"
        )
    return rows.changed == 1
