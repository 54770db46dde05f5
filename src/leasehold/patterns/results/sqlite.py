"""A result store in a SQLite file of its own, for the processes of all users who may write it on one host. There is no
server, and nothing to create first."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from leasehold._sql.dialects import DIALECTS
from leasehold._sql.run import Work
from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.guards.fence import Fenced, Presented, check_resource
from leasehold.patterns.results import statements
from leasehold.patterns.results.result_store import Entry
from leasehold.patterns.results.sql import SQLResultStore
from leasehold.stores.sqlite import failures, file
from leasehold.stores.sqlite.database import gate
from leasehold.stores.sqlite.failures import TryAgain, unavailable
from leasehold.stores.sqlite.file import check_files, connect, is_empty, prepare, use_wal, why

if TYPE_CHECKING:
    from leasehold.observe.events import Observer
    from leasehold.patterns.results.result_store import ResultStore

# ---------------------------------------------------------------- the file
#
# The file of a SQLiteResultStore: a few connections, each used by one thread at a time, and none of them after a fork.
#
# A writer takes the write lock at once (BEGIN IMMEDIATE); a reader takes none, and sees the last commit. What is
# committed is on the disk (``synchronous = FULL``): a stored result must be there after the power has failed.


APPLICATION = 0x4C534846  # "LSHF"
FORMAT = 1
WAIT = 5.0  # seconds to wait for the lock of another process
FIRST_PAUSE = 50e-6  # seconds between two tries
LAST_PAUSE = 1e-3
MOST_IDLE = 8
QUIET = 5.0  # seconds to wait before a fork for other threads to finish
SUFFIX = "-results"  # of the file beside a store's


class OpenFile:
    """One connection, and the identity of the file before it was opened: a file that was replaced meanwhile is noticed
    when the connection is used."""

    __slots__ = ("connection", "file")

    def __init__(self, real: str) -> None:
        self.file = _identity(real)
        self.connection = connect(real)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.connection.close()


QueryResult = tuple[OpenFile, list[tuple[Any, ...]]]


class ResultFile:
    """The file is made on first use, in an existing folder. Making this object touches nothing."""

    def __init__(self, path: str, table: str) -> None:
        if not path or "\0" in path or path == ":memory:":
            raise InvalidRequest(
                "SQLiteResultStore takes the path of a file; for one in memory use MemoryResultStore()"
            )
        file.boot_id(
            "a SQLiteResultStore", "SQLResultStore in your database, RedisResultStore, or MemoryResultStore in tests"
        )
        self.path = os.path.abspath(path)  # a later chdir must not move it
        self._table = table
        self._reset()
        _files.add(self)

    def _reset(self) -> None:
        self._idle: list[OpenFile] = []
        self._busy: set[OpenFile] = set()
        self._turn = threading.Condition(threading.RLock())
        self._closed = False
        self._forking = False

    def query(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """The rows of one query, which is a transaction by itself and sees the last commit."""
        opened, rows = self._patiently(query, values)
        self._give_back(opened)
        return rows

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, which is committed at the end and rolled back by an error. No other writer runs meanwhile."""
        opened, _ = self._patiently("BEGIN IMMEDIATE")
        try:
            try:
                yield opened.connection
            except BaseException:
                _roll_back(opened.connection)
                raise
            opened.connection.execute("COMMIT")
        finally:
            self._give_back(opened)

    # ------------------------------------------------------------ connections

    def _patiently(self, query: str, values: tuple[str, ...] = ()) -> QueryResult:
        """Try often, for at most WAIT: SQLite's own way to wait sleeps for a tenth of a second at a time, and finds the
        lock taken again each time. This one can also be interrupted by a signal."""
        until, pause = time.monotonic() + WAIT, FIRST_PAUSE
        while True:
            try:
                return self._try(query, values)
            except TryAgain as reason:
                if time.monotonic() > until:
                    why = f"cannot be used for {WAIT:g} s now, because {reason}: nothing was written, try again later"
                    raise unavailable(self.path, why) from reason.__cause__
            time.sleep(pause)  # another process writes, and SQLite does not notify when it is done
            pause = min(2 * pause, LAST_PAUSE)

    def _try(self, query: str, values: tuple[str, ...]) -> QueryResult:
        """After the query, and under the lock that it may take, the file must still be the one at its path: two
        processes on two files would not see what the other has written."""
        opened = self._borrow()
        try:
            rows = opened.connection.execute(query, values).fetchall()
            if _identity(self.path) == opened.file:
                return opened, rows
        except BaseException as error:
            self._give_back(opened)
            if isinstance(error, sqlite3.Error) and failures.passing(error):
                raise TryAgain(failures.LOCKED) from error
            raise
        self._drop(opened)
        raise TryAgain(failures.REPLACED)

    def _borrow(self) -> OpenFile:
        with self._turn:
            self._turn.wait_for(lambda: not self._forking, QUIET)
            if self._closed:
                raise StoreUnavailable(f"the result store {self.path} is closed")
            opened = self._idle.pop() if self._idle else None
            if opened is not None:
                self._busy.add(opened)
                return opened
        with gate:  # no fork while it is opened
            opened = open_results(self.path, self._table)
            with self._turn:
                self._busy.add(opened)
            return opened

    def _give_back(self, opened: OpenFile) -> None:
        """A connection whose transaction could not be ended is closed."""
        _roll_back(opened.connection)
        if opened.connection.in_transaction:
            self._drop(opened)
            return
        with self._turn:
            self._busy.discard(opened)
            if len(self._idle) < MOST_IDLE and not self._closed:
                self._idle.append(opened)
            else:
                opened.close()
            self._turn.notify_all()

    def _drop(self, opened: OpenFile) -> None:
        with self._turn:
            self._busy.discard(opened)
            opened.close()
            self._turn.notify_all()

    def close(self) -> None:
        """For good. Calls that are under way come to their end."""
        with self._turn:
            self._closed = True
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        if not getattr(self, "_idle", None):
            return
        try:
            if gate.acquire(blocking=False):  # no fork meanwhile
                self._close_idle()
        finally:
            try:
                gate.release()  # the first thing here: an interrupt comes before it or after it
            except RuntimeError:  # another thread has it
                pass

    # ------------------------------------------------------------ fork

    def before_fork(self) -> None:
        """No connection may be open in a child: closing it there would drop what the parent has locked."""
        with self._turn:
            self._forking = True
            self._turn.wait_for(lambda: not self._busy, QUIET)
            self._close_idle()

    def after_fork(self) -> None:
        with self._turn:
            self._forking = False
            self._turn.notify_all()

    def forked(self) -> None:
        _inherited.extend(self._busy)
        self._reset()


