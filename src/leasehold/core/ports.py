"""What the runtime needs from the outside: a clock, a mailbox for pushes, a store. Shapes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from leasehold.core.ops import Push, Reply, StoreOp
from leasehold.core.types import Capabilities, Instant
from leasehold.errors import LeaseholdError


class Clock(Protocol):
    """Local time that counts while the machine is suspended."""

    def now(self) -> float:
        """Seconds; comparable only within this boot of this machine."""
        ...

    def instant(self) -> Instant:
        """The same moment as a store that lives on this clock writes it down."""
        ...

    def nap(self, until: float) -> float:
        """How many real seconds to sleep at most before looking at this clock again."""
        ...


class Mailbox(Protocol):
    """Where pushes for the waiters of one thread or one event loop arrive."""

    address: str

    def take(self, seconds: float) -> Push | None:
        """Block the calling thread for at most that long."""
        ...

    def attach(self, notify: Callable[[Push], None]) -> None:
        """Deliver to the running event loop from now on: ``notify`` is called on it."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """Where claims live and are decided atomically. Raises StoreUnavailable when nothing happened and
    OutcomeUnknown when it may have; no other exception leaves it."""

    name: str
    capabilities: Capabilities
    clock: Clock

    def execute(self, op: StoreOp) -> Reply:
        """On the calling thread, in at most ``op.budget_ms``."""
        ...

    async def execute_async(self, op: StoreOp) -> Reply:
        """On the running event loop, without blocking it."""
        ...

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """Several ops of several resources at once; each has its own reply or error."""
        ...

    def mailbox(self) -> Mailbox: ...

    def before_fork(self) -> None:
        """In the parent: let no call be under way, and nothing be open that a child must not inherit."""
        ...

    def after_fork(self) -> None:
        """In the parent: go on."""
        ...

    def forked(self) -> None:
        """In the child: drop what belongs to the parent, sending nothing."""
        ...

    def close(self) -> None: ...
