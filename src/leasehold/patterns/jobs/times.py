"""The clock of the database, in the type of each column. A client's clock is never asked (trap 22).

``now`` is compared with, ``later`` is so many seconds from now, ``at`` is a moment that the user has named, as seconds
since 1970. In PostgreSQL ``now()`` is compared with, which an index can use; what is written comes from the clock
itself, because a transaction may have begun long ago.
"""

from __future__ import annotations

from typing import NamedTuple

from leasehold.guards.sql.dialects import HERE

SECONDS = f"make_interval(secs => CAST({HERE} AS double precision))"
TEXT = "'%Y-%m-%d %H:%M:%f'"  # sorts as it is read
EPOCH = "((julianday('now') - 2440587.5) * 86400.0)"


class Clock(NamedTuple):
    """Three expressions; ``HERE`` is where the seconds go, ``micros`` whether as whole microseconds."""

    now: str
    later: str
    at: str
    micros: bool = False

    def given(self, seconds: float) -> float | int:
        """A duration or a moment as the expression wants it."""
        return round(seconds * 1_000_000) if self.micros else float(seconds)


def clock(dialect: str, kind: str) -> Clock:
    """For a column of this type."""
    if dialect == "postgresql":
        return AWARE if kind == "timestamp with time zone" else NAIVE
    if dialect == "mariadb":
        return STAMP if kind == "timestamp" else DATETIME
    return NUMBER if any(word in kind for word in ("int", "real", "floa", "doub")) else WORDS


AWARE = Clock("now()", f"clock_timestamp() + {SECONDS}", f"to_timestamp(CAST({HERE} AS double precision))")
NAIVE = Clock(f"timezone('utc', {AWARE.now})", f"timezone('utc', {AWARE.later})", f"timezone('utc', {AWARE.at})")
DATETIME = Clock(
    "UTC_TIMESTAMP(6)",
    f"TIMESTAMPADD(MICROSECOND, {HERE}, UTC_TIMESTAMP(6))",
    f"TIMESTAMPADD(MICROSECOND, {HERE}, TIMESTAMP'1970-01-01 00:00:00.000000')",
    micros=True,
)
STAMP = Clock(
    "CURRENT_TIMESTAMP(6)",
    f"TIMESTAMPADD(MICROSECOND, {HERE}, CURRENT_TIMESTAMP(6))",
    f"FROM_UNIXTIME({HERE} / 1000000)",
    micros=True,
)
WORDS = Clock(f"strftime({TEXT}, 'now')", f"strftime({TEXT}, 'now', {HERE} || ' seconds')",
              f"strftime({TEXT}, {HERE}, 'unixepoch')")  # fmt: skip
NUMBER = Clock(EPOCH, f"({EPOCH} + {HERE})", HERE)
