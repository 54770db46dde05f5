"""The clock of the database, in the type of each column. A client's clock is never asked (trap 22).

``now`` is compared with, ``moment`` is now as it is written, ``later`` is so many seconds from now, ``at`` is a moment
that the user has named, as seconds since 1970, and ``since`` is what a column says, likewise as a number. In PostgreSQL
``now()`` is compared with, which an index can use; what is written comes from the clock itself, because a transaction
may have begun long ago.
"""

from __future__ import annotations

from typing import NamedTuple

from leasehold.guards.sql.dialects import HERE

SECONDS = f"make_interval(secs => CAST({HERE} AS double precision))"
TEXT = "'%Y-%m-%d %H:%M:%f'"  # sorts as it is read
EPOCH = "((julianday('now') - 2440587.5) * 86400.0)"


class Clock(NamedTuple):
    """Five expressions; ``HERE`` is where the seconds go, or the column, ``micros`` whether as whole microseconds."""

    now: str
    moment: str
    later: str
    at: str
    since: str
    micros: bool = False

    def given(self, seconds: float) -> float | int:
        """A duration or a moment as the expression wants it."""
        return round(seconds * 1_000_000) if self.micros else float(seconds)

    def later_by(self, length: str) -> str:
        """So long from now, as an expression says."""
        return self.later.replace(HERE, length)

    def number(self, column: str) -> str:
        """What stands in the column, since 1970."""
        return self.since.replace(HERE, column)


def clock(dialect: str, kind: str) -> Clock:
    """For a column of this type."""
    if dialect == "postgresql":
        return AWARE if kind == "timestamp with time zone" else NAIVE
    if dialect == "mariadb":
        return STAMP if kind == "timestamp" else DATETIME
    return NUMBER if any(word in kind for word in ("int", "real", "floa", "doub")) else WORDS


AWARE = Clock(
    "now()",
    "clock_timestamp()",
    f"clock_timestamp() + {SECONDS}",
    f"to_timestamp(CAST({HERE} AS double precision))",
    f"EXTRACT(EPOCH FROM {HERE})",
)
NAIVE = AWARE._replace(
    now=f"timezone('utc', {AWARE.now})",
    moment=f"timezone('utc', {AWARE.moment})",
    later=f"timezone('utc', {AWARE.later})",
    at=f"timezone('utc', {AWARE.at})",
)
DATETIME = Clock(
    "UTC_TIMESTAMP(6)",
    "UTC_TIMESTAMP(6)",
    f"TIMESTAMPADD(MICROSECOND, {HERE}, UTC_TIMESTAMP(6))",
    f"TIMESTAMPADD(MICROSECOND, {HERE}, TIMESTAMP'1970-01-01 00:00:00.000000')",
    f"TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00.000000', {HERE})",
    micros=True,
)
STAMP = Clock(
    "CURRENT_TIMESTAMP(6)",
    "CURRENT_TIMESTAMP(6)",
    f"TIMESTAMPADD(MICROSECOND, {HERE}, CURRENT_TIMESTAMP(6))",
    f"FROM_UNIXTIME({HERE} / 1000000)",
    f"UNIX_TIMESTAMP({HERE}) * 1000000",
    micros=True,
)
WORDS = Clock(
    f"strftime({TEXT}, 'now')",
    f"strftime({TEXT}, 'now')",
    f"strftime({TEXT}, 'now', {HERE} || ' seconds')",
    f"strftime({TEXT}, {HERE}, 'unixepoch')",
    f"((julianday({HERE}) - 2440587.5) * 86400.0)",
)
NUMBER = Clock(EPOCH, EPOCH, f"({EPOCH} + {HERE})", HERE, HERE)
