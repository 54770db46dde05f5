"""An event loop's connection to the server, shared by all tasks of that loop: they use one socket (``loop_socket``),
and wait together for a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from copy import copy

from leasehold._core.driver import drive_async
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import WAKE, Push, Renew, Renewed, Reply, StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import durable, failures, protocol
from leasehold.stores.redis.connection import NEVER, PING_SECONDS, ReplyError, new_channel
from leasehold.stores.redis.loop_socket import AsyncRedisSocket, open_socket
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.server import SLOW_REPLY, Server
from leasehold.stores.redis.sockets import NO_TLS, SLOW, Broken, NotSent, no_tls
from leasehold.stores.redis.target import Target

if TYPE_CHECKING:
    from leasehold._core.claims import ClaimTemplate

LAST_REPLIES = 1.0  # seconds in which requests may be answered when their loop ends


class LoopConnection:
    """Implements ``_core.ports.AsyncConnection`` for the running event loop. ``notify`` is called there with each
    push."""

    def __init__(
        self, server: Server, notify: Callable[[Push], None], forget: Callable[[LoopConnection], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._notify = notify
        self._forget = forget
        self.address = self._channel = new_channel()
        self._socket: AsyncRedisSocket | None = None
        self._open: set[AsyncRedisSocket] = set()  # also those that only wait for their last replies
        self._gets_pushes = True  # until a handshake shows that it does not
        self._check_at = NEVER  # when to ask whether the server is still the right one
        self._connecting: asyncio.Task[None] | None = None
        self._in_tls_handshake = False
        self._closed = False
        self._lifetime: AsyncGenerator[None, None] | None = None
        self._waits: LoopConnection | None = None  # once a lease has asked for durability

    async def execute_async(self, op: StoreOp) -> Reply:
        now = self._loop.time()
        give_up = now + op.budget_ms / 1000
        try:
            socket = self._socket
            silent = socket is None or now - socket.received_at > self._server.target.ping_after
            if socket is None or silent or now > self._check_at or not socket.usable():
                socket = await self._ready(give_up)
            if not self._gets_pushes:
                op = protocol.without_pushes(op)
            if type(op) is Renew and op.durability:
                return await self._for_waiting().renew_durably(op, give_up)
            request = protocol.request(op)
            try:
                reply = await socket.request(request, give_up)
            except Broken as error:
                reply = await self._exchange(request, give_up, error)
            else:
                if self._check_at != NEVER and self._loop.time() - now > SLOW_REPLY:
                    await self._check_late_reply(socket)
            if type(reply) is ReplyError:
                reply = await self._after_error(reply, op, give_up)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise
        return protocol.decode(reply, op)

    async def execute_batch_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """All in one write."""
        from leasehold.stores.redis.loop_batch import LoopBatch  # loaded only by programs that use it

        return await LoopBatch(self, ops).execute()

    def _for_waiting(self) -> LoopConnection:
        """A connection of its own for what blocks one on the server."""
        if self._waits is None:
            self._waits = LoopConnection(self._server, self._notify, lambda connection: None)
            self._waits._closed = self._closed
        return self._waits

    async def renew_durably(self, op: Renew, give_up: float, before: tuple[protocol.Command, ...] = ()) -> Reply:
        """All commands are sent on one socket without a pause, those that have to stand ``before`` the Renew too. The
        confirmation of one that was refused is not waited for, as in ``RedisConnection``."""
        command = protocol.command(op)
        socket = await self._ready(give_up)
        sent = self._loop.time()
        try:
            for attempt in (command, protocol.with_text(command)):
                wait = durable.confirmation(op.durability, give_up - self._loop.time())
                *_, renewal, confirmation = [socket.request(pack(one), give_up) for one in (*before, attempt, wait)]
                reply = await renewal
                if durable.refused(reply):
                    self._leave(socket)
                    break
                confirmed = await confirmation
                if type(reply) is not ReplyError:
                    break
        except NotSent as error:
            raise failures.unreachable(self._server.name, error) from error
        except Broken as error:
            raise failures.unanswered(self._server.name, error) from error
        if self._check_at != NEVER and self._loop.time() - sent > SLOW_REPLY:
            await self._check_late_reply(socket)
        if type(reply) is ReplyError:
            raise self._server.refusal(reply) from reply
        renewed = protocol.decode(reply, op)
        if type(renewed) is Renewed:
            known = await self._replication(give_up) if durable.short(op.durability, confirmed) else b""
            durable.check(self._server.name, op.durability, confirmed, known)
        return renewed

    async def _replication(self, give_up: float) -> Any:
        """As ``RedisConnection.replication``."""
        seconds = min(give_up - self._loop.time(), durable.REPLICATION_SECONDS)
        try:
            return await self.execute_command(durable.REPLICATION, seconds) if seconds > 0 else b""
        except (LeaseholdError, ReplyError):
            return b""

    async def claim_async(self, template: ClaimTemplate, owner: str, floor: int, budget_ms: int) -> Reply:
        """The same as ``execute_async`` for the first claim of an acquire, quicker: most of it is packed already."""
        now, socket, packed = self._loop.time(), self._socket, template.packed
        if packed is None and template.used:
            packed = template.packed = protocol.prepared_claim(template.claim("", 0, budget_ms))
        template.used = True
        silent = socket is None or now - socket.received_at > self._server.target.ping_after
        if packed is None or socket is None or silent or now > self._check_at or not self._gets_pushes:
            return await self.execute_async(template.claim(owner, floor, budget_ms))
        request, give_up = packed(owner, floor), now + budget_ms / 1000
        try:
            try:
                reply = await socket.request(request, give_up)
            except Broken as error:
                reply = await self._exchange(request, give_up, error)
            else:
                if self._check_at != NEVER and self._loop.time() - now > SLOW_REPLY:
                    await self._check_late_reply(socket)
            grant = protocol.plain_grant(reply)
            if grant is not None:
                return grant
            op = template.claim(owner, floor, budget_ms)
            if type(reply) is ReplyError:
                reply = await self._after_error(reply, op, give_up)
        except LeaseholdError as error:
            error.resource = template.request.name.text
            raise
        return protocol.decode(reply, op)

    async def _after_error(self, reply: Any, op: StoreOp, give_up: float) -> Any:
        """What an error reply means is raised. Where the server does not have the script, the op is sent with it."""
        if str(reply).startswith("NOSCRIPT"):  # the server may have been restarted
            reply = await self._exchange(pack(protocol.with_text(protocol.command(op))), give_up)
        if type(reply) is ReplyError:
            if failures.demoted(reply):
                self._leave(self._socket)
            raise self._server.refusal(reply) from reply
        return reply

    async def execute_command(self, command: protocol.Command, seconds: float) -> Any:
        """Send a command that is not an op, such as a script of a result store. An error reply is raised as it is."""
        give_up = self._loop.time() + seconds
        await self._ready(give_up)
        reply = await self._exchange(pack(command), give_up)
        if type(reply) is ReplyError:
            if failures.demoted(reply):
                self._leave(self._socket)
            raise reply
        return reply

    async def _exchange(self, request: bytes, give_up: float, failed: Broken | None = None) -> Any:
        """Send, and wait for the reply; once more on a new socket when nothing was sent. ``failed``: what came of the
        first try."""
        try:
            if failed is not None and type(failed) is not NotSent:
                raise failed
            socket = self._socket or await self._ready(give_up)
            try:
                sent = self._loop.time()
                reply = await socket.request(request, give_up)
            except NotSent:
                socket = await self._ready(give_up)
                sent = self._loop.time()
                reply = await socket.request(request, give_up)
        except Broken as error:
            raise failures.unanswered(self._server.name, error) from error
        if self._check_at != NEVER and self._loop.time() - sent > SLOW_REPLY:
            await self._check_late_reply(socket)
        return reply

    async def _check_late_reply(self, socket: AsyncRedisSocket) -> None:
        """A server that stood still for so long may have been replaced meanwhile: then its reply does not count."""
        if not await self._server.confirms_async(socket.target, now=True):
            self._leave(socket)
            raise failures.replaced(socket.target)

    def _leave(self, socket: AsyncRedisSocket | None) -> None:
        """The next request opens a new socket, and waiters claim their places there. Another task may have seen to that
        already."""
        if socket is not None and socket is self._socket:
            socket.doubt()
            self._notify(WAKE)

    # ------------------------------------------------------------ connecting

    def open_socket(self) -> AsyncRedisSocket | None:
        """The socket, if it can be used without waiting."""
        socket = self._socket
        fresh = socket is not None and socket.usable() and socket.silent_for() <= self._server.target.ping_after
        return socket if fresh else None

    async def ready(self, give_up: float) -> AsyncRedisSocket:
        """The same, after waiting for it if need be."""
        return await self._ready(give_up)

    async def _ready(self, give_up: float) -> AsyncRedisSocket:
        """A socket that can be used. All tasks that need a new one wait for the same."""
        socket = self._socket
        if socket is not None and socket.usable() and await self._checked(socket, give_up):
            return socket
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        connecting = self._connecting
        try:
            async with asyncio.timeout_at(give_up):  # wait_for would swallow a cancellation that comes with the result
                await asyncio.shield(connecting)
        except LeaseholdError as error:  # all tasks that wait get this one, and each sets its own resource
            raise copy(error) from error.__cause__
        except TimeoutError as error:
            raise self._out_of_time() from error
        except asyncio.CancelledError:
            if connecting.cancelled() and self._closed:  # cancelled by close(), and not the task that waits here
                self._check_open()
            raise
        if self._socket is None:
            raise failures.unreachable(self._server.name, Broken("the connection was closed at once"))
        return self._socket

    async def _checked(self, socket: AsyncRedisSocket, give_up: float) -> bool:
        """Whether no firewall has forgotten it, and its server is still the right one."""
        now = self._loop.time()
        try:
            if socket.silent_for() > self._server.target.ping_after:
                await socket.request(pack(("PING",)), min(now + PING_SECONDS, (now + give_up) / 2))
        except Broken:
            socket.abort()
            return False
        if now > self._check_at:
            right = await self._server.confirms_async(socket.target)
            self._check_at = self._loop.time() + self._server.believed_for
            if not right:
                self._leave(socket)
                return False
        return True

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # the tasks that waited for it may be gone, and asyncio would warn

    async def _connect(self) -> None:
        server = self._server
        self._check_open()
        if self._lifetime is None:
            self._lifetime = self._close_with_loop()
            await anext(self._lifetime)
        socket = None
        try:
            with server.counted() as opened:
                async with asyncio.timeout(server.target.connect_timeout):
                    socket = await server.open_async(self._open_socket)
                opened(socket)
            self._check_open()  # again: it may have been closed meanwhile
        except BaseException as error:
            if socket is not None:
                socket.abort()
            if isinstance(error, LeaseholdError) or not isinstance(error, (OSError, Broken, UnicodeError)):
                raise
            if isinstance(error, TimeoutError):
                raise self._out_of_time() from error
            raise failures.unreachable(server.name, self._not_opened(error)) from error
        finally:
            self._in_tls_handshake = False
        server.checked = True
        self._socket = socket
        self._check_at = self._loop.time() + server.believed_for

    async def _open_socket(self, target: Target) -> AsyncRedisSocket:
        socket = None
        try:
            socket = await open_socket(target, self._reached)
            self._in_tls_handshake = False
            self._open.add(socket)
            self._gets_pushes = await self._shake_hands(socket, target)
        except BaseException:
            if socket is not None:
                socket.abort()
            raise
        return socket

    def _reached(self) -> AsyncRedisSocket:
        """The server has accepted the connection. With TLS, the TLS handshake is next."""
        target = self._server.target
        self._in_tls_handshake = target.tls is not None
        return AsyncRedisSocket(self._pushed, self._doubt, self._lost, target.reply_timeout)

    def _not_opened(self, error: Exception) -> Exception:
        return Broken(f"{error}; {NO_TLS}") if self._in_tls_handshake and no_tls(error) else error

    def _out_of_time(self) -> StoreUnavailable:
        trouble = self._server.trouble
        return StoreUnavailable(trouble) if trouble else failures.unreachable(self._server.name, self._slow())

    def _slow(self) -> Broken:
        return Broken(f"{SLOW}; {NO_TLS}" if self._in_tls_handshake else SLOW)

    def _check_open(self) -> None:
        if self._server.closed or self._closed:
            raise StoreUnavailable(f"the store of {self._server.place} is closed")

    async def _shake_hands(self, socket: AsyncRedisSocket, target: Target) -> bool:
        """Whether this socket receives pushes."""
        give_up = self._loop.time() + self._server.target.connect_timeout

        async def exchange(commands: list[protocol.Command]) -> list[Any]:
            replies = [socket.request(pack(command), give_up) for command in commands]
            return [await reply for reply in replies]

        return await drive_async(self._server.handshake(target, self._channel).flow(), exchange)

    # ------------------------------------------------------------ pushes

    def _pushed(self, message: Any) -> None:
        if message[0] == b"message":
            if self._check_at != NEVER and any(socket.overdue_for() > SLOW_REPLY for socket in self._open):
                return  # the server stands still or did, and the late reply that follows may not count either
            push = protocol.push(self._channel, message[2])
            if push is not None:
                self._notify(push)

    def _doubt(self, socket: AsyncRedisSocket) -> None:
        """The next request opens a new socket."""
        if socket is self._socket:
            self._socket = None
            self._server.distrust()

    def _lost(self, socket: AsyncRedisSocket) -> None:
        """Waiters beat now: that opens a new socket, and claims the place in the queue again."""
        self._open.discard(socket)
        if socket is self._socket:
            self._socket = None
            self._server.distrust()
            self._notify(WAKE)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """From any thread, also when the loop is closed already."""
        self._closed = True
        if self._waits is not None:
            self._waits.close()
        self._forget(self)
        self._socket = None
        connecting = self._connecting
        ends: list[Callable[[], object]] = [socket.abort for socket in list(self._open)]
        if connecting is not None:
            ends.append(connecting.cancel)
        for end in ends:
            if not self._loop.is_closed():
                try:
                    self._loop.call_soon_threadsafe(end)
                except RuntimeError:  # closed meanwhile
                    return

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close the sockets when the loop ends: ``asyncio.run`` closes the generators that were begun on its loop. A
        generator that is closed together with this one may still be releasing a lease."""
        try:
            yield
        finally:
            await asyncio.sleep(0)  # so that the others have sent their requests
            pending = [reply for socket in self._open for reply in socket.pending()]
            if pending:
                await asyncio.wait(pending, timeout=LAST_REPLIES)
            for socket in list(self._open):
                socket.abort()
            await asyncio.sleep(0)  # asyncio closes the descriptor in the next turn of the loop

    def forked(self) -> None:
        if self._waits is not None:
            self._waits.forked()
        for socket in list(self._open):
            socket.forked()
