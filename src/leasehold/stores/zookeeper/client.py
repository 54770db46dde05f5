"""kazoo's client as we use it: one thread, which sends, receives and calls us back.

kazoo brings the session, its pings, the reconnection and the login. Its worker threads, its retries and its own results
are not used: a Call is its own result, and callbacks run on the thread that receives, since ours never block.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.protocol.states import KeeperState

from leasehold._core.light_typing import Any
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.connection import Connection, Handler
from leasehold.stores.zookeeper.ensemble import Ensemble
from leasehold.stores.zookeeper.target import TLS_NAMES, Target

MOST_BYTES = 4096  # of the answer to srvr that are read: its version comes first
# Between attempts to connect to any member, for ever. kazoo's own pauses grow to an hour.
PAUSES = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.3, "max_delay": 1.0}
# What kazoo says about connections. A program's logging decides whether anybody sees it. Where none is configured it is
# not printed, because our errors say what happened.
logger = logging.getLogger("leasehold.zookeeper")
logger.addHandler(logging.NullHandler())


class Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """Begins to connect with ``start_async``, and ends with ``end`` or ``drop_copy``."""

    def __init__(self, target: Target, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        super().__init__(
            hosts=target.hosts,
            timeout=target.session_seconds,
            handler=Handler(),
            auth_data=set(target.auth) or None,
            connection_retry=PAUSES,
            command_retry={"max_tries": 0},
            logger=logger,
            **target.tls,
        )
        sasl = dict(target.sasl) if target.sasl else None
        self._connection = Connection(self, self._conn_retry.copy(), logger=self.logger, sasl_options=sasl)

    @property
    def session(self) -> int:
        """The id of the session that requests belong to which are sent now."""
        return self._session_id or 0

    @property
    def session_seconds(self) -> float:
        """How long the server keeps the session of a client that is silent; what was requested, until it is known."""
        return (self._connection.session_ms or self._session_timeout) / 1000

    @property
    def ended_itself(self) -> bool:
        """It does not connect again: the login was refused, or kazoo met something that it does not know."""
        thread = self._connection._connection_routine
        return self._state == KeeperState.AUTH_FAILED or (thread is not None and not thread.is_alive())

    def send(self, calls: Sequence[Call]) -> None:
        """Never blocks. What cannot be sent is given up."""
        try:
            if self._state in CLOSED_STATES:
                raise OSError("the client is closed")  # handled as that of a socket that is closed
            self._queue.extend([(call, call) for call in calls])
            if self._connection.reader != threading.get_ident():
                self._connection.wake()
        except (OSError, AttributeError):  # kazoo has closed its socket, or it is gone
            for call in calls:
                call.give_up()
        except BaseException:  # an interrupt: kazoo's thread must know of them
            for call in calls:
                call.give_up()
            with suppress(OSError, AttributeError):
                self._connection.wake()
            raise

    def forget_watch(self, path: str, watcher: Any) -> None:
        """It is not called any more. The server tells us still, once."""
        watchers = self._data_watchers.get(path)
        if watchers is not None:
            watchers.discard(watcher)

    def server_version_by(self, give_up: float) -> str:
        """As the member says that we are connected to, in answer to ``srvr``, which every one allows unless it was
        told not to. Over a connection of its own: empty when there is no answer in time."""
        try:
            peer = self._connection._socket.getpeername()[:2]
            tls = {name: getattr(self, name) for name in TLS_NAMES} | {"check_hostname": False}  # checked already
            seconds = max(give_up - time.monotonic(), 0.001)
            with self.handler.create_connection(peer, peer[0], seconds, **tls) as asked:
                asked.sendall(b"srvr")
                answer = asked.recv(MOST_BYTES).decode("utf-8", "replace")
        except (OSError, AttributeError):
            return ""
        found = re.match(r"Zookeeper version: (\d+(?:\.\d+)+)", answer)
        return found[1] if found else ""

    # ------------------------------------------------------------ its end

    def hang_up(self) -> None:
        """Break the connection: kazoo notices, and looks for another member unless it was stopped."""
        connection = self._connection._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def drop_copy(self) -> None:
        """In a forked child: close the copies of the sockets. Nothing is sent, and the parent's session goes on. A call
        that was forked in its middle ends now: its reply is the parent's."""
        connection = self._connection
        for one in (connection._socket, connection._read_sock, connection._write_sock):
            if one is not None:
                with suppress(OSError):
                    socket.close(one.detach())
        for call in [entry[1] for entry in (*self._pending, *self._queue)]:
            if isinstance(call, Call) and call.watcher is None:  # the parent's watches do not fire here
                call.give_up()
