"""``hold.all`` in both flavours: several locks of one coordinator, all or nothing."""

from __future__ import annotations

from leasehold.core.durations import wait_seconds
from leasehold.core.typed import TYPE_CHECKING, Any
from leasehold.primitives.base import UNSET, Unset

if TYPE_CHECKING:
    from leasehold.primitives.baselease import Duration
    from leasehold.primitives.lock import AsyncLock, Lock
    from leasehold.primitives.multi import All, AsyncAll
    from leasehold.runtime.engine import Engine


class Gathering:
    """For threads."""

    _engine: Engine
    _default_wait: float | None

    def all(self, *locks: Lock, wait: Duration | Unset | None = UNSET) -> All:
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

    def all(self, *locks: AsyncLock, wait: Duration | Unset | None = UNSET) -> AsyncAll:
        """All of these or none; see :meth:`leasehold.Leasehold.all`."""
        from leasehold.primitives.lock import AsyncLock
        from leasehold.primitives.multi import AsyncAll
        from leasehold.primitives.parts import checked

        parts = checked(self._engine, locks, AsyncLock)
        return AsyncAll(self._engine, parts, _waiting(wait, self._default_wait), self._driver)


def _waiting(wait: Duration | Unset | None, default: float | None) -> float | None:
    return default if isinstance(wait, Unset) else wait_seconds(wait)
