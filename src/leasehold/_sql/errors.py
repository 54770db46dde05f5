"""What a database's errors become: one place for every driver. The driver's own error is always the ``__cause__``.

    InvalidRequest      the caller's mistake: a closed connection, one of another thread, a failed transaction, a fence
                        column that is too small
    Conflict            another transaction was faster: a deadlock, a serialization failure, a lock that took too long
    StoreUnavailable    the database refused: a missing table, a lost connection, no permission
    Unsupported         a server that is too old

Nothing was accepted in any of them, because nothing was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported

# By SQLSTATE, by MariaDB's number, by the name of SQLite's code or its beginning; by words, where no code is specific.
CONFLICT = (
    "40001", "40P01", "55P03", "1020", "1205", "1213", "SQLITE_BUSY", "SQLITE_LOCKED", "database is locked",
    "cached plan must not change", "cached statement plan is invalid",  # a migration: once for each connection
)  # fmt: skip
NO_COLUMN = ("42703", "1054", "42S22", "no such column", "has no column")
NO_KEY = ("42P10", "ON CONFLICT clause")  # no unique index, as ON CONFLICT needs it
NO_TABLE = ("42P01", "1146", "no such table", *NO_COLUMN, *NO_KEY)  # missing, or made for something else
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
SPOILT = ("1064",)  # the statement is ours: MariaDB's connector writes a value of an unknown type into it as it is
MISUSED = {"ProgrammingError", "InterfaceError"}  # classes

Translation = Callable[[BaseException], LeaseholdError]  # from an error of the driver to one of ours


class NoSuchRow(LeaseholdError, LookupError):
    """``guard.update``, ``transition`` or ``row_lock`` found no row with that key. It does not mean a stale owner:
    nothing is known about it."""


CREATE = "call guard.create(conn) once, in a migration or when the program starts"


def translated(error: BaseException, table: str, *, ours: bool = True, remedy: str = CREATE) -> LeaseholdError:
    """The error of ours for what a driver, SQLAlchemy or Django has raised. ``ours``: the table is one that Leasehold
    made; ``remedy`` says how."""
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
            f"another transaction was faster ({codes[0][:80]}): nothing was accepted. Roll back, and run the whole "
            "transaction again, from its first read"
        )
    if _is(codes, UNFIT):
        return unfit(f"{table}: {codes[0][:80]}")
    if not ours and _is(codes, NO_COLUMN):
        message = _first_line(_chain(error)[-1])[:200]
        return InvalidRequest(
            f"the table {table} lacks a column that was named ({message}): name the columns that it has"
        )
    if not ours and _is(codes, BROKEN):
        return InvalidRequest(
            f"the values break a rule of the table {table} ({codes[0][:80]}): roll back. The cause says which rule"
        )
    if is_connection_error(error):
        return unusable(f"{type(error).__name__}: {_first_line(error)}"[:120])
    return StoreUnavailable(_refused(codes, table, ours, remedy))


def table_errors(table: str) -> Translation:
    """The translation for statements on a table of the user's."""

    def translate(error: BaseException) -> LeaseholdError:
        if not isinstance(error, LeaseholdError) and has_code(error, (*UNFIT, *SPOILT)):
            return InvalidRequest(
                f"a value does not fit its column in {table} ({type(error).__name__}): roll back, and give each column "
                "a value of its type. The cause says which one; a SQLAlchemy Table in place of the name knows its types"
            )
        return translated(error, table, ours=False)

    return translate


@contextmanager
def translating(translate: Translation) -> Iterator[None]:
    """Any error of the body leaves as one of ours, with the driver's error as its cause."""
    try:
        yield
    except LeaseholdError:
        raise
    except Exception as error:
        raise translate(error) from error


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


def reply_lost(error: BaseException) -> bool:
    """Did the connection break before the reply came? An error with a code is a reply, except for the codes that
    report just that."""
    unavailable = type(translated(error, "")) is StoreUnavailable
    return unavailable and (not _numbers(error) or _is(_numbers(error), GONE))


def is_connection_error(error: BaseException) -> bool:
    """Is the connection closed, or of another thread, or has the pool none left? The statement itself is right."""
    return _misused(error) or _is(_codes(error), CLOSED)


def has_code(error: BaseException, known: tuple[str, ...]) -> bool:
    """Is it one of these codes?"""
    return _is(_codes(error), known)


def _is(codes: list[str], known: tuple[str, ...]) -> bool:
    """A code is compared from its beginning; words are searched for in the whole message."""
    return any(one in code if " " in one else code.startswith(one) for code in codes for one in known)


def _misused(error: BaseException) -> bool:
    """Closed, of another thread, without a database: such errors have no code, or SQLAlchemy itself raises them."""
    names = {cls.__name__ for one in _chain(error) for cls in type(one).__mro__}
    if "SQLAlchemyError" in names:
        return "DBAPIError" not in names
    return bool(names & MISUSED) and not _numbers(error)


def _codes(error: BaseException) -> list[str]:
    """The most specific first: a code, the name of one, the message."""
    return [*_numbers(error), *(_first_line(one) for one in _chain(error) if str(one)), type(error).__name__]


def _first_line(error: BaseException) -> str:
    """The other lines are left out: SQLAlchemy shows the values there."""
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


# ---------------------------------------------------------------- connections that cannot be used


def require_mariadb(is_mariadb: bool) -> None:
    """Raise Unsupported on MySQL: it has neither RETURNING nor a way to refuse an old snapshot."""
    if not is_mariadb:
        raise Unsupported(
            "this guard knows MariaDB (10.6.18, 10.11.8 or newer), not MySQL, which cannot refuse a check in a "
            "transaction whose snapshot is too old: compare a version or fence column in your own UPDATE"
        )


def no_transaction(remedy: str) -> InvalidRequest:
    """The connection would commit each statement."""
    return InvalidRequest(
        "this connection commits each statement on its own, so a newer owner could come between the check and "
        f"your write: do both in one transaction ({remedy})"
    )


def unusable(why: str) -> InvalidRequest:
    """The connection is closed, broken, or in a failed transaction."""
    return InvalidRequest(
        f"Leasehold cannot use this connection ({why}): pass one that is open, of this thread, and whose transaction "
        "has not failed"
    )


def unfit(why: str) -> InvalidRequest:
    """A value or a fence does not fit into its column."""
    return InvalidRequest(
        f"a value does not fit into its column ({why}): roll back. A fence needs a BIGINT: it counts microseconds "
        "since 1970; an owner column needs VARCHAR(32); key= and values= must be of the types of their columns"
    )
