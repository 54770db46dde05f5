"""The idle connections, for threads and event loops alike: each call takes one, and gives it back."""

from __future__ import annotations

import threading
import weakref

from leasehold.stores.etcd.connection import Connection
from leasehold.stores.etcd.urls import Endpoint

MOST_IDLE = 8  # of one member


class Pool:
    """A connection that was not finished with is closed when it is given back."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come here in the middle of a call
        self._idle: dict[Endpoint, list[Connection]] = {}
        self._all: weakref.WeakSet[Connection] = weakref.WeakSet()

    def take(self, endpoint: Endpoint) -> Connection | None:
        """The one that was used last, so that those that are not needed go stale."""
        while True:
            with self._lock:
                idle = self._idle.get(endpoint)
                connection = idle.pop() if idle else None
            if connection is None or connection.usable():
                return connection
            connection.close()

    def add(self, connection: Connection) -> None:
        """A new one, which a fork must find while it is in use."""
        with self._lock:
            self._all.add(connection)

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            if not connection.busy and connection in self._all:  # else it was closed, or is the parent's
                idle = self._idle.setdefault(connection.endpoint, [])
                if len(idle) < MOST_IDLE:
                    idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Those in use are closed when they are given back."""
        with self._lock:
            closing = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
            self._all.clear()
        for connection in closing:
            connection.close()

    def close_copies(self) -> None:
        """In a forked child, whose parent may have held the lock."""
        inherited = list(self._all)
        self._start()
        for connection in inherited:
            connection.close_copy()
