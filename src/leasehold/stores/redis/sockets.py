"""The socket of a thread's connection: hiredis packs and parses, and pushes arrive beside the replies.

One thread uses it at a time. It knows nothing of leases: it sends packed commands, returns their replies, and appends
pushes to the deque that it was given.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # else the first lookup imports it, and a fork meanwhile would leave it half done
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import hiredis

from leasehold._core.light_typing import Any
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.target import Target

monotonic = time.monotonic
CHUNK = 65_536
MOST_PUSHES = 256  # unread ones; a push is only a hint, so the oldest are dropped
MOST_FOR_HOLDERS = 10_000  # those for all leases of a process: what lingers there is wanted by many at the same time
NOTHING = object()
SUBSCRIBED = (b"subscribe", b"ssubscribe")  # they have the form of a push, and are replies to commands
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
USER_TIMEOUT_MS = 30_000  # sent and not acknowledged for this long: the other side is gone

SLICE = 0.05  # seconds that a read waits by itself, without a poll before it
SLOW = "it took too long"
NO_TLS = "if this port does not use TLS, connect without it (redis://)"
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
FULL = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # no failure: try again later

is_push = hiredis.PushNotification


class Broken(Exception):
    """The connection cannot be used any more. Not an OSError: a signal handler may raise one of those in the middle of
    our calls, a TimeoutError for instance, and that is not ours to catch."""


class NotSent(Broken):
    """It broke before any byte of this request was sent."""


def broken(error: Exception, kind: type[Broken] = Broken) -> Broken:
    """An error of the system or of hiredis, as Broken; any other, such as one that a signal handler raised, is raised
    again. There must be no reference cycle: an error that leads back to its own frames would keep the leases of their
    callers in use until the next garbage collection."""
    if isinstance(error, hiredis.HiredisError) or getattr(error, "errno", None) is not None:
        return kind(str(error))
    try:
        raise error
    finally:
        del error


class RedisSocket:
    """One open socket. Every call ends at the time that it is given, on time.monotonic()."""

    __slots__ = (
        "__weakref__",
        "_at_once",
        "_pending",
        "_poll",
        "_reader",
        "_reply_timeout",
        "_sock",
        "_waits",
        "busy",
        "pushes",
        "target",
        "used",
    )

    def __init__(self, target: Target, give_up: float, pushes: deque[Any]) -> None:
        try:
            self._sock = _open(target, give_up)
        except OSError as error:
            raise _failed(error, give_up) from error
        self.target = target
        self._reply_timeout = target.reply_timeout
        self._pending: Callable[[], int] | None = getattr(self._sock, "pending", None)  # TLS reads ahead
        self._waits = _reads_wait(self._sock)
        self._at_once = socket.MSG_DONTWAIT if self._waits else 0
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self.pushes = pushes
        self.busy = False  # during a call; an interrupt leaves it set, and the socket is not used again
        self.used = time.monotonic()

    def fileno(self) -> int:
        return self._sock.fileno()

    def usable(self) -> bool:
        """True while it is open, as far as this side knows."""
        return self._sock.fileno() >= 0

    def exchange(self, request: bytes, give_up: float) -> Any:
        """Send, and wait for the one reply."""
        self.busy = True
        if self._reader.has_data():
            self._expect_no_reply()
        self.used = now = monotonic()
        left = min(give_up - now, self._reply_timeout)
        give_up = now + left
        try:
            sent = self._sock.send(request, self._at_once)
        except FULL:
            sent = 0
        except OSError as error:
            raise broken(error, NotSent) from error
        if sent != len(request):
            self._send_rest(memoryview(request)[sent:], give_up)
        while self._read_some(left):  # sending took no time worth a look at the clock
            reply = self._next()
            if reply is not NOTHING:
                self.busy = False
                return reply
            left = give_up - monotonic()
        raise Broken(SLOW)

    def exchange_many(self, commands: Sequence[tuple[Any, ...]], give_up: float) -> list[Any]:
        """Send several commands at once, and wait for all their replies."""
        replies: list[Any] = []
        self.exchange_into(replies, commands, give_up)
        return replies

    def exchange_into(self, replies: list[Any], commands: Sequence[tuple[Any, ...]], give_up: float) -> None:
        """The same. Each reply is appended to an empty list as it arrives: those before an error are not lost."""
        self.send_many(commands, give_up)
        self.receive_many(replies, len(commands), give_up)

    def send_many(self, commands: Sequence[tuple[Any, ...]], give_up: float) -> None:
        """The first half of that: until ``receive_many`` has read the replies, the socket is busy."""
        self.send_packed(b"".join(map(pack, commands)), give_up)

    def send_packed(self, requests: bytes, give_up: float) -> None:
        """The same for commands that are packed already."""
        self.busy = True
        self._expect_no_reply()
        give_up = min(give_up, time.monotonic() + self._reply_timeout)
        self._send(requests, give_up)

    def receive_many(self, replies: list[Any], count: int, give_up: float, more: bool = False) -> None:
        """The second half. What has arrived is read even when the time is over. ``more``: others are to come, and the
        socket is busy until they are read."""
        give_up = min(give_up, time.monotonic() + self._reply_timeout)
        while len(replies) < count:
            replies.append(self._receive(give_up))
        self.busy = more

    def wait(self, seconds: float) -> None:
        """Wait for a push, at most that long."""
        self._begin()
        give_up = time.monotonic() + seconds
        self._collect_pushes()
        while not self.pushes and self._read_some(give_up - time.monotonic(), soon=False):
            self._collect_pushes()
        self.busy = False

    def receive_pushes(self) -> None:
        """Take in the pushes that have arrived, without waiting."""
        self._begin()
        self._collect_pushes()
        while self._read_some(0):
            self._collect_pushes()
        self.busy = False

    def close(self) -> None:
        """From any thread: a call that waits on this socket ends."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it was broken already
            pass
        self._sock.close()

    def close_copy(self) -> None:
        """In a forked child: close this copy of the descriptor. The connection itself is the parent's."""
        self._sock.close()

    # ------------------------------------------------------------ bytes

    def _begin(self) -> None:
        if self.busy:  # an exchange was interrupted, and its reply is still to come
            raise Broken("it was interrupted")
        self.busy = True

    def _expect_no_reply(self) -> None:
        """A reply that came twice would be taken for that of the next request, and a release be believed that has not
        happened."""
        if self._next() is not NOTHING:
            raise NotSent("it sent a reply that was not requested")

    def _send(self, request: bytes, give_up: float) -> None:
        try:
            sent = self._sock.send(request, self._at_once)
        except FULL:
            sent = 0
        except OSError as error:
            raise broken(error, NotSent) from error
        if sent < len(request):
            self._send_rest(memoryview(request)[sent:], give_up)

    def _send_rest(self, rest: memoryview, give_up: float) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLOUT)
        while rest:
            left = give_up - time.monotonic()
            if left <= 0:
                raise Broken(SLOW)
            poll.poll(left * 1000)
            try:
                rest = rest[self._sock.send(rest, self._at_once) :]
            except FULL:
                self._read_some(0)  # the server may be waiting for us to read
            except OSError as error:
                raise broken(error) from error

    def _receive(self, give_up: float) -> Any:
        while (reply := self._next()) is NOTHING:
            if not self._read_some(give_up - time.monotonic()):
                raise Broken(SLOW)
        return reply

    def _next(self) -> Any:
        """The next reply that has been read, or NOTHING. Pushes before it are appended to ``pushes``."""
        try:
            while True:
                reply = self._reader.gets()
                if type(reply) is not is_push or reply[0] in SUBSCRIBED:
                    return reply
                self.pushes.append(reply)
        except hiredis.HiredisError as error:
            raise broken(error) from error

    def _collect_pushes(self) -> None:
        """Append the pushes that have been read to ``pushes``. This comes before the socket is polled: a push that came
        together with a reply is already in the parser, and makes no socket readable (trap 51)."""
        if self._next() is not NOTHING:
            raise Broken("it sent a reply that was not requested")

    def _read_some(self, seconds: float, soon: bool = True) -> bool:
        """Feed the parser. False when nothing arrived in time. True with nothing read: ask again, there is time left.
        ``soon``: a reply is on its way."""
        try:
            if soon and seconds > SLICE and self._waits:
                pass  # the read waits: a poll before it would be one more call of the system in each round trip
            elif self._pending is not None and self._pending():
                pass
            elif not self._poll.poll(seconds * 1000 if seconds > 0 else 0):
                return False
            data = self._sock.recv(CHUNK)
        except FULL:  # half a TLS record, or a SLICE is over
            return True
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            raise broken(error) from error
        if not data:
            raise Broken("the connection was closed by the server")
        self._reader.feed(data)
        return True

    def __del__(self) -> None:
        """A socket that was dropped together with its coordinator must not cause a ResourceWarning."""
        sock = getattr(self, "_sock", None)  # missing where it could not be opened
        if sock is not None:
            sock.close()


