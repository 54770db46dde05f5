"""The watchdog's own connection: it renews hundreds of leases with one command, in one time budget, and repeats nothing
by itself. On the same socket arrive the pushes for the holders of this process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any
from leasehold._core.ops import Push, Renewed, Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import durable, failures, protocol
from leasehold.stores.redis.connection import RedisConnection, ReplyError
from leasehold.stores.redis.server import SLOW_REPLY, Server
from leasehold.stores.redis.sockets import MOST_FOR_HOLDERS, SLOW, Broken

MANY = 250  # renewals in one script, which the server runs without interruption
CONNECT_SECONDS = 5.0  # to connect for pushes alone
CONNECT_PAUSE = 1.0  # until that is tried again

Outcomes = list[Reply | LeaseholdError]


class WatchdogConnection:
    """Implements ``_core.ports.HolderPushes``, ``RenewsMany`` and ``Store.execute_many``. Several threads may use it,
    one at a time."""

    polled = True

    def __init__(self, server: Server) -> None:
        self._server = server
        # It does not count: renewals must go out, however many are connected.
        self._connection = RedisConnection(server, counts=False, most_pushes=MOST_FOR_HOLDERS)
        self._ready: Callable[[], None] | None = None
        self._lock = threading.RLock()
        self._connect_at = 0.0

    @property
    def address(self) -> str:
        return self._connection.address

    def fileno(self, ready: Callable[[], None]) -> int:
        """Connects, in a thread of its own: the watchdog has deadlines to keep."""
        self._ready = ready
        due = time.monotonic() >= self._connect_at  # first: the thread that connects sets this when it is connected
        found = self._connection.fileno()
        if found < 0 and due:
            self._connect_at = math.inf  # one at a time
            try:
                threading.Thread(target=self._connect, args=(ready,), name="leasehold-pushes", daemon=True).start()
            except RuntimeError:  # no thread can be started now: the next renewal connects, or a later call of this
                self._connect_at = time.monotonic() + CONNECT_PAUSE
        return found

    def _connect(self, ready: Callable[[], None]) -> None:
        """The lock is free while this waits for the server: a renewal that is due meanwhile connects by itself."""
        again = time.monotonic() + CONNECT_PAUSE
        try:
            opened = self._connection.open(time.monotonic() + CONNECT_SECONDS)
            with self._lock:
                self._connection.use(*opened)
            again = 0.0
        except LeaseholdError:  # the next renewal reports it
            pass
        self._connect_at = again
        ready()

    def read(self) -> list[Push]:
        lock = self._lock  # a fork by gevent in between replaces it: release the one that was acquired
        if not lock.acquire(blocking=False):  # another thread uses the connection, and calls ``ready`` afterwards
            return []
        try:
            return self._connection.read()
        finally:
            lock.release()

    def execute_many(self, ops: Sequence[StoreOp]) -> Outcomes:
        if not ops:
            return []
        return self._use(lambda give_up: self._execute_all(ops, give_up), min(op.budget_ms for op in ops), len(ops))

    def renew_many(
        self, batches: Sequence[Sequence[Holding]], budget_ms: int
    ) -> Sequence[Sequence[int] | LeaseholdError]:
        return self._use(lambda give_up: self._renew_many(batches, give_up), budget_ms, len(batches))

    def _use(self, call: Callable[[float], list[Any]], budget_ms: int, outcomes: int) -> list[Any]:
        """What ``call`` returns. So many errors when another thread uses the connection for as long as this may
        take."""
        seconds = budget_ms / 1000
        give_up = time.monotonic() + seconds
        lock = self._lock  # as above
        if not lock.acquire(timeout=seconds):
            return [failures.unreachable(self._server.name, Broken(SLOW))] * outcomes
        pushed = False
        try:
            found = call(give_up)
            pushed = self._connection.receive()
        finally:
            lock.release()
        if pushed and self._ready is not None:  # read together with a reply, so that polling the socket shows nothing
            self._ready()
        return found

    def close(self) -> None:
        self._ready = None
        self._connection.close()

    def forked(self) -> None:
        self._lock = threading.RLock()
        self._connect_at = 0.0
        self._ready = None
        self._connection.forked()

    # ------------------------------------------------------------ one round

    def _renew_many(self, batches: Sequence[Sequence[Holding]], give_up: float) -> list[Sequence[int] | LeaseholdError]:
        """All batches in one write: the server works on the first while the others are on their way."""
        commands = [
            protocol.renewals([(one.name.text, *one.in_store(), one.ttl_ms, 0) for one in batch]) for batch in batches
        ]
        replies, _ = self._exchange(commands, give_up)
        return [reply if isinstance(reply, LeaseholdError) else [place - 1 for place in reply] for reply in replies]

    def _execute_all(self, ops: Sequence[StoreOp], give_up: float) -> Outcomes:
        outcomes = self._execute(ops, give_up, together=True)
        unclear = [at for at, outcome in enumerate(outcomes) if outcome is None]
        if unclear:  # not renewed: it is not shared, or is renewed alone to learn why
            replies = self._execute([ops[at] for at in unclear], give_up, together=False)
            for at, reply in zip(unclear, replies, strict=True):
                outcomes[at] = reply
        return outcomes  # type: ignore[return-value]  # none is None any more

    def _execute(self, ops: Sequence[StoreOp], give_up: float, together: bool) -> list[Reply | LeaseholdError | None]:
        """In order, and all in one write. ``together``: plain renewals that follow one another are one script, that of
        shared leases; those of leases that are held alone come by ``renew_many``. None: that one was not renewed, and
        the script does not say why."""
        groups: list[list[Any]] = self._groups(ops) if together else [[op] for op in ops]
        in_bulk = [self._in_bulk(group) if together else None for group in groups]
        commands = [bulk or protocol.command(group[0]) for bulk, group in zip(in_bulk, groups, strict=True)]
        replies, doubts = self._exchange(commands, give_up, [durable.durability(group[0]) for group in groups])
        outcomes: list[Reply | LeaseholdError | None] = []
        for group, bulk, reply, doubt in zip(groups, in_bulk, replies, doubts, strict=True):
            if isinstance(reply, LeaseholdError):
                outcomes += [reply] * len(group)
            elif bulk is None:
                found = protocol.decode(reply, group[0])
                outcomes.append(doubt if doubt is not None and type(found) is Renewed else found)
            else:
                renewed: list[Reply | LeaseholdError | None] = [doubt or Renewed(op.ttl_ms) for op in group]
                for place in reply:
                    renewed[place - 1] = None
                outcomes += renewed
        return outcomes

    def _in_bulk(self, group: list[Any]) -> protocol.Command | None:
        """The one command for several renewals, whose reply names those that were not renewed."""
        return protocol.shared_renewals(map(as_renewal, group)) if len(group) > 1 else None

    def _groups(self, ops: Sequence[StoreOp]) -> list[list[Any]]:
        """The ops in order; those that may travel in one script together."""
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

    def _exchange(
        self, commands: list[protocol.Command], give_up: float, wanted: Sequence[str] = ()
    ) -> tuple[list[Any], list[LeaseholdError | None]]:
        """A reply or an error of ours for each command; and for each of which a confirmation is ``wanted``, why it was
        not confirmed. A script that the server does not know is sent in full, and waited for again."""
        count = len(commands)
        wanted = wanted or [""] * count
        replies, waited = self._send_and_wait(commands, wanted, give_up)
        confirmed = [waited] * count
        missing = [at for at, one in enumerate(replies) if type(one) is ReplyError and _unknown_script(one)]
        if missing:
            again, waited = self._send_and_wait(
                _with_texts([commands[at] for at in missing]), [wanted[at] for at in missing], give_up
            )
            for place, at in enumerate(missing):
                replies[at], confirmed[at] = again[place], waited
        doubts = [
            durable.doubt(self._server.name, one, found[one]) if one else None
            for one, found in zip(wanted, confirmed, strict=True)
        ]
        return [self._refusal(one) if type(one) is ReplyError else one for one in replies], doubts

    def _send_and_wait(
        self, commands: list[protocol.Command], wanted: Sequence[str], give_up: float
    ) -> tuple[list[Any], dict[str, Any]]:
        """The replies, and those of the confirmations. These are behind all commands, so that none waits for them."""
        waits = durable.confirmations(wanted, give_up - time.monotonic())
        replies = self._send([*commands, *waits.values()], give_up)
        return replies[: len(commands)], dict(zip(waits, replies[len(commands) :], strict=True))

    def _refusal(self, reply: BaseException) -> LeaseholdError:
        if failures.demoted(reply):
            self._connection.drop()
        error = self._server.refusal(reply)
        error.__cause__ = reply
        return error

    def _send(self, commands: list[protocol.Command], give_up: float) -> list[Any]:
        """The replies that arrived in time. For the others the error, after which the connection is not used again."""
        replies: list[Any] = []
        try:
            socket = self._connection.ready(give_up)
            sent = time.monotonic()
            try:
                socket.exchange_into(replies, commands, give_up)
            except Broken as error:
                self._connection.drop()
                raise failures.unanswered(self._server.name, error) from error
        except LeaseholdError as error:
            return replies + [error] * (len(commands) - len(replies))
        socket.used = time.monotonic()
        if socket.used - sent > SLOW_REPLY:  # it had arrived, although the time was over
            try:
                self._connection.doubt(socket, give_up)
            except LeaseholdError as error:
                return [error] * len(commands)
        return replies


def as_renewal(op: Any) -> tuple[str, str, int, int, int]:
    """A Renew that only sets the end anew, for a command that has many."""
    return (op.resource, op.owner, op.fence, op.ttl_ms, op.number)


def _with_texts(commands: list[protocol.Command]) -> list[protocol.Command]:
    """The first command of each script in full, which teaches the server that script: a text is long, and there may be
    hundreds of commands."""
    known = set()
    found = []
    for command in commands:
        found.append(command if command[1] in known else protocol.with_text(command))
        known.add(command[1])
    return found


def _unknown_script(reply: BaseException) -> bool:
    return str(reply).startswith("NOSCRIPT")
