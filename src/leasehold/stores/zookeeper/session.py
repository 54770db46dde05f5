"""The session of this process: begun by the first request, and anew when it has ended.

Its state is the client's. SUSPENDED is unsure: the session may live on, and requests wait for the connection. LOST: the
server has ended the session, its places are gone, and kazoo begins another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from kazoo.protocol.states import KazooState, KeeperState

from leasehold.stores.clock import SystemClock
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.client import Client
from leasehold.stores.zookeeper.ensemble import Ensemble
from leasehold.stores.zookeeper.target import Target

CLOSED_WITHIN = 2.0  # seconds for the server to confirm that the session is ended
# A client that was away for so many times its session has none any more. kazoo would try for ever with a server that
# has forgotten what the client has seen: one that was restored from a backup refuses it each time.
GONE_AFTER = 3.0
clock = SystemClock()


class Session:
    """Any thread may call it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ensemble = Ensemble(target, self.send)
        self.closings = 0  # how often it was closed
        self.refusals = 0  # how often the server did not accept the login
        self._wall_us = 0  # the server's wall clock minus the time since boot of this machine
        # Called on kazoo's thread. ``joined``: connected, maybe in a new session.
        self.on_joined: Callable[[], None] = _nothing
        self.on_lost: Callable[[], None] = _nothing
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._ending: list[Client] = []  # the server has not confirmed their ends yet
        self._waiting: list[Callable[[], None]] = []
        self._away_since: float | None = None
        self.seen = 0  # the last transaction that is known to this process
        self.prepared = 0  # the session for which the tree was checked

    # ------------------------------------------------------------ its client

    @property
    def id(self) -> int | None:
        """Of the session that this process has now."""
        client = self._client
        return client.session if client is not None and client.connected else None

    @property
    def connected(self) -> bool:
        client = self._client
        return client is not None and bool(client.connected)

    @property
    def seconds(self) -> float:
        client = self._client
        return self._target.session_seconds if client is None else client.session_seconds

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed, as well as it is known."""
        client = self._client
        return "" if client is None else str(client.handler.trouble)

    def server_version(self, give_up: float) -> str:
        """Of the member that this process is connected to; empty where it does not tell."""
        client = self._client
        return "" if client is None else client.server_version_by(give_up)

    def current(self) -> int:
        """The id of the session, for a request that is about to be sent: on kazoo's thread."""
        client = self._client
        return 0 if client is None else client.session

    def begin(self, closings: int) -> bool:
        """Connect, unless that was begun; without waiting for it. False if it was closed since ``closings``."""
        if self._client is not None and not self._is_gone(self._client):
            return self.closings == closings
        with self._lock:
            if self.closings != closings:
                return False
            old = self._client
            if old is not None:
                if not self._is_gone(old):
                    return True
                self._end_later(old)
            client = Client(self._target, self._ensemble)
            client.add_listener(lambda state: self._changed(client, state))
            self._client, self._away_since = client, time.monotonic()
            self.seen = self.prepared = 0
            client.start_async()
        return True

    def _is_gone(self, client: Client) -> bool:
        """It never comes back by itself."""
        return not client.connected and (client.ended_itself or time.monotonic() >= self.gone_at)

    @property
    def gone_at(self) -> float:
        """When a client that is away is replaced by another."""
        client, away = self._client, self._away_since
        return inf if client is None or away is None else away + GONE_AFTER * client.session_seconds

    def when_connected(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, at the latest when that is so, or when it cannot be any more."""
        with self._lock:
            self._waiting.append(wake)
        client = self._client
        if client is None or client.connected or client.ended_itself:
            self._wake_all()

    def forget(self, wake: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    # ------------------------------------------------------------ requests

    def send(self, calls: Sequence[Call]) -> None:
        """Returns at once. Without a connection they are given up."""
        client = self._client
        if client is None or not client.connected:
            for call in calls:
                call.give_up()
        else:
            client.send(calls)

    def forget_watch(self, path: str, watcher: Callable[..., None]) -> None:
        client = self._client
        if client is not None:
            client.forget_watch(path, watcher)

    def saw(self, zxid: int) -> None:
        self.seen = max(self.seen, zxid)

    def follow_members(self) -> None:
        """Learn who the members of the ensemble are; on a connection that is known to do what is requested."""
        self._ensemble.follow()

    # ------------------------------------------------------------ the server's clock

    def set_clock(self, wall_ms: int) -> None:
        """The leader's time of a write that was just confirmed."""
        self._wall_us = wall_ms * 1000 - int(clock.now() * 1_000_000)

    def wall_us(self) -> int:
        if self._wall_us == 0:  # it has not written yet
            return time.time_ns() // 1000
        return self._wall_us + int(clock.now() * 1_000_000)

    # ------------------------------------------------------------ on kazoo's thread

    def _changed(self, client: Client, state: str) -> None:
        if client is not self._client:
            return
        if state == KazooState.CONNECTED:
            self._away_since = None
            if self.prepared == client.session:
                self.follow_members()
            self.on_joined()
        else:
            self._away_since = time.monotonic()
            self.refusals += client.client_state == KeeperState.AUTH_FAILED
            self.on_lost()
        if state != KazooState.SUSPENDED:
            self._wake_all()

    def _wake_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    # ------------------------------------------------------------ its end

    def close(self) -> None:
        """End the session, if the server can be told within a moment. The next request begins another."""
        with self._lock:
            client, self._client = self._client, None
            self.closings += 1
        if client is None:
            return
        self.on_lost()
        self._wake_all()
        ending = self._end_later(client)
        ending.join(CLOSED_WITHIN)
        if ending.is_alive():
            client.hang_up()
            ending.join(CLOSED_WITHIN)

    def forked(self) -> None:
        """In the child: the session is the parent's."""
        clients, waiting = [*self._ending, *filter(None, [self._client])], self._waiting
        self._start()
        self.closings += 1
        for client in clients:
            inherited.append(client)
            client.drop_copy()
        for wake in waiting:
            wake()

    def _end_later(self, client: Client) -> threading.Thread:
        """kazoo waits until the server has confirmed the end, which may be long."""
        self._ending.append(client)
        ending = self._ending

        def end() -> None:
            with suppress(Exception):
                client.stop()
            with suppress(Exception):
                client.close()
            ending.remove(client)

        thread = threading.Thread(target=end, name="leasehold-zookeeper-end", daemon=True)
        thread.start()
        return thread


inherited: list[Client] = []  # clients of the parent: nothing of theirs runs in this process, not even a destructor


def _nothing() -> None:
    """Nobody wants to know."""
