"""What a database's errors become. The driver's own error is always the ``__cause__``.

    InvalidRequest      the caller's mistake: a closed connection, one of another thread, a failed transaction, a fence
                        column that is too small
    Conflict            somebody else was faster: a deadlock, a serialization failure, a lock that took too long
    StoreUnavailable    the database said no: a missing table, a lost connection, no permission
    Unsupported         a server that is too old

Nothing was accepted in any of them, because nothing was committed.
"""

from __future__ import annotations

from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported
from leasehold.guards.conflict import Conflict
from leasehold.guards.sql.drivers import unusable

# By SQLSTATE, by MariaDB's number, by the name of SQLite's code.
CONFLICT = (
    "40001", "40P01", "55P03", "1020", "1205", "1213", "SQLITE_BUSY", "SQLITE_LOCKED", "database is locked",
)  # fmt: skip
# A table that is missing or is not ours: also a column, or the key that ON CONFLICT needs.
NO_TABLE = ("42P01", "42703", "42P10", "1146", "1054", "no such table", "no such column", "table ", "ON CONFLICT")
TOO_SMALL = ("22003", "42883", "42804", "1264", "1265", "1366", "out of int32 range", "out of int16 range")
FAILED = ("25P02", "1568")
TOO_OLD = ("1193",)
MISUSED = {"ProgrammingError", "InterfaceError"}


def translated(error: BaseException, table: str) -> LeaseholdError:
    """One of ours, for what a driver, SQLAlchemy or Django has raised."""
    if isinstance(error, LeaseholdError):
        return error
    if isinstance(error, UnicodeError):
        return InvalidRequest("a name or value cannot be written in the character set of this connection: use utf8mb4")
    codes = _codes(error)
    if _is(codes, FAILED):
        return unusable("its transaction has failed")
    if _is(codes, TOO_OLD):
        return Unsupported("this guard needs MariaDB 10.6.18, 10.11.8 or newer: an older one reads old snapshots")
    if _is(codes, CONFLICT):
        return Conflict(
            f"somebody else was faster ({codes[0]}): nothing was accepted. Roll back, and run the whole transaction "
            "again, from its first read"
        )
    if _is(codes, TOO_SMALL):
        return InvalidRequest(
            f"a column of {table} cannot hold what was written ({codes[0]}). A fence needs a BIGINT: it counts "
            "microseconds since 1970; an owner column needs VARCHAR(32)"
        )
    if _is(codes, NO_TABLE):
        return StoreUnavailable(
            f"the table {table} is missing, or was not made for this guard ({codes[0][:80]}): call guard.create(conn) "
            "once, in a migration or when the program starts; for guard.update name the columns that it has"
        )
    if _misused(error):
        return unusable(type(error).__name__)
    return StoreUnavailable(
        f"the database did not let the guard use the table {table} ({codes[0][:80]}): nothing was accepted. Roll back"
    )


def _is(codes: list[str], known: tuple[str, ...]) -> bool:
    return any(code.startswith(one) or (" " in one and one in code) for code in codes for one in known)


def _misused(error: BaseException) -> bool:
    """Closed, of another thread, without a database: the driver has no code for it, or SQLAlchemy found out itself."""
    names = {cls.__name__ for one in _chain(error) for cls in type(one).__mro__}
    if "SQLAlchemyError" in names:
        return "DBAPIError" not in names
    return bool(names & MISUSED) and not _numbers(error)


def _codes(error: BaseException) -> list[str]:
    """The most telling first: a code, the name of one, the text."""
    return [*_numbers(error), *(str(one) for one in _chain(error) if str(one)), type(error).__name__]


def _numbers(error: BaseException) -> list[str]:
    found = []
    for one in _chain(error):
        number = one.args[0] if one.args and isinstance(one.args[0], int) else None
        for code in (
            getattr(one, "sqlstate", None), getattr(one, "pgcode", None), getattr(one, "errno", None), number,
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
