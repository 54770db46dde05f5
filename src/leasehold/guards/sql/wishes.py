"""What a guard wants of a database, as data, and the answers: the decision stands here once, for every driver.

``checking`` and ``updating`` are generators. They yield a wish and are sent the answer; whoever drives them, with a
thread or on an event loop, knows how to speak to the connection and decides nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.guards.conflict import Conflict
from leasehold.guards.fence import Presented, label


class Accept(NamedTuple):
    """Apply the rule to the guard's own table, and keep the row locked until the transaction ends."""

    attempt: Presented


class Look(NamedTuple):
    """-> (fence, owner) that were seen last. ``hold``: nobody may change them until the transaction ends."""

    resource: str
    hold: bool = False


class RowChange(NamedTuple):
    """A row of the user's own table, with a fence column: what to write where, and for whom."""

    table: Any  # a name, or a SQLAlchemy Table
    key: Mapping[str, Any]
    values: Mapping[str, Any]
    fence_column: str
    owner_column: str | None
    strict: bool
    attempt: Presented

    def follows(self, last_fence: int | None, last_owner: str | None) -> bool:
        """The rule of ``update``: a NULL column counts as 0, and without an owner column fences decide alone."""
        last, fence = last_fence or 0, self.attempt.fence
        if fence != last or self.strict:
            return fence > last
        return self.owner_column is None or last_owner == self.attempt.owner


class Update(NamedTuple):
    """Write the row unless its fence is newer. -> how many rows."""

    change: RowChange


class LookAt(NamedTuple):
    """-> (fence, owner or None) of the row."""

    change: RowChange


class RowResult(NamedTuple):
    """How many rows a statement changed, and the first that it gave. ``accepted`` is the word of an Accept.

    ``maybe_same``: the database may count only rows whose values have changed, and none for the same write again.
    ``maybe_rounded``: it may have written another number than it was given, and did not say so."""

    rowcount: int
    row: Any = None
    accepted: bool = False
    maybe_same: bool = False
    maybe_rounded: bool = False


class Rows(NamedTuple):
    """All that a statement gave: how many rows it changed or found, their columns, and the rows."""

    changed: int
    names: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = []  # noqa: RUF012 - never changed


BROAD = 2**32  # a fence below would fit into a FLOAT, and prove nothing
Wish = Accept | Look | Update | LookAt
Steps = Generator[Wish, RowResult, None]


class Refusal(Exception):
    """Refused. ``seen`` is the newer fence, ``why`` another reason than that."""

    def __init__(self, seen: int | None, why: str = "") -> None:
        super().__init__(seen)
        self.seen = seen
        self.why = why


class NoSuchRow(LeaseholdError, LookupError):
    """``guard.update``, ``transition`` or ``row_lock`` found no row with that key. It is not a stale owner: nothing can
    be said about it."""


def checking(attempt: Presented) -> Steps:
    """The rule, in the guard's own table."""
    if not attempt.shared:
        answer = yield Accept(attempt)
        if answer.accepted:
            return
    row = (yield Look(attempt.resource, hold=attempt.shared)).row
    if attempt.shared and (row is None or attempt.follows(row[0], row[1])):
        return
    raise Refusal(row[0] if row else None)


WRITTEN = (
    "fence {} has written this row already, and strict=True accepts one write for each fence. The guard has changed "
    "nothing. Roll back: it was done before"
)


def updating(change: RowChange, trusted: set[tuple[str, str]]) -> Steps:
    """The rule, in a fence column of the row itself. ``trusted`` columns have shown that they keep what is written."""
    answer = yield Update(change)
    if _written(answer.rowcount):
        column = (str(change.table), change.fence_column)
        if answer.maybe_rounded and column not in trusted:
            _require_kept(change, (yield LookAt(change)).row)
            if change.attempt.fence > BROAD:
                trusted.add(column)
        return
    row = (yield LookAt(change)).row
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
    # It is the same write again, or somebody has inserted the row since we tried. It is locked now where that matters.
    again = yield Update(change)
    if not _written(again.rowcount) and not again.maybe_same:
        raise Conflict(
            f"the row of {label(change.attempt.resource)} came while it was looked for, and nothing was written: roll "
            "back, and run the whole transaction again, from its first read"
        )


def _require_kept(change: RowChange, row: Any) -> None:
    """A column of floating point rounds, and everybody within the rounding would be accepted. No row: its key is one of
    the values that were written."""
    if row is not None and row[0] != change.attempt.fence:
        raise InvalidRequest(
            f"the column {change.fence_column} does not keep what is written: roll back, and make it a BIGINT. A fence "
            "counts microseconds since 1970"
        )


def _written(rowcount: int) -> bool:
    if rowcount > 1:
        raise InvalidRequest(
            f"key= matches {rowcount} rows, and a fence belongs to one: roll back, and name the whole key of the row"
        )
    return rowcount == 1
