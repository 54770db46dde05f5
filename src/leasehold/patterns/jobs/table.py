"""The user's table: our names for its columns and states, its layout, read and checked once, and DDL for a new one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from leasehold._sql import names
from leasehold._sql.dialects import DIALECTS, Dialect
from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import VALUE, Statement, decoded, statement
from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported

# ---------------------------------------------------------------- columns
#
# Our names for the columns and states of a table of jobs, and the user's: checked before anything is sent.


NEEDED = ("id", "state", "version", "lease_until")
OPTIONAL = (
    "owner", "attempts", "payload", "result", "error", "run_at", "created_at", "finished_at", "queue", "key",
)  # fmt: skip
WELCOME = ("counted_from",)  # used where the table has it; a table without it need not be declared so
STATES = ("ready", "running", "done", "dead")
_PLAIN = re.compile(r"[\w .-]{1,60}", re.ASCII)  # states stand in the statements, so that partial indexes are found


class JobColumns:
    """The user's names for our columns, None for one that the table does not have, and the values of its states."""

    def __init__(self, table: object, columns: object, states: object) -> None:
        self.table = names.table(table) if isinstance(table, str) else _not_a_name(table)
        self.names: dict[str, str] = {}
        named = _mapping(columns)
        used = {theirs.casefold() for theirs in named.values() if theirs is not None}
        welcome = [one for one in WELCOME if one not in used]
        for ours, theirs in {**{one: one for one in (*NEEDED, *OPTIONAL, *welcome)}, **named}.items():
            if theirs is not None:
                self.names[ours] = theirs
        self.dispensable = {one for one in welcome if one not in named}  # may be missing
        self.states = _states(states)

    def state(self, found: object) -> str:
        """Our name for a state in the table. A CHAR comes back padded with spaces, and a state that another program
        wrote may have other capitals, where the database does not tell them apart."""
        text = str(decoded(found))
        known = {str(theirs): ours for ours, theirs in self.states.items()}
        if text in known:
            return known[text]
        alike = {theirs.casefold(): ours for theirs, ours in known.items()}
        return alike.get(text.rstrip(" ").casefold(), text)

    def has(self, ours: str) -> bool:
        return ours in self.names

    def require(self, ours: str, what: str) -> None:
        """Raise InvalidRequest when a feature needs a column that the table does not have."""
        if ours not in self.names:
            raise InvalidRequest(f"{what} needs a column for {ours}, and columns= says that {self.table} has none")


def _not_a_name(table: object) -> str:
    raise InvalidRequest(f"table= is the name of your table, such as 'jobs' or 'app.jobs', not {type(table).__name__}")


def _mapping(columns: object) -> dict[str, str | None]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InvalidRequest(
            f"columns= is a mapping of our names to yours, such as {{'id': 'report_id'}}, not {type(columns).__name__}"
        )
    for ours, theirs in columns.items():
        if ours not in (*NEEDED, *OPTIONAL, *WELCOME):
            raise InvalidRequest(f"columns= knows {', '.join((*NEEDED, *OPTIONAL, *WELCOME))}, not {ours!r:.80}")
        if theirs is None and ours in NEEDED:
            raise InvalidRequest(f"jobs cannot do without a column for {ours}: name yours, or add one")
        if theirs is not None and (not isinstance(theirs, str) or not 0 < len(theirs) <= 63 or "\0" in theirs):
            raise InvalidRequest(f"the name of the column for {ours} has 1 to 63 characters, not {theirs!r:.80}")
    named = [theirs.casefold() for theirs in columns.values() if theirs is not None]
    if len(named) != len(set(named)):
        raise InvalidRequest("columns= names one column of yours twice: each of ours needs one of its own")
    return dict(columns)


def _states(states: object) -> dict[str, str | int]:
    if states is None:
        states = {}
    if not isinstance(states, Mapping) or not set(states) <= set(STATES):
        raise InvalidRequest(f"states= is a mapping of {', '.join(STATES)} to your values, not {states!r:.80}")
    found: dict[str, str | int] = {one: one for one in STATES}
    for ours, theirs in states.items():
        if isinstance(theirs, bool) or not isinstance(theirs, int | str):
            raise InvalidRequest(f"the value of the state {ours} is text or an int, not {type(theirs).__name__}")
        if isinstance(theirs, str) and not _PLAIN.fullmatch(theirs):
            raise InvalidRequest(f"the value of the state {ours} is made of letters, digits, space, _, - and .")
        found[ours] = theirs
    if len(set(found.values())) != len(STATES):
        raise InvalidRequest("two states have one value: each needs its own")
    return found


