"""The methods of a coordinator for operators, in both flavours: inspect, scan, evict, revoke, and find leaks.

Most programs never call any of them: what they need is loaded when they do.
"""

from __future__ import annotations

import os

from leasehold._core.durations import seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold._core.names import MAX_NAME_BYTES, Name, check_pattern, resource_names
from leasehold._core.policy import MAX_NOTE_BYTES, MAX_TTL_MS
from leasehold._core.types import json_text, public_owner
from leasehold._runtime import sync
from leasehold._runtime.identity import new_owner
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold.primitives.base_lease import BaseLease
    from leasehold.primitives.base_lock import BaseLock
    from leasehold.primitives.election import BaseElection
    from leasehold.primitives.inspection import Eviction, Inspection
    from leasehold.primitives.rwlock import AsyncReadWriteLock, ReadWriteLock

    Resource = str | BaseLock | BaseElection | BaseLease | ReadWriteLock | AsyncReadWriteLock


def flows() -> Any:
    """What the methods below run."""
    from leasehold._core import resource_flows

    return resource_flows


# ---------------------------------------------------------------- requests
#
# Arguments are checked before anything is sent.


MOST_NOTE = 300  # characters of a reason, and of a name
REMAINING_BYTES = 40  # what remained of the lease, which is added to the note


class EvictionRequest(NamedTuple):
    """The checked arguments of ``evict``."""

    names: list[Name]
    fence: int
    request: str
    delay_ms: int | None
    force: bool
    note: dict[str, Any]


def resource_names_of(hold: Any, resource: Resource) -> list[Name]:
    """The name of a lock, a lease or a text form in this coordinator; a text may mean either of two."""
    if isinstance(resource, str):
        return resource_names(hold._namespace, resource, hold._id_key)
    known = getattr(resource, "_name", None) or getattr(getattr(resource, "_held", None), "name", None)
    if not isinstance(known, Name):
        raise InvalidRequest(
            f"a resource is a text form such as 'report-export:42', a lock or a lease, not {type(resource).__name__}"
        )
    return [known]


def pattern_of(hold: Any, pattern: object) -> tuple[str, str]:
    """The prefix of this namespace, and the pattern below it. A pattern may begin with the namespace, as the names that
    a scan shows do. Without a namespace the scan covers the whole store."""
    if not isinstance(pattern, str):
        raise InvalidRequest(f"a pattern is text such as 'report-export:*', not {type(pattern).__name__}")
    if not pattern:
        raise InvalidRequest("the pattern is empty, and would match nothing: '*' matches everything")
    if len(pattern) > MAX_NAME_BYTES:
        raise InvalidRequest(
            f"the pattern has {len(pattern)} characters, and no name more than {MAX_NAME_BYTES}: shorten it with a *, "
            "as in 'report-export:*'"
        )
    here = f"{hold._namespace}/" if hold._namespace else ""
    return here, pattern if pattern.startswith(here) else here + pattern


def eviction_request(
    hold: Any,
    resource: Resource,
    fence: object,
    reason: object,
    by: object,
    delay: Duration | None,
    force: object,
) -> EvictionRequest:
    hold._engine.require("evictions", "evict()")
    if fence is None:
        raise InvalidRequest("evict needs the fence of the lease that is meant: inspect() says which it is")
    checked = check_fence(fence)
    note = _note(by, note_text(reason, "reason"))
    delay_ms = None if delay is None else checked_delay_ms(delay)
    if not isinstance(force, bool):
        raise InvalidRequest(f"force must be True or False, not {type(force).__name__}")
    return EvictionRequest(
        names=resource_names_of(hold, resource),
        fence=checked,
        request=os.urandom(16).hex(),
        delay_ms=delay_ms,
        force=force,
        note=note,
    )


