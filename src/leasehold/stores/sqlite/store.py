"""The embedded store: the ledger inside short transactions of one SQLite file, for the processes of one host whose
users may write the file.

A call is one turn: BEGIN IMMEDIATE, read, ``ledger.apply``, write, COMMIT, and after that the pushes. The time
is read when the write lock is held. A plain turn over a row that this process knows takes one statement instead, which
changes the row if it is still the known one. A call that finds the file in use waits together with the other calls of
its process (``pending``), and one thread tries to get the file for all of them until their budgets are over.
"""

from __future__ import annotations

import os
import threading
import time

from leasehold._core import ledger, plain
from leasehold._core.light_typing import TYPE_CHECKING, Callable, Sequence, TypeAlias, TypeVar
from leasehold._core.ops import (
    Beat,
    Claim,
    Group,
    Inspect,
    Leaks,
    Page,
    Ping,
    Push,
    Queued,
    Renew,
    Reply,
    ResourceOp,
    Scan,
    StoreOp,
    View,
    Watch,
)
from leasehold._core.types import Capabilities, Instant, State, Unreadable
from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.clock import SystemClock
from leasehold.stores.sqlite import failures, file
from leasehold.stores.sqlite.connection import SocketConnection, SocketHolderPushes
from leasehold.stores.sqlite.database import Database, gate
from leasehold.stores.sqlite.failures import LOCKED, REPLACED, DamagedRow, TryAgain, unavailable
from leasehold.stores.sqlite.file import open_database
from leasehold.stores.sqlite.pending import Call, LoopCall, Pending, PendingGroup, urgent
from leasehold.stores.sqlite.sockets import SocketFolder
from leasehold.stores.sqlite.stdlib import sqlite3

if TYPE_CHECKING:
    from leasehold._core.ports import Clock

FIRST_PAUSE = 30e-6  # seconds; a turn takes about as long
GROWTH = 1.5
HURRIED_PAUSE = 1e-3  # the longest while a renewal or a release waits
LAST_PAUSE = 32e-3  # the longest otherwise: many processes that all try must leave time to work
BUSY = "other threads keep it busy"
GATHER = 1e-3  # seconds: the waiters of a coordinator beat at the same moment, and one transaction serves them
LOOK_AGAIN = 0.25  # seconds after which a waiting thread checks by itself whether there is a claimant
BATCH = 500  # ops in one transaction: others wait meanwhile

DAMAGED = Unreadable("its row in the table resources", "is damaged", blocks=True)
VERSION = f"SQLite {sqlite3.sqlite_version}"
WAITING = (Claim, Watch)  # their sender may get a push later
KNOWN_NAMES = (Beat, Renew)  # these bring no new name, and there may be thousands of them at once

Draft: TypeAlias = tuple[State | None, State]  # the state in the file, and the one to be written
Drafts: TypeAlias = dict[str, Draft]
Given = TypeVar("Given")
Result = TypeVar("Result")

QUIET = 5.0  # seconds to wait before a fork for other threads to finish their turn

# Connections that could not be closed before a fork, because one of the parent's threads was in the middle of a turn:
# never used, and never closed here.
_inherited: list[Database] = []
_inherited_paths: set[str] = set()


