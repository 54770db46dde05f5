"""The statements of the store, for one table.

An uncontended claim, renewal or release is one statement, which commits by itself. What a crash of the server may
forget without harm does not wait for its disk: a release (the lease then ends by itself), a place in a queue, a beat.
Everything else is a turn of the
ledger between two requests: ``lock`` reads the rows and locks them, ``write`` changes them and commits. A client that
freezes between the two keeps the rows locked until the server ends its session, after ``FROZEN_MS``.

Times are milliseconds or microseconds since 1970, read with ``clock_timestamp()``: ``now()`` stands still in a
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from leasehold._core.policy import MAX_FLOOR_AHEAD_US, PAGE
from leasehold.stores.postgresql.rows import Row

FROZEN_MS = 500
US = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
COLUMNS = ", ".join(("name", *Row._fields))
TYPES = ("text", "bigint", "text", "bigint", "bigint", "bigint", "text", "text", "bigint")

Quote = Callable[[str], str]


class Statements:
    """``table`` is quoted, with its schema where it has one."""

    def __init__(self, table: str) -> None:
        self.table = table
        clock = f"(SELECT {US} AS us) AS clock"
        self.claim = (
            f"INSERT INTO {table} AS known (name, fence, owner, expires, ttl, since, details) "  # noqa: S608 - a quoted name
            "SELECT $1, GREATEST(us, $2::bigint + 1), $3, us / 1000 + $4::bigint, $4::bigint, us, $5 "
            f"FROM {clock} WHERE $2::bigint <= us + {MAX_FLOOR_AHEAD_US} "
            "ON CONFLICT (name) DO UPDATE SET fence = GREATEST(excluded.fence, known.fence + 1), "
            "owner = excluded.owner, expires = excluded.expires, ttl = excluded.ttl, since = excluded.since, "
            "details = excluded.details WHERE known.owner IS NULL AND known.state IS NULL RETURNING fence"
        ).encode()
        mine = (
            "name = $1 AND owner = $2 AND fence = $3::bigint AND state IS NULL AND expires > us / 1000 "
            "AND expires - ttl <= us / 1000"
        )
        self.release = (
            f"UPDATE {table} SET owner = NULL, expires = NULL, ttl = NULL, since = NULL, details = NULL "  # noqa: S608
            f"FROM {clock} WHERE {mine} RETURNING set_config('synchronous_commit', 'off', true)"
        ).encode()
        self.renew = (
            f"UPDATE {table} SET expires = us / 1000 + $4::bigint, ttl = $4::bigint FROM {clock} "  # noqa: S608
            f"WHERE {mine} AND expires <= us / 1000 + $4::bigint RETURNING 1"
        ).encode()
        # In the order of names, as every transaction locks its rows: so two of them never wait for each other.
        self.renew_many = (
            f"UPDATE {table} SET expires = us / 1000 + ttl FROM {clock} WHERE {table}.ctid = ANY (ARRAY("  # noqa: S608
            f"SELECT held.ctid FROM {table} AS held JOIN "
            "unnest($1::text[], $2::text[], $3::bigint[]) AS asked (name, owner, fence) "
            f"ON held.name = asked.name AND held.owner = asked.owner AND held.fence = asked.fence, {clock} "
            "WHERE held.state IS NULL AND held.expires > us / 1000 AND held.expires - held.ttl <= us / 1000 "
            "ORDER BY held.name FOR UPDATE OF held)) RETURNING name"
        ).encode()
        self.read = f"SELECT {US}, {COLUMNS} FROM (SELECT 1) AS one LEFT JOIN {table} ON name = $1".encode()  # noqa: S608
        self.page = (
            f"SELECT {US}, {COLUMNS} FROM {table} WHERE name > $1 ORDER BY name LIMIT {PAGE}"  # noqa: S608
        ).encode()
        self.sweep = (
            f"DELETE FROM {table} WHERE name = ANY($1::text[]) AND state IS NULL "  # noqa: S608
            "AND (owner IS NULL OR expires < $2::bigint / 1000) AND fence < $2::bigint"
        ).encode()

    # ------------------------------------------------------------ turns of the ledger

    def lock(self, names: Sequence[str], wait_ms: int, quote: Quote) -> str:
        """Begin, and read and lock the rows of these names, which are sorted. The last result is the time: the clock is
        read when they are locked."""
        listening = "CASE WHEN listener IS NOT NULL THEN NOT pg_try_advisory_xact_lock_shared(listener) END"
        return (
            f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {wait_ms}; "  # noqa: S608
            f"SET LOCAL idle_in_transaction_session_timeout = {FROZEN_MS}; "
            f"SELECT {COLUMNS}, {listening} FROM {self.table} WHERE name IN ({_list(names, quote)}) "
            f"ORDER BY name FOR UPDATE; SELECT {US}"
        )

    def write(
        self,
        added: Sequence[tuple[str, Row]],
        changed: Sequence[tuple[str, Row]],
        removed: Sequence[str],
        pushes: Sequence[tuple[str, str]],
        flush: bool,
        quote: Quote,
    ) -> str:
        """Change the locked rows, send the pushes, and commit. A row that another process has added since then makes
        it fail as a whole. Without ``flush`` the commit does not wait for the disk, nor for a standby."""
        parts = [] if flush else ["SET LOCAL synchronous_commit = off"]
        if added:
            parts.append(f"INSERT INTO {self.table} ({COLUMNS}) VALUES {_rows(added, quote)}")  # noqa: S608
        if changed:
            columns = ", ".join([f"{column} = new.{column}" for column in Row._fields])
            parts.append(
                f"UPDATE {self.table} AS known SET {columns} FROM (VALUES {_rows(changed, quote, TYPES)}) "  # noqa: S608
                f"AS new ({COLUMNS}) WHERE known.name = new.name"
            )
        if removed:
            parts.append(f"DELETE FROM {self.table} WHERE name IN ({_list(removed, quote)})")  # noqa: S608
        parts += [f"SELECT pg_notify({quote(channel)}, {quote(payload)})" for channel, payload in pushes]
        parts.append("COMMIT")
        return "; ".join(parts)


def listening(keys: Iterable[int]) -> str:
    """Which of these advisory locks somebody has, in their order."""
    return "SELECT " + ", ".join([f"NOT pg_try_advisory_xact_lock_shared({key})" for key in keys])


def _list(names: Iterable[str], quote: Quote) -> str:
    return ", ".join([quote(name) for name in names])


def _rows(rows: Sequence[tuple[str, Row]], quote: Quote, types: Sequence[str] = ()) -> str:
    """The first row has the types, which NULL does not tell."""
    texts = []
    for name, row in rows:
        values = [_literal(value, quote) for value in (name, *row)]
        if types:
            values = [f"{value}::{kind}" for value, kind in zip(values, types, strict=True)]
            types = ()
        texts.append(f"({', '.join(values)})")
    return ", ".join(texts)


def _literal(value: str | int | None, quote: Quote) -> str:
    if value is None:
        return "NULL"
    return quote(value) if isinstance(value, str) else str(value)
