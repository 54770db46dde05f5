"""The lock: exclusive, first come first served, fenced; re-entrant on request.

Ownership is by thread, or by task in asyncio. A child task never owns what its parent holds, a shared lock object
never releases somebody else's lease, and re-entering costs no round trip and keeps the fence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold.core import flows
from leasehold.core.durations import wait_seconds
from leasehold.core.holding import ALIVE, Taken
from leasehold.core.names import Name
from leasehold.core.ops import Answer, Inspect, Later, View
from leasehold.errors import LeaseholdError, NotAcquired, NotHeld
from leasehold.observe import log
from leasehold.primitives.lease import AsyncLease, BaseLease, Lease
from leasehold.runtime import sync
from leasehold.runtime.engine import Engine
from leasehold.runtime.held import Held
from leasehold.runtime.identity import new_owner

if TYPE_CHECKING:
    from leasehold.primitives.lease import Duration
    from leasehold.runtime.aio import AsyncDriver


class Unset:
    """The default of a parameter whose None means something."""

    def __repr__(self) -> str:
        return "<the coordinator's>"


UNSET = Unset()


class Options(NamedTuple):
    """How a lock behaves, checked and in internal units."""

    ttl_ms: int
    wait: float | None
    renews: bool = True
    max_hold: float | None = None
    max_idle: float | None = None
    at_least_ms: int = 0
    fenced: bool = True
    reentrant: bool = False
    meta: dict[str, Any] | None = None
    meta_text: str = ""


class BaseLock:
    """What both flavours share: what to ask for, and what the calling thread or task holds."""

    __slots__ = ("__weakref__", "_bodies", "_engine", "_name", "_options")

    def __init__(self, engine: Engine, name: Name, options: Options) -> None:
        self._bodies: dict[object, list[Any]] = {}  # the leases of with bodies, innermost last, by thread or task
        self._engine = engine
        self._name = name
        self._options = options

    @property
    def resource(self) -> str:
        """The text form of the resource's name."""
        return self._name.text

    def _ask(self, wait: float | None, address: str) -> flows.Ask:
        options = self._options
        return flows.Ask(
            name=self._name,
            ttl_ms=options.ttl_ms,
            wait=wait,
            renews=options.renews,
            at_least_ms=options.at_least_ms,
            address=address,
            meta=options.meta_text,
        )

    def _wait(self, wait: Duration | Unset | None) -> float | None:
        return self._options.wait if isinstance(wait, Unset) else wait_seconds(wait)

    def _new_owner(self, owners: list[str], expect: Callable[[str], None] | None = None) -> str:
        """A new owner for an acquire that is under way, known to whoever must clean up or wake it."""
        owner = new_owner()
        owners.append(owner)
        self._engine.expect(owner, self._name, self._options.ttl_ms)
        if expect is not None:
            expect(owner)
        return owner

    def _keep(self, taken: Taken, anchor: object) -> Held:
        """The grant is ours: have it looked after."""
        options = self._options
        held = Held(
            self._name,
            taken,
            self._engine.watchdog.transitions,
            renews=options.renews,
            max_hold=options.max_hold,
            max_idle=options.max_idle,
            fenced=options.fenced,
            meta=options.meta,
        )
        held.tie(anchor)
        self._engine.remember(held, anchor)
        log.say(log.DEBUG, "lease_acquired", held)
        return held

    def _reenter(self, anchor: object) -> Held | None:
        """What this thread or task holds already. What it lost is an error, what it has given back is past."""
        held = self._engine.mine(self._name.text, anchor) if self._options.reentrant else None
        if held is None or not held.enter_again(self._options.ttl_ms, self._engine.clock.now()):
            return None
        return held

    def _clean_up(self, flow: Any, owners: list[str], taken: Taken | None, anchor: object) -> None:
        """An acquire ended by an exception. A flow that ended with it has left nothing behind; one whose driver was
        interrupted has, and so has one that was granted what could not be kept."""
        held = self._engine.mine(self._name.text, anchor)
        if held is not None and held.owner in owners:
            self._engine.forget(held)
        if taken is not None or flow.cr_frame is not None:
            self._engine.withdraw(owners)
            flow.close()

    def _enter(self, lease: BaseLease, anchor: object) -> None:
        """A with body begins. Its exit must find this very lease: the same thread may lose it and acquire anew."""
        self._bodies.setdefault(anchor, []).append(lease)
        lease._held.bodies += 1

    def _innermost(self, anchor: object) -> Any:
        """The lease of the body that ends now: the innermost of this thread or task. A body that moved, such as a
        generator's that is closed elsewhere, is certain when it is the only one of this lock object."""
        if anchor not in self._bodies and len(self._bodies) == 1:
            anchor = next(iter(self._bodies))
        leases = self._bodies.get(anchor)
        if not leases:
            raise self._not_held()
        return leases[-1]

    def _leave(self, lease: BaseLease) -> None:
        """Its body is over."""
        for anchor, leases in list(self._bodies.items()):
            if leases and leases[-1] is lease:  # an interrupt may have left an empty one
                leases.pop()
                lease._held.bodies -= 1
                if not leases:
                    del self._bodies[anchor]
                return

    def _give_up(self, lease: BaseLease) -> None:
        """An interrupt hit the beginning or the end of a body: whatever was done already, it ends in the background."""
        held = lease._held
        self._leave(lease)
        release = held.begin_release(self._engine.clock.now())
        self._engine.forget(held)
        if release is not None:
            self._engine.watchdog.later(Later(release, held.ttl_ms / 1000))

    def _held_by(self, anchor: object) -> Held:
        held = self._engine.mine(self._name.text, anchor)
        if held is None:
            raise self._not_held()
        return held

    def _not_held(self) -> NotHeld:
        return NotHeld(
            f"{self._name.kind} is not held by this thread or task; a lease that moves between threads or "
            "tasks is released with lease.release()",
            resource=self._name.text,
        )

    def _owned_by(self, anchor: object) -> bool:
        held = self._engine.mine(self._name.text, anchor)
        return held is not None and held.settle(self._engine.clock.now()) in ALIVE

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.shown} ttl={self._options.ttl_ms / 1000:g}s>"


