"""The thin connection for threads: one socket, hiredis for the protocol, pushes on the same connection.

A wire is used by one thread at a time. It knows nothing of leases: it sends packed commands, gives back replies, and
puts pushes aside for whoever waits for them.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from leasehold.stores.redis.speech import pack
from leasehold.stores.redis.target import Target

CHUNK = 65_536
MOST_PUSHES = 256  # hints that nobody has read: the oldest are dropped
NOTHING = object()
SUBSCRIBED = b"subscribe"  # a push by its form, and the reply to its command all the same
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
USER_TIMEOUT_MS = 30_000  # sent and not acknowledged for this long: the other side is gone

is_push = hiredis.PushNotification


class NotSent(OSError):
    """The connection was found broken before anything of this request left."""


class Wire:
    """One open connection. Every call ends at the time it is given, on time.monotonic()."""

    __slots__ = ("_pending", "_poll", "_reader", "_sock", "busy", "pushes", "used")

    def __init__(self, target: Target, seconds: float) -> None:
        self._sock = _open(target, seconds)
        self._pending: Callable[[], int] | None = getattr(self._sock, "pending", None)  # TLS reads ahead
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self.pushes: deque[Any] = deque(maxlen=MOST_PUSHES)
        self.busy = False  # in the middle of something; an interrupt leaves it so, and the wire is not used again
        self.used = time.monotonic()

    def fileno(self) -> int:
        return self._sock.fileno()

    def exchange(self, request: bytes, give_up: float) -> Any:
        """Send, and wait for the one reply. On everybody's way, hence in one piece."""
        self.busy = True
        try:
            sent = self._sock.send(request)
        except OSError as error:
            self._send_failed(error)
            sent = 0
        if sent < len(request):
            self._send_rest(memoryview(request)[sent:], give_up)
        reader = self._reader
        while True:
            if not self._read_some(give_up - time.monotonic()):
                raise TimeoutError
            reply = reader.gets()
            while type(reply) is is_push and reply[0] != SUBSCRIBED:
                self.pushes.append(reply)
                reply = reader.gets()
            if reply is not NOTHING:
                self.busy = False
                return reply

    def exchange_many(self, commands: Sequence[tuple[Any, ...]], give_up: float) -> list[Any]:
        """Send several commands at once, and wait for all their replies."""
        self.busy = True
        self._send(b"".join(map(pack, commands)), give_up)
        replies = [self._receive(give_up) for _ in commands]
        self.busy = False
        return replies

    def wait(self, seconds: float) -> None:
        """Until there is a push, at most that long. Raises OSError when the connection is gone."""
        self.busy = True
        give_up = time.monotonic() + seconds
        while not self.pushes:
            reply = self._reader.gets()
            if reply is not NOTHING:
                self._put_aside(reply)
            elif not self._read_some(max(give_up - time.monotonic(), 0)):
                break
        self.busy = False

    def look(self) -> None:
        """Read what has arrived without being asked for. Raises OSError when the other side has closed."""
        self.busy = True
        while self._read_some(0):
            while (reply := self._reader.gets()) is not NOTHING:
                self._put_aside(reply)
        self.busy = False

    def close(self) -> None:
        """From any thread: whoever waits here looks up."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it was broken already
            pass
        self._sock.close()

    def forget(self) -> None:
        """In a forked child: close this copy of the descriptor. The connection is the parent's."""
        self._sock.close()

    # ------------------------------------------------------------ bytes

    def _send(self, request: bytes, give_up: float) -> None:
        try:
            sent = self._sock.send(request)
        except OSError as error:
            self._send_failed(error)
            sent = 0
        if sent < len(request):
            self._send_rest(memoryview(request)[sent:], give_up)

    def _send_failed(self, error: OSError) -> None:
        """Full is no failure."""
        if not isinstance(error, (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)):
            raise NotSent(str(error)) from error

    def _send_rest(self, rest: memoryview, give_up: float) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLOUT)
        while rest:
            left = give_up - time.monotonic()
            if left <= 0:
                raise TimeoutError
            poll.poll(left * 1000)
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._read_some(0)  # both sides may be full

    def _receive(self, give_up: float) -> Any:
        while True:
            reply = self._reader.gets()
            if reply is NOTHING:
                if not self._read_some(max(give_up - time.monotonic(), 0)):
                    raise TimeoutError
            elif type(reply) is is_push and reply[0] != SUBSCRIBED:
                self.pushes.append(reply)
            else:
                return reply

    def _read_some(self, seconds: float) -> bool:
        """Feed the reader; False when nothing came in time."""
        if self._pending is not None and self._pending():
            pass
        elif not self._poll.poll(seconds * 1000 if seconds > 0 else 0):
            return False
        try:
            data = self._sock.recv(CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):  # half a TLS record
            return True
        if not data:
            raise ConnectionResetError("the connection was closed by the server")
        self._reader.feed(data)
        return True

    def _put_aside(self, reply: Any) -> None:
        if type(reply) is is_push:
            self.pushes.append(reply)


def _open(target: Target, seconds: float) -> socket.socket:
    give_up = time.monotonic() + min(seconds, target.connect_timeout)
    sock = _dial(target, give_up)
    try:
        if not target.path:
            keep_alive(sock)
        context = target.tls_context()
        if context is not None:
            sock.settimeout(_left(give_up))
            sock = context.wrap_socket(sock, server_hostname=target.host)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return sock


def _dial(target: Target, give_up: float) -> socket.socket:
    """Connect to the first address that answers."""
    if target.path:
        return _connect(socket.AF_UNIX, target.path, give_up)
    failure: OSError = OSError("the name has no address")
    for family, _, _, _, address in _resolve(target.host, target.port, give_up):
        try:
            return _connect(family, address, give_up)
        except OSError as error:
            failure = error
    raise failure


def _connect(family: int, address: Any, give_up: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(give_up))
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(host: str, port: int, give_up: float) -> list[Any]:
    """The addresses of a name. The system's resolver cannot be told how long it may take: it is asked in a thread of
    its own, which is left behind when it takes too long."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name, not a number
        pass
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=ask, name="leasehold-resolver", daemon=True)
    thread.start()
    thread.join(_left(give_up))
    if not found:
        raise TimeoutError("looking up the name took too long")
    if isinstance(found[0], Exception):
        raise found[0]
    addresses: list[Any] = found[0]
    return addresses


def _left(give_up: float) -> float:
    left = give_up - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def keep_alive(sock: socket.socket) -> None:
    """Small packets at once, and a dead peer is noticed even while nothing is said."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