def _open(target: Target, give_up: float) -> socket.socket:
    sock = _dial(target, give_up)
    try:
        if not target.path:
            keep_alive(sock)
        context = target.tls_context()
        if context is not None:
            sock = _secure(sock, context, target.host, give_up)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return sock


def _reads_wait(sock: socket.socket) -> bool:
    """Let a read wait by itself, for a SLICE. Not with TLS, which reads ahead, nor with the sockets of gevent, which
    wait in their own way."""
    if sys.platform != "linux" or type(sock).__module__ != "socket":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(SLICE * 1_000_000)))
    except OSError:
        return False
    sock.settimeout(None)
    return True


def _secure(sock: socket.socket, context: ssl.SSLContext, host: str, give_up: float) -> socket.socket:
    sock.settimeout(_left(give_up))
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except OSError as error:
        failed = _failed(error, give_up)
        raise Broken(f"{failed}; {NO_TLS}" if no_tls(error) else str(failed)) from error


def no_tls(error: BaseException) -> bool:
    """True when a TLS handshake that failed so suggests that the server does not use TLS. A Redis that expects plain
    commands waits for the end of a line, or replies with an error in plain text. A TLS alert, or a certificate that we
    do not trust, shows that it does."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return error.reason in NOT_TLS
    return isinstance(error, (TimeoutError, ConnectionError, ssl.SSLEOFError))


def _failed(error: OSError, give_up: float) -> Broken:
    """The time was over, or the system reported an error."""
    if isinstance(error, TimeoutError) and time.monotonic() >= give_up - 0.001:
        return Broken(SLOW)
    return broken(error)


def _dial(target: Target, give_up: float) -> socket.socket:
    """Connect to the first address that accepts."""
    if target.path:
        return _connect(socket.AF_UNIX, target.path, give_up)
    addresses = _resolve(target.host, target.port, give_up)
    for family, _, _, _, address in addresses[:-1]:
        try:
            return _connect(family, address, give_up)
        except OSError as error:
            if error.errno is None:
                raise
    return _connect(addresses[-1][0], addresses[-1][4], give_up)


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
    """The addresses of a name. The system's resolver takes no time limit: it runs in a thread of its own, which is
    abandoned when it takes too long."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):  # a name, not a number
        pass
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=look_up, name="leasehold-resolver", daemon=True)
    thread.start()
    thread.join(_left(give_up))
    if not found:
        raise Broken("looking up its name took too long")
    if isinstance(found[0], UnicodeError):
        raise Broken(f"its name cannot be looked up: {found[0]}")
    if isinstance(found[0], Exception):
        raise found[0]
    addresses: list[Any] = found[0]
    return addresses


def _left(give_up: float) -> float:
    left = give_up - time.monotonic()
    if left <= 0:
        raise Broken(SLOW)
    return left


def keep_alive(sock: socket.socket) -> None:
    """Send small packets at once, and notice a dead peer even while nothing is sent."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
