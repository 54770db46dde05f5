"""A thread's connection to the server: its socket is opened when it is first needed, and again after it broke.

A request is sent once. One that was certainly not sent is sent again on a new socket; one that may have been sent is
OutcomeUnknown, and the flow decides what to do about it.
"""

from __future__ import annotations

import math
import os
import time
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable, Sequence

import hiredis

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import WAKE, Push, Renew, Renewed, Reply, StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.place import here
from leasehold.stores.redis import durable, failures, protocol
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.server import SLOW_REPLY, Server
from leasehold.stores.redis.sockets import MOST_PUSHES, Broken, NotSent, RedisSocket

if TYPE_CHECKING:
    from leasehold._core.claims import ClaimTemplate

NEVER = math.inf
CHECK_AFTER = 0.5  # seconds without use, after which a socket is checked before it is used again
PING_SECONDS = 1.0  # for the reply to a PING that tries a connection
ReplyError = hiredis.ReplyError


def new_channel() -> str:
    """The channel on which pushes for one connection are published. It cannot be guessed: a client that knew it could
    wake a waiter for nothing. It ends with the place of this process."""
    place = here()
    secret = os.urandom(9 if place else 12)
    return f"lock:v1:push:{b2a_base64(secret, newline=False).decode()}{place}"  # shorter in every record than in hex


