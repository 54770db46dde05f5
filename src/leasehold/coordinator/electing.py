"""``hold.election`` in both flavours: one leader at a time, and everybody knows who."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold.errors import InvalidRequest
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

    from leasehold._core.durations import Duration
    from leasehold._core.names import Name
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.options import Options
    from leasehold.primitives.election import AsyncElection, Election
    from leasehold.primitives.health import Health

    Id = str | int | UUID | date


class Electing:
    """For threads."""

    _engine: Engine

    def election(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 10,
        wait: Duration | Unset | None = UNSET,
        value: Any = None,
        health: Callable[[], object] | None = None,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        health_start_period: Duration = 0,
        health_retries: int = 1,
    ) -> Election:
        """An election: of all who stand for it, one leads at a time, until it resigns, ends or is gone for ``ttl``.

        ``value`` is some JSON that everybody can see while this one leads, such as its address. ``health`` is a
        function that is asked every third of the ttl while it leads, in a thread of its own: after False or an
        exception it steps down (``unhealthy``), and when no answer comes for a whole ttl, too (``max_idle``).
        ``health_retries`` is how many bad answers in a row it takes. Those to questions asked in the first
        ``health_start_period`` of a term do not count, until the first good one; a candidate that does not lead is not
        asked. Without ``health``, ``max_idle`` is how long the body may go without ``term.beat()``. A term lasts at
        most ``max_hold``, and nobody else leads for ``at_least`` from its beginning. The rest is as with ``lock``.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.election("scheduler", value="host-a").campaign(wait=5) as term:
        ...         hold.election("scheduler").leader().value
        'host-a'
        """
        from leasehold.primitives.election import Election
        from leasehold.primitives.health import check_health

        check = check_health(health, health_start_period, health_retries, awaited=False)
        name, options = _asked(self, kind, ids, check, max_idle, (ttl, wait, max_hold, at_least, delay, protects), meta)
        return Election(self._engine, name, options, value, check)


class AsyncElecting:
    """For asyncio: the same, awaited."""

    _engine: Engine
    _driver: AsyncDriver

    def election(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 10,
        wait: Duration | Unset | None = UNSET,
        value: Any = None,
        health: Callable[[], object | Awaitable[object]] | None = None,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        health_start_period: Duration = 0,
        health_retries: int = 1,
    ) -> AsyncElection:
        """An election; see :meth:`leasehold.Leasehold.election`. ``health`` is a function or a coroutine function,
        asked in a task of its own: what blocks there, blocks the loop."""
        from leasehold.primitives.election import AsyncElection
        from leasehold.primitives.health import check_health

        check = check_health(health, health_start_period, health_retries, awaited=True)
        name, options = _asked(self, kind, ids, check, max_idle, (ttl, wait, max_hold, at_least, delay, protects), meta)
        return AsyncElection(self._engine, name, options, value, check, self._driver)


def _asked(
    hold: Any,
    kind: str,
    ids: tuple[Id, ...],
    health: Health | None,
    max_idle: Duration | None,
    rest: tuple[Any, ...],
    meta: Mapping[str, Any] | None,
) -> tuple[Name, Options]:
    """As a lock would be asked for. Whoever has a health check must show that it lives."""
    ttl, wait, max_hold, at_least, delay, protects = rest
    patience = hold._default_wait if isinstance(wait, Unset) else wait
    if health is not None:
        if max_idle is not None:
            raise InvalidRequest(
                "each answer of health is a beat, and a ttl without one ends the term already: leave out max_idle, or "
                "leave out health and call term.beat()"
            )
        max_idle = ttl
    asked = (ttl, patience, True, max_hold, max_idle, at_least, delay, False, protects)
    found: tuple[Name, Options] = hold._asked(kind, ids, asked, meta)
    return found
