"""One connection to a member of etcd: a request at a time, or a stream of events.

Everything is a generator that yields what to wait for on the socket, so that threads, event loops and the thread of the
watches share it. ``wait`` and ``wait_async`` run such a generator, and end in time.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import socket
import ssl
import time
from collections.abc import Generator, Sequence

from leasehold._core.light_typing import Any, TypeAlias, TypeVar
from leasehold.stores.etcd.http import NotHttp, Replies, Reply
from leasehold.stores.etcd.urls import Endpoint

CHUNK = 65_536
READ, WRITE = 1, 4  # POLLIN and POLLOUT: Windows, which imports this as well, has no such names
KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
SLOW = "it does not answer in time"
CLOSED = "it closed the connection"
NO_TLS = "if it does not use TLS, write etcd://"
TLS = "if it requires TLS, write etcds://"
NOT_TLS = (
    "UNEXPECTED_EOF",
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "PACKET_LENGTH_TOO_LONG",
)
AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

T = TypeVar("T")
Steps: TypeAlias = "Generator[int, None, T]"
Addresses: TypeAlias = "Sequence[tuple[Any, ...]]"  # of getaddrinfo


class Broken(Exception):
    """The connection is unusable, and the request may have been carried out."""


class NotSent(Broken):
    """It broke before the whole request was sent: etcd ignores a part of one."""


class Connection:
    """``busy`` in the middle of a request. An interrupt leaves it so, and the connection is never used again: the next
    user would get somebody else's reply."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self.busy = True
        self._answered = False  # once at least
        self._context = context
        self._socket: Any = None  # a socket, once it is opened
        self._replies = Replies()

    # ------------------------------------------------------------ opening it

    def open(self, addresses: Addresses) -> Steps[None]:
        """Raises NotSent."""
        error: OSError = OSError("its name has no address")
        for family, kind, protocol, _, address in addresses:
            try:
                self._socket = socket.socket(family, kind, protocol)
                yield from self._connect(address)
                if self._context is not None:
                    yield from self._shake_hands(self._context)
            except OSError as failed:  # ssl.SSLError is one
                error = failed
                self.close()
            except BaseException:
                self.close()
                raise
            else:
                self.busy = False
                return
        raise NotSent(_line(error)) from error

    def _connect(self, address: Any) -> Steps[None]:
        sock = self._socket
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        try:
            sock.connect(address)
        except BlockingIOError:
            yield WRITE
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number)) from None

    def _shake_hands(self, context: ssl.SSLContext) -> Steps[None]:
        secure = context.wrap_socket(self._socket, server_hostname=self.endpoint.host, do_handshake_on_connect=False)
        self._socket = secure
        while True:
            try:
                secure.do_handshake()
            except ssl.SSLWantReadError:
                yield READ
            except ssl.SSLWantWriteError:
                yield WRITE
            except OSError as error:
                if isinstance(error, ConnectionError) or any(one in str(error) for one in NOT_TLS):
                    raise OSError(f"{_line(error)}; {NO_TLS}") from error
                raise
            else:
                return

    # ------------------------------------------------------------ a request

    def post(self, request: bytes) -> Steps[Reply]:
        """Raises NotSent or Broken."""
        yield from self.send(request)
        replies = self._replies
        while True:
            yield READ
            self.receive()
            reply = replies.reply()
            if reply is not None:
                self.busy = reply.last or replies.unread  # a reply that nobody requested would be the next one's
                return reply

    def send(self, request: bytes) -> Steps[None]:
        """Raises NotSent. Before anything is sent nothing can have arrived, or the server has closed."""
        self.busy = True
        rest = memoryview(request)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except ssl.SSLWantReadError:
                yield READ
            except (BlockingIOError, ssl.SSLWantWriteError):
                yield WRITE
            except OSError as error:
                raise NotSent(_line(error)) from error

    def send_some(self, data: bytes | bytearray) -> int:
        """How many bytes could be sent without waiting. Raises Broken."""
        try:
            return int(self._socket.send(data))
        except AGAIN:
            return 0
        except OSError as error:
            raise Broken(_line(error)) from error

    def receive(self) -> None:
        """What has arrived; raises Broken. TLS may have read more than it gave, which no wait would show."""
        pending = True
        while pending:
            try:
                data = self._socket.recv(CHUNK)
            except AGAIN:
                return
            except OSError as error:
                raise Broken(_line(error) + self._hint) from error
            if not data:
                raise Broken(CLOSED + self._hint)
            self._answered = True
            self._replies.feed(data)
            pending = self._context is not None and bool(getattr(self._socket, "pending", int)())

    @property
    def _hint(self) -> str:
        """etcd closes a connection without TLS where it expects some."""
        return "" if self._answered or self._context is not None else f"; {TLS}"

    def lines(self) -> tuple[int, list[bytes], bool]:
        """Of a stream: see ``Replies``."""
        return self._replies.lines()

    # ------------------------------------------------------------ its state

    def fileno(self) -> int:
        return int(self._socket.fileno())

    def usable(self) -> bool:
        """False in the middle of a request, and when the server has closed it or has sent what nobody requested."""
        return not self.busy and not _readable(self._socket.fileno())

    def close(self) -> None:
        self.busy = True
        if self._socket is not None:
            self._socket.close()

    def close_copy(self) -> None:
        """In a forked child: nothing is sent. A call that was forked in its middle may still use it, and fails: no
        other socket gets the number of this one."""
        self.busy = True
        if self._socket is not None and self._socket.fileno() >= 0:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nowhere, self._socket.fileno(), inheritable=False)
            os.close(nowhere)