class RedisConnection:
    """Implements ``_core.ports.Connection``. One thread uses it at a time."""

    __slots__ = (
        "__weakref__",
        "_channel",
        "_check_at",
        "_closed",
        "_counts",
        "_forget",
        "_gets_pushes",
        "_pushes",
        "_server",
        "_socket",
        "address",
    )

    def __init__(
        self,
        server: Server,
        forget: Callable[[RedisConnection], object] = lambda connection: None,
        counts: bool = True,
        most_pushes: int = MOST_PUSHES,
    ) -> None:
        self._server = server
        self._forget = forget
        self._counts = counts  # for max_connections
        self._pushes: deque[Any] = deque(maxlen=most_pushes)  # they outlive the socket on which they arrived
        self.address = self._channel = new_channel()
        self._socket: RedisSocket | None = None
        self._gets_pushes = True  # until a handshake shows that it does not
        self._check_at = NEVER  # when to ask whether the server is still the right one
        self._closed = False  # set by any thread

    def execute(self, op: StoreOp) -> Reply:
        now = time.monotonic()
        give_up = now + op.budget_ms / 1000
        try:
            socket = self._socket
            if socket is None or socket.busy or now - socket.used > CHECK_AFTER or now > self._check_at:
                self.ready(give_up)
            if not self._gets_pushes:
                op = protocol.without_pushes(op)
            if type(op) is Renew and op.durability:
                return self._renew_durably(op, give_up)
            reply = self._exchange(protocol.request(op), give_up)
            if type(reply) is ReplyError:
                reply = self._after_error(reply, op, give_up)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise
        return protocol.decode(reply, op)

    def execute_batch(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """All in one write."""
        from leasehold.stores.redis.batch import execute_batch  # loaded only by programs that use it

        return execute_batch(self, ops)

    def addressed(self, op: StoreOp, give_up: float) -> StoreOp:
        """The op as this server is to get it: one that cannot push to this connection is given no address of it."""
        return op if self._gets_pushes else protocol.without_pushes(op)

    def _renew_durably(self, op: Renew, give_up: float, before: tuple[protocol.Command, ...] = ()) -> Reply:
        """All commands in one write on one socket, those that have to stand ``before`` the Renew too."""
        command, sent = protocol.command(op), time.monotonic()
        try:
            socket = self.connect(give_up)
            for attempt in (command, protocol.with_text(command)):
                wait = durable.confirmation(op.durability, give_up - time.monotonic())
                reply, confirmed = self._confirmed(socket, (*before, attempt, wait), give_up)
                if type(reply) is not ReplyError or durable.refused(reply):
                    break
        except NotSent as error:
            self.drop()
            raise failures.unreachable(self._server.name, error) from error
        except Broken as error:
            self.drop()
            raise failures.unanswered(self._server.name, error) from error
        if self._check_at != NEVER and time.monotonic() - sent > SLOW_REPLY:
            self.doubt(socket, give_up)
        if type(reply) is ReplyError:
            raise self._server.refusal(reply) from reply
        renewed = protocol.decode(reply, op)
        if type(renewed) is Renewed:
            known = self.replication(give_up) if durable.short(op.durability, confirmed) else b""
            durable.check(self._server.name, op.durability, confirmed, known)
        return renewed

    def replication(self, give_up: float) -> Any:
        """What the server says of its replicas, for an error. Empty if it does not say so soon, or may not."""
        seconds = min(give_up - time.monotonic(), durable.REPLICATION_SECONDS)
        try:
            return self.execute_command(durable.REPLICATION, seconds) if seconds > 0 else b""
        except (LeaseholdError, ReplyError):
            return b""

    def _confirmed(self, socket: RedisSocket, commands: Sequence[protocol.Command], give_up: float) -> tuple[Any, Any]:
        """The last two replies. When the last but one is a refusal, the last is not waited for: it confirms nothing,
        and a server that lacks replicas would let us wait until the time is over."""
        replies: list[Any] = []
        socket.send_many(commands, give_up)
        socket.receive_many(replies, len(commands) - 1, give_up, more=True)
        if durable.refused(replies[-1]):
            self.drop()
            return replies[-1], None
        socket.receive_many(replies, len(commands), give_up)
        return replies[-2], replies[-1]

    def claim(self, template: ClaimTemplate, owner: str, floor: int, budget_ms: int) -> Reply:
        """The same as ``execute`` for the first claim of an acquire, quicker: most of it is packed already."""
        now, socket, packed = time.monotonic(), self._socket, template.packed
        if packed is None and template.used:
            packed = template.packed = protocol.prepared_claim(template.claim("", 0, budget_ms))
        template.used = True
        ready = socket is not None and not socket.busy and now - socket.used <= CHECK_AFTER and self._gets_pushes
        if packed is None or not ready or now > self._check_at:
            return self.execute(template.claim(owner, floor, budget_ms))
        give_up = now + budget_ms / 1000
        try:
            reply = self._exchange(packed(owner, floor), give_up)
            grant = protocol.plain_grant(reply)
            if grant is not None:
                return grant
            op = template.claim(owner, floor, budget_ms)
            if type(reply) is ReplyError:
                reply = self._after_error(reply, op, give_up)
        except LeaseholdError as error:
            error.resource = template.request.name.text
            raise
        return protocol.decode(reply, op)

    def _after_error(self, reply: Any, op: StoreOp, give_up: float) -> Any:
        """What an error reply means is raised. Where the server does not have the script, the op is sent with it."""
        if str(reply).startswith("NOSCRIPT"):  # the server may have been restarted
            reply = self._exchange(pack(protocol.with_text(protocol.command(op))), give_up)
        if type(reply) is ReplyError:
            if failures.demoted(reply):
                self.drop()
            raise self._server.refusal(reply) from reply
        return reply

    def execute_command(self, command: protocol.Command, seconds: float) -> Any:
        """Send a command that is not an op, such as a script of a result store. An error reply is raised as it is."""
        give_up = time.monotonic() + seconds
        self.ready(give_up)
        reply = self._exchange(pack(command), give_up)
        if type(reply) is ReplyError:
            if failures.demoted(reply):
                self.drop()
            raise reply
        return reply

    def _exchange(self, request: bytes, give_up: float) -> Any:
        try:
            try:
                socket = self._socket or self.connect(give_up)
                reply = socket.exchange(request, give_up)
            except NotSent:
                self.drop()
                socket = self.connect(give_up)
                reply = socket.exchange(request, give_up)
        except Broken as error:
            self.drop()
            raise failures.unanswered(self._server.name, error) from error
        if self._check_at != NEVER and time.monotonic() - socket.used > SLOW_REPLY:
            self.doubt(socket, give_up)
        return reply

    def doubt(self, socket: RedisSocket, give_up: float) -> None:
        """A server that stood still for so long may have been replaced meanwhile: then neither its reply nor its pushes
        count."""
        if not self._server.confirms(socket.target, give_up, now=True):
            self._pushes.clear()
            self.drop()
            raise failures.replaced(socket.target)

    def next_push(self, seconds: float) -> Push | None:
        if not self._pushes:
            socket = self._socket
            if socket is None:
                time.sleep(seconds)
                return None
            try:
                socket.wait(seconds)
            except Broken:  # closed by the server, or by another thread of ours
                self.drop()
                return WAKE
        return self._parse(self._pushes.popleft()) if self._pushes else None

    def read(self) -> list[Push]:
        """All pushes that have arrived, without waiting."""
        self.receive()
        pushes = [self._parse(self._pushes.popleft()) for _ in range(len(self._pushes))]
        return [push for push in pushes if push is not None]

    def receive(self) -> bool:
        """Take in what has arrived. True if there are pushes to read."""
        socket = self._socket
        if socket is not None:
            try:
                socket.receive_pushes()
            except Broken:
                self.drop()
        return bool(self._pushes)

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def connect(self, give_up: float) -> RedisSocket:
        """The open socket, or a new one."""
        return self._socket or self.use(*self.open(give_up))

    def open(self, give_up: float) -> tuple[RedisSocket, bool]:
        """A new socket that is not used yet, and whether it gets pushes. Another thread may use the connection
        meanwhile."""
        self._check_open()
        with self._server.counted(self._counts) as opened:
            found = self._server.open(self._channel, give_up, self._pushes)
            opened(found[0])
        return found

    def use(self, socket: RedisSocket, gets_pushes: bool) -> RedisSocket:
        """Use this socket from now on, unless there is one by now."""
        if self._socket is None:
            self._socket, self._gets_pushes = socket, gets_pushes
            self._check_at = time.monotonic() + self._server.believed_for
        else:
            socket.close()
        self._check_open()  # again: another thread may have closed it meanwhile
        return self._socket

    def _check_open(self) -> None:
        if self._closed:
            self.drop()
            raise StoreUnavailable(f"the store of {self._server.place} is closed")

    def drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
            self._server.distrust()

    def ready(self, give_up: float) -> RedisSocket:
        """A socket that can be used: its last exchange was not interrupted, the server has not closed it, no firewall
        has forgotten it, and its server is still the right one."""
        socket = self._socket
        if socket is not None and socket.busy:
            self.drop()
        elif socket is not None:
            now = time.monotonic()
            try:
                socket.receive_pushes()
                if now - socket.used > self._server.target.ping_after:
                    socket.exchange(pack(("PING",)), min(now + PING_SECONDS, (now + give_up) / 2))
                socket.used = now
            except Broken:
                self.drop()
            else:
                if now > self._check_at:
                    self._confirm(socket, give_up)
        return self.connect(give_up)

    def _confirm(self, socket: RedisSocket, give_up: float) -> None:
        """Leave a server that is not the right one any more. Pushes of such a server do not count."""
        if not self._server.confirms(socket.target, give_up):
            self._pushes.clear()
            self.drop()
        self._check_at = time.monotonic() + self._server.believed_for

    def close(self) -> None:
        self._closed = True
        self._forget(self)
        self.drop()

    def forked(self) -> None:
        """In the child: close this copy of the descriptor, send nothing, and take a new address."""
        self.address = self._channel = new_channel()
        self._pushes.clear()
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close_copy()

    def _parse(self, message: Any) -> Push | None:
        return protocol.push(self._channel, message[2]) if message[0] == b"message" else None
