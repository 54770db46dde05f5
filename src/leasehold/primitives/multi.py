"""All or nothing: several locks of one coordinator, taken together.

They are claimed in the order of their names, whatever the order in which they were given: a caller that waits for one
of them holds only those before it, so two callers that ask in opposite orders cannot wait for each other. Those that
are free are granted in one step, and released in one.

What a thread or task already holds when it calls is outside that order. Take everything with one ``all`` where you can,
and give ``wait`` an end where you cannot.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from threading import current_thread
from types import TracebackType

from leasehold._core.durations import wait_seconds
from leasehold._core.group import acquire_all
from leasehold._core.holding import LOST, RELEASED, Holding, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeAlias
from leasehold._core.ops import Op
from leasehold._runtime import sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold.errors import LeaseholdError, NotAcquired, NotHeld
from leasehold.primitives.base_attempt import BaseAttempt
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import UNSET, BaseLock, Bodies, Unset, innermost_body, leave_body
from leasehold.primitives.leases import AsyncEach, AsyncLeases, BaseLeases, Each, Leases

if TYPE_CHECKING:
    import asyncio
    import threading

    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.events import GroupAcquireEvents
    from leasehold.primitives.lock import AsyncLock

AnyLeases: TypeAlias = "BaseLeases[Any, *tuple[Any, ...]]"


class GroupAttempt(BaseAttempt):
    """One acquire of several locks, all or nothing. The same in both flavours. The flow calls ``new_owner`` and
    ``keep``."""

    def __init__(self, engine: Engine, parts: Sequence[BaseLock], anchor: object, wait: float | None) -> None:
        BaseAttempt.__init__(self, engine, parts, anchor, wait)
        self.held: list[Any] = []  # at the end: one for each of the rest
        self.events: GroupAcquireEvents | None = None

    def _new_flow(self, now: float) -> Coroutine[Op, Any, list[Holding]]:
        return acquire_all(self._requests, self, self._engine.floor, now, self._engine)

    # ------------------------------------------------------------ called by the flow

    def new_owner(self, place: int) -> str:
        self._events_of(self._rest[place])
        owner: str = self.attempt.new_owner(self._requests[place])
        return owner

    def keep(self, place: int, grant: LocalGrant) -> HeldLease:
        at = self._rest[place]
        part = self._parts[at]
        held = part._keep(grant, self._anchor, self._events_of(at), self.attempt.epoch)
        held.warned = True  # no guard can see it before all are granted
        self._kept.append(held)
        if self.events is not None:
            self.events.kept(part._name)
        return held

    # ------------------------------------------------------------ the end

    def leases(self, parts: Sequence[BaseLock]) -> list[BaseLease]:
        """All are granted: the lease of each part. One that was entered again may have been lost in between."""
        for entered in self._entered.values():
            if entered is not None:
                entered.check()
        found = {self._parts[place]: lease for place, lease in self._entered.items() if lease is not None}
        for place, held in zip(self._rest, self.held, strict=True):
            part = self._parts[place]
            held.warned = False
            found[part] = part._lease(held, self._anchor)
        for held in [one for one in self._kept if one not in self.held]:
            self._report_end(held)
        return [found[part] for part in parts]

    # ------------------------------------------------------------ for observers

    def _observe_acquire(self) -> None:
        from leasehold._runtime.events import GroupAcquireEvents

        self.events = GroupAcquireEvents(self._engine, self._wait)

    def _events_of(self, place: int) -> Any:
        part = self._parts[place]
        return None if self.events is None else self.events.of(part._name, part._options.ttl_ms)

    def _report_end(self, held: HeldLease) -> None:
        """The flow has released it, or does so in the background."""
        if held.phase == LOST:
            self._engine.watchdog.report_loss(held)
        elif held.number and not held.end_reported:
            self._engine.watchdog.lease_events().released(held, True if held.phase == RELEASED else None)
        self._engine.forget(held)

    def _report_failure(self, error: BaseException) -> None:
        if self.events is not None:
            self.events.failed(error)


class BaseAll:
    """The part of an ``all`` that never waits: its locks, their order, and the bodies that are open."""

    __slots__ = ("__weakref__", "_bodies", "_engine", "_ordered", "_parts", "_wait")

    def __init__(self, engine: Engine, parts: Sequence[BaseLock], wait: float | None) -> None:
        self._bodies: Bodies = {}
        self._engine = engine
        self._parts: tuple[Any, ...] = tuple(parts)
        self._ordered = sorted(parts, key=lambda part: part.resource.encode())
        self._wait = wait

    @property
    def resources(self) -> tuple[str, ...]:
        """The text forms of their names, in the order in which they were given."""
        return tuple(part.resource for part in self._parts)

    def _wait_seconds(self, wait: Duration | Unset | None) -> float | None:
        return self._wait if isinstance(wait, Unset) else wait_seconds(wait)

    def _leases(self, anchor: object) -> list[Any]:
        """The leases of those parts that this thread or task holds."""
        found = [(part, part._last_held(anchor)) for part in self._parts]
        leases = [part._lease(held, anchor) for part, held in found if held is not None]
        if not leases:
            raise self._not_held()
        return leases

    # ------------------------------------------------------------ bodies

    def _enter(self, leases: AnyLeases, anchor: object) -> None:
        """A body begins. Its exit must find these very leases."""
        self._bodies[anchor] = (leases, self._bodies.get(anchor))
        for lease in leases:
            lease._held.bodies += 1

    def _innermost(self, caller: object) -> Any:
        leases = innermost_body(self._bodies, caller)
        if leases is None:
            raise self._not_held()
        return leases

    def _leave(self, leases: AnyLeases) -> None:
        """A body ends. Its anchor is the thread or task that entered, which the body keeps alive."""
        if leave_body(self._bodies, leases[0]._held.anchor(), leases):
            for lease in leases:
                lease._held.bodies -= 1

    def _abandon(self, leases: AnyLeases, depths: Sequence[int] = ()) -> None:
        """An interrupt hit the beginning or the end of a body: release in the background, however far it came. What
        was entered again, known by the depth at which the end began, only steps out."""
        self._leave(leases)
        for place, lease in enumerate(leases):
            held = lease._held
            depth = depths[place] if depths else held.depth
            if depth > 1:
                held.depth = depth - 1
            else:
                self._parts[place]._release_in_background(held, self._engine.watchdog.release_reporter(held))

    def _not_held(self) -> NotHeld:
        return NotHeld(
            "none of these is held by this thread or task; leases that move between threads or tasks are released with "
            "leases.release()"
        )

    def __reduce__(self) -> str:
        """An all belongs to the coordinator of this process."""
        raise TypeError("an all stays in its process: send the kinds and ids, and make it there from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(part._name.shown for part in self._parts)}>"


class All(BaseAll, Generic[*Each]):
    """Several locks for threads, all or nothing; made by :meth:`leasehold.Leasehold.all`.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     with hold.all(hold.lock("account", 2), hold.lock("account", 1)) as (payee, payer):
    ...         payee.resource, payer.resource, hold.lock("account", 1).locked()
    ('account:2', 'account:1', True)
    """

    __slots__ = ()

    def acquire(self, wait: Duration | Unset | None = UNSET) -> Leases[*Each] | None:
        """Wait for a lease of each; None, and none is held, when the wait is over first. ``wait`` is for all of them
        together: None waits for ever, 0 tries once."""
        try:
            leases = self._acquire(self._wait_seconds(wait), current_thread())
        except NotAcquired:
            return None
        for lease in leases._leases:
            lease._held.track_lock(self)
        return leases

    def try_acquire(self) -> Leases[*Each] | None:
        """Try once: a lease of each, or None."""
        return self.acquire(wait=0)

    def release(self) -> bool:
        """Release those that the calling thread holds. False: one had already been lost."""
        return Leases(self._engine, self._leases(current_thread())).release()

    def locked(self) -> bool:
        """Is one of them held, by any process? Reads the store for each; the answer may soon be out of date."""
        return any(part.locked() for part in self._parts)

    def owned(self) -> bool:
        """Does the calling thread hold all of them? Costs no round trip."""
        return all(part.owned() for part in self._parts)

    def __enter__(self) -> Leases[*Each]:
        thread = current_thread()
        leases = self._acquire(self._wait, thread)
        try:
            self._enter(leases, thread)
        except BaseException:
            self._abandon(leases)
            raise
        return leases

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leases: Any = None
        depths: list[int] = []
        try:
            leases = self._innermost(current_thread())
            depths = [lease._held.depth for lease in leases]
            self._leave(leases)
            leases.__exit__(kind, error, trace)
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt
            self._abandon(leases or self._innermost(current_thread()), depths)
            raise

    def _acquire(self, wait: float | None, thread: threading.Thread) -> Leases[*Each]:
        engine = self._engine
        engine.ensure_open()
        group = GroupAttempt(engine, self._ordered, thread, wait)
        try:
            if group.enter_again():
                connection = group.borrow()
                flow, events = group.flow(connection.address), group.events
                watched = connection if events is None else events.observed_connection(connection)
                group.held = sync.drive(engine, flow, watched)
            found: Any = group.leases(self._parts)
            leases: Leases[*Each] = Leases(engine, found)
            group.finish()
            return leases  # inside the try: an interrupt on the way out must not lose them
        except BaseException as error:
            try:
                group.clean_up(error, (LeaseholdError,))
            finally:
                try:
                    group.finish()
                except BaseException:  # an interrupt, perhaps the first one: the acquire was only refused
                    group.finish()
                    raise
            raise


class AsyncAll(BaseAll, Generic[*AsyncEach]):
    """Several locks for asyncio, all or nothing: as :class:`All`, awaited. The task inside ``async with`` is cancelled
    when one of them is lost."""

    __slots__ = ("_driver",)

    def __init__(self, engine: Engine, parts: Sequence[AsyncLock], wait: float | None, driver: AsyncDriver) -> None:
        BaseAll.__init__(self, engine, parts, wait)
        self._driver = driver

    async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncLeases[*AsyncEach] | None:
        """Wait for a lease of each; None, and none is held, when the wait is over first. ``wait`` is for all of them
        together: None waits for ever, 0 tries once."""
        try:
            leases = await self._acquire(self._wait_seconds(wait), self._driver.task())
        except NotAcquired:
            return None
        for lease in leases._leases:
            lease._held.track_lock(self)
        return leases

    async def try_acquire(self) -> AsyncLeases[*AsyncEach] | None:
        """Try once: a lease of each, or None."""
        return await self.acquire(wait=0)

    async def release(self) -> bool:
        """Release those that the calling task holds. False: one had already been lost."""
        task = self._driver.task()
        return await AsyncLeases(self._engine, self._leases(task), self._driver, task.get_loop()).release()

    async def locked(self) -> bool:
        """Is one of them held, by any process? Reads the store for each; the answer may soon be out of date."""
        for part in self._parts:
            if await part.locked():
                return True
        return False

    def owned(self) -> bool:
        """Does the calling task hold all of them? Costs no round trip."""
        return all(part.owned() for part in self._parts)

    async def __aenter__(self) -> AsyncLeases[*AsyncEach]:
        task = self._driver.task()
        leases = await self._acquire(self._wait, task)
        try:
            leases._begin(task)
            self._enter(leases, task)
        except BaseException:
            self._abandon(leases)
            raise
        return leases

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leases = self._innermost(self._driver.task())
        self._leave(leases)
        await leases.__aexit__(kind, error, trace)

    async def _acquire(self, wait: float | None, task: asyncio.Task[Any]) -> AsyncLeases[*AsyncEach]:
        from asyncio import CancelledError

        engine = self._engine
        engine.ensure_open()
        group = GroupAttempt(engine, self._ordered, task, wait)
        try:
            if group.enter_again():
                connection = self._driver.connection(task.get_loop())
                flow, events = group.flow(connection.address, connection.pushes), group.events
                watched = connection if events is None else events.observed_async_connection(connection)
                group.held = await self._driver.drive(flow, watched)
            found: Any = group.leases(self._parts)
            leases: AsyncLeases[*AsyncEach] = AsyncLeases(engine, found, self._driver, task.get_loop())
            group.finish()
            return leases  # inside the try: an interrupt on the way out must not lose them
        except BaseException as error:
            try:
                group.clean_up(error, (LeaseholdError, CancelledError))
            finally:
                try:
                    group.finish()
                except BaseException:  # an interrupt, perhaps the first one: the acquire was only refused
                    group.finish()
                    raise
            raise
