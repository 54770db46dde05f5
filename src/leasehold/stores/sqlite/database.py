"""The open database: one transaction at a time, reading and writing rows, sweeping old ones. Its store holds a lock
around every call."""

from __future__ import annotations

import os
import threading

from leasehold._core import ledger, plain
from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.names import matches
from leasehold._core.ops import Page, Reply, Scan, StoreOp
from leasehold._core.policy import PAGE
from leasehold._core.types import Instant, State
from leasehold.stores.sqlite import failures
from leasehold.stores.sqlite.failures import TryAgain
from leasehold.stores.sqlite.stdlib import sqlite3, suppress
from leasehold.stores.state_text import UNREADABLE, decode, encode

if TYPE_CHECKING:
    from leasehold._core.ports import Clock

# ---------------------------------------------------------------- database


READ = "SELECT boot, state FROM resources WHERE name = ?"
CHANGE_KNOWN = "UPDATE resources SET state = ? WHERE name = ? AND state = ? AND boot = ?"
CHANGE = "UPDATE resources SET boot = ?, state = ? WHERE name = ?"
ADD = "INSERT INTO resources (boot, state, name) VALUES (?, ?, ?)"
REMOVE = "DELETE FROM resources WHERE name = ?"
# As bytes: a row that is no UTF-8 would end the listing of all.
CHUNK = (
    "SELECT CAST(name AS BLOB), CAST(boot AS BLOB), CAST(state AS BLOB) FROM resources"
    " WHERE name > CAST(? AS TEXT) AND typeof(name) = 'text' ORDER BY name LIMIT ?"
)
NO_NAMES = "SELECT CAST(name AS BLOB) FROM resources WHERE typeof(name) != 'text' LIMIT ?"  # they come after all others
NO_TEXT = "Could not decode to UTF-8"  # an error of Python's: SQLite does not check
SWEEP_EVERY = 256
MOST_KNOWN = 256


# No fork happens while a database is opened, or closed outside a store's lock: SQLite's own mutexes would stay locked
# in the child for ever. A thread that has a store's lock must not wait for this one: a fork has it, and waits for that
# lock.
gate = threading.RLock()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(
        before=gate.acquire,
        after_in_parent=gate.release,
        after_in_child=gate._at_fork_reinit,  # type: ignore[attr-defined]  # as threading does with its own
    )


