"""One thread's way to the server: a wire that is opened when it is needed, and opened again when it broke.

Every op is sent once. What was certainly not sent is sent again on a new connection; what may have been is
OutcomeUnknown, and the flow knows what to do about that.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hiredis

from leasehold._core.light_typing import Any
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.ports import WAKE
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.handshake import handshake
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.sockets import MOST_PUSHES, SLOW, Broken, NotSent, RedisSocket
from leasehold.stores.redis.target import Target

LOOK_AFTER = 0.5  # seconds of silence after which one looks whether the other side has hung up
ASK_SECONDS = 1.0
GARBAGE, ALERT = "Protocol error", '"\\x15"'  # as hiredis says it; the first byte of a TLS alert
WANTS_TLS = "if this port wants TLS, connect with it (rediss://)"
ReplyError = hiredis.ReplyError


def new_channel() -> str:
    """Where pushes for one connection are published. Unguessable: whoever knows it could rouse a waiter in vain."""
    return f"lock:v1:push:{os.urandom(12).hex()}"


class Server:
    """The address of one server, as all connections of one store use it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.closed = False
        self.looked = False  # at how the server is set up
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()  # connections that count for max_connections
        self._opening = 0
        self._lock = threading.RLock()  # a signal handler may come in between

    def open(self, channel: str, give_up: float, pushes: deque[Any]) -> tuple[RedisSocket, bool]:
        """A new connection that puts pushes there, and whether it hears any."""
        if self.closed:
            raise StoreUnavailable(f"the store of {self.target} is closed")
        give_up = min(give_up, time.monotonic() + self.target.connect_timeout)
        try:
            wire = RedisSocket(self.target, give_up, pushes)
        except Broken as error:
            raise failures.unreachable(self.target.server, error) from error
        answered = False
        try:
            hello = handshake(self.target, channel, not self.looked)
            commands = next(hello)
            while True:
                replies = wire.exchange_many(commands, give_up)
                answered = True
                commands = hello.send(replies)
        except StopIteration as end:
            self.looked = True
            hears: bool = end.value.pushes
            return wire, hears
        except BaseException as error:
            wire.close()
            if isinstance(error, Broken):
                raise self.not_greeted(error, answered) from error
            raise

    def not_greeted(self, error: Broken, answered: bool) -> StoreUnavailable:
        """The connection ended in the middle of the first words. A port that wants TLS hangs up at the first of them,
        or answers with an alert."""
        target, text = self.target, str(error)
        strange = text == SLOW or (GARBAGE in text and ALERT not in text)
        if not answered and target.tls is None and not target.path and not strange:
            error = Broken(f"{text}; {WANTS_TLS}")
        return failures.unreachable(target.server, error)

    @contextmanager
    def counted(self, counts: bool = True) -> Iterator[Callable[[Any], None]]:
        """Open a connection that counts for ``max_connections``, and hand it to what this gives. Refused rather than
        waited for: those who have the others may be waiting for what this one would give back."""
        most = self.target.max_connections
        if most is None or not counts:
            yield lambda wire: None
            return
        with self._lock:
            if self._opening + sum(wire.usable() for wire in list(self._open)) >= most:
                raise StoreUnavailable(
                    f"{self.target.server} was not asked: {most} connections are open, and max_connections allows no "
                    "more. Allow as many as threads and event loops use locks at a time"
                )
            self._opening += 1
        try:
            yield self._open.add
        finally:
            with self._lock:
                self._opening -= 1

    def forked(self) -> None:
        """In the child: nothing is open, and nobody holds the lock."""
        self._open, self._opening, self._lock = weakref.WeakSet(), 0, threading.RLock()


