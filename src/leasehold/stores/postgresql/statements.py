"""The statements of the store, for one table.

An uncontended claim, renewal or release is one statement, which commits by itself. Everything else is a turn of the
ledger between two requests: ``lock`` reads the rows and locks them, ``write`` changes them and commits. A client that
freezes between the two keeps the rows locked until the server ends its session, after ``FROZEN_MS``.

What a crash of the server may forget without harm does not wait for its disk: a release (the lease then ends by
itself), a place in a queue, a beat.

Times are milliseconds or microseconds since 1970, read with ``clock_timestamp()``: ``now()`` stands still in a
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasehold._core.policy import MAX_FLOOR_AHEAD_US, PAGE
from leasehold.stores.postgresql.rows import Row
from leasehold.stores.postgresql.session import Request

FROZEN_MS = 500
US = "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint"
COLUMNS = ", ".join(("name", *Row._fields))


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
            f"UPDATE {table} SET owner = NULL, expires = NULL, ttl = NULL, since = NULL, details = NULL "  # noqa: S608 - a quoted name
            f"FROM {clock} WHERE {mine} RETURNING set_config('synchronous_commit', 'off', true)"
        ).encode()
        self.renew = (
            f"UPDATE {table} SET expires = us / 1000 + $4::bigint, ttl = $4::bigint FROM {clock} "  # noqa: S608 - a quoted name
            f"WHERE {mine} AND expires <= us / 1000 + $4::bigint RETURNING 1"
        ).encode()
        # In the order of names, as every transaction locks its rows: so two of them never wait for each other.
        self.renew_many = (
            f"UPDATE {table} SET expires = us / 1000 + ttl FROM {clock} WHERE {table}.ctid = ANY (ARRAY("  # noqa: S608 - a quoted name
            f"SELECT held.ctid FROM {table} AS held JOIN "
            "unnest($1::text[], $2::text[], $3::bigint[]) AS asked (name, owner, fence) "
            f"ON held.name = asked.name AND held.owner = asked.owner AND held.fence = asked.fence, {clock} "
            "WHERE held.state IS NULL AND held.expires > us / 1000 AND held.expires - held.ttl <= us / 1000 "
            "ORDER BY held.name FOR UPDATE OF held)) RETURNING name"
        ).encode()
        self.read = f"SELECT {US}, {COLUMNS} FROM (SELECT 1) AS one LEFT JOIN {table} ON name = $1".encode()  # noqa: S608 - a quoted name
        self.page = (
            f"SELECT {US}, {COLUMNS} FROM {table} WHERE name > $1 ORDER BY name LIMIT {PAGE}"  # noqa: S608 - a quoted name
        ).encode()
        self.sweep = (
            f"DELETE FROM {table} WHERE name = ANY($1::text[]) AND state IS NULL "  # noqa: S608 - a quoted name
            "AND (owner IS NULL OR expires < $2::bigint / 1000) AND fence < $2::bigint"
        ).encode()

        listening = "CASE WHEN listener IS NOT NULL THEN NOT pg_try_advisory_xact_lock_shared(listener) END"
        self._lock = (
            f"SELECT {COLUMNS}, {listening} FROM {table} WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE"  # noqa: S608 - a quoted name
        ).encode()
        places = ", ".join([f"${number}" for number in range(1, len(Row._fields) + 2)])
        columns = ", ".join([f"{column} = ${number}" for number, column in enumerate(Row._fields, 2)])
        self._add = f"INSERT INTO {table} ({COLUMNS}) VALUES ({places})".encode()  # noqa: S608 - a quoted name
        self._change = f"UPDATE {table} SET {columns} WHERE name = $1".encode()  # noqa: S608 - a quoted name
        self._remove = f"DELETE FROM {table} WHERE name = $1".encode()  # noqa: S608 - a quoted name

    # ------------------------------------------------------------ turns of the ledger

    def lock(self, names: Sequence[str], wait_ms: int) -> Request:
        """Begin, and read and lock the rows of these names, which are sorted. The last result is the time: the clock is
        read when they are locked."""
        return Request((BEGIN, ()), (LIMITS, (str(wait_ms).encode(),)), (self._lock, (array(names),)), (CLOCK, ()))

    def write(
        self,
        added: Sequence[tuple[str, Row]],
        changed: Sequence[tuple[str, Row]],
        removed: Sequence[str],
        pushes: Sequence[tuple[str, str]],
        flush: bool,
    ) -> Request:
        """Change the locked rows, send the pushes, and commit. A row that another process has added since then makes
        it fail as a whole. Without ``flush`` the commit does not wait for the disk, nor for a standby."""
        return Request(
            *[] if flush else [(NO_FLUSH, ())],
            *[(self._add, _values(*one)) for one in added],
            *[(self._change, _values(*one)) for one in changed],
            *[(self._remove, (name.encode(),)) for name in removed],
            *[(NOTIFY, (channel.encode(), payload.encode())) for channel, payload in pushes],
            (COMMIT, ()),
        )


BEGIN, COMMIT = b"BEGIN ISOLATION LEVEL READ COMMITTED", b"COMMIT"
LIMITS = (
    f"SELECT set_config('lock_timeout', $1, true), "
    f"set_config('idle_in_transaction_session_timeout', '{FROZEN_MS}', true)"
).encode()
CLOCK = f"SELECT {US}".encode()
VERSION = b"SELECT current_setting('server_version')"
NO_FLUSH = b"SET LOCAL synchronous_commit = off"
NOTIFY = b"SELECT pg_notify($1, $2)"
LISTENING = (
    b"SELECT NOT pg_try_advisory_xact_lock_shared(key) "
    b"FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (key, place) ORDER BY place"
)
ROLLBACK = Request((b"ROLLBACK", ()))


def listening(keys: Iterable[int]) -> Request:
    """Which of these advisory locks somebody has, in their order."""
    return Request((LISTENING, (array([str(key) for key in keys]),)))


def array(texts: Sequence[str]) -> bytes:
    """An array, as the server reads it."""
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return ("{" + ",".join([f'"{text}"' for text in quoted]) + "}").encode()


def _values(name: str, row: Row) -> list[bytes | None]:
    return [name.encode(), *[None if value is None else str(value).encode() for value in row]]
