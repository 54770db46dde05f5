"""A thread's or an event loop's connection to the store: ops go to the store itself, and pushes arrive on a datagram
socket, which the store binds when a claim must wait.

The thread or loop that owns the connection reads from it; the store may bind and close it from any thread.
"""

from __future__ import annotations

import select
import threading
import time

from leasehold._core.light_typing import TYPE_CHECKING, Awaitable, Callable, Sequence
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.place import here
from leasehold.stores.sqlite.failures import foreign
from leasehold.stores.sqlite.sockets import SocketFolder, decode, new_name
from leasehold.stores.sqlite.stdlib import suppress

if TYPE_CHECKING:
    import asyncio
    import socket
    from threading import RLock

MAX_DATAGRAM = 16_384
SHUT_RDWR = 2  # as in ``socket``, which is loaded for a claim that has to wait
MAX_DRAINED = 64  # pushes in one turn of the event loop


class SocketConnection:
    """Implements ``_core.ports.Connection`` and ``AsyncConnection`` over a datagram socket."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_connection",
        "_folder",
        "_forget",
        "_lock",
        "_loop",
        "_name",
        "_notify",
        "_watched",
        "address",
        "execute",
        "execute_async",
        "execute_batch",
        "execute_batch_async",
    )

    def __init__(
        self,
        folder: SocketFolder,
        execute: Callable[[StoreOp], Reply],
        execute_async: Callable[[StoreOp], Awaitable[Reply]],
        forget: Callable[[str], object],
        execute_batch: Callable[[Sequence[StoreOp]], list[Reply | LeaseholdError]],
        execute_batch_async: Callable[[Sequence[StoreOp]], Awaitable[list[Reply | LeaseholdError]]],
        name: str = "",
    ) -> None:
        self.execute, self.execute_async = execute, execute_async
        self.execute_batch, self.execute_batch_async = execute_batch, execute_batch_async
        self._name = name or new_name()
        self.address = self._name
        self._folder = folder
        self._forget = forget
        self._lock = threading.RLock()
        self._connection: socket.socket | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify: Callable[[Push], None] | None = None
        self._watched: socket.socket | None = None

    # ------------------------------------------------------------ the store's side

    @property
    def bound(self) -> bool:
        return self._connection is not None

    @property
    def listed(self) -> bool:
        """True while it is bound, and others can find it."""
        return self._connection is not None and self._folder.listed(self._name)

    def bind(self) -> bool:
        """Be reachable from now on. False when that is impossible, and the waiter must poll."""
        with self._lock:
            if self._closed:
                return False
            old = self._connection
            if old is not None and self._folder.listed(self._name):
                return True
            try:
                self._connection = self._folder.bind(self._name)
            except OSError as error:
                if foreign(error):
                    raise
                return False
        self._settle(old)
        return True

    def forked(self) -> None:
        """In the child: close the descriptor. The name and the event loop belong to the parent."""
        self._lock = threading.RLock()
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ the owner's side

    def next_push(self, seconds: float) -> Push | None:
        end = time.monotonic() + seconds
        while True:
            left = max(end - time.monotonic(), 0.0)
            connection = self._connection
            if connection is None:
                time.sleep(left)
                return None
            push = _receive(connection, left)
            if push is not None or time.monotonic() >= end:
                return push

    def read(self) -> list[Push]:
        """What has arrived, without waiting; at most MAX_DRAINED, so that other callbacks of the loop get their
        turn."""
        connection = self._connection
        if connection is None:
            return []
        pushes = []
        for _ in range(MAX_DRAINED):
            try:
                pushes.append(decode(connection.recv(MAX_DATAGRAM)))
            except OSError:
                break
        return [push for push in pushes if push is not None]

    def fileno(self) -> int:
        """-1 while it is not bound."""
        connection = self._connection
        return -1 if connection is None else connection.fileno()

    def attach(self, notify: Callable[[Push], None]) -> None:
        import asyncio

        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._watch(None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            old, self._connection = self._connection, None
        self._forget(self._name)
        if old is not None:
            self._folder.remove(self._name)
            with suppress(OSError):
                old.shutdown(SHUT_RDWR)  # a thread that polls it wakes up
            self._settle(old)

    # ------------------------------------------------------------ on the event loop

    def _settle(self, old: socket.socket | None) -> None:
        """After the socket was replaced, on any thread: let the loop watch the new one, and close the old one."""
        loop = self._loop
        if loop is None or loop.is_closed():
            if old is not None:
                old.close()
        elif not loop.is_running():
            self._watch(old)
        else:
            try:
                loop.call_soon_threadsafe(self._watch, old)
            except RuntimeError:  # it was closed meanwhile
                if old is not None:
                    old.close()

    def _watch(self, old: socket.socket | None) -> None:
        loop, connection = self._loop, self._connection
        if loop is not None and connection is not self._watched:
            if self._watched is not None and self._watched.fileno() >= 0:
                loop.remove_reader(self._watched)
            if connection is not None:
                loop.add_reader(connection, self._drain)
            self._watched = connection
        if old is not None:
            old.close()

    def _drain(self) -> None:
        if self._notify is not None:
            for push in self.read():
                self._notify(push)


def _receive(connection: socket.socket, seconds: float) -> Push | None:
    """One datagram, or nothing after that many seconds."""
    descriptor = connection.fileno()
    if descriptor < 0:  # closed meanwhile
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        if not poll.poll(-int(-seconds * 1000 // 1)):
            return None
        return decode(connection.recv(MAX_DATAGRAM))
    except OSError as error:  # empty after all, or closed meanwhile
        if foreign(error):
            raise
        return None


# ---------------------------------------------------------------- pushes for holders
#
# Pushes about the leases of one coordinator arrive on a connection that its watchdog polls. It is bound at the first
# poll, so that it does not delay the program's first acquire. Where binding is impossible, the holders learn what
# happened with their next renewal.


BIND_WITHIN = 0.1  # seconds: the watchdog has deadlines to keep, and tries again


class SocketHolderPushes:
    """Implements ``_core.ports.HolderPushes``. Until the watchdog polls there is an address and no socket, so that a
    coordinator that never held anything leaves nothing behind."""

    __slots__ = ("_connection", "_lock", "_make", "address")
    polled = True

    def __init__(self, make: Callable[[str], SocketConnection], lock: RLock) -> None:
        self.address = new_name() + here()
        self._make = make
        self._lock = lock
        self._connection: SocketConnection | None = None

    def fileno(self, ready: Callable[[], None]) -> int:
        """It is bound again when the folder was emptied."""
        if self._connection is None or not self._connection.listed:
            self._bind()
        return -1 if self._connection is None else self._connection.fileno()

    def _bind(self) -> None:
        """Under the store's lock, for which a fork waits: a child must not inherit a socket that it does not know."""
        if not self._lock.acquire(timeout=BIND_WITHIN):
            return
        try:
            if self._connection is None:
                self._connection = self._make(self.address)
            self._connection.bind()
        finally:
            self._lock.release()

    def read(self) -> list[Push]:
        return [] if self._connection is None else self._connection.read()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
