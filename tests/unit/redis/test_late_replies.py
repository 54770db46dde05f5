"""A server that stood still and may have been replaced: neither its late replies nor its pushes are believed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import pytest

from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.stores.redis import clients, failures, watchdog_connection
from leasehold.stores.redis.connection import RedisConnection
from leasehold.stores.redis.loop_connection import LoopConnection
from leasehold.stores.redis.loop_socket import AsyncRedisSocket
from leasehold.stores.redis.server import SLOW_REPLY, Server
from leasehold.stores.redis.target import Target
from leasehold.stores.redis.watchdog_connection import WatchdogConnection
from tests.support.tables import each

PUSH = [b"message", b"channel", b"granted 5 1 1500 0 owner job"]


class Replaced(Server):
    """Another server is the right one by now, or not."""

    right = False

    @property
    def believed_for(self) -> float:
        """Long enough."""
        return 60.0

    def confirms(self, target: Target, give_up: float, now: bool = False) -> bool:
        """Always the same."""
        return self.right

    async def confirms_async(self, target: Target, now: bool = False) -> bool:
        """The same."""
        return self.right


class Slow:
    """A thread's socket, whose reply comes after so many seconds, and a push before it."""

    target, busy = Target(), False

    def __init__(self, seconds: float, pushes: deque[Any]) -> None:
        self._pushes = pushes
        self._seconds = seconds
        self.used = time.monotonic()

    def exchange(self, request: bytes, give_up: float) -> Any:
        """As if it had been sent that long ago."""
        self._pushes.append(PUSH)
        self.used = time.monotonic() - self._seconds
        return b"PONG"

    def exchange_into(self, replies: list[Any], commands: list[Any], give_up: float) -> None:
        """They arrive together."""
        replies += [b"PONG"] * len(commands)

    def receive_pushes(self) -> None:
        """None but the one above."""

    def close(self) -> None:
        """Nothing is open."""


def connection(seconds: float, right: bool) -> RedisConnection:
    """One that is open."""
    server = Replaced(Target())
    server.right = right
    found = RedisConnection(server)
    slow: Any = Slow(seconds, found._pushes)
    found.use(slow, True)
    return found


def test_a_late_reply_of_a_thread_is_not_believed() -> None:
    """Unless the server is still the right one; one that was not late is believed in any case."""
    late = connection(SLOW_REPLY + 0.1, right=False)
    with pytest.raises(OutcomeUnknown, match="answered late, and is not certain to be the primary any more"):
        late.execute_command(("PING",), 5)
    assert not late._pushes and late._socket is None
    for seconds, right in ((SLOW_REPLY + 0.1, True), (0.0, False)):
        believed = connection(seconds, right)
        assert believed.execute_command(("PING",), 5) == b"PONG" and believed._pushes


def test_a_late_renewal_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has arrived is read even when the time is over. All renewals of that round are tried again."""
    monkeypatch.setattr(watchdog_connection, "SLOW_REPLY", -1.0)  # every reply is late
    for right in (True, False):
        watchdog = WatchdogConnection(Replaced(Target()))
        watchdog._connection = connection(0.0, right)
        one, other = watchdog._send([("PING",), ("PING",)], time.monotonic() + 5)
        if right:
            assert (one, other) == (b"PONG", b"PONG")
        else:
            assert isinstance(one, OutcomeUnknown) and one is other


class Waiting(AsyncRedisSocket):
    """An event loop's socket, with a request that was sent so many seconds ago."""

    def __init__(self, connection: LoopConnection, seconds: float) -> None:
        super().__init__(connection._pushed, lambda socket: None, lambda socket: None, 60)
        now = self._loop.time()
        self._waiting.append((self._loop.create_future(), now + 60, now - seconds))


@each(("seconds", "watched", "told"), [(1.0, True, 0), (0.1, True, 1), (1.0, False, 1)])
def test_a_push_before_a_late_reply_is_not_believed(seconds: float, watched: bool, told: int) -> None:
    """On an event loop it would be told at once; it is only a hint, and the reply that follows is checked. A server
    that cannot be replaced is always believed."""

    async def play() -> int:
        pushes: list[Any] = []
        server = Replaced(Target()) if watched else Server(Target())
        loops = LoopConnection(server, pushes.append, lambda _: None)
        loops._channel = "channel"
        loops._open.add(Waiting(loops, seconds))
        loops._check_at = loops._loop.time() + server.believed_for
        loops._pushed(PUSH)
        return len(pushes)

    assert asyncio.run(play()) == told


def test_a_sentinel_client_that_does_not_repeat_was_refused() -> None:
    """redis-py turns READONLY into an error of the connection. Nothing was done, unless an earlier attempt did it."""
    error = ConnectionError("The previous master is now a slave")
    assert isinstance(clients.explained("Redis", error, retries=False), StoreUnavailable)
    assert isinstance(clients.explained("Redis", error, retries=True), OutcomeUnknown)


def test_a_server_that_may_have_been_replaced_says_so_itself() -> None:
    """As a reply of its own, or from within a script."""
    for word in ("READONLY", "MASTERDOWN", "NOREPLICAS"):
        assert failures.demoted(Exception(f"{word} this is not possible now"))
        assert failures.demoted(Exception(f"ERR Error running script: -{word} this is not possible now"))
    assert not failures.demoted(Exception("OOM command not allowed"))