_files: weakref.WeakSet[ResultFile] = weakref.WeakSet()
_inherited: list[OpenFile] = []  # in use by threads of the parent at the fork: never used, and never closed


def _before_fork() -> None:
    """The gate first: a thread that opens a file has it, and then takes the lock of that file."""
    gate.acquire()
    for one in list(_files):
        one.before_fork()


def _after_fork() -> None:
    for one in list(_files):
        one.after_fork()
    gate.release()


def _forked() -> None:
    """The child has a new gate: there is nothing to release."""
    for one in list(_files):
        one.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)


# ---------------------------------------------------------------- opening


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # SQLite has done so by itself, or the connection cannot be used again
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def open_results(path: str, table: str) -> OpenFile:
    """Open the file, with its table. Raises StoreUnavailable with what is wrong, or TryAgain when another process is in
    the way."""
    try:
        return _open(path, table)
    except LeaseholdError:
        raise
    except (OSError, sqlite3.Error) as error:
        if failures.foreign(error):
            raise
        raise why(path, error) from error


def _open(path: str, table: str) -> OpenFile:
    real = prepare(path)
    opened = OpenFile(real)
    try:
        _check(path, opened.connection, table)
        check_files(real)  # again: SQLite has made its log, or has found one that came after our check
    except BaseException:
        opened.close()
        raise
    return opened


