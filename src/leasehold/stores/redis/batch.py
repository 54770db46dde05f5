"""Several ops of different resources on their way to one server: all in one write, their replies read together.

A batch for several servers is one of these for each: all are sent before any reply is read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from leasehold._core.light_typing import Any
from leasehold._core.ops import Renewed, Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import durable, failures, protocol
from leasehold.stores.redis.connection import NEVER, RedisConnection, ReplyError
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.server import SLOW_REPLY
from leasehold.stores.redis.sockets import Broken, NotSent, RedisSocket

Outcomes = list[Reply | LeaseholdError]


def budget(ops: Sequence[StoreOp]) -> float:
    """Seconds that these may take together."""
    return min([op.budget_ms for op in ops]) / 1000


def unknown_script(reply: object) -> bool:
    """True for the reply of a server that does not have the script: it may have been restarted (trap 18)."""
    return type(reply) is ReplyError and str(reply).startswith("NOSCRIPT")


def with_texts(ops: Sequence[StoreOp]) -> list[bytes]:
    """The requests for a server that does not have their scripts. The first of each script has its text, which teaches
    the server that script: a text is long, and there may be hundreds of ops."""
    known: set[type] = set()
    requests = []
    for op in ops:
        requests.append(protocol.request(op) if type(op) in known else pack(protocol.with_text(protocol.command(op))))
        known.add(type(op))
    return requests


class ServerBatch:
    """A batch on a thread's connection to one server: ``send``, then ``receive``, each once."""

    def __init__(self, connection: RedisConnection, ops: Sequence[StoreOp], give_up: float) -> None:
        self._connection = connection
        self._server = connection._server
        self._ops = ops
        self._give_up = give_up
        self._waits: dict[str, protocol.Command] = {}  # confirmations that replicas or the disk owe, behind the ops
        self._socket: RedisSocket | None = None
        self._sent = 0.0
        self._error: LeaseholdError | None = None  # nothing was sent, or no one knows

    def send(self) -> None:
        """What fails here is the outcome of each op."""
        try:
            self._send([protocol.request(op) for op in self._addressed()])
        except LeaseholdError as error:
            self._error = error

    def receive(self) -> Outcomes:
        replies = self._receive()
        missing = [at for at, reply in enumerate(replies) if unknown_script(reply)]
        if missing and self._error is None:
            again = ServerBatch(self._connection, [self._ops[at] for at in missing], self._give_up)
            for at, reply in zip(missing, again.in_full(), strict=True):
                replies[at] = reply
        return [self._outcome(op, reply) for op, reply in zip(self._ops, replies, strict=True)]

    def in_full(self) -> list[Any]:
        """The replies to the same ops, sent with the texts of their scripts."""
        try:
            self._send(with_texts(self._ops))
        except LeaseholdError as error:
            self._error = error
        return self._receive()

    # ------------------------------------------------------------ bytes

    def _addressed(self) -> Sequence[StoreOp]:
        self._connection.ready(self._give_up)
        self._ops = [self._connection.addressed(op, self._give_up) for op in self._ops]
        return self._ops

    def _send(self, requests: list[bytes]) -> None:
        """In one write; once more on a new socket when nothing was sent."""
        connection, give_up = self._connection, self._give_up
        wanted = [durable.durability(op) for op in self._ops]
        self._waits = durable.confirmations(wanted, give_up - time.monotonic())
        packed = b"".join([*requests, *map(pack, self._waits.values())])
        try:
            try:
                self._socket = connection.connect(give_up)
                self._sent = time.monotonic()
                self._socket.send_packed(packed, give_up)
            except NotSent:
                connection.drop()
                self._socket = connection.connect(give_up)
                self._sent = time.monotonic()
                self._socket.send_packed(packed, give_up)
        except Broken as error:
            connection.drop()
            raise failures.unanswered(self._server.name, error) from error

    def _receive(self) -> list[Any]:
        """A reply for each op. For those that none came to the error, after which the socket is not used again."""
        count, replies = len(self._ops), list[Any]()
        socket, self._socket = self._socket, None
        if self._error is not None or socket is None:
            return [self._error] * count
        try:
            self._read(socket, replies)
            if self._connection._check_at != NEVER and time.monotonic() - self._sent > SLOW_REPLY:
                self._connection.doubt(socket, self._give_up)
        except Broken as error:
            self._connection.drop()
            self._error = failures.unanswered(self._server.name, error)
            self._error.__cause__ = error
        except LeaseholdError as error:  # another server has taken the place of this one: no reply counts
            self._error = error
            return [error] * count
        replies += [self._error] * (count - len(replies))
        return self._confirmed(replies)

    def _read(self, socket: RedisSocket, replies: list[Any]) -> None:
        count, waits = len(self._ops), self._waits
        socket.receive_many(replies, count, self._give_up, more=bool(waits))
        socket.used = time.monotonic()
        if waits and all(type(reply) is ReplyError for reply in replies):
            self._connection.drop()  # nothing was done that could be confirmed, and the server may wait for long
        elif waits:
            socket.receive_many(replies, count + len(waits), self._give_up)

    def _confirmed(self, replies: list[Any]) -> list[Any]:
        """Without the confirmations: a renewal that was not confirmed as it has to be is the error in its place."""
        count = len(self._ops)
        if not self._waits:
            return replies
        found = dict(zip(self._waits, replies[count:], strict=False))
        checked = replies[:count]
        lacking = any(durable.short(wanted, reply) for wanted, reply in found.items())
        known = self._connection.replication(self._give_up) if lacking else b""
        for at, op in enumerate(self._ops):
            wanted = durable.durability(op)
            if wanted and not isinstance(checked[at], (ReplyError, LeaseholdError)):
                waited = found.get(wanted, self._error)
                doubt = durable.doubt(self._server.name, wanted, waited, known)
                if doubt is not None and type(protocol.decode(checked[at], op)) is Renewed:
                    checked[at] = doubt
        return checked

    def _outcome(self, op: StoreOp, reply: Any) -> Reply | LeaseholdError:
        if isinstance(reply, LeaseholdError):
            return reply
        if type(reply) is ReplyError:
            if failures.demoted(reply):
                self._connection.drop()
            error = self._server.refusal(reply)
            error.__cause__ = reply
            return error
        return protocol.decode(reply, op)


def execute_batch(connection: RedisConnection, ops: Sequence[StoreOp]) -> Outcomes:
    """All of them over this connection."""
    batch = ServerBatch(connection, ops, time.monotonic() + budget(ops))
    batch.send()
    return batch.receive()
