"""Where pushes for the waiters of one thread or one event loop arrive. Bound by the store when one must wait.

The thread or loop that owns a mailbox takes from it; the store may bind it from any thread, and close it.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Awaitable, Callable

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold.stores.sqlite.failures import foreign
from leasehold.stores.sqlite.sockets import SocketFolder, decode, new_name
from leasehold.stores.sqlite.stdlib import socket, suppress

if TYPE_CHECKING:
    import asyncio
    from threading import RLock

MAX_DATAGRAM = 16_384
MAX_DRAINED = 64  # pushes in one turn of the event loop


class SocketConnection:
    """Implements ``core.ports.Mailbox`` and ``Ear`` over a datagram socket."""

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
    )

    def __init__(
        self,
        folder: SocketFolder,
        execute: Callable[[StoreOp], Reply],
        execute_async: Callable[[StoreOp], Awaitable[Reply]],
        forget: Callable[[str], object],
        name: str = "",
    ) -> None:
        self.execute, self.execute_async = execute, execute_async
        self._name = name or new_name()
        self.address = self._name  # empty when nobody can reach it: its owner then asks more often
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
        """Bound, and others can still find it."""
        return self._connection is not None and self._folder.listed(self._name)

    def bind(self) -> bool:
        """Be reachable from now on; False when that is impossible, and the waiter must ask by itself."""
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
        """All that has arrived, without waiting; at most so many that others get their turn."""
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
        """-1 while nobody can reach it."""
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
                old.shutdown(socket.SHUT_RDWR)  # whoever polls it in another thread looks up
            self._settle(old)

    # ------------------------------------------------------------ on the event loop

    def _settle(self, old: socket.socket | None) -> None:
        """The socket is another one now: let the loop watch it, wherever we are, and close the old one."""
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
        if not poll.poll(math.ceil(seconds * 1000)):
            return None
        return decode(connection.recv(MAX_DATAGRAM))
    except OSError as error:  # empty after all, or closed meanwhile
        if foreign(error):
            raise
        return None


# ---------------------------------------------------------------- news
#
# Where the holders of one coordinator hear what happened to their leases: a mailbox that its watchdog polls.
#
# It is bound when the watchdog first looks, beside the program and not in the way of its first acquire. Where that is
# impossible the holders hear of it with their next renewal.


BIND_WITHIN = 0.1  # seconds: the watchdog has deadlines to keep, and looks again


class SocketHolderPushes:
    """Implements ``core.ports.News``. Until the watchdog looks there is an address and no mailbox: nothing is left of a
    coordinator that never held anything."""

    __slots__ = ("_connection", "_lock", "_make", "address")
    polled = True

    def __init__(self, make: Callable[[str], SocketConnection], lock: RLock) -> None:
        self.address = new_name()
        self._make = make
        self._lock = lock
        self._connection: SocketConnection | None = None

    def fileno(self, ready: Callable[[], None]) -> int:
        """Bound anew when somebody has emptied the folder."""
        if self._connection is None or not self._connection.listed:
            self._bind()
        return -1 if self._connection is None else self._connection.fileno()

    def _bind(self) -> None:
        """In the store's lock, which a fork waits for: a child must not inherit a socket that nobody there knows of."""
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
