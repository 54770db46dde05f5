"""The SQL of a result store in three dialects. A file of statements: what is asked for, and what comes back.

The table holds for each resource the last fence that was presented with a digest of its owner, the text with the fence
under which it was written, and three times: of the writing, of the text's end, and from when on the row may be deleted.
Times are milliseconds since 1970 by the clock of the database (SQLite: of the machine), read by the statement itself.

write   the rule of the guard and the text, in one statement -> was it accepted?
open    the rule alone, likewise
look    -> text, its fence, its age and what is left of it in milliseconds; no row when it has ended
last    -> the fence that was presented last: why somebody was refused
purge   deletes a few of the rows that are to be forgotten

On MariaDB ``turns`` counts, for the same reason as ``checks`` does in the guard's table (guards/sql/dialects.py), and
its assignments see what those before them have set: the rule stands before the fence changes.
"""

from __future__ import annotations

from leasehold.guards.fence import Presented
from leasehold.guards.sql.dialects import DIALECTS, HERE, Statement, statement
from leasehold.guards.sql.wishes import Rows

STEP = 100  # rows that one purge deletes: others wait meanwhile
_COLUMNS = "resource, fence, owner, value, value_fence, written_at, ends_at, forgotten_at"
_ROW = f"{HERE}, {HERE}, {HERE}"
_KEPT = ("value", "value_fence", "written_at", "ends_at", "forgotten_at")


class ResultStatements:
    """What the dialects have in common."""

    name = ""
    clock = ""
    before = ""  # every statement that decides
    gives = True  # a row, when it was accepted
    greatest = "GREATEST"
    create: tuple[str, ...] = ()
    purging = ""

    def write(self, table: str, attempt: Presented, text: str | None, keep_ms: int, remember_ms: int) -> Statement:
        values = f"{_ROW}, {HERE}, {HERE}, {self.clock}, {self.clock} + {HERE}, {self.clock} + {HERE}"
        sql = self._insert(table, values) + self._writing()
        row = (*_identity(attempt), text, attempt.fence, keep_ms, keep_ms + remember_ms)
        return statement(sql, *row, gives=self.gives)

    def open(self, table: str, attempt: Presented, remember_ms: int) -> Statement:
        values = f"{_ROW}, NULL, 0, {self.clock}, {self.clock}, {self.clock} + {HERE}"
        sql = self._insert(table, values) + self._opening()
        return statement(sql, *_identity(attempt), remember_ms, remember_ms, gives=self.gives)

    def look(self, table: str, resource: str) -> Statement:
        sql = (
            f"SELECT value, value_fence, {self.clock} - written_at, ends_at - {self.clock}, ends_at - written_at "  # noqa: S608 - a plain name
            f"FROM {table} WHERE resource = {HERE} AND value IS NOT NULL AND ends_at > {self.clock}"
        )
        return statement(sql, resource, gives=True)

    def last(self, table: str, resource: str) -> Statement:
        return statement(f"SELECT fence FROM {table} WHERE resource = {HERE}", resource, gives=True)  # noqa: S608 - a plain name

    def purge(self, table: str) -> Statement:
        sql = self.purging.strip().replace("{table}", table).replace("{clock}", self.clock)
        return Statement((sql.replace("{step}", str(STEP)),), (), gives=False)

    def making(self, table: str) -> list[str]:
        """The statements that make the table."""
        return [_named(one, table) for one in self.create]

    def ddl(self, table: str) -> str:
        """The same, for a migration."""
        return "\n".join(f"{one};" for one in self.making(table))

    def accepted(self, rows: Rows, attempt: Presented) -> bool:
        return bool(rows.rows)

    def _insert(self, table: str, values: str) -> str:
        return f"{self.before}INSERT INTO {table} AS known ({_COLUMNS}) VALUES ({values})"  # noqa: S608 - a plain name

    def _writing(self) -> str:
        return self._update(", ".join(f"{one} = excluded.{one}" for one in _KEPT))

    def _opening(self) -> str:
        return self._update(f"forgotten_at = {self.greatest}(known.ends_at, excluded.written_at) + {HERE}")

    def _update(self, more: str) -> str:
        return (
            f" ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence, owner = excluded.owner, {more} "
            "WHERE known.fence < excluded.fence OR (known.fence = excluded.fence AND known.owner = excluded.owner)"
        )