def literal(value: str | int) -> str:
    """A state in SQL."""
    return f"'{value}'" if isinstance(value, str) else str(value)


JobRow = dict[str, Any]  # by our names; "row" is the whole row, by the user's


# ---------------------------------------------------------------- layout


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
COLUMN_QUERIES = {
    "postgresql": f"""SELECT attname, format_type(atttypid, NULL), '' FROM pg_attribute
WHERE attrelid = to_regclass(CAST({VALUE} AS text)) AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",  # noqa: S608 - no names of others
    "sqlite": f"SELECT name, type, '' FROM pragma_table_info({VALUE}, {VALUE})",  # noqa: S608 - the same
    "mariadb": f"""SELECT column_name, data_type, engine FROM information_schema.columns AS c
JOIN information_schema.tables AS t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = COALESCE({VALUE}, DATABASE()) AND c.table_name = {VALUE} ORDER BY ordinal_position""",  # noqa: S608 - the same
}


class TableLayout(NamedTuple):
    """The columns of the table in their order, with the type of each."""

    dialect: Dialect
    types: dict[str, str]

    def has(self, column: str) -> bool:
        """Is there such a column? Two of the databases do not tell capitals apart."""
        return _known(self.types, column, self.dialect)


def read_layout(columns: JobColumns, dialect: Dialect) -> StatementFlow[TableLayout]:
    """Read the layout of the table, and check it, before anything else is sent."""
    if dialect.name == "sqlite":
        yield from _require_returning()
    found = yield _column_query(columns.table, dialect)
    types = {_text(row[0]): _text(row[1]).lower() for row in found.rows}
    if not types:
        raise StoreUnavailable(
            f"there is no table {columns.table} in this database: make it with create(), or with what ddl() prints"
        )
    engines = {_text(row[2]) for row in found.rows} - {"", "InnoDB"}
    if engines:
        raise InvalidRequest(f"the table {columns.table} is of {engines.pop()}, which has no transactions: use InnoDB")
    _require(columns, types, dialect)
    return TableLayout(dialect, types)


def _column_query(table: str, dialect: Dialect) -> Statement:
    schema, _, name = table.rpartition(".")
    if dialect.name == "postgresql":
        values: tuple[str | None, ...] = (dialect.table(table),)
    else:
        values = (name, schema or "main") if dialect.name == "sqlite" else (schema or None, name)
    return statement(COLUMN_QUERIES[dialect.name], *values, gives=True)


def _require_returning() -> StatementFlow[None]:
    version = (yield statement("SELECT sqlite_version()", gives=True)).rows[0][0]
    if tuple(map(int, version.split(".")[:2])) < (3, 35):
        raise Unsupported(f"jobs need SQLite 3.35, which has RETURNING; this is {version}")


def _require(columns: JobColumns, types: dict[str, str], dialect: Dialect) -> None:
    faults, found = [], []
    for ours, theirs in columns.names.items():
        if _known(types, theirs, dialect):
            found.append(ours)
        elif ours not in columns.dispensable:
            named = theirs if theirs == ours else f"{theirs} (for {ours})"
            faults.append(f"it has no column {named}")
    if not faults:
        faults = [fault for ours in found if (fault := _misfit(columns, types, dialect, ours))]
    if faults:
        raise InvalidRequest(
            f"the table {columns.table} does not fit: {'; '.join(faults)}. Name your columns in columns=, None for one "
            "that you do not have; ddl() shows a table that fits"
        )


def _known(types: dict[str, str], column: str, dialect: Dialect) -> bool:
    if not dialect.folds_case:
        return column in types
    return column.casefold() in {one.casefold() for one in types}


def _misfit(columns: JobColumns, types: dict[str, str], dialect: Dialect, ours: str) -> str | None:
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
    """The type of a column. Two of the databases do not tell capitals apart."""
    if column in types:
        return types[column]
    return next(kind for name, kind in types.items() if name.casefold() == column.casefold())


def _text(value: object) -> str:
    """Some drivers give the text of the catalogue as bytes."""
    return str(decoded(value) or "")


# ---------------------------------------------------------------- a new table
#
# With the indexes that claims need.


LOCK = "SELECT pg_advisory_xact_lock(hashtext('leasehold jobs'))"  # two processes that create it at once would fail
# SQLite: without AUTOINCREMENT the id of a job that was deleted is given to another one, and with it its versions.
IDS = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "mariadb": "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
}
TIMES = {"sqlite": "TEXT", "postgresql": "TIMESTAMPTZ", "mariadb": "DATETIME(6)"}
JSON = {"sqlite": "TEXT", "postgresql": "JSONB", "mariadb": "LONGTEXT"}
STRINGS = {
    "sqlite": "TEXT",
    "postgresql": "TEXT",
    "mariadb": "VARCHAR({}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
}


def create(columns: JobColumns, dialect: Dialect) -> StatementFlow[None]:
    """Create the table unless it exists."""
    if dialect.name == "postgresql":
        yield statement(LOCK, gives=True)
    for text in statements(columns, dialect):
        yield statement(text, gives=False)


def ddl(columns: JobColumns, dialect: str) -> str:
    """The statements of ``create``, for a migration."""
    return "\n".join(f"{one};" for one in statements(columns, DIALECTS[dialect]))


def statements(columns: JobColumns, dialect: Dialect) -> list[str]:
    """The texts that create the table and its indexes."""
    table = dialect.table(columns.table)
    lines = [f"    {dialect.quoted(columns.names[ours])} {_type(columns, dialect.name, ours)}"
             for ours in (*NEEDED, *OPTIONAL, *WELCOME) if columns.has(ours)]  # fmt: skip
    if dialect.name == "mariadb":
        lines += [f"    {one}" for one in _keys(columns, dialect)]
        return [
            f"CREATE TABLE IF NOT EXISTS {table} (\n"
            + ",\n".join(lines)
            + "\n) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"
        ]
    return [f"CREATE TABLE IF NOT EXISTS {table} (\n" + ",\n".join(lines) + "\n)", *_indexes(columns, dialect, table)]


def _type(columns: JobColumns, dialect: str, ours: str) -> str:
    number = "INTEGER" if dialect == "sqlite" else "BIGINT"
    text = STRINGS[dialect]
    types = {
        "id": IDS[dialect],
        "state": f"{_state(columns, text)} NOT NULL",
        "version": f"{number} NOT NULL DEFAULT 0",
        "attempts": "INTEGER NOT NULL DEFAULT 0",
        "run_at": f"{TIMES[dialect]} NOT NULL",
        "payload": JSON[dialect],
        "result": JSON[dialect],
        "owner": text.format(255),
        "error": "LONGTEXT" if dialect == "mariadb" else "TEXT",
        "queue": f"{text.format(64)} NOT NULL DEFAULT ''",
        "key": f"{text.format(255)}{'' if dialect == 'mariadb' else ' UNIQUE'}",
    }
    return types.get(ours, TIMES[dialect])


def _state(columns: JobColumns, text: str) -> str:
    numbers = all(isinstance(value, int) for value in columns.states.values())
    return "INTEGER" if numbers else text.format(64)


def _order(columns: JobColumns, dialect: Dialect, first: str) -> str:
    return ", ".join(dialect.quoted(columns.names[one]) for one in (first, "id") if columns.has(one))


def _keys(columns: JobColumns, dialect: Dialect) -> list[str]:
    state = dialect.quoted(columns.names["state"])
    keys = [f"KEY ready ({state}, {_order(columns, dialect, 'run_at')})",
            f"KEY running ({state}, {_order(columns, dialect, 'lease_until')})"]  # fmt: skip
    if columns.has("key"):
        keys.append(f"UNIQUE KEY once ({dialect.quoted(columns.names['key'])})")
    return keys


def _indexes(columns: JobColumns, dialect: Dialect, table: str) -> list[str]:
    """Partial: they leave out jobs that have ended, which then cost a claim nothing."""
    schema, _, name = columns.table.rpartition(".")
    state = dialect.quoted(columns.names["state"])
    found = []
    for which, first in (("ready", "run_at"), ("running", "lease_until")):
        index = dialect.quoted(f"{name}_{which}"[:63])
        on = table
        if dialect.name == "sqlite" and schema:
            index, on = f"{dialect.quoted(schema)}.{index}", dialect.quoted(name)
        where = f"{state} = {literal(columns.states[which])}"
        found.append(f"CREATE INDEX IF NOT EXISTS {index} ON {on} ({_order(columns, dialect, first)}) WHERE {where}")
    return found