class SQLiteStore:
    """Implements ``_core.ports.Store``. Making one touches no file; the first op opens it."""

    __slots__ = (
        "__weakref__",
        "_boot",
        "_claimed",
        "_claiming",
        "_closed",
        "_connections",
        "_database",
        "_folder",
        "_inside",
        "_lock",
        "_path",
        "_pause",
        "_pending",
        "_trouble",
        "clock",
    )

    name = "sqlite"
    capabilities = Capabilities()

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        if not path or "\0" in path:
            raise InvalidRequest("the path of the database must not be empty or hold a NUL")
        self._boot = file.boot_id()
        self._path = os.path.abspath(path)  # a later chdir must not move it
        self.clock: Clock = SystemClock() if clock is None else clock
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._database: Database | None = None
        self._inside = False
        self._lock = threading.RLock()  # it knows its owner: an interrupt right after acquire leaks nothing
        self._folder = SocketFolder(os.path.realpath(self._path) + ".wake")
        self._connections: dict[str, SocketConnection] = {}
        self._pending = Pending()
        self._claiming = threading.RLock()  # of the claimant; a signal handler on its thread may claim inside it
        self._claimed = False
        self._pause = FIRST_PAUSE
        self._trouble = TryAgain(BUSY)  # why the last try of the claimant failed

    @property
    def path(self) -> str:
        """The path of its file, for a result store beside it."""
        return self._path

    @property
    def url(self) -> str:
        if self._path.isprintable() and "%" not in self._path and "?" not in self._path:
            return f"sqlite:///{self._path}"
        from urllib.parse import quote

        return f"sqlite:///{quote(os.fsencode(self._path))}"

    # ------------------------------------------------------------ the port

    def execute(self, op: StoreOp) -> Reply:
        if not (self._pending or isinstance(op, Beat)) or urgent(op):
            try:
                return self._try(op)  # fast path: the file is free
            except TryAgain:
                pass
        return _only(self._wait_for_file((op,)))

    async def execute_async(self, op: StoreOp) -> Reply:
        """On the loop's own thread where that needs no waiting; else on the thread of a claimant."""
        if self._database is not None and (not (self._pending or isinstance(op, Beat)) or urgent(op)):
            try:
                return self._try(op)
            except TryAgain:
                pass
        return _only(await self._wait_for_file_async((op,)))

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        replies: list[Reply | LeaseholdError] = []
        for start in range(0, len(ops), BATCH):
            chunk = ops[start : start + BATCH]
            try:
                replies.extend(self._wait_for_file(chunk))
            except LeaseholdError as error:
                replies.extend([error] * len(chunk))
        return replies

    async def _execute_many_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        replies: list[Reply | LeaseholdError] = []
        for start in range(0, len(ops), BATCH):
            chunk = ops[start : start + BATCH]
            try:
                replies.extend(await self._wait_for_file_async(chunk))
            except LeaseholdError as error:
                replies.extend([error] * len(chunk))
        return replies

    def connection(self, name: str = "") -> SocketConnection:
        connections = self._connections
        made = SocketConnection(
            self._folder,
            self.execute,
            self.execute_async,
            lambda gone: connections.pop(gone, None),
            self.execute_many,
            self._execute_many_async,
            name,
        )
        connections[made.address] = made
        return made

    def listen(self, notify: Callable[[Push], None]) -> SocketConnection:
        connection = self.connection()
        connection.attach(notify)
        return connection

    def holder_pushes(self) -> SocketHolderPushes:
        return SocketHolderPushes(self.connection, self._lock)

    def before_fork(self) -> None:
        """Close the file. In a child that inherits an open connection, SQLite believes in locks that only the parent
        has: the process that closes it last would then delete the log that the other still writes to."""
        if self._lock.acquire(timeout=QUIET) and self._database is not None and not self._database.in_transaction:
            self._drop()

    def after_fork(self) -> None:
        """The next op opens it again."""
        try:
            self._lock.release()
        except RuntimeError:  # other threads kept it for too long
            pass

    def forked(self) -> None:
        if self._database is not None:
            _inherited.append(self._database)
            _inherited_paths.add(self._path)
        for connection in list(self._connections.values()):
            connection.forked()
        self._folder.forked()
        self._start()

    def close(self) -> None:
        self._closed = True
        for connection in list(self._connections.values()):
            connection.close()
        with self._lock:
            self._drop()
            self._folder.close()

    # ------------------------------------------------------------ waiting for the file

    def _wait_for_file(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """Wait for the file with all other calls of this process, until the smallest budget of these ops is over: a
        batch must not delay an op that has little time left."""
        call = Call(ops)
        self._pending.add(call)
        try:
            while not call.done():
                if not self._claim(call):
                    call.wait(min(LOOK_AGAIN, call.give_up - time.monotonic()))
                if not call.done() and time.monotonic() >= call.give_up:
                    self._give_up(call)
        finally:
            if not call.done():  # interrupted, or out of time
                self._leave(call)
        return call.result()

    async def _wait_for_file_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """The same for the running task: another thread is the claimant."""
        import asyncio

        call = LoopCall(ops, asyncio.get_running_loop(), self._claim)
        self._pending.add(call)
        try:
            if not self._claimed:
                call.proceed()
            await call.future
        finally:
            if not call.done():  # its task was cancelled
                self._leave(call)
        return call.result()

    def _give_up(self, call: Call) -> None:
        """The budget of this call is over. If a claimant is running it now, wait for the end of that, which is near."""
        if self._pending.remove(call):
            self._too_late(call)
            self._pending.wake_one()  # this call may have been woken to claim, or was the claimant
            return
        end = time.monotonic() + QUIET
        while not call.done() and time.monotonic() < end:
            call.wait(end - time.monotonic())
        if not call.done():
            call.fail(OutcomeUnknown(f"the database {self._path} did not answer while a change was being written"))

    def _leave(self, call: Call) -> None:
        """The caller no longer waits for this call. If it was woken to claim, another one must."""
        self._pending.remove(call)
        self._pending.wake_one()

    def _too_late(self, call: Call) -> None:
        error = unavailable(self._path, f"could not be used in time: {self._trouble}")
        error.__cause__ = self._trouble.__cause__
        call.fail(error)

    # ------------------------------------------------------------ the claimant

    def _claim(self, call: Call | None = None) -> bool:
        """Be the claimant of the file until this call is done or out of time; without a call, until none waits. False:
        another thread is the claimant."""
        try:
            if not self._claiming.acquire(blocking=False):
                return False
            self._claimed = True
            if {type(one.ops[0]) for one in self._pending.all()} <= {Beat}:
                time.sleep(GATHER)
            while self._pending if call is None else not call.done():
                self._expire()
                left = (self._last_end() if call is None else call.give_up) - time.monotonic()
                if left <= 0:
                    break
                try:
                    self._serve(left)
                except TryAgain as trouble:
                    self._trouble = trouble
                    self._rest(left, left / (call.budget if call is not None else left))
                else:  # not the shortest at once: a process that was just served would overtake those that wait
                    self._pause = max(self._pause / 2, FIRST_PAUSE)
            return True
        finally:
            try:
                self._claiming.release()
            except RuntimeError:  # another thread has it
                pass
            else:  # in this order: a call that is added from now on sees that there is no claimant, or is woken
                self._claimed = False
                self._pending.wake_one()

    def _serve(self, seconds: float) -> None:
        """One turn for all calls that wait, or TryAgain."""
        group = PendingGroup(self._pending)
        try:
            replies = self._turn(self._run, group.ops, seconds)
        except LeaseholdError as error:
            if self._inside:  # a signal handler interrupted a turn, and that one ends the other calls
                raise
            if not group.calls:  # the file cannot be opened or used, by any of them
                group.ops()
            group.fail(error)
        except TryAgain:
            for call in group.calls:  # nothing was written
                self._pending.add(call)
            raise
        except BaseException:
            group.fail(OutcomeUnknown(f"the thread that used the database {self._path} was interrupted"))
            raise
        else:
            group.finish(replies)

    def _rest(self, seconds: float, share: float) -> None:
        """Pauses grow, so that many processes leave the one that has the file time to work. They shrink again with the
        share of its budget that a call has left, so that none is unlucky for long. The last bits of the clock are
        jitter enough to keep two processes out of step."""
        self._pause = min(self._pause * GROWTH, max(LAST_PAUSE * share, HURRIED_PAUSE))
        pause = min(self._pause, HURRIED_PAUSE) if self._pending.hurry else self._pause
        time.sleep(min(pause * (1 + time.monotonic_ns() % 1024 / 1024), seconds))

    def _expire(self) -> None:
        """Fail the calls whose time is over: a task does not watch the clock while it waits here."""
        now = time.monotonic()
        for call in self._pending.all():
            if call.give_up <= now and self._pending.remove(call):
                self._too_late(call)

    def _last_end(self) -> float:
        return max([call.give_up for call in self._pending.all()], default=0.0)

    # ------------------------------------------------------------ one turn

    def _try(self, op: StoreOp) -> Reply:
        """One turn for this op alone, if the file is free now; else TryAgain."""
        try:
            return self._turn(self._run_one, op, 0)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    def _turn(
        self, run: Callable[[Database, Given], tuple[Result, Sequence[Push]]], given: Given, seconds: float
    ) -> Result:
        """One transaction, or TryAgain when the file is in use for that long."""
        try:
            if not self._lock.acquire(timeout=seconds):
                raise TryAgain(BUSY)
            if self._inside:  # a signal handler interrupted a turn of this thread
                raise unavailable(self._path, "is in use by the call that this one interrupts")
            self._inside = True
            try:
                database = self._database
                if database is None or database.in_transaction:  # the latter was left open by an interrupt
                    self._drop()
                    database = self._open()
                result, pushes = run(database, given)
            finally:
                self._inside = False
        finally:
            try:
                self._lock.release()  # the first thing here: an interrupt comes before it or after it
            except RuntimeError:  # not acquired
                pass
        for push in pushes:
            self._folder.send(push)
        return result

    def _run_one(self, database: Database, op: StoreOp) -> tuple[Reply, Sequence[Push]]:
        """One op. Most are plain, and change a row that this process knows already, which takes one statement."""
        committing = True
        try:
            reply: Reply | None = database.plain_turn(op, self.clock)
            if reply is not None:
                return reply, ()
            committing = False
            database.begin()
            now = self.clock.instant()
            _, reply, pushes = self._apply(database, now, op, None)
            database.count_turns(1, now)
            committing = True
            database.commit()
        except BaseException as error:
            self._undo(database, error, committing)
            raise
        return reply, pushes

    def _run(
        self, database: Database, choose: Callable[[], Sequence[StoreOp]]
    ) -> tuple[list[Reply | LeaseholdError], Sequence[Push]]:
        """Several ops, which are chosen when the transaction has begun."""
        replies: list[Reply | LeaseholdError] = []
        pushes: list[Push] = []
        drafts: Drafts = {}
        committing = False
        try:
            database.begin()
            ops = choose()
            now = self.clock.instant()
            for op in ops:
                try:
                    outcome = self._apply(database, now, op, drafts)
                except LeaseholdError as error:  # a damaged row: nothing of it was changed
                    error.resource = op.resource or None
                    replies.append(error)
                    continue
                replies.append(outcome.reply)
                pushes.extend(outcome.pushes)
            for resource, (before, after) in drafts.items():
                if after != (before or ledger.EMPTY):
                    database.write(resource, before, after)
            database.count_turns(max(sum([not isinstance(op, KNOWN_NAMES) for op in ops]), 1), now)
            committing = True
            database.commit()
        except BaseException as error:
            self._undo(database, error, committing)
            raise
        return replies, pushes

    def _apply(self, database: Database, now: Instant, op: StoreOp, drafts: Drafts | None) -> ledger.Outcome:
        """One op. Of several, each resource is written once, at the end: hundreds may name the same one."""
        if isinstance(op, Group):
            return self._together(database, now, op, drafts)
        if isinstance(op, Leaks):  # nothing here can lack an end
            return ledger.Outcome(ledger.EMPTY, Page((), ""), ())
        if isinstance(op, Scan):
            return ledger.Outcome(ledger.EMPTY, database.page(op, now), ())
        if isinstance(op, Ping):
            return ledger.Outcome(ledger.EMPTY, Page((VERSION,) if op.versions else (), ""), ())
        resource = op.resource
        draft = drafts.get(resource) if drafts else None
        try:
            before, state = draft or _read(database, resource)
        except DamagedRow:
            if isinstance(op, Inspect):
                return ledger.Outcome(ledger.EMPTY, View((), (), 0, 0, now.ms, unreadable=(DAMAGED,)), ())
            raise
        outcome = self._decide(state, now, op, advanced=draft is not None)
        if drafts is not None:
            drafts[resource] = before, outcome.state
        elif outcome.state != state:
            database.write(resource, before, outcome.state)
        return outcome

    def _together(self, database: Database, now: Instant, op: Group, drafts: Drafts | None) -> ledger.Outcome:
        for step in op.steps:
            database.read(step.resource)  # finds a damaged row before anything is changed: all, or nothing
        replies: list[Reply] = []
        pushes: list[Push] = []
        for step in op.steps:
            outcome = self._apply(database, now, step, drafts)
            replies.append(outcome.reply)
            pushes.extend(outcome.pushes)
            if ledger.ends_group(step, outcome.reply):
                break
        return ledger.Outcome(ledger.EMPTY, ledger.group_reply(replies), tuple(pushes))

    def _decide(self, state: State, now: Instant, op: ResourceOp, advanced: bool) -> ledger.Outcome:
        """The turn of the ledger, or a plain one. The sender of a claim that must wait gets a socket first, or no push
        is promised to it."""
        quick = plain.turn(state, now, op)
        if quick is not None:
            return ledger.Outcome(*quick, ())
        outcome = ledger.apply(state, now, op, self._reachable, advanced)
        if isinstance(op, WAITING) and not (self._answered(outcome) or self._bound(op.address)):
            outcome = ledger.apply(state, now, op._replace(address=""), self._reachable, advanced)
        return outcome

    @staticmethod
    def _answered(outcome: ledger.Outcome) -> bool:
        """True when no push will follow for the sender of this claim or watch."""
        return not isinstance(outcome.reply, (Queued, View))

    def _bound(self, address: str) -> bool:
        """Bind our connection of that address. This comes before COMMIT: from then on others check whether it is
        alive."""
        own = self._connections.get(address)
        return own is None or own.bind()

    def _reachable(self, address: str) -> bool:
        own = self._connections.get(address)
        return self._folder.alive(address) if own is None else own.bound

    # ------------------------------------------------------------ opening, and what can go wrong

    def _open(self) -> Database:
        if self._closed:
            raise StoreUnavailable(f"the store of {self._path} is closed")
        if self._path in _inherited_paths:  # SQLite would believe in locks that only the parent has
            raise unavailable(
                self._path, "was in use when this process was forked, and is its parent's. Fork elsewhere"
            )
        try:
            if not gate.acquire(blocking=False):
                raise TryAgain("another thread opens a database, or forks")
            self._database = opened = open_database(self._path, self._boot)
        finally:
            try:
                gate.release()  # the first thing here, as in ``_turn``
            except RuntimeError:  # another thread has it
                pass
        self._folder.sweep()
        return opened  # a signal handler may have closed the store meanwhile

    def _drop(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _undo(self, database: Database, error: BaseException, committing: bool) -> None:
        """Roll back, so that nothing of this turn stays, unless it failed during COMMIT: then that is unknown. A
        connection that may be broken is closed."""
        sound = database.rollback() and not database.moved()
        passing = failures.passing(error)
        if not sound or (isinstance(error, sqlite3.Error) and not passing):
            self._drop()
        if isinstance(error, (TryAgain, LeaseholdError)) or not isinstance(error, Exception) or failures.foreign(error):
            return
        if passing:
            raise TryAgain(LOCKED) from error
        if committing and not failures.undone(error):
            raise OutcomeUnknown(
                f"the database {self._path} failed while a change was being written: {error}"
            ) from error
        if not sound:
            raise TryAgain(REPLACED) from error
        raise failures.refusal(self._path, error) from error


def _read(database: Database, resource: str) -> Draft:
    before = database.read(resource)
    return before, ledger.EMPTY if before is None else before


def _only(replies: list[Reply | LeaseholdError]) -> Reply:
    (reply,) = replies
    if isinstance(reply, LeaseholdError):
        raise reply
    return reply
