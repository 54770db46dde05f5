"""All or nothing: several locks of one coordinator, taken together.

They are claimed in one order, that of their names, whatever the order in which they were given: whoever waits for one
of them holds only what stands before it, so two who ask in opposite orders cannot wait for each other. Those that are
free are granted in one step, and given back in one.

What a thread or task holds already when it asks stands outside that order. Take everything with one ``all`` where you
can, and give ``wait`` an end where you cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import current_thread
from types import TracebackType

from leasehold._core.durations import wait_seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from leasehold._runtime import sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold.errors import InvalidRequest, LeaseholdError, NotAcquired, NotHeld
from leasehold.primitives.base_lock import UNSET, BaseLock, Unset
from leasehold.primitives.leases import AsyncEach, AsyncLeases, BaseLeases, Each, Leases
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.primitives.multi_acquire import GroupAttempt

if TYPE_CHECKING:
    import asyncio
    import threading

    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold.primitives.lock import AsyncLock

Several: TypeAlias = "BaseLeases[Any, *tuple[Any, ...]]"
Body: TypeAlias = "tuple[Several, Body | None]"  # its leases, and the body around it


class BaseAll:
    """What both flavours share: which locks, in which order, and which bodies are open."""

    __slots__ = ("__weakref__", "_bodies", "_engine", "_ordered", "_parts", "_wait")

    def __init__(self, engine: Engine, parts: Sequence[BaseLock], wait: float | None) -> None:
        self._bodies: dict[object, Body] = {}  # the innermost body of each thread or task
        self._engine = engine
        self._parts: tuple[Any, ...] = tuple(parts)
        self._ordered = sorted(parts, key=lambda part: part.resource.encode())
        self._wait = wait

    @property
    def resources(self) -> tuple[str, ...]:
        """The text forms of their names, in the order in which they were given."""
        return tuple(part.resource for part in self._parts)

    def _seconds(self, wait: Duration | Unset | None) -> float | None:
        return self._wait if isinstance(wait, Unset) else wait_seconds(wait)

    def _mine(self, anchor: object) -> list[tuple[Any, HeldLease]]:
        """What this thread or task holds of them."""
        found = [(part, part._mine(anchor)) for part in self._parts]
        mine = [(part, held) for part, held in found if held is not None]
        if not mine:
            raise self._not_held()
        return mine

    # ------------------------------------------------------------ bodies

    def _enter(self, leases: Several, anchor: object) -> None:
        """A with body begins. Its exit must find these very leases."""
        self._bodies[anchor] = (leases, self._bodies.get(anchor))
        for lease in leases:
            lease._held.bodies += 1

    def _innermost(self, whoever: Callable[[], object]) -> Any:
        """Those of the body that ends now: see BaseLock._innermost."""
        bodies = list(self._bodies.values())
        body = bodies[0] if len(bodies) == 1 else self._bodies.get(whoever())
        if body is None:
            raise self._not_held()
        return body[0]

    def _leave(self, leases: Several) -> None:
        """Their body is over."""
        bodies = self._bodies
        anchor = leases[0]._held.anchor()  # whoever entered, and the body keeps him alive
        body = bodies.get(anchor)
        if body is None or body[0] is not leases:
            return
        if body[1] is None:
            del bodies[anchor]
        else:
            bodies[anchor] = body[1]
        for lease in leases:
            lease._held.bodies -= 1

    def _give_up(self, leases: Several, depths: Sequence[int] = ()) -> None:
        """An interrupt hit the beginning or the end of a body: whatever was done already, it ends in the background.
        What was entered again, by its depth when the end began, is only left."""
        self._leave(leases)
        for place, lease in enumerate(leases):
            held = lease._held
            depth = depths[place] if depths else held.depth
            if depth > 1:
                held.depth = depth - 1
            else:
                self._parts[place]._give_back(held, self._engine.watchdog.release_reporter(held))

    def _not_held(self) -> NotHeld:
        return NotHeld(
            "none of these is held by this thread or task; leases that move between threads or tasks are released with "
            "leases.release()"
        )

    def __reduce__(self) -> str:
        """It leads to the coordinator of this process."""
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
        """A lease of each, or None when the wait was over before all were there; then none is held. ``wait`` is for all
        of them together: None waits for ever, 0 tries once."""
        try:
            leases = self._acquire(self._seconds(wait), current_thread())
        except NotAcquired:
            return None
        for lease in leases._leases:
            lease._held.track_lock(self)
        return leases

    def try_acquire(self) -> Leases[*Each] | None:
        """One try: a lease of each, or None."""
        return self.acquire(wait=0)

    def release(self) -> bool:
        """Give back what the calling thread holds of them. False: one was no longer ours."""
        mine = [part._lease(held) for part, held in self._mine(current_thread())]
        return Leases(self._engine, mine).release()

    def locked(self) -> bool:
        """Is one of them taken now? Asks the store for each; true only in the past by the time you read it."""
        return any(part.locked() for part in self._parts)

    def owned(self) -> bool:
        """Does the calling thread hold all of them? Asks nobody."""
        return all(part.owned() for part in self._parts)

    def __enter__(self) -> Leases[*Each]:
        thread = current_thread()
        leases = self._acquire(self._wait, thread)
        try:
            self._enter(leases, thread)
        except BaseException:
            self._give_up(leases)
            raise
        return leases

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leases: Any = None
        depths: list[int] = []
        try:
            leases = self._innermost(current_thread)
            depths = [lease._held.depth for lease in leases]
            self._leave(leases)
            leases.__exit__(kind, error, trace)
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt, here of all places
            self._give_up(leases or self._innermost(current_thread), depths)
            raise

    def _acquire(self, wait: float | None, thread: threading.Thread) -> Leases[*Each]:
        engine = self._engine
        engine.ensure_open()
        getting = GroupAttempt(engine, self._ordered, thread, wait)
        try:
            if getting.enter_again(_lease):
                self._claim(getting)
            found = getting.leases(_lease)
            leases: Leases[*Each] = Leases(engine, [found[part] for part in self._parts])  # type: ignore[misc]  # each part's own
            getting.finish()
            return leases  # in the same try: an interrupt on the way out must not lose them
        except BaseException as error:
            try:
                getting.clean_up(error, (LeaseholdError,))
            finally:
                getting.finish()
            raise

    def _claim(self, getting: GroupAttempt) -> None:
        engine = self._engine
        connection = engine.connections.borrow()
        try:
            flow = getting.flow(connection.address)
            group_events = getting.group_events
            getting.held = sync.drive(
                engine, flow, connection if group_events is None else group_events.observed_connection(connection)
            )
        finally:
            engine.connections.give_back(connection)


class AsyncAll(BaseAll, Generic[*AsyncEach]):
    """Several locks for asyncio, all or nothing: the same, awaited. The task inside ``async with`` is cancelled when
    one of them is lost."""

    __slots__ = ("_driver",)

    def __init__(self, engine: Engine, parts: Sequence[AsyncLock], wait: float | None, driver: AsyncDriver) -> None:
        BaseAll.__init__(self, engine, parts, wait)
        self._driver = driver

    async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncLeases[*AsyncEach] | None:
        """A lease of each, or None when the wait was over before all were there; then none is held. ``wait`` is for all
        of them together: None waits for ever, 0 tries once."""
        try:
            leases = await self._acquire(self._seconds(wait), self._driver.task())
        except NotAcquired:
            return None
        for lease in leases._leases:
            lease._held.track_lock(self)
        return leases

    async def try_acquire(self) -> AsyncLeases[*AsyncEach] | None:
        """One try: a lease of each, or None."""
        return await self.acquire(wait=0)

    async def release(self) -> bool:
        """Give back what the calling task holds of them. False: one was no longer ours."""
        task = self._driver.task()
        mine = [part._lease(held, task) for part, held in self._mine(task)]
        return await AsyncLeases(self._engine, mine, self._driver, task.get_loop()).release()

    async def locked(self) -> bool:
        """Is one of them taken now? Asks the store for each; true only in the past by the time you read it."""
        for part in self._parts:
            if await part.locked():
                return True
        return False

    def owned(self) -> bool:
        """Does the calling task hold all of them? Asks nobody."""
        return all(part.owned() for part in self._parts)

    async def __aenter__(self) -> AsyncLeases[*AsyncEach]:
        task = self._driver.task()
        leases = await self._acquire(self._wait, task)
        try:
            leases._begin(task)
            self._enter(leases, task)
        except BaseException:
            self._give_up(leases)
            raise
        return leases

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leases = self._innermost(self._driver.task)
        self._leave(leases)
        await leases.__aexit__(kind, error, trace)

    async def _acquire(self, wait: float | None, task: asyncio.Task[Any]) -> AsyncLeases[*AsyncEach]:
        from asyncio import CancelledError

        engine = self._engine
        engine.ensure_open()
        getting = GroupAttempt(engine, self._ordered, task, wait)

        def lease(part: Any, held: HeldLease) -> Any:
            return part._lease(held, task)

        try:
            if getting.enter_again(lease):
                await self._claim(getting, task)
            found: Any = getting.leases(lease)
            return AsyncLeases(engine, [found[part] for part in self._parts], self._driver, task.get_loop())
        except BaseException as error:
            getting.clean_up(error, (LeaseholdError, CancelledError))
            raise
        finally:
            getting.finish()

    async def _claim(self, getting: GroupAttempt, task: asyncio.Task[Any]) -> None:
        connection = self._driver.connection(task.get_loop())
        flow = getting.flow(connection.address, connection.pushes)
        group_events = getting.group_events
        getting.held = await self._driver.drive(
            flow, connection if group_events is None else group_events.observed_async_connection(connection)
        )


def _lease(part: Any, held: HeldLease) -> Any:
    return part._lease(held)


# ---------------------------------------------------------------- parts
#
# What ``hold.all`` is given, checked: locks of one coordinator, each of another resource.


MOST_PARTS = 100  # they are claimed in one step, and meanwhile nobody else gets an answer
L = TypeVar("L", Lock, AsyncLock)


def checked(engine: Engine, locks: tuple[Any, ...], flavour: type[L]) -> tuple[L, ...]:
    """They can be taken together, or it is said what to do."""
    if not 0 < len(locks) <= MOST_PARTS:
        raise InvalidRequest(
            f"all() takes 1 to {MOST_PARTS} locks, not {len(locks)}: hold.all(hold.lock('stock'), hold.lock('order'))"
        )
    known: set[str] = set()
    for lock in locks:
        _check(engine, lock, flavour)
        if lock.resource in known:
            raise InvalidRequest(
                f"{lock._name.kind} is given twice with the same ids, and would wait for itself: name each once",
                resource=lock.resource,
            )
        known.add(lock.resource)
    return locks


def _check(engine: Engine, lock: Any, flavour: type[L]) -> None:
    if not isinstance(lock, flavour):
        raise InvalidRequest(_no_part(lock, flavour))
    if lock._engine is not engine:
        raise InvalidRequest(
            f"{lock._name.kind} is a lock of another coordinator: make all of them from the one whose all() you call. "
            "What lives in two stores cannot be taken in one step: enter one lock inside the other, everywhere in the "
            "same order",
            resource=lock.resource,
        )


def _no_part(thing: object, flavour: type[BaseLock]) -> str:
    what = type(thing).__name__
    if isinstance(thing, BaseAll):
        return f"all() takes locks, not another {what}: give it the locks of both, and they are taken in one order"
    if isinstance(thing, BaseLock):
        other = "leasehold.connect()" if flavour is AsyncLock else "leasehold.aio.connect()"
        return f"all() takes locks of its own flavour: this {what} is of {other}; make it from the same coordinator"
    if isinstance(thing, (list, tuple, set, frozenset)) or hasattr(thing, "__next__"):
        return f"all() takes the locks one by one, not a {what} of them: hold.all(*locks)"
    if hasattr(thing, "read") and hasattr(thing, "write"):
        return f"all() takes one side of a {what}: its read() or its write()"
    return f"all() takes locks, such as hold.lock('order', 42), not {what}"