def revocation_note(hold: Any, reason: object, by: object) -> str:
    """The checked arguments of ``revoke``, as the note that is kept."""
    hold._engine.require("evictions", "revoke()")
    return json_text(_note(by, "" if reason is None else note_text(reason, "reason")), "the note")


def _note(by: object, reason: str) -> dict[str, Any]:
    """For the audit trail: who and why."""
    note = {"by": public_owner(new_owner()) if by is None else note_text(by, "by"), "reason": reason}
    if len(json_text(note, "the note").encode()) > MAX_NOTE_BYTES - REMAINING_BYTES:
        raise InvalidRequest(f"by and reason together take at most about {MAX_NOTE_BYTES - REMAINING_BYTES - 30} bytes")
    return note


def note_text(text: object, what: str) -> str:
    """A line of the audit trail."""
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_NOTE or not text.isprintable():
        raise InvalidRequest(f"{what} is one printable line for the audit trail, of at most {MOST_NOTE} characters")
    return text.strip()


def checked_delay_ms(delay: Duration) -> int:
    ms = round(seconds(delay, "delay") * 1000)
    if ms > MAX_TTL_MS:
        raise InvalidRequest("delay must be at most 24 h")
    return ms


def check_fence(fence: object) -> int:
    """0 is the fence of a client without fences, which only sets the key of the owner."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise InvalidRequest(f"a fence is an int, not {type(fence).__name__}")
    if fence < 0:
        raise InvalidRequest("a fence is not below zero: inspect() says which it is")
    return fence


# ---------------------------------------------------------------- methods


class Operators:
    """The methods for operators, for threads."""

    _engine: Engine
    _namespace: str

    def inspect(self, resource: Resource) -> Inspection:
        """One resource as the store sees it now: its holders, its queue, and its audit trail.

        ``resource`` is a lock, a lease or a text form.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42, meta={"job": 7}):
        ...     hold.inspect("report-export:42").holder.meta
        {'job': 7}
        """
        from leasehold.primitives.inspection import inspection

        name, view = self._operate(flows().inspect, resource_names_of(self, resource))
        return inspection(name.text, view)

    def scan(self, pattern: str = "*") -> Iterator[Inspection]:
        """Every resource of this namespace (without one: of the whole store) whose name matches and that is held,
        queued for or closed, or has an audit trail. In a pattern only ``*`` and ``?`` are special."""
        return self._scan(*pattern_of(self, pattern))

    def _scan(self, here: str, pattern: str) -> Iterator[Inspection]:
        from leasehold.primitives.inspection import inspection

        listed = flows().Listed()
        found, cursor = self._operate(flows().scan, here, pattern, "", listed)
        while True:
            yield from [inspection(resource, view) for resource, view in found]
            if not cursor:
                return
            found, cursor = self._operate(flows().scan, here, pattern, cursor, listed)

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
        """Take away the lease that has this fence. Its holder is notified, and loses it (``evicted``).

        No lease is granted for ``delay``: by default for the rest of this one, because its holder may go on working for
        that long; less needs ``force=True`` and the certainty that it has stopped. ``reason`` and ``by`` are kept with
        the resource as an audit trail. NotHeld when no holder has this fence any more."""
        from leasehold.primitives.inspection import Eviction

        request = eviction_request(self, resource, fence, reason, by, delay, force)
        name, victim, reply = self._operate(flows().evict, *request)
        return Eviction(name.text, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)

    def revoke(
        self, resource: Resource, *, fence: int | None = None, reason: str | None = None, by: str | None = None
    ) -> bool:
        """Ask the holder to release its lease: its ``lease.revoked`` is set. It may go on; ``evict`` forces it. Where
        several share the resource all are asked, or the one with this fence. False when not all of them can be reached.
        ``reason`` and ``by`` are kept with the resource as an audit trail. NotHeld when there is no holder, or none
        with this fence."""
        note = revocation_note(self, reason, by)
        checked = None if fence is None else check_fence(fence)
        reached: bool = self._operate(flows().revoke, resource_names_of(self, resource), checked, note)
        return reached

    def ping(self) -> float:
        """The seconds of a round trip to the store, as a claim would take it; StoreUnavailable when there is none. The
        first call connects, which takes longer. Of a Redis Cluster every master must answer, and the slowest counts;
        of a Redlock a majority.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     hold.ping() < 1
        True
        """
        seconds: float = self._operate(flows().ping, self._engine.clock.now(), self._namespace)
        return seconds

    def _versions(self) -> list[str]:
        """The names and versions of the servers."""
        found: list[str] = self._operate(flows().versions)
        return found

    def leaks(self, pattern: str = "lock:*") -> list[str]:
        """Keys without a TTL, of whichever library, that match (as Redis understands patterns): locks that never become
        free. Leasehold leaves none; on memory and SQLite there can be none."""
        keys: list[str] = self._operate(flows().leaks, check_pattern(pattern))
        report_leaks(self._engine, keys)
        return keys

    def _operate(self, flow: Any, *arguments: Any) -> Any:
        self._engine.ensure_open()
        return sync.run(self._engine, flow(*arguments))


class AsyncOperators:
    """The methods for operators, for asyncio."""

    _engine: Engine
    _namespace: str
    _driver: AsyncDriver

    async def inspect(self, resource: Resource) -> Inspection:
        """One resource as the store sees it now; see :meth:`leasehold.Leasehold.inspect`."""
        from leasehold.primitives.inspection import inspection

        name, view = await self._operate(flows().inspect, resource_names_of(self, resource))
        return inspection(name.text, view)

    def scan(self, pattern: str = "*") -> AsyncIterator[Inspection]:
        """Every resource that matches, for ``async for``; see :meth:`leasehold.Leasehold.scan`."""
        return self._scan(*pattern_of(self, pattern))

    async def _scan(self, here: str, pattern: str) -> AsyncIterator[Inspection]:
        from leasehold.primitives.inspection import inspection

        listed = flows().Listed()
        found, cursor = await self._operate(flows().scan, here, pattern, "", listed)
        while True:
            for resource, view in found:
                yield inspection(resource, view)
            if not cursor:
                return
            found, cursor = await self._operate(flows().scan, here, pattern, cursor, listed)

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

        request = eviction_request(self, resource, fence, reason, by, delay, force)
        name, victim, reply = await self._operate(flows().evict, *request)
        return Eviction(name.text, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)

    async def revoke(
        self, resource: Resource, *, fence: int | None = None, reason: str | None = None, by: str | None = None
    ) -> bool:
        """Ask the holder to release its lease; see :meth:`leasehold.Leasehold.revoke`."""
        note = revocation_note(self, reason, by)
        checked = None if fence is None else check_fence(fence)
        reached: bool = await self._operate(flows().revoke, resource_names_of(self, resource), checked, note)
        return reached

    async def ping(self) -> float:
        """The seconds of a round trip to the store; see :meth:`leasehold.Leasehold.ping`."""
        seconds: float = await self._operate(flows().ping, self._engine.clock.now(), self._namespace)
        return seconds

    async def _versions(self) -> list[str]:
        """The names and versions of the servers."""
        found: list[str] = await self._operate(flows().versions)
        return found

    async def leaks(self, pattern: str = "lock:*") -> list[str]:
        """Keys without a TTL, of whichever library; see :meth:`leasehold.Leasehold.leaks`."""
        keys: list[str] = await self._operate(flows().leaks, check_pattern(pattern))
        report_leaks(self._engine, keys)
        return keys

    async def _operate(self, flow: Any, *arguments: Any) -> Any:
        self._engine.ensure_open()
        return await self._driver.drive(flow(*arguments))


def report_leaks(engine: Engine, keys: list[str]) -> None:
    if engine.observers.observers:
        from leasehold.observe.events import Leaking

        engine.observers.notify(Leaking(len(keys)))
