"""The memory store: the ledger in a dictionary. It serves one process, and is the executable specification.

``memory://`` is one space for the whole process, ``memory://name`` another; ``MemoryStore(clock)`` is private and
runs on the clock that it is given, for tests that turn it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from queue import Empty, SimpleQueue

from leasehold._core import ledger, plain
from leasehold._core.light_typing import Any
from leasehold._core.names import matches
from leasehold._core.ops import LISTINGS, Group, Leaks, Page, Push, Reply, ResourceOp, Scan, StoreOp
from leasehold._core.policy import PAGE
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities, Instant, State
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.clock import SystemClock

__all__ = ["MemoryStore"]

_spaces: dict[str, MemoryStore] = {}


class MemoryStore:
    """All resources of one space."""

    name = "memory"
    capabilities = Capabilities(processes=False, durable_fences=False)

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._start()

    def _start(self) -> None:
        self._connections: dict[str, MemoryConnection | MemoryHolderPushes] = {}
        self._states: dict[str, State] = {}
        self._sweep: Iterator[str] = iter(())
        self._lock = threading.RLock()
        self._inside = False

    @classmethod
    def shared(cls, space: str) -> MemoryStore:
        """The one store of that name in this process."""
        return _spaces.get(space) or _spaces.setdefault(space, cls())

    def share_as(self, space: str) -> None:
        """``memory://space`` leads here from now on, until :meth:`unshare`: for tests of code that connects itself."""
        _spaces[space] = self

    @staticmethod
    def unshare(space: str) -> None:
        """The name leads nowhere; the next one to connect to it gets an empty store."""
        _spaces.pop(space, None)

    def execute(self, op: StoreOp) -> Reply:
        with self._lock:
            if self._inside:  # a signal handler interrupted a call of this thread
                raise StoreUnavailable("the store is in use by the call that this one interrupts")
            self._inside = True
            try:
                now = self.clock.instant()
                if isinstance(op, LISTINGS):
                    return self._list(op, now)
                reply, pushes = self._together(op, now) if isinstance(op, Group) else self._turn(op, now)
                self._sweep_one(now)
            finally:
                self._inside = False
        for push in pushes:
            connection = self._connections.get(push.address)
            if connection is not None:
                connection.deliver(push)
        return reply

    def _turn(self, op: ResourceOp, now: Instant) -> tuple[Reply, Sequence[Push]]:
        state = self._states.get(op.resource, ledger.EMPTY)
        quick = plain.turn(state, now, op)
        if quick is not None:
            self._states[op.resource], reply = quick
            return reply, ()
        outcome = ledger.apply(state, now, op, self._connections.__contains__)
        self._keep(op.resource, outcome.state)
        return outcome.reply, outcome.pushes

    def _together(self, op: Group, now: Instant) -> tuple[Reply, Sequence[Push]]:
        replies: list[Reply] = []
        pushes: list[Push] = []
        for step in op.steps:
            reply, more = self._turn(step, now)
            replies.append(reply)
            pushes.extend(more)
            if ledger.ends_group(step, reply):
                break
        return ledger.group_reply(replies), pushes

    async def execute_async(self, op: StoreOp) -> Reply:
        return self.execute(op)

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        replies: list[Reply | LeaseholdError] = []
        for op in ops:
            try:
                replies.append(self.execute(op))
            except LeaseholdError as error:
                replies.append(error)
        return replies

    def connection(self) -> MemoryConnection:
        connection = MemoryConnection(self)
        self.add(connection)
        return connection

    def listen(self, notify: Callable[[Push], None]) -> MemoryConnection:
        connection = self.connection()
        connection.attach(notify)
        return connection

    def holder_pushes(self) -> MemoryHolderPushes:
        return MemoryHolderPushes(self)

    def add(self, connection: MemoryConnection | MemoryHolderPushes) -> None:
        self._connections[connection.address] = connection

    def remove(self, connection: MemoryConnection | MemoryHolderPushes) -> None:
        self._connections.pop(connection.address, None)

    def before_fork(self) -> None:
        """Nothing is open."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        """A child has memory of its own, and begins with an empty space."""
        self._start()

    def close(self) -> None:
        """The space outlives its coordinators: others may use it."""

    def _list(self, op: Scan | Leaks, now: Instant) -> Page:
        """In the order of their names. There are no leaks: nothing here can lack an end."""
        if isinstance(op, Leaks):
            return Page((), "")
        names = nsmallest(PAGE, [name for name in self._states if name > op.cursor])
        found = [name for name in names if matches(op.pattern, name) and ledger.listed(self._states[name], now)]
        return Page(tuple(found), names[-1] if len(names) == PAGE else "")

    def _keep(self, resource: str, state: State) -> None:
        if state == ledger.EMPTY:
            self._states.pop(resource, None)
        else:
            self._states[resource] = state

    def _sweep_one(self, now: Instant) -> None:
        """Tidy one old name with each op, so that memory does not grow with every new one (trap 37)."""
        name = next(self._sweep, None)
        if name is None:
            self._sweep = iter(tuple(self._states))
            return
        state = self._states.get(name)
        if state is None or state.fence_until_us > now.wall_us:  # most have a fence that must be kept
            return
        if ledger.tidy(state, now) == ledger.EMPTY:
            del self._states[name]


class MemoryConnection:
    """Implements ``_core.ports.Connection`` for a thread and ``AsyncConnection`` for an event loop."""

    def __init__(self, store: MemoryStore) -> None:
        self.address = os.urandom(8).hex()
        self.execute, self.execute_async = store.execute, store.execute_async
        self._store = store
        self._pushes: SimpleQueue[Push] = SimpleQueue()
        self._empty = threading.Lock()  # held while there is nothing to read
        self._empty.acquire()
        self._loop: Any = None
        self._notify: Callable[[Push], None] | None = None

    def deliver(self, push: Push) -> None:
        if self._notify is None:
            self._pushes.put(push)
            self._wake()
            return
        try:
            self._loop.call_soon_threadsafe(self._notify, push)
        except RuntimeError:  # the loop is closed, and no task waits there
            self.close()

    def next_push(self, seconds: float) -> Push | None:
        """It does not use the queue's own timeout: in CPython a signal handler that outlasts that makes it wait for
        ever."""
        self._empty.acquire(timeout=min(max(seconds, 0), threading.TIMEOUT_MAX))
        try:
            push = self._pushes.get_nowait()
        except Empty:
            return None
        if not self._pushes.empty():  # the lock was released once for all of them
            self._wake()
        return push

    def _wake(self) -> None:
        try:
            self._empty.release()
        except RuntimeError:  # released already
            pass

    def attach(self, notify: Callable[[Push], None]) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._notify = notify

    def close(self) -> None:
        self._store.remove(self)


class MemoryHolderPushes:
    """Implements ``_core.ports.HolderPushes``. The store keeps it from the watchdog's first poll until it is closed: a
    space outlives its coordinators, and must not collect them."""

    polled = False

    def __init__(self, store: MemoryStore) -> None:
        self.address = os.urandom(8).hex()
        self._store = store
        self._pushes: SimpleQueue[Push] = SimpleQueue()
        self._ready: Callable[[], None] = _nothing

    def fileno(self, ready: Callable[[], None]) -> int:
        """There is nothing to poll: ``deliver`` calls ``ready``."""
        if self._ready is _nothing:
            self._ready = ready
            self._store.add(self)
        return -1

    def deliver(self, push: Push) -> None:
        self._pushes.put(push)
        self._ready()

    def read(self) -> list[Push]:
        pushes = []
        while not self._pushes.empty():
            pushes.append(self._pushes.get_nowait())
        return pushes

    def close(self) -> None:
        self._store.remove(self)
        self._ready = _nothing


def _nothing() -> None:
    """The ``ready`` of holder pushes that no watchdog polls."""
