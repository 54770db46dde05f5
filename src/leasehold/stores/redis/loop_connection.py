"""The thin connection for asyncio: one for each event loop, shared by all of its tasks.

Replies come in the order of the requests. A lone caller's request is written at once; what is asked while others are
under way leaves in one write at the end of the loop's turn, so that a thousand tasks cost a few system calls.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

import hiredis

from leasehold._core.light_typing import Any
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.ports import WAKE
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.connection import ASK_SECONDS, ReplyError, Server, new_channel
from leasehold.stores.redis.handshake import handshake
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.sockets import (
    NO_TLS,
    NOTHING,
    SLOW,
    SUBSCRIBED,
    Broken,
    NotSent,
    is_push,
    keep_alive,
    no_tls,
)
from leasehold.stores.redis.target import Target

Notify = Callable[[Push], None]


class AsyncRedisSocket(asyncio.Protocol):
    """One open connection. Knows nothing of leases."""

    def __init__(
        self,
        on_push: Callable[[Any], None],
        on_doubt: Callable[[AsyncRedisSocket], None],
        on_lost: Callable[[AsyncRedisSocket], None],
        patience: float,
    ) -> None:
        self._patience = patience  # seconds for one reply
        self._loop = asyncio.get_running_loop()
        self._on_push = on_push
        self._on_doubt = on_doubt
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._waiting: deque[tuple[asyncio.Future[Any], float, float]] = deque()  # reply, when to give up, sent when
        self._unsent: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._doubted = False
        self._why = "the connection was closed by the server"
        self.heard = self._loop.time()

    # ------------------------------------------------------------ asking

    def ask(self, request: bytes, give_up: float) -> asyncio.Future[Any]:
        """The reply, or Broken, at the latest at that time of the loop's clock."""
        now = self._loop.time()
        give_up = min(give_up, now + self._patience)
        reply: asyncio.Future[Any] = self._loop.create_future()
        if not self.usable():
            reply.set_exception(NotSent("the connection is closed"))
            return reply
        if self._waiting:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(request)
        else:
            self._transport.write(request)  # type: ignore[union-attr]  # it is usable
        self._waiting.append((reply, give_up, now))
        if self._timer is None or self._timer.when() > give_up:
            self._set_timer(give_up)
        return reply

    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def quiet(self) -> float:
        """For how long nothing has arrived."""
        return self._loop.time() - self.heard

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self.usable():
            self._transport.write(b"".join(unsent))  # type: ignore[union-attr]  # it is usable

    # ------------------------------------------------------------ time

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look_at_clock)

    def _look_at_clock(self) -> None:
        """Give up on what took too long. Its reply may still come: the place in line stays. When nothing at all has
        come since it was sent, the connection may be dead: others take a new one, and this one ends with its last
        request."""
        self._timer = None
        now = self._loop.time()
        for reply, give_up, sent in self._waiting:
            if not reply.done() and give_up <= now:
                reply.set_exception(Broken(SLOW))
                self._doubted = self._doubted or self.heard < sent
        first = min((give_up for reply, give_up, _ in self._waiting if not reply.done()), default=None)
        if self._doubted:
            self._on_doubt(self)
        if first is not None:
            self._set_timer(first)
        elif self._doubted:
            self.abort()

    # ------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        gets, waiting = self._reader.gets, self._waiting
        try:
            self._reader.feed(data)
            while (reply := gets()) is not NOTHING:
                if type(reply) is is_push and reply[0] != SUBSCRIBED:
                    self._on_push(reply)
                else:
                    future = waiting.popleft()[0]
                    if not future.done():
                        future.set_result(reply)
            if self._doubted and not waiting:  # it was kept for these alone
                self.abort()
        except (hiredis.HiredisError, IndexError) as error:  # it does not speak Redis, or more than it was asked
            self._why = str(error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsent = len(self._unsent)
        for place, (reply, _, _) in enumerate(self._waiting):
            if not reply.done():
                never_left = place >= len(self._waiting) - unsent
                text = str(error or self._why)
                reply.set_exception(NotSent(text) if never_left else Broken(text))
                reply.exception()  # whoever was cancelled does not ask for it
        self._waiting.clear()
        self._unsent.clear()
        self._on_lost(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def forked(self) -> None:
        """In a child: let our copy of the descriptor lead nowhere. The transport and its loop are the parent's."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None and sock.fileno() >= 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, sock.fileno())
            os.close(nowhere)


class LoopConnection:
    """One event loop's way to the server."""

    def __init__(self, line: Server) -> None:
        self.loop = asyncio.get_running_loop()
        self._line = line
        self._channel = new_channel()
        self._wire: AsyncRedisSocket | None = None
        self._open: set[AsyncRedisSocket] = set()  # also those that only finish what was asked of them
        self._pushes = True
        self._connecting: asyncio.Task[None] | None = None
        self._securing = False  # it is in the middle of the TLS handshake
        self._ears: list[LoopSubscriber] = []
        self.closed = False

    @property
    def address(self) -> str:
        return self._channel

    def listen(self, notify: Notify) -> LoopSubscriber:
        subscriber = LoopSubscriber(self, notify)
        self._ears.append(subscriber)
        return subscriber

    async def execute(self, op: StoreOp) -> Reply:
        give_up = self.loop.time() + op.budget_ms / 1000
        try:
            wire = self._wire
            if wire is None or not wire.usable() or wire.quiet() > self._line.target.ask_after:
                wire = await self._ready(give_up)
            if not self._pushes:
                op = protocol.without_pushes(op)
            request = protocol.request(op)
            try:
                reply = await wire.ask(request, give_up)
            except NotSent:
                reply = await (await self._ready(give_up)).ask(request, give_up)
            if type(reply) is ReplyError:
                reply = await self._again(op, reply, give_up)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise
        except Broken as error:
            raise failures.unanswered(self._line.target.server, error, op.resource or None) from error
        return protocol.decode(reply, op)

    async def _again(self, op: StoreOp, reply: Any, give_up: float) -> Any:
        """An error reply. A script that the server does not know (any more) is sent in full."""
        if str(reply).startswith("NOSCRIPT") and self._wire is not None:
            reply = await self._wire.ask(pack(protocol.with_text(protocol.command(op))), give_up)
        if type(reply) is ReplyError:
            raise failures.refusal(self._line.target.server, reply) from reply
        return reply

    # ------------------------------------------------------------ connecting

    async def _ready(self, give_up: float) -> AsyncRedisSocket:
        """A connection that can be used. All tasks that need one wait for the same."""
        wire = self._wire
        now = self.loop.time()
        if wire is not None and wire.usable():
            if wire.quiet() <= self._line.target.ask_after:
                return wire
            try:
                await wire.ask(pack(("PING",)), min(now + ASK_SECONDS, (now + give_up) / 2))
                return wire
            except Broken:
                wire.abort()
        if self._connecting is None:
            self._connecting = self.loop.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        connecting = self._connecting
        try:
            async with asyncio.timeout_at(give_up):  # wait_for would swallow a cancellation that comes with the result
                await asyncio.shield(connecting)
        except TimeoutError as error:
            raise failures.unreachable(self._line.target.server, self._slow()) from error
        except asyncio.CancelledError:
            if connecting.cancelled() and self.closed:  # by close(), not by whoever waits here
                self._check_open()
            raise
        if self._wire is None:
            raise failures.unreachable(self._line.target.server, Broken("the connection was closed at once"))
        return self._wire

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waited for it has heard it, or has gone

    async def _connect(self) -> None:
        line = self._line
        self._check_open()
        wire = None
        try:
            with line.counted() as opened:
                async with asyncio.timeout(line.target.connect_timeout):
                    wire = await _open(line.target, self._reached)
                    self._securing = False
                    self._open.add(wire)
                    opened(wire)
                    self._pushes = await self._greet(wire)
            self._check_open()  # again: it may have been closed meanwhile
        except BaseException as error:
            if wire is not None:
                wire.abort()
            if isinstance(error, LeaseholdError) or not isinstance(error, (OSError, Broken, UnicodeError)):
                raise
            raise failures.unreachable(line.target.server, self._not_opened(error)) from error
        finally:
            self._securing = False
        line.looked = True
        self._wire = wire

    def _reached(self) -> AsyncRedisSocket:
        """The other side has taken our call. With TLS, the handshake is next."""
        target = self._line.target
        self._securing = target.tls is not None
        return AsyncRedisSocket(self._pushed, self._doubt, self._lost, target.reply_timeout)

    def _not_opened(self, error: Exception) -> Exception:
        if isinstance(error, TimeoutError):
            return self._slow()
        return Broken(f"{error}; {NO_TLS}") if self._securing and no_tls(error) else error

    def _slow(self) -> Broken:
        return Broken(f"{SLOW}; {NO_TLS}" if self._securing else SLOW)

    def _check_open(self) -> None:
        if self._line.closed or self.closed:
            raise StoreUnavailable(f"the store of {self._line.target} is closed")

    async def _greet(self, wire: AsyncRedisSocket) -> bool:
        hello = handshake(self._line.target, self._channel, not self._line.looked)
        give_up = self.loop.time() + self._line.target.connect_timeout
        answered = False
        try:
            commands = next(hello)
            while True:
                asked = [wire.ask(pack(command), give_up) for command in commands]
                replies = [await reply for reply in asked]
                answered = True
                commands = hello.send(replies)
        except StopIteration as end:
            return bool(end.value.pushes)
        except Broken as error:
            raise self._line.not_greeted(error, answered) from error

    # ------------------------------------------------------------ pushes

    def _pushed(self, message: Any) -> None:
        if message[0] == b"message":
            push = protocol.push(self._channel, message[2])
            if push is not None:
                self._tell(push)

    def _tell(self, push: Push) -> None:
        for subscriber in self._ears:
            subscriber.notify(push)

    def _doubt(self, wire: AsyncRedisSocket) -> None:
        """The next op connects anew."""
        if wire is self._wire:
            self._wire = None

    def _lost(self, wire: AsyncRedisSocket) -> None:
        """Whoever waits beats now: that opens a new connection, and claims the place in the queue again."""
        self._open.discard(wire)
        if wire is self._wire:
            self._wire = None
            self._tell(WAKE)

    # ------------------------------------------------------------ the end

    def leave(self, subscriber: LoopSubscriber) -> None:
        if subscriber in self._ears:
            self._ears.remove(subscriber)
        if not self._ears:
            self.close()

    def close(self) -> None:
        """From any thread, also when the loop is closed already."""
        self.closed = True
        self._wire = None
        connecting = self._connecting
        ends: list[Callable[[], object]] = [wire.abort for wire in list(self._open)]
        if connecting is not None:
            ends.append(connecting.cancel)
        for end in ends:
            if not self.loop.is_closed():
                try:
                    self.loop.call_soon_threadsafe(end)
                except RuntimeError:  # closed meanwhile
                    return

    def forked(self) -> None:
        for wire in list(self._open):
            wire.forked()


class LoopSubscriber:
    """Implements ``core.ports.Ear``."""

    __slots__ = ("_post", "execute_async", "notify")

    def __init__(self, post: LoopConnection, notify: Notify) -> None:
        self._post = post
        self.execute_async = post.execute
        self.notify = notify

    @property
    def address(self) -> str:
        return self._post.address

    def close(self) -> None:
        self._post.leave(self)


class LoopConnections:
    """The posts of one store, one for each event loop."""

    def __init__(self, line: Server) -> None:
        self._line = line
        self._posts: dict[asyncio.AbstractEventLoop, LoopConnection] = {}

    def current(self) -> LoopConnection:
        loop = asyncio.get_running_loop()
        post = self._posts.get(loop)
        if post is None or post.closed:
            for other in [one for one in list(self._posts) if one.is_closed()]:
                self._posts.pop(other, None)
            post = self._posts[loop] = LoopConnection(self._line)
        return post

    def close(self) -> None:
        for post in list(self._posts.values()):
            post.close()

    def forked(self) -> None:
        for post in list(self._posts.values()):
            post.forked()


async def _open(target: Target, factory: Callable[[], AsyncRedisSocket]) -> AsyncRedisSocket:
    loop = asyncio.get_running_loop()
    if target.path:
        _, wire = await loop.create_unix_connection(factory, target.path)
        return wire
    context = target.tls_context()
    name = target.host if context is not None else None
    transport, wire = await loop.create_connection(factory, target.host, target.port, ssl=context, server_hostname=name)
    sock = transport.get_extra_info("socket")
    if sock is not None:
        keep_alive(sock)
    return wire
