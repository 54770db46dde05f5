"""What operators need of a coordinator, in both flavours: look, scan, take away, ask for, and find leaks.

Most programs never call any of it: what it needs is loaded when they do.
"""

from __future__ import annotations

import os

from leasehold._core import resource_flows
from leasehold._core.durations import seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold._core.names import MAX_NAME_BYTES, Name, resource_names
from leasehold._core.policy import MAX_NOTE_BYTES, MAX_TTL_MS
from leasehold._core.types import public_owner
from leasehold._runtime import sync
from leasehold._runtime.identity import new_owner
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.primitives.base_lease import BaseLease
    from leasehold.primitives.base_lock import BaseLock
    from leasehold.primitives.election import BaseElection
    from leasehold.primitives.rwlock import AsyncReadWriteLock, ReadWriteLock

    Resource = str | BaseLock | BaseElection | BaseLease | ReadWriteLock | AsyncReadWriteLock
    from collections.abc import AsyncIterator, Iterator

    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold.primitives.inspection import Eviction, Inspection

# ---------------------------------------------------------------- orders
#
# What operators ask of a coordinator, checked before anything is sent.


MOST_SAID = 300  # characters of a reason, and of a name


class EvictionRequest(NamedTuple):
    """An eviction that was asked for, checked."""

    names: list[Name]
    fence: int
    request: str
    delay_ms: int | None
    force: bool
    note: str


def named(hold: Any, resource: Resource) -> list[Name]:
    """The name of what a lock, a lease or a text form means to this coordinator; a text may mean either of two."""
    if isinstance(resource, str):
        return resource_names(hold._namespace, resource, hold._id_key)
    known = getattr(resource, "_name", None) or getattr(getattr(resource, "_held", None), "name", None)
    if not isinstance(known, Name):
        raise InvalidRequest(
            f"a resource is a text form such as 'report-export:42', a lock or a lease, not {type(resource).__name__}"
        )
    return [known]


def pattern_of(hold: Any, pattern: object) -> tuple[str, str]:
    """Where to look, and what for: in this namespace, also when the pattern says so itself, as the names that a scan
    shows; without one, in the whole store."""
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_NAME_BYTES:
        raise InvalidRequest(f"a pattern is text such as 'report-export:*', of at most {MAX_NAME_BYTES} characters")
    here = f"{hold._namespace}/" if hold._namespace else ""
    return here, pattern if pattern.startswith(here) else here + pattern


def order(
    hold: Any,
    resource: Resource,
    fence: object,
    reason: object,
    by: object,
    delay: Duration | None,
    force: object,
) -> EvictionRequest:
    if fence is None:
        raise InvalidRequest("evict needs the fence of the lease that is meant: inspect() says which it is")
    meant = check_fence(fence)
    who = public_owner(new_owner()) if by is None else _said(by, "by")
    import json

    note = json.dumps({"by": who, "reason": _said(reason, "reason")}, ensure_ascii=False)
    if len(note.encode()) > MAX_NOTE_BYTES:
        raise InvalidRequest(f"by and reason together take at most about {MAX_NOTE_BYTES - 30} bytes")
    delay_ms = None if delay is None else _delay_ms(delay)
    if not isinstance(force, bool):
        raise InvalidRequest(f"force must be True or False, not {type(force).__name__}")
    return EvictionRequest(named(hold, resource), meant, os.urandom(16).hex(), delay_ms, force, note)


def _said(text: object, what: str) -> str:
    """What will stand in the audit trail: one line that says something."""
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_SAID or not text.isprintable():
        raise InvalidRequest(f"{what} is one printable line for the audit trail, of at most {MOST_SAID} characters")
    return text.strip()


def _delay_ms(delay: Duration) -> int:
    ms = round(seconds(delay, "delay") * 1000)
    if ms > MAX_TTL_MS:
        raise InvalidRequest("delay must be at most 24 h")
    return ms