class Lock(BaseLock):
    """A lock for threads.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     with hold.lock("rebuild", "nl", ttl="10s") as lease:
    ...         hold.lock("rebuild", "nl").try_acquire() is None
    True
    """

    __slots__ = ()

    def acquire(self, wait: Duration | Unset | None = UNSET) -> Lease | None:
        """A lease, or None when the wait was over first. ``wait=None`` waits for ever, 0 tries once."""
        try:
            lease = self._acquire(self._wait(wait))
        except NotAcquired:
            return None
        lease._held.keep(self)
        return lease

    def try_acquire(self) -> Lease | None:
        """One try: a lease, or None."""
        return self.acquire(wait=0)

    def release(self) -> bool:
        """Give back the calling thread's lease. False: it was no longer ours."""
        return self._lease(self._held_by(threading.current_thread())).release()

    def locked(self) -> bool:
        """Does anybody hold it now? Asks the store; true only in the past by the time you read it."""
        self._engine.ensure_open()
        return bool(sync.drive(self._engine, _look(self._name.text)).holders)

    def owned(self) -> bool:
        """Does the calling thread hold it? Asks nobody."""
        return self._owned_by(threading.current_thread())

    def __enter__(self) -> Lease:
        lease = self._acquire(self._options.wait)
        try:
            self._enter(lease, threading.current_thread())
        except BaseException:
            self._give_up(lease)
            raise
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = None
        try:
            lease = self._innermost(threading.current_thread())
            self._leave(lease)
            lease.__exit__(kind, error, trace)
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt, here of all places
            self._give_up(lease or self._innermost(threading.current_thread()))
            raise

    def _acquire(self, wait: float | None) -> Lease:
        engine = self._engine
        engine.ensure_open()
        thread = threading.current_thread()
        held = self._reenter(thread)
        if held is not None:
            return self._lease(held)
        owners: list[str] = []
        box = engine.mailboxes.borrow() if wait != 0 else None
        ask = self._ask(wait, box.address if box is not None else "")
        flow = flows.acquire(ask, lambda: self._new_owner(owners), engine.floor, engine.clock.now())
        taken = None
        try:
            taken = sync.drive(engine, flow, box)
            return Lease(engine, self._keep(taken, thread))
        except BaseException:
            self._clean_up(flow, owners, taken, thread)
            raise
        finally:
            engine.expect_no_more(owners)
            if box is not None:
                engine.mailboxes.give_back(box)

    def _lease(self, held: Held) -> Lease:
        known = held.shell() if held.shell is not None else None
        return known if isinstance(known, Lease) else Lease(self._engine, held)


class AsyncLock(BaseLock):
    """A lock for asyncio: the same, awaited. The task inside ``async with`` is cancelled on loss."""

    __slots__ = ("_driver",)

    def __init__(self, engine: Engine, name: Name, options: Options, driver: AsyncDriver) -> None:
        super().__init__(engine, name, options)
        self._driver = driver

    async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncLease | None:
        """A lease, or None when the wait was over first. ``wait=None`` waits for ever, 0 tries once."""
        try:
            lease = await self._acquire(self._wait(wait))
        except NotAcquired:
            return None
        lease._held.keep(self)
        return lease

    async def try_acquire(self) -> AsyncLease | None:
        """One try: a lease, or None."""
        return await self.acquire(wait=0)

    async def release(self) -> bool:
        """Give back the calling task's lease. False: it was no longer ours."""
        return await self._lease(self._held_by(self._driver.task())).release()

    async def locked(self) -> bool:
        """Does anybody hold it now? Asks the store; true only in the past by the time you read it."""
        self._engine.ensure_open()
        return bool((await self._driver.drive(_look(self._name.text))).holders)

    def owned(self) -> bool:
        """Does the calling task hold it? Asks nobody."""
        return self._owned_by(self._driver.task())

    async def __aenter__(self) -> AsyncLease:
        lease = await self._acquire(self._options.wait)
        self._enter(lease, self._driver.task())
        return await lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = self._innermost(self._driver.task())
        self._leave(lease)
        await lease.__aexit__(kind, error, trace)

    async def _acquire(self, wait: float | None) -> AsyncLease:
        engine = self._engine
        engine.ensure_open()
        task = self._driver.task()
        held = self._reenter(task)
        if held is not None:
            return self._lease(held)
        owners: list[str] = []
        box = self._driver.mailbox() if wait != 0 else None
        expect = box.expect if box is not None else None
        ask = self._ask(wait, box.address if box is not None else "")
        flow = flows.acquire(ask, lambda: self._new_owner(owners, expect), engine.floor, engine.clock.now())
        taken = None
        try:
            taken = await self._driver.drive(flow, box)
            return AsyncLease(engine, self._keep(taken, task), self._driver)
        except BaseException:
            self._clean_up(flow, owners, taken, task)
            raise
        finally:
            engine.expect_no_more(owners)
            if box is not None:
                box.expect_no_more(owners)

    def _lease(self, held: Held) -> AsyncLease:
        known = held.shell() if held.shell is not None else None
        return known if isinstance(known, AsyncLease) else AsyncLease(self._engine, held, self._driver)


async def _look(resource: str) -> View:
    answer: Answer[View] = await Inspect(resource)
    return answer.reply
