"""A result store in a SQLite file of its own, for all who may write it on one host. No server, and nothing to
create first."""

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
from leasehold.stores.sqlite.file import check_files, connect, prepare, why

if TYPE_CHECKING:
    from leasehold.observe.events import Observer

# ---------------------------------------------------------------- sqlitefile
#
# The file of a SQLiteResultStore: a few connections, each used by one thread at a time, and none of them after a fork.
#
# Whoever writes takes the write lock at once (BEGIN IMMEDIATE); whoever reads takes none, and sees the last commit.
# What is committed is on the disk (``synchronous = FULL``): a stored result must be there after the power has failed.


APPLICATION = 0x4C534846  # "LSHF"
FORMAT = 1
WAIT = 5.0  # seconds until somebody else must have let go of the file
FIRST_PAUSE = 50e-6  # seconds between two tries
LAST_PAUSE = 1e-3
MOST_IDLE = 8
QUIET = 5.0  # seconds to wait before a fork for other threads to finish
SUFFIX = "-result store"  # of the one beside a store


class OpenFile:
    """One connection, and the file that it is connected to: the one that was there before. Who replaces it while it is
    opened is found out when it is used."""

    __slots__ = ("connection", "file")

    def __init__(self, real: str) -> None:
        self.file = _identity(real)
        self.connection = connect(real)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.connection.close()


Answered = tuple[OpenFile, list[tuple[Any, ...]]]