def check_fence(fence: object) -> int:
    """0 is the one of a client that knows nothing of fences, and only sets the key of the owner."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise InvalidRequest(f"a fence is an int, not {type(fence).__name__}")
    if fence < 0:
        raise InvalidRequest("a fence is not below zero: inspect() says which it is")
    return fence


def check_pattern(pattern: object) -> str:
    """Of keys, as Redis understands it."""
    if not isinstance(pattern, str) or not pattern:
        raise InvalidRequest("a pattern of keys is text such as 'lock:*'")
    return pattern


# ---------------------------------------------------------------- operating


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
        from leasehold.primitives.inspection import inspection

        name, view = self._operate(resource_flows.inspect, named(self, resource))
        return inspection(name.text, view)

    def scan(self, pattern: str = "*") -> Iterator[Inspection]:
        """Every resource of this namespace (without one: of the whole store) whose name matches and that is held,
        waited for or closed, or has an audit trail. In a pattern only ``*`` and ``?`` are special."""

        return self._scan(*pattern_of(self, pattern))

    def _scan(self, here: str, pattern: str) -> Iterator[Inspection]:
        from leasehold.primitives.inspection import inspection

        seen: set[str] = set()
        found, cursor = self._operate(resource_flows.scan, here, pattern, "", seen)
        while True:
            yield from [inspection(resource, view) for resource, view in found]
            if not cursor:
                return
            found, cursor = self._operate(resource_flows.scan, here, pattern, cursor, seen)

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
        from leasehold.primitives.inspection import Eviction

        asked = order(self, resource, fence, reason, by, delay, force)
        name, victim, reply = self._operate(resource_flows.evict, *asked)
        return Eviction(name.text, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)

    def revoke(self, resource: Resource, *, fence: int | None = None) -> bool:
        """Ask the holder to give its lease back: its ``lease.revoked`` is set. It may go on; see ``evict`` for force.
        Where several share the resource all are asked, or the one with this fence. False when not all of them can be
        told. NotHeld when nobody holds, or nobody with this fence."""

        meant = None if fence is None else check_fence(fence)
        reached: bool = self._operate(resource_flows.revoke, named(self, resource), meant)
        return reached

    def leaks(self, pattern: str = "lock:*") -> list[str]:
        """Keys without a TTL, of whichever library, that match (as Redis understands patterns): locks that nobody will
        ever get. Leasehold leaves none; on memory and SQLite there can be none."""

        keys: list[str] = self._operate(resource_flows.leaks, check_pattern(pattern))
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
        from leasehold.primitives.inspection import inspection

        name, view = await self._operate(resource_flows.inspect, named(self, resource))
        return inspection(name.text, view)

    def scan(self, pattern: str = "*") -> AsyncIterator[Inspection]:
        """Every resource that matches, for ``async for``; see :meth:`leasehold.Leasehold.scan`."""

        return self._scan(*pattern_of(self, pattern))

    async def _scan(self, here: str, pattern: str) -> AsyncIterator[Inspection]:
        from leasehold.primitives.inspection import inspection

        seen: set[str] = set()
        found, cursor = await self._operate(resource_flows.scan, here, pattern, "", seen)
        while True:
            for resource, view in found:
                yield inspection(resource, view)
            if not cursor:
                return
            found, cursor = await self._operate(resource_flows.scan, here, pattern, cursor, seen)

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
        from leasehold.primitives.inspection import Eviction

        asked = order(self, resource, fence, reason, by, delay, force)
        name, victim, reply = await self._operate(resource_flows.evict, *asked)
        return Eviction(name.text, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)

    async def revoke(self, resource: Resource, *, fence: int | None = None) -> bool:
        """Ask the holder to give its lease back; see :meth:`leasehold.Leasehold.revoke`."""

        meant = None if fence is None else check_fence(fence)
        reached: bool = await self._operate(resource_flows.revoke, named(self, resource), meant)
        return reached

    async def leaks(self, pattern: str = "lock:*") -> list[str]:
        """Keys without a TTL, of whichever library; see :meth:`leasehold.Leasehold.leaks`."""

        keys: list[str] = await self._operate(resource_flows.leaks, check_pattern(pattern))
        tell_of_leaks(self._engine, keys)
        return keys

    async def _operate(self, flow: Any, *arguments: Any) -> Any:
        self._engine.ensure_open()
        return await self._driver.drive(flow(*arguments))


def tell_of_leaks(engine: Engine, keys: list[str]) -> None:
    if engine.observers.observers:
        from leasehold.observe.events import Leaking

        engine.observers.tell(Leaking(len(keys)))
