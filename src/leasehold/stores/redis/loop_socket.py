"""The socket of an event loop's connection: the requests of many tasks on one stream.

Replies come in the order of the requests. A request is written at once when no other is under way; requests made while
others are under way leave in one write at the end of the loop's turn, so that a thousand tasks cost a few system calls.
It knows nothing of leases.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence

import hiredis

from leasehold._core.light_typing import Any
from leasehold.stores.redis.sockets import NOTHING, SLOW, SUBSCRIBED, Broken, NotSent, is_push, keep_alive
from leasehold.stores.redis.target import Target


class AsyncRedisSocket(asyncio.Protocol):
    """One open socket."""

    def __init__(
        self,
        on_push: Callable[[Any], None],
        on_doubt: Callable[[AsyncRedisSocket], None],
        on_lost: Callable[[AsyncRedisSocket], None],
        reply_timeout: float,
    ) -> None:
        self._reply_timeout = reply_timeout  # seconds
        self._loop = asyncio.get_running_loop()
        self._on_push = on_push
        self._on_doubt = on_doubt
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._waiting: deque[tuple[asyncio.Future[Any], float, float]] = deque()  # reply, give up when, sent when
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._doubted = False
        self._closed_because = "the connection was closed by the server"
        self.received_at = self._loop.time()
        self.target = Target()  # where it is connected to; set by who opens it

    # ------------------------------------------------------------ requests

    def request(self, request: bytes, give_up: float) -> asyncio.Future[Any]:
        """The reply, or Broken, at the latest at that time of the loop's clock."""
        now = self._loop.time()
        give_up = min(give_up, now + self._reply_timeout)
        reply: asyncio.Future[Any] = self._loop.create_future()
        if not self.usable():
            _fail(reply, NotSent("the connection is closed"))
            return reply
        try:
            if self._waiting:
                if not self._unsent:
                    self._loop.call_soon(self._flush)
                self._unsent.append(request)
            else:
                self._transport.write(request)  # type: ignore[union-attr]  # it is usable
            self._waiting.append((reply, give_up, now))
            if self._timer is None or self._timer.when() > give_up:
                self._set_timer(give_up)
        except BaseException:
            self._give_up_socket()
            raise
        return reply

    def request_many(self, requests: Sequence[bytes], give_up: float) -> list[asyncio.Future[Any]]:
        """The same for several, in one write."""
        others: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in requests[1:]]
        try:
            first = self.request(b"".join(requests), give_up)
            if first.done():  # it is closed
                return [first] * len(requests)
            _, until, now = self._waiting[-1]
            self._waiting.extend([(reply, until, now) for reply in others])
        except BaseException:
            self._give_up_socket()
            raise
        return [first, *others]

    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def pending(self) -> list[asyncio.Future[Any]]:
        """The replies that are still to come."""
        return [reply for reply, _, _ in self._waiting if not reply.done()]

    def silent_for(self) -> float:
        """Seconds in which nothing has arrived."""
        return self._loop.time() - self.received_at

    def overdue_for(self) -> float:
        """Seconds for which the oldest request has waited for its reply."""
        return self._loop.time() - self._waiting[0][2] if self._waiting else 0.0

    def _flush(self) -> None:
        try:
            unsent, self._unsent = self._unsent, []
            if unsent and self.usable():
                self._transport.write(b"".join(unsent))  # type: ignore[union-attr]  # it is usable
        except BaseException:
            self._give_up_socket()
            raise

    def _give_up_socket(self) -> None:
        """A signal handler has raised between a request and its place in the order of replies. A reply could then be
        taken for that of a later request, and a release be believed that has not happened."""
        self._unsent.clear()  # whether these have left is unknown, as with all others
        self.abort()

    # ------------------------------------------------------------ time

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._time_out)

    def _time_out(self) -> None:
        """Give up on requests that took too long. Their replies may still come, so they keep their places in the order.
        When nothing at all has arrived since such a request was sent, the connection may be dead: new requests take
        another one, and this one is closed after its last reply."""
        self._timer = None
        now = self._loop.time()
        for reply, give_up, sent in self._waiting:
            if not reply.done() and give_up <= now:
                _fail(reply, Broken(SLOW))
                self._doubted = self._doubted or self.received_at < sent
        first = min((give_up for reply, give_up, _ in self._waiting if not reply.done()), default=None)
        if self._doubted:
            self._on_doubt(self)
        if first is not None:
            self._set_timer(first)
        elif self._doubted:
            self.abort()

    def doubt(self) -> None:
        """New requests take another connection, and this one is closed after its last reply."""
        self._doubted = True
        self._on_doubt(self)
        if not self._waiting:
            self.abort()

    # ------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport

    def data_received(self, data: bytes) -> None:
        self.received_at = self._loop.time()
        gets, waiting = self._reader.gets, self._waiting
        try:
            self._reader.feed(data)
            while (reply := gets()) is not NOTHING:
                if type(reply) is is_push and reply[0] not in SUBSCRIBED:
                    self._on_push(reply)
                else:
                    future = waiting[0][0]
                    if not future.done():
                        future.set_result(reply)
                    waiting.popleft()  # last: an interrupt before it ends the socket, and with it every wait in here
            if self._doubted and not waiting:  # it was kept for these replies alone
                self.abort()
        except (hiredis.HiredisError, IndexError) as error:  # it is no Redis, or sent a reply that was not requested
            self._closed_because = str(error)
            self.abort()
        except BaseException:  # replies that were read here are lost
            self._give_up_socket()
            raise

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsent = len(self._unsent)
        for place, (reply, _, _) in enumerate(self._waiting):
            if not reply.done():
                never_left = place >= len(self._waiting) - unsent
                text = str(error or self._closed_because)
                _fail(reply, NotSent(text) if never_left else Broken(text))
        self._waiting.clear()
        self._unsent.clear()
        self._on_lost(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def forked(self) -> None:
        """In the child: point this copy of the descriptor at nothing. The transport and its loop are the parent's."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None and sock.fileno() >= 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, sock.fileno())
            os.close(nowhere)


async def open_socket(target: Target, factory: Callable[[], AsyncRedisSocket]) -> AsyncRedisSocket:
    """A socket to that server, which ``factory`` makes once the server has accepted the connection."""
    loop = asyncio.get_running_loop()
    if target.path:
        _, socket = await loop.create_unix_connection(factory, target.path)
        socket.target = target
        return socket
    context = target.tls_context()
    name = target.host if context is not None else None
    transport, socket = await loop.create_connection(
        factory, target.host, target.port, ssl=context, server_hostname=name
    )
    sock = transport.get_extra_info("socket")
    if sock is not None:
        keep_alive(sock)
    socket.target = target
    return socket


def _fail(reply: asyncio.Future[Any], error: Broken) -> None:
    """End the wait for a reply. A task that was cancelled does not retrieve the error, nor does a handshake that sent
    several commands and fails at the first: asyncio must not warn of it."""
    reply.set_exception(error)
    reply.exception()
