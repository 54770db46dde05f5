"""kazoo's connection as we use it: its thread sends what is waiting together, and reads what has come together.

kazoo's loop asks the sockets before each request and each reply, and for each it does much that we have no use for. So
its ``select`` does what concerns our calls and watches itself, and returns to kazoo's loop for all else: when there is
something that kazoo has requested, when it is time for a ping, and when the connection breaks.
"""

from __future__ import annotations

import random
import select
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress

from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionDropped,
    NoNodeError,
    SASLException,
    ZookeeperError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Exists

from leasehold._core.light_typing import Any
from leasehold.stores.zookeeper.calls import Call

CONNECT_WITHIN = 3.0  # seconds for one member: kazoo would wait for a silent one until the session is over
MOST_READ = 65_536  # bytes that are read at once
MOST_TOGETHER = 64  # requests in one write
MOST_XID = 2**31 - 1
REQUEST = struct.Struct("!iii")  # the length of what follows, the number of the request, and its type
REPLY = struct.Struct("!iiqi")  # the length of what follows, the number of the request, the zxid, and an error
LENGTH = struct.Struct("!i")
SHORTEST_PATIENCE = 1.0  # seconds for the answer to the first request


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Without threads of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = ""  # why the last attempt to connect failed
        self.serve: Any = None  # of the connection

    def start(self) -> None:
        """There are no workers."""

    def stop(self) -> None:
        """There are no workers."""

    if hasattr(select, "poll"):

        def select(self, reads: Any, writes: Any, _: Any, timeout: float | None = None) -> Any:
            """kazoo's own makes and closes an epoll object for each request."""
            if len(reads) == 2 and timeout is not None and not isinstance(reads[0], ssl.SSLSocket):
                return self.serve(*reads, timeout), [], []
            poll = select.poll()
            for one in reads:
                poll.register(one, select.POLLIN)
            for one in writes:
                poll.register(one, select.POLLOUT)
            ready = {number for number, _ in poll.poll(None if timeout is None else max(timeout, 0) * 1000)}
            return [one for one in reads if one.fileno() in ready], [one for one in writes if one.fileno() in ready], []

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Through these kazoo's thread is woken, by a byte. Nobody may block here: not an event loop, and least of all
        that thread itself."""
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
                found = with_tls(found, hostname, **more)
            found.settimeout(min(timeout, CONNECT_WITHIN))
            found.connect(address)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            found.close()
            self.trouble = " ".join(str(error.strerror or error).split())
            raise
        self.trouble = ""
        return found


def with_tls(unconnected: socket.socket, hostname: str, **settings: Any) -> socket.socket:
    context = ssl.create_default_context(cafile=settings["ca"])
    if settings["ca"]:
        context.load_default_certs()  # kazoo trusts both
    context.check_hostname = settings["check_hostname"]
    context.verify_mode = ssl.CERT_REQUIRED if settings["verify_certs"] else ssl.CERT_NONE
    if settings["certfile"] and settings["keyfile"]:
        context.load_cert_chain(settings["certfile"], settings["keyfile"], settings["keyfile_password"])
    return context.wrap_socket(unconnected, server_hostname=hostname)


class Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Also keeps the length of the session that the server has granted, which kazoo only logs; and never blocks whoever
    adds a request."""

    session_ms = 0
    reader = 0  # the thread that reads, while it does
    _last_xid = 0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.handler.serve = self._serve
        self._read_from: Any = None  # the socket that the next bytes were read from
        self._next_bytes = b""

    @property
    def _xid(self) -> int:
        """The number of the last request. kazoo begins anew with each connection, but numbers go on for as long as the
        session does: a member tells which request a transaction belongs to by its session and its number alone. One
        that was sent through another member, and comes late, would be taken for a new request of the same number."""
        return self._last_xid

    @_xid.setter
    def _xid(self, number: int | None) -> None:
        self._last_xid = number or self._last_xid

    # ------------------------------------------------------------ the loop

    def _serve(self, server: socket.socket, wakes: socket.socket, timeout: float) -> list[socket.socket]:
        """Until there is something for kazoo, for so many seconds at most."""
        poll = select.poll()
        poll.register(server, select.POLLIN)
        poll.register(wakes, select.POLLIN)
        number = server.fileno()
        until = time.monotonic() + timeout
        while True:
            ready = [one for one, _ in poll.poll(max(until - time.monotonic(), 0) * 1000)]
            if not ready:
                return []
            if number in ready and not self._receive(timeout):
                return [server]
            if wakes.fileno() in ready and not self._send_waiting(timeout):
                return [wakes]

    # ------------------------------------------------------------ sending

    def wake(self) -> None:
        """Something was added. Raises OSError or AttributeError when it is closed. When there is no room the thread has
        not read yet that it is woken, and takes all that is there when it has."""
        with suppress(BlockingIOError):
            self._write_sock.send(b"\0")

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """All that are waiting."""
        if not self._send_waiting(connect_timeout):
            super()._send_request(read_timeout, connect_timeout)
            if self.client._queue:
                self.wake()

    def _send_waiting(self, timeout: float) -> bool:
        """False when the next request is kazoo's own, which it sends itself."""
        self._read_sock.recv(MOST_READ)  # first: whoever adds something afterwards wakes us after that
        self._send(timeout)
        if not self.client._queue:
            return True
        self.wake()  # kazoo reads a byte for each request
        return False

    def _send(self, timeout: float) -> None:
        """Requests of ours that come next, in one write: kazoo sends one after the other."""
        while True:
            calls = self._taken()
            if not calls:
                return
            self.client._pending.extend(calls)  # first: if it fails, they may have been sent
            self._write(b"".join([_packet(call, xid) for call, _, xid in calls]), timeout)

    def _taken(self) -> list[tuple[Call, Call, int]]:
        queue = self.client._queue
        calls: list[tuple[Call, Call, int]] = []
        while queue and type(queue[0][0]) is Call and len(calls) < MOST_TOGETHER:
            call, _ = queue.popleft()
            self._xid = (self._xid % MOST_XID) + 1
            calls.append((call, call, self._xid))
        return calls

    def _write(self, message: Any, timeout: float) -> None:
        """Mostly there is room: kazoo asks first, each time."""
        sent = 0
        if not isinstance(self._socket, ssl.SSLSocket):
            with self._socket_error_handling(), suppress(BlockingIOError):
                sent = self._socket.send(message)
        if sent < len(message):
            super()._write(memoryview(message)[sent:], timeout)

    # ------------------------------------------------------------ receiving

    def _receive(self, timeout: float) -> bool:
        """What has come. What is requested in reply to it is sent at the end. False when there is something for kazoo:
        a reply to what it has requested, or the end of the connection, which it finds as well."""
        self._begin()
        try:
            more = self._socket.recv(MOST_READ)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._next_bytes += more
        return self._answer_all(timeout) and bool(more)

    def _begin(self) -> None:
        if self._read_from is not self._socket:
            self._read_from, self._next_bytes = self._socket, b""

    def _answer_all(self, timeout: float) -> bool:
        """Every reply to a call of ours, and every event, that has come whole. False when something else comes next."""
        data, at, ours = self._next_bytes, 0, True
        self.reader = threading.get_ident()
        try:
            while ours and len(data) - at >= LENGTH.size:
                end = at + LENGTH.size + LENGTH.unpack_from(data, at)[0]
                if len(data) < end:
                    break
                ours = self._answer(data, at)
                at = end if ours else at
        finally:
            self.reader = 0
            self._next_bytes = data[at:]
        self._send(timeout)
        return ours

    def _answer(self, data: bytes, at: int) -> bool:
        """As kazoo does. False for what is not a call of ours, nor an event. If a reply is missing, nothing that comes
        after it is believed."""
        client = self.client
        _, xid, zxid, error = REPLY.unpack_from(data, at)
        at += REPLY.size
        if xid == WATCH_XID:
            self._read_watch_event(data, at)
            return True
        if xid < 0 or not client._pending or type(client._pending[0][0]) is not Call:
            return False
        if client._pending[0][2] != xid:
            raise ConnectionDropped("a reply is missing")
        call = client._pending.popleft()[0]
        if zxid > 0:
            client.last_zxid = zxid
        if error and not (error == NoNodeError.code and call.type == Exists.type):
            call.set_exception(EXCEPTIONS[error]())
            return True
        try:
            value = None if error else call.deserialize(data, at)
        except Exception as failure:  # it is no reply of ZooKeeper's, and the caller is told
            call.set_exception(failure)
            return True
        call.set(value)
        if call.watcher is not None and not client._stopped.is_set():
            client._data_watchers[call.path].add(call.watcher)
        return True

    def _read_socket(self, read_timeout: float) -> Any:
        """What concerns kazoo, and what has come with it."""
        response = None
        self._begin()
        while response is None and (not self._next_bytes or not self._answer_all(read_timeout)):
            response = super()._read_socket(read_timeout)
            if not self._next_bytes:
                break
        return response

    def _read(self, length: int, timeout: float) -> Any:
        """Mostly it is there, and more with it."""
        self._begin()
        if len(self._next_bytes) < length and not isinstance(self._socket, ssl.SSLSocket):
            with self._socket_error_handling(), suppress(BlockingIOError):
                more = self._socket.recv(MOST_READ)
                if not more:
                    raise ConnectionDropped("socket connection broken")
                self._next_bytes += more
        part, self._next_bytes = self._next_bytes[:length], self._next_bytes[length:]
        return part if len(part) == length else part + super()._read(length - len(part), timeout)

    # ------------------------------------------------------------ connecting

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """Those that were given, and one of the other members. Only one: the addresses in the list may lead nowhere,
        and each attempt takes time from the session."""
        found: list[tuple[str, str, int]] = super()._expand_client_hosts()
        more = {*self.client.ensemble.members} - {*self.client.hosts} - {(ip, port) for _, ip, port in found}
        if more:
            host, port = random.choice(sorted(more))
            with suppress(OSError):
                ip = socket.getaddrinfo(host, port, 0, 0, socket.IPPROTO_TCP)[0][4][0]
                found.append((host, str(ip), port))
        return found

    def _authenticate_with_sasl(self, *given: Any) -> None:
        """kazoo's thread would end with what it does not know."""
        try:
            super()._authenticate_with_sasl(*given)
        except (ZookeeperError, SASLException) as error:
            raise AuthFailedError(str(error)) from error

    def _invoke(self, timeout: float, *given: Any, **more: Any) -> Any:
        """A member that starts may never answer the first request: another attempt must fit into the session."""
        patience = max(self.client._session_timeout / 3000, SHORTEST_PATIENCE)
        result = super()._invoke(min(timeout, CONNECT_WITHIN, patience), *given, **more)
        if isinstance(result, tuple):
            self.session_ms = result[0].time_out
        return result


def _packet(call: Call, xid: int) -> bytes:
    kind = call.type  # it is taken for sending now
    body: bytes = call.serialize()
    return REQUEST.pack(len(body) + 8, xid, kind) + body
