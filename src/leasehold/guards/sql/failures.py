"""What a database's errors become. The driver's own error is always the ``__cause__``.

    InvalidRequest      the caller's mistake: a closed connection, one of another thread, a failed transaction, a fence
                        column that is too small
    Conflict            somebody else was faster: a deadlock, a serialization failure, a lock that took too long
    StoreUnavailable    the database said no: a missing table, a lost connection, no permission
    Unsupported         a server that is too old

Nothing was accepted in any of them, because nothing was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported
from leasehold.guards.conflict import Conflict
from leasehold.guards.sql.drivers import unfit, unusable

# By SQLSTATE, by MariaDB's number, by the name of SQLite's code or its beginning; by words, where no code says enough.
CONFLICT = (
    "40001", "40P01", "55P03", "1020", "1205", "1213", "SQLITE_BUSY", "SQLITE_LOCKED", "database is locked",
    "cached plan must not change", "cached statement plan is invalid",  # a migration: once for each connection
)  # fmt: skip
NO_COLUMN = ("42703", "1054", "42S22", "no such column", "has no column")
NO_KEY = ("42P10", "ON CONFLICT clause")  # no unique index, as ON CONFLICT needs it
NO_TABLE = ("42P01", "1146", "no such table", *NO_COLUMN, *NO_KEY)  # it is missing, or is not ours
BROKEN = ("230", "235", "23P", "1048", "1062", "1364", "1451", "1452", "4025", "SQLITE_CONSTRAINT", "IntegrityError")
CHARACTERS = ("1267", "1300", "22021", "22P05", "Incorrect string value")
UNFIT = (
    "22000", "22001", "22003", "22007", "22008", "22P02", "22P03", "42804", "42846", "42883",
    "1264", "1265", "1292", "1366", "1406", "invalid input for query argument",
    "cannot adapt", "can't adapt", "binding parameter", "can not be used with",
)  # fmt: skip
DENIED = ("42501", "1044", "1142", "1143")
READ_ONLY = ("25006", "1290", "1792", "1836", "SQLITE_READONLY")
FAILED = ("25P02",)
CLOSED = ("connection is closed", "no active connection", "or not connected")  # psycopg, aiosqlite, mariadb: no code
GONE = ("08", "57P")
TOO_OLD = ("1193",)
MISUSED = {"ProgrammingError", "InterfaceError"}  # classes

Fail = Callable[[BaseException], LeaseholdError]  # what an error of the driver means
CREATE = "call guard.create(conn) once, in a migration or when the program starts"


def translated(error: BaseException, table: str, *, ours: bool = True, remedy: str = CREATE) -> LeaseholdError:
    """One of ours, for what a driver, SQLAlchemy or Django has raised. ``ours``: the table is the guard's own;
    ``remedy`` says how that is made."""
    if isinstance(error, LeaseholdError):
        return error
    codes = _codes(error)
    if isinstance(error, UnicodeError) or _is(codes, CHARACTERS):
        return InvalidRequest(
            "a name or value cannot be written in the character set of this connection: use UTF-8, on MariaDB utf8mb4"
        )
    if _is(codes, FAILED):
        return unusable("its transaction has failed: roll back")
    if _is(codes, TOO_OLD):
        return Unsupported("this guard needs MariaDB 10.6.18, 10.11.8 or newer: an older one reads old snapshots")
    if _is(codes, CONFLICT):
        return Conflict(
            f"somebody else was faster ({codes[0][:80]}): nothing was accepted. Roll back, and run the whole "
            "transaction again, from its first read"
        )
    if _is(codes, UNFIT):
        return unfit(f"{table}: {codes[0][:80]}")
    if not ours and _is(codes, NO_COLUMN):
        said = _first_line(_chain(error)[-1])[:200]
        return InvalidRequest(f"the table {table} lacks a column that was named ({said}): name the columns that it has")
    if not ours and _is(codes, BROKEN):
        return InvalidRequest(
            f"the values break a rule of the table {table} ({codes[0][:80]}): roll back. The cause says which rule"
        )
    if of_the_connection(error):
        return unusable(f"{type(error).__name__}: {_first_line(error)}"[:120])
    return StoreUnavailable(_refused(codes, table, ours, remedy))


@contextmanager
def translating(means: Fail) -> Iterator[None]:
    """Whatever goes wrong leaves as one of ours, with the driver's error as its cause."""
    try:
        yield
    except LeaseholdError:
        raise
    except Exception as error:
        raise means(error) from error


