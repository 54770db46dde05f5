"""The store on PostgreSQL: implements the port with flows (``turns``), sessions and a listener.

Expiry and fences run on the server's clock; ``clock`` is for local deadlines.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence

from leasehold._core.driver import drive, drive_async
from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any, TypeVar
from leasehold._core.ops import Group, Push, Reply, StoreOp
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.clock import SystemClock
from leasehold.stores.mailbox import HolderMailbox, Mailbox
from leasehold.stores.postgresql import failures, schema
from leasehold.stores.postgresql.listener import Listener
from leasehold.stores.postgresql.session import Broken, Refused, Request, Session
from leasehold.stores.postgresql.sessions import Sessions
from leasehold.stores.postgresql.statements import Statements
from leasehold.stores.postgresql.target import Target, from_url
from leasehold.stores.postgresql.transactions import Work, transaction
from leasehold.stores.postgresql.turns import LISTEN, Again, Context, Turns

BATCH = 100  # ops in one transaction: the rows of all stay locked meanwhile
SWEEP_EVERY = 256  # ops
LISTENING_WITHIN = 2.0  # seconds that a claim waits for the session that listens; without it, it polls

R = TypeVar("R")


class PostgresStore:
    """Implements ``_core.ports.Store``. Making one connects to nothing; the first op does."""

    name = "postgresql"
    capabilities = Capabilities(hosts=True)

    def __init__(self, target: str | Target, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self._target = target = from_url(target) if isinstance(target, str) else target
        self._server = target.server
        self._sessions = Sessions(self._open, self._server, target.max_connections)
        self._listener = Listener(None if target.listen is None else target.connect_to_listen, self._server)
        self._turns = Turns(Statements(schema.quoted(target.table)), self._server, self._listener)
        self._found: schema.Found | None = None
        self._checking = threading.RLock()
        self._count = 0

    # ------------------------------------------------------------ the port

    def execute(self, op: StoreOp) -> Reply:
        give_up = time.monotonic() + op.budget_ms / 1000
        try:
            reply, pushes = self._run(lambda context: self._turns.execute(op, context), give_up)
            self._deliver(pushes)
            if self._due():
                self._sweep(give_up)
        except LeaseholdError as error:
            error.resource = error.resource or _resource(op)
            raise
        return reply

    async def execute_async(self, op: StoreOp) -> Reply:
        give_up = time.monotonic() + op.budget_ms / 1000
        try:
            reply, pushes = await self._run_async(lambda context: self._turns.execute(op, context), give_up)
            self._deliver(pushes)
            if self._due():
                self._deliver(await self._run_async(self._turns.sweep, give_up))
        except LeaseholdError as error:
            error.resource = error.resource or _resource(op)
            raise
        return reply

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        replies: list[Reply | LeaseholdError] = []
        for start in range(0, len(ops), BATCH):
            chunk = ops[start : start + BATCH]
            give_up = time.monotonic() + min([op.budget_ms for op in chunk]) / 1000
            try:
                found, pushes = self._run(lambda context: self._turns.many(chunk, context), give_up)  # noqa: B023
            except LeaseholdError as error:
                replies.extend([error] * len(chunk))
            else:
                self._deliver(pushes)
                replies.extend(found)
        return replies

    def renew_many(
        self, batches: Sequence[Sequence[Holding]], budget_ms: int
    ) -> Sequence[Sequence[int] | LeaseholdError]:
        give_up = time.monotonic() + budget_ms / 1000
        outcomes: list[Sequence[int] | LeaseholdError] = []
        for batch in batches:
            try:
                outcomes.append(self._run(lambda context: self._turns.renew_many(batch), give_up))  # noqa: B023
            except LeaseholdError as error:
                outcomes.append(error)
        return outcomes

    def connection(self) -> Mailbox:
        made = Mailbox(self._listener.new_address(), self.execute, self.execute_async, self._listener.remove)
        self._listener.add(made)
        return made

    def listen(self, notify: Callable[[Push], None]) -> Mailbox:
        connection = self.connection()
        connection.attach(notify)
        return connection

    def holder_pushes(self) -> HolderMailbox:
        return HolderMailbox(self._listener.new_address(), self._hear, self._listener.remove)

    def _hear(self, mailbox: HolderMailbox) -> None:
        self._listener.add(mailbox)
        self._listener.start()

    def before_fork(self) -> None:
        """A child closes its copies of the sockets; ours stay as they are."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        self._checking = threading.RLock()
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
        return self._run(lambda _: transaction(self._server, begin), time.monotonic() + seconds)

    async def transact_async(self, begin: Callable[[], Work[R]], seconds: float) -> R:
        return await self._run_async(lambda _: transaction(self._server, begin), time.monotonic() + seconds)

    # ------------------------------------------------------------ flows

    def _run(self, flow: Callable[[Context], Generator[Any, Any, R]], give_up: float) -> R:
        """On the calling thread. A flow whose session broke before anything was done is run again."""
        while True:
            session = self._sessions.take(give_up)
            try:
                context = Context(session.quote, give_up)
                return drive(flow(context), lambda request: self._perform(session, request, give_up))  # noqa: B023
            except (Again, Broken) as error:
                if time.monotonic() >= give_up:
                    raise failures.unreachable(self._server, error) from error
            finally:
                self._sessions.give_back(session)

    async def _run_async(self, flow: Callable[[Context], Generator[Any, Any, R]], give_up: float) -> R:
        """In the running task."""
        while True:
            session = await self._sessions.take_async(give_up)
            try:
                context = Context(session.quote, give_up)
                return await drive_async(
                    flow(context),
                    lambda request: self._perform_async(session, request, give_up),  # noqa: B023
                )
            except (Again, Broken) as error:
                if time.monotonic() >= give_up:
                    raise failures.unreachable(self._server, error) from error
            finally:
                self._sessions.give_back(session)

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

    # ------------------------------------------------------------ old rows

    def _due(self) -> bool:
        self._count += 1
        return self._count % SWEEP_EVERY == 0

    def _sweep(self, give_up: float) -> None:
        self._deliver(self._run(self._turns.sweep, give_up))

    # ------------------------------------------------------------ opening

    def _open(self, give_up: float) -> Session:
        """A new session; the first one looks whether the store can work here."""
        session = self._target.connect(give_up)
        if self._found is None:
            try:
                with self._checking:
                    if self._found is None:
                        self._found = self._prepare(session, give_up)
            except BaseException:
                session.close()
                raise
        return session

    def _prepare(self, session: Session, give_up: float) -> schema.Found:
        target = self._target
        try:
            found = self._look(session, give_up)
            schema.check(found, self._server, target.table)
            if found.mark is None:
                if not target.create:
                    raise StoreUnavailable(f"{self._server} {failures.TEXTS['42P01']}")
                session.perform(Request(schema.creation(target.table, target.unlogged).encode()), give_up)
                found = self._look(session, give_up)
        except Refused as error:
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.unreachable(self._server, error) from error
        return found

    def _look(self, session: Session, give_up: float) -> schema.Found:
        (found,) = session.perform(Request(schema.question(self._target.table)), give_up)
        return schema.found(found.rows[0])


def _resource(op: StoreOp) -> str | None:
    return None if isinstance(op, Group) else op.resource or None
