"""What the tests of observers share: somebody who listens, and one holder in one flavour on a clock that tests turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from leasehold._core.ops import Claim, Evict, Release, StoreOp
from leasehold._core.ports import Store
from leasehold.errors import LeaseholdError
from leasehold.guards.sql import FenceGuard
from leasehold.observe.events import Event, Subject
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, in_thread
from tests.support.parties import FLAVOURS, Party
from tests.support.waiting import until

E = TypeVar("E")
RIVAL = "rival:1:0123456789abcdef.1"


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Only remembers."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Those of one kind, in order."""
        return [event for event in list(self.events) if isinstance(event, kind)]

    def names(self, number: int | None = None) -> list[str]:
        """What was told, of one lease or of all."""
        told = [event for event in list(self.events) if number is None or subject(event).number == number]
        return [type(event).__name__ for event in told]

    def clear(self) -> None:
        """Forget."""
        self.events.clear()


def subject(event: Event) -> Subject:
    """What an event is about."""
    lease = getattr(event, "lease", None)
    return lease if isinstance(lease, Subject) else Subject("", "", "", None, 0)


class Stage:
    """One holder over a spied store."""

    def __init__(self, flavour: str, observers: list[Any], store: Store | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.spy = Spy(store or MemoryStore(self.clock))
        self.party: Party = FLAVOURS[flavour](self.spy, observers=observers, **options)
        self.hold = self.party.hold
        self.engine = self.hold._engine

    def lock(self, *name: Any, **options: Any) -> Any:
        """A lock of this holder."""
        return self.hold.lock(*(name or ("job", 1)), **options)

    def acquire(self, *name: Any, **options: Any) -> Any:
        """A lease."""
        return self.do(self.lock(*name, **options).acquire)

    def do(self, call: Callable[[], Any]) -> Any:
        """A call of the party's own, awaited where it must be."""
        return self.party.do(lambda _: call())

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """The same, and nobody waits for it."""
        return self.party.start(lambda _: call())

    def refused(self, call: Callable[[], Any]) -> BaseException:
        """What a call of the party raises."""
        error = self.start(call).exception(60)
        assert error is not None
        return error

    def rival(self, resource: str = "job:1", ttl_ms: int = 600_000) -> int:
        """Somebody else takes it; the fence."""
        granted: Any = self.spy.inner.execute(Claim(resource, RIVAL, ttl_ms, meta='{"host":"other"}'))
        fence: int = granted.fence
        return fence

    def rival_leaves(self, fence: int, resource: str = "job:1") -> None:
        """And gives it back."""
        self.spy.inner.execute(Release(resource, RIVAL, fence))

    def evict(self, lease: Any) -> None:
        """An operator throws the holder out, who cannot be told: its next renewal finds out."""
        if self.engine.watchdog.holder_pushes is not None:
            self.engine.watchdog.holder_pushes.close()
        request = f"request-{lease.fence}"
        self.spy.inner.execute(Evict(lease.resource, lease.owner, lease.fence, request, delay_ms=0, force=True))

    def until(self, condition: Callable[[], object], what: str, step: float = 0.2) -> None:
        """Let virtual time pass until something is so. The watchdog looks after each step, however busy the machine."""

        def pass_on() -> object:
            self.clock.advance(step)
            in_thread(self.engine.watchdog.round)
            return condition()

        until(lambda: condition() or pass_on(), what)

    def close(self) -> None:
        """The end, whatever a test has broken."""
        self.spy.heal()
        self.party.close()


def raising(error: type[BaseException]) -> Callable[[StoreOp], None]:
    """A hook that raises this."""

    def hook(op: StoreOp) -> None:
        raise error("the test does this") if issubclass(error, LeaseholdError) else error

    return hook


def refuse(stage: Stage, lease: Any, **options: Any) -> FenceGuard:
    """A guard that has seen a newer fence refuses this lease."""
    guard = FenceGuard(**options)
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    guard.create(database)
    database.execute("BEGIN")
    guard.check(database, lease._held.fence + 1, resource=lease.resource)
    stage.refused(lambda: guard.check(database, lease))
    database.close()
    return guard
