"""What the user's table is made of: looked at once, and said exactly where it does not fit."""

from __future__ import annotations

from typing import NamedTuple

from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported
from leasehold.guards.sql.dialects import HERE, Dialect, Statement, statement
from leasehold.patterns.jobs.columns import Columns
from leasehold.patterns.tables.asking import Steps

NUMBERS = ("version", "attempts")
TIME_COLUMNS = ("lease_until", "run_at", "created_at", "finished_at", "counted_from")
TEXTS = ("owner", "payload", "result", "error", "queue", "key")
# What each dialect has for them. SQLite keeps anything anywhere: there only numbers that would be text are refused.
NUMBER_TYPES = ("smallint", "integer", "bigint", "int", "tinyint", "mediumint")
TIME_TYPES = ("timestamp with time zone", "timestamp without time zone", "datetime", "timestamp")
TEXT_TYPES = (
    "text", "character varying", "json", "jsonb", "character",
    "varchar", "char", "tinytext", "mediumtext", "longtext",
)  # fmt: skip
WANTED = {
    "postgresql": ("a BIGINT", "a TIMESTAMPTZ", "TEXT or JSONB"),
    "mariadb": ("a BIGINT", "a DATETIME(6)", "TEXT"),
    "sqlite": ("an INTEGER", "TEXT or REAL", "TEXT"),
}
LOOKS = {
    "postgresql": f"""SELECT attname, format_type(atttypid, NULL), '' FROM pg_attribute
WHERE attrelid = to_regclass(CAST({HERE} AS text)) AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",  # noqa: S608 - no names of others
    "sqlite": f"SELECT name, type, '' FROM pragma_table_info({HERE}, {HERE})",  # noqa: S608 - the same
    "mariadb": f"""SELECT column_name, data_type, engine FROM information_schema.columns AS c
JOIN information_schema.tables AS t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = COALESCE({HERE}, DATABASE()) AND c.table_name = {HERE} ORDER BY ordinal_position""",  # noqa: S608 - the same
}


class Layout(NamedTuple):
    """The columns of the table in their order, with the type of each."""

    dialect: Dialect
    types: dict[str, str]

    def has(self, column: str) -> bool:
        """Two of the databases do not tell capitals apart."""
        return _known(self.types, column, self.dialect)


def looking(columns: Columns, dialect: Dialect) -> Steps[Layout]:
    """Ask the database. Raises before anything else is sent to it."""
    if dialect.name == "sqlite":
        yield from _require_returning()
    found = yield _look(columns.table, dialect)
    types = {_text(row[0]): _text(row[1]).lower() for row in found.rows}
    if not types:
        raise StoreUnavailable(
            f"there is no table {columns.table} in this database: make it with create(), or with what ddl() prints"
        )
    engines = {_text(row[2]) for row in found.rows} - {"", "InnoDB"}
    if engines:
        raise InvalidRequest(f"the table {columns.table} is of {engines.pop()}, which has no transactions: use InnoDB")
    _require(columns, types, dialect)
    return Layout(dialect, types)


def _look(table: str, dialect: Dialect) -> Statement:
    schema, _, name = table.rpartition(".")
    if dialect.name == "postgresql":
        values: tuple[str | None, ...] = (".".join(dialect.quoted(part) for part in table.split(".")),)
    else:
        values = (name, schema or "main") if dialect.name == "sqlite" else (schema or None, name)
    return statement(LOOKS[dialect.name], *values, gives=True)


def _require_returning() -> Steps[None]:
    version = (yield statement("SELECT sqlite_version()", gives=True)).rows[0][0]
    if tuple(map(int, version.split(".")[:2])) < (3, 35):
        raise Unsupported(f"jobs need SQLite 3.35, which has RETURNING; this is {version}")


def _require(columns: Columns, types: dict[str, str], dialect: Dialect) -> None:
    faults, found = [], []
    for ours, theirs in columns.names.items():
        if _known(types, theirs, dialect):
            found.append(ours)
        elif ours not in columns.dispensable:
            said = theirs if theirs == ours else f"{theirs} (for {ours})"
            faults.append(f"it has no column {said}")
    if not faults:
        faults = [fault for ours in found if (fault := _misfit(columns, types, dialect, ours))]
    if faults:
        raise InvalidRequest(
            f"the table {columns.table} does not fit: {'; '.join(faults)}. Name your columns in columns=, None for one "
            "that you do not have; ddl() shows a table that fits"
        )


def _known(types: dict[str, str], column: str, dialect: Dialect) -> bool:
    if dialect.name == "postgresql":
        return column in types
    return column.casefold() in {one.casefold() for one in types}


def _misfit(columns: Columns, types: dict[str, str], dialect: Dialect, ours: str) -> str | None:
    theirs = columns.names[ours]
    kind = type_of(types, theirs)
    number, time, text = WANTED[dialect.name]
    fits, wanted = True, ""
    if ours == "state" and dialect.name == "mariadb":  # it finds that 'cancelled' = 0
        numbers = all(isinstance(one, int) for one in columns.states.values())
        fits, wanted = (kind in NUMBER_TYPES) is numbers, "a number" if numbers else "text"
    elif ours in NUMBERS:
        fits, wanted = "int" in kind if dialect.name == "sqlite" else kind in NUMBER_TYPES, number
    elif dialect.name != "sqlite" and ours in TIME_COLUMNS:
        fits, wanted = kind in TIME_TYPES, time
    elif dialect.name != "sqlite" and ours in TEXTS:
        fits, wanted = kind in TEXT_TYPES, text
    return None if fits else f"its column {theirs} is {kind or 'of no type'}, and {ours} must be {wanted}"


def type_of(types: dict[str, str], column: str) -> str:
    """Two of the databases do not tell capitals apart."""
    if column in types:
        return types[column]
    return next(kind for name, kind in types.items() if name.casefold() == column.casefold())


def _text(value: object) -> str:
    """Some drivers give the words of the catalogue as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value or "")