def _refused(codes: list[str], table: str, ours: bool, remedy: str) -> str:
    code = codes[0][:80]
    if _is(codes, NO_TABLE) and not ours:
        return f"there is no table {table} ({code}): make it, or name the one that you mean"
    if _is(codes, NO_TABLE):
        return f"the table {table} is missing, or was not made for this guard ({code}): {remedy}"
    if _is(codes, DENIED):
        return (
            f"this user of the database may not use the table {table} ({code}): nothing was accepted. Grant SELECT, "
            "INSERT and UPDATE on it" + ("; guard.create needs the right to make tables" if ours else "")
        )
    if _is(codes, READ_ONLY):
        return (
            f"the transaction or the database is read-only ({code}): nothing was accepted. This writes or locks, "
            "so it needs a transaction that may write"
        )
    return f"the database refused a statement on the table {table} ({code}): nothing was accepted. Roll back"


def lost_answer(error: BaseException) -> bool:
    """Is the connection gone, in place of an answer? A code is an answer, except those that say just that."""
    unavailable = type(translated(error, "")) is StoreUnavailable
    return unavailable and (not _numbers(error) or _is(_numbers(error), GONE))


def of_the_connection(error: BaseException) -> bool:
    """It is closed, or of another thread, or the pool has none: nothing is wrong with what was asked."""
    return _misused(error) or _is(_codes(error), CLOSED)


def says(error: BaseException, known: tuple[str, ...]) -> bool:
    """Is it one of these codes?"""
    return _is(_codes(error), known)


def _is(codes: list[str], known: tuple[str, ...]) -> bool:
    """Words stand anywhere."""
    return any(one in code if " " in one else code.startswith(one) for code in codes for one in known)


def _misused(error: BaseException) -> bool:
    """Closed, of another thread, without a database: the driver has no code for it, or SQLAlchemy found out itself."""
    names = {cls.__name__ for one in _chain(error) for cls in type(one).__mro__}
    if "SQLAlchemyError" in names:
        return "DBAPIError" not in names
    return bool(names & MISUSED) and not _numbers(error)


def _codes(error: BaseException) -> list[str]:
    """The most telling first: a code, the name of one, the words."""
    return [*_numbers(error), *(_first_line(one) for one in _chain(error) if str(one)), type(error).__name__]


def _first_line(error: BaseException) -> str:
    """In the others SQLAlchemy shows the values."""
    return str(error).partition("\n")[0]


def _numbers(error: BaseException) -> list[str]:
    found = []
    for one in _chain(error):
        first = one.args[0] if one.args else None
        for code in (
            first if isinstance(first, int) else first.get("C") if isinstance(first, dict) else None,  # C: pg8000
            getattr(one, "sqlstate", None), getattr(one, "pgcode", None), getattr(one, "errno", None),
            getattr(one, "sqlite_errorname", None),
        ):  # fmt: skip
            found += [str(code)] if code else []
    return found


def _chain(error: BaseException) -> list[BaseException]:
    """SQLAlchemy keeps the driver's error in ``orig``, Django and others as the cause."""
    chain: list[BaseException] = []
    following: object = error
    while isinstance(following, BaseException) and following not in chain and len(chain) < 5:
        chain.append(following)
        following = getattr(following, "orig", None) or following.__cause__
    return chain
