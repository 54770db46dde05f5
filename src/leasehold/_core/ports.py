"""What the runtime needs from the outside: a clock, a store, and ways to hear from it. Shapes only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from leasehold._core.light_typing import Protocol
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.types import Capabilities, Instant
from leasehold.errors import LeaseholdError


class Clock(Protocol):
    """Local time that counts while the machine is suspended."""

    def now(self) -> float:
        """Seconds; comparable only within this boot of this machine."""

    def instant(self) -> Instant:
        """The same moment as a store that lives on this clock writes it down."""

    def nap(self, until: float) -> float:
        """How many real seconds to sleep at most before looking at this clock again."""


WAKE = Push("", "wake", "", "", 0, 0, 0)  # for whoever waits: nothing was granted, but beat now


class Connection(Protocol):
    """One thread's way to the store: its ops go out here, and pushes for it come in here."""

    address: str

    def execute(self, op: StoreOp) -> Reply:
        """In at most ``op.budget_ms``."""

    def next_push(self, seconds: float) -> Push | None:
        """Block the calling thread for at most that long. WAKE: whoever waits should beat now."""

    def close(self) -> None: ...


class AsyncConnection(Protocol):
    """One event loop's way to the store: its ops go out here, and pushes for its waiters come in here."""

    @property
    def address(self) -> str: ...

    def execute_async(self, op: StoreOp) -> Awaitable[Reply]:
        """In at most ``op.budget_ms``, without blocking the loop."""

    def close(self) -> None: ...


class HolderPushes(Protocol):
    """Where a store tells the holders of one coordinator that something happened to their leases. Read by one thread,
    which may poll for it together with other things. Nobody can be told before that thread has asked for ``fileno``."""

    polled: bool  # False: there is never anything to poll, and ``ready`` is called for all that comes

    @property
    def address(self) -> str: ...

    def fileno(self, ready: Callable[[], None]) -> int:
        """Readable when there is news; -1 while there is nothing to listen to. Does not wait: ``ready`` is called, from
        any thread, when it is worth asking again."""

    def read(self) -> list[Push]:
        """All that has arrived, without waiting."""

    def close(self) -> None:
        """By that thread: nobody listens any more."""


class Store(Protocol):
    """Where claims live and are decided atomically. Raises StoreUnavailable when nothing happened and
    OutcomeUnknown when it may have; no other exception leaves it."""

    name: str
    capabilities: Capabilities

    @property
    def clock(self) -> Clock: ...

    def execute(self, op: StoreOp) -> Reply:
        """One op on the calling thread, in at most ``op.budget_ms``. Coordinators use a connection for many."""

    async def execute_async(self, op: StoreOp) -> Reply:
        """One op on the running event loop, without blocking it."""

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """Several ops at once; each has its own reply or error. Those of one resource may change places."""

    def connection(self) -> Connection:
        """For a thread, which gives it to the next when it is done."""

    def listen(self, notify: Callable[[Push], None]) -> AsyncConnection:
        """For the running event loop: ``notify`` is called on it with each push."""

    def holder_pushes(self) -> HolderPushes | None:
        """For one coordinator, anew after a fork: several may share a store, and none must read what is meant
        for another. None where nobody can be told. Opens nothing yet."""

    def before_fork(self) -> None:
        """In the parent: let no call be under way, and nothing be open that a child must not inherit."""

    def after_fork(self) -> None:
        """In the parent: go on."""

    def forked(self) -> None:
        """In the child: drop what belongs to the parent, sending nothing."""

    def close(self) -> None: ...