class ResultFile:
    """Made on first use, in the folder that is there. Making one of these touches nothing."""

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

    def look(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """What one query finds: it is a transaction by itself, and sees the last commit."""
        lent, rows = self._patiently(query, values)
        self._take_back(lent)
        return rows

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, which a commit ends, and an error too. Nobody else writes meanwhile."""
        lent, _ = self._patiently("BEGIN IMMEDIATE")
        try:
            try:
                yield lent.connection
            except BaseException:
                _roll_back(lent.connection)
                raise
            lent.connection.execute("COMMIT")
        finally:
            self._take_back(lent)

    # ------------------------------------------------------------ connections

    def _patiently(self, query: str, values: tuple[str, ...] = ()) -> Answered:
        """Asked often, for as long as it may take: SQLite's own way to wait sleeps for a tenth of a second at a time,
        and finds the lock taken again each time. A signal can interrupt it, too."""
        until, pause = time.monotonic() + WAIT, FIRST_PAUSE
        while True:
            try:
                return self._try(query, values)
            except TryAgain as reason:
                if time.monotonic() > until:
                    why = f"cannot be used for {WAIT:g} s now, because {reason}: nothing was written, try again later"
                    raise unavailable(self.path, why) from reason.__cause__
            time.sleep(pause)  # another process writes: SQLite tells nobody when it is done
            pause = min(2 * pause, LAST_PAUSE)

    def _try(self, query: str, values: tuple[str, ...]) -> Answered:
        """After it, and under the lock that it may take, it is made sure that the file is still the one at its path:
        two processes on two files would not see what the other has written."""
        lent = self._lend()
        try:
            rows = lent.connection.execute(query, values).fetchall()
            if _identity(self.path) == lent.file:
                return lent, rows
        except BaseException as error:
            self._take_back(lent)
            if isinstance(error, sqlite3.Error) and failures.passing(error):
                raise TryAgain(failures.LOCKED) from error
            raise
        self._drop(lent)
        raise TryAgain(failures.REPLACED)

    def _lend(self) -> OpenFile:
        with self._turn:
            self._turn.wait_for(lambda: not self._forking, QUIET)
            if self._closed:
                raise StoreUnavailable(f"the result store {self.path} is closed")
            lent = self._idle.pop() if self._idle else None
            if lent is not None:
                self._busy.add(lent)
                return lent
        with gate:  # nobody forks in the middle of an opening
            opened = open_results(self.path, self._table)
            with self._turn:
                self._busy.add(opened)
            return opened

    def _take_back(self, lent: OpenFile) -> None:
        """One whose transaction could not be ended is of no further use."""
        _roll_back(lent.connection)
        if lent.connection.in_transaction:
            self._drop(lent)
            return
        with self._turn:
            self._busy.discard(lent)
            if len(self._idle) < MOST_IDLE and not self._closed:
                self._idle.append(lent)
            else:
                lent.close()
            self._turn.notify_all()

    def _drop(self, lent: OpenFile) -> None:
        with self._turn:
            self._busy.discard(lent)
            lent.close()
            self._turn.notify_all()

    def close(self) -> None:
        """For good. Whoever is in the middle of something ends it first."""
        with self._turn:
            self._closed = True
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        if getattr(self, "_idle", None) and gate.acquire(blocking=False):  # nobody forks meanwhile
            try:
                self._close_idle()
            finally:
                gate.release()

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
_inherited: list[OpenFile] = []  # of threads that were in the middle of something: never used, and never closed


def _before_fork() -> None:
    """The gate first: whoever opens has it, and then asks for the turn of its file."""
    gate.acquire()
    for one in list(_files):
        one.before_fork()


def _after_fork() -> None:
    for one in list(_files):
        one.after_fork()
    gate.release()


def _forked() -> None:
    """The gate of a child is a new one."""
    for one in list(_files):
        one.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)


# ---------------------------------------------------------------- opening


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # it has done so by itself, or cannot be used again
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def open_results(path: str, table: str) -> OpenFile:
    """Ours, with its table. Raises StoreUnavailable that says what is wrong, or Again: somebody is in the way."""
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
        check_files(real)  # again: SQLite has made its log, or has found one that came after our look
    except BaseException:
        opened.close()
        raise
    return opened


def _check(path: str, connection: sqlite3.Connection, table: str) -> None:
    """Ours, of a format that we know. An empty database becomes ours."""
    connection.execute("BEGIN")  # one look: another process may be making it ours at this moment
    ours = _is_ours(path, connection)
    connection.execute("COMMIT")
    if ours:
        connection.execute("PRAGMA synchronous = FULL")
        return
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise unavailable(path, "lies on a file system without shared memory. Choose a local path")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ours(path, connection):  # another process may have made it meanwhile
        for one in statements.create(DIALECTS["sqlite"], table):
            connection.execute(one.marked("?"))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _is_ours(path: str, connection: sqlite3.Connection) -> bool:
    """False for an empty one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not application and not version and not tables:
        return False
    if application != APPLICATION:
        raise unavailable(
            path, "is no result store, but of another program. Choose another path: nothing was written to it"
        )
    if version > FORMAT:
        raise unavailable(
            path,
            f"has format {version}, which a newer Leasehold wrote; this one knows {FORMAT}. Upgrade this process, or "
            "choose another path",
        )
    return True


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - at each reading, and a Path costs half as much as that
    except FileNotFoundError:
        return (0, 0)
    return (found.st_ino, found.st_dev)


def meaning(path: str, error: BaseException) -> LeaseholdError:
    """What an error of SQLite means, before the commit."""
    if isinstance(error, LeaseholdError):
        return error
    if isinstance(error, Exception) and not failures.foreign(error):
        return failures.refusal(path, error)
    return OutcomeUnknown(f"the result store {path} was interrupted ({type(error).__name__}): it may be repeated")


# ---------------------------------------------------------------- sqlite


TABLE = "leasehold_results"
LOOK = statements.read(DIALECTS["sqlite"], TABLE, "").marked("?")


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
            rows = self._file.look(LOOK, name)
        except LeaseholdError:
            raise
        except Exception as error:
            raise self._translated(error) from error
        return self._entry(name, rows[0]) if rows else None

    def _run_fenced(self, tx: Any, work: Work[Any], lease: Fenced, attempt: Presented) -> Any:
        if tx is not None:
            raise InvalidRequest(
                "a SQLiteResultStore has a file of its own and no part in your transaction: leave tx= out, or use a "
                "SQLResultStore "
                "in your database"
            )
        return super()._run_fenced(tx, work, lease, attempt)

    def create(self) -> None:
        """Make the file now: where it cannot be, you know it before the first lease does."""
        self._file.look("SELECT 1 FROM sqlite_schema LIMIT 1")

    def close(self) -> None:
        self._file.close()

    def _translated(self, error: BaseException) -> LeaseholdError:
        return meaning(self._file.path, error)

    def __repr__(self) -> str:
        return f"<SQLiteResultStore at {self._file.path}>"
