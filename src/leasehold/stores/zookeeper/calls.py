"""Requests as kazoo sends them, each at most once, and never after it was withdrawn.

kazoo keeps requests in a queue, also while it is not connected, and sends them when it can. It would send one whose
caller has given up long ago. A Call stays harmless then: kazoo takes it for sending by reading its type, and a call
that was withdrawn before that turns into a question that changes nothing. So it is always known whether a request may
have reached the server.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
)

from leasehold._core.light_typing import Any
from leasehold.stores.zookeeper.names import place_prefix, session_name

HARMLESS = Exists("/", None)
EPHEMERAL, EPHEMERAL_SEQUENTIAL = 1, 3
ZXID = struct.Struct("!q")
ZXID_BEFORE = 12  # bytes before the reply: the header ends with the zxid and an error of four bytes


class NotSent(KazooException):  # type: ignore[misc]  # kazoo has no types
    """The request never left, and never will."""


class Unanswered(KazooException):  # type: ignore[misc]  # kazoo has no types
    """The request was sent, and its caller has given up waiting."""


class Call:
    """One request and its reply, in the form that kazoo knows both in. ``finished`` is called once, on the thread that
    settles it, and never blocks."""

    __slots__ = ("_outcome", "_untaken", "finished", "operation", "path", "watcher", "zxid")

    def __init__(self, operation: Any, watcher: Any = None, finished: Callable[[], None] | None = None) -> None:
        self.operation = operation
        self.path = getattr(operation, "path", "")
        self.watcher = watcher  # kazoo registers it when the reply is there
        self.finished = finished
        self.zxid = 0  # the last transaction that the server knew when it answered
        self._untaken = [True]  # whoever removes the element decides
        self._outcome: dict[int, tuple[Any, BaseException | None]] = {}  # and whoever stores the first one here

    # ------------------------------------------------------------ for kazoo

    @property
    def type(self) -> int:
        """kazoo reads it first when it is about to send."""
        if self._untaken:
            self._take()
        return int(self.operation.type)

    def serialize(self) -> Any:
        return self.operation.serialize()

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        (self.zxid,) = ZXID.unpack_from(buffer, offset - ZXID_BEFORE)
        return self.operation.deserialize(buffer, offset)

    def set(self, value: Any = None) -> None:
        self._settle((value, None))

    def set_exception(self, error: BaseException) -> None:
        """The server's refusal; or the connection is lost, and kazoo has dropped the request."""
        self._settle((None, NotSent() if self._take() else error))

    # ------------------------------------------------------------ for us

    def give_up(self) -> None:
        """Its caller waits no longer. It is not sent if that has not happened yet."""
        if self._take():
            self.operation, self.watcher = HARMLESS, None
            self._settle((None, NotSent()))
        else:
            self._settle((None, Unanswered()))

    def result(self) -> Any:
        """Raises what the server answered, ConnectionLoss, NotSent or Unanswered."""
        value, error = self._outcome[0]
        if error is not None:
            raise error
        return value

    def _take(self) -> bool:
        try:
            self._untaken.pop()
        except IndexError:
            return False
        return True

    def _settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        if self._outcome.setdefault(0, outcome) is not outcome:
            return
        finished, self.finished = self.finished, None  # it knows this call, mostly: no cycle is left to be collected
        if finished is not None:
            finished()


# ---------------------------------------------------------------- what is requested


def sync(path: str) -> Call:
    return Call(Sync(path))


def get(path: str, watcher: Any = None, finished: Callable[[], None] | None = None) -> Call:
    """Its result is the data and the Stat; NoNodeError."""
    return Call(GetData(path, watcher), watcher, finished)


def exists(path: str, watcher: Any = None, finished: Callable[[], None] | None = None) -> Call:
    """Its result is the Stat, or None."""
    return Call(Exists(path, watcher), watcher, finished)


def children(path: str) -> Call:
    """Its result is a list of names; NoNodeError."""
    return Call(GetChildren(path, None))


def change(path: str, data: bytes, version: int) -> Call:
    """Its result is the Stat; NoNodeError, BadVersionError."""
    return Call(SetData(path, data, version))


def removal(path: str, finished: Callable[[], None] | None = None) -> Call:
    """NoNodeError."""
    return Call(Delete(path, -1), finished=finished)


def creation(path: str, data: bytes, acl: Sequence[Any], finished: Callable[[], None] | None = None) -> Call:
    """Of a node that goes with the session. Its result is the path and the Stat; NodeExistsError, NoNodeError."""
    return Call(Create2(path, data, acl, EPHEMERAL), finished=finished)


def transaction(operations: Sequence[Any]) -> Call:
    """All or none. Its result has an entry for each: True, a Stat for SetData, the path for Create; when the server
    refused, exceptions."""
    return Call(Transaction(operations))


def own_node(parent: str, acl: Sequence[Any], session: Callable[[], int]) -> Call:
    """Creates the node of the session. Its result is the path and the Stat; NodeExistsError, NoNodeError."""
    return Call(SessionNode(parent, acl, session))


class SessionNode:
    """Creates a node that goes with the session and is named after it. The name is made when it is sent: a new session
    may have begun since the request was made."""

    type = Create2.type

    def __init__(self, parent: str, acl: Sequence[Any], session: Callable[[], int]) -> None:
        self.path = parent
        self._acl = acl
        self._session = session

    def serialize(self) -> Any:
        return Create2(f"{self.path}/{session_name(self._session())}", b"", self._acl, EPHEMERAL).serialize()

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> Any:
        return Create2.deserialize(buffer, offset)


class PlaceNode:
    """The same for a place in the queue of a record; in a transaction."""

    type = Create.type

    def __init__(self, record: str, owner: str, data: bytes, acl: Sequence[Any], session: Callable[[], int]) -> None:
        self.path = record
        self._owner = owner
        self._data = data
        self._acl = acl
        self._session = session

    def serialize(self) -> Any:
        path = f"{self.path}/{place_prefix(self._owner, self._session())}"
        return Create(path, self._data, self._acl, EPHEMERAL_SEQUENTIAL).serialize()


def refusal(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """The first operation that the server refused, and why. None: all were done."""
    errors = [(index, one) for index, one in enumerate(results) if isinstance(one, Exception)]
    for index, error in errors:
        if not isinstance(error, RolledBackError | RuntimeInconsistency):  # those are of its neighbours
            return index, error
    return errors[0] if errors else None
