"""The SQL of a result store.

The table holds for each resource the last fence that was presented with a digest of its owner, the text with the fence
under which it was written, and three times: of the writing, of the text's end, and from when on the row may be deleted.
Times are milliseconds since 1970 by the clock of the database (SQLite: of the machine), read by the statement itself.

write   the rule of the guard and the text, in one statement -> was it accepted?
open    the rule alone, likewise
read    -> text, its fence, its age, what is left of it and how long it is kept, in milliseconds; no row when it has
        ended
last    -> the fence that was presented last: why another one was refused
purge   deletes a few of the rows that may be deleted

On MariaDB ``turns`` counts what was accepted, as ``checks`` does in the guard's table: _sql/dialects.py says why.
"""

from __future__ import annotations

from leasehold._sql.dialects import DIALECTS, Dialect
from leasehold._sql.statements import VALUE, Statement, statement
from leasehold.guards.fence import Presented
from leasehold.guards.sql.statements import fenced_upsert, returned_values

STEP = 100  # rows that one purge deletes: other transactions wait meanwhile
_KEPT = ("value", "value_fence", "written_at", "ends_at", "forgotten_at")

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
_MARIADB_TABLE = """
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
) ENGINE = InnoDB"""
_TABLES = {
    "sqlite": (_TABLE, "CREATE INDEX IF NOT EXISTS {index_within} ON {bare} (forgotten_at)"),
    "postgresql": (_TABLE, "CREATE INDEX IF NOT EXISTS {index} ON {table} (forgotten_at)"),
    "mariadb": (_MARIADB_TABLE,),
}
_FORGOTTEN = "SELECT resource FROM {table} WHERE forgotten_at < {now} ORDER BY forgotten_at LIMIT {step}"
_PURGES = {
    "sqlite": f"DELETE FROM {{table}} WHERE resource IN ({_FORGOTTEN})",  # noqa: S608 - plain names
    "postgresql": (
        f"DELETE FROM {{table}} WHERE forgotten_at < {{now}} AND resource IN ({_FORGOTTEN} FOR UPDATE SKIP LOCKED)"  # noqa: S608
    ),
    "mariadb": "{deciding}DELETE FROM {table} WHERE forgotten_at < {now} ORDER BY forgotten_at LIMIT {step}",
}


def create(dialect: Dialect, table: str) -> list[Statement]:
    """The statements that create the table unless it exists."""
    return [statement(one, gives=False) for one in dialect.creation(_create(dialect, table), table)]


def ddl(dialect: str, table: str) -> str:
    """The same for a migration, which runs alone."""
    return "\n".join(f"{one};" for one in _create(DIALECTS[dialect], table))


def _create(dialect: Dialect, table: str) -> list[str]:
    """The index of ``main.results`` is ``results_forgotten``; names have at most 63 letters."""
    schema, _, bare = table.rpartition(".")
    index = f"{bare[:53]}_forgotten"
    names = {"table": table, "bare": bare, "index": index, "index_within": f"{schema}.{index}" if schema else index}
    return [one.strip().format(**names) for one in _TABLES[dialect.name]]


def write(
    dialect: Dialect, table: str, attempt: Presented, text: str | None, keep_ms: int, remember_ms: int
) -> Statement:
    """Write the text under this fence, if the rule accepts it."""
    new = _row(VALUE, VALUE, dialect.now_ms, f"{dialect.now_ms} + {VALUE}", f"{dialect.now_ms} + {VALUE}")
    sql = fenced_upsert(dialect, table, new, {one: dialect.new(one) for one in _KEPT}, "turns")
    values = (*_identity(attempt), text, attempt.fence, keep_ms, keep_ms + remember_ms)
    return statement(sql, *values, *returned_values(dialect, attempt), gives=dialect.upsert_returns)


def open(dialect: Dialect, table: str, attempt: Presented, remember_ms: int) -> Statement:  # noqa: A001 - the store's
    """Present this fence: what was written under an older one can be read and not be replaced."""
    new = _row("NULL", "0", dialect.now_ms, dialect.now_ms, f"{dialect.now_ms} + {VALUE}")
    later = f"{dialect.greatest}({dialect.known('ends_at')}, {dialect.new('written_at')}) + {VALUE}"
    sql = fenced_upsert(dialect, table, new, {"forgotten_at": later}, "turns")
    values = (*_identity(attempt), remember_ms, remember_ms, *returned_values(dialect, attempt))
    return statement(sql, *values, gives=dialect.upsert_returns)


def _row(*kept: str) -> dict[str, str]:
    return {"resource": VALUE, "fence": VALUE, "owner": VALUE, **dict(zip(_KEPT, kept, strict=True))}


def _identity(attempt: Presented) -> tuple[str, int, str]:
    return attempt.resource, attempt.fence, attempt.owner


def read(dialect: Dialect, table: str, resource: str) -> Statement:
    """-> text, fence, age, time left, time that it is kept."""
    now = dialect.now_ms
    sql = (
        f"SELECT value, value_fence, {now} - written_at, ends_at - {now}, ends_at - written_at "  # noqa: S608 - a plain name
        f"FROM {table} WHERE resource = {VALUE} AND value IS NOT NULL AND ends_at > {now}"
    )
    return statement(sql, resource, gives=True)


def last(table: str, resource: str) -> Statement:
    """-> the fence that was presented last."""
    return statement(f"SELECT fence FROM {table} WHERE resource = {VALUE}", resource, gives=True)  # noqa: S608 - a plain name


def purge(dialect: Dialect, table: str) -> Statement:
    """Delete a few rows that may be deleted."""
    sql = _PURGES[dialect.name].format(table=table, now=dialect.now_ms, step=STEP, deciding=dialect.deciding)
    return statement(sql, gives=False)