class Database:
    """A connection, the file that it is connected to, and the kernel that its times belong to."""

    __slots__ = (
        "_boot",
        "_connection",
        "_device",
        "_execute",
        "_fetch",
        "_inode",
        "_known",
        "_pid",
        "_turns",
        "path",
    )

    def __init__(self, path: str, connection: sqlite3.Connection, boot: str, opened: os.stat_result) -> None:
        self.path = path
        self._connection = connection
        self._boot = boot
        self._pid = os.getpid()
        self._inode, self._device = opened.st_ino, opened.st_dev
        cursor = connection.cursor()
        self._execute = cursor.execute
        self._fetch = cursor.fetchone
        self._known: dict[str, tuple[str, State]] = {}  # read or written lately, and need not be parsed again
        self._turns = os.urandom(1)[0]  # so that many short-lived processes sweep as often as a long-lived one

    # ------------------------------------------------------------ transactions

    def begin(self) -> None:
        """Take the write lock, then make sure that the file is still the one at its path: two processes on two files
        would not exclude each other. This is checked under the lock, for which the maker of a new file waits."""
        self._execute("BEGIN IMMEDIATE")
        if self.moved():
            raise TryAgain(failures.REPLACED)

    def moved(self) -> bool:
        try:
            found = os.stat(self.path)
        except OSError as error:
            if failures.foreign(error):
                raise
            return True
        return found.st_ino != self._inode or found.st_dev != self._device

    def commit(self) -> None:
        self._execute("COMMIT")

    def rollback(self) -> bool:
        """False when the connection cannot be used any more."""
        try:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    @property
    def in_transaction(self) -> bool:
        """True also when a signal handler has just closed the connection: neither can be used any more."""
        try:
            return self._connection.in_transaction
        except sqlite3.ProgrammingError:
            return True

    def close(self) -> None:
        self._pid = 0  # nothing is left for __del__; the caller has the store's lock, for which a fork waits
        with suppress(sqlite3.Error):
            self._connection.close()

    def __del__(self) -> None:
        """A connection is part of a reference cycle, and would stay open until the next garbage collection: a fork
        before that would share it. An inherited one must not be closed here."""
        if os.getpid() != getattr(self, "_pid", 0):  # missing where an interrupt hit the beginning of __init__
            return
        try:
            if gate.acquire(blocking=False):  # else the garbage collector closes it
                self.close()
        finally:
            try:
                gate.release()  # the first thing here: an interrupt comes before it or after it
            except RuntimeError:  # another thread has it
                pass

    # ------------------------------------------------------------ rows

    def read(self, name: str) -> State | None:
        """The state of a resource; None when it has no row."""
        try:
            self._execute(READ, (name,))
            row = self._fetch()
        except sqlite3.OperationalError as error:
            if str(error).startswith(NO_TEXT):
                raise failures.damaged_row(self.path) from error
            raise
        if row is None:
            return None
        boot, text = row
        if boot != self._boot:
            self._confirm_boot()
            return ledger.rebooted(self._decode(name, text))
        return self._decode(name, text)

    def _decode(self, name: str, text: str) -> State:
        known = self._known.get(name)
        if known is not None and known[0] == text:
            return known[1]
        try:
            state = decode(text, None if known is None else known[1])
        except UNREADABLE as error:
            raise failures.damaged_row(self.path) from error
        self._remember(name, text, state)
        return state

    def _remember(self, name: str, text: str, state: State) -> None:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[name] = (text, state)

    def _confirm_boot(self) -> None:
        """A row of another boot is older than ours, unless another machine opened the file after us."""
        self._execute("SELECT value FROM meta WHERE key = 'boot'")
        row = self._fetch()
        if row is None or row[0] != self._boot:
            raise failures.other_machine(self.path)

    def write(self, name: str, before: State | None, after: State) -> None:
        if after == ledger.EMPTY:
            self._execute(REMOVE, (name,))
            return
        text = encode(after)
        self._execute(ADD if before is None else CHANGE, (self._boot, text, name))
        self._remember(name, text, after)

    def plain_turn(self, op: StoreOp, clock: Clock) -> Reply | None:
        """A plain turn over a row that is known, in one statement, which is a transaction of its own. None when the
        turn is not plain, or the row is no longer the known one: then nothing is changed.

        The time is read before the file is locked. If the row is the known one, nobody has changed it since then, and
        the turn is what it would have been at that moment."""
        known = self._known.get(op.resource)
        if known is None or known[1].queue or self._turns + 1 >= SWEEP_EVERY:
            return None
        text, state = known
        turn = plain.turn(state, clock.instant(), op)
        if turn is None:
            return None
        after, reply = turn
        changed = encode(after)
        if self._execute(CHANGE_KNOWN, (changed, op.resource, text, self._boot)).rowcount != 1:
            return None
        if self.moved():  # what was written is where nobody will look for it
            raise TryAgain(failures.REPLACED)
        self._known[op.resource] = changed, after
        self._turns += 1
        return reply

    def page(self, op: Scan, now: Instant) -> Page:
        """The next names, in their order. A row that cannot be read is listed too: inspecting it shows why."""
        chunk = self._execute(CHUNK, (op.cursor.encode("utf-8", "surrogateescape"), PAGE)).fetchall()
        found: list[str] = []
        unreadable: list[str] = []
        for raw, boot, text in chunk:
            name = raw.decode("utf-8", "backslashreplace")
            if matches(op.pattern, name) and self._listed(boot, text, now):
                (found if name.encode() == raw else unreadable).append(name)
        cursor = chunk[-1][0].decode("utf-8", "surrogateescape") if len(chunk) == PAGE else ""
        if not cursor:
            unreadable += [name for name in self._no_names() if matches(op.pattern, name)]
        return Page(tuple(found), cursor, tuple(unreadable))

    def _no_names(self) -> list[str]:
        """Rows whose name is a BLOB, which no op can name, in the notation of SQL."""
        return [f"x'{raw.hex()}'" for (raw,) in self._execute(NO_NAMES, (PAGE,)).fetchall()]

    def _listed(self, boot: bytes, text: bytes, now: Instant) -> bool:
        try:
            state = decode(text.decode())
        except UNREADABLE:
            return True
        if boot != self._boot.encode():
            self._confirm_boot()
            state = ledger.rebooted(state)
        return ledger.listed(state, now)

    # ------------------------------------------------------------ old rows

    def count_turns(self, count: int, now: Instant) -> None:
        """Sweep some rows now and then, so that names which are no longer used do not pile up (trap 37). A transaction
        of many ops counts for each of them: each can bring a new name."""
        self._turns += count
        while self._turns >= SWEEP_EVERY:
            self._turns -= SWEEP_EVERY
            self.sweep(now)

    def sweep(self, now: Instant) -> None:
        """Tidy the next rows in order of their names: an empty state is deleted, and what has expired is written as
        ended, so that a later sweep can delete it."""
        self._execute("SELECT CAST(value AS BLOB) FROM meta WHERE key = 'swept'")
        row = self._fetch()
        chunk = self._execute(CHUNK, (row[0] if row else b"", PAGE)).fetchall()
        for name, boot, text in chunk:
            with suppress(*UNREADABLE):  # the next op on it reports that
                state = decode(text.decode())
                left = ledger.tidy(state if boot == self._boot.encode() else ledger.rebooted(state), now)
                watched = left.watchers and left.holders != state.holders  # the next turn sends them a push
                if left != state and not watched:
                    self.write(name.decode(), state, left)
        if chunk or row:
            last = chunk[-1][0] if chunk else b""
            self._execute("INSERT OR REPLACE INTO meta VALUES ('swept', CAST(? AS TEXT))", (last,))