def _check(path: str, connection: sqlite3.Connection, table: str) -> None:
    """It must be ours, of a format that we know. An empty database becomes ours."""
    if not _is_empty(path, connection):
        connection.execute("PRAGMA synchronous = FULL")
        return
    use_wal(path, connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    if _is_empty(path, connection):  # another process may have made it meanwhile
        for one in statements.create(DIALECTS["sqlite"], table):
            connection.execute(one.marked("?"))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _is_empty(path: str, connection: sqlite3.Connection) -> bool:
    return is_empty(path, connection, APPLICATION, FORMAT, "is no result store, but of another program")


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - at each read, and a Path would cost half as much again
    except FileNotFoundError:
        return (0, 0)
    return (found.st_ino, found.st_dev)


def meaning(path: str, error: BaseException) -> LeaseholdError:
    """An error of SQLite before the commit, as one of ours."""
    if isinstance(error, LeaseholdError):
        return error
    if isinstance(error, Exception) and not failures.foreign(error):
        return failures.refusal(path, error)
    return OutcomeUnknown(f"the result store {path} was interrupted ({type(error).__name__}): it may be repeated")


# ---------------------------------------------------------------- the result store


TABLE = "leasehold_results"
READ = statements.read(DIALECTS["sqlite"], TABLE, "").marked("?")


class SQLiteResultStore(SQLResultStore):
    """In a file at ``path``, which is made on first use. What was written is on the disk.

    For asyncio, ``ThreadedResultStore(SQLiteResultStore(path))``: the event loop must not wait for a disk.

    >>> import leasehold
    >>> results = SQLiteResultStore("pages.results")
    >>> with leasehold.connect("memory://") as hold, hold.lock("page", 42) as lease:
    ...     results.write(lease, "<h1>42</h1>", keep="1m")
    >>> results.read("page:42").text
    '<h1>42</h1>'
    >>> results.close()
    """

    __slots__ = ("_file",)

    def __init__(
        self, path: str | os.PathLike[str], *, downstream: str = "results", observers: Iterable[Observer] = ()
    ) -> None:
        self._file = ResultFile(os.fspath(path), TABLE)
        super().__init__(self._file.writing, TABLE, downstream=downstream, observers=observers)

    def read(self, resource: str) -> Entry | None:
        name = check_resource(resource)
        try:
            rows = self._file.query(READ, name)
        except LeaseholdError:
            raise
        except Exception as error:
            raise self._translated(error) from error
        return self._entry(name, rows[0]) if rows else None

    def _run_fenced(self, tx: Any, work: Work[Any], lease: Fenced, attempt: Presented) -> Any:
        if tx is not None:
            raise InvalidRequest(
                "a SQLiteResultStore has a file of its own and no part in your transaction: leave tx= out, or use a "
                "SQLResultStore in your database"
            )
        return super()._run_fenced(tx, work, lease, attempt)

    def create(self) -> None:
        """Make the file now, to find out before the first lease where that is impossible."""
        self._file.query("SELECT 1 FROM sqlite_schema LIMIT 1")

    def close(self) -> None:
        self._file.close()

    def _translated(self, error: BaseException) -> LeaseholdError:
        return meaning(self._file.path, error)

    def __repr__(self) -> str:
        return f"<SQLiteResultStore at {self._file.path}>"


def sqlite_results(path: str, asynchronous: bool) -> ResultStore:
    """The result store beside a SQLite store, in the file ``<path>-results``. It has connections of its own: every
    claim locks the store's file, and would wait there for the write of a text of up to 16 MiB."""
    results = SQLiteResultStore(path + SUFFIX)
    if not asynchronous:
        return results
    from leasehold.patterns.results.threaded import ThreadedResultStore  # loads asyncio

    return ThreadedResultStore(results)
