"""The server of a store: where it is, the first commands on a connection to it, and how many connections are open."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from leasehold._core.driver import drive
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import failures
from leasehold.stores.redis.handshake import Handshake
from leasehold.stores.redis.sockets import Broken, RedisSocket
from leasehold.stores.redis.target import Target

if TYPE_CHECKING:
    from leasehold.stores.redis.loop_socket import AsyncRedisSocket

SLOW_REPLY = 0.5  # seconds: a server that took longer may have stood still, and another be the right one by now


class Server:
    """The one server of a store, as all its connections share it. What finds the server anew for each connection, such
    as Sentinel, overrides ``locate``, ``confirms`` and what belongs to them."""

    store_name = "redis"  # as a table of guarantees has it: a server that Sentinels name promises something else
    trouble = ""  # why the last attempt of an event loop failed, while there are others

    def __init__(self, target: Target) -> None:
        self.target = target  # the settings of every connection; ``locate`` may give it another host and port
        self.closed = False
        self.checked = False  # its configuration, by the first handshake
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()  # sockets that count for max_connections
        self._opening = 0
        self._lock = threading.RLock()  # a signal handler may open a connection while its thread is in here

    @property
    def place(self) -> str:
        """Where the store is, for messages."""
        return str(self.target)

    @property
    def name(self) -> str:
        """As errors name it."""
        return self.target.server

    @property
    def url(self) -> str:
        """Where the store is, as a URL without login and options."""
        return self.target.url

    @property
    def believed_for(self) -> float:
        """Seconds until a connection in use asks whether its server is still the right one."""
        return math.inf

    def locate(self, give_up: float) -> Target:
        """Where to connect now."""
        return self.target

    async def locate_async(self) -> Target:
        """The same, without blocking the event loop. The caller limits the time."""
        return self.target

    def confirms(self, target: Target, give_up: float, now: bool = False) -> bool:
        """Whether the server there is still the right one. ``now``: nothing that was learnt before counts."""
        return True

    async def confirms_async(self, target: Target, now: bool = False) -> bool:
        """The same, without blocking the event loop."""
        return True

    def distrust(self) -> None:
        """A connection was left: its server may stand still. What was learnt about it before does not count any more,
        for no other connection either."""

    def handshake(self, target: Target, channel: str) -> Handshake:
        """That of a new connection."""
        return Handshake(target, channel, first=not self.checked)

    def refusal(self, reply: BaseException) -> LeaseholdError:
        """An error reply as an error of ours."""
        return failures.refusal(self.name, reply)

    def open(self, channel: str, give_up: float, pushes: deque[Any]) -> tuple[RedisSocket, bool]:
        """A new socket that appends its pushes there, and whether it receives any."""
        if self.closed:
            raise StoreUnavailable(f"the store of {self.place} is closed")
        give_up = min(give_up, time.monotonic() + self.target.connect_timeout)
        target = self.locate(give_up)
        try:
            socket = RedisSocket(target, give_up, pushes)
        except Broken as error:
            raise failures.unreachable(self.name, error) from error
        try:
            flow = self.handshake(target, channel).flow()
            gets_pushes = drive(flow, lambda commands: socket.exchange_many(commands, give_up))
        except BaseException:
            socket.close()
            raise
        self.checked = True
        return socket, gets_pushes

    async def open_async(self, attempt: Callable[[Target], Awaitable[AsyncRedisSocket]]) -> AsyncRedisSocket:
        """A new socket of an event loop, which ``attempt`` opens there. The caller limits the time."""
        return await attempt(await self.locate_async())

    @contextmanager
    def counted(self, counts: bool = True) -> Iterator[Callable[[Any], None]]:
        """Open a socket that counts for ``max_connections``, and pass it to what this yields. It is refused rather than
        waited for: the threads that have the other connections may be waiting for what this one would release."""
        most = self.target.max_connections
        if most is None or not counts:
            yield lambda socket: None
            return
        with self._lock:
            if self._opening + sum(socket.usable() for socket in list(self._open)) >= most:
                raise failures.TooManyConnections(
                    f"nothing was sent to {self.name}: {most} connections are open, and max_connections "
                    "allows no more. Allow as many as threads and event loops use locks at a time"
                )
            self._opening += 1
        try:
            yield self._open.add
        finally:
            with self._lock:
                self._opening -= 1

    def close(self) -> None:
        """Open no connection from now on."""
        self.closed = True

    def forked(self) -> None:
        """In the child: no socket is open, and no thread holds the lock."""
        self._open, self._opening, self._lock = weakref.WeakSet(), 0, threading.RLock()
