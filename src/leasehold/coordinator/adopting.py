"""``hold.adopt`` in both flavours: taking over a lease that was given away with ``lease.transfer()``."""

from __future__ import annotations

from leasehold._core.durations import is_long
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import Name, parse_name, resource_names
from leasehold._core.tickets import Ticket, read
from leasehold.coordinator.asking import make_options, warn_long

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.options import Options
    from leasehold.primitives.lease import AsyncLease, Lease


class Adopting:
    """For threads."""

    _engine: Engine
    _id_key: bytes

    def adopt(
        self,
        ticket: str,
        *,
        ttl: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        protects: str | None = None,
    ) -> Lease:
        """Take over a lease that was given away with ``lease.transfer()``, here or in another process.

        It has a new owner and a new fence: a guard that sees it refuses whoever had it before. It is what it was: that
        of a reader or a writer is a ``ReadWriteLease``. ``ttl`` is the giver's unless it is said. LeaseLost when its
        time was over, or somebody else was quicker: a ticket is good once.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     ticket = hold.lock("report-export", 42).acquire().transfer()
        ...     with hold.adopt(ticket) as lease:
        ...         lease.resource
        'report-export:42'
        """
        told, name, options = _adoption(self._id_key, ticket, ttl, renew, max_hold, max_idle, protects)
        from leasehold.primitives.kinds import Adopter

        return Adopter(self._engine, name, options)._adopt(told)


class AsyncAdopting:
    """For asyncio: the same, awaited."""

    _driver: AsyncDriver
    _engine: Engine
    _id_key: bytes

    async def adopt(
        self,
        ticket: str,
        *,
        ttl: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        protects: str | None = None,
    ) -> AsyncLease:
        """Take over a lease that was given away; see :meth:`leasehold.Leasehold.adopt`."""
        told, name, options = _adoption(self._id_key, ticket, ttl, renew, max_hold, max_idle, protects)
        from leasehold.primitives.kinds import AsyncAdopter

        return await AsyncAdopter(self._engine, name, options, self._driver)._adopt(told)


def _adoption(key: bytes, ticket: str, ttl: Duration | None, *asked: Any) -> tuple[Ticket, Name, Options]:
    """What the ticket says, and how the lease is to be held, checked."""
    told = read(ticket)
    renew, max_hold, max_idle, protects = asked
    length = told.ttl_ms / 1000 if ttl is None else ttl
    options = make_options(length, None, renew, max_hold, max_idle, None, None, False, protects)
    if ttl is not None and is_long(options.ttl_ms):  # else its giver was told
        warn_long()
    resource_names("", told.resource)  # what a forged ticket calls a name must not become a key
    return told, parse_name(told.resource, hidden=bool(key)), options
