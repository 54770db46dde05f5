"""``hold.all`` in both flavours: several locks of one coordinator, all or nothing."""

from __future__ import annotations

from leasehold._core.durations import wait_seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._runtime.engine import Engine
    from leasehold.primitives.lease import AsyncLease, Lease
    from leasehold.primitives.lock import AsyncLock, Lock
    from leasehold.primitives.multi import All, AsyncAll

    Wait = Duration | Unset | None

    # The leases of up to five, so that whoever takes them apart has each with its class; more are plain leases.
    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    D = TypeVar("D")
    E = TypeVar("E")
    L_co = TypeVar("L_co", covariant=True)

    class Part(Protocol[L_co]):
        """A lock, for type checkers: what it gives."""

        @property
        def resource(self) -> str: ...
        def __enter__(self) -> L_co: ...

    class AsyncPart(Protocol[L_co]):
        """The same for asyncio."""

        @property
        def resource(self) -> str: ...
        async def __aenter__(self) -> L_co: ...


class Gathering:
    """For threads."""

    _engine: Engine
    _default_wait: float | None

    @overload
    def all(self, a: Part[A], /, *, wait: Wait = UNSET) -> All[A]: ...
    @overload
    def all(self, a: Part[A], b: Part[B], /, *, wait: Wait = UNSET) -> All[A, B]: ...
    @overload
    def all(self, a: Part[A], b: Part[B], c: Part[C], /, *, wait: Wait = UNSET) -> All[A, B, C]: ...
    @overload
    def all(self, a: Part[A], b: Part[B], c: Part[C], d: Part[D], /, *, wait: Wait = UNSET) -> All[A, B, C, D]: ...
    @overload
    def all(
        self, a: Part[A], b: Part[B], c: Part[C], d: Part[D], e: Part[E], /, *, wait: Wait = UNSET
    ) -> All[A, B, C, D, E]: ...
    @overload
    def all(self, *locks: Lock, wait: Wait = UNSET) -> All[*tuple[Lease, ...]]: ...
    def all(self, *locks: Part[Any], wait: Wait = UNSET) -> All[*tuple[Any, ...]]:
        """All of these or none: any mix of locks, sides of read-write locks and permits of this coordinator.

        They are claimed in the order of their names, so that nobody who asks for the same ones in another order can
        wait for us while we wait for him; what is free is granted in one round trip. The leases come in the order of
        the locks. ``wait`` is how long to block for all of them together: the coordinator's unless it is said, and
        never that of the locks. However it ends without all of them, nothing stays held.

        While it waits for one, what stands before that is held and renewed; when some of it is lost meanwhile, all of
        it is given back and claimed anew. A lock with ``reentrant`` that this thread holds already is entered again:
        that costs nothing, and leaving steps out of it.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.all(hold.lock("stock", 7), hold.lock("order", 42), wait="5s") as (stock, order):
        ...         stock.resource, order.resource
        ('stock:7', 'order:42')
        """
        from leasehold.primitives.lock import Lock
        from leasehold.primitives.multi import All
        from leasehold.primitives.parts import checked

        return All(self._engine, checked(self._engine, locks, Lock), _waiting(wait, self._default_wait))


class AsyncGathering:
    """For asyncio: the same, awaited."""

    _engine: Engine
    _default_wait: float | None
    _driver: Any

    @overload
    def all(self, a: AsyncPart[A], /, *, wait: Wait = UNSET) -> AsyncAll[A]: ...
    @overload
    def all(self, a: AsyncPart[A], b: AsyncPart[B], /, *, wait: Wait = UNSET) -> AsyncAll[A, B]: ...
    @overload
    def all(self, a: AsyncPart[A], b: AsyncPart[B], c: AsyncPart[C], /, *, wait: Wait = UNSET) -> AsyncAll[A, B, C]: ...
    @overload
    def all(
        self, a: AsyncPart[A], b: AsyncPart[B], c: AsyncPart[C], d: AsyncPart[D], /, *, wait: Wait = UNSET
    ) -> AsyncAll[A, B, C, D]: ...
    @overload
    def all(
        self,
        a: AsyncPart[A],
        b: AsyncPart[B],
        c: AsyncPart[C],
        d: AsyncPart[D],
        e: AsyncPart[E],
        /,
        *,
        wait: Wait = UNSET,
    ) -> AsyncAll[A, B, C, D, E]: ...
    @overload
    def all(self, *locks: AsyncLock, wait: Wait = UNSET) -> AsyncAll[*tuple[AsyncLease, ...]]: ...
    def all(self, *locks: AsyncPart[Any], wait: Wait = UNSET) -> AsyncAll[*tuple[Any, ...]]:
        """All of these or none; see :meth:`leasehold.Leasehold.all`."""
        from leasehold.primitives.lock import AsyncLock
        from leasehold.primitives.multi import AsyncAll
        from leasehold.primitives.parts import checked

        parts = checked(self._engine, locks, AsyncLock)
        return AsyncAll(self._engine, parts, _waiting(wait, self._default_wait), self._driver)


def _waiting(wait: Duration | Unset | None, default: float | None) -> float | None:
    return default if isinstance(wait, Unset) else wait_seconds(wait)
