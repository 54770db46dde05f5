"""The watchdog's own connection: renewals of hundreds of leases in one command, all in one time budget, nothing
repeated by itself; and on the same socket the news for the holders of this process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from leasehold._core.light_typing import Any
from leasehold._core.ops import Push, Renewed, Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.connection import RedisConnection, ReplyError, Server
from leasehold.stores.redis.sockets import SLOW, Broken

MANY = 250  # renewals in one script: the server does nothing else meanwhile
NEWS_SECONDS = 5.0  # to connect for news alone
NEWS_PAUSE = 1.0  # until that is tried again

Answers = list[Reply | LeaseholdError]


class WatchdogConnection:
    """Implements ``core.ports.News`` and ``Store.execute_many``. Several threads may ask; one speaks at a time."""

    polled = True

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = RedisConnection(server, counts=False)  # renewals must go out, however many are connected
        self._ready: Callable[[], None] | None = None
        self._lock = threading.RLock()
        self._connect_at = 0.0

    @property
    def address(self) -> str:
        return self._connection.address

    def fileno(self, ready: Callable[[], None]) -> int:
        """Connects, in a thread of its own: the watchdog has deadlines to keep."""
        self._ready = ready
        found = self._connection.fileno()
        if found < 0 and time.monotonic() >= self._connect_at:
            self._connect_at = math.inf  # one at a time
            try:
                threading.Thread(target=self._connect, args=(ready,), name="leasehold-news", daemon=True).start()
            except RuntimeError:  # no thread can be started now; the next renewal connects, or a later look
                self._connect_at = time.monotonic() + NEWS_PAUSE
        return found

    def _connect(self, ready: Callable[[], None]) -> None:
        again = time.monotonic() + NEWS_PAUSE
        with self._lock:
            try:
                self._connection.connect(time.monotonic() + NEWS_SECONDS)
                again = 0.0
            except LeaseholdError:  # the next renewal will say so
                pass
            self._connect_at = again
        ready()

    def read(self) -> list[Push]:
        lock = self._lock  # not that of a child, which gevent may copy us into meanwhile
        if not lock.acquire(blocking=False):  # somebody connects or asks, and rings when something was heard
            return []
        try:
            return self._connection.read()
        finally:
            lock.release()

    def execute_many(self, ops: Sequence[StoreOp]) -> Answers:
        if not ops:
            return []
        seconds = min(op.budget_ms for op in ops) / 1000
        give_up = time.monotonic() + seconds
        lock = self._lock  # as above
        if not lock.acquire(timeout=seconds):
            return [failures.unreachable(self._server.target.server, Broken(SLOW))] * len(ops)
        heard = False
        try:
            answers = self._ask(ops, give_up)
            unclear = [at for at, answer in enumerate(answers) if answer is None]
            if unclear:  # not found as it should be: each is asked for alone, to learn why
                left = self._ask_alone([ops[at] for at in unclear], give_up)
                for at, answer in zip(unclear, left, strict=True):
                    answers[at] = answer
            heard = self._connection.receive()
        finally:
            lock.release()
        if heard and self._ready is not None:  # read together with a reply: whoever polls the socket sees nothing of it
            self._ready()
        return answers  # type: ignore[return-value]  # none is None any more

    def close(self) -> None:
        self._ready = None
        self._connection.close()

    def forked(self) -> None:
        self._lock = threading.RLock()
        self._connect_at = 0.0
        self._ready = None
        self._connection.forked()

    # ------------------------------------------------------------ one round

    def _ask(self, ops: Sequence[StoreOp], give_up: float) -> list[Reply | LeaseholdError | None]:
        """In order, and all in one write; plain renewals that stand together in one script. None: nobody can say why
        that one was not found."""
        groups = _groups(ops)
        replies = self._exchange([_command(group) for group in groups], give_up)
        answers: list[Reply | LeaseholdError | None] = []
        for group, reply in zip(groups, replies, strict=True):
            if isinstance(reply, LeaseholdError):
                answers += [reply] * len(group)
            elif len(group) == 1:
                answers.append(protocol.decode(reply, group[0]))
            else:
                answers += [Renewed(left) if left >= 0 else None for left in reply]
        return answers

    def _ask_alone(self, ops: Sequence[StoreOp], give_up: float) -> Answers:
        replies = self._exchange([protocol.command(op) for op in ops], give_up)
        return [
            reply if isinstance(reply, LeaseholdError) else protocol.decode(reply, op)
            for op, reply in zip(ops, replies, strict=True)
        ]

    def _exchange(self, commands: list[protocol.Command], give_up: float) -> list[Any]:
        """A reply or one of our errors for each. A script that the server does not know is sent in full."""
        try:
            replies = self._send(commands, give_up)
            missing = [at for at, one in enumerate(replies) if type(one) is ReplyError and _unknown_script(one)]
            if missing:
                again = self._send(_taught([commands[at] for at in missing]), give_up)
                for at, reply in zip(missing, again, strict=True):
                    replies[at] = reply
        except LeaseholdError as error:
            return [error] * len(commands)
        return [self._refusal(one) if type(one) is ReplyError else one for one in replies]

    def _refusal(self, reply: BaseException) -> LeaseholdError:
        error = failures.refusal(self._server.target.server, reply)
        error.__cause__ = reply
        return error

    def _send(self, commands: list[protocol.Command], give_up: float) -> list[Any]:
        wire = self._connection.ready(give_up)
        try:
            replies = wire.exchange_many(commands, give_up)
        except Broken as error:
            self._connection.drop()
            raise failures.unanswered(self._server.target.server, error) from error
        wire.used = time.monotonic()
        return replies


def _groups(ops: Sequence[StoreOp]) -> list[list[Any]]:
    groups: list[list[Any]] = []
    together = False
    for op in ops:
        plain = protocol.plain(op)
        if plain and together and len(groups[-1]) < MANY:
            groups[-1].append(op)
        else:
            groups.append([op])
        together = plain
    return groups


def _command(group: list[Any]) -> protocol.Command:
    return protocol.command(group[0]) if len(group) == 1 else protocol.renewals(group)


def _taught(commands: list[protocol.Command]) -> list[protocol.Command]:
    """The first of each script in full: the others come after it. A text is long, and they may be hundreds."""
    known = set()
    found = []
    for command in commands:
        found.append(command if command[1] in known else protocol.with_text(command))
        known.add(command[1])
    return found


def _unknown_script(reply: BaseException) -> bool:
    return str(reply).startswith("NOSCRIPT")
