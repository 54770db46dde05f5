"""The store on PostgreSQL: implements the port with flows (``turns``), sessions and a listener.

Expiry and fences run on the server's clock; ``clock`` is for local deadlines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from leasehold._core.driver import drive, drive_async
from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any, TypeVar
from leasehold._core.ops import Beat, Claim, Group, Push, Reply, StoreOp, Withdraw
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities
from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.stores.clock import SystemClock
from leasehold.stores.mailbox import HolderMailbox, Mailbox
from leasehold.stores.place import here
from leasehold.stores.postgresql import failures, schema
from leasehold.stores.postgresql.batches import Batches
from leasehold.stores.postgresql.listener import Listener
from leasehold.stores.postgresql.schema import TABLE
from leasehold.stores.postgresql.session import Broken, Refused, Request, Session, Unprepared
from leasehold.stores.postgresql.sessions import Sessions
from leasehold.stores.postgresql.sources import OnLoop
from leasehold.stores.postgresql.statements import Statements
from leasehold.stores.postgresql.target import Target, target_of
from leasehold.stores.postgresql.transactions import Work, transaction
from leasehold.stores.postgresql.turns import LISTEN, Again, Turns

BATCH = 100  # ops in one transaction: the rows of all stay locked meanwhile
GATHER = 1e-3  # seconds in which beats gather: the waiters of a process beat at the same moments
SWEEP_EVERY = 256  # ops
SWEEP_WITHIN = 1.0  # seconds
ORPHAN_WITHIN = 1.0
LISTENING_WITHIN = 2.0  # seconds that a claim waits for the session that listens; without it, it polls

R = TypeVar("R")


class PostgresStore:
    """Implements ``_core.ports.Store``. Making one connects to nothing; the first op does."""

    name = "postgresql"
    capabilities: Capabilities

    def __init__(self, given: Any, clock: Clock | None = None) -> None:
        """``given``: a URL, a pool of psycopg's, an engine of SQLAlchemy's; or a Target."""
        self.clock: Clock = SystemClock() if clock is None else clock
        self._target = target = given if isinstance(given, Target) else target_of(given)
        self._server = target.source.server
        self.url = target.source.url + ("" if target.table == TABLE else f"?table={target.table}")
        self.capabilities = Capabilities(hosts=True, push=target.listen is not None)
        self._sessions = Sessions(self._open, self._server, target.max_connections)
        connect = None if target.listen is None else target.listen.connect
        self._listener = Listener(connect, self._server, self._orphan)
        self._turns = Turns(Statements(schema.quoted(target.table)), self._server, self._listener)
        self._found: schema.Found | None = None
        self._beats = Batches(GATHER)
        self._claims = Batches()
        self._forks = 0
        self._count = 0

    # ------------------------------------------------------------ the port

    def execute(self, op: StoreOp, forks: int | None = None) -> Reply:
        """``forks``: how often the process of the caller had been forked when the caller got its connection."""
        self._check_blocking()
        pushes: Sequence[Push] = ()
        try:
            if _gathers(op):
                reply = self._gather(op, forks)
            else:
                reply, pushes = self._run(lambda give_up: self._turns.execute(op, give_up), _end(op), forks)
        except LeaseholdError as error:
            error.resource = error.resource or _resource(op)
            raise
        self._deliver(pushes)
        self._sweep()
        return reply

    async def execute_async(self, op: StoreOp, forks: int | None = None) -> Reply:
        self._note_loop()
        pushes: Sequence[Push] = ()
        try:
            if _gathers(op):
                reply = await self._gather_async(op, forks)
            else:
                reply, pushes = await self._run_async(lambda give_up: self._turns.execute(op, give_up), _end(op), forks)
        except LeaseholdError as error:
            error.resource = error.resource or _resource(op)
            raise
        self._deliver(pushes)
        await self._sweep_async()
        return reply

    def _gather(self, op: StoreOp, forks: int | None) -> Reply:
        """Together with others of this process, unless one statement is enough."""
        end = _end(op)
        if type(op) is Beat:
            return self._beats.execute("", op, end, partial(self._send, forks=forks))
        quick = self._turns.quick(op)
        if quick is not None:
            reply = self._run(lambda _: self._turns.in_one_statement(*quick), end, forks)
            if reply is not None:
                return reply
        return self._claims.execute(op.resource, op, end, partial(self._send, forks=forks))

    async def _gather_async(self, op: StoreOp, forks: int | None) -> Reply:
        end = _end(op)
        if type(op) is Beat:
            return await self._beats.execute_async("", op, end, partial(self._send_async, forks=forks))
        quick = self._turns.quick(op)
        if quick is not None:
            reply = await self._run_async(lambda _: self._turns.in_one_statement(*quick), end, forks)
            if reply is not None:
                return reply
        return await self._claims.execute_async(op.resource, op, end, partial(self._send_async, forks=forks))

    def _check_blocking(self) -> None:
        if self._target.source.awaited:
            raise InvalidRequest("a pool or an engine of asyncio needs leasehold.aio.connect()")

    def _note_loop(self) -> None:
        """A pool or an engine of asyncio connects on the first event loop on which the store is used."""
        source = self._target.source
        if isinstance(source, OnLoop) and source.loop is None:
            source.loop = asyncio.get_running_loop()

    def execute_many(self, ops: Sequence[StoreOp], forks: int | None = None) -> list[Reply | LeaseholdError]:
        """``forks`` as in ``execute``."""
        replies: list[Reply | LeaseholdError] = []
        for start in range(0, len(ops), BATCH):
            chunk = ops[start : start + BATCH]
            try:
                replies.extend(self._send(chunk, min(map(_end, chunk)), forks))
            except LeaseholdError as error:
                replies.extend([error] * len(chunk))
        return replies

    def _execute_batch(self, ops: Sequence[StoreOp], forks: int) -> list[Reply | LeaseholdError]:
        self._check_blocking()
        replies = self.execute_many(ops, forks)
        self._sweep(len(ops))
        return replies

    async def _execute_batch_async(self, ops: Sequence[StoreOp], forks: int) -> list[Reply | LeaseholdError]:
        self._note_loop()
        replies: list[Reply | LeaseholdError] = []
        for start in range(0, len(ops), BATCH):
            chunk = ops[start : start + BATCH]
            try:
                replies.extend(await self._send_async(chunk, min(map(_end, chunk)), forks))
            except LeaseholdError as error:
                replies.extend([error] * len(chunk))
        await self._sweep_async(len(ops))
        return replies

    def _send(self, ops: Sequence[StoreOp], give_up: float, forks: int | None = None) -> list[Reply | LeaseholdError]:
        """Several ops in one transaction."""
        replies, pushes = self._run(lambda give_up: self._turns.many(ops, give_up), give_up, forks)
        self._deliver(pushes)
        return replies

    async def _send_async(
        self, ops: Sequence[StoreOp], give_up: float, forks: int | None = None
    ) -> list[Reply | LeaseholdError]:
        replies, pushes = await self._run_async(lambda give_up: self._turns.many(ops, give_up), give_up, forks)
        self._deliver(pushes)
        return replies

    def renew_many(
        self, batches: Sequence[Sequence[Holding]], budget_ms: int
    ) -> Sequence[Sequence[int] | LeaseholdError]:
        give_up = time.monotonic() + budget_ms / 1000
        outcomes: list[Sequence[int] | LeaseholdError] = []
        for batch in batches:
            try:
                outcomes.append(self._run(lambda give_up: self._turns.renew_many(batch), give_up))  # noqa: B023
            except LeaseholdError as error:
                outcomes.append(error)
        return outcomes

    def connection(self) -> Mailbox:
        execute = partial(self.execute, forks=self._forks)
        execute_async = partial(self.execute_async, forks=self._forks)
        made = Mailbox(
            self._listener.new_address(),
            execute,
            execute_async,
            self._listener.remove,
            partial(self._execute_batch, forks=self._forks),
            partial(self._execute_batch_async, forks=self._forks),
        )
        self._listener.add(made)
        return made

    def listen(self, notify: Callable[[Push], None]) -> Mailbox:
        connection = self.connection()
        connection.attach(notify)
        return connection

    def holder_pushes(self) -> HolderMailbox | None:
        if self._target.listen is None:
            return None
        return HolderMailbox(f"{self._listener.new_address()}.{here()}", self._hear, self._listener.remove)

    def _hear(self, mailbox: HolderMailbox) -> None:
        self._listener.add(mailbox)
        self._listener.start()

    def before_fork(self) -> None:
        """A child closes its copies of the sockets; ours stay as they are."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        self._forks += 1
        self._beats = Batches(GATHER)
        self._claims = Batches()
        self._sessions.forked()
        self._listener.forked()

    def close(self) -> None:
        self._sessions.close()
        self._listener.close()

    @property
    def impossible(self) -> Mapping[str, str]:
        """Events of the table of guarantees that cannot happen with the settings of this server, and why. Nothing is
        known before the first session."""
        return {} if self._found is None else schema.impossible(self._found)

    # ------------------------------------------------------------ for what is kept beside the leases

    @property
    def server(self) -> str:
        """As errors name it."""
        return str(self._server)

    @property
    def table(self) -> str:
        return self._target.table

    @property
    def creates(self) -> bool:
        """May a missing table be made?"""
        return self._target.create

    def transact(self, begin: Callable[[], Work[R]], seconds: float) -> R:
        """A transaction of somebody else; see ``transactions``. Raises Refused."""
        self._check_blocking()
        return self._run(lambda _: transaction(self._server, begin), time.monotonic() + seconds)

    async def transact_async(self, begin: Callable[[], Work[R]], seconds: float) -> R:
        self._note_loop()
        return await self._run_async(lambda _: transaction(self._server, begin), time.monotonic() + seconds)

    # ------------------------------------------------------------ flows

    def _run(self, flow: Callable[[float], Generator[Any, Any, R]], give_up: float, forks: int | None = None) -> R:
        """On the calling thread. A flow whose session broke before anything was done is run again."""
        forks = self._forks if forks is None else forks
        while True:
            session = self._sessions.take(give_up)
            try:
                self._check_process(forks)
                return drive(flow(give_up), lambda request: self._perform(session, request, give_up))  # noqa: B023
            except (Again, Broken, Unprepared) as error:
                if time.monotonic() >= give_up:
                    raise failures.unreachable(self._server, error) from error
            finally:
                self._sessions.give_back(session)

    async def _run_async(
        self, flow: Callable[[float], Generator[Any, Any, R]], give_up: float, forks: int | None = None
    ) -> R:
        """In the running task."""
        forks = self._forks if forks is None else forks
        while True:
            session = await self._sessions.take_async(give_up)
            try:
                self._check_process(forks)
                return await drive_async(
                    flow(give_up),
                    lambda request: self._perform_async(session, request, give_up),  # noqa: B023
                )
            except (Again, Broken, Unprepared) as error:
                if time.monotonic() >= give_up:
                    raise failures.unreachable(self._server, error) from error
            finally:
                self._sessions.give_back(session)

    def _check_process(self, forks: int) -> None:
        """A call that a signal handler has forked in its middle is the parent's alone. The child sends nothing: a copy
        of a claim could be granted after the parent has released, and nobody would hold that lease. The session was
        taken before: one of the parent's is of no use in the child."""
        if forks != self._forks:
            raise StoreUnavailable(f"this call of {self._server} belongs to the process that was forked in its middle")

    def _perform(self, session: Session, request: Any, give_up: float) -> Any:
        if request is LISTEN:
            return self._listener.wait(min(give_up, time.monotonic() + LISTENING_WITHIN))
        return session.perform(request, give_up)

    async def _perform_async(self, session: Session, request: Any, give_up: float) -> Any:
        if request is not LISTEN:
            return await session.perform_async(request, give_up)
        if self._listener.listening:
            return True
        until = min(give_up, time.monotonic() + LISTENING_WITHIN)
        return await asyncio.get_running_loop().run_in_executor(None, self._listener.wait, until)

    def _deliver(self, pushes: Sequence[Push]) -> None:
        for push in pushes:
            self._listener.deliver(push)

    def _sweep(self, ops: int = 1) -> None:
        """After so many ops: each can have brought a new name, also in a batch."""
        for _ in range(self._sweeps_due(ops)):
            with suppress(LeaseholdError):
                self._deliver(self._run(self._turns.sweep, time.monotonic() + SWEEP_WITHIN))

    async def _sweep_async(self, ops: int = 1) -> None:
        for _ in range(self._sweeps_due(ops)):
            with suppress(LeaseholdError):
                self._deliver(await self._run_async(self._turns.sweep, time.monotonic() + SWEEP_WITHIN))

    def _sweeps_due(self, ops: int) -> int:
        before, self._count = self._count, self._count + ops
        return self._count // SWEEP_EVERY - before // SWEEP_EVERY

    def _orphan(self, push: Push) -> None:
        """Somebody was granted who does not wait any more, such as a thread of a coordinator that was closed: what it
        got goes to the next. On the listener's thread."""
        withdraw = Withdraw(push.resource, push.owner)
        with suppress(LeaseholdError):
            _, pushes = self._run(
                lambda give_up: self._turns.execute(withdraw, give_up), time.monotonic() + ORPHAN_WITHIN
            )
            self._deliver(pushes)

    # ------------------------------------------------------------ opening

    def _open(self, give_up: float) -> Session:
        """A new session. The first one looks whether the store can work here."""
        session = self._target.source.connect(give_up)
        try:
            found = self._prepare(session, give_up)
        except BaseException:
            session.close()
            raise
        session.prepares = found.process == session.process  # else a pooler stands between us
        self._found = found
        return session

    def _prepare(self, session: Session, give_up: float) -> schema.Found:
        target = self._target
        try:
            found = self._look(session, give_up)
            schema.check(found, self._server, target.table)
            if found.mark is None:
                if not target.create:
                    raise StoreUnavailable(f"{self._server} {failures.TEXTS['42P01']}")
                self._create(session, give_up)
                found = self._look(session, give_up)
                schema.check(found, self._server, target.table)
        except Refused as error:
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.unreachable(self._server, error) from error
        return found

    def _create(self, session: Session, give_up: float) -> None:
        create = schema.creation(self._target.table, self._target.unlogged)
        try:
            session.perform(Request((create.encode(), ())), give_up)
        except Refused as error:
            if error.sqlstate not in schema.MADE_MEANWHILE:
                raise

    def _look(self, session: Session, give_up: float) -> schema.Found:
        (found,) = session.perform(Request((schema.question(self._target.table), ())), give_up)
        return schema.found(found.rows[0])


def _gathers(op: StoreOp) -> bool:
    """Many of these may come at once: of a crowd that waits, or gives up."""
    return isinstance(op, (Beat, Withdraw)) or (isinstance(op, Claim) and op.enqueue)


def _end(op: StoreOp) -> float:
    """The time by which it must be done."""
    return time.monotonic() + op.budget_ms / 1000


def _resource(op: StoreOp) -> str | None:
    return None if isinstance(op, Group) else op.resource or None
