"""The memory store: the ledger in a dictionary. It serves one process, and is the executable specification.

``memory://`` is one space for the whole process, ``memory://name`` another; ``MemoryStore(clock)`` is private and
runs on the clock that it is given, for tests that turn it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest

from leasehold._core import ledger, plain
from leasehold._core.names import matches
from leasehold._core.ops import LISTINGS, Group, Leaks, Page, Ping, Push, Reply, ResourceOp, Scan, StoreOp
from leasehold._core.policy import PAGE
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities, Instant, State
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.clock import SystemClock
from leasehold.stores.mailbox import HolderMailbox, Mailbox
from leasehold.stores.place import here

__all__ = ["MemoryStore"]

_spaces: dict[str, MemoryStore] = {}


class MemoryStore:
    """All resources of one space."""

    name = "memory"
    capabilities = Capabilities(processes=False, durable_fences=False)

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.url = "memory://"
        self._start()

    def _start(self) -> None:
        self._connections: dict[str, Mailbox | HolderMailbox] = {}
        self._states: dict[str, State] = {}
        self._sweep: Iterator[str] = iter(())
        self._lock = threading.RLock()
        self._inside = False

    @classmethod
    def shared(cls, space: str) -> MemoryStore:
        """The one store of that name in this process."""
        found = _spaces.get(space)
        if found is None:
            found = cls()
            found.url = f"memory://{space}"
            found = _spaces.setdefault(space, found)
        return found

    def share_as(self, space: str) -> None:
        """``memory://space`` leads here from now on, until :meth:`unshare`: for tests of code that connects itself."""
        _spaces[space] = self
        self.url = f"memory://{space}"

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

    async def execute_many_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """The same on an event loop."""
        return self.execute_many(ops)

    def connection(self) -> Mailbox:
        connection = Mailbox(
            os.urandom(8).hex(),
            self.execute,
            self.execute_async,
            self._remove,
            self.execute_many,
            self.execute_many_async,
        )
        self._add(connection)
        return connection

    def listen(self, notify: Callable[[Push], None]) -> Mailbox:
        connection = self.connection()
        connection.attach(notify)
        return connection

    def holder_pushes(self) -> HolderMailbox:
        return HolderMailbox(os.urandom(8).hex() + here(), self._add, self._remove)

    def _add(self, connection: Mailbox | HolderMailbox) -> None:
        self._connections[connection.address] = connection

    def _remove(self, connection: Mailbox | HolderMailbox) -> None:
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

    def _list(self, op: Scan | Leaks | Ping, now: Instant) -> Page:
        """In the order of their names. There are no leaks: nothing here can lack an end. Nor is there a server."""
        if isinstance(op, (Leaks, Ping)):
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
