"""Connections for the threads of one coordinator. Each flow borrows one and gives it back for the next.

A push for an earlier owner of the connection is read and dropped: pushes are hints, and each names its owner. The
uncontended path only takes a connection from the list and puts it back.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING, Callable
from leasehold._core.ops import WAKE, Push

if TYPE_CHECKING:
    from weakref import WeakSet

    from leasehold._core.ports import Clock, Connection, Store
else:
    from _weakrefset import WeakSet  # ``weakref`` itself has more in it, which takes time to load

MOST_IDLE = 64


class ConnectionPool:
    """The connections of the threads of one coordinator."""

    def __init__(self, store: Store, connecting: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._connecting = connecting  # called before a connection is opened
        # Weakly: one that an interrupt kept from being given back is collected, and ends so.
        self._open: WeakSet[Connection] = WeakSet()
        self._idle: list[Connection] = []  # those that are not borrowed
        self._parents: WeakSet[Connection] | None = None  # in a forked child: those that are closed here

    def borrow(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            self._connecting()
            connection = self._store.connection()
        self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        if self._parents is not None and connection in self._parents:
            return  # by a call of the parent that ends in the child
        if len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            self._open.discard(connection)
            connection.close()

    def close(self) -> None:
        """Also those that are borrowed: the store can no longer reach a waiter there, and passes it over."""
        for connection in list(self._open):
            connection.close()
        self._idle = []

    def forked(self) -> None:
        """In the child. A call of the parent that goes on here must send nothing: a second copy of its claim could be
        granted after the parent has released, and nobody would hold that lease."""
        parents = self._open
        for connection in list(parents):
            connection.close()  # the store has dropped its socket: this tells the parent's server nothing
        self._parents = parents if self._parents is None else parents | self._parents
        self._idle = []
        self._open = WeakSet()


def next_push(connection: Connection, clock: Clock, owner: str, until: float) -> Push | None:
    """Wait on the calling thread for a push to this owner, until a time on the local clock or until the store
    asks for a beat."""
    while True:
        push = connection.next_push(clock.nap(until))
        if push is not None and push.owner == owner:
            return push
        if push is WAKE or clock.now() >= until:
            return None