def _identity(attempt: Presented) -> tuple[str, int, str]:
    return attempt.resource, attempt.fence, attempt.owner


def _named(text: str, table: str) -> str:
    """The index of ``main.results`` is ``results_forgotten``; names have at most 63 letters."""
    schema, _, bare = table.rpartition(".")
    index = f"{bare[:53]}_forgotten"
    within = f"{schema}.{index}" if schema else index
    names = {"{table}": table, "{bare}": bare, "{index}": index, "{index_within}": within}
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text.strip()


_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) NOT NULL,
    value TEXT,
    value_fence BIGINT NOT NULL,
    written_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    forgotten_at BIGINT NOT NULL
)"""


class SQLiteResultStatements(ResultStatements):
    """3.24 or newer."""

    name, greatest, gives = "sqlite", "MAX", False
    clock = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    create = (_TABLE, "CREATE INDEX IF NOT EXISTS {index_within} ON {bare} (forgotten_at)")
    purging = (
        "DELETE FROM {table} WHERE resource IN "
        "(SELECT resource FROM {table} WHERE forgotten_at < {clock} ORDER BY forgotten_at LIMIT {step})"
    )

    def accepted(self, rows: Rows, attempt: Presented) -> bool:
        return rows.changed == 1


class PostgreSQLResultStatements(ResultStatements):
    """The clock is that of the statement, not that of the transaction, which may have begun long ago."""

    name = "postgresql"
    clock = "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"
    create = (_TABLE, "CREATE INDEX IF NOT EXISTS {index} ON {table} (forgotten_at)")
    purging = (
        "DELETE FROM {table} WHERE forgotten_at < {clock} AND resource IN (SELECT resource FROM {table} "
        "WHERE forgotten_at < {clock} ORDER BY forgotten_at LIMIT {step} FOR UPDATE SKIP LOCKED)"
    )

    def making(self, table: str) -> list[str]:
        """In one statement, one after the other: two at the same time would stumble over each other."""
        texts = "; ".join(super().making(table))
        return [f"DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('leasehold {table}')); {texts}; END $$"]

    def ddl(self, table: str) -> str:
        """A migration runs alone."""
        return "\n".join(f"{one};" for one in super().making(table))

    def _update(self, more: str) -> str:
        return super()._update(more) + " RETURNING fence"


class MariaDBResultStatements(ResultStatements):
    """Its times are in UTC: local ones are ambiguous for an hour each year."""

    name = "mariadb"
    before = DIALECTS["mariadb"].before
    clock = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
    create = (
        """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    value_fence BIGINT NOT NULL,
    written_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    forgotten_at BIGINT NOT NULL,
    turns BIGINT NOT NULL DEFAULT 0,
    INDEX forgotten (forgotten_at)
) ENGINE = InnoDB""",
    )
    purging = f"{before}DELETE FROM {{table}} WHERE forgotten_at < {{clock}} ORDER BY forgotten_at LIMIT {{step}}"  # noqa: S608 - a plain name

    def accepted(self, rows: Rows, attempt: Presented) -> bool:
        """It is ours that stands there. Some connections give text as bytes."""
        (fence, owner), *_ = rows.rows
        return (fence, owner.decode() if isinstance(owner, bytes) else owner) == (attempt.fence, attempt.owner)

    def _insert(self, table: str, values: str) -> str:
        return super()._insert(table, values).replace(" AS known", "")

    def _writing(self) -> str:
        return self._update(", ".join(f"{one} = IF({_OK}, VALUES({one}), {one})" for one in _KEPT))

    def _opening(self) -> str:
        later = f"GREATEST(ends_at, VALUES(written_at)) + {HERE}"
        return self._update(f"forgotten_at = IF({_OK}, {later}, forgotten_at)")

    def _update(self, more: str) -> str:
        return (
            f" ON DUPLICATE KEY UPDATE turns = turns + ({_OK}), {more}, owner = IF(VALUES(fence) > fence, "
            "VALUES(owner), owner), fence = GREATEST(fence, VALUES(fence)) RETURNING fence, owner"
        )


_OK = "VALUES(fence) > fence OR (VALUES(fence) = fence AND VALUES(owner) = owner)"
TEXTS: dict[str, ResultStatements] = {
    one.name: one for one in (SQLiteResultStatements(), PostgreSQLResultStatements(), MariaDBResultStatements())
}
