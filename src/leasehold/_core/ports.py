"""The interfaces of what is outside: a clock, a store, and connections to it. Protocols only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from leasehold._core.holding import Holding
from leasehold._core.light_typing import Protocol
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.types import Capabilities, Instant
from leasehold.errors import LeaseholdError


class Clock(Protocol):
    """Local time that counts while the machine is suspended."""

    @property
    def goes_on(self) -> bool:
        """By itself, and not only when a test turns it?"""

    def now(self) -> float:
        """Seconds; comparable only within this boot of this machine."""

    def instant(self) -> Instant:
        """The same moment, as a store on this clock records it."""

    def nap(self, until: float) -> float:
        """How many real seconds to sleep at most before reading this clock again."""


class Connection(Protocol):
    """One thread's way to the store: its ops go out here, and pushes for it come in here."""

    address: str

    def execute(self, op: StoreOp) -> Reply:
        """In at most ``op.budget_ms``."""

    def next_push(self, seconds: float) -> Push | None:
        """Block the calling thread for at most that long. WAKE: the waiter should beat now."""

    def close(self) -> None: ...


class AsyncConnection(Protocol):
    """One event loop's way to the store: its ops go out here, and pushes for its waiters come in here."""

    @property
    def address(self) -> str: ...

    def execute_async(self, op: StoreOp) -> Awaitable[Reply]:
        """In at most ``op.budget_ms``, without blocking the loop."""

    def close(self) -> None: ...


class HolderPushes(Protocol):
    """The pushes of a store to the holders of one coordinator: something happened to their leases. Read by one thread,
    which may poll for them together with other things. Nothing arrives before that thread has called ``fileno``."""

    polled: bool  # False: there is never anything to poll, and ``ready`` is called for every push

    @property
    def address(self) -> str: ...

    def fileno(self, ready: Callable[[], None]) -> int:
        """A descriptor that is readable when a push is there; -1 while there is none. Does not wait: ``ready`` is
        called, from any thread, when it is worth calling this again."""

    def read(self) -> list[Push]:
        """All that has arrived, without waiting."""

    def close(self) -> None:
        """Called by that thread: nothing is read any more."""


class Store(Protocol):
    """Where claims live and are decided atomically. Raises StoreUnavailable when nothing happened and
    OutcomeUnknown when it may have; no other exception leaves it."""

    name: str
    capabilities: Capabilities

    @property
    def clock(self) -> Clock: ...

    @property
    def url(self) -> str:
        """Where it is, for people: a URL without login and options; words where only the user's client knows."""

    def execute(self, op: StoreOp) -> Reply:
        """One op on the calling thread, in at most ``op.budget_ms``. Coordinators use a connection for many."""

    async def execute_async(self, op: StoreOp) -> Reply:
        """One op on the running event loop, without blocking it."""

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """Several ops at once; each has its own reply or error. Those of one resource may change places."""

    def connection(self) -> Connection:
        """For a thread; another thread uses it afterwards."""

    def listen(self, notify: Callable[[Push], None]) -> AsyncConnection:
        """For the running event loop: ``notify`` is called on it with each push."""

    def holder_pushes(self) -> HolderPushes | None:
        """For one coordinator, anew after a fork: several may share a store, and none must read the pushes of
        another. None where the store cannot push. Opens nothing yet."""

    def before_fork(self) -> None:
        """In the parent: let no call be under way, and nothing be open that a child must not inherit."""

    def after_fork(self) -> None:
        """In the parent: go on."""

    def forked(self) -> None:
        """In the child: drop what belongs to the parent, sending nothing."""

    def close(self) -> None: ...


class RenewsMany(Protocol):
    """What a store offers besides when it renews hundreds of leases with one request."""

    def renew_many(
        self, batches: Sequence[Sequence[Holding]], budget_ms: int
    ) -> Sequence[Sequence[int] | LeaseholdError]:
        """Renew plain leases, each by its ttl; see ``renewals``. Each batch is one request, and has an outcome of its
        own: which of its leases were not renewed (0 is the first), or an error, after which nothing is known of any of
        them."""


class SendsBatches(Protocol):
    """What a thread's connection offers besides when it sends several ops with one request; one for an event loop has
    ``execute_batch_async``."""

    def execute_batch(self, ops: Sequence[StoreOp]) -> Sequence[Reply | LeaseholdError]:
        """Ops of different resources, in at most the smallest of their budgets. Each has its own reply or error; what
        was not answered is OutcomeUnknown, also when others were."""
