"""Errors of the file, in words that say what is wrong and what to do. SQLite's own error is the cause."""

from __future__ import annotations

import errno
import os

from leasehold.errors import StoreUnavailable
from leasehold.stores.sqlite.stdlib import sqlite3

# SQLITE_PROTOCOL: two processes raced for the WAL's first lock. All of these mean that nothing has happened.
PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_READONLY_DBMOVED")

DAMAGED = "is damaged. Move it away together with its -wal and -shm files; fences go on above the old ones"
DAMAGED_ROW = (
    "has a damaged row for this resource, so that its holder is unknown. `leasehold inspect` shows it; delete the row "
    "from the table resources when no one uses it"
)
FOREIGN = "is not a database. Choose another path: nothing was written to it"
FULL = "lies on a full disk. Free some space: what was held stays held until its time is over"
READ_ONLY = "or its folder is read-only. It needs both: SQLite keeps -wal and -shm files beside the database"
READ_ONLY_SYSTEM = "lies on a read-only file system. Choose a path that can be written"
NO_PERMISSION = "may not be opened by this user. Grant access to it and to its folder, or choose another path"

TEXTS = {
    "SQLITE_AUTH": NO_PERMISSION,
    "SQLITE_CANTOPEN": "cannot be opened. Look at the rights of the file, its -wal and -shm files and its folder",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_FULL": FULL,
    "SQLITE_IOERR": "cannot be read or written: the disk or its file system reports an error",
    "SQLITE_NOMEM": "needs memory that this process could not get",
    "SQLITE_NOTADB": FOREIGN,
    "SQLITE_PERM": NO_PERMISSION,
    "SQLITE_READONLY": READ_ONLY,
    "SQLITE_TOOBIG": "would need a row that is larger than SQLite allows: too many wait for one resource",
}
SYSTEM_TEXTS = {
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.EROFS: READ_ONLY_SYSTEM,
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.ENAMETOOLONG: "has a name that is too long for its file system. Choose a shorter path",
    errno.ENOENT: "has no folder. Make the folder first, or choose another path",
    errno.ENOTDIR: "has no folder: a part of the path is a file. Choose another path",
    errno.EMFILE: "needs a file descriptor, and this process has none left",
    errno.ENFILE: "needs a file descriptor, and this machine has none left",
    errno.ELOOP: "is a symbolic link that leads to itself. Choose another path",
}
# These do not say what is wrong: the file and its folder are examined.
VAGUE = ("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_READONLY")


LOCKED = "another process keeps the database locked"
REPLACED = "the file is being replaced again and again"


class TryAgain(Exception):
    """Nothing happened, and another try may succeed. Never leaves the store."""


class DamagedRow(StoreUnavailable):
    """The row of one resource cannot be read. To callers it is a StoreUnavailable like any other."""


def damaged_row(path: str) -> DamagedRow:
    return DamagedRow(f"the database {path} {DAMAGED_ROW}")


def passing(error: BaseException) -> bool:
    return name_of(error).startswith(PASSING)


# The record that commits is the last to be written. These mean that it was not.
UNDONE = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_PERM")


def undone(error: BaseException) -> bool:
    """True when a statement that failed has certainly changed nothing, also if it was to commit."""
    return name_of(error).startswith(UNDONE)


OURS = (sqlite3.Error, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, MemoryError)


def foreign(error: BaseException) -> bool:
    """True for an error that a signal handler raised in the middle of our call, such as a TimeoutError: it is for the
    caller, and no failure of the store. Errors of the system have a number."""
    return error.errno is None if isinstance(error, OSError) else not isinstance(error, OURS)


def refusal(path: str, error: Exception) -> StoreUnavailable:
    """The error of ours for one that came before COMMIT, or that is known to have undone it."""
    return unavailable(path, _what(path, error))


def unavailable(path: str, what: str, resource: str | None = None) -> StoreUnavailable:
    return StoreUnavailable(f"the database {path} {what}", resource=resource)


def other_machine(path: str) -> StoreUnavailable:
    return unavailable(
        path,
        "was last used by another machine: it was moved here, or several machines share it, and its times mean "
        "nothing here. Give each machine its own file; one that was moved can be deleted with its -wal and -shm "
        "files",
    )


def name_of(error: BaseException) -> str:
    """SQLite's extended name, such as SQLITE_IOERR_WRITE; errors that Python made itself have none."""
    return getattr(error, "sqlite_errorname", "") if isinstance(error, sqlite3.Error) else ""


def _what(path: str, error: Exception) -> str:
    name = name_of(error)
    vague = name.startswith(VAGUE) or isinstance(error, PermissionError)
    if vague and (found := examine(path)):
        return found
    for prefix, text in TEXTS.items():
        if name.startswith(prefix):
            return f"{text} ({name}: {error})"
    if isinstance(error, OSError) and error.errno in SYSTEM_TEXTS:
        return SYSTEM_TEXTS[error.errno]
    return f"failed: {type(error).__name__}: {error}"


def examine(path: str) -> str:
    """The usual reason why a file cannot be opened or written, if it is found; else an empty text."""
    try:
        return _examine(path, os.path.dirname(path))
    except OSError as error:
        return SYSTEM_TEXTS.get(error.errno or 0, "")


def _examine(path: str, folder: str) -> str:
    if not os.path.isdir(folder):
        return SYSTEM_TEXTS[errno.ENOENT]
    if os.path.isdir(path):
        return "is a folder. Give the path of a file"
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        return READ_ONLY_SYSTEM
    if not space.f_bavail or (space.f_files and not space.f_favail):
        return FULL
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        return READ_ONLY if os.access(path, os.R_OK) else NO_PERMISSION
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return READ_ONLY if os.access(folder, os.X_OK) else NO_PERMISSION
    return ""
