"""What operators need of a coordinator, in both flavours: look, scan, take away, ask for, and find leaks.

Most programs never call any of it: what it needs is loaded when they do.
"""

from __future__ import annotations

from leasehold._core import operations
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.types import public_owner
from leasehold._runtime import sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold.coordinator.orders import Resource
    from leasehold.primitives.inspection import Eviction, Inspection


class Operating:
    """For threads."""

    _engine: Engine

    def inspect(self, resource: Resource) -> Inspection:
        """One resource as the store sees it now: who holds it, who waits, and what operators did to it.

        ``resource`` is a lock, a lease or a text form.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42, meta={"job": 7}):
        ...     hold.inspect("report-export:42").holder.meta
        {'job': 7}
        """
        from leasehold.coordinator.orders import named
        from leasehold.primitives.inspection import inspection

        name, view = self._operate(operations.inspect, named(self, resource))
        return inspection(name.text, view)

    def scan(self, pattern: str = "*") -> Iterator[Inspection]:
        """Every resource of this namespace (without one: of the whole store) whose name matches and that is held,
        waited for or closed, or has an audit trail. In a pattern only ``*`` and ``?`` are special."""
        from leasehold.coordinator.orders import pattern_of

        return self._scan(*pattern_of(self, pattern))

    def _scan(self, here: str, pattern: str) -> Iterator[Inspection]:
        from leasehold.primitives.inspection import inspection

        seen: set[str] = set()
        found, cursor = self._operate(operations.scan, here, pattern, "", seen)
        while True:
            yield from [inspection(resource, view) for resource, view in found]
            if not cursor:
                return
            found, cursor = self._operate(operations.scan, here, pattern, cursor, seen)

    def evict(
        self,
        resource: Resource,
        *,
        fence: int,
        reason: str,
        by: str | None = None,
        delay: Duration | None = None,
        force: bool = False,
    ) -> Eviction:
        """Take away the lease that has this fence. Its holder is told, and loses it (``evicted``).

        Nobody is granted for ``delay``: by default for what the lease had left, because its holder may work for as long
        as that; less needs ``force=True`` and the certainty that it has stopped. ``reason`` and ``by`` are kept with
        the resource as an audit trail. NotHeld when nobody holds with this fence any more."""
        from leasehold.coordinator.orders import order
        from leasehold.primitives.inspection import Eviction

        asked = order(self, resource, fence, reason, by, delay, force)
        name, victim, reply = self._operate(operations.evict, *asked)
        return Eviction(name.text, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)

    def revoke(self, resource: Resource, *, fence: int | None = None) -> bool:
        """Ask the holder to give its lease back: its ``lease.revoked`` is set. It may go on; see ``evict`` for force.
        Where several share the resource all are asked, or the one with this fence. False when not all of them can be
        told. NotHeld when nobody holds, or nobody with this fence."""
        from leasehold.coordinator.orders import check_fence, named

        meant = None if fence is None else check_fence(fence)
        reached: bool = self._operate(operations.revoke, named(self, resource), meant)
        return reached

    def leaks(self, pattern: str = "lock:*") -> list[str]:
        """Keys without a TTL, of whichever library, that match (as Redis understands patterns): locks that nobody will
        ever get. Leasehold leaves none; on memory and SQLite there can be none."""
        from leasehold.coordinator.orders import check_pattern

        keys: list[str] = self._operate(operations.leaks, check_pattern(pattern))
        tell_of_leaks(self._engine, keys)
        return keys

    def _operate(self, flow: Any, *arguments: Any) -> Any:
        self._engine.ensure_open()
        return sync.run(self._engine, flow(*arguments))


class AsyncOperating:
    """For asyncio: the same, awaited."""

    _engine: Engine
    _driver: AsyncDriver

    async def inspect(self, resource: Resource) -> Inspection:
        """One resource as the store sees it now; see :meth:`leasehold.Leasehold.inspect`."""
        from leasehold.coordinator.orders import named
        from leasehold.primitives.inspection import inspection

        name, view = await self._operate(operations.inspect, named(self, resource))
        return inspection(name.text, view)

    def scan(self, pattern: str = "*") -> AsyncIterator[Inspection]:
        """Every resource that matches, for ``async for``; see :meth:`leasehold.Leasehold.scan`."""
        from leasehold.coordinator.orders import pattern_of

        return self._scan(*pattern_of(self, pattern))

    async def _scan(self, here: str, pattern: str) -> AsyncIterator[Inspection]:
        from leasehold.primitives.inspection import inspection

        seen: set[str] = set()
        found, cursor = await self._operate(operations.scan, here, pattern, "", seen)
        while True:
            for resource, view in found:
                yield inspection(resource, view)
            if not cursor:
                return
            found, cursor = await self._operate(operations.scan, here, pattern, cursor, seen)

    async def evict(
        self,
        resource: Resource,
        *,
        fence: int,
        reason: str,
        by: str | None = None,
        delay: Duration | None = None,
        force: bool = False,
    ) -> Eviction:
        """Take away the lease that has this fence; see :meth:`leasehold.Leasehold.evict`."""
        from leasehold.coordinator.orders import order
        from leasehold.primitives.inspection import Eviction

        asked = order(self, resource, fence, reason, by, delay, force)
        name, victim, reply = await self._operate(operations.evict, *asked)
        return Eviction(name.text, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)

    async def revoke(self, resource: Resource, *, fence: int | None = None) -> bool:
        """Ask the holder to give its lease back; see :meth:`leasehold.Leasehold.revoke`."""
        from leasehold.coordinator.orders import check_fence, named

        meant = None if fence is None else check_fence(fence)
        reached: bool = await self._operate(operations.revoke, named(self, resource), meant)
        return reached

    async def leaks(self, pattern: str = "lock:*") -> list[str]:
        """Keys without a TTL, of whichever library; see :meth:`leasehold.Leasehold.leaks`."""
        from leasehold.coordinator.orders import check_pattern

        keys: list[str] = await self._operate(operations.leaks, check_pattern(pattern))
        tell_of_leaks(self._engine, keys)
        return keys

    async def _operate(self, flow: Any, *arguments: Any) -> Any:
        self._engine.ensure_open()
        return await self._driver.drive(flow(*arguments))


def tell_of_leaks(engine: Engine, keys: list[str]) -> None:
    if engine.audience.observers:
        from leasehold.observe.events import Leaking

        engine.audience.tell(Leaking(len(keys)))
