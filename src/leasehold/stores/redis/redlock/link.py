"""The link to one node: everything that it does, from the lookup of a name to the last reply, never waits. A thread
polls the links of all nodes at once, an event loop watches their sockets, and both let those go on that can.

A reply that is no longer wanted keeps its place in the order, and is dropped when it comes: a slow node keeps its link,
and what is sent there next arrives after what was sent before.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import hiredis

from leasehold._core.light_typing import Any
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import failures
from leasehold.stores.redis.protocol import Command, pack
from leasehold.stores.redis.redlock.exchange import Exchange
from leasehold.stores.redis.redlock.node_server import NodeServer
from leasehold.stores.redis.sockets import CHUNK, FULL, NO_TLS, NOTHING, SLOW, Broken, is_push, keep_alive, no_tls

CLOSED, LOOKUP, DIALLING, SECURING, GREETING, READY = range(6)
RETRY_AFTER = 0.05  # seconds: a node that refuses is not dialled by every call
STALE_AFTER = 5.0  # seconds without a reply that is owed, after which a new link is made
MOST_OWED = 256  # exchanges that nobody waits for
IN, IN_AND_OUT = 1, 5  # POLLIN, and POLLIN | POLLOUT: Windows, which imports this as well, has no such names


class Link:
    """One thread uses it at a time; ``hang_up`` may come from any. ``before_close`` gets the descriptor of a socket
    that is about to be closed."""

    def __init__(
        self, node: NodeServer, counts: bool = True, before_close: Callable[[int], object] = lambda fileno: None
    ) -> None:
        self.node = node
        self._late = failures.unanswered(node.name, Broken(SLOW))  # made once: a round often ends without the slowest
        self._counts = counts
        self._before_close = before_close
        self._state = CLOSED
        self._sock: socket.socket | None = None
        self._unsent: deque[Exchange] = deque()  # not a byte of these has left
        self._owed: deque[Exchange] = deque()  # sent, in order; unwanted ones too
        self._out = bytearray()
        self._quiet = (-1, 0)  # what to poll for when it is ready and has sent everything
        self._retry_at = 0.0
        self._last_error: LeaseholdError | None = None
        self._used = 0.0
        self._closed = False
        self._addresses: list[Any] = []
        self._found: list[Any] = []
        self._wants = 0
        self._reader: Any = None
        self._greeting: Any = None
        self._greeted: list[Any] = []
        self._expected = 0

    # ------------------------------------------------------------ exchanges

    def submit(self, exchange: Exchange, now: float) -> None:
        """Send it, as soon as that is possible. ``now`` is time.monotonic()."""
        if self._state == READY:
            self.check(now)
        elif self._state != CLOSED and now - self._used > self.node.target.connect_timeout:
            self._broke(Broken(SLOW))
            self._retry_at = 0.0
        if self._state == READY:
            self._send(exchange, now)
            return
        self._unsent.append(exchange)
        if self._state == CLOSED:
            self._open(now)

    def abandon(self, exchange: Exchange) -> None:
        """The caller waits no longer. What has not left is not sent any more."""
        if exchange in self._unsent:
            self._unsent.remove(exchange)
            exchange.finish(failures.unreachable(self.node.name, Broken(SLOW)), self.node.now())
        else:  # its place in the order stays
            exchange.abandon(self._late, self.node.now())

    def is_open(self) -> bool:
        """What is submitted leaves at once."""
        return self._state == READY and not self._out

    def is_late(self) -> bool:
        """Replies are still to come."""
        return bool(self._owed)

    def must_arrive(self) -> list[Exchange]:
        """Those under way whose outcome somebody has to know."""
        return [one for one in (*self._owed, *self._unsent) if one.must_arrive]

    def is_awaited(self) -> bool:
        """Somebody waits for a reply, or has to know whether something has arrived."""
        return any(one.wanted or one.must_arrive for one in (*self._owed, *self._unsent))

    def check(self, now: float) -> None:
        """Give up on a link that a firewall may have forgotten, and on a node that does not reply."""
        silent = now - self._used
        stale = silent > STALE_AFTER if self._owed else silent > self.node.target.ping_after
        if self._state == READY and (stale or self._too_many_owed()):
            self._broke(Broken(SLOW))

    def _too_many_owed(self) -> bool:
        return len(self._owed) > MOST_OWED and not any(one.wanted for one in self._owed)

    # ------------------------------------------------------------ polling

    def fileno(self) -> int:
        return -1 if self._sock is None else self._sock.fileno()

    def interest(self) -> tuple[int, int]:
        """The descriptor, and what to poll for; 0: nothing is expected."""
        if self._state == READY and not self._out:
            return self._quiet
        return self.fileno(), self._events()

    def _events(self) -> int:
        if self._state == CLOSED or self._sock is None:
            return 0
        if self._state == DIALLING:
            return select.POLLOUT
        if self._state == SECURING:
            return self._wants
        return IN_AND_OUT if self._out else IN

    def go_on(self) -> None:
        """Something can be read or written. No error leaves this: it is that of the exchanges."""
        try:
            if self._state in (GREETING, READY):
                if self._out:
                    self._flush()
                self._read()
            elif self._state == LOOKUP:
                self._looked_up()
            elif self._state == DIALLING:
                self._dialled()
            elif self._state == SECURING:
                self._secure()
        except Broken as error:
            self._broke(error)
        except LeaseholdError as error:
            self._broke(Broken(str(error)), error)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is None and not isinstance(error, ssl.SSLError):
                raise  # a signal handler raised it
            self._broke(Broken(str(error)))

    # ------------------------------------------------------------ opening

    def _open(self, now: float) -> None:
        try:
            if self._closed or self.node.closed:
                raise StoreUnavailable(f"the store of {self.node.target} is closed")
            if now < self._retry_at and self._last_error is not None:
                raise self._last_error
            target = self.node.target
            if target.path:
                self._addresses = [(socket.AF_UNIX, target.path)]
                self._dial()
                return
            try:
                found = socket.getaddrinfo(
                    target.host, target.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
                )
            except (socket.gaierror, UnicodeError):
                self._look_up()
                return
            self._addresses = [(one[0], one[4]) for one in found]
            self._dial()
        except Broken as error:
            self._broke(error)
        except LeaseholdError as error:
            self._fail_all(error)
        except OSError as error:
            if error.errno is None:
                raise
            self._broke(Broken(str(error)))

    def _look_up(self) -> None:
        """The system's resolver cannot be polled: it runs in a thread of its own, which closes one end of a pair of
        sockets when it has the result, or is abandoned."""
        target = self.node.target
        found = self._found = []
        ours, theirs = socket.socketpair()

        def look_up() -> None:
            try:
                found.append(socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                found.append(error)
            finally:
                theirs.close()

        self._sock, self._state, self._used = ours, LOOKUP, time.monotonic()
        try:
            threading.Thread(target=look_up, name="leasehold-resolver", daemon=True).start()
        except RuntimeError as error:
            theirs.close()
            raise Broken(f"no thread can be started to look up its name: {error}") from error

    def _looked_up(self) -> None:
        self._close_socket()
        result = self._found[0]
        if isinstance(result, Exception):
            raise Broken(f"its name cannot be looked up: {result}")
        self._addresses = [(one[0], one[4]) for one in result]
        self._dial()

    def _dial(self) -> None:
        family, address = self._addresses.pop(0)
        with ExitStack() as stack:
            opened = stack.enter_context(self.node.counted(self._counts))
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            self._sock, self._state, self._used = sock, DIALLING, time.monotonic()
            opened(self)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS, errno.EAGAIN):
            self._not_dialled(code)
        elif code == 0:
            self._dialled()

    def _open_socket(self) -> socket.socket:
        if self._sock is None:
            raise Broken("it was closed")
        return self._sock

    def usable(self) -> bool:
        """For the count of open connections."""
        return self.fileno() >= 0

    def _not_dialled(self, code: int) -> None:
        self._close_socket()
        if not self._addresses:
            raise Broken(os.strerror(code))
        self._dial()

    def _dialled(self) -> None:
        code = self._open_socket().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._not_dialled(code)
            return
        target = self.node.target
        if not target.path:
            keep_alive(self._open_socket())
        context = target.tls_context()
        if context is None:
            self._greet()
            return
        self._before_close(self.fileno())  # the TLS socket takes over its descriptor
        self._sock = context.wrap_socket(
            self._open_socket(), server_hostname=target.host, do_handshake_on_connect=False
        )
        self._state = SECURING
        self._secure()

    def _secure(self) -> None:
        sock: Any = self._open_socket()
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._wants = select.POLLIN
        except ssl.SSLWantWriteError:
            self._wants = select.POLLOUT
        except OSError as error:
            raise Broken(f"{error}; {NO_TLS}" if no_tls(error) else str(error)) from error
        else:
            self._greet()

    def _greet(self) -> None:
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._state, self._out = GREETING, bytearray()
        self._greeting = self.node.handshake(self.node.target, "").flow()
        self._greeted = []
        self._expected = self._say(next(self._greeting))

    def _say(self, batch: Sequence[Command]) -> int:
        self._out += b"".join(map(pack, batch))
        self._flush()
        return len(batch)

    def _hear(self, reply: Any) -> None:
        """A reply of the handshake."""
        self._greeted.append(reply)
        if len(self._greeted) < self._expected:
            return
        replies, self._greeted = self._greeted, []
        try:
            self._expected = self._say(self._greeting.send(replies))
        except StopIteration:
            self.node.checked = True
            self._last_error = None
            self._state, self._quiet = READY, (self.fileno(), IN)
            self._send_all()

    # ------------------------------------------------------------ bytes

    def _send(self, exchange: Exchange, now: float) -> None:
        """What another task has just sent over this link, and still waits for, shares one write with it."""
        owed, data, sent = self._owed, exchange.batch.data, 0
        if not owed:
            self._used = now
        if self._out or (owed and owed[-1].wanted):
            owed.append(exchange)
            self._out += data
            return
        owed.append(exchange)
        try:
            sent = self._sock.send(data)  # type: ignore[union-attr]  # it is open
        except FULL:
            pass
        except OSError as error:
            if error.errno is None:
                raise
            self._unsent.append(owed.pop())  # nothing has left: it is sent over a new link
            self._broke(Broken(str(error)))
            return
        if sent != len(data):
            self._out += data[sent:]

    def _send_all(self) -> None:
        """What waited for the link to be opened."""
        self._used = time.monotonic()
        self._owed.extend(self._unsent)
        self._out += b"".join([one.batch.data for one in self._unsent])
        self._unsent.clear()
        self._flush()

    def _flush(self) -> None:
        sock = self._sock
        while self._out and sock is not None:
            try:
                del self._out[: sock.send(self._out)]
            except FULL:
                return
            except OSError as error:
                if error.errno is None:
                    raise
                raise Broken(str(error)) from error

    def _read(self) -> None:
        sock = self._sock
        while sock is not None and sock is self._sock:
            try:
                data = sock.recv(CHUNK)
            except FULL:
                return
            except OSError as error:
                if error.errno is None:
                    raise
                raise Broken(str(error)) from error
            if not data:
                raise Broken("the connection was closed by the server")
            self._used = time.monotonic()
            self._take(data)
            if len(data) < CHUNK and not (isinstance(sock, ssl.SSLSocket) and sock.pending()):  # TLS reads ahead
                return

    def _take(self, data: bytes) -> None:
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not NOTHING:
                if type(reply) is is_push:
                    continue
                if self._state == GREETING:
                    self._hear(reply)
                elif not self._owed:
                    raise Broken("it sent a reply that was not requested")
                elif self._owed[0].add(reply):
                    self._replied(self._owed.popleft())
        except hiredis.HiredisError as error:
            raise Broken(str(error)) from error

    def _replied(self, exchange: Exchange) -> None:
        again = exchange.again() if exchange.failed else None
        if again is None:
            if exchange.batch.teaches:
                self.node.has_run(exchange.batch)
            exchange.finish(exchange.replies, self.node.now())
            return
        self.node.lost_scripts()
        self._owed.append(exchange)
        self._out += again.data
        self._flush()

    # ------------------------------------------------------------ the end

    def _broke(self, error: Broken, reason: LeaseholdError | None = None) -> None:
        """The link cannot be used any more. What had not left is sent over a new one, once; nobody knows of the
        rest."""
        was_ready = self._state == READY
        if self._state == GREETING and reason is None:
            reason = self._greeting_failed(error)
        self._drop()
        owed, self._owed = self._owed, deque()
        for exchange in owed:
            exchange.finish(failures.unanswered(self.node.name, error), self.node.now())
        if reason is None:
            reason = failures.unreachable(self.node.name, error)
        if was_ready and self._unsent and not self._closed:
            self._open(time.monotonic())
            return
        if not was_ready:
            self._retry_at, self._last_error = time.monotonic() + RETRY_AFTER, reason
        self._fail_all(reason)

    def _greeting_failed(self, error: Broken) -> LeaseholdError | None:
        """The handshake knows what its end may mean."""
        try:
            self._greeting.throw(error)
        except LeaseholdError as explained:
            return explained
        except (Broken, StopIteration):
            pass
        return None

    def _fail_all(self, error: LeaseholdError) -> None:
        unsent, self._unsent = self._unsent, deque()
        for exchange in unsent:
            exchange.finish(error, self.node.now())

    def _drop(self) -> None:
        self._state, self._out = CLOSED, bytearray()
        self._close_socket()

    def _close_socket(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            if sock.fileno() >= 0:
                self._before_close(sock.fileno())
            sock.close()

    def close(self) -> None:
        """By the thread that uses it, or when none does."""
        self._closed = True
        self._broke(Broken("it was closed"))
        self._fail_all(StoreUnavailable(f"the store of {self.node.target} is closed"))

    def hang_up(self) -> None:
        """From any thread: the one that polls finds the link broken."""
        self._closed = True
        sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is not connected
                pass

    def reset(self) -> None:
        """An interrupt may have left it between two steps."""
        self._state = CLOSED
        self._drop()
        for exchange in (*self._owed, *self._unsent):
            exchange.finish(failures.unanswered(self.node.name, Broken("it was interrupted")), self.node.now())
        self._owed, self._unsent = deque(), deque()

    def forked(self) -> None:
        """In the child: close this copy of the descriptor, and forget what the parent has sent."""
        self._unsent.clear()
        self._owed.clear()
        self._before_close = lambda fileno: None  # the event loop is the parent's
        self._drop()

    def __del__(self) -> None:
        sock = getattr(self, "_sock", None)
        if sock is not None:
            sock.close()