# ---------------------------------------------------------------- waiting


def addresses(endpoint: Endpoint) -> Addresses:
    """Blocks while the name is looked up. Raises NotSent."""
    try:
        return socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSent(_line(error)) from error


async def addresses_async(endpoint: Endpoint, give_up: float) -> Addresses:
    """A name is looked up by a thread of the event loop; what is an address already needs none."""
    try:
        return socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError):
        pass
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(give_up - time.monotonic()):
            return await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise NotSent(SLOW) from error
    except (OSError, UnicodeError) as error:
        raise NotSent(_line(error)) from error


def wait(connection: Connection, steps: Steps[T], give_up: float, late: type[Broken]) -> T:
    """Run the steps on the calling thread. Raises ``late`` when they take too long."""
    try:
        events = next(steps)
        poll = select.poll()
        while True:
            left = give_up - time.monotonic()
            poll.register(connection.fileno(), events)
            if left <= 0 or not poll.poll(math.ceil(left * 1000)):
                raise late(SLOW)
            events = next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
    except NotHttp as error:
        raise Broken(_line(error)) from error
    finally:
        steps.close()


async def wait_async(connection: Connection, steps: Steps[T], give_up: float, late: type[Broken]) -> T:
    """The same in the running task."""
    loop = asyncio.get_running_loop()
    try:
        events = next(steps)
        while True:
            if not await _ready(loop, connection.fileno(), events, give_up - time.monotonic()):
                raise late(SLOW)
            events = next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
    except NotHttp as error:
        raise Broken(_line(error)) from error
    finally:
        steps.close()


async def _ready(loop: asyncio.AbstractEventLoop, descriptor: int, events: int, seconds: float) -> bool:
    """False when the time is over."""
    ready: asyncio.Future[bool] = loop.create_future()

    def wake(in_time: bool) -> None:
        if not ready.done():
            ready.set_result(in_time)

    add, remove = (loop.add_reader, loop.remove_reader) if events == READ else (loop.add_writer, loop.remove_writer)
    timer = loop.call_later(max(seconds, 0), wake, False)
    add(descriptor, wake, True)
    try:
        return await ready
    finally:
        timer.cancel()
        remove(descriptor)


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, READ)
    return bool(poll.poll(0))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
