"""What the tests of the lock share: a store that counts and fails, clocks, and waiting with an end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import leasehold
from leasehold._core.ops import Inspect, Push, Reply, StoreOp, View
from leasehold._core.ports import AsyncConnection, Connection, Store
from leasehold._runtime.engine import _engines
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SQLiteStore
from tests.support.waiting import PATIENCE

T = TypeVar("T")
Hook = Callable[[StoreOp], None]


def nothing(op: StoreOp) -> None:
    """The hook that does nothing."""


def unreachable(op: StoreOp) -> None:
    """Before the op: the store cannot be reached, and nothing happened."""
    raise StoreUnavailable("the test cut the wire")


def reply_lost(op: StoreOp) -> None:
    """After the op: it happened, and nobody hears of it."""
    raise OutcomeUnknown("the test kept the reply")


def only(kind: type, hook: Hook) -> Hook:
    """The hook, for ops of that kind alone."""
    return lambda op: hook(op) if isinstance(op, kind) else None


def once(kind: type, hook: Hook) -> Hook:
    """The hook, for the first op of that kind alone."""
    spent: list[StoreOp] = []

    def first(op: StoreOp) -> None:
        if isinstance(op, kind) and not spent:
            spent.append(op)
            hook(op)

    return first


class StillClock(ManualClock):
    """Time that stands still, and nobody looks at it by himself: the test calls :func:`tick`."""

    __slots__ = ()

    def nap(self, until: float) -> float:
        """Sleep until somebody calls."""
        return 0.0 if until <= self.now() else 3600.0


class Spy:
    """A store that remembers every op, and calls a hook before and after each."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.name = inner.name
        self.url = inner.url
        self.capabilities = inner.capabilities
        self.clock = inner.clock
        self.holder_pushes = inner.holder_pushes
        self.ops: list[StoreOp] = []
        self.batches: list[list[StoreOp]] = []
        self.before: Hook = nothing
        self.after: Hook = nothing
        self.on_take: Callable[[], None] = lambda: None
        self.suspend: Callable[[], Any] | None = None  # awaited before and after each op on a loop
        self.closed = False

    def heal(self) -> None:
        """No more trouble."""
        self.before = self.after = nothing

    def of(self, kind: type[T]) -> list[T]:
        """The ops of one kind, in order."""
        return [op for op in list(self.ops) if isinstance(op, kind)]

    def execute(self, op: StoreOp) -> Reply:
        """Remember, and do it."""
        self.ops.append(op)
        self.before(op)
        reply = self.inner.execute(op)
        self.after(op)
        return reply

    async def execute_async(self, op: StoreOp) -> Reply:
        """The same, with an await before and after where a test wants them."""
        self.ops.append(op)
        self.before(op)
        if self.suspend is not None:
            await self.suspend()
        reply = await self.inner.execute_async(op)
        if self.suspend is not None:
            await self.suspend()
        self.after(op)
        return reply

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """One batch; each op has its own fate."""
        self.batches.append(list(ops))
        return [self._one(op) for op in ops]

    async def execute_many_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """The same, with an await before and after the batch where a test wants them."""
        if self.suspend is not None:
            await self.suspend()
        replies = self.execute_many(ops)
        if self.suspend is not None:
            await self.suspend()
        return replies

    def _one(self, op: StoreOp) -> Reply | LeaseholdError:
        try:
            return self.execute(op)
        except LeaseholdError as error:
            return error

    def connection(self) -> Connection:
        """A mailbox whose takes can be interrupted."""
        return SpyMailbox(self.inner.connection(), self)

    def listen(self, notify: Callable[[Push], None]) -> AsyncConnection:
        """An ear whose ops go through the spy."""
        return SpyEar(self.inner.listen(notify), self)

    def before_fork(self) -> None:
        """Pass it on."""
        self.inner.before_fork()

    def after_fork(self) -> None:
        """Pass it on."""
        self.inner.after_fork()

    def forked(self) -> None:
        """Pass it on."""
        self.inner.forked()

    def close(self) -> None:
        """Pass it on."""
        self.closed = True
        self.inner.close()


class SpyMailbox:
    """A mailbox that calls a hook before each take."""

    def __init__(self, inner: Connection, spy: Spy) -> None:
        self.inner = inner
        self.spy = spy
        self.address = inner.address

    def next_push(self, seconds: float) -> Push | None:
        """Call the hook, then wait."""
        self.spy.on_take()
        return self.inner.next_push(seconds)

    def execute(self, op: StoreOp) -> Reply:
        """Through the spy."""
        return self.spy.execute(op)

    def execute_batch(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """Through the spy."""
        return self.spy.execute_many(ops)

    def close(self) -> None:
        """Pass it on."""
        self.inner.close()


class SpyEar:
    """An event loop's way to the spied store."""

    def __init__(self, inner: AsyncConnection, spy: Spy) -> None:
        self.inner = inner
        self.address = inner.address
        self.execute_async = spy.execute_async
        self.execute_batch_async = spy.execute_many_async
        self.close = inner.close


STORES = ("memory", "sqlite")


def open_store(kind: str, folder: Path) -> Store:
    """A fresh store of that kind, on the real clock."""
    return MemoryStore() if kind == "memory" else SQLiteStore(str(folder / "leases.db"))


def look(store: Store, resource: str) -> View:
    """The resource as the store sees it, past every hook."""
    inner = store.inner if isinstance(store, Spy) else store
    view = inner.execute(Inspect(resource))
    assert isinstance(view, View)
    return view


def waiting(store: Store, resource: str) -> int:
    """How many wait for it: with a claim in the store, or behind others of this process (``_core/cohort.py``)."""
    inner = store.inner if isinstance(store, Spy) else store
    engines = [one for one in list(_engines) if one.store in (store, inner)]
    cohorts = [one for engine in engines for one in list(engine.cohorts.values()) if one.resource == resource]
    return len(look(store, resource).queue) + sum(len(cohort.waiting) for cohort in cohorts)


def nothing_left(store: Store, resource: str) -> bool:
    """Nobody holds it and nobody waits for it."""
    view = look(store, resource)
    return not view.holders and not view.queue


def tick(hold: Any, seconds: float, step: float = 0.05) -> None:
    """Let virtual time pass in steps; after each, the watchdog takes its round on this thread."""
    engine = hold._engine
    for _ in range(round(seconds / step)):
        engine.clock.advance(step)
        engine.watchdog.round()


def watchdogs() -> list[threading.Thread]:
    """The watchdog threads of this process."""
    return [thread for thread in threading.enumerate() if thread.name == "leasehold-watchdog"]


@contextmanager
def elsewhere(step: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Run a step in a thread of its own; call what is given for its result."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(step())
        except BaseException as error:  # it is raised again where the test asks
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> T:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the other thread never ended"
        if errors:
            raise errors[0]
        return results.pop()

    yield result
    thread.join(PATIENCE)


def in_thread(step: Callable[[], T]) -> T:
    """The result of a step that another thread takes, to its end."""
    with elsewhere(step) as result:
        return result()


def sync_scene(clock: ManualClock | None = None) -> tuple[Spy, leasehold.Leasehold]:
    """A spy on a private memory store, and a coordinator over it."""
    spy = Spy(MemoryStore(clock))
    return spy, leasehold.connect(spy)


def async_scene(clock: ManualClock | None = None) -> tuple[Spy, leasehold.AsyncLeasehold]:
    """The same for asyncio."""
    spy = Spy(MemoryStore(clock))
    return spy, leasehold.aio.connect(spy)
