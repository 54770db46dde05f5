"""kazoo's client as we use it: one thread, which sends, receives and calls us back.

kazoo brings the session, its pings, the reconnection and the login. Its worker threads, its retries and its own results
are not used: a Call is its own result, and callbacks run on the thread that receives, since ours never block.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SASLException, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState

from leasehold._core.light_typing import Any
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.target import Target

CONNECT_WITHIN = 3.0  # seconds for one member: kazoo would wait for a silent one until the session is over
SHORTEST_PATIENCE = 1.0  # seconds for the answer to the first request
# Between attempts to connect to any member, for ever. kazoo's own pauses grow to an hour.
PAUSES = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.3, "max_delay": 1.0}


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Without threads of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = ""  # why the last attempt to connect failed

    def start(self) -> None:
        """There are no workers."""

    def stop(self) -> None:
        """There are no workers."""

    if hasattr(select, "poll"):

        def select(self, reads: Any, writes: Any, _: Any, timeout: float | None = None) -> Any:
            """kazoo's own makes and closes an epoll object for each request."""
            poll = select.poll()
            for one in reads:
                poll.register(one, select.POLLIN)
            for one in writes:
                poll.register(one, select.POLLOUT)
            ready = {number for number, _ in poll.poll(None if timeout is None else max(timeout, 0) * 1000)}
            return [one for one in reads if one.fileno() in ready], [one for one in writes if one.fileno() in ready], []

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Through these kazoo's thread is woken, by a byte for each request. Nobody may block here: not an event loop,
        and least of all that thread itself."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        return reader, writer

    def dispatch_callback(self, callback: Any) -> None:
        """On the thread that receives."""
        callback.func(*callback.args)

    def create_connection(
        self, address: tuple[str, int], hostname: str = "", timeout: float = CONNECT_WITHIN, **more: Any
    ) -> socket.socket:
        """kazoo's own leaves a socket open when TLS fails."""
        found = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            if more.get("use_ssl"):
                found = _with_tls(found, hostname, **more)
            found.settimeout(min(timeout, CONNECT_WITHIN))
            found.connect(address)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            found.close()
            self.trouble = " ".join(str(error.strerror or error).split())
            raise
        self.trouble = ""
        return found


def _with_tls(unconnected: socket.socket, hostname: str, **settings: Any) -> socket.socket:
    context = ssl.create_default_context(cafile=settings["ca"])
    if settings["ca"]:
        context.load_default_certs()  # kazoo trusts both
    context.check_hostname = settings["check_hostname"]
    context.verify_mode = ssl.CERT_REQUIRED if settings["verify_certs"] else ssl.CERT_NONE
    if settings["certfile"] and settings["keyfile"]:
        context.load_cert_chain(settings["certfile"], settings["keyfile"], settings["keyfile_password"])
    return context.wrap_socket(unconnected, server_hostname=hostname)


class Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Keeps the length of the session that the server has granted, which kazoo only logs; and never blocks whoever adds
    a request."""

    session_ms = 0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._owed: deque[int] = deque()  # bytes that found no room, and are still to be written

    def wake(self, requests: int) -> None:
        """So many were added. Raises OSError or AttributeError when it is closed."""
        try:
            written = self._write_sock.send(b"\0" * requests)
        except BlockingIOError:
            written = 0
        if written < requests:
            self._owed.append(requests - written)

    def _write(self, message: Any, timeout: float) -> None:
        """Mostly there is room: kazoo asks first, each time."""
        sent = 0
        if not isinstance(self._socket, ssl.SSLSocket):
            with self._socket_error_handling(), suppress(BlockingIOError):
                sent = self._socket.send(message)
        if sent < len(message):
            super()._write(memoryview(message)[sent:], timeout)

    def _read(self, length: int, timeout: float) -> Any:
        """Mostly it is there: the same."""
        part = b""
        if not isinstance(self._socket, ssl.SSLSocket):
            with self._socket_error_handling(), suppress(BlockingIOError):
                part = self._socket.recv(length)
                if not part:
                    raise ConnectionDropped("socket connection broken")
        return part if len(part) == length else part + super()._read(length - len(part), timeout)

    def _authenticate_with_sasl(self, *given: Any) -> None:
        """kazoo's thread would end with what it does not know."""
        try:
            super()._authenticate_with_sasl(*given)
        except (ZookeeperError, SASLException) as error:
            raise AuthFailedError(str(error)) from error

    def _send_request(self, *given: Any) -> None:
        super()._send_request(*given)  # this has made room
        with suppress(IndexError):
            self.wake(self._owed.popleft())

    def _invoke(self, timeout: float, *given: Any, **more: Any) -> Any:
        """A member that starts may never answer the first request: another attempt must fit into the session."""
        patience = max(self.client._session_timeout / 3000, SHORTEST_PATIENCE)
        result = super()._invoke(min(timeout, CONNECT_WITHIN, patience), *given, **more)
        if isinstance(result, tuple):
            self.session_ms = result[0].time_out
        return result


class Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """Begins to connect with ``start_async``, and ends with ``end`` or ``drop_copy``."""

    def __init__(self, target: Target) -> None:
        super().__init__(
            hosts=target.hosts,
            timeout=target.session_seconds,
            handler=Handler(),
            auth_data=set(target.auth) or None,
            connection_retry=PAUSES,
            command_retry={"max_tries": 0},
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
            self._connection.wake(len(calls))
        except (OSError, AttributeError):  # kazoo has closed its socket, or it is gone
            for call in calls:
                call.give_up()
        except BaseException:  # an interrupt: kazoo must not count fewer bytes than requests
            for call in calls:
                call.give_up()
            with suppress(OSError, AttributeError):
                self._connection.wake(len(calls))
            raise

    def forget_watch(self, path: str, watcher: Any) -> None:
        """It is not called any more. The server tells us still, once."""
        watchers = self._data_watchers.get(path)
        if watchers is not None:
            watchers.discard(watcher)

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