class RedisConnection:
    """Implements ``core.ports.Mailbox``. Used by one thread at a time."""

    __slots__ = (
        "__weakref__",
        "_channel",
        "_closed",
        "_counts",
        "_forget",
        "_heard",
        "_line",
        "_pushes",
        "_wire",
        "address",
    )

    def __init__(
        self, line: Server, forget: Callable[[RedisConnection], object] = lambda connection: None, counts: bool = True
    ) -> None:
        self._line = line
        self._forget = forget
        self._counts = counts  # for max_connections
        self._heard: deque[Any] = deque(maxlen=MOST_PUSHES)  # pushes; they outlive the connection that they came by
        self.address = self._channel = new_channel()
        self._wire: RedisSocket | None = None
        self._pushes = True  # until the server says otherwise
        self._closed = False  # by any thread

    def execute(self, op: StoreOp) -> Reply:
        now = time.monotonic()
        give_up = now + op.budget_ms / 1000
        wire = self._wire
        try:
            if wire is None or wire.busy or now - wire.used > LOOK_AFTER:
                wire = self.ready(give_up)
            if not self._pushes:
                op = protocol.without_pushes(op)
            request = protocol.request(op)
            try:
                reply = wire.exchange(request, give_up)
            except NotSent:  # a new connection may try
                self.drop()
                wire = self.connect(give_up)
                reply = wire.exchange(request, give_up)
            if type(reply) is ReplyError:
                reply = self._again(wire, op, reply, give_up)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise
        except Broken as error:
            self.drop()
            raise failures.unanswered(self._line.target.server, error, op.resource or None) from error
        wire.used = time.monotonic()
        return protocol.decode(reply, op)

    def next_push(self, seconds: float) -> Push | None:
        if not self._heard:
            wire = self._wire
            if wire is None:
                time.sleep(seconds)
                return None
            try:
                wire.wait(seconds)
            except Broken:  # closed: by the server, or by us in another thread
                self.drop()
                return WAKE
        return self._parse(self._heard.popleft()) if self._heard else None

    def read(self) -> list[Push]:
        """All pushes that have arrived, without waiting."""
        self.look()
        pushes = [self._parse(self._heard.popleft()) for _ in range(len(self._heard))]
        return [push for push in pushes if push is not None]

    def look(self) -> bool:
        """Take in what has arrived: is there anything to read?"""
        wire = self._wire
        if wire is not None:
            try:
                wire.look()
            except Broken:
                self.drop()
        return bool(self._heard)

    def fileno(self) -> int:
        return -1 if self._wire is None else self._wire.fileno()

    def connect(self, give_up: float) -> RedisSocket:
        """An open connection, the present one if it is sound."""
        if self._wire is None:
            self._check_open()
            with self._line.counted(self._counts) as opened:
                self._wire, self._pushes = self._line.open(self._channel, give_up, self._heard)
                opened(self._wire)
            self._check_open()  # again: another thread may have closed it meanwhile
        return self._wire

    def _check_open(self) -> None:
        if self._closed:
            self.drop()
            raise StoreUnavailable(f"the store of {self._line.target} is closed")

    def drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def ready(self, give_up: float) -> RedisSocket:
        """A connection that can be used: not one whose last exchange was interrupted, not one that the server has
        closed, not one that a firewall has forgotten."""
        wire = self._wire
        if wire is not None and wire.busy:
            self.drop()
        elif wire is not None:
            now = time.monotonic()
            try:
                wire.look()
                if now - wire.used > self._line.target.ask_after:
                    wire.exchange(pack(("PING",)), min(now + ASK_SECONDS, (now + give_up) / 2))
                wire.used = now
            except Broken:
                self.drop()
        return self.connect(give_up)

    def close(self) -> None:
        self._closed = True
        self._forget(self)
        self.drop()

    def forked(self) -> None:
        """In the child: close our copy of the descriptor, say nothing, and be somebody else from now on."""
        self.address = self._channel = new_channel()
        self._heard.clear()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.forget()

    # ------------------------------------------------------------ when something is odd

    def _again(self, wire: RedisSocket, op: StoreOp, reply: Any, give_up: float) -> Any:
        """An error reply. A script that the server does not know (any more) is sent in full."""
        if str(reply).startswith("NOSCRIPT"):
            reply = wire.exchange(pack(protocol.with_text(protocol.command(op))), give_up)
        if type(reply) is ReplyError:
            raise failures.refusal(self._line.target.server, reply) from reply
        return reply

    def _parse(self, message: Any) -> Push | None:
        return protocol.push(self._channel, message[2]) if message[0] == b"message" else None
